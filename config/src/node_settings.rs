//! Checked settings of a node agent for isolation, logs, health and the cache of files. They
//! contain valid values only, and read no text but single words.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use headroom_types::{Bytes, word_enum};

/// Isolation of programs on the host. [`Default`] is the meaning of an empty file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// User of programs. Applies if the agent has the privileges to change users.
    pub run_as: RunAsUser,
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
    pub cpu: IdleCpuBound,
}

/// The user of container programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAsUser {
    /// The submitter of the application.
    Submitter,
    /// The user of the agent.
    Agent,
    /// A fixed user.
    User(String),
}

impl FromStr for RunAsUser {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "submitter" => Ok(RunAsUser::Submitter),
            "agent" => Ok(RunAsUser::Agent),
            name => user_name(name).map(RunAsUser::User),
        }
    }
}

word_enum! {
    /// The scope of `/dev/shm`, SysV shared memory and semaphores, and message queues.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IpcScope: "is not one of" {
        /// One task; a program outside a shared executor has the scope of its container.
        #[default]
        Task = "task",
        /// One container.
        Container = "container",
        /// The whole host.
        Host = "host",
    }
}

word_enum! {
    /// The bound on a container's use of idle processors.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IdleCpuBound: "is not one of" {
        /// May use all idle processors.
        #[default]
        Share = "share",
        /// Limited to its grant.
        Limit = "limit",
    }
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation {
            run_as: RunAsUser::Submitter,
            users: BTreeMap::new(),
            min_uid: 1000,
            allow_root: false,
            private_tmp: true,
            tmp_size: None,
            ipc: IpcScope::Task,
            shm_size: None,
            umask: 0o027,
            open_files: 65_536,
            cpu: IdleCpuBound::Share,
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

/// A place of the journals of application masters that survives the loss of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// The state of the resource manager, for small jobs.
    ResourceManager,
    /// An absolute path of a directory that every node can read.
    Directory(PathBuf),
    /// A directory in an object store.
    Objects(ObjectUrl),
}

/// The word for the state of the resource manager.
const IN_RESOURCE_MANAGER: &str = "resourcemanager";

impl JournalPlace {
    /// The directory of a file system; `None` for another place.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            JournalPlace::ResourceManager | JournalPlace::Objects(_) => None,
            JournalPlace::Directory(dir) => Some(dir),
        }
    }
}

impl FromStr for JournalPlace {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if text == IN_RESOURCE_MANAGER {
            Ok(JournalPlace::ResourceManager)
        } else if text.starts_with(ObjectUrl::SCHEME) {
            text.parse().map(JournalPlace::Objects)
        } else if path.is_absolute() {
            Ok(JournalPlace::Directory(path))
        } else {
            Err(format!(
                "{text:?} is neither an absolute path, a URL such as \"s3://bucket/path\", nor \"{IN_RESOURCE_MANAGER}\""
            ))
        }
    }
}

impl fmt::Display for JournalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalPlace::ResourceManager => f.write_str(IN_RESOURCE_MANAGER),
            JournalPlace::Directory(dir) => dir.display().fmt(f),
            JournalPlace::Objects(url) => url.fmt(f),
        }
    }
}

/// A directory in an object store, as the URL `s3://BUCKET/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    bucket: String,
    prefix: String,
}

impl ObjectUrl {
    /// Beginning of the URL.
    const SCHEME: &str = "s3://";

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The path in the bucket, without a slash at its ends. Empty for the bucket itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromStr for ObjectUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(ObjectUrl::SCHEME);
        let rest = rest.ok_or_else(|| format!("{text:?} does not begin with s3://"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let has_only = |part: &str, others: &str| {
            let mut chars = part.chars();
            chars.all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        };
        if !(3..=63).contains(&bucket.len()) || !has_only(bucket, "-.") {
            return Err(format!("{bucket:?} in {text:?} is no name of a bucket"));
        }
        let prefix = prefix.trim_matches('/');
        let is_name = |part: &str| !matches!(part, "" | "." | "..") && has_only(part, "-_.=");
        if !prefix.is_empty() && !prefix.split('/').all(is_name) {
            return Err(format!(
                "{prefix:?} in {text:?} has other characters than letters, digits, -_.= and /"
            ));
        }
        Ok(ObjectUrl {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", ObjectUrl::SCHEME, self.bucket)?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

/// The journals of application masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterJournals {
    /// Where they are; `None` for a directory of the node, which a master on another node cannot
    /// read.
    pub journals: Option<JournalPlace>,
    /// Required type of its file system, as in `/proc/mounts`; any if absent.
    pub file_system: Option<String>,
    /// File with the address and the credentials of the object store, as variables of the AWS tools.
    pub object_store: Option<PathBuf>,
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

/// Parses the type of a file system.
pub(crate) fn file_system_type(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = (1..=32).contains(&text.len()) && text.chars().all(plain);
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the type of a file system"))
    }
}

/// Parses a user name as user databases allow it.
pub(crate) fn user_name(text: &str) -> Result<String, String> {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '\\' | '$');
    let good = (1..=64).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain);
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of a user"))
    }
}
