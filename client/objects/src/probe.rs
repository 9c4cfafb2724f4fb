//! The check of a directory: each operation that a journal needs.

use bytes::Bytes;

use crate::directory::{CreateResult, ObjectDirectory};
use crate::error::ObjectError;

/// Content of the object that the check writes.
const DATA: &[u8] = b"The check of a node agent. It may be removed.\n";

/// The fix of a store that lacks a guarantee.
const CHOOSE_STORE: &str =
    "use an object store with conditional writes, whose writes are visible at once";

/// The reason why a directory cannot have journals.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.fix())]
pub enum ProbeError {
    /// An operation failed.
    Failed(#[from] ObjectError),
    /// The store created an object twice.
    Unconditional {
        /// URL of the object.
        url: String,
    },
    /// An object that was written is not there, or has other bytes.
    Inconsistent {
        /// URL of the object.
        url: String,
    },
}

impl ProbeError {
    /// The problem, without the fix.
    pub fn found(&self) -> String {
        match self {
            ProbeError::Failed(error) => error.found(),
            ProbeError::Unconditional { url } => format!(
                "{url} was created twice: the store ignores If-None-Match, so two attempts of a master could \
                 write the same journal"
            ),
            ProbeError::Inconsistent { url } => {
                format!("{url} was written and cannot be read again")
            }
        }
    }

    /// The next step of the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            ProbeError::Failed(error) => error.fix(),
            ProbeError::Unconditional { .. } | ProbeError::Inconsistent { .. } => CHOOSE_STORE,
        }
    }
}

impl ObjectDirectory {
    /// Creates, lists, reads and removes an object whose name has the word `of`, which no other caller
    /// uses at the same time.
    ///
    /// # Errors
    /// An operation failed, or had another result than a journal needs.
    pub async fn probe(&self, of: &str) -> Result<(), ProbeError> {
        // The list of the directory itself contains all journals.
        let directory = self.directory(&format!(".probe-{of}"));
        let name = "object";
        let url = || format!("{}/{name}", directory.url());
        let data = Bytes::from_static(DATA);
        directory.remove_all().await?;
        // If the answer to a first request is lost, the library repeats it and finds the object.
        directory.create(name, data.clone()).await?;
        match directory.create(name, data.clone()).await? {
            CreateResult::Exists => {}
            CreateResult::Created => return Err(ProbeError::Unconditional { url: url() }),
        }
        let is_listed = directory.list().await?.iter().any(|listed| listed == name);
        if !is_listed || directory.read(name).await? != Some(data) {
            return Err(ProbeError::Inconsistent { url: url() });
        }
        directory.remove_all().await?;
        Ok(())
    }
}
