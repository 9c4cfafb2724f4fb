//! `nodeagent`: the node agent as a daemon. Arguments, configuration, logs, signals; the library
//! does the rest.

#![forbid(unsafe_code)]
// Before the log starts, the program prints to standard error.
#![allow(clippy::print_stderr, clippy::print_stdout)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use headroom_config::{FileProblem, Isolation, NodeAgentConfig, RunAsUser, SelfFence};
use headroom_nodeagent::{AgentOptions, RunningAgent, ShutdownContainers, doctor, start};
use headroom_transport::attached::ParentProcess;
use headroom_types::{Bytes, Cpus, EnforcerKind, Name, NodeId};
use headroom_wire::v1::attached::StartReport;
use tokio::signal::unix::{SignalKind, signal};

/// Threads for the loop and its connections; no task on them blocks.
const WORKERS: usize = 2;
/// Threads for jobs that block on files and cgroups; further jobs wait.
const JOBS: usize = 32;

/// The node agent of Headroom: launches containers, enforces their limits, explains how they ended.
#[derive(Clone, Debug, Parser)]
#[command(name = "nodeagent", version)]
struct AgentArguments {
    /// Configuration file; arguments override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    check_config: bool,
    /// Check this host and exit: one JSON object per line; the exit code is 1 if a check failed
    #[arg(long)]
    doctor: bool,
    /// URL of the resource manager, or those of all, separated by commas
    #[arg(long, value_name = "URL")]
    rm: Option<String>,
    /// Name of this node; the host name by default
    #[arg(long, value_name = "NODE")]
    name: Option<NodeId>,
    /// State directory: containers and their logs
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Listen address; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Directory of the node's certificate: ca.pem, cert.pem, key.pem
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Name or address by which other hosts connect to this node
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Memory to offer; all except the reserve by default
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Processors to offer; all by default
    #[arg(long, value_name = "N")]
    cpus: Option<Cpus>,
    /// Memory kept for the host if --memory is not given
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Bytes>,
    /// Enforcer of the limits: cgroup2, cgroup1 or poll; the best one that works by default
    #[arg(long, value_name = "KIND")]
    enforcer: Option<EnforcerKind>,
    /// Cgroup directory to use; detected by default
    #[arg(long, value_name = "PATH")]
    cgroup_root: Option<PathBuf>,
    /// Directory of the sibling programs; that of this program by default
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Time without contact to the resource manager after which all containers are ended, or
    /// "never"; 10m by default
    #[arg(long, value_name = "TIME")]
    self_fence: Option<SelfFence>,
    /// User of the programs: submitter, agent, or a user name
    #[arg(long, value_name = "WHO")]
    run_as: Option<RunAsUser>,
    /// Allow programs to run as root
    #[arg(long)]
    allow_root: bool,
    /// Let programs share the host's /tmp
    #[arg(long)]
    shared_tmp: bool,
    /// Rack of the node
    #[arg(long, value_name = "NAME")]
    rack: Option<Name>,
    /// Label of the node that requests can require; repeatable
    #[arg(long = "label", value_name = "NAME")]
    labels: Vec<Name>,
    /// Accept only requests that require one of its labels
    #[arg(long, requires = "labels")]
    exclusive: bool,
    /// Attribute of the node that requests can compare; repeatable
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(Name, String)>,
    /// Name of the cgroup directory to create if none is given
    #[arg(long, value_name = "NAME", hide = true)]
    cgroup_name: Option<String>,
    /// Report the start as one line of JSON, and end with all containers when standard input
    /// closes: for a parent process
    #[arg(long, hide = true)]
    attached: bool,
}

fn attribute(text: &str) -> Result<(Name, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    headroom_config::checked_attribute(name, value)
}

impl AgentArguments {
    fn read(&self) -> Result<NodeAgentConfig, Vec<FileProblem>> {
        self.config.as_ref().map_or_else(
            || Ok(NodeAgentConfig::default()),
            |path| headroom_config::load_nodeagent(path),
        )
    }

    /// The options of an agent with this configuration, whose values the arguments override.
    fn over(self, c: NodeAgentConfig) -> AgentOptions {
        let config = NodeAgentConfig {
            rm: self.rm.unwrap_or(c.rm),
            name: self.name.or(c.name),
            state: self.state.unwrap_or(c.state),
            listen: self.listen.unwrap_or(c.listen),
            tls: self.tls.or(c.tls),
            advertise: self.advertise.or(c.advertise),
            memory: self.memory.or(c.memory),
            cpus: self.cpus.or(c.cpus),
            reserve: self.reserve.unwrap_or(c.reserve),
            enforcer: self.enforcer.or(c.enforcer),
            cgroup_root: self.cgroup_root.or(c.cgroup_root),
            bin_dir: self.bin_dir.or(c.bin_dir),
            self_fence: self.self_fence.unwrap_or(c.self_fence),
            rack: self.rack.or(c.rack),
            labels: if self.labels.is_empty() {
                c.labels
            } else {
                self.labels.into_iter().collect()
            },
            exclusive: self.exclusive || c.exclusive,
            attributes: c.attributes.into_iter().chain(self.attributes).collect(),
            isolation: Isolation {
                run_as: self.run_as.unwrap_or(c.isolation.run_as),
                allow_root: self.allow_root || c.isolation.allow_root,
                private_tmp: c.isolation.private_tmp && !self.shared_tmp,
                ..c.isolation
            },
            ..c
        };
        AgentOptions {
            config,
            cgroup_name: self.cgroup_name,
            attached: self.attached,
        }
    }
}

fn main() -> ExitCode {
    let args = AgentArguments::parse();
    let config = match args.read() {
        Ok(config) => config,
        Err(problems) => {
            eprint!("{}", headroom_config::render(&problems));
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        println!("nodeagent: the configuration is valid");
        return ExitCode::SUCCESS;
    }
    if args.doctor {
        return examine(&args.over(config).config);
    }
    headroom_telemetry::log::begin("nodeagent", "info");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(JOBS)
        .enable_all()
        .build();
    let ended = runtime
        .context("starting the threads")
        .and_then(|runtime| runtime.block_on(run(args, config)));
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("nodeagent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn examine(config: &NodeAgentConfig) -> ExitCode {
    let findings = doctor::examine(config);
    for finding in &findings {
        match serde_json::to_string(finding) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("nodeagent: {}: {error}", finding.code),
        }
    }
    if doctor::worst(&findings) == doctor::CheckResult::Fail {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

async fn run(args: AgentArguments, mut config: NodeAgentConfig) -> anyhow::Result<ExitCode> {
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let mut hangup = signal(SignalKind::hangup())?;
    let started = start(args.clone().over(config.clone())).await;
    let mut parent = if args.attached {
        ParentProcess::report_start(&report(&started)?).context("the start cannot be reported")?
    } else {
        ParentProcess::none()
    };
    let mut agent = match started {
        Ok(agent) => agent,
        Err(_) if args.attached => return Ok(ExitCode::FAILURE),
        Err(error) => return Err(error),
    };
    tracing::info!(name: "agent-ready", url = agent.ready.url, node = %agent.ready.node, "the agent is ready");
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = int.recv() => break,
            () = parent.ended() => {
                agent.shutdown(ShutdownContainers::Kill).await;
                return Ok(ExitCode::SUCCESS);
            }
            _ = hangup.recv() => agent.reload(&mut config, args.read()).await,
            () = agent.ended() => anyhow::bail!("the loop of the agent ended; see the log"),
        }
    }
    tracing::info!("the agent shuts down; containers continue, and the next agent adopts them");
    agent.shutdown(ShutdownContainers::Keep).await;
    Ok(ExitCode::SUCCESS)
}

/// The result of the start as one line, for the parent process.
fn report(started: &anyhow::Result<RunningAgent>) -> serde_json::Result<String> {
    serde_json::to_string(&match started {
        Ok(agent) => StartReport::Ready(agent.ready.clone()),
        Err(error) => StartReport::Failed {
            error: format!("{error:#}"),
            address_in_use: false,
        },
    })
}
