//! `[profiles.NAME]`: named sizes.

use std::collections::BTreeMap;

use headroom_types::{Bytes, Cpus, Name, Profile};
use toml::Spanned;
use toml::de::DeValue;

use crate::problem::Report;
use crate::raw::{self, Hint, Section, hint};

/// Sizes by name. A size that is wrong is there as `None`, so that its users are not told of a missing one.
pub(super) type Profiles = BTreeMap<Name, Option<Profile>>;

const OVERHEAD: Hint = hint(
    "off-heap memory counts against the same limit as the heap",
    "write overhead = \"32MiB\", or overhead = { factor = 0.10, min = \"384MiB\" }",
);

/// Overhead as it is written: a size, or a share of the heap with a least size.
enum Overhead {
    Fixed(Bytes),
    Share { parts_per_million: u64, min: Bytes },
}

impl Overhead {
    fn of(&self, heap: Bytes) -> Bytes {
        match self {
            Overhead::Fixed(bytes) => *bytes,
            Overhead::Share { parts_per_million, min } => heap.mul_ratio(*parts_per_million, 1_000_000).max(*min),
        }
    }
}

pub(super) fn read(root: &mut Section<'_>, r: &mut Report<'_>) -> Profiles {
    let tables = hint("sizes are written once and used by name", "write a table [profiles.NAME] for each size");
    let mut profiles = Profiles::new();
    for (name, section) in root.named_tables(r, "profiles", tables) {
        let profile = one(section, r);
        match name.get_ref().parse::<Name>() {
            Ok(id) => {
                profiles.insert(id, profile);
            }
            Err(e) => {
                r.add(name.span(), &format!("profiles.{}", name.get_ref()), e.to_string(), "stages refer to it", "rename it")
            }
        }
    }
    profiles
}

fn one(mut s: Section<'_>, r: &mut Report<'_>) -> Option<Profile> {
    let heap_hint = hint("container memory is heap + overhead", "write a size such as heap = \"512MiB\"");
    let memory_hint = hint("a program without a managed heap has one size", "write a size such as memory = \"1GiB\"");
    let cpus_hint = hint("processors are shared out by it", "write a number of cores, such as cpus = 2 or cpus = 0.5");
    let memory = s.read(r, "memory", memory_hint, raw::some_memory);
    let overhead = s.read(r, "overhead", OVERHEAD, overhead);
    let cpus = s.read_or(r, "cpus", cpus_hint, Cpus::from_cores(1), raw::cpus);
    let heap = if s.has("memory") {
        s.read(r, "heap", heap_hint, raw::some_memory);
        if s.has("heap") || s.has("overhead") {
            let place = s.place("memory");
            let why = "memory is short for heap = memory and overhead = 0";
            r.add(place, &s.path_of("memory"), "memory together with heap or overhead", why, "remove memory, or the other two");
        }
        memory
    } else {
        s.need(r, "heap", heap_hint, raw::some_memory)
    };
    s.finish(r);
    let heap = heap?.into_inner();
    let overhead = overhead.map(Spanned::into_inner).map_or(Bytes::ZERO, |o| o.of(heap));
    Some(Profile { heap, overhead, cpus })
}

fn overhead(value: &DeValue<'_>) -> Result<Overhead, String> {
    let Some(table) = value.as_table() else { return raw::size(value).map(Overhead::Fixed) };
    if let Some(other) = table.keys().find(|k| !matches!(k.get_ref().as_ref(), "factor" | "min")) {
        return Err(format!("it has no part {:?}", other.get_ref()));
    }
    let factor = table.get("factor").ok_or("factor is missing")?;
    let number = match factor.get_ref() {
        DeValue::Integer(n) => n.as_str().parse::<f64>(),
        DeValue::Float(n) => n.as_str().parse::<f64>(),
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            return Err(format!("factor is {}, not a number", raw::kind(factor.get_ref())));
        }
    };
    let number = number.ok().filter(|n| (0.0..=100.0).contains(n)).ok_or("factor is not between 0 and 100")?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the range was checked in the line above
    let parts_per_million = (number * 1_000_000.0).round() as u64;
    let min = table.get("min").map(|m| raw::size(m.get_ref())).transpose().map_err(|e| format!("min: {e}"))?;
    Ok(Overhead::Share { parts_per_million, min: min.unwrap_or_default() })
}
