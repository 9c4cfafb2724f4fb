//! Node agent settings of isolation, files and health: checked types, and their keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use headroom_types::Bytes;
use toml::Spanned;
use toml::de::DeValue;

use crate::problem::ProblemCollector;
use crate::toml_reader::{self, Section, hint};

/// Isolation of programs on the host. [`Default`] is the meaning of an empty file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// User of programs. Applies if the agent has the privileges to change users.
    pub run_as: RunAs,
    /// Host users for submitters with other names.
    pub users: BTreeMap<String, String>,
    /// Minimum user id. Smaller ids are rejected, unless `users` or `run_as` names the user.
    pub min_uid: u32,
    /// True if programs may run as root.
    pub allow_root: bool,
    /// True if each container has a private `/tmp`.
    pub private_tmp: bool,
    /// Size limit of a tmpfs at a container's `/tmp`; `None` for a directory on disk. Bytes.
    pub tmp_size: Option<Bytes>,
    /// Scope of `/dev/shm`, SysV IPC and message queues.
    pub ipc: IpcScope,
    /// Size limit of a container's `/dev/shm`; `None` for the memory of the container. Bytes.
    pub shm_size: Option<Bytes>,
    /// Mode bits that are cleared on new files.
    pub umask: u32,
    /// Maximum number of open files per process.
    pub open_files: u32,
    /// Use of idle processors beyond the grant.
    pub cpu: CpuBound,
}

/// The user of container programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// The submitter of the application.
    Submitter,
    /// The user of the agent.
    Agent,
    /// A fixed user.
    User(String),
}

impl FromStr for RunAs {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "submitter" => Ok(RunAs::Submitter),
            "agent" => Ok(RunAs::Agent),
            name => user_name(name).map(RunAs::User),
        }
    }
}

/// The scope of `/dev/shm`, SysV shared memory and semaphores, and message queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpcScope {
    /// One task; a program outside a shared executor has the scope of its container.
    #[default]
    Task,
    /// One container.
    Container,
    /// The whole host.
    Host,
}

impl IpcScope {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            IpcScope::Task => "task",
            IpcScope::Container => "container",
            IpcScope::Host => "host",
        }
    }
}

impl FromStr for IpcScope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "task" => Ok(IpcScope::Task),
            "container" => Ok(IpcScope::Container),
            "host" => Ok(IpcScope::Host),
            other => Err(format!("{other:?} is not one of task, container and host")),
        }
    }
}

/// The bound on a container's use of idle processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuBound {
    /// May use all idle processors.
    #[default]
    Share,
    /// Limited to its grant.
    Limit,
}

impl FromStr for CpuBound {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "share" => Ok(CpuBound::Share),
            "limit" => Ok(CpuBound::Limit),
            other => Err(format!("{other:?} is neither share nor limit")),
        }
    }
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation {
            run_as: RunAs::Submitter,
            users: BTreeMap::new(),
            min_uid: 1000,
            allow_root: false,
            private_tmp: true,
            tmp_size: None,
            ipc: IpcScope::Task,
            shm_size: None,
            umask: 0o027,
            open_files: 65_536,
            cpu: CpuBound::Share,
        }
    }
}

/// Retention of program logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    /// Size of one log segment. Bytes.
    pub size: Bytes,
    /// Number of the newest segments that are kept per log. At least 2.
    pub count: u32,
    /// Maximum size of all logs of one container. Bytes.
    pub container: Bytes,
    /// Retention time after the end of the container.
    pub keep: Duration,
}

impl LogRetention {
    /// Maximum size of one log. Bytes.
    pub fn max_log_bytes(&self) -> Bytes {
        Bytes::new(self.size.get().saturating_mul(u64::from(self.count)))
    }
}

impl Default for LogRetention {
    fn default() -> Self {
        LogRetention {
            size: Bytes::from_mib(16),
            count: 4,
            container: Bytes::from_mib(256),
            keep: Duration::from_secs(3 * 86_400),
        }
    }
}

/// Health checks: conditions under which a node is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthChecks {
    /// Maximum disk use of a healthy node. Per cent of its space.
    pub disk_full: u32,
    /// Maximum inode use of a healthy node. Per cent.
    pub inodes_full: u32,
    /// Maximum memory left behind by ended containers on a healthy node. Thousandths of the node's
    /// memory.
    pub max_unattributed: u32,
    /// Interval of the disk check.
    pub every: Duration,
    /// Path of a check program.
    pub script: Option<PathBuf>,
    /// Interval of the check program.
    pub script_every: Duration,
    /// Timeout of the check program.
    pub script_timeout: Duration,
}

impl Default for HealthChecks {
    fn default() -> Self {
        HealthChecks {
            disk_full: 90,
            inodes_full: 95,
            max_unattributed: 250,
            every: Duration::from_secs(10),
            script: None,
            script_every: Duration::from_secs(60),
            script_timeout: Duration::from_secs(20),
        }
    }
}

/// Limits of fetched files and of their cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCacheLimits {
    /// Maximum size of unused cache entries. Bytes.
    pub size: Bytes,
    /// Maximum size of a fetched file. Bytes.
    pub file: Bytes,
    /// Maximum unpacked size of an archive. Bytes.
    pub unpacked: Bytes,
    /// Maximum number of files and directories in an archive.
    pub entries: u32,
    /// Timeout of all fetches for one container.
    pub deadline: Duration,
    /// PEM certificates of authorities that are trusted in addition to those of the host.
    pub ca_file: Option<PathBuf>,
}

impl Default for FileCacheLimits {
    fn default() -> Self {
        FileCacheLimits {
            size: Bytes::from_gib(10),
            file: Bytes::from_gib(4),
            unpacked: Bytes::from_gib(16),
            entries: 100_000,
            deadline: Duration::from_secs(600),
            ca_file: None,
        }
    }
}

pub(crate) fn isolation(r: &mut ProblemCollector<'_>, root: &mut Section<'_>) -> Isolation {
    let usual = Isolation::default();
    let whole = hint(
        "it sets the rights of programs",
        "write a table: [isolation]",
    );
    let Some(mut t) = root.table(r, "isolation", whole) else {
        return usual;
    };
    let who = hint(
        "programs run as this user",
        "write \"submitter\", \"agent\" or the name of a user",
    );
    let names = hint(
        "a submitter of that name runs as this user",
        "write users = { \"ann@example\" = \"ann\" }",
    );
    let uid = hint(
        "system accounts must not run jobs",
        "write the number of the first user, such as 1000",
    );
    let switch = hint("it is a switch", "write true or false");
    let ipc = hint(
        "programs share IPC and /dev/shm within this scope only",
        "write \"task\", \"container\" or \"host\"",
    );
    let tmpfs = hint(
        "it limits the size of a tmpfs",
        "write a size such as \"256MiB\", or leave it out",
    );
    let mask = hint(
        "these mode bits are removed from new files",
        "write them in octal, in quotes: umask = \"027\"",
    );
    let number = hint(
        "it limits the open files of one process",
        "write a whole number from 64",
    );
    let cpu = hint(
        "it sets whether programs may use idle processors",
        "write \"share\" or \"limit\"",
    );
    let checked = Isolation {
        run_as: t.read_or(r, "run_as", who, usual.run_as, toml_reader::parsed),
        users: t
            .named_values(r, "users", names, pair)
            .into_iter()
            .collect(),
        min_uid: t.read_or(
            r,
            "min_uid",
            uid,
            usual.min_uid,
            toml_reader::count(0, u32::MAX - 1),
        ),
        allow_root: t.read_or(
            r,
            "allow_root",
            switch,
            usual.allow_root,
            toml_reader::boolean,
        ),
        private_tmp: t.read_or(
            r,
            "private_tmp",
            switch,
            usual.private_tmp,
            toml_reader::boolean,
        ),
        tmp_size: t
            .read(r, "tmp_size", tmpfs, toml_reader::nonzero_size)
            .map(Spanned::into_inner),
        ipc: t.read_or(r, "ipc", ipc, usual.ipc, toml_reader::parsed),
        shm_size: t
            .read(r, "shm_size", tmpfs, toml_reader::nonzero_size)
            .map(Spanned::into_inner),
        umask: t.read_or(r, "umask", mask, usual.umask, octal),
        open_files: t.read_or(
            r,
            "open_files",
            number,
            usual.open_files,
            toml_reader::count(64, 1 << 30),
        ),
        cpu: t.read_or(r, "cpu", cpu, usual.cpu, toml_reader::parsed),
    };
    t.reject_unknown_keys(r);
    checked
}

pub(crate) fn logs(r: &mut ProblemCollector<'_>, root: &mut Section<'_>) -> LogRetention {
    let usual = LogRetention::default();
    let whole = hint(
        "it sets how much of the logs of programs is kept",
        "write a table: [logs]",
    );
    let Some(mut t) = root.table(r, "logs", whole) else {
        return usual;
    };
    let size = hint(
        "it limits the size of logs",
        "write a size such as \"16MiB\", at least 64KiB",
    );
    let count = hint(
        "this number of the newest segments is kept",
        "write a whole number from 2",
    );
    let keep = hint(
        "logs are removed after this time",
        "write a time such as \"3d\"",
    );
    let checked = LogRetention {
        size: t.read_or(r, "size", size, usual.size, segment),
        count: t.read_or(
            r,
            "count",
            count,
            usual.count,
            toml_reader::count(2, 10_000),
        ),
        container: t.read_or(r, "container", size, usual.container, segment),
        keep: t.read_or(r, "keep", keep, usual.keep, toml_reader::duration),
    };
    t.reject_unknown_keys(r);
    checked
}

pub(crate) fn health(r: &mut ProblemCollector<'_>, root: &mut Section<'_>) -> HealthChecks {
    let usual = HealthChecks::default();
    let whole = hint(
        "it sets when the node is unhealthy",
        "write a table: [health]",
    );
    let Some(mut t) = root.table(r, "health", whole) else {
        return usual;
    };
    let percent = hint(
        "a node with a fuller disk is unhealthy",
        "write percent, from 1 to 100",
    );
    let part = hint(
        "a node with more unattributed memory is unhealthy",
        "write a part from \"0.1%\" to \"100%\", such as \"25%\"",
    );
    let time = hint(
        "the check is repeated at this interval",
        "write a time such as \"10s\"",
    );
    let path = hint(
        "the agent runs this program",
        "write an absolute path in quotes, or leave it out",
    );
    let checked = HealthChecks {
        disk_full: t.read_or(
            r,
            "disk_full",
            percent,
            usual.disk_full,
            toml_reader::count(1, 100),
        ),
        inodes_full: t.read_or(
            r,
            "inodes_full",
            percent,
            usual.inodes_full,
            toml_reader::count(1, 100),
        ),
        max_unattributed: t.read_or(
            r,
            "max_unattributed",
            part,
            usual.max_unattributed,
            some_part,
        ),
        every: t.read_or(r, "every", time, usual.every, toml_reader::duration),
        script: t
            .read(r, "script", path, crate::compile::absolute)
            .map(Spanned::into_inner),
        script_every: t.read_or(
            r,
            "script_every",
            time,
            usual.script_every,
            toml_reader::duration,
        ),
        script_timeout: t.read_or(
            r,
            "script_timeout",
            time,
            usual.script_timeout,
            toml_reader::duration,
        ),
    };
    t.reject_unknown_keys(r);
    checked
}

pub(crate) fn cache(r: &mut ProblemCollector<'_>, root: &mut Section<'_>) -> FileCacheLimits {
    let usual = FileCacheLimits::default();
    let whole = hint(
        "it sets how files of jobs are fetched and kept",
        "write a table: [cache]",
    );
    let Some(mut t) = root.table(r, "cache", whole) else {
        return usual;
    };
    let size = hint(
        "containers need the disk too",
        "write a size such as \"10GiB\"",
    );
    let count = hint(
        "an archive must not use all inodes of the disk",
        "write a whole number from 1",
    );
    let time = hint(
        "a container that waits for its files holds its memory",
        "write a time such as \"10m\"",
    );
    let trust = hint(
        "servers whose certificates it has signed are trusted",
        "write an absolute path in quotes, or leave it out",
    );
    let checked = FileCacheLimits {
        size: t.read_or(r, "size", size, usual.size, toml_reader::size),
        file: t.read_or(r, "file", size, usual.file, toml_reader::nonzero_size),
        unpacked: t.read_or(
            r,
            "unpacked",
            size,
            usual.unpacked,
            toml_reader::nonzero_size,
        ),
        entries: t.read_or(
            r,
            "entries",
            count,
            usual.entries,
            toml_reader::count(1, 10_000_000),
        ),
        deadline: t.read_or(r, "deadline", time, usual.deadline, toml_reader::duration),
        ca_file: t
            .read(r, "ca_file", trust, crate::compile::absolute)
            .map(Spanned::into_inner),
    };
    t.reject_unknown_keys(r);
    checked
}

/// Rejects a tmpfs that is larger than the node's memory, because no container can be that large.
pub(crate) fn check_tmpfs_sizes(
    r: &mut ProblemCollector<'_>,
    root: &Section<'_>,
    config: &crate::NodeAgentConfig,
) {
    let Some(memory) = config.memory else { return };
    for (key, size) in [
        ("shm_size", config.isolation.shm_size),
        ("tmp_size", config.isolation.tmp_size),
    ] {
        if let Some(size) = size.filter(|size| *size > memory) {
            let what = format!("{size} is more than the memory of this node, {memory}");
            let fix = format!("write at most the size in `memory`, or leave {key} out");
            r.add(
                root.place("isolation"),
                &format!("isolation.{key}"),
                &what,
                "its pages are charged to the container",
                &fix,
            );
        }
    }
}

fn pair(submitter: &str, value: &DeValue<'_>) -> Result<(String, String), String> {
    Ok((submitter.to_owned(), user_name(&toml_reader::text(value)?)?))
}

/// Parses a user name as user databases allow it.
fn user_name(text: &str) -> Result<String, String> {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '\\' | '$');
    let good = (1..=64).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain);
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of a user"))
    }
}

fn octal(value: &DeValue<'_>) -> Result<u32, String> {
    let text = toml_reader::text(value)?;
    let bits =
        u32::from_str_radix(&text, 8).map_err(|_| format!("{text:?} is not a number in octal"))?;
    // Without owner rights a program could not read its own files.
    if bits > 0o777 || bits & 0o700 != 0 {
        Err(format!("{text:?} is not between 000 and 077"))
    } else {
        Ok(bits)
    }
}

/// Parses a share above zero.
fn some_part(value: &DeValue<'_>) -> Result<u32, String> {
    match toml_reader::thousandths(value)? {
        0 => Err("0% would make every node unhealthy".to_owned()),
        part => Ok(part),
    }
}

fn segment(value: &DeValue<'_>) -> Result<Bytes, String> {
    let size = toml_reader::size(value)?;
    if size < Bytes::from_kib(64) {
        Err(format!("{size} is less than 64KiB"))
    } else {
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::nodeagent;

    #[test]
    fn every_key_of_the_tables_can_be_set() {
        let text = "[isolation]\nrun_as = 'jobs'\nusers = { 'ann@x' = 'ann' }\nmin_uid = 500\nallow_root = true\nprivate_tmp = false\n\
                    tmp_size = '64MiB'\nipc = 'container'\nshm_size = '32MiB'\n\
                    umask = '077'\nopen_files = 1024\ncpu = 'limit'\n[logs]\nsize = '1MiB'\ncount = 3\ncontainer = '8MiB'\nkeep = '1h'\n\
                    [health]\ndisk_full = 80\ninodes_full = 70\nmax_unattributed = '12.5%'\nevery = '1s'\nscript = '/bin/true'\nscript_every = '2s'\n\
                    script_timeout = '3s'\n[cache]\nsize = '1GiB'\nfile = '2MiB'\nunpacked = '3MiB'\nentries = 4\ndeadline = '5s'\n";
        let c = nodeagent(text, "f").expect("right");
        assert_eq!(
            (c.isolation.run_as, c.isolation.umask, c.isolation.cpu),
            (RunAs::User("jobs".into()), 0o77, CpuBound::Limit)
        );
        assert_eq!(
            (c.isolation.users["ann@x"].as_str(), c.isolation.min_uid),
            ("ann", 500)
        );
        assert!(
            c.isolation.allow_root && !c.isolation.private_tmp && c.isolation.open_files == 1024
        );
        assert_eq!(
            (c.isolation.ipc, c.isolation.tmp_size),
            (IpcScope::Container, Some(Bytes::from_mib(64)))
        );
        assert_eq!(c.isolation.shm_size, Some(Bytes::from_mib(32)));
        assert_eq!(
            (c.logs.max_log_bytes(), c.logs.keep),
            (Bytes::from_mib(3), Duration::from_secs(3600))
        );
        assert_eq!(
            (
                c.health.script,
                c.health.disk_full,
                c.health.max_unattributed
            ),
            (Some("/bin/true".into()), 80, 125)
        );
        assert_eq!(
            (c.cache.entries, c.cache.deadline),
            (4, Duration::from_secs(5))
        );
    }

    #[test]
    fn every_mistake_in_the_tables_has_its_position() {
        let text = "[isolation]\nrun_as = 'no such'\numask = '027x'\ncpu = 'all'\nuser = 1\n[logs]\nsize = '1KiB'\ncount = 1\n\
                    [health]\ndisk_full = 101\nscript = 'relative'\n[cache]\nentries = 0\n";
        let problems = nodeagent(text, "f").expect_err("nine mistakes");
        let mut keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        keys.sort_unstable();
        let wanted = [
            "cache.entries",
            "health.disk_full",
            "health.script",
            "isolation.cpu",
            "isolation.run_as",
            "isolation.umask",
            "isolation.user",
            "logs.count",
            "logs.size",
        ];
        assert_eq!(keys, wanted, "{problems:#?}");
    }
}
