//! `rmctl doctor`: runs the checks of a node agent or of a resource manager on this host without a
//! daemon, or shows the checks of a node's agent.

use std::path::Path;
use std::time::Duration;

use headroom_client::{Client, ClientCredentials};
use headroom_config::{NodeAgentConfig, ResourceManagerConfig};
use headroom_nodeagent::doctor::{self, CheckResult, DoctorFinding};
use headroom_rm_store::etcd_checks::{self, CheckState, EtcdCheck};
use headroom_transport::CertificateFiles;
use headroom_types::NodeId;
use serde::Deserialize;

use crate::args::DoctorArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render;
use crate::render::doctor::DoctorSubject;
use crate::render::json::MachineOutput;

/// Timeout of a call to the own address.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Prints the findings. The worst finding determines the exit code.
pub(crate) async fn run(context: &CommandContext, args: DoctorArgs) -> CommandResult {
    let (subject, findings) = match (&args.node, &args.manager) {
        (Some(node), _) => (DoctorSubject::Node, of_node(context, node).await?),
        (None, Some(file)) => (DoctorSubject::Manager, of_manager(file, &args).await?),
        (None, None) => (DoctorSubject::Node, of_this_host(args).await?),
    };
    let text = MachineOutput::list(&findings).text(&context.output, |f| f.code.to_string());
    let text = text.unwrap_or_else(|| {
        render::doctor::screen(subject, &findings, context.term.width, context.term.paint)
    });
    context.term.print(&text);
    Ok(match doctor::worst(&findings) {
        CheckResult::Ok => CommandExitCode::Ok,
        CheckResult::Warn => CommandExitCode::NotNow,
        CheckResult::Fail => CommandExitCode::Failed,
    })
}

/// Findings of a node agent at its start, from its own interface.
async fn of_node(context: &CommandContext, node: &NodeId) -> CommandResult<Vec<DoctorFinding>> {
    #[derive(Deserialize)]
    struct NodeFindings {
        host: Vec<DoctorFinding>,
    }
    let url = context.client()?.node(node).await?.url;
    Ok(super::metrics::of_node(context, &url)?
        .get::<NodeFindings>("/v1/doctor")
        .await?
        .host)
}

async fn of_this_host(args: DoctorArgs) -> CommandResult<Vec<DoctorFinding>> {
    let mut config = match &args.config {
        None => NodeAgentConfig::default(),
        Some(path) => headroom_config::load_nodeagent(path)?,
    };
    config.state = args.state.unwrap_or(config.state);
    config.cgroup_root = args.cgroup_root.or(config.cgroup_root);
    let look = tokio::task::spawn_blocking(move || doctor::examine(&config)).await;
    look.map_err(|e| CommandFailure::failed(format!("the checks of this host failed: {e}")))
}

/// Checks of the etcd of a resource manager, and of the address at which others reach it.
async fn of_manager(file: &Path, args: &DoctorArgs) -> CommandResult<Vec<DoctorFinding>> {
    let mut config = headroom_config::load_resourcemanager(file)?;
    if let Some(state) = &args.state {
        config.state.clone_from(state);
    }
    if !config.etcd.is_used() {
        return Err(CommandFailure::usage(format!(
            "{} has no endpoints under [etcd], so there is nothing to check",
            file.display()
        )));
    }
    let advertise = advertise(&config).await;
    let checks = tokio::task::spawn_blocking(move || etcd_checks::examine(&config)).await;
    let checks = checks
        .map_err(|e| CommandFailure::failed(format!("the checks of etcd failed: {e}")))?
        .map_err(|e| CommandFailure::failed(e.to_string()))?;
    let mut findings: Vec<DoctorFinding> = checks.into_iter().map(finding).collect();
    findings.push(advertise);
    Ok(findings)
}

fn finding(check: EtcdCheck) -> DoctorFinding {
    DoctorFinding {
        code: check.code.into(),
        state: match check.state {
            CheckState::Ok => CheckResult::Ok,
            CheckState::Warn => CheckResult::Warn,
            CheckState::Fail => CheckResult::Fail,
        },
        what: check.what.into(),
        found: check.found,
        fix: check.fix,
    }
}

/// Calls the own address as another host does: by its name, with the authority in `tls`.
async fn advertise(config: &ResourceManagerConfig) -> DoctorFinding {
    let finding = |state, found: String, fix: Option<&str>| DoctorFinding {
        code: "advertise".into(),
        state,
        what: "callers and other managers reach this one there".into(),
        found,
        fix: fix.map(str::to_owned),
    };
    let Some(url) = &config.advertise else {
        let found = format!("not set; the address of the listener is {}", config.listen);
        return if config.listen.ip().is_loopback() {
            finding(CheckResult::Ok, found, None)
        } else {
            let fix = "set advertise to the URL of this host, such as https://rm1.example:7070";
            finding(CheckResult::Warn, found, Some(fix))
        };
    };
    let credentials = ClientCredentials {
        files: CertificateFiles {
            ca: config.tls.as_ref().map(|dir| dir.join("ca.pem")),
            own: None,
        },
        ..ClientCredentials::default()
    };
    let answer = match Client::with_credentials(url, credentials) {
        Ok(client) => {
            let client = client.with_timeout(ANSWER_TIMEOUT);
            client.get_text("/livez").await.map(drop)
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => finding(CheckResult::Ok, format!("{url} answers"), None),
        Err(error) => finding(
            CheckResult::Warn,
            format!("{url}: {error}"),
            Some(
                "start the resource manager; or correct advertise, the names in its certificate \
                 (rmctl ca issue manager --at HOST), or the firewall",
            ),
        ),
    }
}
