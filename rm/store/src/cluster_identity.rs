//! The identity of a cluster, in etcd and in the state directory of each manager: so that no manager
//! leads another cluster than its own.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use headroom_identity::token;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::etcd::EtcdEngine;
use crate::snapshot::whole;

/// Name of the file in the state directory.
pub(crate) const NAME: &str = "cluster";

/// The content of the file, and of the key in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterIdentity {
    /// A random name.
    cluster: String,
}

/// Compares the identity in etcd with the one in the state directory. A new state gets one, and a
/// new directory takes that of the state. `commit` is the last commit of the state.
pub(crate) fn agree(
    dir: &Path,
    database: &Path,
    etcd: &EtcdEngine,
    commit: u64,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::database(dir, database, source);
    let path = dir.join(NAME);
    let own = read(&path)?;
    let stored = etcd.cluster().map_err(failed)?;
    let stored = stored.map(|text| parse(database, &text)).transpose()?;
    let identity = match (stored, own.clone()) {
        (Some(stored), Some(own)) if stored != own => {
            return Err(StoreError::OtherCluster {
                state: database.to_owned(),
                stored: stored.cluster,
                own: own.cluster,
                file: path,
            });
        }
        (Some(stored), _) => stored,
        (None, Some(own)) => own,
        (None, None) => random()?,
    };
    let text = serde_json::to_vec(&identity).map_err(|source| StoreError::Encode {
        key: NAME.to_owned(),
        source,
    })?;
    if commit == 0 || etcd.cluster().map_err(failed)?.is_none() {
        etcd.set_cluster(text.clone()).map_err(failed)?;
    }
    if own.is_none() {
        use std::io::Write as _;
        whole(&dir.join("cluster.new"), &path, |mut file| {
            file.write_all(&text)
        })?;
    }
    Ok(())
}

/// The names of the clusters in etcd and in the state directory.
pub(crate) fn compare(
    dir: &Path,
    database: &Path,
    etcd: &EtcdEngine,
) -> Result<(Option<String>, Option<String>), StoreError> {
    let stored = etcd
        .cluster()
        .map_err(|source| StoreError::database(dir, database, source))?;
    let stored = stored.map(|text| parse(database, &text)).transpose()?;
    let own = read(&dir.join(NAME))?;
    Ok((stored.map(|one| one.cluster), own.map(|one| one.cluster)))
}

fn read(path: &Path) -> Result<Option<ClusterIdentity>, StoreError> {
    match fs::read(path) {
        Ok(text) => Ok(Some(parse(path, &text)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::file(path, source)),
    }
}

fn parse(place: &Path, text: &[u8]) -> Result<ClusterIdentity, StoreError> {
    serde_json::from_slice(text).map_err(|error| StoreError::Corrupt {
        file: place.to_owned(),
        what: format!("the identity of the cluster cannot be read: {error}"),
        advice: "Put the right one back from another host of a resource manager".into(),
    })
}

fn random() -> Result<ClusterIdentity, StoreError> {
    let bytes: [u8; 8] = token::random().map_err(|error| StoreError::File {
        file: NAME.into(),
        source: std::io::Error::other(error.to_string()),
    })?;
    let cluster = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(ClusterIdentity { cluster })
}
