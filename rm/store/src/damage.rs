//! Error for a damaged database, with the next step of the operator.
//!
//! It reads the snapshots to choose the step, and changes nothing.

use std::path::Path;

use crate::{StoreError, snapshot};

/// An error for a damaged database, with the next step of the operator.
pub(crate) fn corrupt(dir: &Path, database: &Path, what: &dyn std::fmt::Display) -> StoreError {
    let usable = snapshot::list(dir).ok().and_then(|all| {
        all.into_iter()
            .rev()
            .find(|path| snapshot::read(path).is_ok())
    });
    let then = match usable {
        Some(path) => format!("the next start then continues from {}", path.display()),
        None => "there is no readable snapshot to continue from".to_owned(),
    };
    let advice = format!(
        "Restore a backup: rmctl operator state restore --state {} --from FILE --replace; or move {} away ({then})",
        dir.display(),
        database.display()
    );
    StoreError::Corrupt {
        file: database.to_owned(),
        what: what.to_string(),
        advice,
    }
}

/// An error for damaged content in etcd.
pub(crate) fn corrupt_in_etcd(database: &Path, what: &dyn std::fmt::Display) -> StoreError {
    let advice =
        "Restore a backup: rmctl operator state restore --config FILE --from FILE --replace";
    StoreError::Corrupt {
        file: database.to_owned(),
        what: what.to_string(),
        advice: advice.to_owned(),
    }
}
