//! The shuffle: one pass over a CSV file, which writes each row to the file of its key's partition.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{DemoError, at, partition};
use crate::groupby::csv::{CsvReader, quoted};

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemoPartition {
    /// Index of the partition.
    pub(crate) index: u32,
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Rows without the header.
    pub(crate) rows: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
}

/// The columns of a file that the job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValueColumns {
    /// The column to group by.
    pub(crate) key: String,
    /// The column with the numbers.
    pub(crate) value: String,
}

/// Finds the columns. Defaults: the first column is the key, the first other column with a number
/// is the value.
pub(crate) fn columns(
    input: &Path,
    key: Option<&str>,
    value: Option<&str>,
) -> Result<KeyValueColumns, DemoError> {
    let mut reader = open(input)?;
    let key = match key {
        Some(name) => reader.column(name)?,
        None => 0,
    };
    if !reader.advance()? {
        return Err(DemoError::NoRows {
            path: input.to_owned(),
        });
    }
    let value = match value {
        Some(name) => reader.column(name)?,
        None => (0..reader.header().len())
            .find(|i| *i != key && reader.number(*i).is_ok())
            .ok_or_else(|| DemoError::NoNumbers {
                path: input.to_owned(),
                line: reader.line(),
            })?,
    };
    let name = |i: usize| reader.header().get(i).cloned().unwrap_or_default();
    Ok(KeyValueColumns {
        key: name(key),
        value: name(value),
    })
}

/// Opens a CSV file.
pub(crate) fn open(input: &Path) -> Result<CsvReader<BufReader<File>>, DemoError> {
    let file = File::open(input).map_err(at(input))?;
    Ok(CsvReader::new(
        BufReader::with_capacity(1 << 18, file),
        input,
    )?)
}

/// Writes `part-0.csv` … into `dir`, each with the columns `key` and `value`. `progress` gets the
/// number of written bytes at intervals.
pub(crate) fn split(
    input: &Path,
    columns: &KeyValueColumns,
    partitions: u32,
    dir: &Path,
    mut progress: impl FnMut(u64),
) -> Result<Vec<DemoPartition>, DemoError> {
    let mut reader = open(input)?;
    let (key, value) = (reader.column(&columns.key)?, reader.column(&columns.value)?);
    let mut writers = (0..partitions)
        .map(|i| PartitionWriter::new(i, dir))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut rows, mut bytes) = (0u64, 0);
    while reader.advance()? {
        // An error here names the line in the whole file; an error of a task would name the line in
        // a part.
        reader.number(value)?;
        let key = reader.field(key)?;
        let target = usize::try_from(partition(key.as_bytes(), partitions)).unwrap_or(0);
        let line = format!("{},{}\n", quoted(key), reader.field(value)?.trim());
        if let Some(writer) = writers.get_mut(target) {
            writer.row(&line)?;
        }
        rows += 1;
        bytes += line.len() as u64;
        if rows.is_multiple_of(1 << 16) {
            progress(bytes);
        }
    }
    if rows == 0 {
        return Err(DemoError::NoRows {
            path: input.to_owned(),
        });
    }
    writers.into_iter().map(PartitionWriter::done).collect()
}

struct PartitionWriter {
    part: DemoPartition,
    out: BufWriter<File>,
}

impl PartitionWriter {
    fn new(index: u32, dir: &Path) -> Result<PartitionWriter, DemoError> {
        let path = dir.join(format!("part-{index}.csv"));
        let file = File::create(&path).map_err(at(&path))?;
        let mut writer = PartitionWriter {
            part: DemoPartition {
                index,
                path,
                rows: 0,
                bytes: 0,
            },
            out: BufWriter::with_capacity(1 << 16, file),
        };
        writer.row("key,value\n")?;
        writer.part.rows = 0;
        Ok(writer)
    }
    fn row(&mut self, line: &str) -> Result<(), DemoError> {
        self.out
            .write_all(line.as_bytes())
            .map_err(at(&self.part.path))?;
        self.part.rows += 1;
        self.part.bytes += line.len() as u64;
        Ok(())
    }
    fn done(mut self) -> Result<DemoPartition, DemoError> {
        self.out.flush().map_err(at(&self.part.path))?;
        Ok(self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("data.csv");
        std::fs::write(&path, text).expect("writes");
        (dir, path)
    }

    #[test]
    fn every_row_arrives_once_in_the_partition_of_its_key() {
        let rows: String = (0..1000)
            .map(|i| format!("{},x,k{}\n", i, i % 37))
            .collect();
        let (dir, path) = file(&format!("n,text,name\n{rows}"));
        let columns = columns(&path, Some("name"), None).expect("columns");
        assert_eq!(
            columns,
            KeyValueColumns {
                key: "name".into(),
                value: "n".into()
            }
        );
        let parts = split(&path, &columns, 6, dir.path(), |_| {}).expect("splits");
        assert_eq!(parts.iter().map(|p| p.rows).sum::<u64>(), 1000);
        let mut seen = std::collections::BTreeSet::new();
        for part in &parts {
            let text = std::fs::read_to_string(&part.path).expect("reads");
            assert_eq!(text.len() as u64, part.bytes);
            for line in text.lines().skip(1) {
                let (key, value) = line.split_once(',').expect("two fields");
                assert_eq!(partition(key.as_bytes(), 6), part.index);
                assert!(seen.insert(value.parse::<u32>().expect("number")));
            }
        }
        assert_eq!(seen.len(), 1000);
    }

    #[test]
    fn quoted_keys_stay_a_single_field() {
        let (dir, path) = file("key,value\n\"a,b\",1\n\"a,b\",2\n");
        let columns = columns(&path, None, None).expect("columns");
        let parts = split(&path, &columns, 1, dir.path(), |_| {}).expect("splits");
        assert_eq!(
            std::fs::read_to_string(&parts[0].path).expect("reads"),
            "key,value\n\"a,b\",1\n\"a,b\",2\n"
        );
    }

    #[test]
    fn bad_files_are_reported_with_their_line() {
        let split_text = |text: &str, key: Option<&str>, value: Option<&str>| {
            let (dir, path) = file(text);
            let columns = columns(&path, key, value).map_err(|e| e.to_string())?;
            split(&path, &columns, 6, dir.path(), |_| {})
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        let contains = |r: Result<(), String>, part: &str| {
            let text = r.expect_err(part);
            assert!(text.contains(part), "{text}");
        };
        contains(split_text("", None, None), "is empty");
        contains(split_text("a,b\n", None, None), "has a header and no rows");
        contains(
            split_text("a,b\n1,2\n", Some("c"), None),
            "has no column \"c\"; it has a, b",
        );
        contains(
            split_text("a,b\nx,y\n", None, None),
            ":2: no column but the key's holds a number here",
        );
        contains(
            split_text("a,b\nx,1\ny,z\n", None, None),
            ":3: column \"b\" holds \"z\"",
        );
        contains(
            split_text("a,b\nx,1\ny\n", None, None),
            ":3: the record has 1 field, the header has 2",
        );
    }
}
