//! Formats of the files in a container's directory: `spec` (agent to shim), `pid`, `exit` (shim to
//! agent), and of the single line that the shim writes to its standard output.
//!
//! All formats are lines of `key value`, with `\\`, newline and NUL escaped. A versioned first line
//! and a last line `end` make a torn file recognisable. Texts are bytes: a path or an argument need
//! not be UTF-8. Pure: this module opens no file.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::launch_step::LaunchStep;

/// File names in a container's directory.
pub mod file {
    /// The specification, written by the agent before it starts the shim.
    pub const SPEC: &str = "spec";
    /// Pid and start time of the program, written by the shim after the program is executed.
    pub const PID: &str = "pid";
    /// Pid and start time of the shim, the first file that it writes.
    pub const SHIM_PID: &str = "shim.pid";
    /// The exit record, written by the shim.
    pub const EXIT: &str = "exit";
}

/// The specification of a program, and the counter files that the shim reads after its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Program and arguments. A program without a slash is looked up in `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Standard input, opened for reading. Empty means `/dev/null`.
    pub stdin: PathBuf,
    /// Standard output, opened for appending, created if it does not exist.
    pub stdout: PathBuf,
    /// Standard error, likewise.
    pub stderr: PathBuf,
    /// `cgroup.procs` files. The child joins these groups before it executes the program.
    pub procs_files: Vec<PathBuf>,
    /// Kernel files that the shim reads right after the end (`EnforcedGroup::counter_files`).
    pub counters: Vec<PathBuf>,
    /// The program's `oom_score_adj` for the host's out-of-memory killer.
    pub oom_score_adj: Option<i32>,
    /// Resource limits.
    pub rlimits: Vec<RlimitRecord>,
    /// The user of the program. `None` keeps the shim's user.
    pub user: Option<ProgramUser>,
    /// Mode bits that new files of the program do not get.
    pub umask: Option<u32>,
    /// Whether the program keeps privileges beyond those of its user.
    pub privileges: Privileges,
    /// A directory that the program sees as `/tmp` and `/var/tmp`, in its own mount namespace.
    pub private_tmp: Option<PathBuf>,
    /// Size limit of a tmpfs that replaces the directory at `/tmp` and `/var/tmp`. Bytes.
    pub tmp_size: Option<u64>,
    /// Size limit of the program's own `/dev/shm`, in its own mount and IPC namespaces. Bytes.
    /// `None` shares the host's.
    pub shm_size: Option<u64>,
    /// The user namespace that the other namespaces need.
    pub user_namespace: UserNamespace,
    /// Directories that stay visible at their path if they are below one of those.
    pub visible: Vec<PathBuf>,
}

/// The privileges that a program keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// All privileges of its user.
    #[default]
    Keep,
    /// No capability, also for programs that it executes (`no_new_privs`, an empty bounding set).
    Drop,
}

/// The user namespace of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserNamespace {
    /// The user namespace of the shim.
    #[default]
    Host,
    /// Its own user namespace, so that a shim without `CAP_SYS_ADMIN` can create the other
    /// namespaces.
    Own,
    /// Its own user namespace with `CAP_SYS_ADMIN` and no other capability: for a program of user 0
    /// that creates namespaces for its tasks. The kernel does not let user 0 without capabilities
    /// create a user namespace that maps user 0.
    Delegated,
}

/// One resource limit, by the kernel's number (`RLIMIT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RlimitRecord {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
}

/// A user with all groups, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramUser {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// The way a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// By exit code.
    Code(i32),
    /// By a signal.
    Signal {
        /// The signal number.
        signal: i32,
        /// Whether the kernel dumped a core.
        core: bool,
    },
    /// The program never ran.
    Failed {
        /// The step that failed.
        step: LaunchStep,
        /// The errno of the kernel.
        errno: i32,
        /// The path or value that the step concerned.
        what: String,
    },
}

/// The exit record of a container, written by its shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// The way the program ended.
    pub how: ProgramEnd,
    /// Start of the program, Unix milliseconds. `None` if it never ran.
    pub started_ms: Option<u64>,
    /// End of the program, Unix milliseconds.
    pub ended_ms: u64,
    /// Largest resident size of any single waited-for process. Bytes.
    pub max_rss: u64,
    /// Processor time in user mode, microseconds, with all waited-for descendants.
    pub user_us: u64,
    /// Processor time in the kernel, microseconds.
    pub system_us: u64,
    /// Texts of `ProgramSpec::counters`, read right after the end. `None` for a file that could not
    /// be read.
    pub counters: Vec<(PathBuf, Option<String>)>,
}

/// A process: pid and start time (field 22 of `/proc/PID/stat`). The content of the files `pid` and
/// `shim.pid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: i32,
    /// The start time, in kernel ticks after boot.
    pub starttime: u64,
}

/// The start result of a shim: the single line on its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartResult {
    /// The program runs.
    Started {
        /// The pid of the program.
        pid: i32,
    },
    /// The program could not be started.
    Failed {
        /// The step that failed.
        step: LaunchStep,
        /// The errno of the kernel.
        errno: i32,
    },
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The first line names no version that this program knows.
    Version(String),
    /// The last line is missing: the file is torn.
    Torn,
    /// A line with an unknown key or a malformed value.
    Line(String),
    /// A required line is missing.
    Missing(&'static str),
}
impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Version(line) => write!(f, "unknown first line {line:?}"),
            RecordError::Torn => f.write_str("the record is truncated"),
            RecordError::Line(line) => write!(f, "cannot parse the line {line:?}"),
            RecordError::Missing(key) => write!(f, "the record has no {key}"),
        }
    }
}
impl std::error::Error for RecordError {}

const SPEC_FIRST: &str = "headroom-spec 1";
const EXIT_FIRST: &str = "headroom-exit 1";

impl ProgramSpec {
    /// The text of the file `spec`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = RecordWriter::new(SPEC_FIRST);
        self.argv.iter().for_each(|a| out.line("arg", a.as_bytes()));
        for (name, value) in &self.env {
            out.pair("env", name.as_bytes(), value.as_bytes());
        }
        out.line("cwd", self.cwd.as_os_str().as_bytes());
        if !self.stdin.as_os_str().is_empty() {
            out.line("stdin", self.stdin.as_os_str().as_bytes());
        }
        out.line("stdout", self.stdout.as_os_str().as_bytes());
        out.line("stderr", self.stderr.as_os_str().as_bytes());
        self.procs_files
            .iter()
            .for_each(|p| out.line("procs", p.as_os_str().as_bytes()));
        self.counters
            .iter()
            .for_each(|p| out.line("counter", p.as_os_str().as_bytes()));
        if let Some(n) = self.oom_score_adj {
            out.line("oom-score-adj", n.to_string().as_bytes());
        }
        for r in &self.rlimits {
            out.line(
                "rlimit",
                format!("{} {} {}", r.resource, r.soft, r.hard).as_bytes(),
            );
        }
        if let Some(u) = &self.user {
            let groups: Vec<String> = u.groups.iter().map(u32::to_string).collect();
            out.line(
                "user",
                format!("{} {} {}", u.uid, u.gid, groups.join(",")).as_bytes(),
            );
        }
        if let Some(mask) = self.umask {
            out.line("umask", mask.to_string().as_bytes());
        }
        match self.privileges {
            Privileges::Keep => {}
            Privileges::Drop => out.line("privileges", b"drop"),
        }
        if let Some(dir) = &self.private_tmp {
            out.line("private-tmp", dir.as_os_str().as_bytes());
        }
        for (key, size) in [("tmp-size", self.tmp_size), ("shm-size", self.shm_size)] {
            if let Some(size) = size {
                out.line(key, size.to_string().as_bytes());
            }
        }
        match self.user_namespace {
            UserNamespace::Host => {}
            UserNamespace::Own => out.line("user-namespace", b"own"),
            UserNamespace::Delegated => out.line("user-namespace", b"delegated"),
        }
        self.visible
            .iter()
            .for_each(|p| out.line("visible", p.as_os_str().as_bytes()));
        out.end()
    }

    /// Reads the text of the file `spec`.
    pub fn decode(text: &[u8]) -> Result<ProgramSpec, RecordError> {
        let mut spec = ProgramSpec::default();
        for (key, value) in lines(text, SPEC_FIRST)? {
            match key {
                b"arg" => spec.argv.push(text_of(value)),
                b"env" => {
                    let (name, value) = pair_of(value)?;
                    spec.env.push((name, value));
                }
                b"cwd" => spec.cwd = text_of(value).into(),
                b"stdin" => spec.stdin = text_of(value).into(),
                b"stdout" => spec.stdout = text_of(value).into(),
                b"stderr" => spec.stderr = text_of(value).into(),
                b"procs" => spec.procs_files.push(text_of(value).into()),
                b"counter" => spec.counters.push(text_of(value).into()),
                b"oom-score-adj" => spec.oom_score_adj = Some(number(value)?),
                b"rlimit" => spec.rlimits.push(rlimit_of(value)?),
                b"user" => spec.user = Some(user_of(value)?),
                b"umask" => spec.umask = Some(number(value)?),
                b"privileges" if value == b"drop" => spec.privileges = Privileges::Drop,
                b"private-tmp" => spec.private_tmp = Some(text_of(value).into()),
                b"tmp-size" => spec.tmp_size = Some(number(value)?),
                b"shm-size" => spec.shm_size = Some(number(value)?),
                b"user-namespace" if value == b"own" => spec.user_namespace = UserNamespace::Own,
                b"user-namespace" if value == b"delegated" => {
                    spec.user_namespace = UserNamespace::Delegated
                }
                b"visible" => spec.visible.push(text_of(value).into()),
                _ => return Err(bad(key)),
            }
        }
        if spec.argv.is_empty() {
            return Err(RecordError::Missing("arg"));
        }
        if spec.cwd.as_os_str().is_empty() {
            return Err(RecordError::Missing("cwd"));
        }
        Ok(spec)
    }
}

impl ExitRecord {
    /// The text of the file `exit`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = RecordWriter::new(EXIT_FIRST);
        match &self.how {
            ProgramEnd::Code(code) => out.line("code", code.to_string().as_bytes()),
            ProgramEnd::Signal { signal, core } => {
                out.line("signal", format!("{signal} {}", u8::from(*core)).as_bytes())
            }
            ProgramEnd::Failed { step, errno, what } => {
                out.pair(
                    "failed",
                    format!("{step} {errno}").as_bytes(),
                    what.as_bytes(),
                );
            }
        }
        if let Some(ms) = self.started_ms {
            out.line("started-ms", ms.to_string().as_bytes());
        }
        out.line("ended-ms", self.ended_ms.to_string().as_bytes());
        out.line("max-rss", self.max_rss.to_string().as_bytes());
        out.line("user-us", self.user_us.to_string().as_bytes());
        out.line("system-us", self.system_us.to_string().as_bytes());
        for (path, text) in &self.counters {
            match text {
                Some(text) => out.pair("counter", path.as_os_str().as_bytes(), text.as_bytes()),
                None => out.line("unread", path.as_os_str().as_bytes()),
            }
        }
        out.end()
    }

    /// Reads the text of the file `exit`.
    pub fn decode(text: &[u8]) -> Result<ExitRecord, RecordError> {
        let (mut how, mut ended_ms) = (None, None);
        let mut record = ExitRecord {
            how: ProgramEnd::Code(0),
            started_ms: None,
            ended_ms: 0,
            max_rss: 0,
            user_us: 0,
            system_us: 0,
            counters: vec![],
        };
        for (key, value) in lines(text, EXIT_FIRST)? {
            match key {
                b"code" => how = Some(ProgramEnd::Code(number(value)?)),
                b"signal" => how = Some(signal_of(value)?),
                b"failed" => how = Some(failed_of(value)?),
                b"started-ms" => record.started_ms = Some(number(value)?),
                b"ended-ms" => ended_ms = Some(number(value)?),
                b"max-rss" => record.max_rss = number(value)?,
                b"user-us" => record.user_us = number(value)?,
                b"system-us" => record.system_us = number(value)?,
                b"counter" => {
                    let (path, text) = pair_of(value)?;
                    record
                        .counters
                        .push((path.into(), Some(text.to_string_lossy().into_owned())));
                }
                b"unread" => record.counters.push((text_of(value).into(), None)),
                // A later release of the shim may add keys. The known keys keep their meaning, so
                // unknown ones are ignored.
                _ => {}
            }
        }
        record.how = how.ok_or(RecordError::Missing("code, signal or failed"))?;
        record.ended_ms = ended_ms.ok_or(RecordError::Missing("ended-ms"))?;
        Ok(record)
    }
}

impl ProcessIdentity {
    /// `pid starttime` and a newline.
    pub fn encode(&self) -> String {
        format!("{} {}\n", self.pid, self.starttime)
    }
    /// Parses the text. Returns `None` for any other text, including a torn file.
    pub fn decode(text: &str) -> Option<ProcessIdentity> {
        let (pid, starttime) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(ProcessIdentity {
            pid: pid.parse().ok()?,
            starttime: starttime.parse().ok()?,
        })
    }
}

impl StartResult {
    /// Whether the container already has another shim, which starts its program.
    pub fn is_second_shim(&self) -> bool {
        matches!(
            self,
            StartResult::Failed {
                step: LaunchStep::Identity,
                errno: libc::EEXIST,
            }
        )
    }
    /// The line, with its newline.
    pub fn encode(&self) -> String {
        match self {
            StartResult::Started { pid } => format!("started {pid}\n"),
            StartResult::Failed { step, errno } => format!("failed {step} {errno}\n"),
        }
    }
    /// Parses the line. Returns `None` for any other text: the shim died before it wrote its line.
    pub fn decode(line: &str) -> Option<StartResult> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        match words.next()? {
            "started" => Some(StartResult::Started {
                pid: words.next()?.parse().ok()?,
            }),
            "failed" => Some(StartResult::Failed {
                step: words.next()?.parse().ok()?,
                errno: words.next()?.parse().ok()?,
            }),
            _ => None,
        }
    }
}

/// Builds the text of a record.
struct RecordWriter(Vec<u8>);

impl RecordWriter {
    fn new(first: &str) -> RecordWriter {
        let mut out = first.as_bytes().to_vec();
        out.push(b'\n');
        RecordWriter(out)
    }
    fn line(&mut self, key: &str, value: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b' ');
        escape(value, &mut self.0);
        self.0.push(b'\n');
    }
    /// Two values in one line, with an unescaped tab between them. `escape` never leaves a tab.
    fn pair(&mut self, key: &str, left: &[u8], right: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b' ');
        escape(left, &mut self.0);
        self.0.push(b'\t');
        escape(right, &mut self.0);
        self.0.push(b'\n');
    }
    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"end\n");
        self.0
    }
}

fn escape(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0 => out.extend_from_slice(b"\\0"),
            other => out.push(*other),
        }
    }
}

fn unescape(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match (*byte, byte) {
            (b'\\', _) => out.push(match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(other) => *other,
                None => b'\\',
            }),
            (_, plain) => out.push(*plain),
        }
    }
    out
}

/// Key and value; the value is still escaped.
type RecordLine<'a> = (&'a [u8], &'a [u8]);

/// The lines between the first line and `end`, split into key and (still escaped) value.
fn lines<'a>(text: &'a [u8], first: &str) -> Result<Vec<RecordLine<'a>>, RecordError> {
    let mut lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let head = lines.first().copied().unwrap_or_default();
    if head != first.as_bytes() {
        return Err(RecordError::Version(
            String::from_utf8_lossy(head).into_owned(),
        ));
    }
    // A complete file ends in "end\n": the last piece after the split is empty.
    if lines.pop() != Some(b"") || lines.pop() != Some(b"end") {
        return Err(RecordError::Torn);
    }
    lines.drain(..1);
    lines.into_iter().map(split_line).collect()
}

fn split_line(line: &[u8]) -> Result<RecordLine<'_>, RecordError> {
    let at = line
        .iter()
        .position(|b| *b == b' ')
        .ok_or_else(|| bad(line))?;
    let (key, value) = line.split_at(at);
    Ok((key, value.get(1..).unwrap_or_default()))
}

fn bad(line: &[u8]) -> RecordError {
    RecordError::Line(String::from_utf8_lossy(line.get(..80).unwrap_or(line)).into_owned())
}

fn text_of(value: &[u8]) -> OsString {
    OsString::from_vec(unescape(value))
}

fn pair_of(value: &[u8]) -> Result<(OsString, OsString), RecordError> {
    let at = value
        .iter()
        .position(|b| *b == b'\t')
        .ok_or_else(|| bad(value))?;
    let (left, right) = value.split_at(at);
    Ok((text_of(left), text_of(right.get(1..).unwrap_or_default())))
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T, RecordError> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|t| t.parse().ok())
        .ok_or_else(|| bad(value))
}

fn words(value: &[u8]) -> std::str::Split<'_, char> {
    std::str::from_utf8(value).unwrap_or_default().split(' ')
}

fn next<T: std::str::FromStr>(
    words: &mut std::str::Split<'_, char>,
    value: &[u8],
) -> Result<T, RecordError> {
    words
        .next()
        .and_then(|w| w.parse().ok())
        .ok_or_else(|| bad(value))
}

fn rlimit_of(value: &[u8]) -> Result<RlimitRecord, RecordError> {
    let mut w = words(value);
    Ok(RlimitRecord {
        resource: next(&mut w, value)?,
        soft: next(&mut w, value)?,
        hard: next(&mut w, value)?,
    })
}

fn user_of(value: &[u8]) -> Result<ProgramUser, RecordError> {
    let mut w = words(value);
    let (uid, gid) = (next(&mut w, value)?, next(&mut w, value)?);
    let list = w.next().unwrap_or_default();
    let groups: Result<Vec<u32>, _> = list
        .split(',')
        .filter(|g| !g.is_empty())
        .map(|g| g.parse())
        .collect();
    Ok(ProgramUser {
        uid,
        gid,
        groups: groups.map_err(|_| bad(value))?,
    })
}

fn signal_of(value: &[u8]) -> Result<ProgramEnd, RecordError> {
    let mut w = words(value);
    let signal = next(&mut w, value)?;
    Ok(ProgramEnd::Signal {
        signal,
        core: next::<u8>(&mut w, value)? != 0,
    })
}

fn failed_of(value: &[u8]) -> Result<ProgramEnd, RecordError> {
    let (left, what) = pair_of(value)?;
    let left = left.as_bytes();
    let mut w = words(left);
    Ok(ProgramEnd::Failed {
        step: next(&mut w, left)?,
        errno: next(&mut w, left)?,
        what: lossy(&what),
    })
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
