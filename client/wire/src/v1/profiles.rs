//! Profiles of the cluster: sizes under names that an administrator keeps, for job files that write none of their own.

use headroom_types::{Bytes, Cpus, Name, Profile, UnixMillis};
use serde::{Deserialize, Serialize};

/// Most bytes of [`ProfileSpec::about`].
pub const LONGEST_ABOUT: usize = 200;

/// `PUT /v1/profiles/{name}`: the size that goes by the name from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Memory of a runtime that manages its own; all memory, for a program that has one quantity. Bytes.
    pub heap: Bytes,
    /// All else that counts against the limit. Bytes.
    #[serde(default)]
    pub overhead: Bytes,
    /// Processors, cores.
    #[serde(default = "one_core")]
    pub cpus: Cpus,
    /// What it is for. At most 200 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

fn one_core() -> Cpus {
    Cpus::from_cores(1)
}

/// One profile of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterProfile {
    /// What job files call it.
    pub name: Name,
    /// Memory of a runtime that manages its own; all memory, for a program that has one quantity. Bytes.
    pub heap: Bytes,
    /// All else that counts against the limit. Bytes.
    pub overhead: Bytes,
    /// Processors, cores.
    pub cpus: Cpus,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Another one with every change; `If-Match` takes it.
    pub revision: u64,
    /// When it was given this size.
    pub changed: UnixMillis,
}

impl ClusterProfile {
    /// The size.
    pub fn size(&self) -> Profile {
        Profile { heap: self.heap, overhead: self.overhead, cpus: self.cpus }
    }
    /// What would set it to what it is.
    pub fn spec(&self) -> ProfileSpec {
        ProfileSpec { heap: self.heap, overhead: self.overhead, cpus: self.cpus, about: self.about.clone() }
    }
}
