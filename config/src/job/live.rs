//! `live` and `lease`: jobs that accept stages and tasks while they run.

use std::time::Duration;

use headroom_types::Name;

use super::profiles::{ClusterProfiles, ProfileTable};
use super::runtime::ExitCodes;
use crate::toml_reader::{self, TomlSection, hint};

/// The default of `lease`.
const USUAL_LEASE: Duration = Duration::from_secs(60);
/// Minimum of `lease`: a client needs time to connect again.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// Maximum of `lease`.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of a live job, and the parts of its file to which declared stages refer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveJob {
    /// Time after which the job ends while no client is connected and no client has closed it.
    pub lease: Duration,
    pub(super) profiles: ClusterProfiles,
    pub(super) codes: ExitCodes,
}

impl LiveJob {
    pub(super) fn new(lease: Duration, profiles: &ProfileTable, codes: ExitCodes) -> LiveJob {
        let valid = |(name, profile): (&Name, &Option<_>)| Some((name.clone(), profile.clone()?));
        LiveJob {
            lease,
            profiles: profiles.iter().filter_map(valid).collect(),
            codes,
        }
    }
}

/// Reads `live` and `lease`: the lease of a live job, `None` for any other job.
pub(super) fn read(root: &mut TomlSection<'_>) -> Option<Duration> {
    let live_hint = hint(
        "a live job accepts stages and tasks while it runs",
        "write live = true, or leave it out",
    );
    let lease_hint = hint(
        "the job ends if no client is connected for this time",
        "write a time from \"1s\" to \"24h\", such as lease = \"60s\"",
    );
    let live = root.read_or("live", live_hint, false, toml_reader::boolean);
    let lease = root.read_or("lease", lease_hint, USUAL_LEASE, |v| {
        let lease = toml_reader::duration(v)?;
        if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
            Ok(lease)
        } else {
            Err("this time is not from 1s to 24h".to_owned())
        }
    });
    if !live && root.has("lease") {
        let why = "only a live job waits for a client";
        root.reject(
            "lease",
            "lease in a job that is not live",
            why,
            "add live = true, or remove lease",
        );
    }
    live.then_some(lease)
}

/// Rejects the keys that need the tasks of a stage to be known when the job starts.
pub(super) fn reject_keys_of_arrays(s: &TomlSection<'_>) {
    for key in ["after", "output", "input", "input_locality", "input_hosts"] {
        if s.has(key) {
            s.reject(
                key,
                format!("{key} in a live stage, which has no array"),
                "its tasks are not known before they are submitted",
                "remove it, or give the stage an array",
            );
        }
    }
}
