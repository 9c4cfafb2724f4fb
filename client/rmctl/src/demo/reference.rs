//! A reference result by another method: all rows in one process, sorted by key and value, in one
//! pass. It is compared line by line with the output of the tasks, merged by key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::split::{KeyValueColumns, open};
use super::{DemoError, at};
use crate::groupby::csv::{CsvReader, quoted};
use crate::groupby::{HEADER, line};

/// Result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonResult {
    /// The results are equal, byte for byte.
    Equal {
        /// Lines without the header.
        lines: u64,
    },
    /// The results differ.
    Differ {
        /// The first differing line, counted from 1 without the header.
        at: u64,
        /// The line of the tasks.
        tasks: Option<String>,
        /// The line of the reference.
        reference: Option<String>,
    },
}

/// All rows: the position of the key in one long text, and the value.
#[derive(Debug, Default)]
struct ReferenceTable {
    text: Vec<u8>,
    rows: Vec<(usize, u32, f64)>,
}

impl ReferenceTable {
    fn read(input: &Path, columns: &KeyValueColumns) -> Result<ReferenceTable, DemoError> {
        let mut reader = open(input)?;
        let (key, value) = (reader.column(&columns.key)?, reader.column(&columns.value)?);
        let mut table = ReferenceTable::default();
        while reader.advance()? {
            let number = reader.number(value)?;
            let key = reader.field(key)?;
            let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
            table.rows.push((table.text.len(), length, number));
            table.text.extend_from_slice(key.as_bytes());
        }
        let text = std::mem::take(&mut table.text);
        table.rows.sort_unstable_by(|a, b| {
            key_of(&text, a)
                .cmp(key_of(&text, b))
                .then(a.2.total_cmp(&b.2))
        });
        table.text = text;
        Ok(table)
    }

    /// The lines of the result, in the order of keys.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let same = |a: &(usize, u32, f64), b: &(usize, u32, f64)| {
            key_of(&self.text, a) == key_of(&self.text, b)
        };
        self.rows.chunk_by(same).map(|rows| {
            let values: Vec<f64> = rows.iter().map(|r| r.2).collect();
            let key = rows.first().map_or(&[][..], |r| key_of(&self.text, r));
            line(&String::from_utf8_lossy(key), &values)
        })
    }
}

fn key_of<'a>(text: &'a [u8], row: &(usize, u32, f64)) -> &'a [u8] {
    let length = usize::try_from(row.1).unwrap_or(0);
    text.get(row.0..row.0 + length).unwrap_or_default()
}

/// The merged results of all tasks.
struct MergedResults {
    readers: Vec<CsvReader<BufReader<File>>>,
    next: BinaryHeap<Reverse<(String, usize)>>,
}

impl MergedResults {
    fn open(outputs: &[PathBuf]) -> Result<MergedResults, DemoError> {
        let readers = outputs
            .iter()
            .map(|p| open(p))
            .collect::<Result<Vec<_>, _>>()?;
        let mut merged = MergedResults {
            readers,
            next: BinaryHeap::new(),
        };
        (0..outputs.len()).try_for_each(|i| merged.advance(i))?;
        Ok(merged)
    }
    fn advance(&mut self, i: usize) -> Result<(), DemoError> {
        if let Some(reader) = self.readers.get_mut(i)
            && reader.advance()?
        {
            self.next.push(Reverse((reader.field(0)?.to_owned(), i)));
        }
        Ok(())
    }
    fn line(&mut self) -> Result<Option<String>, DemoError> {
        let Some(Reverse((key, i))) = self.next.pop() else {
            return Ok(None);
        };
        let mut line = quoted(&key).into_owned();
        if let Some(reader) = self.readers.get(i) {
            for column in 1..reader.header().len() {
                line.push(',');
                line.push_str(reader.field(column)?);
            }
        }
        line.push('\n');
        self.advance(i)?;
        Ok(Some(line))
    }
}

/// Compares the results of the tasks with the reference. Writes the merged result to `result`, if
/// it is given.
pub(crate) fn compare(
    input: &Path,
    columns: &KeyValueColumns,
    outputs: &[PathBuf],
    result: Option<&Path>,
) -> Result<ComparisonResult, DemoError> {
    let table = ReferenceTable::read(input, columns)?;
    let mut reference = table.lines();
    let mut merged = MergedResults::open(outputs)?;
    let mut keep = ResultFileWriter::new(result)?;
    let mut number = 0;
    loop {
        let (ours, theirs) = (merged.line()?, reference.next());
        match ours {
            Some(line) if theirs.as_ref() == Some(&line) => keep.line(&line)?,
            None if theirs.is_none() => {
                return keep
                    .done()
                    .map(|()| ComparisonResult::Equal { lines: number });
            }
            tasks => {
                return Ok(ComparisonResult::Differ {
                    at: number + 1,
                    tasks,
                    reference: theirs,
                });
            }
        }
        number += 1;
    }
}

/// The merged result on disk, if a path is given.
struct ResultFileWriter<'a> {
    to: Option<(&'a Path, BufWriter<File>)>,
}

impl<'a> ResultFileWriter<'a> {
    fn new(path: Option<&'a Path>) -> Result<Self, DemoError> {
        let to = match path {
            Some(path) => Some((
                path,
                BufWriter::with_capacity(1 << 18, File::create(path).map_err(at(path))?),
            )),
            None => None,
        };
        let mut keep = ResultFileWriter { to };
        keep.line(HEADER)?;
        Ok(keep)
    }
    fn line(&mut self, line: &str) -> Result<(), DemoError> {
        self.to.as_mut().map_or(Ok(()), |(path, out)| {
            out.write_all(line.as_bytes()).map_err(at(path))
        })
    }
    fn done(mut self) -> Result<(), DemoError> {
        self.to
            .as_mut()
            .map_or(Ok(()), |(path, out)| out.flush().map_err(at(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{generate, split};
    use crate::groupby::group_file;

    struct Set {
        dir: tempfile::TempDir,
        columns: KeyValueColumns,
        outputs: Vec<PathBuf>,
    }

    fn grouped() -> Set {
        let dir = tempfile::tempdir().expect("directory");
        let data = dir.path().join("data.csv");
        generate::generate(&data, &[40, 10, 10, 70, 10, 10], 5, |_| {}).expect("writes");
        let columns = split::columns(&data, None, None).expect("columns");
        let parts = split::split(&data, &columns, 6, dir.path(), |_| {}).expect("splits");
        let outputs: Vec<PathBuf> = parts.iter().map(|p| p.path.with_extension("out")).collect();
        for (part, output) in parts.iter().zip(&outputs) {
            group_file(&part.path, output, "key", "value").expect("groups");
        }
        Set {
            dir,
            columns,
            outputs,
        }
    }

    fn verdict(set: &Set) -> ComparisonResult {
        let dir = set.dir.path();
        compare(
            &dir.join("data.csv"),
            &set.columns,
            &set.outputs,
            Some(&dir.join("result.csv")),
        )
        .expect("compares")
    }

    #[test]
    fn both_ways_give_the_same_bytes() {
        let set = grouped();
        assert_eq!(verdict(&set), ComparisonResult::Equal { lines: 150 });
        let result = std::fs::read_to_string(set.dir.path().join("result.csv")).expect("reads");
        assert_eq!(result.lines().count(), 151);
        let keys: Vec<&str> = result
            .lines()
            .skip(1)
            .filter_map(|l| l.split(',').next())
            .collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_changed_byte_is_found() {
        let set = grouped();
        let text = std::fs::read_to_string(&set.outputs[3]).expect("reads");
        let at = text.rfind(',').expect("a comma") + 1;
        std::fs::write(&set.outputs[3], format!("{}9{}", &text[..at], &text[at..]))
            .expect("writes");
        let ComparisonResult::Differ {
            tasks, reference, ..
        } = verdict(&set)
        else {
            panic!("must differ")
        };
        assert_ne!(tasks, reference);
    }

    #[test]
    fn a_lost_row_is_found() {
        let set = grouped();
        let text = std::fs::read_to_string(&set.outputs[0]).expect("reads");
        let cut = text.trim_end().rfind('\n').expect("lines") + 1;
        std::fs::write(&set.outputs[0], &text[..cut]).expect("writes");
        assert!(matches!(verdict(&set), ComparisonResult::Differ { .. }));
    }
}
