//! Which enforcer this host can have, and why not a better one.

use std::path::PathBuf;

use headroom_types::EnforcerKind;

use crate::enforcer::Enforcer;
use crate::error::Result;

/// What the caller would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// This kind or none; `None` takes the best there is.
    pub kind: Option<EnforcerKind>,
    /// The directory to work in, such as the delegated cgroup of the keeper's unit (v1: in the memory hierarchy).
    pub root: Option<PathBuf>,
    /// Name of the directory to make where no root is given, such as `headroom`.
    pub name: String,
}

/// What there is.
#[derive(Debug)]
pub struct Found {
    /// Ready for use.
    pub enforcer: Enforcer,
    /// Why this one, and what the better ones lacked.
    pub notes: Vec<String>,
}

/// Chooses an enforcer and prepares its directories.
pub fn detect(wanted: &Wanted) -> Result<Found> {
    let _ = wanted;
    unimplemented!()
}
