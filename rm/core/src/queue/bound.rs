//! Shares as quantities: the maximum of a queue, and the used part of its guarantee.
//!
//! Integer arithmetic only. Never reads waiting requests.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, Name, Resource};

use super::spec::{QueueShare, ShareOrAmount};

/// Limit per resource; a resource without a limit is unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceBound {
    /// Memory. Bytes.
    pub memory: Option<Bytes>,
    /// Processors.
    pub cpus: Option<Cpus>,
    /// Countable resources.
    pub extra: BTreeMap<Name, u64>,
}

impl ResourceBound {
    /// Resolves `share` against `base`, the resources of the parent queue.
    pub fn of(share: &QueueShare, base: &Resource) -> ResourceBound {
        let follow = match share.memory {
            Some(ShareOrAmount::Part(part)) => Some(part),
            Some(ShareOrAmount::Exactly(_)) | None => None,
        };
        let mut extra = BTreeMap::new();
        for (name, n) in &base.extra {
            extra.extend(follow.map(|part| (name.clone(), of_number(*n, part))));
        }
        for (name, amount) in &share.extra {
            let n = match amount {
                ShareOrAmount::Part(part) => {
                    of_number(base.extra.get(name).copied().unwrap_or(0), *part)
                }
                ShareOrAmount::Exactly(n) => *n,
            };
            extra.insert(name.clone(), n);
        }
        ResourceBound {
            memory: share.memory.map(|amount| match amount {
                ShareOrAmount::Part(part) => base.memory.mul_ratio(u64::from(part), 1000),
                ShareOrAmount::Exactly(memory) => memory,
            }),
            cpus: share
                .cpus
                .or(follow.map(ShareOrAmount::Part))
                .map(|amount| match amount {
                    ShareOrAmount::Part(part) => of_cpus(base.cpus, part),
                    ShareOrAmount::Exactly(cpus) => cpus,
                }),
            extra,
        }
    }
    /// A part of each resource in `base`. Thousandths.
    pub fn part_of(base: &Resource, part: u32) -> ResourceBound {
        ResourceBound::of(
            &QueueShare {
                memory: Some(ShareOrAmount::Part(part)),
                ..QueueShare::default()
            },
            base,
        )
    }
    /// True when no resource is limited.
    pub fn is_open(&self) -> bool {
        self.memory.is_none() && self.cpus.is_none() && self.extra.is_empty()
    }
    /// True when every limit is zero.
    pub fn is_nothing(&self) -> bool {
        let memory = self.memory.is_none_or(Bytes::is_zero);
        memory
            && self.cpus.is_none_or(|cpus| cpus == Cpus::ZERO)
            && self.extra.values().all(|n| *n == 0)
    }
    /// True when `size` on top of `used` stays within the limits.
    pub fn admits(&self, used: &Resource, size: &Resource) -> bool {
        self.memory
            .is_none_or(|most| used.memory.saturating_add(size.memory) <= most)
            && self.cpus.is_none_or(|most| {
                u64::from(used.cpus.milli()) + u64::from(size.cpus.milli())
                    <= u64::from(most.milli())
            })
            && (size.extra.is_empty()
                || self
                    .extra
                    .iter()
                    .all(|(name, most)| self.admits_extra(name, *most, used, size)))
    }
    fn admits_extra(&self, name: &Name, most: u64, used: &Resource, size: &Resource) -> bool {
        let of = |resource: &Resource| resource.extra.get(name).copied().unwrap_or(0);
        of(size) == 0 || of(used).saturating_add(of(size)) <= most
    }
    /// Resources with these limits; a resource without a limit comes from `base`.
    pub fn over(&self, base: &Resource) -> Resource {
        let mut extra = base.extra.clone();
        for (name, n) in &self.extra {
            extra.insert(name.clone(), *n);
        }
        Resource {
            memory: self.memory.unwrap_or(base.memory),
            cpus: self.cpus.unwrap_or(base.cpus),
            extra,
        }
    }
    /// First limit that `size` on top of `used` exceeds.
    pub fn passed(&self, used: &Resource, size: &Resource) -> Option<ExceededLimit> {
        if let Some(most) = self
            .memory
            .filter(|most| used.memory.saturating_add(size.memory) > *most)
        {
            return Some(ExceededLimit {
                used: used.memory.to_string(),
                most: most.to_string(),
                needs: size.memory.to_string(),
            });
        }
        let sum = |most: &Cpus| {
            u64::from(used.cpus.milli()) + u64::from(size.cpus.milli()) > u64::from(most.milli())
        };
        if let Some(most) = self.cpus.filter(sum) {
            let say = Cpus::words;
            return Some(ExceededLimit {
                used: say(used.cpus),
                most: say(most),
                needs: say(size.cpus),
            });
        }
        let (name, most) = self
            .extra
            .iter()
            .find(|(name, most)| !self.admits_extra(name, **most, used, size))?;
        let say = |n: u64| format!("{n} {name}");
        let of = |resource: &Resource| resource.extra.get(name).copied().unwrap_or(0);
        Some(ExceededLimit {
            used: say(of(used)),
            most: say(*most),
            needs: say(of(size)),
        })
    }
}

/// Exceeded limit, formatted for a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// Resources in use.
    pub used: String,
    /// The limit.
    pub most: String,
    /// Requested resources.
    pub needs: String,
}

fn of_number(n: u64, part: u32) -> u64 {
    u64::try_from(u128::from(n) * u128::from(part) / 1000).unwrap_or(u64::MAX)
}

fn of_cpus(cpus: Cpus, part: u32) -> Cpus {
    Cpus::from_milli(u32::try_from(of_number(u64::from(cpus.milli()), part)).unwrap_or(u32::MAX))
}

/// Dominant share: the largest quotient of used and available over all resources, in units of
/// 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DominantShare(u128);

impl DominantShare {
    /// Dominant share of the limited resources in `bound`.
    pub fn of_bound(used: &Resource, bound: &ResourceBound) -> DominantShare {
        let memory = bound.memory.map_or(DominantShare(0), |most| {
            quotient(used.memory.get(), most.get())
        });
        let cpus = bound.cpus.map_or(DominantShare(0), |most| {
            quotient(used.cpus.milli().into(), most.milli().into())
        });
        let extra = bound
            .extra
            .iter()
            .map(|(name, most)| quotient(used.extra.get(name).copied().unwrap_or(0), *most));
        extra.fold(memory.max(cpus), DominantShare::max)
    }
    /// Dominant share of all resources.
    pub fn of_all(used: &Resource, all: &Resource) -> DominantShare {
        let memory = quotient(used.memory.get(), all.memory.get());
        let cpus = quotient(used.cpus.milli().into(), all.cpus.milli().into());
        let extra = used
            .extra
            .iter()
            .map(|(name, n)| quotient(*n, all.extra.get(name).copied().unwrap_or(0)));
        extra.fold(memory.max(cpus), DominantShare::max)
    }
    /// Share divided by a weight.
    pub fn by_weight(self, weight: u32) -> DominantShare {
        if weight <= 1 {
            self
        } else {
            DominantShare(self.0 / u128::from(weight))
        }
    }
    /// True when the share is at least one.
    pub fn is_whole(self) -> bool {
        self.0 >= 1 << 64
    }
    /// Share in thousandths, rounded down.
    pub fn thousandths(self) -> u64 {
        u64::try_from(self.0.saturating_mul(1000) >> 64).unwrap_or(u64::MAX)
    }
}

fn quotient(used: u64, of: u64) -> DominantShare {
    if used == 0 {
        return DominantShare(0);
    }
    DominantShare(
        (u128::from(used) << 64)
            .checked_div(u128::from(of))
            .unwrap_or(u128::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(gib: u64, cores: u32) -> Resource {
        Resource::new(Bytes::from_gib(gib), Cpus::from_cores(cores))
    }

    #[test]
    fn an_unnamed_resource_follows_the_share_of_memory_or_has_no_bound() {
        let mut base = size(100, 40);
        base.extra.insert("gpu".parse().expect("name"), 8);
        let half = ResourceBound::part_of(&base, 500);
        assert_eq!(
            (half.memory, half.cpus),
            (Some(Bytes::from_gib(50)), Some(Cpus::from_cores(20)))
        );
        assert_eq!(half.extra.values().copied().collect::<Vec<_>>(), [4]);
        let exact = ResourceBound::of(
            &QueueShare {
                memory: Some(ShareOrAmount::Exactly(Bytes::from_gib(7))),
                ..QueueShare::default()
            },
            &base,
        );
        assert_eq!(
            (exact.memory, exact.cpus, exact.extra.len()),
            (Some(Bytes::from_gib(7)), None, 0)
        );
        assert!(
            exact.admits(&size(6, 1000), &size(1, 1000)) && !exact.admits(&size(6, 0), &size(2, 0))
        );
        let passed = exact
            .passed(&size(6, 0), &size(2, 0))
            .expect("exceeds the bound");
        assert_eq!(
            (
                passed.used.as_str(),
                passed.most.as_str(),
                passed.needs.as_str()
            ),
            ("6 GiB", "7 GiB", "2 GiB")
        );
    }

    #[test]
    fn the_scarcest_resource_counts() {
        let all = size(100, 10);
        let of = |gib, cores| DominantShare::of_all(&size(gib, cores), &all);
        assert!(of(30, 1) > of(1, 2) && of(30, 1) == of(0, 3));
        assert_eq!(of(30, 1).thousandths(), 299, "rounded down");
        assert!(
            of(30, 1).by_weight(3) <= of(10, 1) && of(100, 0).is_whole() && !of(99, 0).is_whole()
        );
        assert!(
            DominantShare::of_all(&size(1, 1), &Resource::default()).is_whole(),
            "a use without a capacity is a whole share"
        );
    }
}
