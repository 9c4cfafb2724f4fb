//! `rmctl operator debug`: the state of the cluster, its events and the checks of this host, in one
//! file for support.
//!
//! The bundle lists the parts that were not available, because it is made for clusters in trouble.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use headroom_client::{Client, EventQuery, FollowMode};
use headroom_wire::v1::apps::AppView;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::DebugBundleArgs;
use crate::bundle::{self, BundleFile};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::figures::{rfc3339, short};
use crate::render::json::{self, MachineOutput};

/// Maximum number of events in a bundle, the latest ones.
const EVENTS: usize = 20_000;
/// Maximum number of applications whose pending requests are explained.
const WAITS: usize = 20;
/// Documents of the interface that are stored unchanged, with their file names.
const DOCUMENTS: [(&str, &str); 7] = [
    ("version.json", "/v1/version"),
    ("status.json", "/v1/status"),
    ("nodes.json", "/v1/nodes"),
    ("queues.json", "/v1/queues"),
    ("apps.json", "/v1/apps"),
    ("containers.json", "/v1/containers"),
    ("audit.json", "/v1/audit"),
];

/// The written bundle.
#[derive(Debug, Serialize)]
struct WrittenBundle {
    file: PathBuf,
    /// Size of the bundle in bytes.
    bytes: u64,
    files: Vec<String>,
    /// Parts that were not available, with the reasons.
    missing: Vec<String>,
}

/// The parts gathered so far.
struct BundleCollector<'a> {
    context: &'a CommandContext,
    pieces: Vec<BundleFile>,
    missing: Vec<String>,
    unreachable: bool,
}

impl BundleCollector<'_> {
    /// Adds a document without possible secrets.
    fn document(&mut self, name: &str, found: CommandResult<Value>) {
        self.take(name, found.map(|value| json::pretty(&bundle::clean(value))));
    }

    fn text(&mut self, name: &str, found: CommandResult<String>) {
        self.take(name, found.map(|text| bundle::clean_text(&text)));
    }

    fn take(&mut self, name: &str, found: CommandResult<String>) {
        match found {
            Ok(text) => {
                let size =
                    headroom_types::Bytes::new(u64::try_from(text.len()).unwrap_or(u64::MAX));
                self.context
                    .term
                    .say(&format!("✓ {name:<16} {}", short(size)));
                self.pieces.push(BundleFile {
                    name: name.to_owned(),
                    text,
                });
            }
            Err(failure) => {
                self.unreachable |= failure.exit() == CommandExitCode::Unreachable;
                let why = failure
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                self.context.term.say(&format!("✗ {name:<16} {why}"));
                self.missing
                    .push(bundle::clean_text(&format!("{name}: {why}")));
            }
        }
    }
}

/// Writes the bundle and lists its files and the missing parts.
pub(crate) async fn run(context: &CommandContext, args: DebugBundleArgs) -> CommandResult {
    let stamp: String = rfc3339(now())
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .collect();
    let folder = format!("headroom-debug-{stamp}");
    let path = args
        .to
        .unwrap_or_else(|| PathBuf::from(format!("{folder}.tgz")));
    // An existing file is refused before the work begins.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| unwritable(&path, &e))?;
    let client = context.client()?;
    let mut gathered = BundleCollector {
        context,
        pieces: Vec::new(),
        missing: Vec::new(),
        unreachable: false,
    };
    gathered.document("versions.json", Ok(versions()));
    gathered.document("settings.json", Ok(context.settings.json()));
    for (name, from) in DOCUMENTS {
        gathered.document(
            name,
            client
                .get::<Value>(from)
                .await
                .map_err(CommandFailure::from),
        );
    }
    gathered.document("waits.json", waits(&client).await);
    gathered.take("events.jsonl", events(&client).await);
    gathered.text(
        "metrics.txt",
        client
            .get_text("/metrics")
            .await
            .map_err(CommandFailure::from),
    );
    #[cfg(feature = "dev")]
    gathered.document("doctor.json", doctor().await);
    let BundleCollector {
        mut pieces,
        missing,
        unreachable,
        ..
    } = gathered;
    pieces.insert(
        0,
        BundleFile {
            name: "README.txt".into(),
            text: about(&pieces, &missing),
        },
    );
    bundle::pack(&file, &folder, &pieces, now()).map_err(|e| unwritable(&path, &e))?;
    let bytes = file.metadata().map_or(0, |m| m.len());
    let written = WrittenBundle {
        file: path,
        bytes,
        files: pieces.into_iter().map(|p| p.name).collect(),
        missing,
    };
    let text = MachineOutput::one(&written).text(&context.output, |w| w.file.display().to_string());
    context.show(text, || people(&written));
    Ok(if unreachable {
        CommandExitCode::Unreachable
    } else {
        CommandExitCode::Ok
    })
}

fn people(w: &WrittenBundle) -> String {
    let file = w.file.display();
    let size = short(headroom_types::Bytes::new(w.bytes));
    let lacks = if w.missing.is_empty() {
        String::new()
    } else {
        format!(", {} could not be collected", w.missing.len())
    };
    format!(
        "{file}  {} files, {size}{lacks}\nnext: tar -tzf {file}\n",
        w.files.len()
    )
}

fn unwritable(path: &Path, e: &std::io::Error) -> CommandFailure {
    let exit = if e.kind() == std::io::ErrorKind::AlreadyExists {
        CommandExitCode::Conflict
    } else {
        CommandExitCode::Failed
    };
    CommandFailure::new(exit, format!("{}: {e}", path.display()))
        .help("name another file with --to FILE")
}

fn about(pieces: &[BundleFile], missing: &[String]) -> String {
    let files: String = pieces.iter().map(|p| format!("  {}\n", p.name)).collect();
    let lacks: String = missing.iter().map(|m| format!("  {m}\n")).collect();
    let lacks = if lacks.is_empty() {
        String::new()
    } else {
        format!("\nNot collected:\n{lacks}")
    };
    format!(
        "Made by rmctl {} at {}.\n\nFiles:\n{files}{lacks}\nLeft out on purpose: logs of containers and tasks, commands, \
         environments, and text that looks like a password or a token.\n",
        env!("CARGO_PKG_VERSION"),
        rfc3339(now()),
    )
}

/// Versions of this program and of the kernel.
fn versions() -> Value {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    json!({
        "rmctl": env!("CARGO_PKG_VERSION"), "made": rfc3339(now()), "kernel": read("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH, "system": read("/etc/os-release"),
    })
}

/// Reasons why requests are pending, by application.
async fn waits(client: &Client) -> CommandResult<Value> {
    let apps = client.apps().await?;
    let waiting = apps
        .iter()
        .filter(|app| !app.state.is_final() && app.pending > 0)
        .take(WAITS);
    let mut all = serde_json::Map::new();
    for AppView { id, .. } in waiting {
        // An application that has ended meanwhile has no pending requests.
        if let Ok(why) = client.get::<Value>(&format!("/v1/apps/{id}/why")).await {
            all.insert(id.to_string(), why);
        }
    }
    Ok(Value::Object(all))
}

async fn events(client: &Client) -> CommandResult<String> {
    let mut lines = client
        .events_wanted(&EventQuery::default(), 0, FollowMode::No)
        .await?;
    let mut latest = std::collections::VecDeque::new();
    while let Some(event) = lines.next().await {
        latest.push_back(event?);
        if latest.len() > EVENTS {
            latest.pop_front();
        }
    }
    let line = |event| {
        json::line(&bundle::clean(
            serde_json::to_value(event).unwrap_or_default(),
        )) + "\n"
    };
    Ok(latest.iter().map(line).collect())
}

/// The checks of this host for a node agent.
#[cfg(feature = "dev")]
async fn doctor() -> CommandResult<Value> {
    use headroom_config::NodeAgentConfig;
    use headroom_nodeagent::doctor::examine;
    let look = tokio::task::spawn_blocking(|| examine(&NodeAgentConfig::default())).await;
    let findings =
        look.map_err(|e| CommandFailure::failed(format!("the checks of this host failed: {e}")))?;
    serde_json::to_value(&findings).map_err(|e| CommandFailure::failed(e.to_string()))
}
