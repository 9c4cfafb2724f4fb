//! A configuration key with its value, and the notation of values.
//!
//! The tables of keys are built of it. It reads no file and contains no key.

use std::path::Path;
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

/// Declares the keys of a file in its order. Each row has the time when a change takes effect, the
/// field, which has the name of the key, and the function that writes its value.
macro_rules! config_keys {
    ($config:ty; $($takes:ident $table:ident $(. $field:ident)?: $written:expr;)+) => {
        &[$($crate::reference::key::ConfigKey {
            name: concat!(stringify!($table) $(, ".", stringify!($field))?),
            takes: $crate::reference::key::TakesEffect::$takes,
            value: |config: &$config| $written(&config.$table $(.$field)?),
        }),+]
    };
}
pub(super) use config_keys;

/// Writes a key that is always present.
pub(super) fn some<T>(write: impl Fn(&T) -> String) -> impl Fn(&T) -> Option<String> {
    move |value| Some(write(value))
}

/// Writes a key that may be absent.
pub(super) fn if_set<T>(write: impl Fn(&T) -> String) -> impl Fn(&Option<T>) -> Option<String> {
    move |value| value.as_ref().map(&write)
}

/// A number or a switch.
pub(super) fn plain(value: &impl std::fmt::Display) -> String {
    value.to_string()
}

/// A quoted string.
pub(super) fn quoted(text: &(impl std::fmt::Display + ?Sized)) -> String {
    format!("{:?}", text.to_string())
}

/// A list of quoted strings.
pub(super) fn list<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| quoted(&word)).collect();
    format!("[{}]", words.join(", "))
}

/// A quoted path.
pub(super) fn path(path: &impl AsRef<Path>) -> String {
    quoted(&path.as_ref().display())
}

/// Thousandths as a quoted percentage.
pub(super) fn part(thousandths: &u32) -> String {
    let (whole, tenth) = (thousandths / 10, thousandths % 10);
    if tenth == 0 {
        quoted(&format!("{whole}%"))
    } else {
        quoted(&format!("{whole}.{tenth}%"))
    }
}

/// A quoted duration with the largest unit that holds it exactly.
pub(super) fn time(time: &Duration) -> String {
    let ms = time.as_millis();
    let unit = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    unit.map_or_else(
        || quoted(&format!("{ms}ms")),
        |(unit, name)| quoted(&format!("{}{name}", ms / unit)),
    )
}

/// A size with the largest unit that holds it exactly.
pub(super) fn size(size: &Bytes) -> String {
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
        |(unit, name)| quoted(&format!("{}{name}", n / unit)),
    )
}

/// The time without contact after which a node ends its containers.
pub(super) fn fence(fence: &SelfFence) -> String {
    match fence {
        SelfFence::Never => quoted("never"),
        SelfFence::After(after) => time(after),
    }
}
