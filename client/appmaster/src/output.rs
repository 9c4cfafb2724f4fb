//! Outputs of fenced stages: their paths, and the commit by which the directory of one attempt
//! becomes the output of its task.
//!
//! ```text
//!  DIR/map-7                                   output of task map/7
//!  DIR/.headroom/owner                         application whose outputs are written to DIR
//!  DIR/.headroom/word-count.7/9f86d081/map-7-2 directory of attempt map/7@2; the number is a
//!                                              hash of the journal's secret
//! ```
//!
//! The core selects the attempt and records the selection; this module carries it out with one
//! rename. The master's next run may request the commit again, and then finds it done. Existing
//! output is never replaced.
//!
//! These functions access a file system that may be slow or unavailable: call them outside the
//! loop.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use headroom_config::JobSpec;
use headroom_types::{AppId, TaskAttemptId, TaskId, UnixMillis};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Directory for all files of Headroom, within the output directory.
const HEADROOM_DIR: &str = ".headroom";
/// File in that directory that names the owning application.
const OWNER: &str = "owner";

/// An application, distinct from one with the same id in another cluster or in a cluster that was
/// installed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputOwner {
    /// The application id.
    pub app: AppId,
    /// Time of its submission.
    pub submitted: UnixMillis,
}

impl std::fmt::Display for OutputOwner {
    /// The format of the owner file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.app, self.submitted.0)
    }
}

impl std::str::FromStr for OutputOwner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (app, submitted) = text.split_once(' ').ok_or(())?;
        Ok(OutputOwner {
            app: app.parse().map_err(|_| ())?,
            submitted: UnixMillis(submitted.parse().map_err(|_| ())?),
        })
    }
}

/// Path of a task's output.
pub fn output_path(output: &str, task: &TaskId) -> PathBuf {
    Path::new(output).join(format!("{}-{}", task.stage, task.index))
}

/// Directory for the attempts of one journal, relative to `.headroom`. A master that lost the
/// journal of the previous run numbers attempts from the start. The directory keeps them apart from
/// attempts of the previous run that are still running.
pub fn writer(app: &str, token: &str) -> String {
    let sum = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{app}/{sum:08x}")
}

/// Directory of an attempt, on the same file system as the task's output.
pub fn attempt_dir(output: &str, writer: &str, attempt: &TaskAttemptId) -> PathBuf {
    Path::new(output)
        .join(HEADROOM_DIR)
        .join(writer)
        .join(attempt.file_name())
}

/// One commit: a directory becomes the output of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputCommit {
    /// The task.
    pub task: TaskId,
    /// The attempt's own directory.
    pub from: PathBuf,
    /// The path of the task's output.
    pub to: PathBuf,
    /// Whether the commit may have been carried out already.
    pub turn: EarlierCommit,
}

/// Possible earlier commits of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlierCommit {
    /// None.
    #[default]
    First,
    /// By an earlier run of the master, or an earlier try: of this attempt.
    Again,
    /// By an earlier run of the master whose journal was lost: of any of its attempts.
    Anew,
}

/// The reason why a commit or a claim failed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The attempt's directory does not exist.
    #[error(
        "its output directory {0} is gone: its program removed it, or its executor does not create it (field `output` of a start)"
    )]
    Gone(PathBuf),
    /// The path of the output is occupied.
    #[error(
        "{place} existed before the commit; nothing was replaced, the output of the attempt is {kept}"
    )]
    Taken {
        /// The path of the output.
        place: PathBuf,
        /// The path at which the attempt's output remains.
        kept: PathBuf,
    },
    /// Another application writes its outputs there.
    #[error("{dir} is the output of application {}; use another directory, or remove {dir}/.headroom after that has ended", app_of(.owner))]
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Its owner, as the owner file states it.
        owner: String,
    },
    /// An output of an earlier job exists.
    #[error(
        "{0} already exists, and outputs are never replaced; use another `output` directory, or move it away"
    )]
    There(PathBuf),
    /// A file system operation failed.
    #[error("{path} cannot be {doing}; the master and all nodes must be able to write there")]
    Io {
        /// The path.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl OutputError {
    /// The message with its cause.
    pub fn in_words(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
    /// True when the operation may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            OutputError::Io { .. } => true,
            OutputError::Gone(_)
            | OutputError::Taken { .. }
            | OutputError::Owned { .. }
            | OutputError::There(_) => false,
        }
    }
}

/// The application id in an owner file.
fn app_of(owner: &str) -> &str {
    owner.split(' ').next().unwrap_or_default()
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.to_owned();
    move |source| OutputError::Io {
        path,
        doing,
        source,
    }
}

/// Carries out a commit and removes the directories of the task's other attempts. A repeated commit
/// has no further effect.
pub fn commit(commit: &OutputCommit) -> Result<(), OutputError> {
    let OutputCommit {
        task,
        from,
        to,
        turn,
    } = commit;
    match (exists(from)?, exists(to)?, turn) {
        (true, false, _) => rename(from, to)?,
        (false, true, EarlierCommit::Again | EarlierCommit::Anew) => {}
        // An earlier attempt has already provided the output. This attempt's directory is removed
        // with those of the others.
        (true, true, EarlierCommit::Anew) => {}
        (false, false, _) | (false, true, EarlierCommit::First) => {
            return Err(OutputError::Gone(from.clone()));
        }
        (true, true, EarlierCommit::First | EarlierCommit::Again) => {
            return Err(OutputError::Taken {
                place: to.clone(),
                kept: from.clone(),
            });
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

/// Syncs a directory, if the file system supports and permits that.
fn make_durable(dir: &Path) -> Result<(), OutputError> {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, Unsupported};
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(e) if [InvalidInput, NotFound, PermissionDenied, Unsupported].contains(&e.kind()) => {
            Ok(())
        }
        other => other.map_err(io_error(dir, "synced")),
    }
}

fn exists(path: &Path) -> Result<bool, OutputError> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(io_error(path, "inspected")(e)),
    }
}

/// Renames without replacement. On a file system that cannot guarantee this, the target was checked
/// before, and only this master commits there.
fn rename(from: &Path, to: &Path) -> Result<(), OutputError> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(OutputError::Taken {
            place: to.to_owned(),
            kept: from.to_owned(),
        }),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::rename(from, to).map_err(io_error(to, "renamed into place"))
        }
        Err(e) => Err(io_error(to, "renamed into place")(e.into())),
    }
}

/// Removes the directories of a task's attempts. A late attempt may still write there;
/// [`remove_leftovers`] removes such a directory at the end of the job.
fn remove_attempts(attempts: &Path, task: &TaskId) {
    for entry in fs::read_dir(attempts).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(&format!("{}-{}-", task.stage, task.index)));
        if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "cannot remove the directory of an attempt");
        }
        Ok(()) | Err(_) => {}
    }
}

/// The output directories of a job.
pub fn directories(job: &JobSpec) -> BTreeSet<&str> {
    job.stages
        .iter()
        .filter_map(|stage| stage.output.as_deref())
        .collect()
}

/// Whether the job has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStartState {
    /// No journal exists: the job has no outputs yet.
    New,
    /// An earlier run of the master has started the job.
    Old,
}

/// Suffix in the owner file after a master started without the journal of an earlier one.
const LOST_JOURNAL_SUFFIX: &str = " anew";

/// Claims the output directories of a job for its application, and returns the commits that may
/// have happened. It fails, without a change, if another application owns one of them or, at the
/// start of the job, if an output exists already.
pub fn claim(
    job: &JobSpec,
    us: &OutputOwner,
    beginning: JobStartState,
) -> Result<EarlierCommit, OutputError> {
    let (mut turn, name) = (EarlierCommit::First, us.to_string());
    let mut owned = Vec::new();
    for dir in directories(job) {
        let owner = owner(dir)?;
        match owner
            .as_deref()
            .map(|text| text.strip_suffix(LOST_JOURNAL_SUFFIX).unwrap_or(text))
        {
            // No owner, or the process that created the file died before it wrote the owner.
            None | Some("") if beginning == JobStartState::New => places_are_free(job, dir)?,
            None | Some("") => {}
            Some(known) if known == name => {
                let anew = beginning == JobStartState::New || owner.as_deref() != Some(known);
                turn = if anew { EarlierCommit::Anew } else { turn };
            }
            Some(other) => {
                return Err(OutputError::Owned {
                    dir: dir.into(),
                    owner: other.to_owned(),
                });
            }
        }
        owned.push((dir, owner));
    }
    for (dir, known) in owned {
        if beginning == JobStartState::New {
            // Attempt directories of a run whose journal was lost.
            remove(&Path::new(dir).join(HEADROOM_DIR).join(us.app.to_string()));
        }
        write_owner(dir, &name, known.as_deref(), turn)?;
    }
    Ok(turn)
}

fn owner(dir: &str) -> Result<Option<String>, OutputError> {
    let file = Path::new(dir).join(HEADROOM_DIR).join(OWNER);
    let mut text = String::new();
    match File::open(&file).and_then(|file| file.take(512).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error(&file, "read")(e)),
    }
}

fn places_are_free(job: &JobSpec, dir: &str) -> Result<(), OutputError> {
    for stage in job
        .stages
        .iter()
        .filter(|stage| stage.output.as_deref() == Some(dir))
    {
        for index in stage.indexes() {
            let place = output_path(
                dir,
                &TaskId {
                    stage: stage.name.clone(),
                    index,
                },
            );
            if exists(&place)? {
                return Err(OutputError::There(place));
            }
        }
    }
    Ok(())
}

/// Writes the owner file unless `known` already names this owner. Of two concurrent writers, one
/// finds the file of the other.
fn write_owner(
    dir: &str,
    name: &str,
    known: Option<&str>,
    turn: EarlierCommit,
) -> Result<(), OutputError> {
    let ours = Path::new(dir).join(HEADROOM_DIR);
    let file = ours.join(OWNER);
    let text = match turn {
        EarlierCommit::First | EarlierCommit::Again => name.to_owned(),
        EarlierCommit::Anew => format!("{name}{LOST_JOURNAL_SUFFIX}"),
    };
    match known {
        Some(known) if known == text => Ok(()),
        Some(_) => fs::write(&file, text).map_err(io_error(&file, "written")),
        None => {
            fs::create_dir_all(&ours).map_err(io_error(&ours, "made"))?;
            match OpenOptions::new().write(true).create_new(true).open(&file) {
                Ok(mut new) => new
                    .write_all(text.as_bytes())
                    .and_then(|()| new.sync_all())
                    .map_err(io_error(&file, "written")),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(OutputError::Owned {
                    dir: dir.into(),
                    owner: fs::read_to_string(&file).unwrap_or_default(),
                }),
                Err(e) => Err(io_error(&file, "made")(e)),
            }
        }
    }
}

/// Releases the output directories when the job has ended; only outputs remain.
pub fn release(job: &JobSpec, us: &OutputOwner) {
    directories(job)
        .into_iter()
        .for_each(|dir| remove_leftovers(Path::new(dir), us));
}

/// Removes the files of an ended application whose master did not clean up.
pub fn remove_leftovers(dir: &Path, owner: &OutputOwner) {
    let ours = dir.join(HEADROOM_DIR);
    let file = ours.join(OWNER);
    if fs::read_to_string(&file).is_ok_and(|known| {
        known.strip_suffix(LOST_JOURNAL_SUFFIX).unwrap_or(&known) == owner.to_string()
    }) {
        remove(&ours.join(owner.app.to_string()));
        let _ = fs::remove_file(&file).and_then(|()| fs::remove_dir(&ours)); // not empty: a late attempt writes there
    }
}

#[cfg(test)]
mod tests;
