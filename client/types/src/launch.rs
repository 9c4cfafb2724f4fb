//! Description of the program of a container. The resource manager carries it from the caller to
//! the node without reading it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Bytes, FetchedFile, Name};

/// Command, environment and files of a container. Part of the request, so that the node receives
/// grant and launch in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// Program and arguments. The node agent replaces `{memory}` `{heap}` `{container}` `{node}`
    /// `{app_dir}` in arguments and values. It looks for a program without a slash in its own
    /// directory, then on its PATH.
    pub command: Vec<String>,
    /// Environment variables, added to a minimal environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Small files that are written into the working directory before the start: name and text. A
    /// name cannot leave the directory.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Larger files and archives that the node fetches into the working directory before the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<FetchedFile>,
    /// Auxiliary services of the node that run before the program starts. The node must have each
    /// of them in its configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aux_services: Vec<Name>,
    /// Heap budget of its runtime; `None` without a declared runtime. Bytes.
    pub heap: Option<Bytes>,
    /// Exit codes by which the runtime reports a full heap.
    #[serde(default)]
    pub heap_exit_codes: Vec<i32>,
    /// Time between SIGTERM and SIGKILL; 2000 if omitted. Milliseconds.
    pub stop_grace_ms: Option<u64>,
    /// Maximum number of processes; the default of the node if omitted.
    pub max_processes: Option<u32>,
    /// True if the program creates cgroups for tasks below the cgroup of its container.
    #[serde(default)]
    pub task_groups: bool,
}
