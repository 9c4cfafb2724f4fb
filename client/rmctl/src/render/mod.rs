//! From views to text: pure functions without clock, terminal or connection. The same input gives
//! the same screen.

pub(crate) mod acl;
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod bars;
pub(crate) mod ca;
pub(crate) mod containers;
mod cut_text;
#[cfg(feature = "dev")]
pub(crate) mod demo;
pub(crate) mod diagnose;
#[cfg(feature = "dev")]
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod evidence;
pub(crate) mod figures;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod forms;
pub(crate) mod inputs;
pub(crate) mod job;
pub(crate) mod job_history;
pub(crate) mod json;
pub(crate) mod ladder;
pub(crate) mod leader;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod past;
pub(crate) mod plan;
pub(crate) mod profiles;
pub(crate) mod queues;
pub(crate) mod record;
#[cfg(feature = "dev")]
pub(crate) mod replay;
pub(crate) mod requests;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod submission;
pub(crate) mod table;
pub(crate) mod tags;
pub(crate) mod tasks;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod why;

use std::fmt::Display;

/// Appearance of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListStyle {
    /// With more columns, and every row.
    pub(crate) wide: bool,
    /// With headers and advice.
    pub(crate) headers: bool,
    /// Colours.
    pub(crate) paint: TextPainter,
}

impl ListStyle {
    /// The default appearance.
    #[cfg(test)]
    pub(crate) const USUAL: ListStyle = ListStyle {
        wide: false,
        headers: true,
        paint: TextPainter::PLAIN,
    };
    /// With more columns.
    #[cfg(test)]
    pub(crate) const WIDE: ListStyle = ListStyle {
        wide: true,
        headers: true,
        paint: TextPainter::PLAIN,
    };

    /// A whole list, with headers.
    pub(crate) fn whole(paint: TextPainter) -> Self {
        ListStyle {
            wide: false,
            headers: true,
            paint,
        }
    }

    /// A text, cut to `width` columns unless the list is wide.
    pub(crate) fn cut(self, text: &str, width: usize) -> String {
        if self.wide {
            text.to_owned()
        } else {
            cut_text::cut(text, width)
        }
    }

    /// A text for users only; empty without headers.
    pub(crate) fn advice(self, text: String) -> String {
        if self.headers { text } else { String::new() }
    }
}

/// Adds colour, or returns a text unchanged. Every coloured text also differs by its glyph or word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextPainter {
    colour: bool,
}

impl TextPainter {
    /// No colour.
    #[cfg(test)]
    pub(crate) const PLAIN: TextPainter = TextPainter { colour: false };

    /// Colour when `colour` is true.
    pub(crate) fn new(colour: bool) -> Self {
        TextPainter { colour }
    }
    /// True if colour is on.
    pub(crate) fn is_colour(self) -> bool {
        self.colour
    }
    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
    /// Colour of failures.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }
    /// Colour of successes.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }
    /// Colour of warnings.
    pub(crate) fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }
    /// Colour of running objects.
    pub(crate) fn live(self, text: &str) -> String {
        self.wrap("36", text)
    }
    /// Style of less important text.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
    /// The last line of a screen: commands that show more.
    pub(crate) fn next(self, commands: impl Display) -> String {
        self.dim(&format!("next: {commands}")) + "\n"
    }
    /// Style of more important text.
    pub(crate) fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(n: impl Into<u64>, one: &str) -> String {
    let n = n.into();
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_output_has_no_escape_codes() {
        assert_eq!(TextPainter::PLAIN.bad("✗"), "✗");
        assert_eq!(TextPainter::new(true).bad("✗"), "\u{1b}[31m✗\u{1b}[0m");
        assert_eq!(TextPainter::new(true).bad(""), "");
    }
}
