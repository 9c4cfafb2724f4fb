//! Count, sum and median of numbers by key, all of it in memory: a program whose memory grows with
//! its data.
//!
//! It stores only the values, without padding. The result file appears complete or not at all.

pub(crate) mod csv;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use csv::{CsvFileError, CsvReader};

/// Statistics of a run, printed as one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupByStats {
    /// Number of rows.
    pub(crate) rows: u64,
    /// Number of different keys.
    pub(crate) keys: u64,
    /// Peak of resident memory. Bytes.
    pub(crate) peak_bytes: u64,
}

/// All values by key.
#[derive(Debug, Default)]
pub(crate) struct GroupedValues {
    values: BTreeMap<String, Vec<f64>>,
    rows: u64,
}

impl GroupedValues {
    /// Adds one row.
    pub(crate) fn add(&mut self, key: &str, value: f64) {
        self.rows += 1;
        match self.values.get_mut(key) {
            Some(values) => values.push(value),
            None => {
                self.values.insert(key.to_owned(), vec![value]);
            }
        }
    }

    /// Writes a header and one line for each key, in byte order.
    pub(crate) fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(HEADER.as_bytes())?;
        for (key, values) in &mut self.values {
            values.sort_by(f64::total_cmp);
            out.write_all(line(key, values).as_bytes())?;
        }
        Ok(())
    }
}

/// The header of a result.
pub(crate) const HEADER: &str = "key,count,sum,median\n";

/// The line of one key. `sorted` are its values in ascending order, so that the rounding of the sum
/// does not depend on the order of rows.
pub(crate) fn line(key: &str, sorted: &[f64]) -> String {
    let sum: f64 = sorted.iter().sum();
    let middle = sorted.len() / 2;
    let median = match (sorted.get(middle), sorted.len().is_multiple_of(2)) {
        (Some(upper), true) => sorted
            .get(middle.saturating_sub(1))
            .map_or(*upper, |lower| f64::midpoint(*lower, *upper)),
        (Some(one), false) => *one,
        (None, _) => 0.0,
    };
    format!("{},{},{sum},{median}\n", csv::quoted(key), sorted.len())
}

/// Groups a file. Writes the result to a temporary file in the same directory and renames it.
pub(crate) fn group_file(
    input: &Path,
    output: &Path,
    key: &str,
    value: &str,
) -> Result<GroupByStats, CsvFileError> {
    let mut groups = read(input, key, value)?;
    let name = output
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let hidden = output.with_file_name(format!(".{name}.{}", std::process::id()));
    let written =
        write_durably(&mut groups, &hidden).and_then(|()| std::fs::rename(&hidden, output));
    if let Err(source) = written {
        let _ = std::fs::remove_file(&hidden);
        return Err(CsvFileError::Write {
            path: output.to_owned(),
            source,
        });
    }
    let keys = u64::try_from(groups.values.len()).unwrap_or(u64::MAX);
    Ok(GroupByStats {
        rows: groups.rows,
        keys,
        peak_bytes: peak(),
    })
}

fn read(input: &Path, key: &str, value: &str) -> Result<GroupedValues, CsvFileError> {
    let file = File::open(input).map_err(|source| CsvFileError::Read {
        path: input.to_owned(),
        source,
    })?;
    let mut reader = CsvReader::new(BufReader::with_capacity(1 << 16, file), input)?;
    let (key, value) = (reader.column(key)?, reader.column(value)?);
    let mut groups = GroupedValues::default();
    while reader.advance()? {
        let number = reader.number(value)?;
        groups.add(reader.field(key)?, number);
    }
    Ok(groups)
}

fn write_durably(groups: &mut GroupedValues, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, File::create(path)?);
    groups.write(&mut out)?;
    out.flush()?;
    Ok(())
}

/// Peak of resident memory of this process. Bytes.
fn peak() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage
        .ok()
        .and_then(|u| u64::try_from(u.max_rss()).ok())
        .unwrap_or(0)
        .saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().expect("directory");
        let (input, output) = (dir.path().join("in.csv"), dir.path().join("out.csv"));
        std::fs::write(&input, text).expect("writes");
        let outcome = group_file(&input, &output, "key", "value");
        let names: Vec<_> = std::fs::read_dir(dir.path()).expect("lists").collect();
        assert!(names.len() <= 2, "no files are left behind: {names:?}");
        match outcome {
            Ok(_) => Ok(std::fs::read_to_string(&output).expect("reads")),
            Err(e) => {
                assert!(!output.exists(), "there is no result without success");
                Err(e.to_string())
            }
        }
    }

    #[test]
    fn counts_sums_and_medians() {
        let text = "value,key\n3,b\n1,a\n2,a\n10,a\n4,b\n";
        assert_eq!(
            group(text).as_deref(),
            Ok("key,count,sum,median\na,3,13,2\nb,2,7,3.5\n")
        );
    }

    #[test]
    fn the_order_of_rows_does_not_change_a_byte() {
        let rows = ["a,0.1\n", "a,0.2\n", "a,0.3\n", "a,1e17\n", "a,-1e17\n"];
        let forth = group(&format!("key,value\n{}", rows.concat()));
        let back: String = rows.iter().rev().copied().collect();
        assert_eq!(forth, group(&format!("key,value\n{back}")));
    }

    #[test]
    fn a_header_alone_is_an_empty_result() {
        assert_eq!(group("key,value\n").as_deref(), Ok(HEADER));
    }

    #[test]
    fn keys_that_need_quotes_keep_them() {
        assert_eq!(
            group("key,value\n\"a,\"\"b\",1\n").as_deref(),
            Ok("key,count,sum,median\n\"a,\"\"b\",1,1,1\n")
        );
    }

    #[test]
    fn bad_input_is_named_with_its_line() {
        let error_of = |text: &str| group(text).expect_err(text);
        assert!(error_of("").contains("in.csv is empty"), "{}", error_of(""));
        assert!(
            error_of("k,value\n").contains("no column \"key\"")
                && error_of("k,value\n").contains("it has k, value")
        );
        assert!(
            error_of("key,value\na,1\nb,many\n").contains("in.csv:3:"),
            "{}",
            error_of("key,value\na,1\nb,many\n")
        );
        assert!(
            error_of("key,value\na,inf\n").contains("\"inf\""),
            "an infinite number cannot be summed"
        );
        assert!(
            error_of("key,value\na\n").contains("has 1 field"),
            "{}",
            error_of("key,value\na\n")
        );
    }

    #[test]
    fn equals_a_reference_over_random_rows() {
        let mut state = 7u64;
        let mut next = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        };
        let rows: Vec<(String, f64)> = (0..5000)
            .map(|_| {
                (
                    format!("k{}", next() % 300),
                    f64::from((next() % 1000) as u16),
                )
            })
            .collect();
        let text: String = rows.iter().map(|(k, v)| format!("{k},{v}\n")).collect();
        let mut expected = HEADER.to_owned();
        let keys: std::collections::BTreeSet<&String> = rows.iter().map(|(k, _)| k).collect();
        for key in keys {
            let mut values: Vec<f64> = rows
                .iter()
                .filter(|(k, _)| k == key)
                .map(|(_, v)| *v)
                .collect();
            values.sort_by(f64::total_cmp);
            let (n, sum) = (values.len(), values.iter().sum::<f64>());
            let median = if n % 2 == 1 {
                values[n / 2]
            } else {
                (values[n / 2 - 1] + values[n / 2]) / 2.0
            };
            expected.push_str(&format!("{key},{n},{sum},{median}\n"));
        }
        assert_eq!(group(&format!("key,value\n{text}")), Ok(expected));
    }
}
