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
        if self.table.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.table, self.name)
        }
    }
}

/// Marks a required key.
pub const REQUIRED: &str = "required";

const fn key(
    table: &'static str,
    name: &'static str,
    takes: &'static str,
    usual: &'static str,
    means: &'static str,
) -> JobFileKey {
    JobFileKey {
        table,
        name,
        takes,
        usual,
        means,
    }
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
        "Name of the job; its id is NAME.NUMBER. Jobs of one name learn from each other.",
    ),
    key(
        "",
        "queue",
        "the path of a queue",
        "the default queue",
        "Queue in which the job waits for resources.",
    ),
    key(
        "",
        "priority",
        "a whole number, -1000 to 1000",
        "0",
        "A higher priority is served first within the queue.",
    ),
    key(
        "",
        "mode",
        "headroom, pinterest, uber, databricks, tovar or fixed",
        "headroom",
        "Reaction to memory failures.",
    ),
    key(
        "",
        "sizes",
        "stated, learned or shadow",
        "stated; learned in mode tovar",
        "First size of tasks: the size of their stage (stated), or the size that earlier tasks of their kind needed (learned). shadow uses the stated size and reports the learned one.",
    ),
    key(
        "",
        "live",
        "true or false",
        "false",
        "Whether the job accepts stages and tasks while it runs. A stage without array and count then begins without tasks, and there may be no stage. The job ends when its client closes it and all tasks have ended.",
    ),
    key(
        "",
        "lease",
        "a time from \"1s\" to \"24h\"",
        "60s",
        "Time after which a live job ends as failed while no client is connected and no client has closed it. Longer than a restart of the resource manager, through which clients connect.",
    ),
    key(
        "",
        "exit_codes",
        "a table of exit codes from 1 to 255, each \"heap\" or \"plain\"",
        "none",
        "Meaning of exit codes, for any runtime.",
    ),
    key(
        "",
        "profiles",
        "tables [profiles.NAME]",
        "none",
        "Sizes by name. Other names are profiles of the cluster (`rmctl profile list`).",
    ),
    key(
        "",
        "executors",
        "tables [executors.NAME]",
        REQUIRED,
        "Sets of equal containers; tasks run in their slots.",
    ),
    key(
        "",
        "stage",
        "tables [[stage]]",
        "only in a live job",
        "Arrays of equal tasks, in display order.",
    ),
    key(
        "",
        "retry",
        "a table [retry]",
        "the default of each key",
        "Limits of attempts and growth of a task.",
    ),
    key(
        "",
        "treatments",
        "a table of sub-causes, each \"grow\", \"fail\", \"retry\", \"elsewhere\" or \"remedy\"",
        "the default of each sub-cause",
        "Treatment of a failure, by the sub-cause of its diagnosis. Only in mode headroom. [Diagnosis](diagnosis.md#treatments) lists the sub-causes and default treatments.",
    ),
    key(
        "",
        "access",
        "a table [access]",
        "its owner only",
        "Access of other users and groups; cluster rights override it.",
    ),
    key(
        "profiles.NAME",
        "from",
        "the name of another profile, of this file or of the cluster",
        "none",
        "Values that are not written here are taken from this profile, which may have no `from` itself.",
    ),
    key(
        "profiles.NAME",
        "memory",
        SIZE,
        "heap is written instead",
        "All memory, for a program without a managed heap.",
    ),
    key(
        "profiles.NAME",
        "heap",
        SIZE,
        "memory is written instead",
        "Memory that a runtime manages itself. Heap and overhead together are the limit.",
    ),
    key(
        "profiles.NAME",
        "overhead",
        "a size, or { factor = 0.10, min = \"384MiB\" } of the heap",
        "0",
        "Other memory within the limit: buffers, stacks, code, child processes.",
    ),
    key(
        "profiles.NAME",
        "cpus",
        "a number of processors above 0, such as 2 or 0.5",
        "1",
        "Processors.",
    ),
    key(
        "executors.NAME",
        "profile",
        "the name of a profile",
        REQUIRED,
        "Size of each container.",
    ),
    key(
        "executors.NAME",
        "count",
        "a whole number, 1 to 10000",
        "1",
        "Maximum number of containers.",
    ),
    key(
        "executors.NAME",
        "min",
        "a whole number up to count",
        "0",
        "Number of executors that are kept as long as the job runs.",
    ),
    key(
        "executors.NAME",
        "idle",
        TIME,
        "0s; 30s in a live job",
        "Time for which an executor without tasks is kept.",
    ),
    key(
        "executors.NAME",
        "slots",
        "a whole number, 1 to 1024",
        "1",
        "Tasks that run at once in each executor; they share its memory.",
    ),
    key(
        "executors.NAME",
        "reserve",
        SIZE,
        "32MiB",
        "Memory of the profile that is kept for the executor itself.",
    ),
    key(
        "executors.NAME",
        "program",
        "a list of texts: program and arguments",
        "the executor of the node",
        "Executor that is started in each container instead of the node's.",
    ),
    key(
        "executors.NAME",
        "task_groups",
        "true or false",
        "false",
        "Whether this executor creates a cgroup for each task.",
    ),
    key(
        "executors.NAME",
        "nodes",
        "a list of names of nodes",
        "none",
        "Only nodes with these names.",
    ),
    key(
        "executors.NAME",
        "labels",
        "a list of names",
        "none",
        "Only nodes that have all of these labels.",
    ),
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
        "Tolerated taints; a tainted node accepts only containers that tolerate its taints. The same four keys apply to the containers of escalated tasks.",
    ),
    key(
        "stage",
        "name",
        "a name of at most 40 characters",
        REQUIRED,
        "Name of the stage; its tasks are NAME/INDEX.",
    ),
    key(
        "stage",
        "array",
        "a range of indexes such as \"0-19\"",
        "one task; in a live job, no task at first",
        "Each index is a task.",
    ),
    key(
        "stage",
        "count",
        "a whole number of tasks",
        "one task; in a live job, no task at first",
        "The same as array = \"0-(N-1)\".",
    ),
    key(
        "stage",
        "after",
        "a list of names of stages",
        "none",
        "Stages that must be done before.",
    ),
    key(
        "stage",
        "executors",
        "the name of a set of executors",
        "the only set",
        "Executors that run its tasks.",
    ),
    key(
        "stage",
        "profile",
        "the name of a profile",
        "the share of its slots",
        "First size of a task.",
    ),
    key(
        "stage",
        "cpus_per_task",
        "a whole number, 1 to 1024",
        "1",
        "Slots of an executor that a task takes.",
    ),
    key(
        "stage",
        "runtime",
        "native, jvm, node, python or go",
        "native",
        "Manager of the memory of its tasks; it determines how a full heap is recognized.",
    ),
    key(
        "stage",
        "runtime_flags",
        "heap, caps or none",
        "heap",
        "Memory flags that Headroom passes to the runtime.",
    ),
    key(
        "stage",
        "gc_log",
        "yes or no",
        "no",
        "Whether the garbage collector writes a log, which makes a diagnosis more exact.",
    ),
    key(
        "stage",
        "heap_exit_codes",
        "a list of exit codes from 1 to 255",
        "those of the runtime",
        "Exit codes by which the runtime reports a full heap.",
    ),
    key(
        "stage",
        "command",
        "a list of texts: program and arguments, with {places} to fill in",
        REQUIRED,
        "Command of a task.",
    ),
    key(
        "stage",
        "env",
        "a table of texts, with {places} to fill in",
        "none",
        "Additional environment variables of its tasks.",
    ),
    key(
        "stage",
        "fork_server",
        "a list of texts: program and arguments",
        "none",
        "Program that each executor starts once, and that starts the attempts of the stage with their modules loaded.",
    ),
    key(
        "stage",
        "timeout",
        TIME,
        "no limit",
        "A task that runs longer is ended, and retried like after a plain failure.",
    ),
    key(
        "stage",
        "enforce",
        "task or executor",
        "task",
        "Limit of a task: its own, or only that of its container.",
    ),
    key(
        "stage",
        "grow",
        "true or false",
        "true if mode is headroom and the kernel enforces the limit of each task",
        "Whether a running task near its limit may get more memory instead of being killed.",
    ),
    key(
        "stage",
        "grow_hold",
        "a time up to \"5m\"",
        "30s",
        "Time for which a task near its limit is frozen for that.",
    ),
    key(
        "stage",
        "idempotent",
        "yes, fenced or no",
        "yes; fenced if output is written",
        "Whether an attempt may be repeated. fenced: each attempt has its own output directory, and one of them is committed.",
    ),
    key(
        "stage",
        "output",
        "an absolute directory that all nodes see",
        "none",
        "Directory of the outputs of a fenced stage.",
    ),
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
        "Input of each task; learned sizes depend on its size.",
    ),
    key(
        "stage",
        "input_locality",
        "local or remote",
        "not known",
        "Whether inputs are on nodes, or are read over the network by all nodes.",
    ),
    key(
        "stage",
        "input_hosts",
        "names of nodes for all tasks, or a list of them for each",
        "not known",
        "Nodes that have the inputs; tasks prefer them.",
    ),
    key(
        "stage",
        "files",
        "a list of tables { name, from, … }",
        "none",
        "Files that the node puts into the working directory before the first task starts.",
    ),
    key(
        "stage.files",
        "name",
        "a name without a slash",
        REQUIRED,
        "Name of the file in the working directory.",
    ),
    key(
        "stage.files",
        "from",
        "an address, or an absolute path on the node",
        REQUIRED,
        "Source of the file.",
    ),
    key(
        "stage.files",
        "sha256",
        "64 hexadecimal digits",
        "any content is accepted",
        "SHA-256 of the content; the node keeps such files for other jobs.",
    ),
    key(
        "stage.files",
        "kind",
        "file, program or archive",
        "file",
        "Preparation of the file: a program becomes executable, an archive is unpacked.",
    ),
    key(
        "stage.files",
        "most",
        SIZE,
        "the limit of the node",
        "Maximum size; a larger file is refused.",
    ),
    key(
        "retry",
        "max_attempts",
        "a whole number, 1 to 100",
        "4",
        "Maximum number of attempts that end as a plain failure of the task.",
    ),
    key(
        "retry",
        "memory_attempts",
        "a whole number, 1 to 20",
        "6",
        "Maximum number of attempts that end as a memory failure of the task.",
    ),
    key(
        "retry",
        "transient",
        "a whole number, 0 to 100",
        "3",
        "Maximum number of attempts that are lost for an external cause: a lost node, an external kill, a failed launch. The first failed launch on a node does not count, on five nodes at most. Kills for an outer limit do not count while the job has an executor on a node without them.",
    ),
    key(
        "retry",
        "cap",
        SIZE,
        "the largest container of the cluster",
        "No task grows beyond this size.",
    ),
    key(
        "retry",
        "breaker",
        "a percentage, 1 to 100",
        "no bound",
        "After more of a stage's tasks than this needed another size, no task of the stage grows.",
    ),
    key(
        "retry",
        "budget_gib_h",
        "memory over time above 0, GiB·h",
        "no bound",
        "After memory failures have cost the job this much, none of its tasks grows.",
    ),
    key(
        "retry",
        "drain_after",
        TIME,
        "1s",
        "Time for which the container of an escalated task waits before one executor of the same job is drained to free memory. Never longer than half the mean run time of the job's tasks.",
    ),
    key(
        "retry",
        "cpus",
        "a number of processors above 0, such as 2 or 0.5",
        "those of a task in an executor",
        "Maximum processors of the container of an escalated task, for nodes with free memory and few free processors.",
    ),
    key(
        "access",
        "view",
        "a list of accounts, and of groups with @, at most 32",
        "none",
        "Users and groups that may view it.",
    ),
    key(
        "access",
        "change",
        "a list of accounts, and of groups with @, at most 32",
        "none",
        "Users and groups that may view, change and end the job.",
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
            let _ = write!(
                text,
                "\n## {title}\n\n| key | takes | left out | means |\n| --- | --- | --- | --- |\n"
            );
        }
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            key.name, key.takes, key.usual, key.means
        );
    }
    let places: Vec<String> = Placeholder::ALL
        .iter()
        .map(|p| format!("`{{{}}}`", p.as_str()))
        .collect();
    let _ = write!(
        text,
        "\n## Places to fill in\n\nIn `command` and `env`: {}. Plain braces are `{{{{` and `}}}}`.\n",
        places.join(", ")
    );
    text
}

const ABOUT: &str = "# The job file

Generated from `config/src/job/keys.rs`; a test compares it with the parser of job files. `rmctl explain KEY` prints the entry of one key,
`rmctl job init` writes a first job file, and `rmctl job validate FILE` reports every error with its line. A key that is not listed here is refused.
";
