//! The machine formats: the REST schema unchanged, in other forms, or ids alone.

use serde::Serialize;
use serde_json::Value;

use super::forms;
use crate::args::{OutputFormat, OutputOptions};
use crate::select::field::{ListRow, RowDocument};

/// The result of a verb, for all formats.
#[derive(Debug)]
pub(crate) struct MachineOutput<'a, T> {
    /// The views, as the REST interface returned them.
    pub(crate) items: &'a [T],
    /// True if the document for `-o json` is a list, also with one item only.
    pub(crate) list: bool,
}

impl<'a, T> MachineOutput<'a, T> {
    /// One view.
    pub(crate) fn one(item: &'a T) -> Self {
        MachineOutput {
            items: std::slice::from_ref(item),
            list: false,
        }
    }

    /// A list of views.
    pub(crate) fn list(items: &'a [T]) -> Self {
        MachineOutput { items, list: true }
    }
}

impl<T: Serialize> MachineOutput<'_, T> {
    /// The text in a machine format, or `None` for the formats for users.
    pub(crate) fn text(
        &self,
        output: &OutputOptions,
        name: impl Fn(&T) -> String,
    ) -> Option<String> {
        self.shown(output, name, RowDocument::bare)
    }

    fn shown(
        &self,
        output: &OutputOptions,
        name: impl Fn(&T) -> String,
        doc: impl Fn(&T) -> RowDocument,
    ) -> Option<String> {
        let docs = || self.items.iter().map(&doc).collect::<Vec<_>>();
        let values = || {
            self.items
                .iter()
                .map(|item| RowDocument::bare(item).value().clone())
                .collect::<Vec<_>>()
        };
        match output.format {
            OutputFormat::Table | OutputFormat::Wide => None,
            OutputFormat::Name => Some(self.items.iter().map(|i| name(i) + "\n").collect()),
            OutputFormat::Jsonl => Some(self.items.iter().map(|i| line(i) + "\n").collect()),
            OutputFormat::Json if self.list => Some(pretty(&self.items)),
            OutputFormat::Json => Some(self.items.first().map(pretty).unwrap_or_default()),
            OutputFormat::Yaml if self.list => Some(forms::yaml(&Value::Array(values()))),
            OutputFormat::Yaml => Some(values().first().map(forms::yaml).unwrap_or_default()),
            OutputFormat::Csv => Some(forms::csv(&values(), output.headers)),
            OutputFormat::Cols => Some(forms::columns(&docs(), &output.detail, output.headers)),
            // The template was checked with the arguments.
            OutputFormat::Template => forms::template(&docs(), &output.detail).ok(),
        }
    }
}

impl<T: ListRow> MachineOutput<'_, T> {
    /// The text for rows of a list: columns and templates can also name the columns of its table.
    pub(crate) fn rows(&self, output: &OutputOptions) -> Option<String> {
        self.rows_named(output, ListRow::id)
    }

    /// The text for rows whose ids do not contain their owner.
    pub(crate) fn rows_named(
        &self,
        output: &OutputOptions,
        name: impl Fn(&T) -> String,
    ) -> Option<String> {
        self.shown(output, name, RowDocument::of)
    }
}

/// One line of JSON.
pub(crate) fn line<T: Serialize + ?Sized>(item: &T) -> String {
    serde_json::to_string(item).unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string()))
}

/// An indented JSON document with a final line break.
pub(crate) fn pretty<T: Serialize + ?Sized>(item: &T) -> String {
    serde_json::to_string_pretty(item)
        .unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string()))
        + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn as_(text: &str) -> OutputOptions {
        text.parse().expect("a format")
    }

    #[test]
    fn each_format_has_its_form() {
        let found = MachineOutput::list(&[1, 2]);
        assert_eq!(
            found.text(&as_("jsonl"), ToString::to_string).as_deref(),
            Some("1\n2\n")
        );
        assert_eq!(
            found.text(&as_("name"), |n| format!("n{n}")).as_deref(),
            Some("n1\nn2\n")
        );
        assert_eq!(
            found.text(&as_("json"), ToString::to_string).as_deref(),
            Some("[\n  1,\n  2\n]\n")
        );
        assert_eq!(
            found.text(&as_("yaml"), ToString::to_string).as_deref(),
            Some("- 1\n- 2\n")
        );
        assert_eq!(found.text(&as_("table"), ToString::to_string), None);
        let one = MachineOutput::one(&7);
        assert_eq!(
            one.text(&as_("json"), ToString::to_string).as_deref(),
            Some("7\n")
        );
    }

    #[test]
    fn rows_have_their_figures() {
        let nodes = fixture::nodes();
        let found = MachineOutput::list(&nodes[..1]);
        assert_eq!(
            found
                .rows(&as_("tmpl={{.id}} {{free|size}} {{offers.memory}}"))
                .as_deref(),
            Some("worker-01 4.2G 16106127360\n")
        );
        let cols = OutputOptions {
            headers: false,
            ..as_("cols=NODE,state")
        };
        assert_eq!(found.rows(&cols).as_deref(), Some("worker-01  ready\n"));
    }
}
