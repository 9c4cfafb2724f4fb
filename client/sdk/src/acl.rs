//! Calls about tokens, policies, certificates and access to applications.

use headroom_types::AppId;
use headroom_wire::v1::acl;
use reqwest::Method;

use crate::{Client, ClientResult};

impl Client {
    /// Mints the first token of a cluster. The call works once, and only on the host of the
    /// resource manager.
    pub async fn bootstrap(&self) -> ClientResult<acl::MintedToken> {
        self.post("/v1/acl/bootstrap", &()).await
    }
    /// Lists the valid tokens, without their secrets.
    pub async fn tokens(&self) -> ClientResult<Vec<acl::TokenView>> {
        self.get("/v1/acl/tokens").await
    }
    /// Mints a token for a user.
    pub async fn mint(&self, token: &acl::CreateTokenRequest) -> ClientResult<acl::MintedToken> {
        self.post("/v1/acl/tokens", token).await
    }
    /// Mints a token with which one host can join the cluster as a node.
    pub async fn mint_join(
        &self,
        token: &acl::CreateJoinTokenRequest,
    ) -> ClientResult<acl::MintedToken> {
        self.post("/v1/acl/join-tokens", token).await
    }
    /// Revokes a token and returns it as it was before.
    pub async fn revoke(&self, accessor: &str) -> ClientResult<acl::TokenView> {
        self.delete(&format!("/v1/acl/tokens/{accessor}")).await
    }
    /// Returns the identity and the rights of the caller.
    pub async fn who_am_i(&self) -> ClientResult<acl::CallerIdentity> {
        self.get("/v1/acl/self").await
    }
    /// Lists the policies of users and groups that differ from the default.
    pub async fn policies(&self) -> ClientResult<Vec<acl::PolicyView>> {
        self.get("/v1/acl/policies").await
    }
    /// Sets the policy of a user or a group.
    pub async fn set_policy(
        &self,
        subject: &str,
        policy: &acl::PolicySpec,
    ) -> ClientResult<acl::PolicyView> {
        self.change(
            Method::PUT,
            &format!("/v1/acl/policies/{subject}"),
            None,
            policy,
        )
        .await
    }
    /// Deletes the policy of a user or a group, so that the default applies again. Returns the
    /// policy as it was before.
    pub async fn forget_policy(&self, subject: &str) -> ClientResult<acl::PolicyView> {
        self.delete(&format!("/v1/acl/policies/{subject}")).await
    }
    /// Returns the users and groups that may view or change an application.
    pub async fn app_access(&self, app: &AppId) -> ClientResult<acl::AppAccess> {
        self.get(&format!("/v1/apps/{app}/access")).await
    }
    /// Replaces the users and groups that may view or change an application.
    pub async fn share_app(
        &self,
        app: &AppId,
        access: &acl::AppAccess,
    ) -> ClientResult<acl::AppAccess> {
        self.change(Method::PUT, &format!("/v1/apps/{app}/access"), None, access)
            .await
    }
    /// Returns the authority of the cluster. The caller must compare it with a fingerprint before
    /// trusting it.
    pub async fn ca(&self) -> ClientResult<acl::AuthorityView> {
        self.get("/v1/ca").await
    }
    /// Joins this host to the cluster as a node, with the join token of the client.
    pub async fn join(&self, join: &acl::NodeJoinRequest) -> ClientResult<acl::JoinResponse> {
        self.post("/v1/join", join).await
    }
}
