//! Calls about profiles of the cluster.

use headroom_types::Name;
use headroom_wire::v1::profiles;
use reqwest::Method;

use crate::{Client, ClientResult, DryRunMode};

/// The path of a profile of the cluster, with `dry_run` if the call must not apply the change.
fn profile_path(name: &Name, how: DryRunMode) -> String {
    let only = if how.dry_run() { "?dry_run=true" } else { "" };
    format!("/v1/profiles/{name}{only}")
}

impl Client {
    /// Lists the profiles of the cluster.
    pub async fn profiles(&self) -> ClientResult<Vec<profiles::ClusterProfile>> {
        self.get("/v1/profiles").await
    }
    /// Returns one profile of the cluster.
    pub async fn profile(&self, name: &Name) -> ClientResult<profiles::ClusterProfile> {
        self.get(&format!("/v1/profiles/{name}")).await
    }
    /// Sets the size of a profile of the cluster. The call fails if the profile does not have
    /// `revision`; without `revision` it always applies.
    pub async fn set_profile(
        &self,
        name: &Name,
        spec: &profiles::ProfileSpec,
        revision: Option<u64>,
        how: DryRunMode,
    ) -> ClientResult<profiles::ClusterProfile> {
        self.change(
            Method::PUT,
            &profile_path(name, how),
            revision.map(|r| format!("\"{r}\"")).as_deref(),
            spec,
        )
        .await
    }
    /// Deletes a profile of the cluster and returns it as it was before.
    pub async fn unset_profile(
        &self,
        name: &Name,
        revision: Option<u64>,
        how: DryRunMode,
    ) -> ClientResult<profiles::ClusterProfile> {
        self.change(
            Method::DELETE,
            &profile_path(name, how),
            revision.map(|r| format!("\"{r}\"")).as_deref(),
            &(),
        )
        .await
    }
}
