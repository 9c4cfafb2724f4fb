//! The errors of a journal, with the fix for each.

use std::io;
use std::path::{Path, PathBuf};

use headroom_client::ClientError;
use headroom_objects::ObjectError;
use headroom_types::AppId;

/// An error of a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its directory cannot be used.
    #[error("the journal {path} cannot be {doing}; check the directory's rights and free space")]
    Io {
        /// The path.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another master uses the journal.
    #[error("the journal {path} is in use by another master of the same application")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// A line other than the last cannot be read.
    #[error(
        "line {line} of the journal {path} is damaged: {what}; move the file away to run the job from its start"
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The parse error.
        what: String,
    },
    /// The journal belongs to another application or job.
    #[error("the journal {path} belongs to {what}; use another state directory")]
    Foreign {
        /// The path.
        path: PathBuf,
        /// Its owner.
        what: String,
    },
    /// A later attempt of the same application writes the journal.
    #[error(
        "attempt {by} of this application has taken over the journal in {dir}; this attempt ends and leaves \
         its executors to the later one"
    )]
    Deposed {
        /// The directory of the journal.
        dir: PathBuf,
        /// The later attempt.
        by: u32,
    },
    /// The resource manager takes no more records of this attempt.
    #[error(
        "the resource manager refuses records of attempt {attempt} of {app}; this attempt ends and leaves its \
         executors to a later one"
    )]
    Refused {
        /// The application.
        app: AppId,
        /// The attempt.
        attempt: u32,
        /// The refusal.
        #[source]
        source: Box<ClientError>,
    },
    /// The object store cannot be used.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// An object of the journal is not there.
    #[error(
        "{url} is missing, and the journal has later objects; restore it, or remove all objects of this \
         journal to run the job from its start"
    )]
    MissingObject {
        /// URL of the object.
        url: String,
    },
    /// The directory of the journal is gone.
    #[error(
        "the journal directory {dir} was removed; if the job has not ended, mount the shared directory again"
    )]
    Removed {
        /// The directory.
        dir: PathBuf,
    },
    /// An attempt with the same number has used the shared directory.
    #[error(
        "attempt {attempt} of this application has already used the journal in {dir}; start the master \
         with a higher --attempt"
    )]
    AttemptUsed {
        /// The directory of the journal.
        dir: PathBuf,
        /// The attempt.
        attempt: u32,
    },
    /// The directory of the journal belongs to another user, or others may write to it.
    #[error(
        "the journal directory {dir} belongs to user {uid} with mode {mode:o}, but this master runs as user \
         {own}; give it to the user of the job with mode 700, or remove it"
    )]
    NotPrivate {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
        /// The user of this process.
        own: u32,
    },
}

/// The error of a failed step, such as "opened", with the journal at `path`.
pub(crate) fn io_at(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> JournalError {
    move |source| JournalError::Io {
        path: path.to_owned(),
        doing,
        source,
    }
}
