//! The formats for machines: the REST schema as it is, or ids alone.

use serde::Serialize;

use crate::args::Format;

/// What a verb found, ready for each format.
#[derive(Debug)]
pub(crate) struct Found<'a, T> {
    /// The views, as the REST interface gave them.
    pub(crate) items: &'a [T],
    /// The document for `-o json` is a list also when there is one item only.
    pub(crate) list: bool,
}

impl<T: Serialize> Found<'_, T> {
    /// The text for a machine's format; `None` for formats that people read.
    pub(crate) fn text(&self, format: Format, name: impl Fn(&T) -> String) -> Option<String> {
        match format {
            Format::Table | Format::Wide => None,
            Format::Name => Some(self.items.iter().map(|i| name(i) + "\n").collect()),
            Format::Jsonl => Some(self.items.iter().map(|i| line(i) + "\n").collect()),
            Format::Json if self.list => Some(pretty(&self.items)),
            Format::Json => Some(self.items.first().map(pretty).unwrap_or_default()),
        }
    }
}

/// One line of JSON.
pub(crate) fn line<T: Serialize + ?Sized>(item: &T) -> String {
    serde_json::to_string(item).unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string()))
}

/// A JSON document for people and machines, with its line feed.
pub(crate) fn pretty<T: Serialize + ?Sized>(item: &T) -> String {
    serde_json::to_string_pretty(item).unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string())) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_form() {
        let found = Found { items: &[1, 2], list: true };
        assert_eq!(found.text(Format::Jsonl, ToString::to_string).as_deref(), Some("1\n2\n"));
        assert_eq!(found.text(Format::Name, |n| format!("n{n}")).as_deref(), Some("n1\nn2\n"));
        assert_eq!(found.text(Format::Json, ToString::to_string).as_deref(), Some("[\n  1,\n  2\n]\n"));
        assert_eq!(found.text(Format::Table, ToString::to_string), None);
        let one = Found { items: &[7], list: false };
        assert_eq!(one.text(Format::Json, ToString::to_string).as_deref(), Some("7\n"));
    }
}
