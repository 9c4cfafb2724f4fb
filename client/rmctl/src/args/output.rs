//! How to print and which rows: what `-o` takes, and what every list takes.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::duration;
use crate::render::forms;
use crate::select::{Order, Wanted, filter::Filter};

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For people with wide screens: more columns, every row.
    Wide,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// One YAML document.
    Yaml,
    /// Comma-separated values, a column for each key.
    Csv,
    /// Ids only.
    Name,
    /// Chosen columns.
    Cols,
    /// By a template.
    Template,
}

impl Format {
    /// For people, who get more than data.
    pub(crate) fn is_screen(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }
    /// The formats that need no more than their name.
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

/// A format with what it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The format.
    pub(crate) format: Format,
    /// The columns, or the template.
    pub(crate) detail: String,
    /// Whether there is a line of headers.
    pub(crate) headers: bool,
}

impl Output {
    /// The same for what never ends: that is no one document, so JSON is a line for each row.
    pub(crate) fn endless(&self) -> Self {
        let format = if self.format == Format::Json { Format::Jsonl } else { self.format };
        Output { format, ..self.clone() }
    }
    /// A format that needs no more than its name.
    pub(crate) fn plain(format: Format) -> Self {
        Output { format, detail: String::new(), headers: true }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.format {
            Format::Cols => write!(f, "cols={}", self.detail),
            Format::Template => write!(f, "tmpl={}", self.detail),
            Format::Table | Format::Wide | Format::Json | Format::Jsonl | Format::Yaml | Format::Csv | Format::Name => {
                let name = Format::PLAIN.iter().find(|(_, format)| *format == self.format).map_or("", |(name, _)| name);
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
            Some(("cols", names)) if names.split(',').any(|n| !n.trim().is_empty()) => {
                Ok(Output { detail: names.to_owned(), ..Output::plain(Format::Cols) })
            }
            Some(("tmpl", template)) => {
                forms::check(template)?;
                Ok(Output { detail: template.to_owned(), ..Output::plain(Format::Template) })
            }
            Some(_) | None => Err("use table, wide, json, jsonl, yaml, csv, name, cols=A,B or tmpl='{{id}}'".to_owned()),
        }
    }
}

/// What every list takes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Rows")]
pub(crate) struct Rows {
    /// Only rows for which this holds: 'state==pending && limit>4GiB'; ==, !=, <, <=, >, >=, =~ (contains), &&, ||, !, ()
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<Filter>,
    /// By this field; -FIELD for the largest first
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub(crate) sort_by: Option<Order>,
    /// Only what began within this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Leave out headers and advice
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl Rows {
    /// Which rows, and in which order.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted { filter: self.filter.clone(), order: self.sort_by.clone(), since: self.since, limit: self.limit }
    }
}

/// What a list takes that can be watched.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Watched {
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Go on as things change: a terminal is drawn again, a pipe gets each changed row as a line of JSON
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
        assert_eq!((endless(Format::Json), endless(Format::Csv)), (Format::Jsonl, Format::Csv));
        let cols: Output = "cols=id,state".parse().expect("columns");
        assert_eq!((cols.format, cols.detail.as_str()), (Format::Cols, "id,state"));
        let template: Output = "tmpl={{.id}}={{state}}".parse().expect("a template");
        assert_eq!((template.format, template.detail.as_str()), (Format::Template, "{{.id}}={{state}}"));
        for text in ["jsonl", "cols=a,b", "tmpl={{a}}"] {
            assert_eq!(text.parse::<Output>().map(|o| o.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["xml", "cols=", "cols=,", "tmpl={{id", ""] {
            assert!(wrong.parse::<Output>().is_err(), "{wrong:?}");
        }
    }
}
