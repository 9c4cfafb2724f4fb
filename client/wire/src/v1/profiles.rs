//! Profiles of the cluster: named sizes of an administrator, for job files without own sizes.

use headroom_types::{Bytes, Cpus, Name, Profile, UnixMillis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of [`ProfileSpec::about`]. Bytes.
pub const MAX_ABOUT_BYTES: usize = 200;

/// `PUT /v1/profiles/{name}`: set the size of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Heap of a runtime with managed memory; all memory of a native program. Bytes.
    pub heap: Bytes,
    /// All other memory that counts against the limit. Bytes.
    #[serde(default)]
    pub overhead: Bytes,
    /// Processors, cores.
    #[serde(default = "one_core")]
    pub cpus: Cpus,
    /// Purpose, at most 200 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

fn one_core() -> Cpus {
    Cpus::from_cores(1)
}

/// A profile of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterProfile {
    /// Name in job files.
    pub name: Name,
    /// Heap of a runtime with managed memory; all memory of a native program. Bytes.
    pub heap: Bytes,
    /// All other memory that counts against the limit. Bytes.
    pub overhead: Bytes,
    /// Processors, cores.
    pub cpus: Cpus,
    /// Purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Revision, changed by every update; usable in `If-Match`.
    pub revision: u64,
    /// Time of the last change.
    pub changed: UnixMillis,
}

impl ClusterProfile {
    /// The size.
    pub fn size(&self) -> Profile {
        Profile {
            heap: self.heap,
            overhead: self.overhead,
            cpus: self.cpus,
        }
    }
    /// The specification that sets this profile.
    pub fn spec(&self) -> ProfileSpec {
        ProfileSpec {
            heap: self.heap,
            overhead: self.overhead,
            cpus: self.cpus,
            about: self.about.clone(),
        }
    }
}
