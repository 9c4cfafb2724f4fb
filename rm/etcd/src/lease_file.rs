//! The lease of this host's manager, in a file of its state directory. The next process on this
//! host ends a lease that the earlier one left, so that no manager waits for its expiry.
//!
//! The process holds a kernel lock on the file. A process that has the lock therefore knows that
//! the earlier one has ended.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tracing::info;

use crate::client::EtcdClient;
use crate::error::EtcdError;
use crate::keys::EtcdKeys;

/// Name of the file in the state directory.
const NAME: &str = "etcd-lease";
/// Tries to get the lock of a process that is ending, and the pause between them.
const TRIES: u32 = 20;
const AGAIN: Duration = Duration::from_millis(50);
/// Largest size of the file that is read. In bytes.
const MAX_BYTES: usize = 1024;

/// The locked file. It is unlocked when this value is dropped.
#[derive(Debug)]
pub struct LeaseFile {
    file: File,
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordedLease {
    lease: i64,
    /// Name of the manager.
    manager: String,
}

/// The lease in the record of a manager.
#[derive(Deserialize)]
struct ManagerLease {
    lease: i64,
}

impl RecordedLease {
    fn parse(text: &str) -> Option<Self> {
        let (lease, manager) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(RecordedLease {
            lease: lease.parse().ok()?,
            manager: manager.to_owned(),
        })
    }
}

impl LeaseFile {
    /// Locks the file in a state directory, which is created. `None` if another process has it.
    ///
    /// # Errors
    /// The directory or the file cannot be created or locked.
    pub async fn claim(dir: &Path) -> io::Result<Option<Self>> {
        std::fs::create_dir_all(dir)?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(dir.join(NAME))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(LeaseFile { file })),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(AGAIN).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Records the lease of a manager.
    pub(crate) fn record(&self, lease: i64, manager: &str) -> io::Result<()> {
        let text = format!("{lease} {manager}\n");
        // A torn write has no final newline, and is ignored.
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }

    fn read(&self) -> Option<RecordedLease> {
        let mut bytes = vec![0; MAX_BYTES];
        let length = self.file.read_at(&mut bytes, 0).ok()?;
        RecordedLease::parse(std::str::from_utf8(&bytes[..length]).ok()?)
    }

    /// Ends the recorded lease in etcd, if it is still the lease of that manager. With `manager`,
    /// a lease of another name is left alone: the file was copied from another host.
    ///
    /// # Errors
    /// etcd did not answer; the lease is still recorded.
    pub async fn end_lease(
        &self,
        client: &EtcdClient,
        keys: &EtcdKeys,
        manager: Option<&str>,
    ) -> Result<(), EtcdError> {
        let Some(recorded) = self.read() else {
            return Ok(());
        };
        if manager.is_none_or(|name| name == recorded.manager) {
            let key = keys.manager(&recorded.manager);
            let found = client.value(key).await?;
            let found = found.and_then(|value| serde_json::from_slice(&value).ok());
            if found.is_some_and(|ManagerLease { lease }| lease == recorded.lease) {
                match client.revoke_lease(recorded.lease).await {
                    Ok(()) => info!("ended the lease of the earlier process of this host"),
                    Err(EtcdError::LeaseGone) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // If it stays, the next process ends a lease that no manager has.
        let _ = self.file.set_len(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn a_lease_is_recorded_and_a_torn_record_is_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let claim = || runtime().block_on(LeaseFile::claim(dir.path()));
        let file = claim().expect("opens").expect("free");
        assert_eq!(file.read(), None);
        file.record(7_587_850, "https://rm1:7070").expect("writes");
        file.record(23, "https://rm1:7070").expect("writes");
        let recorded = file.read().expect("recorded");
        assert_eq!(
            (recorded.lease, recorded.manager.as_str()),
            (23, "https://rm1:7070")
        );
        assert!(claim().expect("opens").is_none(), "a process has it");
        drop(file);
        assert!(claim().expect("opens").is_some());
        assert_eq!(RecordedLease::parse("23 https://rm1:7070"), None);
        assert_eq!(RecordedLease::parse("x https://rm1:7070\n"), None);
    }
}
