//! Memory and file sizes in bytes, with arithmetic that cannot wrap.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A quantity of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// The error of a text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// The text is empty.
    #[error("the size is empty; write for example 512MiB")]
    Empty,
    /// The number part is not a number.
    #[error("{0:?} does not start with a number; write for example 512MiB")]
    Number(String),
    /// The unit is not one of B, KiB, MiB, GiB, TiB.
    #[error("unknown unit {0:?}; use B, KiB, MiB, GiB or TiB")]
    Unit(String),
    /// More than 2^64-1 bytes.
    #[error("{0:?} is larger than any machine's memory")]
    TooLarge(String),
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// The largest representable quantity.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// A quantity of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Bytes(n)
    }
    /// A quantity of `n` KiB; saturates.
    pub const fn from_kib(n: u64) -> Self {
        Bytes(n.saturating_mul(KIB))
    }
    /// A quantity of `n` MiB; saturates.
    pub const fn from_mib(n: u64) -> Self {
        Bytes(n.saturating_mul(MIB))
    }
    /// A quantity of `n` GiB; saturates.
    pub const fn from_gib(n: u64) -> Self {
        Bytes(n.saturating_mul(GIB))
    }
    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Whole MiB, rounded down.
    pub const fn whole_mib(self) -> u64 {
        self.0 / MIB
    }
    /// The quantity in GiB, for display.
    #[allow(clippy::cast_precision_loss)]
    pub fn as_gib_f64(self) -> f64 {
        self.0 as f64 / GIB as f64
    }
    /// True for zero bytes.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// The sum, or `None` above the largest quantity.
    pub const fn checked_add(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Bytes(n)),
            None => None,
        }
    }
    /// The difference, or `None` below zero.
    pub const fn checked_sub(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Bytes(n)),
            None => None,
        }
    }
    /// The sum; saturates at the maximum.
    pub const fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
    /// The difference; saturates at zero.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
    /// `self * num / den` with a 128-bit intermediate product; saturates. A `den` of 0 counts as 1.
    pub fn mul_ratio(self, num: u64, den: u64) -> Bytes {
        let wide = u128::from(self.0) * u128::from(num) / u128::from(den.max(1));
        Bytes(u64::try_from(wide).unwrap_or(u64::MAX))
    }
    /// The quantity rounded up to a multiple of `step`; unchanged for a `step` of zero.
    pub fn round_up(self, step: Bytes) -> Bytes {
        if step.0 == 0 {
            return self;
        }
        Bytes(self.0.div_ceil(step.0).saturating_mul(step.0))
    }
    /// The number of pieces of `piece` that cover this quantity.
    pub fn div_ceil(self, piece: Bytes) -> u64 {
        self.0.div_ceil(piece.0.max(1))
    }
}

impl fmt::Display for Bytes {
    #[allow(clippy::cast_precision_loss)]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let (unit, name) = match n {
            n if n >= TIB => (TIB, "TiB"),
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            _ => return f.pad(&format!("{n} B")),
        };
        let text = if n.is_multiple_of(unit) {
            format!("{} {name}", n / unit)
        } else {
            format!("{:.1} {name}", n as f64 / unit as f64)
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Parses `512MiB`, `2 GiB`, `1.5G`, `4096`. `K`, `M`, `G`, `T` are binary units, as in every
    /// cgroup file.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseBytesError::Empty);
        }
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" | "kb" => KIB,
            "m" | "mib" | "mb" => MIB,
            "g" | "gib" | "gb" => GIB,
            "t" | "tib" | "tb" => TIB,
            _ => return Err(ParseBytesError::Unit(unit.trim().to_owned())),
        };
        decimal(number, factor).ok_or_else(|| match number.parse::<f64>() {
            Ok(_) => ParseBytesError::TooLarge(text.to_owned()),
            Err(_) => ParseBytesError::Number(text.to_owned()),
        })
    }
}

/// `number * factor` in integer arithmetic, with up to nine decimal places.
fn decimal(number: &str, factor: u64) -> Option<Bytes> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 || part.contains('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if part.is_empty() {
        return Some(Bytes(whole));
    }
    let scale = 10u128.pow(u32::try_from(part.len()).ok()?);
    let fraction = u128::from(part.parse::<u64>().ok()?) * u128::from(factor) / scale;
    whole.checked_add(u64::try_from(fraction).ok()?).map(Bytes)
}

impl Serialize for Bytes {
    /// Writes an integer number of bytes.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    /// Reads an integer number of bytes, or a text such as `2GiB`.
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct ByteSizeVisitor;
        impl Visitor<'_> for ByteSizeVisitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes or a size such as \"512MiB\"")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Bytes, E> {
                Ok(Bytes(n))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Bytes, E> {
                u64::try_from(n)
                    .map(Bytes)
                    .map_err(|_| E::custom(format!("a size cannot be negative: {n}")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(ByteSizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_parsed_in_common_spellings() {
        let cases = [
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("2 GiB", 2 << 30),
            ("1.5G", 3 << 29),
            ("0.25KiB", 256),
            ("7b", 7),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn parse_errors_name_the_mistake() {
        assert_eq!("".parse::<Bytes>(), Err(ParseBytesError::Empty));
        assert_eq!(
            "five".parse::<Bytes>(),
            Err(ParseBytesError::Unit("five".into()))
        );
        assert_eq!(
            "1.2.3G".parse::<Bytes>(),
            Err(ParseBytesError::Number("1.2.3G".into()))
        );
        assert_eq!(
            "12 parsecs".parse::<Bytes>(),
            Err(ParseBytesError::Unit("parsecs".into()))
        );
        assert!(matches!(
            "99999999999TiB".parse::<Bytes>(),
            Err(ParseBytesError::TooLarge(_))
        ));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(Bytes::from_mib(512).to_string(), "512 MiB");
        assert_eq!(Bytes::new(4_724_464_025).to_string(), "4.4 GiB");
        assert_eq!(Bytes::new(17).to_string(), "17 B");
    }

    proptest! {
        #[test]
        fn json_round_trip_keeps_every_byte(n in any::<u64>()) {
            let text = serde_json::to_string(&Bytes(n)).expect("writes");
            prop_assert_eq!(serde_json::from_str::<Bytes>(&text).expect("reads"), Bytes(n));
        }

        #[test]
        fn rounding_up_never_shrinks(n in 0u64..1 << 50, step in 0u64..1 << 30) {
            let rounded = Bytes(n).round_up(Bytes(step));
            prop_assert!(rounded >= Bytes(n) && rounded.get() - n <= step);
        }
    }
}
