//! Files of one task: standard output, standard error, the files in which its program reports a full
//! heap and the size of its cache, and its input and value.
//!
//! Owned by the task; all files are in `tasks/` of the container's directory, under the name of the
//! attempt.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_node_core::gclog::{self, GcLogSummary};
use headroom_node_core::marker;
use headroom_types::Bytes;
use headroom_wire::v1::task::TaskStart;

use crate::log_pool::LogPool;
use crate::payload::{PayloadFiles, PayloadPool};

/// Bytes at the end of a log that a report contains.
const TAIL: u64 = 4096;
/// Bytes at the end of a log that are searched for messages of a runtime.
const SEARCHED: u64 = 64 << 10;
/// Bytes at the beginning of a log that are searched for the region size of the heap.
const GC_HEAD: u64 = 8 << 10;
/// Maximum length of a program's own report. Bytes.
const MARKER: u64 = 200;

/// The files of one attempt.
#[derive(Debug)]
pub struct TaskFiles {
    /// Standard output.
    pub out: File,
    /// Standard error.
    pub err: File,
    /// Input and value; `None` for an attempt without them.
    pub payload: Option<PayloadFiles>,
    logs: Arc<LogPool>,
    out_path: PathBuf,
    err_path: PathBuf,
    marker_path: PathBuf,
    cached_path: PathBuf,
}

impl TaskFiles {
    /// Creates the files in `DIR/tasks`, empty except for the input.
    pub fn create(
        dir: &Path,
        (logs, payloads): (&Arc<LogPool>, &Arc<PayloadPool>),
        start: &TaskStart,
    ) -> io::Result<TaskFiles> {
        let tasks = dir.join("tasks");
        let name = start.attempt.file_name();
        let path = |ending: &str| tasks.join(format!("{name}.{ending}"));
        let (out_path, err_path) = (path("out"), path("err"));
        let (marker_path, cached_path) = (path("oom-marker"), path("cached"));
        let out = match logs.open(&out_path) {
            // The first attempt.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&tasks)?;
                logs.open(&out_path)?
            }
            made => made?,
        };
        Ok(TaskFiles {
            out,
            err: logs.open(&err_path)?,
            payload: payloads.take(start)?,
            logs: logs.clone(),
            out_path,
            err_path,
            marker_path,
            cached_path,
        })
    }

    /// Offers the logs to the next attempts, if they are empty. All processes of this attempt have
    /// ended.
    pub(crate) fn give_back(&self) {
        self.logs.give_back(&self.out_path, &self.out);
        self.logs.give_back(&self.err_path, &self.err);
    }

    /// True if both logs are empty. A process that still runs may write later.
    pub(crate) fn are_empty(&self) -> bool {
        let is_empty = |log: &File| log.metadata().is_ok_and(|facts| facts.len() == 0);
        is_empty(&self.out) && is_empty(&self.err)
    }

    /// Path of the file in which the program reports a full heap.
    pub fn marker_path(&self) -> &Path {
        &self.marker_path
    }

    /// Path of the file in which the program reports the size of its cache.
    pub fn cached_path(&self) -> &Path {
        &self.cached_path
    }

    /// The last reported cache size.
    pub fn cached(&self) -> Option<Bytes> {
        marker::cached(&tail(&self.cached_path, MARKER).ok()?)
    }

    /// The end of its standard error, at most 4 KiB.
    pub fn log_tail(&self) -> String {
        // The common case is an empty log, which the open file shows without a read.
        match self.err.metadata() {
            Ok(facts) if facts.len() == 0 => String::new(),
            Ok(_) | Err(_) => tail(&self.err_path, TAIL).unwrap_or_default(),
        }
    }

    /// The message by which the runtime reported full memory: from the marker file, otherwise from
    /// the end of either log.
    pub fn heap_marker(&self) -> Option<String> {
        let own = tail(&self.marker_path, MARKER).ok().map(|text| {
            let line = text.trim();
            if line.is_empty() {
                "out-of-memory marker file".to_owned()
            } else {
                line.to_owned()
            }
        });
        own.or_else(|| self.line_of_runtime())
    }

    /// Output of the garbage collector in either log, if its log is enabled. The beginning contains
    /// the layout of the heap, the end the last collections.
    pub fn gc_log(&self) -> Option<GcLogSummary> {
        [&self.out_path, &self.err_path]
            .into_iter()
            .find_map(|path| {
                let end = gclog::parse(&tail(path, SEARCHED).ok()?)?;
                let first = gclog::parse(&head(path, GC_HEAD).unwrap_or_default());
                Some(GcLogSummary {
                    region: end.region.or(first.and_then(|log| log.region)),
                    ..end
                })
            })
    }

    fn line_of_runtime(&self) -> Option<String> {
        [&self.err_path, &self.out_path]
            .into_iter()
            .find_map(|path| {
                let text = tail(path, SEARCHED).ok()?;
                marker::find(&text).map(str::to_owned)
            })
    }
}

/// The first `most` bytes of a file as text.
fn head(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last `most` bytes of a file as text, without a truncated first character.
pub(crate) fn tail(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let cut = if size > most {
        bytes
            .iter()
            .take(4)
            .take_while(|b| **b & 0b1100_0000 == 0b1000_0000)
            .count()
    } else {
        0
    };
    Ok(String::from_utf8_lossy(bytes.get(cut..).unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::FileReuse;
    use crate::verdict::samples::start;
    use std::io::Write as _;

    fn files() -> (tempfile::TempDir, TaskFiles) {
        let dir = tempfile::tempdir().expect("tempdir");
        let payloads = PayloadPool::new(dir.path().join("tasks"), FileReuse::Allowed);
        let pools = (
            &Arc::new(LogPool::new(FileReuse::Allowed)),
            &Arc::new(payloads),
        );
        let files = TaskFiles::create(dir.path(), pools, &start("map/7@2"));
        (dir, files.expect("creates"))
    }

    #[test]
    fn the_tail_is_bounded_and_ends_at_a_character() {
        let (dir, mut files) = files();
        files
            .err
            .write_all(format!("{}end", "ä".repeat(4000)).as_bytes())
            .expect("writes");
        let tail = files.log_tail();
        assert!(
            tail.len() <= 4096 && tail.ends_with("äend") && !tail.contains('\u{FFFD}'),
            "{} bytes",
            tail.len()
        );
        assert!(dir.path().join("tasks/map-7-2.err").exists());
    }

    #[test]
    fn the_marker_file_takes_precedence_over_the_log() {
        let (_dir, mut files) = files();
        assert_eq!(files.heap_marker(), None);
        files
            .out
            .write_all(b"hello\njava.lang.OutOfMemoryError: Java heap space\n")
            .expect("writes");
        assert_eq!(
            files.heap_marker().as_deref(),
            Some("java.lang.OutOfMemoryError: Java heap space")
        );
        std::fs::write(files.marker_path(), b"").expect("writes");
        assert_eq!(
            files.heap_marker().as_deref(),
            Some("out-of-memory marker file")
        );
    }
}
