//! Measurements of Headroom's performance promises. Developers run it on an idle machine; tests
//! never do.
//!
//! `cargo run --release -p integration --bin measure -- NAME [-o json]`

#![forbid(unsafe_code)]

mod adopt;
mod agent_cost;
mod cli_start;
mod diagnosis;
mod growth;
mod guest_run;
mod ha;
mod house;
mod instant_executor;
mod journals;
mod kill_to_retry;
mod launch;
mod leftovers;
mod load_runtime;
mod master_restart;
mod modes;
mod noisy_neighbour;
mod page;
mod progress;
mod python;
mod quantiles;
mod request_to_running;
mod rm_core;
mod rm_http;
mod rm_restart;
mod rm_scale;
mod rm_soak;
mod sim;
mod spark;
mod store;
mod submissions;
mod tasks;
mod treatments;
mod upgrades;
mod verdicts;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};

/// The allocator of the daemons, because this process measures their core.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run one measurement and print its results.
#[derive(Parser)]
struct Cli {
    /// The measurement
    name: Measurement,
    /// kill-to-retry: number of tasks
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// kill-to-retry: all processors are busy with tasks of the same job, and four more loads; runs
    /// `--rounds` of eleven jobs with a hundred tasks
    #[arg(long)]
    loaded: bool,
    /// rm-http, rm-soak, rm-restart, page, ha: number of simulated nodes
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(16..=50_000))]
    agents: u32,
    /// rm-restart: number of kills of the resource manager; adopt: number of kills of the agent;
    /// master-restart: number of jobs whose master is killed; upgrades: number of restarts, kills
    /// and upgrades; ask-to-running, launch: number of containers; cli-start: number of
    /// calls; verdicts: number of runs of each case, fewer for rare ones; diagnosis: number of runs
    /// of each program; growth: number of tasks; ha: number of failures; journals: number of jobs at
    /// each place
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// rm-http: containers of each of sixteen masters between request and running at full load
    #[arg(long, default_value_t = rm_http::WINDOW, value_parser = clap::value_parser!(u32).range(1..=1000))]
    window: u32,
    /// rm-http: version of the simulated agents
    #[arg(long, value_enum, default_value = "present")]
    agent_version: rm_http::AgentVersion,
    /// agent-cost: number of containers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    containers: u32,
    #[command(flatten)]
    verdicts: verdicts::Args,
    /// noisy-neighbour: run time of the hostile jobs; rm-soak: run time of the load
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// leftovers: `[isolation] ipc` of the node
    #[arg(long, default_value = "task", value_parser = ["task", "container", "host"])]
    ipc: String,
    /// tasks, journals: number of tasks of a job; python: number of calls of the stream, and ten times as many tasks of
    /// the large job
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: Option<u32>,
    /// sim: number of runs
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// sim: first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// adopt, master-restart: seed of the random choices; a new one for each run if absent
    #[arg(long)]
    seed: Option<u64>,
    /// rm-core: only run the steps whose instructions valgrind counts
    #[arg(long, hide = true)]
    only_steps: bool,
    /// rm-scale: only measure this point, in this process
    #[arg(long, hide = true, value_delimiter = ',')]
    point: Vec<u32>,
    /// Output format
    #[arg(short = 'o', default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Measurement {
    /// From the end of a killed task's process in the kernel to the first instruction of its next
    /// attempt
    KillToRetry,
    /// Containers that the resource manager's core grants, without any interface
    RmCore,
    /// The resource manager through its API, with all agents connected
    RmHttp,
    /// The same core with more nodes, queues, users and waiting requests
    RmScale,
    /// The resource manager through its API at 70 % of its highest rate for a long time
    RmSoak,
    /// From a request to the report that the container runs, on an idle cluster with one real agent
    AskToRunning,
    /// Kills of the resource manager under load
    RmRestart,
    /// Commits of the store with either database, compared with the bare sync of the same disk
    Store,
    /// From an order to a running program, from a kill to a report, and containers per second,
    /// compared with the kernel's own speed
    Launch,
    /// Memory and processor time of an agent that samples its containers, and the reports of a
    /// hundred that are killed at once
    AgentCost,
    /// Kills of the node agent at each step in the life cycle of a container
    Adopt,
    /// Kills of the application master while tasks escalate
    MasterRestart,
    /// Restarts, kills and upgrades of installed daemons under load, on three guests with systemd
    Upgrades,
    /// All kinds of memory kills on the real node stack, with a check of each verdict
    Verdicts,
    /// Programs that run out of one kind of memory each, with a check of each diagnosis
    Diagnosis,
    /// The same programs as jobs on a real cluster: treatment, number of attempts and end of each
    Treatments,
    /// Growth of running tasks: kills with and without it, and the wait of a task
    Growth,
    /// Programs that leave memory behind, and their effect on the next job of the node
    Leftovers,
    /// Five hundred tasks of one user beside another user's jobs that leak, fork, fill `/dev/shm`
    /// and flood their logs
    NoisyNeighbour,
    /// Skewed stages in all modes: kills, lost tasks, memory, time
    Modes,
    /// From the start of `rmctl status` to its last byte, on an idle cluster
    CliStart,
    /// Empty tasks per second, compared with other tools
    Tasks,
    /// Empty tasks per second with each place for the journal of the application master
    Journals,
    /// The web page with a large cluster: first view, bytes, frames, and the load on the resource
    /// manager
    Page,
    /// Simulated clusters, and the number of runs with a violated invariant
    Sim,
    /// Skewed Spark jobs on stock Spark and on Headroom; `--rounds` is the number of jobs
    Spark,
    /// Calls from Python: overhead beside other pools, a stream during kills, a large job
    Python,
    /// Failures of resource managers, of etcd and of hosts under load; the rate of durable
    /// applications with etcd and sled
    Ha,
    /// The source text: odd words, names of types, import cycles, lines
    House,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for users
    Table,
    /// One JSON document
    Json,
}

fn main() -> Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(submissions::ECHO) {
        submissions::echo()?;
        return Ok(ExitCode::SUCCESS);
    }
    if std::env::args().nth(1).as_deref() == Some(instant_executor::INSTANT_EXECUTOR) {
        instant_executor::run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let cli = Cli::parse();
    if let Some(table) = table(&cli)? {
        print_text(&table);
        return Ok(ExitCode::SUCCESS);
    }
    let agents = usize::try_from(cli.agents)?;
    let figures = match cli.name {
        Measurement::KillToRetry if cli.verdicts.guest => kill_to_retry::in_a_guest(cli.count)?,
        Measurement::KillToRetry if cli.loaded => {
            figures(&kill_to_retry::loaded::measure(cli.rounds.unwrap_or(4))?)?
        }
        Measurement::KillToRetry => figures(&kill_to_retry::measure(usize::from(cli.count))?)?,
        Measurement::RmCore if cli.only_steps => {
            rm_core::run_steps()?;
            return Ok(ExitCode::SUCCESS);
        }
        Measurement::RmScale if !cli.point.is_empty() => figures(&rm_scale::point(&cli.point)?)?,
        Measurement::RmScale => figures(&rm_scale::measure()?)?,
        Measurement::RmSoak => {
            figures(&rm_soak::measure(agents, Duration::from_secs(cli.seconds))?)?
        }
        Measurement::RmCore => figures(&rm_core::measure()?)?,
        Measurement::RmHttp => figures(&rm_http::measure(agents, cli.window, cli.agent_version)?)?,
        Measurement::AskToRunning => {
            figures(&request_to_running::measure(cli.rounds.unwrap_or(200))?)?
        }
        Measurement::RmRestart => {
            figures(&rm_restart::measure(cli.rounds.unwrap_or(100), agents)?)?
        }
        Measurement::Store => figures(&store::measure()?)?,
        Measurement::Launch if cli.verdicts.guest => launch::in_a_guest(cli.rounds.unwrap_or(100))?,
        Measurement::Launch => figures(&launch::measure(cli.rounds.unwrap_or(300))?)?,
        Measurement::AgentCost => figures(&agent_cost::measure(u64::from(cli.containers))?)?,
        Measurement::Adopt if cli.verdicts.guest => {
            adopt::in_a_guest(cli.rounds.unwrap_or(30), cli.seed)?
        }
        Measurement::Adopt => figures(&adopt::measure(cli.rounds.unwrap_or(100), cli.seed)?)?,
        Measurement::MasterRestart => figures(&master_restart::measure(
            cli.rounds.unwrap_or(100),
            cli.seed,
        )?)?,
        Measurement::Upgrades => figures(&upgrades::measure(cli.rounds.unwrap_or(50))?)?,
        Measurement::Verdicts => {
            return verdicts::measure(cli.rounds.unwrap_or(10), &cli.verdicts, cli.format);
        }
        Measurement::Diagnosis => figures(&diagnose(&cli)?)?,
        Measurement::Treatments => figures(&treatments::of(&cli.verdicts)?)?,
        Measurement::Growth if cli.verdicts.guest => growth::in_a_guest(cli.rounds.unwrap_or(40))?,
        Measurement::Growth => figures(&growth::measure(cli.rounds.unwrap_or(40))?)?,
        Measurement::Leftovers => figures(&measure_leftovers(&cli)?)?,
        Measurement::Modes => figures(&modes::measure(&cli.verdicts.only)?)?,
        Measurement::NoisyNeighbour if cli.verdicts.guest => {
            noisy_neighbour::in_a_guest(cli.seconds)?
        }
        Measurement::NoisyNeighbour => figures(&noisy_neighbour::measure(cli.seconds)?)?,
        Measurement::CliStart => figures(&cli_start::measure(cli.rounds.unwrap_or(200))?)?,
        Measurement::Tasks => figures(&tasks::measure(cli.n.unwrap_or(10_000))?)?,
        Measurement::Journals => figures(&journals::measure(cli.rounds, cli.n)?)?,
        Measurement::Page => figures(&page::measure(agents)?)?,
        Measurement::Sim => figures(&sim::measure(cli.from, cli.seeds))?,
        Measurement::Spark => figures(&spark::measure(cli.rounds.unwrap_or(20), spark::newest())?)?,
        Measurement::Python => {
            let calls = cli.n.unwrap_or(100_000);
            figures(&python::measure(calls, calls.saturating_mul(10))?)?
        }
        Measurement::Ha => figures(&ha::measure(cli.rounds.unwrap_or(100), cli.seed, agents)?)?,
        Measurement::House => figures(&house::measure()?)?,
    };
    print(&figures, cli.format);
    Ok(ExitCode::SUCCESS)
}

/// The table of a measurement that has a form of its own for users.
fn table(cli: &Cli) -> Result<Option<String>> {
    if let (Measurement::Diagnosis, Format::Table) = (cli.name, cli.format) {
        return Ok(Some(diagnosis::table(&diagnose(cli)?)));
    }
    if let (Measurement::Leftovers, Format::Table) = (cli.name, cli.format) {
        return Ok(Some(leftovers::table(&measure_leftovers(cli)?)));
    }
    if let (Measurement::RmScale, Format::Table, []) = (cli.name, cli.format, &*cli.point) {
        return Ok(Some(rm_scale::table(&rm_scale::measure()?)));
    }
    if let (Measurement::Treatments, Format::Table) = (cli.name, cli.format) {
        return Ok(Some(treatments::table(&treatments::of(&cli.verdicts)?)));
    }
    Ok(None)
}

fn diagnose(cli: &Cli) -> Result<diagnosis::DiagnosisResults> {
    match cli.verdicts.guest {
        true => diagnosis::in_a_guest(cli.rounds.unwrap_or(1), &cli.verdicts.only),
        false => diagnosis::measure(cli.rounds.unwrap_or(1), &cli.verdicts.only),
    }
}

fn measure_leftovers(cli: &Cli) -> Result<leftovers::LeftoverResults> {
    let plan = leftovers::Plan {
        enforcer: cli.verdicts.enforcer,
        only: cli.verdicts.only.clone(),
        ipc: cli.ipc.clone(),
    };
    if cli.verdicts.guest {
        leftovers::in_a_guest(&plan)
    } else {
        leftovers::measure(&plan)
    }
}

/// The object of a measurement's results.
fn figures<T: Serialize>(measured: &T) -> Result<Map<String, Value>> {
    let Value::Object(figures) = serde_json::to_value(measured)? else {
        bail!("the result of a measurement is not an object")
    };
    Ok(figures)
}

#[allow(clippy::print_stdout)] // the table is the output of this program
fn print_text(text: &str) {
    print!("{text}");
}

#[allow(clippy::print_stdout)] // the results are the output of this program
fn print(figures: &Map<String, Value>, format: Format) {
    match format {
        Format::Json => println!("{}", Value::Object(figures.clone())),
        Format::Table => figures
            .iter()
            .for_each(|(name, figure)| println!("{name:24} {figure}")),
    }
}
