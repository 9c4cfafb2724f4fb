//! systemd as process 1 of a guest: a copy-on-write root over the host's files, then the host's own systemd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use integration::guest::job::Job;

/// First argument when systemd runs this program as the unit of the job.
pub(crate) const UNIT_ARGUMENT: &str = "--unit";

/// Never returns when it works.
pub(crate) fn become_systemd(_dir: &Path, _task: &Job, _files: &BTreeMap<PathBuf, String>) -> Result<()> {
    bail!("not yet")
}

/// Runs the job's program as a unit and leaves its result.
pub(crate) fn run_as_unit() -> Result<()> {
    bail!("not yet")
}
