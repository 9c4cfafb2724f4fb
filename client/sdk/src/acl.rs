//! Calls about who may come in.

use headroom_types::AppId;
use headroom_wire::v1::acl;
use reqwest::Method;

use crate::{Client, ClientError};

impl Client {
    /// The first token of a cluster; once, on the manager's own host.
    pub async fn bootstrap(&self) -> Result<acl::MintedToken, ClientError> {
        self.post("/v1/acl/bootstrap", &()).await
    }
    /// Tokens that hold, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<acl::TokenView>, ClientError> {
        self.get("/v1/acl/tokens").await
    }
    /// A token for a user.
    pub async fn mint(&self, token: &acl::NewToken) -> Result<acl::MintedToken, ClientError> {
        self.post("/v1/acl/tokens", token).await
    }
    /// A token by which one host becomes a node.
    pub async fn mint_join(&self, token: &acl::NewJoinToken) -> Result<acl::MintedToken, ClientError> {
        self.post("/v1/acl/join-tokens", token).await
    }
    /// A token holds no more; it comes back as it was.
    pub async fn revoke(&self, accessor: &str) -> Result<acl::TokenView, ClientError> {
        self.delete(&format!("/v1/acl/tokens/{accessor}")).await
    }
    /// Who calls.
    pub async fn who_am_i(&self) -> Result<acl::WhoAmI, ClientError> {
        self.get("/v1/acl/self").await
    }
    /// What accounts and groups may, where it is not the usual.
    pub async fn policies(&self) -> Result<Vec<acl::PolicyView>, ClientError> {
        self.get("/v1/acl/policies").await
    }
    /// What an account or a group may from now on.
    pub async fn allow(&self, subject: &str, policy: &acl::PolicySpec) -> Result<acl::PolicyView, ClientError> {
        self.change(Method::PUT, &format!("/v1/acl/policies/{subject}"), None, policy).await
    }
    /// What an account or a group may is the usual again; the policy comes back as it was.
    pub async fn forget_policy(&self, subject: &str) -> Result<acl::PolicyView, ClientError> {
        self.delete(&format!("/v1/acl/policies/{subject}")).await
    }
    /// Whom an application's owner lets come near it.
    pub async fn app_access(&self, app: &AppId) -> Result<acl::AppAccess, ClientError> {
        self.get(&format!("/v1/apps/{app}/access")).await
    }
    /// Its owner lets these come near it, and nobody else.
    pub async fn share_app(&self, app: &AppId, access: &acl::AppAccess) -> Result<acl::AppAccess, ClientError> {
        self.change(Method::PUT, &format!("/v1/apps/{app}/access"), None, access).await
    }
    /// Who vouches for everybody in the cluster; to be compared with a fingerprint before it is believed.
    pub async fn ca(&self) -> Result<acl::CaView, ClientError> {
        self.get("/v1/ca").await
    }
    /// This host becomes a node, by the token that the client shows.
    pub async fn join(&self, join: &acl::Join) -> Result<acl::Joined, ClientError> {
        self.post("/v1/join", join).await
    }
}
