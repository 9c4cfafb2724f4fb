//! What to do about it: a table of rules over the evidence, cheapest cure first.
//!
//! Owned by whoever made the verdict. It never changes the verdict, and it stays silent where nothing points anywhere.

use headroom_types::{Diagnosis, Evidence};

use crate::classify::Verdict;

/// Causes and cures for a verdict; empty where memory was not the matter.
pub fn diagnose(e: &Evidence, v: &Verdict) -> Vec<Diagnosis> {
    let _ = (e, v);
    Vec::new()
}
