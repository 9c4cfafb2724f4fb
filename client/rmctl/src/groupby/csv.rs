//! A reader of comma-separated values as in RFC 4180: a header, quotes with `""` for one, both
//! kinds of line ends. One record is in memory at a time. Every error contains file and line.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

/// Maximum length of a record. Bytes.
const MOST: usize = 1 << 20;

/// An error in a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsvFileError {
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
        got: usize,
        want: usize,
    },
    /// A field should be a number.
    #[error("{}:{line}: column {column:?} holds {text:?}, which is not a finite number", path.display())]
    NotNumber {
        path: PathBuf,
        line: u64,
        column: String,
        text: String,
    },
    /// A quote was opened and never closed.
    #[error("{}:{line}: the quote that opens in this record is never closed", path.display())]
    Unclosed { path: PathBuf, line: u64 },
    /// Text follows a closing quote.
    #[error("{}:{line}: a closing quote must be followed by a comma or the end of the line", path.display())]
    AfterQuote { path: PathBuf, line: u64 },
    /// The record is not UTF-8.
    #[error("{}:{line}: the record is not UTF-8 text", path.display())]
    NotText { path: PathBuf, line: u64 },
    /// The record is too long.
    #[error("{}:{line}: the record is longer than {MOST} bytes", path.display())]
    TooLong { path: PathBuf, line: u64 },
}

/// Reads records one by one.
#[derive(Debug)]
pub(crate) struct CsvReader<R> {
    from: R,
    path: PathBuf,
    header: Vec<String>,
    /// The record as read, including quotes.
    raw: Vec<u8>,
    /// The fields without quotes in one buffer, and the end of each field.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// The first line of the record, and the number of lines read.
    line: u64,
    lines: u64,
}

impl<R: BufRead> CsvReader<R> {
    /// Reads the header.
    pub(crate) fn new(from: R, path: &Path) -> Result<Self, CsvFileError> {
        let (header, raw, fields, ends) = Default::default();
        let mut reader = CsvReader {
            from,
            path: path.to_owned(),
            header,
            raw,
            fields,
            ends,
            line: 0,
            lines: 0,
        };
        if !reader.record()? {
            return Err(CsvFileError::Empty { path: reader.path });
        }
        let names: Result<Vec<String>, CsvFileError> = (0..reader.ends.len())
            .map(|i| reader.field(i).map(str::to_owned))
            .collect();
        reader.header = names?;
        if let Some(first) = reader.header.first_mut() {
            *first = first.trim_start_matches('\u{feff}').to_owned();
        }
        Ok(reader)
    }

    /// The names of the columns.
    #[cfg(any(test, feature = "dev"))]
    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// The first line of the current record.
    #[cfg(any(test, feature = "dev"))]
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The index of the column with that name.
    pub(crate) fn column(&self, name: &str) -> Result<usize, CsvFileError> {
        let missing = || CsvFileError::NoColumn {
            path: self.path.clone(),
            column: name.to_owned(),
            have: self.header.clone(),
        };
        self.header
            .iter()
            .position(|h| h == name)
            .ok_or_else(missing)
    }

    /// Reads the next record; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, CsvFileError> {
        let there = self.record()?;
        if there && self.ends.len() != self.header.len() {
            return Err(CsvFileError::Fields {
                path: self.path.clone(),
                line: self.line,
                got: self.ends.len(),
                want: self.header.len(),
            });
        }
        Ok(there)
    }

    /// A field of the current record.
    pub(crate) fn field(&self, column: usize) -> Result<&str, CsvFileError> {
        let start = column
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        let bytes = self
            .ends
            .get(column)
            .and_then(|end| self.fields.get(start..*end))
            .unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| CsvFileError::NotText {
            path: self.path.clone(),
            line: self.line,
        })
    }

    /// A field of the current record as a finite number.
    pub(crate) fn number(&self, column: usize) -> Result<f64, CsvFileError> {
        let text = self.field(column)?;
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        number.ok_or_else(|| CsvFileError::NotNumber {
            path: self.path.clone(),
            line: self.line,
            column: self.header.get(column).cloned().unwrap_or_default(),
            text: text.chars().take(40).collect(),
        })
    }

    /// Reads one record; empty lines are skipped.
    fn record(&mut self) -> Result<bool, CsvFileError> {
        self.raw.clear();
        loop {
            if !self.more()? {
                return Ok(false);
            }
            self.line = self.lines;
            if !trimmed(&self.raw).is_empty() {
                break;
            }
            self.raw.clear();
        }
        while self.raw.iter().filter(|b| **b == b'"').count() % 2 == 1 {
            if !self.more()? {
                return Err(CsvFileError::Unclosed {
                    path: self.path.clone(),
                    line: self.line,
                });
            }
        }
        self.split()?;
        Ok(true)
    }

    /// Appends one more line to the record.
    fn more(&mut self) -> Result<bool, CsvFileError> {
        let path = &self.path;
        let room = u64::try_from(MOST + 1).unwrap_or(u64::MAX);
        let read = io::Read::take(&mut self.from, room).read_until(b'\n', &mut self.raw);
        let n = read.map_err(|source| CsvFileError::Read {
            path: path.clone(),
            source,
        })?;
        self.lines += u64::from(n > 0);
        if self.raw.len() > MOST {
            return Err(CsvFileError::TooLong {
                path: path.clone(),
                line: self.line.max(self.lines),
            });
        }
        Ok(n > 0)
    }

    fn split(&mut self) -> Result<(), CsvFileError> {
        self.fields.clear();
        self.ends.clear();
        let record = trimmed(&self.raw);
        if !record.contains(&b'"') {
            for field in record.split(|b| *b == b',') {
                self.fields.extend_from_slice(field);
                self.ends.push(self.fields.len());
            }
            return Ok(());
        }
        let mut rest = Some(record);
        while let Some(text) = rest {
            rest = match text.strip_prefix(b"\"") {
                Some(inside) => {
                    unquote(inside, &mut self.fields).ok_or_else(|| CsvFileError::AfterQuote {
                        path: self.path.clone(),
                        line: self.line,
                    })?
                }
                None => plain(text, &mut self.fields),
            };
            self.ends.push(self.fields.len());
        }
        Ok(())
    }
}

/// The record without its line end.
fn trimmed(raw: &[u8]) -> &[u8] {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    raw.strip_suffix(b"\r").unwrap_or(raw)
}

/// Reads a field up to the next comma. Returns the text after the comma, or `None` at the end.
fn plain<'a>(text: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let comma = text.iter().position(|b| *b == b',');
    out.extend_from_slice(&text[..comma.unwrap_or(text.len())]);
    comma.map(|at| &text[at + 1..])
}

/// Reads a field up to its closing quote and returns the text after the comma. `None` if other text
/// follows the quote.
fn unquote<'a>(mut text: &'a [u8], out: &mut Vec<u8>) -> Option<Option<&'a [u8]>> {
    loop {
        let at = text.iter().position(|b| *b == b'"')?;
        out.extend_from_slice(&text[..at]);
        text = &text[at + 1..];
        match text.first() {
            None => return Some(None),
            Some(b',') => return Some(Some(&text[1..])),
            Some(b'"') => {
                out.push(b'"');
                text = &text[1..];
            }
            Some(_) => return None,
        }
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

    fn all(text: &str) -> Result<Vec<Vec<String>>, CsvFileError> {
        let mut reader = CsvReader::new(text.as_bytes(), Path::new("x.csv"))?;
        let mut rows = vec![reader.header().to_vec()];
        while reader.advance()? {
            let row: Result<Vec<String>, CsvFileError> = (0..rows[0].len())
                .map(|i| reader.field(i).map(str::to_owned))
                .collect();
            rows.push(row?);
        }
        Ok(rows)
    }

    #[test]
    fn quotes_line_ends_and_empty_lines() {
        let rows = all("\u{feff}a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n,\n\"\",2").expect("reads");
        assert_eq!(
            rows,
            [["a", "b"], ["1", "x, \"y\"\nz"], ["", ""], ["", "2"]]
        );
    }

    #[test]
    fn line_numbers_count_lines_inside_quotes() {
        let mut reader =
            CsvReader::new("a\n\"x\ny\"\nz\n".as_bytes(), Path::new("x.csv")).expect("header");
        assert!(reader.advance().expect("reads") && reader.line() == 2);
        assert!(reader.advance().expect("reads") && reader.line() == 4);
    }

    #[test]
    fn broken_records_are_reported_with_their_line() {
        let error_of = |text: &str| all(text).expect_err(text).to_string();
        assert_eq!(
            error_of("a,b\n1,2,3\n"),
            "x.csv:2: the record has 3 fields, the header has 2"
        );
        assert_eq!(
            error_of("a\nb\n\"c\n"),
            "x.csv:3: the quote that opens in this record is never closed"
        );
        assert_eq!(
            error_of("a\n\"b\"c\n"),
            "x.csv:2: a closing quote must be followed by a comma or the end of the line"
        );
        assert!(
            error_of(&format!("a\n{}\n", "x".repeat(MOST + 1)))
                .contains("x.csv:2: the record is longer")
        );
        let bytes = b"a\n\xff\n";
        let mut reader = CsvReader::new(&bytes[..], Path::new("x.csv")).expect("header");
        assert!(reader.advance().expect("reads"));
        assert!(
            reader
                .field(0)
                .expect_err("not text")
                .to_string()
                .contains("x.csv:2: the record is not UTF-8")
        );
    }

    proptest! {
        #[test]
        fn a_quoted_field_is_read_back(fields in proptest::collection::vec("[a-z,\"\n\r ]{0,12}", 1..5)) {
            let header: Vec<String> = (0..fields.len()).map(|i| format!("c{i}")).collect();
            let record: Vec<_> = fields.iter().map(|f| quoted(f)).collect();
            // A record of one empty field is an empty line, which is skipped.
            prop_assume!(fields.len() > 1 || !fields[0].is_empty());
            let rows = all(&format!("{}\n{}\n", header.join(","), record.join(","))).expect("reads");
            prop_assert_eq!(&rows[1], &fields);
        }
    }
}
