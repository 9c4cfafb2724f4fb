//! Audit log: one line for each call that changes something, in memory for readers and in bounded
//! files.
//!
//! The interface writes a line when it responds. Calls of daemons, such as heartbeats, are not
//! recorded: they change no decision of an operator or user.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_config::RetentionLimits;
use headroom_telemetry::{SegmentedLog, lines};
use headroom_types::UnixMillis;
use headroom_wire::v1::audit::AuditLine;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::eventfiles::bounds;

/// Number of lines that may be written but not yet synced to disk.
const MAX_UNSYNCED: usize = 256;
/// Interval between two syncs to disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Lines kept in memory.
const MOST: usize = 10_000;
/// Base name of the files.
const FILES: &str = "audit";

/// The audit log.
#[derive(Debug)]
pub(crate) struct AuditRecorder {
    inner: Mutex<AuditLogState>,
    last: watch::Sender<u64>,
}

#[derive(Debug)]
struct AuditLogState {
    recent: VecDeque<Arc<AuditLine>>,
    next: u64,
    files: Option<SegmentedLog>,
    /// Lines that are written but not yet synced to disk.
    behind: usize,
}

/// The state of an object before and after a call, which a handler attaches to its response for the
/// audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditChange {
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Selection of audit lines. All conditions that are set must match.
#[derive(Debug, Default)]
pub(crate) struct AuditFilter {
    /// Caller, compared exactly.
    pub(crate) who: Option<String>,
    /// Substring of the verb.
    pub(crate) verb: Option<String>,
    /// Substring of the object.
    pub(crate) object: Option<String>,
    /// `true` selects refused calls, `false` all others.
    pub(crate) refused: Option<bool>,
    /// Lower bound of the time.
    pub(crate) since: Option<UnixMillis>,
}

impl AuditFilter {
    fn takes(&self, line: &AuditLine) -> bool {
        self.who.as_ref().is_none_or(|who| line.who == *who)
            && self
                .verb
                .as_ref()
                .is_none_or(|verb| line.verb.contains(verb.as_str()))
            && self
                .object
                .as_ref()
                .is_none_or(|object| line.object.contains(object.as_str()))
            && self
                .refused
                .is_none_or(|refused| (line.outcome >= 400) == refused)
            && self.since.is_none_or(|since| line.time >= since)
    }
}

impl AuditRecorder {
    /// Opens the log and reads the lines of earlier incarnations. If the disk cannot be read or
    /// written, it logs a warning and keeps the log in memory only.
    pub(crate) fn open(folder: &Path, kept: RetentionLimits) -> Self {
        let mut recent: VecDeque<Arc<AuditLine>> = VecDeque::new();
        let read = lines::read(folder, FILES, |text| {
            // A torn line is left out.
            if let Ok(line) = serde_json::from_str(text) {
                recent.push_back(Arc::new(line));
                if recent.len() > MOST {
                    recent.pop_front();
                }
            }
        });
        if let Err(error) = read {
            warn!(%error, "cannot read the audit log; it starts without earlier calls");
        }
        let next = recent.back().map_or(1, |line| line.index + 1);
        let files = SegmentedLog::open(folder, FILES, bounds(kept));
        let files = files.map_err(|error| warn!(%error, "cannot write the audit log to disk; it is kept in memory only")).ok();
        AuditRecorder {
            inner: Mutex::new(AuditLogState {
                recent,
                next,
                files,
                behind: 0,
            }),
            last: watch::Sender::new(next - 1),
        }
    }

    /// Appends a line and assigns its number.
    pub(crate) fn write(&self, mut line: AuditLine) {
        let mut inner = self.inner();
        line.index = inner.next;
        inner.next += 1;
        if let (Some(files), Ok(text)) = (&mut inner.files, serde_json::to_vec(&line))
            && let Err(error) = files.append([text])
        {
            warn!(%error, request = line.request, "cannot write a call to the audit log on disk");
        }
        inner.behind += 1;
        if inner.behind >= MAX_UNSYNCED {
            inner.sync();
        }
        let last = line.index;
        inner.recent.push_back(Arc::new(line));
        if inner.recent.len() > MOST {
            inner.recent.pop_front();
        }
        drop(inner);
        self.last.send_replace(last);
    }

    /// Syncs written lines to disk, so that they survive a crash of the host.
    fn flush(&self) {
        self.inner().sync();
    }

    /// Returns a receiver of the number of the latest line.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Changes the limits of the files.
    pub(crate) fn keep(&self, kept: RetentionLimits) {
        if let Some(files) = &mut self.inner().files
            && let Err(error) = files.bound(bounds(kept))
        {
            warn!(%error, "cannot remove old files of the audit log");
        }
    }

    /// Lines after number `after` that match the filter, oldest first.
    pub(crate) fn read(&self, after: u64, filter: &AuditFilter) -> Vec<Arc<AuditLine>> {
        let inner = self.inner();
        let later = inner
            .recent
            .iter()
            .filter(|line| line.index > after && filter.takes(line));
        later.cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, AuditLogState> {
        // Poisoning is harmless: a panic of a reader changes no state.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditLogState {
    fn sync(&mut self) {
        let behind = std::mem::take(&mut self.behind);
        if behind > 0
            && let Some(Err(error)) = self.files.as_mut().map(SegmentedLog::sync)
        {
            warn!(%error, behind, "cannot sync the audit log; a crash of this host may lose recorded calls");
        }
    }
}

impl Drop for AuditRecorder {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Syncs the log every [`SYNC_INTERVAL`], until the daemon closes.
pub(crate) async fn keep_synced(audit: Arc<AuditRecorder>, closing: CancellationToken) {
    let mut clock = tokio::time::interval(SYNC_INTERVAL);
    while closing.run_until_cancelled(clock.tick()).await.is_some() {
        let audit = audit.clone();
        if tokio::task::spawn_blocking(move || audit.flush())
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Splits a call into its verb and object: `POST`, `/v1/apps/job.1/kill` is `POST kill` to
/// `apps/job.1`.
pub(crate) fn named(method: &str, path: &str) -> (String, String) {
    let path = path
        .strip_prefix("/v1/")
        .or_else(|| path.strip_prefix('/'))
        .unwrap_or(path);
    let words: Vec<&str> = path.split('/').collect();
    match words.as_slice() {
        [object @ .., action] if method == "POST" && object.len() >= 2 => {
            (format!("{method} {action}"), object.join("/"))
        }
        _ => (method.to_owned(), path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, object: &str, outcome: u16) -> AuditLine {
        AuditLine {
            index: 0,
            time: UnixMillis(1000),
            who: "127.0.0.1".into(),
            from: "127.0.0.1".into(),
            verb: verb.into(),
            object: object.into(),
            request: "e1-1".into(),
            outcome,
            code: None,
            before: None,
            after: None,
        }
    }

    #[tokio::test]
    async fn lines_are_synced_by_number_and_by_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let (audit, closing) = (
            Arc::new(AuditRecorder::open(dir.path(), RetentionLimits::default())),
            CancellationToken::new(),
        );
        let behind = || audit.inner().behind;
        for _ in 0..MAX_UNSYNCED - 1 {
            audit.write(line("POST kill", "apps/job.1", 200));
        }
        assert_eq!(behind(), MAX_UNSYNCED - 1);
        audit.write(line("POST kill", "apps/job.1", 200));
        assert_eq!(behind(), 0, "a full batch is synced at once");
        audit.write(line("POST kill", "apps/job.1", 200));
        let kept = tokio::spawn(keep_synced(audit.clone(), closing.clone()));
        let deadline = tokio::time::Instant::now() + 30 * SYNC_INTERVAL;
        while behind() > 0 {
            assert!(
                tokio::time::Instant::now() < deadline,
                "a line is still not synced"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        closing.cancel();
        kept.await.expect("ends");
    }

    #[test]
    fn calls_have_a_verb_and_an_object() {
        let of = |method, path| named(method, path);
        assert_eq!(
            of("POST", "/v1/apps/job.1/kill"),
            ("POST kill".into(), "apps/job.1".into())
        );
        assert_eq!(
            of("PATCH", "/v1/queues/root.etl"),
            ("PATCH".into(), "queues/root.etl".into())
        );
        assert_eq!(of("POST", "/v1/apps"), ("POST".into(), "apps".into()));
        assert_eq!(
            of("PUT", "/ws/v1/cluster/apps/a/state"),
            ("PUT".into(), "ws/v1/cluster/apps/a/state".into())
        );
    }

    #[test]
    fn the_audit_log_continues_after_a_restart_and_is_filtered() {
        let dir = tempfile::tempdir().expect("a directory");
        let audit = AuditRecorder::open(dir.path(), RetentionLimits::default());
        audit.write(line("POST kill", "apps/job.1", 200));
        audit.write(line("POST kill", "apps/job.2", 404));
        drop(audit);
        let audit = AuditRecorder::open(dir.path(), RetentionLimits::default());
        audit.write(line("POST drain", "nodes/n1", 200));
        let seen = |after, filter: AuditFilter| {
            audit
                .read(after, &filter)
                .iter()
                .map(|l| l.index)
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(0, AuditFilter::default()), [1, 2, 3]);
        assert_eq!(seen(1, AuditFilter::default()), [2, 3]);
        assert_eq!(
            seen(
                0,
                AuditFilter {
                    verb: Some("kill".into()),
                    refused: Some(false),
                    ..AuditFilter::default()
                }
            ),
            [1]
        );
        assert_eq!(
            seen(
                0,
                AuditFilter {
                    object: Some("n1".into()),
                    ..AuditFilter::default()
                }
            ),
            [3]
        );
        assert!(
            seen(
                0,
                AuditFilter {
                    since: Some(UnixMillis(1001)),
                    ..AuditFilter::default()
                }
            )
            .is_empty()
        );
    }
}
