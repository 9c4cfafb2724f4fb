//! Documentation of the configuration keys, and values of each key for tests.
//!
//! `docs/configuration.md` is generated from these tables and from the comments of the shipped
//! files, which describe each key. A test compares the tables with the keys and values that the
//! parser accepts.

use std::fmt::Write as _;

use crate::checked::{NodeAgentConfig, ResourceManagerConfig};
use crate::reference::{AGENT_KEYS, ConfigKey, MANAGER_KEYS, TakesEffect};

mod documented_key;
mod value_range;

pub use documented_key::{AGENT_DOCUMENTATION, DocumentedKey, MANAGER_DOCUMENTATION, documented};
pub use value_range::{ValueKind, ValueRange};

/// A key with its description: of the files of `rmctl`, or of the table of an auxiliary service.
#[derive(Debug)]
pub struct PlainKey {
    /// Name of the key.
    pub name: &'static str,
    /// Form of its value.
    pub kind: ValueKind,
    /// Default, as written in the file.
    pub default: &'static str,
    /// Purpose.
    pub meaning: &'static str,
}

/// Keys of a context in `~/.config/rmctl/config.toml`, and of `/etc/headroom/client.toml`. `rmctl`
/// reads both files at every call.
pub const CLIENT_KEYS: &[PlainKey] = &[
    PlainKey {
        name: "addr",
        kind: ValueKind::Url,
        default: "\"http://127.0.0.1:7070\"",
        meaning: "The resource manager.",
    },
    PlainKey {
        name: "ca",
        kind: ValueKind::Path,
        default: "none",
        meaning: "Authority of the resource manager, PEM.",
    },
    PlainKey {
        name: "cert",
        kind: ValueKind::Path,
        default: "none",
        meaning: "Certificate of the user, PEM.",
    },
    PlainKey {
        name: "key",
        kind: ValueKind::Path,
        default: "none",
        meaning: "Key of the certificate, PEM.",
    },
    PlainKey {
        name: "token_file",
        kind: ValueKind::Path,
        default: "none",
        meaning: "File with a token.",
    },
    PlainKey {
        name: "output",
        kind: ValueKind::Text,
        default: "\"table\"",
        meaning: "Output format, as for `-o`.",
    },
    PlainKey {
        name: "timeout",
        kind: ValueKind::Time,
        default: "\"10s\"",
        meaning: "Timeout of one call.",
    },
];

/// Keys of `[aux_services.NAME]` in `nodeagent.toml`.
pub const AUX_SERVICE_KEYS: &[PlainKey] = &[
    PlainKey {
        name: "command",
        kind: ValueKind::Words,
        default: "required",
        meaning: "Program and arguments. A program without a slash is searched in the directory of the agent, then on its PATH. `{memory}` and `{node}` are replaced.",
    },
    PlainKey {
        name: "env",
        kind: ValueKind::Table,
        default: "none",
        meaning: "Environment variables, added to a minimal environment.",
    },
    PlainKey {
        name: "memory",
        kind: ValueKind::Size,
        default: "required",
        meaning: "Memory limit of its cgroup, at least 4 MiB. The node offers less by this size.",
    },
    PlainKey {
        name: "port",
        kind: ValueKind::Number,
        default: "none",
        meaning: "The service is ready when 127.0.0.1 accepts a connection at this TCP port; without it, as soon as its program runs.",
    },
    PlainKey {
        name: "start_timeout",
        kind: ValueKind::Time,
        default: "\"30s\"",
        meaning: "Time from its start until it is ready; then it counts as failed.",
    },
    PlainKey {
        name: "user",
        kind: ValueKind::Text,
        default: "the user of the agent",
        meaning: "User of the program; needs an agent that is root.",
    },
    PlainKey {
        name: "stop_grace",
        kind: ValueKind::Time,
        default: "\"10s\"",
        meaning: "Time between SIGTERM and SIGKILL.",
    },
];

/// The description and the default of a key, from the comment in a shipped file.
fn comment(sample: &str, name: &str) -> Option<(String, String)> {
    let (table, key) = name.rsplit_once('.').unwrap_or(("", name));
    let (mut at, mut lines, mut default) = (String::new(), Vec::new(), String::new());
    for line in sample.lines() {
        let bare = line.trim_start_matches("# ");
        if let Some(header) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            at = header.to_owned();
        } else if at == table && bare.split_once(" = ").is_some_and(|(word, _)| word == key) {
            return Some((lines.join(" "), default));
        } else if let Some(text) = line.strip_prefix("# Default: ") {
            default = text.to_owned();
            continue;
        } else if let Some(text) = line.strip_prefix("# ") {
            lines.push(text);
            continue;
        }
        (lines, default) = (Vec::new(), String::new());
    }
    None
}

/// The comment above the header of a table.
fn heading(sample: &str, table: &str) -> String {
    let before = sample
        .split(&format!("\n[{table}]\n"))
        .next()
        .unwrap_or_default();
    let lines: Vec<&str> = before
        .lines()
        .rev()
        .map_while(|line| line.strip_prefix("# "))
        .collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" ")
}

const MANAGER_SAMPLE: &str = include_str!("../resourcemanager.toml");
const AGENT_SAMPLE: &str = include_str!("../nodeagent.toml");

/// Generates `docs/configuration.md`.
pub fn page() -> String {
    let mut text = ABOUT.to_owned();
    text.push_str(MANAGER_HEAD);
    tables(
        &mut text,
        &documented(MANAGER_KEYS, MANAGER_DOCUMENTATION),
        MANAGER_SAMPLE,
        &ResourceManagerConfig::default(),
    );
    text.push_str(QUEUES);
    text.push_str(AGENT_HEAD);
    tables(
        &mut text,
        &documented(AGENT_KEYS, AGENT_DOCUMENTATION),
        AGENT_SAMPLE,
        &NodeAgentConfig::default(),
    );
    text.push_str(AUX_SERVICES_HEAD);
    for key in AUX_SERVICE_KEYS {
        plain_row(&mut text, key);
    }
    text.push_str(CLIENT_HEAD);
    for key in CLIENT_KEYS {
        plain_row(&mut text, key);
    }
    text.push_str(ENVIRONMENT);
    text
}

/// Tables of the keys of a file: one per TOML table, in the order of the file.
fn tables<C>(text: &mut String, keys: &[(&ConfigKey<C>, &DocumentedKey)], sample: &str, usual: &C) {
    let mut table = None;
    for (key, documentation) in keys {
        let (at, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if table != Some(at) {
            table = Some(at);
            if !at.is_empty() {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "\n### [{at}]\n\n{}\n", heading(sample, at));
            }
            text.push_str("\n| key | kind | default | taken | changed by | meaning |\n| --- | --- | --- | --- | --- | --- |\n");
        }
        let (meaning, without) = comment(sample, key.name).unwrap_or_default();
        let default = (key.value)(usual).map_or(without, |value| format!("`{value}`"));
        let name = format!("`{name}`");
        let takes = match key.takes {
            TakesEffect::Reload => "reload",
            TakesEffect::Restart => "restart",
        };
        row(
            text,
            &[
                &name,
                documentation.kind.as_str(),
                &default,
                &documentation.range.words(),
                takes,
                &meaning,
            ],
        );
    }
}

fn plain_row(text: &mut String, key: &PlainKey) {
    row(
        text,
        &[
            &format!("`{}`", key.name),
            key.kind.as_str(),
            &format!("`{}`", key.default),
            key.meaning,
        ],
    );
}

fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

const ABOUT: &str = "# Configuration

Generated from `config/src/reference.rs` and the comments of the shipped files; a test keeps it current.

Three programs read files in TOML: the resource manager, the node agents, and `rmctl`. An omitted key has its default; an omitted file gives only
defaults. Unknown keys, values of another kind and values out of range are refused. All errors are reported at once, each with its line and
a fix. `--check-config` only checks the file. Arguments of the command line override the file.

The column *changed by* shows when another value is applied: after a `reload` (SIGHUP, `systemctl reload`), or after a `restart`. A reload applies all keys
that it can and names the keys that need a restart, in the log and in an event (`ConfigReloaded`). A file with errors changes nothing; its errors are
in the log and in an event (`ConfigRefused`).
";
const MANAGER_HEAD: &str = "
## resourcemanager.toml

`resourcemanager --config FILE`; as a service `/etc/headroom/resourcemanager.toml`.
";
const QUEUES: &str = "
### [queues]

A tree of queues, `[queues.NAME]` and `[queues.NAME.queues.NAME]`; the keys of a queue are in the shipped file, each with its default. The tree is applied
completely or not at all. A tree that was set while the resource manager ran (`rmctl queue set` or `rmctl queue state`) overrides the one of the file, also after a
restart and a reload. Changed by a reload, if no such tree was set.
";
const AGENT_HEAD: &str = "
## nodeagent.toml

`nodeagent --config FILE`; as a service `/etc/headroom/nodeagent.toml`. Containers continue during a restart of the agent. After `systemctl reload`,
the agent reports the result to the resource manager, which records it as an event.
";
const AUX_SERVICES_HEAD: &str = "
### [aux_services.NAME]

An auxiliary service: a program that the containers of a node share. Launches refer to it by its name ([auxiliary services](auxiliary-services.md)). Changed by a
restart of the agent; a running service keeps its configuration until it ends.

| key | kind | default | meaning |
| --- | --- | --- | --- |
";
const CLIENT_HEAD: &str = "
## rmctl

`/etc/headroom/client.toml` has these keys at its top. `~/.config/rmctl/config.toml` (or the file that `HEADROOM_CONFIG` names) has them in a table for each
context, `[contexts.NAME]`, and the key `current` with the name of the one in use; `rmctl context` writes it. An argument overrides the environment, which overrides
the context, which overrides the file of the host. Both files are read at every call.

| key | kind | default | meaning |
| --- | --- | --- | --- |
";
const ENVIRONMENT: &str = "
## Environment

`HEADROOM_LOG` overrides `log`, and can set levels of parts: `info,headroom_rm_core=debug`. It is the only way to set the level of a node
agent. The variables that `rmctl` reads are in `rmctl --help`.
";
