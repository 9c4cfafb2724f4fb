//! `[profiles.NAME]`: named sizes, of the file and of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Bytes, Cpus, Name, Profile};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{FileProblem, FileProblemKind, ProblemCollector};
use crate::toml_reader::{self, KeyHint, TomlSection, hint, nonzero_size, parsed, size};

/// Profiles that the cluster stores by name.
pub type ClusterProfiles = BTreeMap<Name, Profile>;

/// Sizes by name. `None` for a size with errors, so that its users are not reported as missing a
/// profile.
pub(super) type ProfileTable = BTreeMap<Name, Option<Profile>>;

const OVERHEAD: KeyHint = hint(
    "off-heap memory counts against the same limit as the heap",
    "write overhead = \"32MiB\", or overhead = { factor = 0.10, min = \"384MiB\" }",
);
const TABLES: KeyHint = hint(
    "a size is written once and used by name",
    "write a table [profiles.NAME] for each size",
);

/// Overhead in its written form: a size, or a share of the heap with a minimum.
enum OverheadSpec {
    Fixed(Bytes),
    Share { parts_per_million: u64, min: Bytes },
}

impl OverheadSpec {
    fn of(&self, heap: Bytes) -> Bytes {
        match self {
            OverheadSpec::Fixed(bytes) => *bytes,
            OverheadSpec::Share {
                parts_per_million,
                min,
            } => heap.mul_ratio(*parts_per_million, 1_000_000).max(*min),
        }
    }
}

/// The profiles of `[profiles.NAME]` tables in a text; other tables are ignored. `rmctl profile
/// import` uses this for job files.
///
/// # Errors
/// The text is not TOML, or a profile has errors.
pub fn defined_profiles(
    text: &str,
    file: &str,
    cluster: &ClusterProfiles,
) -> Result<ClusterProfiles, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let own = own_names(table.get_ref());
    if own.is_empty() && report.is_empty() {
        report.add(
            0..0,
            "profiles",
            "the file has no profiles",
            TABLES.why,
            TABLES.fix,
        );
    }
    let profiles = read(&mut TomlSection::root(&table, &report), cluster);
    let written = profiles
        .into_iter()
        .filter(|(name, _)| own.contains(name.as_str()));
    report.finish(Some(
        written
            .filter_map(|(name, profile)| Some((name, profile?)))
            .collect(),
    ))
}

/// A single profile: a text with the keys of a profile and no others.
///
/// # Errors
/// As [`defined_profiles`].
pub fn parse_profile(text: &str, file: &str) -> Result<Profile, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let profile = one(TomlSection::root(&table, &report), &ProfileTable::new());
    report.finish(profile)
}

/// Names of profiles that a job file uses but does not define, so that the cluster must. Empty for
/// a text that is not TOML.
pub fn cluster_profile_names(text: &str) -> BTreeSet<Name> {
    let (table, _) = DeTable::parse_recoverable(text);
    let root = table.get_ref();
    let named = |table: &DeTable<'_>, key: &str| {
        table
            .get(key)
            .and_then(|v| v.get_ref().as_str()?.parse::<Name>().ok())
    };
    let each = |tables: &str, key: &str| -> Vec<Name> {
        let tables = root
            .get(tables)
            .and_then(|value| value.get_ref().as_table())
            .into_iter()
            .flat_map(|t| t.values());
        tables
            .filter_map(|value| named(value.get_ref().as_table()?, key))
            .collect()
    };
    let stages = root
        .get("stage")
        .and_then(|value| value.get_ref().as_array());
    let stages = stages
        .into_iter()
        .flat_map(|all| all.iter())
        .filter_map(|stage| named(stage.get_ref().as_table()?, "profile"));
    let own = own_names(root);
    let used = each("executors", "profile")
        .into_iter()
        .chain(each("profiles", "from"))
        .chain(stages);
    used.filter(|name| !own.contains(name.as_str())).collect()
}

fn own_names<'a>(root: &'a DeTable<'_>) -> BTreeSet<&'a str> {
    let tables = root
        .get("profiles")
        .and_then(|value| value.get_ref().as_table());
    tables
        .into_iter()
        .flat_map(|t| t.keys())
        .map(|name| name.get_ref().as_ref())
        .collect()
}

/// The text of a job file with the definitions of the cluster profiles that it uses. A submitted
/// job keeps its sizes even if the cluster's profiles change later.
pub fn inline_cluster_profiles(text: &str, cluster: &ClusterProfiles) -> String {
    use std::fmt::Write as _;
    let mut whole = text.to_owned();
    let (table, _) = DeTable::parse_recoverable(text);
    let root = table.get_ref();
    let live = root.get("live").and_then(|v| v.get_ref().as_bool()) == Some(true);
    // Stages that are declared later may use any profile.
    let used: BTreeSet<Name> = if live {
        let own = own_names(root);
        let all = cluster.keys().filter(|name| !own.contains(name.as_str()));
        all.cloned().collect()
    } else {
        cluster_profile_names(text)
    };
    for (name, profile) in used.iter().filter_map(|name| cluster.get_key_value(name)) {
        let Profile {
            heap,
            overhead,
            cpus,
        } = profile;
        let keys = format!(
            "heap = {}\noverhead = {}\ncpus = \"{cpus}\"",
            heap.get(),
            overhead.get()
        );
        // Writing to a `String` cannot fail.
        let _ = write!(
            whole,
            "\n# The profile of the cluster at submission.\n[profiles.\"{name}\"]\n{keys}\n"
        );
    }
    whole
}

pub(super) fn read(root: &mut TomlSection<'_>, cluster: &ClusterProfiles) -> ProfileTable {
    let mut profiles: ProfileTable = cluster
        .iter()
        .map(|(name, profile)| (name.clone(), Some(profile.clone())))
        .collect();
    let tables = root.named_tables("profiles", TABLES);
    // Profiles of the file override those of the cluster, also for profiles with `from`.
    profiles.retain(|known, _| {
        tables
            .iter()
            .all(|(name, _)| name.get_ref() != known.as_str())
    });
    let (inheriting, whole): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .partition(|(_, section)| section.has("from"));
    let whole = all(whole, root.problems(), &profiles);
    profiles.extend(whole);
    let inheriting = all(inheriting, root.problems(), &profiles);
    profiles.extend(inheriting);
    profiles
}

fn all(
    tables: Vec<(Spanned<String>, TomlSection<'_>)>,
    r: &ProblemCollector<'_>,
    others: &ProfileTable,
) -> ProfileTable {
    let mut read = ProfileTable::new();
    for (name, section) in tables {
        let profile = one(section, others);
        match name.get_ref().parse::<Name>() {
            Ok(id) => {
                read.insert(id, profile);
            }
            Err(e) => r.add(
                name.span(),
                &format!("profiles.{}", name.get_ref()),
                e.to_string(),
                "stages refer to it",
                "rename it",
            ),
        }
    }
    read
}

/// The profile that the key `key` of a section names. The outer `None` means that the section has
/// no usable name.
pub(super) fn named(
    name: &Spanned<Name>,
    key: &str,
    s: &TomlSection<'_>,
    profiles: &ProfileTable,
) -> Option<Profile> {
    if let Some(profile) = profiles.get(name.get_ref()) {
        return profile.clone();
    }
    let known: Vec<&str> = profiles.keys().map(Name::as_str).collect();
    let fix = match toml_reader::closest_name(name.get_ref().as_str(), &known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => {
            format!(
                "add a table [profiles.{}], or name one of the cluster (rmctl profile list)",
                name.get_ref()
            )
        }
        None => format!(
            "add a table [profiles.{}], or use one of: {}",
            name.get_ref(),
            known.join(", ")
        ),
    };
    s.problems().add_kind(
        FileProblemKind::UnknownProfile(name.get_ref().clone()),
        name.span(),
        &s.path_of(key),
        format!("there is no profile \"{}\"", name.get_ref()),
        "it gives the size",
        fix,
    );
    None
}

fn one(mut s: TomlSection<'_>, others: &ProfileTable) -> Option<Profile> {
    let heap_hint = hint(
        "container memory is heap + overhead",
        "write a size such as heap = \"512MiB\"",
    );
    let memory_hint = hint(
        "a program without a managed heap has one size",
        "write a size such as memory = \"1GiB\"",
    );
    let cpus_hint = hint(
        "it sets the share of processors",
        "write a number of cores, such as cpus = 2 or cpus = 0.5",
    );
    let from_hint = hint(
        "omitted values are taken from this profile",
        "write from = \"NAME\" of another profile, or leave it out",
    );
    let from = s.read("from", from_hint, parsed::<Name>);
    let inheriting = from.is_some();
    let from = from.and_then(|name| named(&name, "from", &s, others));
    if inheriting && from.is_none() {
        // Already reported; errors that follow from it are suppressed.
        for key in ["memory", "heap", "overhead", "cpus"] {
            s.value(key);
        }
        s.reject_unknown_keys();
        return None;
    }
    let memory = s.read("memory", memory_hint, nonzero_size);
    let overhead = s.read("overhead", OVERHEAD, overhead);
    let usual = from.as_ref().map_or(Cpus::from_cores(1), |from| from.cpus);
    let cpus = s.read_or("cpus", cpus_hint, usual, toml_reader::cpus);
    let heap = if s.has("memory") {
        s.read("heap", heap_hint, nonzero_size);
        if s.has("heap") || s.has("overhead") {
            let place = s.place("memory");
            let why = "memory is short for heap = memory and overhead = 0";
            s.add(
                place,
                "memory",
                "memory together with heap or overhead",
                why,
                "remove memory, or the other two",
            );
        }
        memory.map(Spanned::into_inner)
    } else if let (Some(from), false) = (&from, s.has("heap")) {
        s.value("heap");
        Some(from.heap)
    } else {
        s.read_required("heap", heap_hint, nonzero_size)
            .map(Spanned::into_inner)
    };
    let rest = from
        .filter(|_| !s.has("memory"))
        .map_or(Bytes::ZERO, |from| from.overhead);
    s.reject_unknown_keys();
    let heap = heap?;
    let overhead = overhead
        .map(Spanned::into_inner)
        .map_or(rest, |o| o.of(heap));
    Some(Profile {
        heap,
        overhead,
        cpus,
    })
}

fn overhead(value: &DeValue<'_>) -> Result<OverheadSpec, String> {
    let Some(table) = value.as_table() else {
        return size(value).map(OverheadSpec::Fixed);
    };
    if let Some(other) = table
        .keys()
        .find(|k| !matches!(k.get_ref().as_ref(), "factor" | "min"))
    {
        return Err(format!("unknown key {:?}", other.get_ref()));
    }
    let factor = table.get("factor").ok_or("factor is missing")?;
    let number = match factor.get_ref() {
        DeValue::Integer(n) => n.as_str().parse::<f64>(),
        DeValue::Float(n) => n.as_str().parse::<f64>(),
        DeValue::String(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            return Err(format!(
                "factor is {}, not a number",
                toml_reader::kind(factor.get_ref())
            ));
        }
    };
    let number = number
        .ok()
        .filter(|n| (0.0..=100.0).contains(n))
        .ok_or("factor is not between 0 and 100")?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // the range is checked in the line above
    let parts_per_million = (number * 1_000_000.0).round() as u64;
    let min = table
        .get("min")
        .map(|m| size(m.get_ref()))
        .transpose()
        .map_err(|e| format!("min: {e}"))?;
    Ok(OverheadSpec::Share {
        parts_per_million,
        min: min.unwrap_or_default(),
    })
}
