//! Clusters whose masters keep their journals where other nodes read them.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{Cluster, IN_RESOURCE_MANAGER, NodeShape, TestContainerUser, cluster_dir};
use crate::object_store::ObjectStoreServer;

impl Cluster {
    /// As [`Cluster::start_managed`], with this place for the journals of masters: a directory, which
    /// is created below that of the cluster, or [`IN_RESOURCE_MANAGER`]; `None` for the nodes.
    pub fn start_sharing_journals(
        shapes: &[NodeShape],
        configuration: &str,
        journals: Option<&str>,
    ) -> Result<Self> {
        Cluster::start_with_agent_keys(shapes, configuration, |dir| {
            let place = match journals {
                Some(name) if name != IN_RESOURCE_MANAGER => {
                    let shared = dir.join(name);
                    fs::create_dir(&shared)?;
                    Some(shared.display().to_string())
                }
                other => other.map(str::to_owned),
            };
            let keys = place.map(|place| format!("[masters]\njournals = {place:?}\n"));
            Ok(keys.unwrap_or_default())
        })
    }

    /// As [`Cluster::start_managed`], with the journals of masters in this object store.
    pub fn start_with_object_store(
        shapes: &[NodeShape],
        configuration: &str,
        store: &ObjectStoreServer,
    ) -> Result<Self> {
        Cluster::start_with_agent_keys(shapes, configuration, |_| Ok(store.agent_keys()))
    }

    fn start_with_agent_keys(
        shapes: &[NodeShape],
        configuration: &str,
        keys: impl FnOnce(&Path) -> Result<String>,
    ) -> Result<Self> {
        let dir = cluster_dir()?;
        let file = dir.path().join("resourcemanager.toml");
        fs::write(&file, configuration)?;
        let keys = keys(dir.path())?;
        let mut cluster = Cluster::new_in(dir, shapes, (TestContainerUser::Own, Some(file)))?;
        cluster.agent_keys = keys;
        cluster.start_daemons()?;
        Ok(cluster)
    }
}
