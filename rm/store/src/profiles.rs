//! The profiles of the cluster on disk: named sizes for job files.
//!
//! One record holds all profiles, so that a reader never sees a partial change. The core does not
//! know them: the size is written into a job file at submission.

use headroom_types::{Name, Profile, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::replay_error::{ReplayError, parse};

/// Key of the one [`SavedProfiles`] record.
pub(crate) const PROFILES: &str = "profiles";

/// All profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProfiles {
    /// Increases with every change and is never used twice.
    pub generation: u64,
    /// The profiles.
    pub profiles: Vec<SavedProfile>,
}

/// One profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProfile {
    /// Its name.
    pub name: Name,
    /// The size.
    pub size: Profile,
    /// The description by its author.
    #[serde(default)]
    pub about: String,
    /// The generation that set this size.
    pub revision: u64,
    /// The time of that change.
    pub changed: UnixMillis,
}

/// The profiles among the records.
///
/// # Errors The record cannot be parsed.
pub fn profiles(records: &[(String, Vec<u8>)]) -> Result<SavedProfiles, ReplayError> {
    let Some((key, value)) = records.iter().find(|(key, _)| key == PROFILES) else {
        return Ok(SavedProfiles::default());
    };
    parse(key, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    #[test]
    fn profiles_are_restored_and_a_damaged_record_is_named() {
        let size = Profile {
            heap: Bytes::from_gib(4),
            overhead: Bytes::from_mib(512),
            cpus: Cpus::from_cores(2),
        };
        let name = "jvm-medium".parse().expect("a name");
        let one = SavedProfile {
            name,
            size,
            about: "for most".into(),
            revision: 3,
            changed: UnixMillis(7),
        };
        let all = SavedProfiles {
            generation: 5,
            profiles: vec![one],
        };
        let record = (
            PROFILES.to_owned(),
            serde_json::to_vec(&all).expect("encodes"),
        );
        assert_eq!(profiles(std::slice::from_ref(&record)).expect("reads"), all);
        assert_eq!(
            profiles(&[]).expect("reads no profiles"),
            SavedProfiles::default()
        );
        let damaged =
            profiles(&[(PROFILES.to_owned(), b"{".to_vec())]).expect_err("the record is damaged");
        assert!(damaged.to_string().contains("profiles"), "{damaged}");
    }
}
