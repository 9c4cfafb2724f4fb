//! A copy of the records as text, one JSON object a line, to start from when the database is lost.
//!
//! Written beside the database while it is open: to a temporary file, synced, renamed. Three are kept. Documents are left out:
//! they may be large, and a cluster goes on without them.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Latest layout of the file.
const FORMAT: u32 = 1;
/// How many are kept.
const KEEP: usize = 3;
const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".jsonl";

/// What a snapshot holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Commits that it covers.
    pub commit: u64,
    /// The records by key.
    pub records: Vec<(String, Vec<u8>)>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    headroom_snapshot: u32,
    commit: u64,
    records: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    value: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
struct Footer {
    /// Of all lines before this one.
    crc32: u32,
}

/// Writes one, and removes those that are too many. Values must be JSON, as all records are.
pub fn write(dir: &Path, snapshot: &Snapshot) -> Result<PathBuf, StoreError> {
    let path = dir.join(format!("{PREFIX}{:020}{SUFFIX}", snapshot.commit));
    let temporary = dir.join(format!("{PREFIX}new"));
    let text = render(snapshot)?;
    let written = File::create(&temporary).and_then(|file| {
        let mut out = BufWriter::new(&file);
        out.write_all(text.as_bytes())?;
        out.flush()?;
        file.sync_all()
    });
    let named = written.and_then(|()| fs::rename(&temporary, &path)).and_then(|()| File::open(dir)?.sync_all());
    if let Err(source) = named {
        // On a full disk the half that was written takes room that others need. It is found again at the next snapshot.
        let _ = fs::remove_file(&temporary);
        return Err(StoreError::file(&temporary, source));
    }
    for old in list(dir)?.into_iter().rev().skip(KEEP) {
        fs::remove_file(&old).map_err(|source| StoreError::file(&old, source))?;
    }
    Ok(path)
}

/// All snapshots in a directory, the oldest first.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let unreadable = |source| StoreError::directory(dir, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads one. The text says what is wrong with it.
pub fn read(path: &Path) -> Result<Snapshot, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let body = text.strip_suffix('\n').ok_or("it is cut off")?;
    let (body, footer) = body.rsplit_once('\n').ok_or("it is cut off")?;
    let footer: Footer = serde_json::from_str(footer).map_err(|_| "its last line is not a checksum")?;
    if footer.crc32 != crc32fast::hash(body.as_bytes()) {
        return Err("it does not match its checksum".into());
    }
    let mut lines = body.lines();
    let header: Header = serde_json::from_str(lines.next().unwrap_or_default()).map_err(|e| format!("its first line: {e}"))?;
    if header.headroom_snapshot != FORMAT {
        return Err(format!("it has format {}, and this version knows {FORMAT}", header.headroom_snapshot));
    }
    let records: Result<Vec<_>, String> = lines.map(line).collect();
    let records = records?;
    if records.len() != header.records {
        return Err(format!("it has {} records instead of {}", records.len(), header.records));
    }
    Ok(Snapshot { commit: header.commit, records })
}

fn line(text: &str) -> Result<(String, Vec<u8>), String> {
    let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let value = serde_json::to_vec(&line.value).map_err(|e| e.to_string())?;
    Ok((line.key, value))
}

fn render(snapshot: &Snapshot) -> Result<String, StoreError> {
    let header = Header { headroom_snapshot: FORMAT, commit: snapshot.commit, records: snapshot.records.len() };
    let encode = |key: &str| {
        let key = key.to_owned();
        move |source| StoreError::Encode { key, source }
    };
    let mut text = serde_json::to_string(&header).map_err(encode("header"))?;
    for (key, value) in &snapshot.records {
        let value = serde_json::from_slice(value).map_err(encode(key))?;
        text.push('\n');
        text.push_str(&serde_json::to_string(&Line { key: key.clone(), value }).map_err(encode(key))?);
    }
    let footer = Footer { crc32: crc32fast::hash(text.as_bytes()) };
    text.push('\n');
    text.push_str(&serde_json::to_string(&footer).map_err(encode("footer"))?);
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(commit: u64) -> Snapshot {
        Snapshot { commit, records: vec![("meta".into(), br#"{"epoch":3,"last_app":9}"#.to_vec())] }
    }

    #[test]
    fn reads_what_it_wrote_and_keeps_three() {
        let dir = tempfile::tempdir().expect("a directory");
        for commit in [3, 11, 2, 7, 12] {
            write(dir.path(), &snapshot(commit)).expect("writes");
        }
        let kept: Vec<u64> = list(dir.path()).expect("lists").iter().map(|p| read(p).expect("reads").commit).collect();
        assert_eq!(kept, [7, 11, 12]);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
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
