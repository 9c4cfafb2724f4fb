//! Recorded tasks, read from comma-separated files.

use std::path::{Path, PathBuf};

use headroom_types::Bytes;
use serde::Deserialize;

/// One recorded task.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTask {
    /// Its kind.
    pub kind: String,
    /// Size of its input; `None` if it was not recorded.
    pub input: Option<Bytes>,
    /// Peak memory.
    pub peak: Bytes,
    /// Run time. Seconds.
    pub runtime_s: f64,
    /// Requested memory; `None` if it was not recorded.
    pub request: Option<Bytes>,
    /// Processors.
    pub cpus: u32,
}

/// Tasks that were recorded together, in the order of their submission.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedDataset {
    /// Its name.
    pub name: String,
    /// Its tasks.
    pub tasks: Vec<RecordedTask>,
}

/// The reason why a folder cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The folder cannot be read.
    #[error("cannot read the folder {path}: {source}")]
    Folder {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The folder has no trace.
    #[error(
        "no .csv file in {0}; a trace has the columns dataset, task_type, seq, input_bytes, peak_mem_bytes, runtime_s, user_mem_bytes and cpus"
    )]
    Nothing(PathBuf),
    /// A file is not a trace.
    #[error(
        "{path}: {source}; a trace has the columns dataset, task_type, seq, input_bytes, peak_mem_bytes, runtime_s, user_mem_bytes and cpus"
    )]
    Row {
        /// The path.
        path: PathBuf,
        /// The row and the cause.
        source: csv::Error,
    },
    /// A row has an impossible value.
    #[error("{path}, line {line}: {what}")]
    Value {
        /// The path.
        path: PathBuf,
        /// The line number, from 1.
        line: u64,
        /// The fault.
        what: &'static str,
    },
}

#[derive(Debug, Deserialize)]
struct TraceFileRow {
    dataset: String,
    task_type: String,
    seq: u64,
    input_bytes: f64,
    peak_mem_bytes: f64,
    runtime_s: f64,
    user_mem_bytes: f64,
    cpus: f64,
}

/// Tasks by dataset, each with its sequence number.
type TasksByDataset = Vec<(String, Vec<(u64, RecordedTask)>)>;

/// Maximum number of processors of a task; larger values are reduced.
const MOST_CPUS: f64 = 1024.0;

/// Reads one file, or every `.csv` file of a folder in the order of their names.
///
/// # Errors
/// The folder cannot be read or has no such file, or one of them is not a trace.
pub fn read(path: &Path) -> Result<Vec<RecordedDataset>, TraceError> {
    let mut found = TasksByDataset::new();
    let files = if path.is_file() {
        vec![path.to_owned()]
    } else {
        files_of(path)?
    };
    for path in files {
        read_file(&path, &mut found)?;
    }
    Ok(in_order(found))
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let entries = std::fs::read_dir(folder).map_err(|source| TraceError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(TraceError::Nothing(folder.to_owned()));
    }
    Ok(files)
}

/// Reads the text of a trace; `name` stands for its file in messages.
///
/// # Errors
/// It is not a trace.
pub fn parse(text: &str, name: &str) -> Result<Vec<RecordedDataset>, TraceError> {
    let mut found = TasksByDataset::new();
    read_rows(
        csv::Reader::from_reader(text.as_bytes()),
        Path::new(name),
        &mut found,
    )?;
    Ok(in_order(found))
}

fn in_order(found: TasksByDataset) -> Vec<RecordedDataset> {
    let whole = |(name, mut rows): (String, Vec<(u64, RecordedTask)>)| {
        rows.sort_by_key(|(seq, _)| *seq);
        RecordedDataset {
            name,
            tasks: rows.into_iter().map(|(_, task)| task).collect(),
        }
    };
    found.into_iter().map(whole).collect()
}

fn read_file(path: &Path, found: &mut TasksByDataset) -> Result<(), TraceError> {
    let reader = csv::Reader::from_path(path).map_err(|source| TraceError::Row {
        path: path.to_owned(),
        source,
    })?;
    read_rows(reader, path, found)
}

fn read_rows<R: std::io::Read>(
    mut reader: csv::Reader<R>,
    path: &Path,
    found: &mut TasksByDataset,
) -> Result<(), TraceError> {
    let wrong = |source| TraceError::Row {
        path: path.to_owned(),
        source,
    };
    for (n, row) in reader.deserialize::<TraceFileRow>().enumerate() {
        let row = row.map_err(wrong)?;
        let bad = |what| TraceError::Value {
            path: path.to_owned(),
            line: n as u64 + 2,
            what,
        };
        let finite = |x: f64| x.is_finite() && (0.0..1e18).contains(&x);
        if !finite(row.peak_mem_bytes) || !finite(row.input_bytes) || !finite(row.user_mem_bytes) {
            return Err(bad("a size is negative, or larger than any memory"));
        }
        if !row.runtime_s.is_finite() || row.runtime_s < 0.0 {
            return Err(bad("runtime_s is negative"));
        }
        let task = RecordedTask {
            kind: row.task_type,
            input: known(row.input_bytes),
            peak: known(row.peak_mem_bytes).unwrap_or(Bytes::new(1)),
            runtime_s: row.runtime_s.max(0.001),
            request: known(row.user_mem_bytes),
            cpus: cpus(row.cpus),
        };
        match found.iter_mut().find(|(name, _)| *name == row.dataset) {
            Some((_, rows)) => rows.push((row.seq, task)),
            None => found.push((row.dataset, vec![(row.seq, task)])),
        }
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked: below 2^60
fn known(size: f64) -> Option<Bytes> {
    (size >= 1.0).then_some(Bytes::new(size as u64))
}
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
fn cpus(cpus: f64) -> u32 {
    if cpus.is_finite() {
        cpus.clamp(1.0, MOST_CPUS) as u32
    } else {
        1
    }
}
