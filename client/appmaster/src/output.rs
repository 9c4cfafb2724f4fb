//! Outputs of fenced stages: where they are, and how the directory of one attempt becomes the output of its task.
//!
//! ```text
//!  DIR/map-7                                   the output of task map/7
//!  DIR/.headroom/owner                         the application whose outputs are made here
//!  DIR/.headroom/word-count.7/9f86d081/map-7-2 what attempt map/7@2 writes, by the journal that it is written down in
//! ```
//!
//! The core decides which attempt it is and has that journalled; here one rename carries it out. It may be asked for again by the
//! master's next run, and then finds it done. Nothing that is in a task's place is ever replaced.
//!
//! What these functions touch lies on a file system that may be slow or gone: call them beside the loop.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use headroom_config::JobSpec;
use headroom_types::{AppId, TaskAttemptId, TaskId, UnixMillis};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Everything of ours beside the outputs.
const OURS: &str = ".headroom";
/// In it: whose outputs are made there.
const OWNER: &str = "owner";

/// An application, told from another one that is called the same: in another cluster, or in this one after it was set up anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which.
    pub app: AppId,
    /// When it was submitted.
    pub submitted: UnixMillis,
}

impl std::fmt::Display for Owner {
    /// As its file says it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.app, self.submitted.0)
    }
}

impl std::str::FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (app, submitted) = text.split_once(' ').ok_or(())?;
        Ok(Owner { app: app.parse().map_err(|_| ())?, submitted: UnixMillis(submitted.parse().map_err(|_| ())?) })
    }
}

/// Where the output of a task goes.
pub fn place(output: &str, task: &TaskId) -> PathBuf {
    Path::new(output).join(format!("{}-{}", task.stage, task.index))
}

/// Where the attempts of one journal write, below what is ours. A master without the journal of the run before it counts attempts anew,
/// and what still runs of the old ones must not meet the new ones.
pub fn writer(app: &str, token: &str) -> String {
    let sum = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{app}/{sum:08x}")
}

/// Where an attempt writes: beside its place, on the same file system.
pub fn attempt_dir(output: &str, writer: &str, attempt: &TaskAttemptId) -> PathBuf {
    Path::new(output).join(OURS).join(writer).join(attempt.file_name())
}

/// One commit: this directory becomes that output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Of which task.
    pub task: TaskId,
    /// The attempt's own directory.
    pub from: PathBuf,
    /// The task's place.
    pub to: PathBuf,
    /// Whether it may have been carried out already.
    pub turn: Turn,
}

/// Who may have committed the task before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// Nobody.
    #[default]
    First,
    /// An earlier run of the master, or an earlier try: this attempt.
    Again,
    /// An earlier run of the master whose journal was lost: any attempt of its own.
    Anew,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// What the attempt wrote is not there.
    #[error(
        "its output directory {0} is gone: its program removed it, or its executor makes none (the field `output` of a start)"
    )]
    Gone(PathBuf),
    /// Something else is in the task's place.
    #[error("{place} was there before its output was put there; nothing was replaced, its output is {kept}")]
    Taken {
        /// The place.
        place: PathBuf,
        /// Where the output still is.
        kept: PathBuf,
    },
    /// Another application makes its outputs there.
    #[error("{dir} is the output of application {}; name another directory, or remove {dir}/.headroom when that is over", app_of(.owner))]
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Whose it is, as its file says it.
        owner: String,
    },
    /// An output of an earlier job is there.
    #[error("{0} is there already, and outputs are never replaced; name another `output` directory, or move it away")]
    There(PathBuf),
    /// The file system refused something.
    #[error("{path} cannot be {doing}; the master and all nodes must be able to write there")]
    Io {
        /// What.
        path: PathBuf,
        /// What was to be done with it.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl OutputError {
    /// With its source.
    pub fn in_words(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
    /// True when the same may work a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            OutputError::Io { .. } => true,
            OutputError::Gone(_) | OutputError::Taken { .. } | OutputError::Owned { .. } | OutputError::There(_) => false,
        }
    }
}

/// The part of an owner's name that people know.
fn app_of(owner: &str) -> &str {
    owner.split(' ').next().unwrap_or_default()
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.to_owned();
    move |source| OutputError::Io { path, doing, source }
}

/// Carries out a commit, and removes what other attempts at the task have left. Carried out twice it is done once.
pub fn commit(commit: &Commit) -> Result<(), OutputError> {
    let Commit { task, from, to, turn } = commit;
    match (exists(from)?, exists(to)?, turn) {
        (true, false, _) => rename(from, to)?,
        (false, true, Turn::Again | Turn::Anew) => {}
        // The task has its output, by an earlier attempt: this one is taken away with what all others have left.
        (true, true, Turn::Anew) => {}
        (false, false, _) | (false, true, Turn::First) => return Err(OutputError::Gone(from.clone())),
        (true, true, Turn::First | Turn::Again) => {
            return Err(OutputError::Taken { place: to.clone(), kept: from.clone() });
        }
    }
    for dir in [to.parent(), from.parent()].into_iter().flatten() {
        make_durable(dir)?;
    }
    if let Some(attempts) = from.parent() {
        remove_attempts(attempts, task);
    }
    Ok(())
}

/// As far as the file system knows such a thing, and lets us.
fn make_durable(dir: &Path) -> Result<(), OutputError> {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, Unsupported};
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(e) if [InvalidInput, NotFound, PermissionDenied, Unsupported].contains(&e.kind()) => Ok(()),
        other => other.map_err(io_error(dir, "made durable")),
    }
}

fn exists(path: &Path) -> Result<bool, OutputError> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(io_error(path, "looked at")(e)),
    }
}

/// Never onto something. Where the file system cannot promise that, it was looked at before, and nobody but us commits there.
fn rename(from: &Path, to: &Path) -> Result<(), OutputError> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(OutputError::Taken { place: to.to_owned(), kept: from.to_owned() }),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(from, to).map_err(io_error(to, "put in its place")),
        Err(e) => Err(io_error(to, "put in its place")(e.into())),
    }
}

/// What attempts at one task have left. A late attempt may still write there; then the sweep at the end finds it.
fn remove_attempts(attempts: &Path, task: &TaskId) {
    for entry in fs::read_dir(attempts).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&format!("{}-{}-", task.stage, task.index)));
        if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "what an attempt left behind is still there");
        }
        Ok(()) | Err(_) => {}
    }
}

/// The directories that a job makes its outputs in.
pub fn directories(job: &JobSpec) -> BTreeSet<&str> {
    job.stages.iter().filter_map(|stage| stage.output.as_deref()).collect()
}

/// Whether the job has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// No record of it: nothing of it can be there.
    New,
    /// An earlier run of its master has begun it.
    Old,
}

/// What the file of an owner says after its name, once a master has begun without the journal of the one before it.
const ANEW: &str = " anew";

/// Takes the directories of a job for its application, and says what its commits may find. Fails, and has changed nothing, when another
/// application has one of them or, at the beginning, when an output is there already.
pub fn claim(job: &JobSpec, us: &Owner, beginning: Beginning) -> Result<Turn, OutputError> {
    let (mut turn, name) = (Turn::First, us.to_string());
    let mut owned = Vec::new();
    for dir in directories(job) {
        let owner = owner(dir)?;
        match owner.as_deref().map(|text| text.strip_suffix(ANEW).unwrap_or(text)) {
            // Nobody's, or its writer died between making and writing it.
            None | Some("") if beginning == Beginning::New => places_are_free(job, dir)?,
            None | Some("") => {}
            Some(known) if known == name => {
                let anew = beginning == Beginning::New || owner.as_deref() != Some(known);
                turn = if anew { Turn::Anew } else { turn };
            }
            Some(other) => return Err(OutputError::Owned { dir: dir.into(), owner: other.to_owned() }),
        }
        owned.push((dir, owner));
    }
    for (dir, known) in owned {
        if beginning == Beginning::New {
            // What a run whose journal was lost has left of attempts.
            remove(&Path::new(dir).join(OURS).join(us.app.to_string()));
        }
        own(dir, &name, known.as_deref(), turn)?;
    }
    Ok(turn)
}

fn owner(dir: &str) -> Result<Option<String>, OutputError> {
    let file = Path::new(dir).join(OURS).join(OWNER);
    let mut text = String::new();
    match File::open(&file).and_then(|file| file.take(512).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error(&file, "read")(e)),
    }
}

fn places_are_free(job: &JobSpec, dir: &str) -> Result<(), OutputError> {
    for stage in job.stages.iter().filter(|stage| stage.output.as_deref() == Some(dir)) {
        for index in stage.indexes() {
            let place = place(dir, &TaskId { stage: stage.name.clone(), index });
            if exists(&place)? {
                return Err(OutputError::There(place));
            }
        }
    }
    Ok(())
}

/// Writes whose it is, where `known` does not say so already. Of two that come at the same time one finds the file of the other.
fn own(dir: &str, name: &str, known: Option<&str>, turn: Turn) -> Result<(), OutputError> {
    let ours = Path::new(dir).join(OURS);
    let file = ours.join(OWNER);
    let text = match turn {
        Turn::First | Turn::Again => name.to_owned(),
        Turn::Anew => format!("{name}{ANEW}"),
    };
    match known {
        Some(known) if known == text => Ok(()),
        Some(_) => fs::write(&file, text).map_err(io_error(&file, "written")),
        None => {
            fs::create_dir_all(&ours).map_err(io_error(&ours, "made"))?;
            match OpenOptions::new().write(true).create_new(true).open(&file) {
                Ok(mut new) => new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).map_err(io_error(&file, "written")),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    Err(OutputError::Owned { dir: dir.into(), owner: fs::read_to_string(&file).unwrap_or_default() })
                }
                Err(e) => Err(io_error(&file, "made")(e)),
            }
        }
    }
}

/// Gives the directories of a job back, when it is over: of it only outputs stay.
pub fn release(job: &JobSpec, us: &Owner) {
    directories(job).into_iter().for_each(|dir| take_away(Path::new(dir), us));
}

/// What an application that is over has left in a directory, its master having had no time to clean up.
pub fn take_away(dir: &Path, owner: &Owner) {
    let ours = dir.join(OURS);
    let file = ours.join(OWNER);
    if fs::read_to_string(&file).is_ok_and(|known| known.strip_suffix(ANEW).unwrap_or(&known) == owner.to_string()) {
        remove(&ours.join(owner.app.to_string()));
        let _ = fs::remove_file(&file).and_then(|()| fs::remove_dir(&ours)); // not empty: a late attempt writes there
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
