//! Processor shares in thousandths of a core.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Processor time, in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

/// The error of a text that is not a number of cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number of cores; write for example 2 or 0.5")]
pub struct ParseCpusError(String);

impl Cpus {
    /// No processor time.
    pub const ZERO: Cpus = Cpus(0);

    /// Thousandths of a core.
    pub const fn from_milli(n: u32) -> Self {
        Cpus(n)
    }
    /// Whole cores; saturates.
    pub const fn from_cores(n: u32) -> Self {
        Cpus(n.saturating_mul(1000))
    }
    /// Thousandths of a core.
    pub const fn milli(self) -> u32 {
        self.0
    }
    /// The sum, or `None` above the largest quantity.
    pub fn checked_add(self, other: Cpus) -> Option<Cpus> {
        self.0.checked_add(other.0).map(Cpus)
    }
    /// The difference, or `None` below zero.
    pub fn checked_sub(self, other: Cpus) -> Option<Cpus> {
        self.0.checked_sub(other.0).map(Cpus)
    }
}

impl Cpus {
    /// The number with its unit, for users: `1 cpu`, `2.5 cpus`.
    pub fn words(self) -> String {
        if self.0 == 1000 {
            "1 cpu".to_owned()
        } else {
            format!("{self} cpus")
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            return f.pad(&whole.to_string());
        }
        f.pad(format!("{whole}.{part:03}").trim_end_matches('0'))
    }
}

impl FromStr for Cpus {
    type Err = ParseCpusError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseCpusError(text.to_owned());
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        if part.len() > 3 || !part.chars().all(|c| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let cores: u32 = whole.parse().map_err(|_| wrong())?;
        let milli: u32 = if part.is_empty() {
            0
        } else {
            format!("{part:0<3}").parse().map_err(|_| wrong())?
        };
        cores
            .checked_mul(1000)
            .and_then(|n| n.checked_add(milli))
            .map(Cpus)
            .ok_or_else(wrong)
    }
}

impl Serialize for Cpus {
    /// Writes cores as a number, `2` or `0.5`, because an integer number of thousandths would
    /// mislead readers.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1000) {
            s.serialize_u32(self.0 / 1000)
        } else {
            s.serialize_f64(f64::from(self.0) / 1000.0)
        }
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let cores = f64::deserialize(d)?;
        let milli = (cores * 1000.0).round();
        if !(0.0..=f64::from(u32::MAX)).contains(&milli) {
            return Err(serde::de::Error::custom(format!(
                "{cores} is not a number of cores"
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // the range was checked in the line above
        Ok(Cpus(milli as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_round_trip() {
        for (text, milli) in [("2", 2000), ("0.5", 500), ("1.25", 1250), ("0", 0)] {
            let cpus: Cpus = text.parse().expect(text);
            assert_eq!((cpus.milli(), cpus.to_string().as_str()), (milli, text));
            let json = serde_json::to_string(&cpus).expect("writes");
            assert_eq!(serde_json::from_str::<Cpus>(&json).expect("reads"), cpus);
        }
        assert!("two".parse::<Cpus>().is_err() && "1.2345".parse::<Cpus>().is_err());
    }
}
