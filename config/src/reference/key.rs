//! A configuration key with the form and the range of its value, and the notation of values.
//!
//! The tables of keys are built of it. It reads no file and contains no key.

use std::time::Duration;

use headroom_types::Bytes;

use crate::checked::SelfFence;

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

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// On reload of the file, by SIGHUP.
    Reload,
    /// On restart of the daemon.
    Restart,
}

impl TakesEffect {
    /// Word for users.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            TakesEffect::Reload => "reload",
            TakesEffect::Restart => "restart",
        }
    }
}

/// A key of a file with the configuration `C`.
#[derive(Debug)]
pub struct ConfigKey<C: 'static> {
    /// Full name with its table: `history.apps`.
    pub name: &'static str,
    /// Form of its value.
    pub kind: ValueKind,
    /// Accepted values.
    pub range: ValueRange,
    /// A rejected value, as written in the file.
    pub wrong: &'static str,
    /// Other lines that the key requires.
    pub beside: &'static str,
    /// When a change takes effect.
    pub takes: TakesEffect,
    /// Value of a configuration, as written in the file; `None` if the key is absent.
    pub value: fn(&C) -> Option<String>,
}

/// A key whose change takes effect on restart, and that requires no other lines.
pub(super) const fn key<C>(
    name: &'static str,
    kind: ValueKind,
    range: ValueRange,
    wrong: &'static str,
    value: fn(&C) -> Option<String>,
) -> ConfigKey<C> {
    ConfigKey {
        name,
        kind,
        range,
        wrong,
        beside: "",
        takes: TakesEffect::Restart,
        value,
    }
}

impl<C> ConfigKey<C> {
    /// The key, with a change that takes effect on reload.
    pub(super) const fn live(mut self) -> Self {
        self.takes = TakesEffect::Reload;
        self
    }
    /// The key, with other lines that it requires.
    pub(super) const fn beside(mut self, lines: &'static str) -> Self {
        self.beside = lines;
        self
    }
}

/// A quoted string.
pub(super) fn quoted(text: impl std::fmt::Display) -> String {
    format!("{:?}", text.to_string())
}

/// Thousandths as a quoted percentage.
pub(super) fn part(thousandths: u32) -> String {
    let (whole, tenth) = (thousandths / 10, thousandths % 10);
    if tenth == 0 {
        quoted(format!("{whole}%"))
    } else {
        quoted(format!("{whole}.{tenth}%"))
    }
}

/// A quoted duration with the largest unit that holds it exactly.
pub(super) fn time(time: Duration) -> String {
    let ms = time.as_millis();
    let unit = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    unit.map_or_else(
        || quoted(format!("{ms}ms")),
        |(unit, name)| quoted(format!("{}{name}", ms / unit)),
    )
}

/// A size with the largest unit that holds it exactly.
pub(super) fn size(size: Bytes) -> String {
    let n = size.get();
    let unit = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ]
    .into_iter();
    let unit = unit
        .into_iter()
        .find(|(unit, _)| n > 0 && n.is_multiple_of(*unit));
    unit.map_or_else(
        || n.to_string(),
        |(unit, name)| quoted(format!("{}{name}", n / unit)),
    )
}

/// The time without contact after which a node ends its containers.
pub(super) fn fence(fence: SelfFence) -> String {
    match fence {
        SelfFence::Never => quoted("never"),
        SelfFence::After(after) => time(after),
    }
}
