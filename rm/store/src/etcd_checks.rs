//! Checks of the etcd of a resource manager, for an operator.

use std::sync::Arc;

use headroom_config::ResourceManagerConfig;
use headroom_rm_etcd::{EtcdClient, EtcdError, EtcdKeys, EtcdThread};

pub use headroom_rm_etcd::checks::{CheckState, EtcdCheck};

use crate::StoreError;
use crate::cluster_identity;
use crate::etcd::EtcdEngine;
use crate::open::etcd_place;

/// Checks the etcd that a configuration names, and whether the state in it belongs to the cluster
/// of the state directory. Blocking. No key changes.
///
/// # Errors
/// The certificates in `etcd.tls` cannot be used.
pub fn examine(config: &ResourceManagerConfig) -> Result<Vec<EtcdCheck>, StoreError> {
    let etcd = config.etcd.clone();
    let place = etcd_place(&etcd.prefix);
    let failed = |source: EtcdError| StoreError::database(&place, &place, source.into());
    let thread = EtcdThread::start().map_err(|source| StoreError::File {
        file: place.clone(),
        source,
    })?;
    let client = EtcdClient::new(&etcd).map_err(failed)?;
    let engine = EtcdEngine::reader(
        Arc::new(thread),
        client.clone(),
        EtcdKeys::new(&etcd.prefix),
    );
    let mut checks = engine
        .examine(client, etcd)
        .map_err(|source| StoreError::database(&place, &place, source))?;
    if checks.iter().all(|check| check.state != CheckState::Fail) {
        checks.push(cluster(config, &engine));
    }
    Ok(checks)
}

fn cluster(config: &ResourceManagerConfig, engine: &EtcdEngine) -> EtcdCheck {
    let prefix = engine.prefix();
    let mut check = EtcdCheck {
        code: "etcd-cluster",
        state: CheckState::Ok,
        what: "each cluster has a prefix of its own",
        found: String::new(),
        fix: None,
    };
    match cluster_identity::compare(&config.state, &etcd_place(prefix), engine) {
        Ok((None, _)) => check.found = format!("{prefix} has no cluster yet"),
        Ok((Some(stored), None)) => {
            check.found = format!("{prefix} belongs to cluster {stored}; this host joins it");
        }
        Ok((Some(stored), Some(own))) if stored == own => {
            check.found = format!("{prefix} belongs to cluster {own}, as this host does");
        }
        Ok((Some(stored), Some(own))) => {
            check.state = CheckState::Fail;
            check.found = format!(
                "{prefix} belongs to cluster {stored}, and {} to cluster {own}",
                config.state.display()
            );
            check.fix = Some("set another etcd.prefix, or another state directory".into());
        }
        Err(error) => {
            check.state = CheckState::Fail;
            check.found = error.to_string();
            check.fix = Some("run this as root or as the user of the resource manager".into());
        }
    }
    check
}
