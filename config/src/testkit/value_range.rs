//! The form and the range of the values of a key, for the documentation and for tests.

/// The form of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A quoted string.
    Text,
    /// One of a fixed list of words, quoted.
    Word,
    /// A list of words.
    Words,
    /// An absolute path, quoted.
    Path,
    /// An address and a port, quoted.
    Address,
    /// A URL that begins with `http://`, quoted.
    Url,
    /// A list of URLs.
    Urls,
    /// A duration with its unit, quoted.
    Time,
    /// A size: a number of bytes, or a quoted text with a unit.
    Size,
    /// An integer.
    Number,
    /// An integer percentage.
    Percent,
    /// A percentage with at most one decimal, quoted.
    Part,
    /// Processors: a number, with decimals.
    Cores,
    /// `true` or `false`.
    Switch,
    /// Mode bits in octal, quoted.
    Octal,
    /// A table of strings by name.
    Table,
    /// A table of tables by name.
    Tables,
}

impl ValueKind {
    /// Description for users, with the unit.
    pub fn as_str(self) -> &'static str {
        match self {
            ValueKind::Text => "text",
            ValueKind::Word => "word",
            ValueKind::Words => "list of words",
            ValueKind::Path => "absolute path",
            ValueKind::Address => "address:port",
            ValueKind::Url => "URL: http, https, unix",
            ValueKind::Urls => "list of URLs",
            ValueKind::Time => "time: ms, s, m, h, d",
            ValueKind::Size => "size: bytes, KiB, MiB, GiB, TiB",
            ValueKind::Number => "whole number",
            ValueKind::Percent => "percent",
            ValueKind::Part => "part, %",
            ValueKind::Cores => "processors",
            ValueKind::Switch => "true or false",
            ValueKind::Octal => "octal bits",
            ValueKind::Table => "table of texts",
            ValueKind::Tables => "tables by name",
        }
    }
}

/// The accepted values of a kind. All values are written as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRange {
    /// Any value of the kind; the field is an example.
    Any(&'static str),
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// Between two values, inclusive.
    Between(&'static str, &'static str),
    /// At least this value.
    From(&'static str),
}

impl ValueRange {
    /// Values that must be accepted, including the bounds.
    pub fn examples(self) -> Vec<&'static str> {
        match self {
            ValueRange::Any(one) | ValueRange::From(one) => vec![one],
            ValueRange::OneOf(all) => all.to_vec(),
            ValueRange::Between(least, most) => vec![least, most],
        }
    }
    /// Description for users, as a cell of a table.
    pub(super) fn words(self) -> String {
        match self {
            ValueRange::Any(_) => "any".to_owned(),
            ValueRange::OneOf(all) => all
                .iter()
                .map(|one| format!("`{one}`"))
                .collect::<Vec<_>>()
                .join(", "),
            ValueRange::Between(least, most) => format!("`{least}` to `{most}`"),
            ValueRange::From(least) => format!("from `{least}`"),
        }
    }
}
