//! Snapshots: copies of the records as text, one JSON object per line, for a start without a
//! database.
//!
//! They are written next to the open database: to a temporary file, which is synced and renamed.
//! Three are kept. They exclude documents, which may be large and which a cluster does not need. A
//! backup is the same text with documents, in a file that the operator chooses.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The latest layout of the file.
const FORMAT: u32 = 1;
/// The number of snapshots that are kept.
const KEEP: usize = 3;
const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".jsonl";

/// The content of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct StateSnapshot {
    /// The number of its last commit.
    pub commit: u64,
    /// The records by key.
    pub records: Vec<(String, Vec<u8>)>,
}

/// The first line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHeader {
    headroom_snapshot: u32,
    /// The number of its last commit.
    pub commit: u64,
    /// The number of records that follow.
    pub records: usize,
}

#[derive(Serialize, Deserialize)]
struct SnapshotFooter {
    /// Checksum of all lines before this one.
    crc32: u32,
}

/// Writes a snapshot, and removes the oldest ones beyond the limit.
pub fn write(dir: &Path, snapshot: &StateSnapshot) -> Result<PathBuf, StoreError> {
    let path = dir.join(format!("{PREFIX}{:020}{SUFFIX}", snapshot.commit));
    let temporary = dir.join(format!("{PREFIX}new"));
    whole(&temporary, &path, |file| {
        compose(BufWriter::new(file), snapshot)
    })?;
    for old in list(dir)?.into_iter().rev().skip(KEEP) {
        fs::remove_file(&old).map_err(|source| StoreError::file(&old, source))?;
    }
    Ok(path)
}

/// Writes a file completely or not at all: `fill` writes to `temporary`, which is then synced and
/// renamed.
pub(crate) fn whole(
    temporary: &Path,
    path: &Path,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Submitted data may contain secrets.
    let file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(temporary);
    let written = file.and_then(|file| fill(&file).and_then(|()| file.sync_all()));
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let named = written
        .and_then(|()| fs::rename(temporary, path))
        .and_then(|()| File::open(dir)?.sync_all());
    named.map_err(|source| {
        // Frees space on a full disk. A file that cannot be removed is overwritten next time.
        let _ = fs::remove_file(temporary);
        StoreError::file(temporary, source)
    })
}

/// All snapshots in a directory, oldest first.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let unreadable = |source| StoreError::directory(dir, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a snapshot. The error text describes the damage.
pub fn read(path: &Path) -> Result<StateSnapshot, String> {
    let mut records = Vec::new();
    let header = walk(path, |key, value| {
        records.push((key, value));
        Ok(())
    })?;
    Ok(StateSnapshot {
        commit: header.commit,
        records,
    })
}

/// Writes the text of a snapshot.
pub fn compose(out: impl Write, snapshot: &StateSnapshot) -> io::Result<()> {
    let mut text = SnapshotWriter::begin(out, snapshot.commit, snapshot.records.len())?;
    snapshot
        .records
        .iter()
        .try_for_each(|(key, value)| text.record(key, value))?;
    text.finish()
}

/// Passes every record of a file to `see`. The records are valid only if this returns without an
/// error.
pub fn walk(
    path: &Path,
    see: impl FnMut(String, Vec<u8>) -> Result<(), String>,
) -> Result<SnapshotHeader, String> {
    walk_text(
        BufReader::new(File::open(path).map_err(|e| e.to_string())?),
        see,
    )
}

/// Like [`walk`], for an open text.
pub fn walk_text(
    mut lines: impl BufRead,
    mut see: impl FnMut(String, Vec<u8>) -> Result<(), String>,
) -> Result<SnapshotHeader, String> {
    let (mut header, mut found, mut hasher) = (None::<SnapshotHeader>, 0, crc32fast::Hasher::new());
    // The last line has another format, and is recognised by the end of the text, so one line is
    // held back.
    let mut held: Option<Vec<u8>> = None;
    loop {
        let mut line = Vec::new();
        if lines
            .read_until(b'\n', &mut line)
            .map_err(|e| e.to_string())?
            == 0
        {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err("it is truncated".into());
        }
        let Some(line) = held.replace(line) else {
            continue;
        };
        let text = std::str::from_utf8(&line).map_err(|_| "it is not UTF-8")?;
        if header.is_none() {
            header = Some(first(text)?);
        } else {
            hasher.update(b"\n");
            let (key, value) = record(text)?;
            found += 1;
            see(key, value)?;
        }
        hasher.update(&line);
    }
    let footer: SnapshotFooter = serde_json::from_slice(&held.unwrap_or_default())
        .map_err(|_| "its last line is not a checksum")?;
    let header = header.ok_or("it is truncated")?;
    if footer.crc32 != hasher.finalize() {
        return Err("it does not match its checksum".into());
    }
    if found != header.records {
        return Err(format!(
            "it has {found} records instead of {}",
            header.records
        ));
    }
    Ok(header)
}

fn first(text: &str) -> Result<SnapshotHeader, String> {
    let header: SnapshotHeader =
        serde_json::from_str(text).map_err(|e| format!("its first line: {e}"))?;
    if header.headroom_snapshot != FORMAT {
        return Err(format!(
            "it has format {}, and this version supports {FORMAT}",
            header.headroom_snapshot
        ));
    }
    Ok(header)
}

/// Parses a record: `{"key":"node/n1","value":{…}}`, with the exact bytes of the value in the
/// database. A value that is not JSON is stored as `"hex"`.
fn record(text: &str) -> Result<(String, Vec<u8>), String> {
    #[derive(Deserialize)]
    struct SnapshotLine {
        key: String,
        hex: Option<String>,
    }
    let SnapshotLine { key, hex } = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if let Some(hex) = hex {
        return Ok((key, bytes_of(&hex).ok_or("a value is not hexadecimal")?));
    }
    let before = before(&key).map_err(|e| e.to_string())?;
    let value = text
        .strip_prefix(&before)
        .and_then(|rest| rest.strip_suffix('}'));
    let value = value.ok_or_else(|| format!("record {key} has an unknown layout"))?;
    Ok((key, value.as_bytes().to_vec()))
}

fn before(key: &str) -> Result<String, serde_json::Error> {
    Ok(format!(
        "{{\"key\":{},\"value\":",
        serde_json::to_string(key)?
    ))
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hex
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| {
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    })
}

/// Writes the text line by line.
pub(crate) struct SnapshotWriter<W> {
    out: W,
    hasher: crc32fast::Hasher,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes the header.
    pub(crate) fn begin(mut out: W, commit: u64, records: usize) -> io::Result<Self> {
        let header = serde_json::to_string(&SnapshotHeader {
            headroom_snapshot: FORMAT,
            commit,
            records,
        })?;
        out.write_all(header.as_bytes())?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(header.as_bytes());
        Ok(SnapshotWriter { out, hasher })
    }
    /// Writes one record.
    pub(crate) fn record(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let json = !value.contains(&b'\n') && serde_json::from_slice::<IgnoredAny>(value).is_ok();
        let line = match std::str::from_utf8(value) {
            Ok(text) if json => format!("\n{}{text}}}", before(key)?),
            Ok(_) | Err(_) => {
                let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                format!(
                    "\n{{\"key\":{},\"hex\":\"{hex}\"}}",
                    serde_json::to_string(key)?
                )
            }
        };
        self.hasher.update(line.as_bytes());
        self.out.write_all(line.as_bytes())
    }
    /// Writes the checksum.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let footer = serde_json::to_string(&SnapshotFooter {
            crc32: self.hasher.finalize(),
        })?;
        self.out.write_all(format!("\n{footer}\n").as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(commit: u64) -> StateSnapshot {
        StateSnapshot {
            commit,
            records: vec![("meta".into(), br#"{"epoch":3,"last_app":9}"#.to_vec())],
        }
    }

    #[test]
    fn the_newest_three_snapshots_are_kept_and_readable() {
        let dir = tempfile::tempdir().expect("a directory");
        for commit in [3, 11, 2, 7, 12] {
            write(dir.path(), &snapshot(commit)).expect("writes");
        }
        let kept: Vec<u64> = list(dir.path())
            .expect("lists")
            .iter()
            .map(|p| read(p).expect("reads").commit)
            .collect();
        assert_eq!(kept, [7, 11, 12]);
    }

    #[test]
    fn a_value_is_restored_to_the_byte() {
        let dir = tempfile::tempdir().expect("a directory");
        let values: [&[u8]; 6] = [
            br#"{"z":1,"a":[1.50]}"#,
            b"",
            b"aaaa",
            b"{\n}",
            &[0xff, 0, 10],
            br#"" \u00e4""#,
        ];
        let records: Vec<_> = (0..)
            .zip(values)
            .map(|(n, value)| (format!("job/{n}\"x"), value.to_vec()))
            .collect();
        let path = write(
            dir.path(),
            &StateSnapshot {
                commit: 3,
                records: records.clone(),
            },
        )
        .expect("writes");
        assert_eq!(read(&path).expect("reads").records, records);
    }

    #[test]
    fn a_truncated_or_changed_snapshot_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = write(dir.path(), &snapshot(3)).expect("writes");
        let whole = fs::read(&path).expect("reads");
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).expect("writes");
            assert!(read(&path).is_err(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).expect("writes");
            assert!(read(&path).is_err(), "changed at {at}");
        }
    }
}
