//! Records of comma-separated values with a header. Every error contains file and line.
//!
//! The `csv` crate counts the lines at the start of a record, and accepts quotes in the wrong place.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use csv::StringRecord;

/// An error in a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsvError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The result cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The file has no header.
    #[error("{} is empty: its first line must name the columns", path.display())]
    Empty { path: PathBuf },
    /// The header does not name the column.
    #[error("{} has no column {column:?}; it has {}", path.display(), have.join(", "))]
    NoColumn {
        path: PathBuf,
        column: String,
        have: Vec<String>,
    },
    /// A record is shorter or longer than the header.
    #[error("{}:{line}: the record has {got} field{}, the header has {want}", path.display(), if *got == 1 { "" } else { "s" })]
    Fields {
        path: PathBuf,
        line: u64,
        got: u64,
        want: u64,
    },
    /// A field should be a number.
    #[error("{}:{line}: column {column:?} holds {text:?}, which is not a finite number", path.display())]
    NotNumber {
        path: PathBuf,
        line: u64,
        column: String,
        text: String,
    },
    /// The record is not UTF-8.
    #[error("{}:{line}: the record is not UTF-8 text", path.display())]
    NotText { path: PathBuf, line: u64 },
}

impl CsvError {
    fn new(path: &Path, error: csv::Error) -> Self {
        let path = path.to_owned();
        let line = error.position().map_or(0, csv::Position::line);
        if let csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } = error.kind()
        {
            let (got, want) = (*len, *expected_len);
            return CsvError::Fields {
                path,
                line,
                got,
                want,
            };
        }
        if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) {
            return CsvError::NotText { path, line };
        }
        CsvError::Read {
            path,
            source: error.into(),
        }
    }
}

/// Reads records one by one.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    from: csv::Reader<R>,
    path: PathBuf,
    header: StringRecord,
    record: StringRecord,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub(crate) fn new(from: R, path: &Path) -> Result<Self, CsvError> {
        let mut from = csv::ReaderBuilder::new()
            .buffer_capacity(1 << 16)
            .from_reader(from);
        let header = from.headers().map_err(|e| CsvError::new(path, e))?.clone();
        if header.is_empty() {
            return Err(CsvError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Reader {
            from,
            path: path.to_owned(),
            header,
            record: StringRecord::new(),
        })
    }

    /// The names of the columns.
    #[cfg(any(test, feature = "dev"))]
    pub(crate) fn header(&self) -> &StringRecord {
        &self.header
    }

    /// The first line of the current record.
    pub(crate) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    /// The index of the column with that name.
    pub(crate) fn column(&self, name: &str) -> Result<usize, CsvError> {
        let missing = || CsvError::NoColumn {
            path: self.path.clone(),
            column: name.to_owned(),
            have: self.header.iter().map(str::to_owned).collect(),
        };
        self.header
            .iter()
            .position(|h| h == name)
            .ok_or_else(missing)
    }

    /// Reads the next record; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, CsvError> {
        self.from
            .read_record(&mut self.record)
            .map_err(|e| CsvError::new(&self.path, e))
    }

    /// A field of the current record.
    pub(crate) fn field(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    /// A field of the current record as a finite number.
    pub(crate) fn number(&self, column: usize) -> Result<f64, CsvError> {
        let text = self.field(column);
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        number.ok_or_else(|| CsvError::NotNumber {
            path: self.path.clone(),
            line: self.line(),
            column: self.header.get(column).unwrap_or_default().to_owned(),
            text: text.chars().take(40).collect(),
        })
    }
}

/// A field with quotes if it needs them.
pub(crate) fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8]) -> Result<Vec<Vec<String>>, CsvError> {
        let texts = |record: &StringRecord| record.iter().map(str::to_owned).collect();
        let mut reader = Reader::new(text, Path::new("x.csv"))?;
        let mut rows = vec![texts(reader.header())];
        while reader.advance()? {
            rows.push(texts(&reader.record));
        }
        Ok(rows)
    }

    #[test]
    fn quotes_line_ends_and_empty_lines() {
        let text = "\u{feff}a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n,\n\"\",2";
        assert_eq!(
            all(text.as_bytes()).expect("reads"),
            [["a", "b"], ["1", "x, \"y\"\nz"], ["", ""], ["", "2"]]
        );
    }

    #[test]
    fn line_numbers_count_lines_inside_quotes() {
        let mut reader =
            Reader::new("a\n\"x\ny\"\nz\n".as_bytes(), Path::new("x.csv")).expect("header");
        assert!(reader.advance().expect("reads") && reader.line() == 2);
        assert!(reader.advance().expect("reads") && reader.line() == 4);
    }

    #[test]
    fn broken_records_are_reported_with_their_line() {
        let told = |text: &[u8]| all(text).expect_err("broken").to_string();
        assert_eq!(
            told(b"a,b\n1,2,3\n"),
            "x.csv:2: the record has 3 fields, the header has 2"
        );
        assert_eq!(told(b"a\n\xff\n"), "x.csv:2: the record is not UTF-8 text");
        assert!(told(b"").contains("x.csv is empty"));
    }

    proptest! {
        #[test]
        fn a_quoted_field_is_read_back(fields in proptest::collection::vec("[a-z,\"\n\r ]{0,12}", 1..5)) {
            let header: Vec<String> = (0..fields.len()).map(|i| format!("c{i}")).collect();
            let record: Vec<_> = fields.iter().map(|f| quoted(f)).collect();
            // A record of one empty field is an empty line, which is skipped.
            prop_assume!(fields.len() > 1 || !fields[0].is_empty());
            let text = format!("{}\n{}\n", header.join(","), record.join(","));
            prop_assert_eq!(&all(text.as_bytes()).expect("reads")[1], &fields);
        }
    }
}
