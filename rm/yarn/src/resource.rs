//! Sizes in YARN's units: whole mebibytes and whole processors.

use headroom_types::{Bytes, Cpus, Resource};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::field::{Field, field};

/// Value for an unlimited amount.
const NO_BOUND: u64 = i64::MAX.unsigned_abs();

/// A size, with all resource types.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ResourceInfo {
    memory: u64,
    #[serde(rename = "vCores")]
    v_cores: u64,
    #[serde(rename = "resourceInformations")]
    informations: Field<Vec<Information>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Information {
    attributes: Map<String, Value>,
    maximum_allocation: u64,
    minimum_allocation: u64,
    name: String,
    resource_type: &'static str,
    units: &'static str,
    value: u64,
}

/// A size with memory and processors only, which YARN uses in a few places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bare {
    pub(crate) memory: u64,
    #[serde(rename = "vCores")]
    pub(crate) v_cores: u64,
}

impl Bare {
    pub(crate) fn of(size: &Resource) -> Self {
        Bare {
            memory: mib(size.memory),
            v_cores: cores(size.cpus),
        }
    }
}

/// A map in YARN's format.
#[derive(Debug, Serialize)]
pub(crate) struct Entries {
    entry: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    key: String,
    value: String,
}

impl Entries {
    pub(crate) fn of<'a>(amounts: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let entry = |(key, value): (&str, u64)| Entry {
            key: key.to_owned(),
            value: value.to_string(),
        };
        Entries {
            entry: amounts.into_iter().map(entry).collect(),
        }
    }
}

impl ResourceInfo {
    pub(crate) fn of(size: &Resource) -> Self {
        let Bare { memory, v_cores } = Bare::of(size);
        let extra = size
            .extra
            .iter()
            .map(|(name, n)| information(name.as_str(), "", *n));
        let all = [
            information("memory-mb", "Mi", memory),
            information("vcores", "", v_cores),
        ]
        .into_iter()
        .chain(extra)
        .collect();
        ResourceInfo {
            memory,
            v_cores,
            informations: field("resourceInformation", all),
        }
    }
}

fn information(name: &str, units: &'static str, value: u64) -> Information {
    Information {
        attributes: Map::new(),
        maximum_allocation: NO_BOUND,
        minimum_allocation: 0,
        name: name.to_owned(),
        resource_type: "COUNTABLE",
        units,
        value,
    }
}

/// Whole mebibytes, rounded down.
pub(crate) fn mib(bytes: Bytes) -> u64 {
    bytes.whole_mib()
}

/// Whole processors, rounded up, so that a container with part of a processor does not show 0.
pub(crate) fn cores(cpus: Cpus) -> u64 {
    u64::from(cpus.milli().div_ceil(1000))
}

/// Converts byte-milliseconds to mebibyte-seconds.
pub(crate) fn mib_seconds(byte_ms: u128) -> u64 {
    u64::try_from(byte_ms / ((1 << 20) * 1000)).unwrap_or(u64::MAX)
}

/// Converts thousandths of a processor × milliseconds to processor-seconds.
pub(crate) fn core_seconds(milli_ms: u128) -> u64 {
    u64::try_from(milli_ms / 1_000_000).unwrap_or(u64::MAX)
}

/// Percentage with one decimal; 0 if both amounts are 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0
}

/// Percentage without decimals. It can exceed 100: a host can use more than its agent offers.
pub(crate) fn whole_percent(part: u64, whole: u64) -> u32 {
    u32::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_yarn() {
        let size = Resource::new(Bytes::from_mib(1536), Cpus::from_milli(1500));
        assert_eq!(
            Bare::of(&size),
            Bare {
                memory: 1536,
                v_cores: 2
            }
        );
        assert_eq!(cores(Cpus::from_milli(1)), 1);
        assert_eq!(
            mib_seconds(u128::from(Bytes::from_mib(512).get()) * 10_000),
            5120
        );
        assert_eq!(core_seconds(1500 * 10_000), 15);
    }

    #[test]
    fn a_percentage_of_zero_is_zero() {
        assert!((percent(1, 3) - 33.3).abs() < 1e-9);
        assert!(percent(0, 0).abs() < 1e-9);
    }
}
