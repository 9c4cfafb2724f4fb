//! Reference of all keys of a job file, for `rmctl explain` and `docs/job-file.md`.
//!
//! A test compares this list with the keys that the readers accept.

use std::fmt::Write as _;

use super::Placeholder;

/// A key of a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFileKey {
    /// Its table as written; empty for the top level, `profiles.NAME`, `stage` …
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its value, with the unit.
    pub takes: &'static str,
    /// Its default; `must be there` for a required key.
    pub usual: &'static str,
    /// Its meaning.
    pub means: &'static str,
}

impl JobFileKey {
    /// Full name with its table: `retry.cap`.
    pub fn path(&self) -> String {
        if self.table.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.table, self.name) }
    }
}

/// Marks a required key.
pub const REQUIRED: &str = "must be there";

const fn key(
    table: &'static str,
    name: &'static str,
    takes: &'static str,
    usual: &'static str,
    means: &'static str,
) -> JobFileKey {
    JobFileKey { table, name, takes, usual, means }
}

const SIZE: &str = "a size such as \"512MiB\", or bytes as a whole number";
const TIME: &str = "a time with its unit, such as \"30s\" or \"1h30m\"";

/// All keys, in the usual order of a file.
pub const KEYS: &[JobFileKey] = &[
    key("", "version", "1", REQUIRED, "The format of the file."),
    key(
        "",
        "name",
        "a name: letters, digits, dash",
        REQUIRED,
        "The job is known by it; its id is NAME.NUMBER. Jobs of one name learn from each other.",
    ),
    key("", "queue", "the path of a queue", "the default queue", "Where the job waits for room."),
    key("", "priority", "a whole number, -1000 to 1000", "0", "Higher goes first within its queue."),
    key("", "mode", "headroom, pinterest, uber, databricks, tovar or fixed", "headroom", "How memory failures are answered."),
    key(
        "",
        "sizes",
        "stated, learned or shadow",
        "stated; learned in mode tovar",
        "What tasks start with: the size of their stage, or what tasks of their kind turned out to need; shadow gives the first and tells the second.",
    ),
    key(
        "",
        "exit_codes",
        "a table of exit codes from 1 to 255, each \"heap\" or \"plain\"",
        "none",
        "What an exit code says, whatever the runtime.",
    ),
    key(
        "",
        "profiles",
        "tables [profiles.NAME]",
        "none",
        "Sizes by name. A name that is not among them is one of the cluster's (`rmctl profile list`).",
    ),
    key("", "executors", "tables [executors.NAME]", REQUIRED, "Sets of equal containers, in the slots of which tasks run."),
    key("", "stage", "tables [[stage]]", REQUIRED, "Arrays of equal tasks, in the order in which they are shown."),
    key("", "retry", "a table [retry]", "the usual of each key", "How often a task is tried, and how far it may grow."),
    key(
        "",
        "treatments",
        "a table of sub-causes, each \"grow\", \"fail\", \"retry\", \"elsewhere\" or \"remedy\"",
        "the usual of each sub-cause",
        "What is done about a failure, by the sub-cause of its diagnosis. Only in mode headroom. The sub-causes and what is usual are in [Diagnosis](diagnosis.md#treatments).",
    ),
    key("", "access", "a table [access]", "its owner only", "Who else may come near the job; rights of the cluster go before."),
    key(
        "profiles.NAME",
        "from",
        "the name of another profile, of this file or of the cluster",
        "none",
        "What is not written here is taken from it. It may not begin with another one itself.",
    ),
    key("profiles.NAME", "memory", SIZE, "heap is there instead", "All its memory, for a program that has one quantity."),
    key(
        "profiles.NAME",
        "heap",
        SIZE,
        "memory is there instead",
        "What a runtime that manages its own memory is given for that. Heap and overhead together are the limit.",
    ),
    key(
        "profiles.NAME",
        "overhead",
        "a size, or { factor = 0.10, min = \"384MiB\" } of the heap",
        "0",
        "All else that counts against the limit: buffers, stacks, code, children.",
    ),
    key("profiles.NAME", "cpus", "a number of processors above 0, such as 2 or 0.5", "1", "Processors."),
    key("executors.NAME", "profile", "the name of a profile", REQUIRED, "The size of each container."),
    key("executors.NAME", "count", "a whole number, 1 to 10000", "1", "How many containers at most."),
    key("executors.NAME", "min", "a whole number up to count", "0", "How many are kept as long as the job runs."),
    key("executors.NAME", "idle", TIME, "0s", "How long one is kept that nothing runs in."),
    key(
        "executors.NAME",
        "slots",
        "a whole number, 1 to 1024",
        "1",
        "How many tasks run at once in each; they share its memory.",
    ),
    key("executors.NAME", "reserve", SIZE, "32MiB", "What is kept for the executor itself, out of the profile's memory."),
    key(
        "executors.NAME",
        "program",
        "a list of texts: program and arguments",
        "the node's own executor",
        "Another executor that is started in each container.",
    ),
    key("executors.NAME", "task_groups", "true or false", "false", "Whether that other executor makes a cgroup for each task."),
    key("executors.NAME", "nodes", "a list of names of nodes", "none", "Only these nodes."),
    key("executors.NAME", "labels", "a list of names", "none", "Only nodes that have all of these labels."),
    key(
        "executors.NAME",
        "attributes",
        "a table of texts, or of lists of them",
        "none",
        "Only nodes that have each of these attributes with this value, or with one of these.",
    ),
    key(
        "executors.NAME",
        "tolerate",
        "a list of taints: \"etl\", or \"team=etl\" for one value",
        "none",
        "Nodes with these taints too; a tainted node takes nobody else. The containers of escalated tasks go by the same four keys.",
    ),
    key("stage", "name", "a name of at most 40 characters", REQUIRED, "Its tasks are known by it: NAME/INDEX."),
    key("stage", "array", "a range of indexes such as \"0-19\"", "one task", "Each index is a task."),
    key("stage", "count", "a whole number of tasks", "one task", "The same as array = \"0-(N-1)\"."),
    key("stage", "after", "a list of names of stages", "none", "These must be done before."),
    key("stage", "executors", "the name of a set of executors", "the only one there is", "Where its tasks run."),
    key("stage", "profile", "the name of a profile", "the share of its slots", "The size of a task at first."),
    key("stage", "cpus_per_task", "a whole number, 1 to 1024", "1", "How many slots of an executor a task takes."),
    key(
        "stage",
        "runtime",
        "native, jvm, node, python or go",
        "native",
        "What manages the memory of its tasks, and so what a full heap looks like.",
    ),
    key(
        "stage",
        "runtime_flags",
        "heap, caps or none",
        "heap",
        "What the runtime is told of its budget by flags and environment.",
    ),
    key("stage", "gc_log", "yes or no", "no", "Whether the collector writes a log, so that a diagnosis tells more."),
    key(
        "stage",
        "heap_exit_codes",
        "a list of exit codes from 1 to 255",
        "those of the runtime",
        "By these the runtime says that its heap is full.",
    ),
    key("stage", "command", "a list of texts: program and arguments, with {places} to fill in", REQUIRED, "What a task runs."),
    key("stage", "env", "a table of texts, with {places} to fill in", "none", "Added to the environment of its tasks."),
    key("stage", "timeout", TIME, "no end", "A task that runs longer is ended, and tried again as any failure of its own."),
    key(
        "stage",
        "enforce",
        "task or executor",
        "task",
        "Whose limit holds a task: one of its own, or only that of its container.",
    ),
    key(
        "stage",
        "grow",
        "true or false",
        "true where mode is headroom and the kernel holds each task's limit",
        "Whether a running task near its limit may be given more instead of being killed.",
    ),
    key("stage", "grow_hold", "a time up to \"5m\"", "30s", "How long a task near its limit is held for that."),
    key(
        "stage",
        "idempotent",
        "yes, fenced or no",
        "yes; fenced where output is there",
        "Whether an attempt may be repeated. fenced: each attempt has an output directory of its own, and one counts.",
    ),
    key("stage", "output", "an absolute directory that all nodes see", "none", "Where the outputs of a fenced stage go."),
    key(
        "stage",
        "kind",
        "a name of at most 40 characters",
        "the name of the stage",
        "Tasks of one kind learn their sizes from each other.",
    ),
    key(
        "stage",
        "input",
        "a file with {index} in it, or a list with a size for each task",
        "not known",
        "What each task reads; learned sizes go by its size.",
    ),
    key(
        "stage",
        "input_locality",
        "local or remote",
        "not known",
        "Whether inputs are on nodes, or come over the network to all of them.",
    ),
    key(
        "stage",
        "input_hosts",
        "names of nodes for all tasks, or a list of them for each",
        "not known",
        "Which nodes hold the inputs; tasks rather go there.",
    ),
    key(
        "stage",
        "files",
        "a list of tables { name, from, … }",
        "none",
        "What the node puts into the working directory before the first task starts.",
    ),
    key("stage.files", "name", "a name without a slash", REQUIRED, "Tasks find it by that name."),
    key("stage.files", "from", "an address, or an absolute path on the node", REQUIRED, "Where the node fetches it."),
    key(
        "stage.files",
        "sha256",
        "64 hexadecimal digits",
        "whatever comes is taken",
        "Which bytes are meant; the node keeps such files for other jobs.",
    ),
    key(
        "stage.files",
        "kind",
        "file, program or archive",
        "file",
        "What becomes of it: a program may be executed, an archive is unpacked.",
    ),
    key("stage.files", "most", SIZE, "the node's own bound", "More bytes than that are refused."),
    key(
        "retry",
        "max_attempts",
        "a whole number, 1 to 100",
        "4",
        "Attempts in all that may end as a plain failure of the task's own.",
    ),
    key(
        "retry",
        "memory_attempts",
        "a whole number, 1 to 20",
        "6",
        "Attempts in all that may end as a memory failure of the task's own.",
    ),
    key(
        "retry",
        "transient",
        "a whole number, 0 to 100",
        "3",
        "Attempts that may be lost through no fault of the task: a node that is gone, a kill from outside, a launch that failed. The first failed launch on a node does not count, on five nodes at most. Kills for an outer limit do not count while the job has an executor on a node without them.",
    ),
    key("retry", "cap", SIZE, "the largest container there can be", "No task grows beyond it."),
    key(
        "retry",
        "breaker",
        "a percentage, 1 to 100",
        "no bound",
        "Once more of a stage's tasks than that were given another size, nothing of the stage is given more.",
    ),
    key(
        "retry",
        "budget_gib_h",
        "memory over time above 0, GiB·h",
        "no bound",
        "Once memory failures have cost the job that much, nothing of it is given more.",
    ),
    key(
        "retry",
        "drain_after",
        TIME,
        "1s",
        "How long the container of an escalated task waits before one executor of its own job takes no more tasks and leaves, to make room. Never longer than half the mean run time of the job's tasks.",
    ),
    key(
        "retry",
        "cpus",
        "a number of processors above 0, such as 2 or 0.5",
        "those of a task in an executor",
        "Most processors of the container of an escalated task, for nodes whose processors are taken and whose memory is free.",
    ),
    key("access", "view", "a list of accounts, and of groups with @, at most 32", "nobody", "They may look at the job."),
    key(
        "access",
        "change",
        "a list of accounts, and of groups with @, at most 32",
        "nobody",
        "They may look at the job, change it and end it.",
    ),
];

/// Generates `docs/job-file.md`.
pub fn page() -> String {
    let mut text = String::from(ABOUT);
    let mut table = None;
    for key in KEYS {
        if table != Some(key.table) {
            table = Some(key.table);
            let title = match key.table {
                "" => "At the top".to_owned(),
                "stage" => "`[[stage]]`".to_owned(),
                "stage.files" => "`files` of a stage".to_owned(),
                other => format!("`[{other}]`"),
            };
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n## {title}\n\n| key | takes | left out | means |\n| --- | --- | --- | --- |\n");
        }
        let _ = writeln!(text, "| `{}` | {} | {} | {} |", key.name, key.takes, key.usual, key.means);
    }
    let places: Vec<String> = Placeholder::ALL.iter().map(|p| format!("`{{{}}}`", p.as_str())).collect();
    let _ = write!(
        text,
        "\n## Places to fill in\n\nIn `command` and `env`: {}. Plain braces are `{{{{` and `}}}}`.\n",
        places.join(", ")
    );
    text
}

const ABOUT: &str = "# The job file

Generated from `config/src/job/keys.rs`; a test compares it with what the reader of job files knows. `rmctl explain KEY` tells the same of one key,
`rmctl job init` writes a file to begin with, `rmctl job validate FILE` names every mistake with its line. A key that is not listed here is refused.
";
