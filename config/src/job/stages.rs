//! `[[stage]]`: arrays of equal tasks, and their order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use headroom_types::{Bytes, Cpus, Name, Profile};
use headroom_wire::v1::job::MemoryFailureMode;
use toml::Spanned;
use toml::de::DeValue;

use super::executors::{ExecutorSets, short_name};
use super::growth;
use super::profiles::{ProfileTable, named};
use super::runtime::{self, ExitCodes, MemoryQuantities, TaskRuntime};
use super::spec::{ExecutorSpec, GrowthSetting, MAX_TASKS, StageSpec, TaskGroups, TaskLimit};
use super::template::PlaceholderTemplate;
use super::{files, input, live, output};
use crate::problem::ProblemCollector;
use crate::toml_reader::{self, KeyHint, TomlSection, duration, hint, integer, parsed, texts};

pub(super) const STAGES: KeyHint = hint(
    "a job is made of stages",
    "add a table [[stage]] with name and command",
);
const NAME: KeyHint = hint("it is part of task ids", "write name = \"map\"");
const AFTER: KeyHint = hint(
    "those stages must be done first",
    "write a list of stage names: after = [\"map\"]",
);
const COMMAND: KeyHint = hint(
    "each task runs it",
    "write command = [\"prog\", \"--part={index}\"]; plain braces are {{ and }}",
);
const CODES: KeyHint = hint(
    "the runtime reports a full heap by them",
    "write a list of exit codes from 1 to 255: heap_exit_codes = [3]",
);
const ENV: KeyHint = hint(
    "it is added to the task's environment",
    "write env = { NAME = \"value\" }; plain braces are {{ and }}",
);
const TIMEOUT: KeyHint = hint(
    "a task that runs longer is ended",
    "write a time with its unit, such as timeout = \"30m\"",
);
const ENFORCE: KeyHint = hint(
    "it sets which limit applies to the task",
    "write enforce = \"task\" or \"executor\"",
);
const KIND: KeyHint = hint(
    "tasks of one kind learn from each other",
    "write kind = \"NAME\", or leave it out for the stage's own name",
);
const FORK_SERVER: KeyHint = hint(
    "it starts the attempts of the stage from a process that has loaded their modules",
    "write a list of texts such as fork_server = [\"python3\", \"-m\", \"headroom.fork_server\"]",
);
const ARRAY: KeyHint = hint(
    "each index is one task",
    "write array = \"0-19\", or count = 20",
);

/// A parsed stage, with the positions that later checks report.
struct StageDraft {
    name: Option<Spanned<Name>>,
    after: Spanned<Vec<String>>,
    count: u32,
    /// True for a live stage, whose tasks are submitted while the job runs.
    live: bool,
    place: Range<usize>,
    spec: Option<StageSpec>,
}

/// Parts of the job that stages refer to.
#[derive(Clone, Copy)]
pub(super) struct StageContext<'a> {
    pub(super) mode: MemoryFailureMode,
    pub(super) profiles: &'a ProfileTable,
    pub(super) executors: &'a ExecutorSets,
    pub(super) codes: &'a ExitCodes,
    /// True in a live job: a stage without `array` and `count` is a live stage.
    pub(super) live: bool,
}

pub(super) fn read(root: &mut TomlSection<'_>, job: StageContext<'_>) -> Vec<StageSpec> {
    let sections = root.table_array("stage", STAGES);
    if sections.is_empty() && root.place("stage").is_empty() && !job.live {
        root.reject("stage", "the job has no stage", STAGES.why, STAGES.fix);
    }
    let mut drafts: Vec<StageDraft> = sections.into_iter().map(|s| one(s, job)).collect();
    unique_names(&drafts, root.problems());
    order(&mut drafts, root.problems());
    reject_waits_for_live_stages(&drafts, root.problems());
    let tasks = drafts.iter().fold(0u32, |n, d| n.saturating_add(d.count));
    if let Some(last) = drafts.last().filter(|_| tasks > MAX_TASKS) {
        let what = format!("{tasks} tasks in one job");
        root.add(
            last.place.clone(),
            "stage",
            what,
            "an application master keeps every task in memory",
            format!("use at most {MAX_TASKS}"),
        );
    }
    let (places, specs): (Vec<_>, Vec<_>) = drafts
        .into_iter()
        .filter_map(|d| Some((d.place, d.spec?)))
        .unzip();
    files::agree(&specs, root.problems(), |n| {
        places.get(n).cloned().unwrap_or(0..0)
    });
    specs
}

fn one(mut s: TomlSection<'_>, job: StageContext<'_>) -> StageDraft {
    let place = s.span();
    let name = s.read_required("name", NAME, |v| short_name(&toml_reader::text(v)?));
    if let Some(name) = &name {
        s.set_path(format!("stage.{}", name.get_ref()));
    }
    let live = job.live && !s.has("array") && !s.has("count");
    let (first, count) = array(&mut s, live);
    if live {
        live::reject_keys_of_arrays(&s);
    }
    let after = s
        .read("after", AFTER, texts)
        .unwrap_or_else(|| Spanned::new(s.span(), Vec::new()));
    let named = name.as_ref().map(|name| name.get_ref().clone());
    let spec = stage(&mut s, job, (named, after.get_ref()), (first, count));
    s.reject_unknown_keys();
    StageDraft {
        name,
        after,
        count,
        live,
        place,
        spec,
    }
}

/// Compiles one stage that a client declares while the job runs. `s` contains its name.
pub(super) fn declared(mut s: TomlSection<'_>, job: StageContext<'_>) -> Option<StageSpec> {
    for key in ["array", "count"] {
        if s.has(key) {
            let why = "its tasks are submitted while the job runs";
            s.reject(key, format!("{key} in a declared stage"), why, "remove it");
        }
    }
    s.set_path("stage".to_owned());
    one(s, job).spec
}

/// Checks that no stage waits for a live stage, which never counts as done before the job ends.
fn reject_waits_for_live_stages(drafts: &[StageDraft], r: &ProblemCollector<'_>) {
    let is_live = |name: &str| {
        drafts
            .iter()
            .filter(|draft| draft.live)
            .filter_map(|draft| draft.name.as_ref())
            .any(|live| live.get_ref().as_str() == name)
    };
    for draft in drafts {
        for after in draft.after.get_ref().iter().filter(|after| is_live(after)) {
            r.add(
                draft.after.span(),
                "stage.after",
                format!("a stage comes after \"{after}\", which is a live stage"),
                "a live stage takes tasks until the job ends",
                "give that stage an array, or remove the name from `after`",
            );
        }
    }
}

/// Reads all keys but the name, the order and the number of tasks. `None` if a required key is
/// missing or has errors; this is recorded.
fn stage(
    s: &mut TomlSection<'_>,
    job: StageContext<'_>,
    (name, after): (Option<Name>, &[String]),
    (first, count): (u32, u32),
) -> Option<StageSpec> {
    let set = executor_set(s, job.executors);
    let cpus_per_task = cpus_per_task(s, set.as_ref());
    let runtime = runtime::read(s);
    let slots = (cpus_per_task, runtime);
    let profile = size(s, job.profiles, set.as_ref(), slots);
    let (flags, gc_log) = runtime::read_flags(s);
    let enforce = s.read_or("enforce", ENFORCE, TaskLimit::Task, parsed);
    let grow = growth::read(s, (enforce, job.mode));
    let command = s.read_required("command", COMMAND, words);
    let command = command.map(Spanned::into_inner);
    let env = s.read_or("env", ENV, BTreeMap::new(), variables);
    let (idempotent, output) = output::read(s, command.iter().flatten().chain(env.values()));
    let codes = job.codes.of(runtime);
    let heap_exit_codes = s.read_or("heap_exit_codes", CODES, codes, exit_codes);
    let timeout = s.read_value("timeout", TIMEOUT, duration);
    let fork_server = s.read_value("fork_server", FORK_SERVER, program);
    let files = files::read(s);
    let kind = s.read_value("kind", KIND, |v| short_name(&toml_reader::text(v)?));
    let input = input::read(s, count);
    let (input_locality, input_hosts) = input::place(s, count);
    let set = set?;
    // An executor without task cgroups has no limit to raise.
    let none_held = set
        .program
        .is_some_and(|program| program.task_groups == TaskGroups::No);
    Some(StageSpec {
        name: name?,
        first,
        count,
        after: after.iter().filter_map(|n| n.parse().ok()).collect(),
        executors: set.name,
        command: command?,
        cpus_per_task,
        profile: profile?,
        runtime,
        flags,
        gc_log,
        heap_exit_codes,
        env,
        timeout,
        idempotent,
        output,
        enforce,
        grow: match grow {
            GrowthSetting::Usual(_) if none_held => GrowthSetting::Off,
            GrowthSetting::Usual(_) | GrowthSetting::Stated(_) | GrowthSetting::Off => grow,
        },
        kind,
        input,
        input_locality,
        input_hosts,
        files,
        fork_server,
    })
}

/// The slots of one task. Records an error if an executor has fewer.
fn cpus_per_task(s: &mut TomlSection<'_>, set: Option<&ExecutorSpec>) -> u32 {
    let cpus_hint = hint(
        "a task takes this number of slots of an executor",
        "write a whole number, such as cpus_per_task = 2",
    );
    let cpus = s.read("cpus_per_task", cpus_hint, toml_reader::count(1, 1024));
    if let (Some(cpus), Some(set)) = (
        &cpus,
        set.filter(|set| cpus.as_ref().is_some_and(|c| *c.get_ref() > set.slots)),
    ) {
        let what = format!(
            "{} slots for one task, but an executor of \"{}\" has {}",
            cpus.get_ref(),
            set.name,
            set.slots
        );
        s.reject(
            "cpus_per_task",
            what,
            cpus_hint.why,
            "lower it, or give the executors more slots",
        );
    }
    cpus.map_or(1, Spanned::into_inner)
}

/// Reads `array` or `count`: first index and number of tasks; otherwise one task, or none in a live
/// stage.
fn array(s: &mut TomlSection<'_>, live: bool) -> (u32, u32) {
    let array = s.read("array", ARRAY, |v| span_of_indexes(&toml_reader::text(v)?));
    let count = s.read("count", ARRAY, toml_reader::count(1, MAX_TASKS));
    if s.has("array") && s.has("count") {
        s.reject(
            "count",
            "both array and count",
            "both set the number of tasks",
            "keep one of them",
        );
    }
    array
        .map(Spanned::into_inner)
        .or(count.map(|c| (0, c.into_inner())))
        .unwrap_or((0, u32::from(!live)))
}

fn span_of_indexes(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("{text:?} is not a range of indexes");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u32, u32) = (
        first.trim().parse().map_err(|_| wrong())?,
        last.trim().parse().map_err(|_| wrong())?,
    );
    let count = last.checked_sub(first).and_then(|n| n.checked_add(1));
    let count = count.ok_or_else(|| format!("the range {text:?} ends before it begins"))?;
    if last >= MAX_TASKS {
        Err(format!(
            "{last} is beyond the last index, {}",
            MAX_TASKS - 1
        ))
    } else {
        Ok((first, count))
    }
}

/// The named executor set, or the only one. `None` if it is missing or has errors; this is
/// recorded.
fn executor_set(s: &mut TomlSection<'_>, executors: &ExecutorSets) -> Option<ExecutorSpec> {
    let hint = hint(
        "tasks run in the slots of executors",
        "write executors = \"NAME\" of an [executors.NAME]",
    );
    let known: Vec<&str> = executors.keys().map(Name::as_str).collect();
    if !s.has("executors") && known.len() > 1 {
        let fix = format!(
            "write executors = \"NAME\"; there are: {}",
            known.join(", ")
        );
        s.reject(
            "executors",
            "the stage names no executors",
            "the job has several sets of executors",
            fix,
        );
    }
    let Some(name) = s.read("executors", hint, parsed::<Name>) else {
        return if s.has("executors") || known.len() > 1 {
            None
        } else {
            executors.values().next().cloned().flatten()
        };
    };
    if let Some(set) = executors.get(name.get_ref()) {
        return set.clone();
    }
    let fix = match toml_reader::closest_name(name.get_ref().as_str(), &known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!(
            "add a table [executors.{}], or use one of: {}",
            name.get_ref(),
            known.join(", ")
        ),
    };
    let what = format!("there are no executors \"{}\"", name.get_ref());
    s.reject("executors", what, hint.why, fix);
    None
}

/// The initial size of a task: its profile, or the share of its slots.
fn size(
    s: &mut TomlSection<'_>,
    profiles: &ProfileTable,
    set: Option<&ExecutorSpec>,
    (slots, runtime): (u32, TaskRuntime),
) -> Option<Profile> {
    let hint = hint(
        "it gives the size of a task",
        "write profile = \"NAME\" of a [profiles.NAME], or leave it out",
    );
    if let Some(name) = s.read("profile", hint, parsed::<Name>) {
        return named(&name, "profile", s, profiles);
    }
    if runtime.memory() == MemoryQuantities::HeapAndOverhead && !s.has("profile") {
        let fix = "add profile = \"NAME\" with heap and overhead";
        s.reject(
            "profile",
            format!("a {} task has no profile", runtime.as_str()),
            "its heap budget must leave room for off-heap memory",
            fix,
        );
        return None;
    }
    let share = set.map(ExecutorSpec::slot_memory)?;
    let heap = share.mul_ratio(u64::from(slots), 1);
    Some(Profile {
        heap,
        overhead: Bytes::ZERO,
        cpus: Cpus::from_cores(slots),
    })
}

fn words(value: &DeValue<'_>) -> Result<Vec<PlaceholderTemplate>, String> {
    let words = texts(value)?;
    let words: Vec<PlaceholderTemplate> = words
        .iter()
        .map(|w| w.parse::<PlaceholderTemplate>().map_err(|e| e.to_string()))
        .collect::<Result<_, _>>()?;
    match words.first() {
        None => Err("the command is empty".to_owned()),
        Some(program) if program.is_empty() => Err("the program's name is empty".to_owned()),
        Some(_) => Ok(words),
    }
}

/// A program with arguments, without templates.
fn program(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let words = toml_reader::texts(value)?;
    match words.first() {
        None => Err("the list is empty".to_owned()),
        Some(program) if program.is_empty() => Err("the program's name is empty".to_owned()),
        Some(_) => Ok(words),
    }
}

fn exit_codes(value: &DeValue<'_>) -> Result<Vec<i32>, String> {
    let items = value.as_array().ok_or_else(|| {
        format!(
            "this is {}, not a list of exit codes",
            toml_reader::kind(value)
        )
    })?;
    let code = |item: &Spanned<DeValue<'_>>| integer(item.get_ref(), 1, 255);
    items
        .iter()
        .map(|item| code(item).and_then(|n| i32::try_from(n).map_err(|e| e.to_string())))
        .collect()
}

fn variables(value: &DeValue<'_>) -> Result<BTreeMap<String, PlaceholderTemplate>, String> {
    let table = value.as_table().ok_or_else(|| {
        format!(
            "this is {}, not a table of variables",
            toml_reader::kind(value)
        )
    })?;
    let mut variables = BTreeMap::new();
    for (name, value) in table.iter() {
        let key = name.get_ref().to_string();
        if key.is_empty() || key.contains(['=', '\0']) || key.starts_with("HEADROOM_") {
            return Err(format!("{key:?} is not a valid name of a variable"));
        }
        let word = toml_reader::text(value.get_ref()).map_err(|e| format!("{key}: {e}"))?;
        variables.insert(
            key,
            word.parse::<PlaceholderTemplate>()
                .map_err(|e| e.to_string())?,
        );
    }
    Ok(variables)
}

fn unique_names(drafts: &[StageDraft], r: &ProblemCollector<'_>) {
    let mut seen = BTreeSet::new();
    for name in drafts.iter().filter_map(|d| d.name.as_ref()) {
        if !seen.insert(name.get_ref()) {
            let what = format!("a second stage \"{}\"", name.get_ref());
            r.add(
                name.span(),
                "stage.name",
                what,
                "task ids would not be unique",
                "give it another name",
            );
        }
    }
}

/// Checks that every `after` names another stage, and that there is no cycle.
fn order(drafts: &mut [StageDraft], r: &ProblemCollector<'_>) {
    let names: Vec<String> = drafts
        .iter()
        .filter_map(|d| d.name.as_ref())
        .map(|n| n.get_ref().to_string())
        .collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    for draft in drafts.iter() {
        let stage = draft
            .name
            .as_ref()
            .map(|n| n.get_ref().to_string())
            .unwrap_or_default();
        for after in draft
            .after
            .get_ref()
            .iter()
            .filter(|a| !known.contains(&a.as_str()))
        {
            let fix = match toml_reader::closest_name(after, &known) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("use one of: {}", known.join(", ")),
            };
            let what = format!("stage \"{stage}\" comes after \"{after}\", which does not exist");
            r.add(
                draft.after.span(),
                &format!("stage.{stage}.after"),
                what,
                "the stage would wait forever",
                fix,
            );
        }
    }
    let mut open: Vec<&StageDraft> = drafts.iter().filter(|d| d.name.is_some()).collect();
    loop {
        let waiting: BTreeSet<String> = open
            .iter()
            .filter_map(|d| d.name.as_ref())
            .map(|n| n.get_ref().to_string())
            .collect();
        let before = open.len();
        open.retain(|d| d.after.get_ref().iter().any(|a| waiting.contains(a)));
        if open.is_empty() {
            return;
        }
        if open.len() == before {
            break;
        }
    }
    let circle: Vec<String> = open
        .iter()
        .filter_map(|d| d.name.as_ref())
        .map(|n| format!("\"{}\"", n.get_ref()))
        .collect();
    if let Some(first) = open.first() {
        let what = format!("stages {} wait for each other", circle.join(", "));
        r.add(
            first.after.span(),
            "stage.after",
            what,
            "none of them could ever start",
            "take one of the names out of an `after`",
        );
    }
}
