//! Figures of the source text itself, to compare one state of the repository with another.

use std::path::Path;

use anyhow::{Context, Result};
use integration::source_metrics::{self, SourceMetrics};

/// Reads the repository that this program was built from.
pub(crate) fn measure() -> Result<SourceMetrics> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the integration crate lies in the repository")?;
    source_metrics::of_repository(root)
}
