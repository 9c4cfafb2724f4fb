//! A configuration key with its value, and the notation of values.
//!
//! The tables of keys are built of it. It reads no file and contains no key.

use std::path::PathBuf;
use std::time::Duration;

use headroom_types::Bytes;

use crate::checked::SelfFence;

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// On reload of the file, by SIGHUP.
    Reload,
    /// On restart of the daemon.
    Restart,
}

/// A key of a file with the configuration `C`.
#[derive(Debug)]
pub struct ConfigKey<C: 'static> {
    /// Full name with its table: `history.apps`.
    pub name: &'static str,
    /// When a change takes effect.
    pub takes: TakesEffect,
    /// Value of a configuration, as written in the file; `None` if the key is absent.
    pub value: fn(&C) -> Option<String>,
}

/// A key whose change takes effect on restart.
pub(super) const fn key<C>(name: &'static str, value: fn(&C) -> Option<String>) -> ConfigKey<C> {
    ConfigKey {
        name,
        takes: TakesEffect::Restart,
        value,
    }
}

/// A key whose change takes effect on reload.
pub(super) const fn live_key<C>(
    name: &'static str,
    value: fn(&C) -> Option<String>,
) -> ConfigKey<C> {
    ConfigKey {
        name,
        takes: TakesEffect::Reload,
        value,
    }
}

/// A quoted string.
pub(super) fn quoted(text: impl std::fmt::Display) -> String {
    format!("{:?}", text.to_string())
}

/// A list of quoted strings.
pub(super) fn list<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    format!("[{}]", words.join(", "))
}

/// A quoted path; `None` if there is none.
pub(super) fn path(path: &Option<PathBuf>) -> Option<String> {
    path.as_ref().map(|path| quoted(path.display()))
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
