//! An error in a file: position, error, reason and correction.
//!
//! The readers of this crate create problems; the caller prints them. A problem never ends a
//! program by itself.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use headroom_types::Name;

/// Maximum number of errors listed per file; beyond it only their number is reported.
pub const MAX_PROBLEMS: usize = 100;
/// Maximum length of a source line that is printed. Bytes.
pub const MAX_SOURCE_LINE_BYTES: usize = 400;

/// The kind of an error, where a caller treats it differently from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileProblemKind {
    /// The file names a profile that it does not define.
    UnknownProfile(Name),
    /// Any other error.
    General,
}

/// An error in a configuration or job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file, as the caller named it.
    pub file: String,
    /// Line number, from 1; `None` for an error of the whole file.
    pub line: Option<usize>,
    /// Column of the first character, from 1.
    pub column: Option<usize>,
    /// Number of marked characters in the line; at least 1.
    pub width: usize,
    /// Full key: `profiles.exec.heap`. Empty for an error of the whole file.
    pub key: String,
    /// The error.
    pub what: String,
    /// Reason of the rule.
    pub why: String,
    /// Correction.
    pub fix: String,
    /// The source line, unless it exceeds [`MAX_SOURCE_LINE_BYTES`].
    pub source: Option<String>,
    /// The kind of the error.
    pub kind: FileProblemKind,
}

impl FileProblem {
    /// An error without a position: the file cannot be read.
    pub fn of_file(
        file: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        FileProblem {
            file: file.to_owned(),
            line: None,
            column: None,
            width: 1,
            key: String::new(),
            what: what.into(),
            why: why.into(),
            fix: fix.into(),
            source: None,
            kind: FileProblemKind::General,
        }
    }
}

impl fmt::Display for FileProblem {
    /// Formats the error like a compiler, with the line and a mark below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        let number = self.line.map(|n| n.to_string()).unwrap_or_default();
        let pad = " ".repeat(number.len().max(1));
        write!(f, "{pad}--> {}", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, "  ({})", self.key)?;
        }
        if let (Some(source), Some(column)) = (&self.source, self.column) {
            let before = " ".repeat(column.saturating_sub(1));
            let mark = "^".repeat(self.width.max(1));
            write!(f, "\n{pad} |\n{number} | {source}\n{pad} | {before}{mark}")?;
        }
        if !self.why.is_empty() {
            write!(f, "\n{pad} = why: {}", self.why)?;
        }
        if !self.fix.is_empty() {
            write!(f, "\n{pad} = fix: {}", self.fix)?;
        }
        Ok(())
    }
}

impl std::error::Error for FileProblem {}

/// All errors of a file, one below the other, with their number at the end.
pub fn render(problems: &[FileProblem]) -> String {
    let mut text: String = problems.iter().map(|p| format!("{p}\n\n")).collect();
    let file = problems.first().map_or("", |p| p.file.as_str());
    let plural = if problems.len() == 1 {
        "mistake"
    } else {
        "mistakes"
    };
    text.push_str(&format!("{file}: {} {plural}\n", problems.len()));
    text
}

/// The first error with its place, and the number of others in the log; one line.
pub fn in_one_line(problems: &[FileProblem]) -> String {
    let Some(first) = problems.first() else {
        return "the file has an error".to_owned();
    };
    let line = first
        .line
        .map(|line| format!(":{line}"))
        .unwrap_or_default();
    let more = match problems.len() {
        1 => String::new(),
        n => format!(" ({} more in the log)", n - 1),
    };
    format!("{}{line}: {}{more}", first.file, first.what)
}

/// A collector of the errors of one file while it is read. All sections of the file share it.
#[derive(Debug)]
pub struct ProblemCollector<'a> {
    file: &'a str,
    text: &'a str,
    collected: RefCell<CollectedProblems>,
}

#[derive(Debug, Default)]
struct CollectedProblems {
    found: Vec<LocatedProblem>,
    /// True if a part of the text could not be parsed.
    unread: bool,
    /// Number of errors beyond [`MAX_PROBLEMS`].
    more: usize,
}

/// An error with its position.
#[derive(Debug)]
struct LocatedProblem {
    /// Offset in the text. Bytes.
    at: usize,
    /// True if the error concerns the whole file, such as a missing key.
    of_all: bool,
    problem: FileProblem,
}

impl<'a> ProblemCollector<'a> {
    /// An empty report on `text`, which came from `file`.
    pub fn new(file: &'a str, text: &'a str) -> Self {
        ProblemCollector {
            file,
            text,
            collected: RefCell::default(),
        }
    }

    /// Adds an error at `span` of the text.
    pub fn add(
        &self,
        span: Range<usize>,
        key: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add_kind(FileProblemKind::General, span, key, what, why, fix);
    }

    /// Adds an error of the kind `kind` at `span` of the text.
    pub fn add_kind(
        &self,
        kind: FileProblemKind,
        span: Range<usize>,
        key: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let mut collected = self.collected.borrow_mut();
        if collected.found.len() >= MAX_PROBLEMS {
            collected.more += 1;
            return;
        }
        let place = SourcePosition::of(self.text, span.clone());
        let problem = FileProblem {
            line: Some(place.line),
            column: Some(place.column),
            width: place.width,
            key: key.to_owned(),
            source: place.source,
            kind,
            ..FileProblem::of_file(self.file, what, why, fix)
        };
        collected.found.push(LocatedProblem {
            at: span.start,
            of_all: span == (0..0),
            problem,
        });
    }

    /// Records that the text cannot be parsed from `span` on. Errors about missing keys are then
    /// suppressed, because the keys may be in the unparsed part.
    pub fn add_syntax(&self, span: Range<usize>, what: impl Into<String>) {
        self.collected.borrow_mut().unread = true;
        let (why, fix) = (
            "the file cannot be read past it",
            "see https://toml.io for the syntax",
        );
        // A nonempty span, also at offset 0. An empty span at 0 denotes the whole file.
        let place = span.start..span.end.max(span.start + 1);
        self.add(place, "", what, why, fix);
    }

    /// Number of errors so far.
    pub fn len(&self) -> usize {
        let collected = self.collected.borrow();
        collected.found.len() + collected.more
    }

    /// True without errors so far.
    pub fn is_empty(&self) -> bool {
        self.collected.borrow().found.is_empty()
    }

    /// Returns `value` if there are no errors, otherwise all errors in the order of the file. A
    /// missing value without an error is reported as an error too, so that a bug in a reader never
    /// accepts a file.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Vec<FileProblem>> {
        if self.is_empty() {
            if let Some(value) = value {
                return Ok(value);
            }
            self.add(
                0..0,
                "",
                "the file is incomplete",
                "a required part is missing",
                "compare the file with the shipped sample",
            );
        }
        let CollectedProblems {
            mut found,
            unread,
            more,
        } = self.collected.into_inner();
        if unread {
            found.retain(|noted| !noted.of_all);
        }
        found.sort_by_key(|noted| noted.at);
        let mut problems: Vec<FileProblem> = found.into_iter().map(|noted| noted.problem).collect();
        if more > 0 {
            problems.push(FileProblem::of_file(
                self.file,
                format!("{more} more errors"),
                "the number of reported errors is limited",
                "correct the reported errors first",
            ));
        }
        Err(problems)
    }
}

struct SourcePosition {
    line: usize,
    column: usize,
    width: usize,
    source: Option<String>,
}

impl SourcePosition {
    /// Counts lines and characters. A span over several lines is marked to the end of its first
    /// line.
    fn of(text: &str, span: Range<usize>) -> SourcePosition {
        let start = floor(text, span.start);
        let line_start = text
            .get(..start)
            .and_then(|t| t.rfind('\n'))
            .map_or(0, |i| i + 1);
        let line_end = text
            .get(start..)
            .and_then(|t| t.find('\n'))
            .map_or(text.len(), |i| start + i);
        let end = floor(text, span.end).clamp(start, line_end);
        SourcePosition {
            line: text
                .get(..line_start)
                .unwrap_or_default()
                .matches('\n')
                .count()
                + 1,
            column: text
                .get(line_start..start)
                .unwrap_or_default()
                .chars()
                .count()
                + 1,
            width: text
                .get(start..end)
                .unwrap_or_default()
                .chars()
                .count()
                .max(1),
            source: text
                .get(line_start..line_end)
                .filter(|l| l.len() <= MAX_SOURCE_LINE_BYTES)
                .map(|l| l.trim_end().replace('\t', " ")),
        }
    }
}

/// The nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_marked_in_its_line() {
        let text = "a = 1\nbé = \"x y\" # c\n";
        let report = ProblemCollector::new("f.toml", text);
        let at = text.find("\"x").expect("there");
        report.add(
            at..at + 5,
            "bé",
            "not a size",
            "it must be one",
            "write \"1GiB\"",
        );
        let problems = report.finish(Some(())).expect_err("a mistake");
        let shown = problems[0].to_string();
        assert_eq!(
            (problems[0].line, problems[0].column, problems[0].width),
            (Some(2), Some(6), 5)
        );
        assert!(shown.contains("f.toml:2:6  (bé)"), "{shown}");
        assert!(
            shown.contains("2 | bé = \"x y\" # c\n  |      ^^^^^\n"),
            "{shown}"
        );
    }

    /// Many errors in one line: the number of printed lines and errors stays bounded.
    #[test]
    fn the_number_of_reported_errors_is_limited() {
        let text = "a=1,".repeat(20_000);
        let report = ProblemCollector::new("f.toml", &text);
        for at in 0..20_000 {
            report.add(at * 4..at * 4 + 1, "a", "wrong", "", "");
        }
        assert_eq!(report.len(), 20_000);
        let problems = report.finish(Some(())).expect_err("mistakes");
        assert_eq!(
            (problems.len(), problems[0].source.as_deref()),
            (MAX_PROBLEMS + 1, None)
        );
        assert_eq!(problems[MAX_PROBLEMS].what, "19900 more errors");
        assert!(render(&problems).len() < 20_000);
    }

    #[test]
    fn keys_of_an_unread_part_are_not_reported_as_missing() {
        let report = ProblemCollector::new("f.toml", "[a\nb = c");
        report.add(0..0, "stage", "the job has no stage", "", "");
        report.add_syntax(0..0, "not TOML");
        report.add(7..8, "b", "not a size", "", "");
        let texts: Vec<String> = report
            .finish(None::<()>)
            .expect_err("mistakes")
            .into_iter()
            .map(|p| p.what)
            .collect();
        assert_eq!(texts, ["not TOML", "not a size"]);
    }

    #[test]
    fn a_span_beyond_the_text_is_reported_at_its_end() {
        let report = ProblemCollector::new("f.toml", "a");
        report.add(5..9, "", "ends early", "", "");
        assert_eq!(
            report.finish(Some(())).expect_err("a mistake")[0].line,
            Some(1)
        );
    }
}
