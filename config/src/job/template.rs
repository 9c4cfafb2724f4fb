//! Words of a command with placeholders: `--part={index}`. `{{` and `}}` are literal braces.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use headroom_types::word_enum;

word_enum! {
    /// A placeholder in a command or an environment variable.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Placeholder: "is not a placeholder; use" {
        /// Index of the task.
        Index = "index",
        /// Number of the attempt, from 1.
        Attempt = "attempt",
        /// Rung of the task; 1 for the size of its stage.
        Rung = "rung",
        /// Heap budget in the form of a JVM option: `64m`.
        Heap = "heap",
        /// Heap budget in whole MiB.
        HeapMib = "heap_mib",
        /// Heap and overhead in bytes.
        Memory = "memory",
        /// Heap and overhead in whole MiB.
        MemoryMib = "memory_mib",
        /// Overhead in bytes.
        Overhead = "overhead",
        /// Slots of the attempt.
        Slots = "slots",
        /// Name of the stage.
        Stage = "stage",
        /// Name of the job.
        Job = "job",
        /// Output directory of the attempt, in a fenced stage.
        Output = "output",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Place(Placeholder),
}

/// A word with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderTemplate(Vec<TemplatePart>);

/// The error of a word that is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTemplateError {
    /// An unpaired brace.
    #[error("a single `{0}` in {1:?}; write `{0}{0}` for the character itself")]
    Brace(char, String),
    /// An unknown placeholder.
    #[error("{{{0}}} is not available here{1}")]
    Unknown(String, String),
    /// A NUL cannot be passed to a program.
    #[error("a NUL character cannot be passed to a program")]
    Nul,
}

impl PlaceholderTemplate {
    /// Fills in every placeholder with `value`.
    pub fn fill(&self, value: impl Fn(Placeholder) -> String) -> String {
        let mut word = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePart::Text(text) => word.push_str(text),
                TemplatePart::Place(place) => word.push_str(&value(*place)),
            }
        }
        word
    }

    /// True if the word contains this placeholder.
    pub fn contains(&self, place: Placeholder) -> bool {
        self.0.contains(&TemplatePart::Place(place))
    }

    /// The placeholders in the word.
    pub fn placeholders(&self) -> impl Iterator<Item = Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePart::Text(_) => None,
            TemplatePart::Place(place) => Some(*place),
        })
    }

    /// True for a word that is always empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for PlaceholderTemplate {
    type Err = ParseTemplateError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if word.contains('\0') {
            return Err(ParseTemplateError::Nul);
        }
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = word;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
                text.push_str(&rest[..1]);
                rest = after;
                continue;
            }
            let end = rest.find('}').filter(|end| *end > 0);
            let Some(end) = end else {
                let brace = if rest.starts_with('{') { '{' } else { '}' };
                return Err(ParseTemplateError::Brace(brace, word.to_owned()));
            };
            if !text.is_empty() {
                pieces.push(TemplatePart::Text(std::mem::take(&mut text)));
            }
            pieces.push(TemplatePart::Place(place(&rest[1..end])?));
            rest = &rest[end + 1..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(TemplatePart::Text(text));
        }
        Ok(PlaceholderTemplate(pieces))
    }
}

fn place(name: &str) -> Result<Placeholder, ParseTemplateError> {
    name.parse().map_err(|_| {
        let names = Placeholder::ALL.map(Placeholder::as_str);
        let near = crate::toml_reader::closest_name(name, &names)
            .map(|n| format!("; did you mean {{{n}}}?"))
            .unwrap_or_default();
        ParseTemplateError::Unknown(name.to_owned(), near)
    })
}

impl fmt::Display for PlaceholderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                TemplatePart::Text(text) => text.chars().try_for_each(|c| match c {
                    '{' => f.write_str("{{"),
                    '}' => f.write_str("}}"),
                    c => f.write_char(c),
                })?,
                TemplatePart::Place(place) => write!(f, "{{{}}}", place.as_str())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_braces_are_kept() {
        let t: PlaceholderTemplate = "awk '{{print}}' part-{index}-of-{job}"
            .parse()
            .expect("right");
        assert_eq!(
            t.fill(|p| p.as_str().to_uppercase()),
            "awk '{print}' part-INDEX-of-JOB"
        );
        assert_eq!(t.to_string(), "awk '{{print}}' part-{index}-of-{job}");
    }

    #[test]
    fn invalid_templates_are_refused() {
        assert!(
            matches!("{indx}".parse::<PlaceholderTemplate>(), Err(ParseTemplateError::Unknown(_, near)) if near.contains("{index}"))
        );
        assert!(matches!(
            "a { b".parse::<PlaceholderTemplate>(),
            Err(ParseTemplateError::Brace('{', _))
        ));
        assert!(matches!(
            "a } b".parse::<PlaceholderTemplate>(),
            Err(ParseTemplateError::Brace('}', _))
        ));
    }
}
