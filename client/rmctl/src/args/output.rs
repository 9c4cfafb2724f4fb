//! Arguments for output formats and for the rows of lists.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::value_parser::duration;
use crate::render::forms;
use crate::select::{RowSelection, RowSortOrder, filter::Filter};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A table for users.
    Table,
    /// A table with more columns and every row.
    Wide,
    /// One JSON document.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// One YAML document.
    Yaml,
    /// Comma-separated values, one column per key.
    Csv,
    /// Ids only.
    Name,
    /// Selected columns.
    Cols,
    /// A template.
    Template,
}

impl Format {
    /// True for formats for users, which contain more than data.
    pub(crate) fn is_screen(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }
    /// The formats without parameters.
    const PLAIN: [(&'static str, Format); 7] = [
        ("table", Format::Table),
        ("wide", Format::Wide),
        ("json", Format::Json),
        ("jsonl", Format::Jsonl),
        ("yaml", Format::Yaml),
        ("csv", Format::Csv),
        ("name", Format::Name),
    ];
}

/// A format with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The format.
    pub(crate) format: Format,
    /// The columns, or the template.
    pub(crate) detail: String,
    /// Whether a header line is printed.
    pub(crate) headers: bool,
}

impl Output {
    /// The format for an endless list: JSON becomes one line per row, because an endless list is no
    /// single document.
    pub(crate) fn endless(&self) -> Self {
        let format = if self.format == Format::Json {
            Format::Jsonl
        } else {
            self.format
        };
        Output {
            format,
            ..self.clone()
        }
    }
    /// A format without parameters.
    pub(crate) fn plain(format: Format) -> Self {
        Output {
            format,
            detail: String::new(),
            headers: true,
        }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.format {
            Format::Cols => write!(f, "cols={}", self.detail),
            Format::Template => write!(f, "tmpl={}", self.detail),
            Format::Table
            | Format::Wide
            | Format::Json
            | Format::Jsonl
            | Format::Yaml
            | Format::Csv
            | Format::Name => {
                let name = Format::PLAIN
                    .iter()
                    .find(|(_, format)| *format == self.format)
                    .map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}
impl FromStr for Output {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((_, format)) = Format::PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(Output::plain(*format));
        }
        match text.split_once('=') {
            Some(("cols", names)) if names.split(',').any(|n| !n.trim().is_empty()) => Ok(Output {
                detail: names.to_owned(),
                ..Output::plain(Format::Cols)
            }),
            Some(("tmpl", template)) => {
                forms::check(template)?;
                Ok(Output {
                    detail: template.to_owned(),
                    ..Output::plain(Format::Template)
                })
            }
            Some(_) | None => Err(
                "use table, wide, json, jsonl, yaml, csv, name, cols=A,B or tmpl='{{id}}'"
                    .to_owned(),
            ),
        }
    }
}

/// Options of every list.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Rows")]
pub(crate) struct Rows {
    /// Only rows that match: 'state==pending && limit>4GiB'; ==, !=, <, <=, >, >=, =~ (contains),
    /// &&, ||, !, ()
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<Filter>,
    /// Sort by this field; -FIELD for the largest first
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub(crate) sort_by: Option<RowSortOrder>,
    /// Only objects that began within this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Omit headers and advice
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl Rows {
    /// The selected rows and their order.
    pub(crate) fn wanted(&self) -> RowSelection {
        RowSelection {
            filter: self.filter.clone(),
            order: self.sort_by.clone(),
            since: self.since,
            limit: self.limit,
        }
    }
}

/// Options of lists that can be watched.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Watched {
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Update the list when it changes: a terminal is redrawn, a pipe gets each changed row as a
    /// line of JSON
    #[arg(short = 'w', long)]
    pub(crate) watch: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        assert_eq!("yaml".parse(), Ok(Output::plain(Format::Yaml)));
        let endless = |format| Output::plain(format).endless().format;
        assert_eq!(
            (endless(Format::Json), endless(Format::Csv)),
            (Format::Jsonl, Format::Csv)
        );
        let cols: Output = "cols=id,state".parse().expect("columns");
        assert_eq!(
            (cols.format, cols.detail.as_str()),
            (Format::Cols, "id,state")
        );
        let template: Output = "tmpl={{.id}}={{state}}".parse().expect("a template");
        assert_eq!(
            (template.format, template.detail.as_str()),
            (Format::Template, "{{.id}}={{state}}")
        );
        for text in ["jsonl", "cols=a,b", "tmpl={{a}}"] {
            assert_eq!(
                text.parse::<Output>().map(|o| o.to_string()),
                Ok(text.to_owned())
            );
        }
        for wrong in ["xml", "cols=", "cols=,", "tmpl={{id", ""] {
            assert!(wrong.parse::<Output>().is_err(), "{wrong:?}");
        }
    }
}
