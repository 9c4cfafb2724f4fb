//! Job families: what earlier jobs of one user and one name have needed, stage by stage, for first sizes and for people.

use headroom_types::{Bytes, Name, UnixMillis};
use serde::{Deserialize, Serialize};

/// One family in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FamilyRow {
    /// Who submitted its jobs.
    pub user: String,
    /// The name that its jobs have in common.
    pub name: Name,
    /// Jobs that have taught something.
    pub runs: u32,
    /// Tasks that are remembered.
    pub tasks: u32,
    /// When the latest of its jobs ended.
    pub last: UnixMillis,
}

/// `GET /v1/families/{name}`: all that is remembered of one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Family {
    /// Who submitted its jobs.
    pub user: String,
    /// The name that its jobs have in common.
    pub name: Name,
    /// Jobs that have taught something.
    pub runs: u32,
    /// When the latest of its jobs ended.
    pub last: UnixMillis,
    /// Its kinds of tasks, by name.
    pub kinds: Vec<Kind>,
}

/// The tasks of one stage, over all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kind {
    /// Name of the stage.
    pub name: String,
    /// The latest tasks that ended well, the oldest first.
    pub tasks: Vec<Need>,
}

/// What one task needed that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Need {
    /// Most memory it had in use. Bytes.
    pub peak: Bytes,
    /// Memory of its first attempt. Bytes.
    pub first: Bytes,
    /// Memory of the attempt that ended well. Bytes.
    pub last: Bytes,
    /// Attempts that failed for memory.
    pub kills: u32,
    /// How long the attempt ran that ended well. Milliseconds.
    pub runtime_ms: u64,
}
