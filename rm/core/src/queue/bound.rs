//! Shares resolved against what there is: what a queue may have at most, and how much of what it can count on it has.
//!
//! Whole numbers only. Never looks at who waits.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, Name, Resource};

use super::spec::{Amount, Share};

/// A quantity for each resource, where one was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Of memory. Bytes.
    pub memory: Option<Bytes>,
    /// Of processors.
    pub cpus: Option<Cpus>,
    /// Of countable resources.
    pub extra: BTreeMap<Name, u64>,
}

impl Bound {
    /// What `share` comes to where the queue above has `base`.
    pub fn of(share: &Share, base: &Resource) -> Bound {
        let follow = match share.memory {
            Some(Amount::Part(part)) => Some(part),
            Some(Amount::Exactly(_)) | None => None,
        };
        let mut extra = BTreeMap::new();
        for (name, n) in &base.extra {
            extra.extend(follow.map(|part| (name.clone(), of_number(*n, part))));
        }
        for (name, amount) in &share.extra {
            let n = match amount {
                Amount::Part(part) => of_number(base.extra.get(name).copied().unwrap_or(0), *part),
                Amount::Exactly(n) => *n,
            };
            extra.insert(name.clone(), n);
        }
        Bound {
            memory: share.memory.map(|amount| match amount {
                Amount::Part(part) => base.memory.mul_ratio(u64::from(part), 1000),
                Amount::Exactly(memory) => memory,
            }),
            cpus: share.cpus.or(follow.map(Amount::Part)).map(|amount| match amount {
                Amount::Part(part) => of_cpus(base.cpus, part),
                Amount::Exactly(cpus) => cpus,
            }),
            extra,
        }
    }
    /// A part of all of `base`. Thousandths.
    pub fn part_of(base: &Resource, part: u32) -> Bound {
        Bound::of(&Share { memory: Some(Amount::Part(part)), ..Share::default() }, base)
    }
    /// Nothing is named.
    pub fn is_open(&self) -> bool {
        self.memory.is_none() && self.cpus.is_none() && self.extra.is_empty()
    }
    /// Everything that is named is nothing.
    pub fn is_nothing(&self) -> bool {
        let memory = self.memory.is_none_or(Bytes::is_zero);
        memory && self.cpus.is_none_or(|cpus| cpus == Cpus::ZERO) && self.extra.values().all(|n| *n == 0)
    }
    /// Whoever has `used` can take `size` on top.
    pub fn admits(&self, used: &Resource, size: &Resource) -> bool {
        self.memory.is_none_or(|most| used.memory.saturating_add(size.memory) <= most)
            && self.cpus.is_none_or(|most| u64::from(used.cpus.milli()) + u64::from(size.cpus.milli()) <= u64::from(most.milli()))
            && (size.extra.is_empty() || self.extra.iter().all(|(name, most)| self.admits_extra(name, *most, used, size)))
    }
    fn admits_extra(&self, name: &Name, most: u64, used: &Resource, size: &Resource) -> bool {
        let of = |resource: &Resource| resource.extra.get(name).copied().unwrap_or(0);
        of(size) == 0 || of(used).saturating_add(of(size)) <= most
    }
    /// As a quantity of everything: what is not named comes from `base`.
    pub fn over(&self, base: &Resource) -> Resource {
        let mut extra = base.extra.clone();
        for (name, n) in &self.extra {
            extra.insert(name.clone(), *n);
        }
        Resource { memory: self.memory.unwrap_or(base.memory), cpus: self.cpus.unwrap_or(base.cpus), extra }
    }
    /// The first resource that `size` on top of `used` would pass: its name, what is used of it, the bound.
    pub fn passed(&self, used: &Resource, size: &Resource) -> Option<Passed> {
        if let Some(most) = self.memory.filter(|most| used.memory.saturating_add(size.memory) > *most) {
            return Some(Passed { used: used.memory.to_string(), most: most.to_string(), needs: size.memory.to_string() });
        }
        let sum = |most: &Cpus| u64::from(used.cpus.milli()) + u64::from(size.cpus.milli()) > u64::from(most.milli());
        if let Some(most) = self.cpus.filter(sum) {
            let say = Cpus::words;
            return Some(Passed { used: say(used.cpus), most: say(most), needs: say(size.cpus) });
        }
        let (name, most) = self.extra.iter().find(|(name, most)| !self.admits_extra(name, **most, used, size))?;
        let say = |n: u64| format!("{n} {name}");
        let of = |resource: &Resource| resource.extra.get(name).copied().unwrap_or(0);
        Some(Passed { used: say(of(used)), most: say(*most), needs: say(of(size)) })
    }
}

/// A bound that stands in the way, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// In use.
    pub used: String,
    /// The bound.
    pub most: String,
    /// On top.
    pub needs: String,
}

fn of_number(n: u64, part: u32) -> u64 {
    u64::try_from(u128::from(n) * u128::from(part) / 1000).unwrap_or(u64::MAX)
}

fn of_cpus(cpus: Cpus, part: u32) -> Cpus {
    Cpus::from_milli(u32::try_from(of_number(u64::from(cpus.milli()), part)).unwrap_or(u32::MAX))
}

/// A dominant share: of all resources the largest quotient of what is used and what there is, in 2^-64ths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dominant(u128);

impl Dominant {
    /// Of what `bound` names.
    pub fn of_bound(used: &Resource, bound: &Bound) -> Dominant {
        let memory = bound.memory.map_or(Dominant(0), |most| quotient(used.memory.get(), most.get()));
        let cpus = bound.cpus.map_or(Dominant(0), |most| quotient(used.cpus.milli().into(), most.milli().into()));
        let extra = bound.extra.iter().map(|(name, most)| quotient(used.extra.get(name).copied().unwrap_or(0), *most));
        extra.fold(memory.max(cpus), Dominant::max)
    }
    /// Of all there is.
    pub fn of_all(used: &Resource, all: &Resource) -> Dominant {
        let memory = quotient(used.memory.get(), all.memory.get());
        let cpus = quotient(used.cpus.milli().into(), all.cpus.milli().into());
        let extra = used.extra.iter().map(|(name, n)| quotient(*n, all.extra.get(name).copied().unwrap_or(0)));
        extra.fold(memory.max(cpus), Dominant::max)
    }
    /// For somebody who may have `weight` times as much as others.
    pub fn by_weight(self, weight: u32) -> Dominant {
        if weight <= 1 { self } else { Dominant(self.0 / u128::from(weight)) }
    }
    /// All of it, or more.
    pub fn is_whole(self) -> bool {
        self.0 >= 1 << 64
    }
    /// Rounded down. Thousandths.
    pub fn thousandths(self) -> u64 {
        u64::try_from(self.0.saturating_mul(1000) >> 64).unwrap_or(u64::MAX)
    }
}

fn quotient(used: u64, of: u64) -> Dominant {
    if used == 0 {
        return Dominant(0);
    }
    Dominant((u128::from(used) << 64).checked_div(u128::from(of)).unwrap_or(u128::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(gib: u64, cores: u32) -> Resource {
        Resource::new(Bytes::from_gib(gib), Cpus::from_cores(cores))
    }

    #[test]
    fn what_is_not_named_follows_the_part_of_memory_or_is_open() {
        let mut base = size(100, 40);
        base.extra.insert("gpu".parse().expect("name"), 8);
        let half = Bound::part_of(&base, 500);
        assert_eq!((half.memory, half.cpus), (Some(Bytes::from_gib(50)), Some(Cpus::from_cores(20))));
        assert_eq!(half.extra.values().copied().collect::<Vec<_>>(), [4]);
        let exact = Bound::of(&Share { memory: Some(Amount::Exactly(Bytes::from_gib(7))), ..Share::default() }, &base);
        assert_eq!((exact.memory, exact.cpus, exact.extra.len()), (Some(Bytes::from_gib(7)), None, 0));
        assert!(exact.admits(&size(6, 1000), &size(1, 1000)) && !exact.admits(&size(6, 0), &size(2, 0)));
        let passed = exact.passed(&size(6, 0), &size(2, 0)).expect("too much");
        assert_eq!((passed.used.as_str(), passed.most.as_str(), passed.needs.as_str()), ("6 GiB", "7 GiB", "2 GiB"));
    }

    #[test]
    fn the_scarcest_resource_counts() {
        let all = size(100, 10);
        let of = |gib, cores| Dominant::of_all(&size(gib, cores), &all);
        assert!(of(30, 1) > of(1, 2) && of(30, 1) == of(0, 3));
        assert_eq!(of(30, 1).thousandths(), 299, "rounded down");
        assert!(of(30, 1).by_weight(3) <= of(10, 1) && of(100, 0).is_whole() && !of(99, 0).is_whole());
        assert!(Dominant::of_all(&size(1, 1), &Resource::default()).is_whole(), "something of nothing");
    }
}
