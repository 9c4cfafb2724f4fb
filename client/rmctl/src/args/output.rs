//! Arguments for output formats and for the rows of lists.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::value_parser::duration;
use crate::render::forms;
use crate::select::{RowSelection, RowSortOrder, filter::RowFilter};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
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

impl OutputFormat {
    /// True for formats for users, which contain more than data.
    pub(crate) fn is_screen(self) -> bool {
        matches!(self, OutputFormat::Table | OutputFormat::Wide)
    }
    /// The formats without parameters.
    const PLAIN: [(&'static str, OutputFormat); 7] = [
        ("table", OutputFormat::Table),
        ("wide", OutputFormat::Wide),
        ("json", OutputFormat::Json),
        ("jsonl", OutputFormat::Jsonl),
        ("yaml", OutputFormat::Yaml),
        ("csv", OutputFormat::Csv),
        ("name", OutputFormat::Name),
    ];
}

/// A format with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputOptions {
    /// The format.
    pub(crate) format: OutputFormat,
    /// The columns, or the template.
    pub(crate) detail: String,
    /// Whether a header line is printed.
    pub(crate) headers: bool,
}

impl OutputOptions {
    /// The format for an endless list: JSON becomes one line per row, because an endless list is no
    /// single document.
    pub(crate) fn endless(&self) -> Self {
        let format = if self.format == OutputFormat::Json {
            OutputFormat::Jsonl
        } else {
            self.format
        };
        OutputOptions {
            format,
            ..self.clone()
        }
    }
    /// A format without parameters.
    pub(crate) fn plain(format: OutputFormat) -> Self {
        OutputOptions {
            format,
            detail: String::new(),
            headers: true,
        }
    }
}

impl std::fmt::Display for OutputOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.format {
            OutputFormat::Cols => write!(f, "cols={}", self.detail),
            OutputFormat::Template => write!(f, "tmpl={}", self.detail),
            OutputFormat::Table
            | OutputFormat::Wide
            | OutputFormat::Json
            | OutputFormat::Jsonl
            | OutputFormat::Yaml
            | OutputFormat::Csv
            | OutputFormat::Name => {
                let name = OutputFormat::PLAIN
                    .iter()
                    .find(|(_, format)| *format == self.format)
                    .map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}
impl FromStr for OutputOptions {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((_, format)) = OutputFormat::PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(OutputOptions::plain(*format));
        }
        match text.split_once('=') {
            Some(("cols", names)) if names.split(',').any(|n| !n.trim().is_empty()) => {
                Ok(OutputOptions {
                    detail: names.to_owned(),
                    ..OutputOptions::plain(OutputFormat::Cols)
                })
            }
            Some(("tmpl", template)) => {
                forms::check(template)?;
                Ok(OutputOptions {
                    detail: template.to_owned(),
                    ..OutputOptions::plain(OutputFormat::Template)
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
pub(crate) struct ListOptions {
    /// Only rows that match: 'state==pending && limit>4GiB'; ==, !=, <, <=, >, >=, =~ (contains),
    /// &&, ||, !, ()
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<RowFilter>,
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

impl ListOptions {
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
pub(crate) struct WatchedListOptions {
    #[command(flatten)]
    pub(crate) rows: ListOptions,
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
        assert_eq!("yaml".parse(), Ok(OutputOptions::plain(OutputFormat::Yaml)));
        let endless = |format| OutputOptions::plain(format).endless().format;
        assert_eq!(
            (endless(OutputFormat::Json), endless(OutputFormat::Csv)),
            (OutputFormat::Jsonl, OutputFormat::Csv)
        );
        let cols: OutputOptions = "cols=id,state".parse().expect("columns");
        assert_eq!(
            (cols.format, cols.detail.as_str()),
            (OutputFormat::Cols, "id,state")
        );
        let template: OutputOptions = "tmpl={{.id}}={{state}}".parse().expect("a template");
        assert_eq!(
            (template.format, template.detail.as_str()),
            (OutputFormat::Template, "{{.id}}={{state}}")
        );
        for text in ["jsonl", "cols=a,b", "tmpl={{a}}"] {
            assert_eq!(
                text.parse::<OutputOptions>().map(|o| o.to_string()),
                Ok(text.to_owned())
            );
        }
        for wrong in ["xml", "cols=", "cols=,", "tmpl={{id", ""] {
            assert!(wrong.parse::<OutputOptions>().is_err(), "{wrong:?}");
        }
    }
}
