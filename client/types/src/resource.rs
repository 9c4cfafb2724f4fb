//! The vector that the scheduler places: memory, processors, and countable resources that a cluster
//! defines.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{Bytes, Cpus, Name};

/// Resources of a container or a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Memory, bytes.
    pub memory: Bytes,
    /// Processors, cores.
    #[serde(default)]
    pub cpus: Cpus,
    /// Countable resources that the cluster defines, such as `gpu`; whole pieces.
    #[serde(default, skip_serializing_if = "ExtraResources::has_none")]
    #[schema(value_type = BTreeMap<Name, u64>)]
    pub extra: ExtraResources,
}

/// Countable resources by name; whole pieces. Without entries, which is the usual case, the map
/// takes one machine word.
#[derive(Clone, Default)]
#[allow(clippy::box_collection)] // boxed for its size
pub struct ExtraResources(Option<Box<BTreeMap<Name, u64>>>);

static NONE: BTreeMap<Name, u64> = BTreeMap::new();

impl ExtraResources {
    /// True without entries.
    #[inline]
    pub fn has_none(&self) -> bool {
        self.0.is_none() || self.is_empty()
    }
}

impl Deref for ExtraResources {
    type Target = BTreeMap<Name, u64>;
    #[inline]
    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&NONE)
    }
}
impl DerefMut for ExtraResources {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.get_or_insert_default()
    }
}
impl PartialEq for ExtraResources {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_none() && other.0.is_none()) || **self == **other
    }
}
impl Eq for ExtraResources {}
impl fmt::Debug for ExtraResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
impl From<BTreeMap<Name, u64>> for ExtraResources {
    fn from(pieces: BTreeMap<Name, u64>) -> Self {
        if pieces.is_empty() {
            ExtraResources(None)
        } else {
            ExtraResources(Some(Box::new(pieces)))
        }
    }
}
impl<const N: usize> From<[(Name, u64); N]> for ExtraResources {
    fn from(pieces: [(Name, u64); N]) -> Self {
        BTreeMap::from(pieces).into()
    }
}
impl FromIterator<(Name, u64)> for ExtraResources {
    fn from_iter<I: IntoIterator<Item = (Name, u64)>>(pieces: I) -> Self {
        BTreeMap::from_iter(pieces).into()
    }
}
impl<'a> IntoIterator for &'a ExtraResources {
    type Item = (&'a Name, &'a u64);
    type IntoIter = btree_map::Iter<'a, Name, u64>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
impl IntoIterator for ExtraResources {
    type Item = (Name, u64);
    type IntoIter = btree_map::IntoIter<Name, u64>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|pieces| *pieces).unwrap_or_default().into_iter()
    }
}
impl Serialize for ExtraResources {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(s)
    }
}
impl<'de> Deserialize<'de> for ExtraResources {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(d).map(ExtraResources::from)
    }
}

impl Resource {
    /// A resource without countable resources.
    pub fn new(memory: Bytes, cpus: Cpus) -> Self {
        Resource {
            memory,
            cpus,
            extra: ExtraResources::default(),
        }
    }

    /// True when no dimension of `self` exceeds that of `room`.
    #[inline]
    pub fn fits(&self, room: &Resource) -> bool {
        self.memory <= room.memory
            && self.cpus <= room.cpus
            && (self.extra.0.is_none() || self.extras_fit(room))
    }
    fn extras_fit(&self, room: &Resource) -> bool {
        self.extra
            .iter()
            .all(|(name, n)| *n <= room.extra.get(name).copied().unwrap_or(0))
    }

    /// The sum, or `None` if a dimension overflows.
    pub fn checked_add(&self, other: &Resource) -> Option<Resource> {
        let mut sum = self.clone();
        sum.memory = self.memory.checked_add(other.memory)?;
        sum.cpus = self.cpus.checked_add(other.cpus)?;
        for (name, n) in &other.extra {
            let slot = sum.extra.entry(name.clone()).or_default();
            *slot = slot.checked_add(*n)?;
        }
        Some(sum)
    }

    /// The difference, or `None` if a dimension would fall below zero.
    pub fn checked_sub(&self, other: &Resource) -> Option<Resource> {
        let mut rest = self.clone();
        rest.memory = self.memory.checked_sub(other.memory)?;
        rest.cpus = self.cpus.checked_sub(other.cpus)?;
        for (name, n) in &other.extra {
            let slot = rest.extra.get_mut(name)?;
            *slot = slot.checked_sub(*n)?;
        }
        Some(rest)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.memory, self.cpus.words())?;
        for (name, n) in &self.extra {
            write!(f, ", {n} {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_resource() -> impl Strategy<Value = Resource> {
        (0u64..1 << 40, 0u32..1 << 20, proptest::option::of(0u64..8)).prop_map(|(m, c, gpu)| {
            let mut r = Resource::new(Bytes::new(m), Cpus::from_milli(c));
            if let Some(n) = gpu {
                r.extra.insert("gpu".parse().expect("name"), n);
            }
            r
        })
    }

    #[test]
    fn one_processor_is_singular() {
        let text = |cpus| Resource::new(Bytes::from_gib(1), cpus).to_string();
        assert_eq!(
            (text(Cpus::from_cores(1)), text(Cpus::from_milli(500))),
            ("1 GiB, 1 cpu".into(), "1 GiB, 0.5 cpus".into())
        );
    }

    proptest! {
        #[test]
        fn a_fitting_resource_can_be_subtracted_and_added_back(a in any_resource(), b in any_resource()) {
            let room = a.checked_add(&b).expect("small numbers");
            prop_assert!(a.fits(&room));
            let rest = room.checked_sub(&a).expect("fits");
            prop_assert_eq!(rest.checked_add(&a).expect("adds"), room);
        }

        #[test]
        fn subtracting_more_than_available_is_refused(a in any_resource(), b in any_resource()) {
            if !a.fits(&b) && a.extra.keys().all(|k| b.extra.contains_key(k)) {
                prop_assert_eq!(b.checked_sub(&a), None);
            }
        }
    }
}
