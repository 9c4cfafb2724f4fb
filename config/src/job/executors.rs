//! `[executors.NAME]`: sets of equal executors.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Name};
use toml::de::DeValue;

use super::node_constraints;
use super::profiles::{ProfileTable, named};
use super::spec::{ExecutorProgram, ExecutorSpec, TaskGroups};
use crate::toml_reader::{
    self, KeyHint, TomlSection, boolean, duration_or_zero, hint, parsed, size, texts,
};

/// Executor sets by name. `None` for a set with errors.
pub(super) type ExecutorSets = BTreeMap<Name, Option<ExecutorSpec>>;

/// Maximum length of a name, so that request ids with the name stay within their limit.
pub(super) const MAX_NAME_CHARS: usize = 40;

const SETS: KeyHint = hint(
    "tasks run in the slots of executors",
    "add a table [executors.main] with profile, count and slots",
);

const IDLE: KeyHint = hint(
    "an executor without tasks is kept for this time",
    "write a duration such as idle = \"30s\", or \"0s\" for not at all",
);

/// Time for which an idle executor of a live job is kept by default: until the next batch.
const LIVE_IDLE: Duration = Duration::from_secs(30);

/// Reads all sets. `live` is true in a live job.
pub(super) fn read(
    root: &mut TomlSection<'_>,
    profiles: &ProfileTable,
    live: bool,
) -> ExecutorSets {
    let mut executors = ExecutorSets::new();
    let tables = root.named_tables("executors", SETS);
    if tables.is_empty() && !root.has("executors") {
        root.add(
            root.span(),
            "executors",
            "the job has no executors",
            SETS.why,
            SETS.fix,
        );
    }
    for (name, section) in tables {
        match short_name(name.get_ref()) {
            Ok(id) => {
                let spec = one(id.clone(), section, profiles, live);
                executors.insert(id, spec);
            }
            Err(e) => root.problems().add(
                name.span(),
                &format!("executors.{}", name.get_ref()),
                e,
                "stages refer to it",
                "rename it",
            ),
        }
    }
    executors
}

/// Parses a name that is short enough to become part of a request id.
pub(super) fn short_name(text: &str) -> Result<Name, String> {
    let name: Name = text
        .parse()
        .map_err(|e: headroom_types::ids::ParseIdError| e.to_string())?;
    if text.len() > MAX_NAME_CHARS {
        Err(format!(
            "{text:?} is longer than {MAX_NAME_CHARS} characters"
        ))
    } else {
        Ok(name)
    }
}

fn one(
    id: Name,
    mut s: TomlSection<'_>,
    profiles: &ProfileTable,
    live: bool,
) -> Option<ExecutorSpec> {
    let profile_hint = hint(
        "it gives the size of each executor",
        "write profile = \"NAME\" of a [profiles.NAME]",
    );
    let count_hint = hint(
        "the job requests at most this number of containers",
        "write a whole number, such as count = 2",
    );
    let min_hint = hint(
        "this number is kept as long as the job runs",
        "write a whole number up to count, such as min = 1",
    );
    let slots_hint = hint(
        "this number of tasks runs at once in each executor",
        "write a whole number, such as slots = 4",
    );
    let reserve_hint = hint(
        "the executor itself needs memory",
        "write a size such as reserve = \"32MiB\"",
    );
    let profile = s.read_required("profile", profile_hint, parsed::<Name>);
    let profile = profile.and_then(|name| named(&name, "profile", &s, profiles));
    let count = s.read_or("count", count_hint, 1, toml_reader::count(1, 10_000));
    let min = s.read_or("min", min_hint, 0, toml_reader::count(0, count));
    let usual = if live { LIVE_IDLE } else { Duration::ZERO };
    let idle = s.read_or("idle", IDLE, usual, duration_or_zero);
    let slots = s.read_or("slots", slots_hint, 1, toml_reader::count(1, 1024));
    let reserve = s.read_or("reserve", reserve_hint, Bytes::from_mib(32), size);
    let program = program(&mut s);
    let place = node_constraints::read(&mut s);
    let spec = profile.map(|profile| ExecutorSpec {
        name: id,
        profile,
        count,
        min,
        idle,
        slots,
        reserve,
        program,
        place,
    });
    let spec = spec.filter(|spec| {
        let enough = !spec.slot_memory().is_zero();
        if !enough {
            let place = if s.has("reserve") {
                s.place("reserve")
            } else {
                s.place("profile")
            };
            let what = format!(
                "the reserve of {reserve} leaves no memory of {} for tasks",
                spec.profile.memory()
            );
            let why = "the slots share the memory after the reserve";
            s.add(
                place,
                "reserve",
                what,
                why,
                "choose a larger profile or a smaller reserve",
            );
        }
        enough
    });
    s.reject_unknown_keys();
    spec
}

/// Reads `program` and `task_groups`: a third-party executor.
fn program(s: &mut TomlSection<'_>) -> Option<ExecutorProgram> {
    let program = hint(
        "this program is started in each container instead of the node's executor",
        "write program and arguments, such as program = [\"python3\", \"./executor.py\"], or leave it out",
    );
    let groups = hint(
        "it sets who creates the cgroups of tasks",
        "write task_groups = true or task_groups = false",
    );
    let command = s.read_value("program", program, command);
    let written = s.read_value("task_groups", groups, boolean);
    if written.is_some() && !s.has("program") {
        let why = "the node's executor always creates a cgroup for each task";
        let fix = "add program = [...], or remove it";
        s.reject("task_groups", "task_groups without program", why, fix);
    }
    let task_groups = if written == Some(true) {
        TaskGroups::Yes
    } else {
        TaskGroups::No
    };
    command.map(|command| ExecutorProgram {
        command,
        task_groups,
    })
}

fn command(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let words = texts(value)?;
    match words.first() {
        None => Err("the command is empty".to_owned()),
        Some(program) if program.is_empty() => Err("the program's name is empty".to_owned()),
        Some(_) if words.iter().any(|word| word.contains('\0')) => {
            Err("a NUL character cannot be passed to a program".to_owned())
        }
        Some(_) => Ok(words),
    }
}
