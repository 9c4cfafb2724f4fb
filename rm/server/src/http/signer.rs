//! The authority that signs certificates of joining hosts.
//!
//! It owns the authority's key, which never leaves it. The caller checks the token and the names.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use headroom_identity::authority::CertificateRequest;
use headroom_identity::{Authority, CertificateRole, files};
use headroom_types::UnixMillis;
use headroom_wire::v1::acl::NodeJoinRequest;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

/// Lifetime of a node's certificate.
const LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// An authority that signs certificates for joining hosts.
#[derive(Debug)]
pub(crate) struct CertificateSigner {
    ca: String,
    authority: Authority,
}

impl CertificateSigner {
    /// Opens the authority that `rmctl ca init` created in `dir`.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let ca = files::read(&dir.join("ca.pem"))?;
        let key = files::read_secret(&dir.join("ca.key"))?;
        let authority = Authority::open(&ca, &key).with_context(|| dir.display().to_string())?;
        Ok(CertificateSigner { ca, authority })
    }

    /// Certificate of the authority, as PEM.
    pub(crate) fn ca(&self) -> &str {
        &self.ca
    }

    /// Signs the certificate of a joining host, as PEM.
    ///
    /// # Errors
    /// The certificate request is invalid.
    pub(crate) fn sign(&self, body: &NodeJoinRequest, now: UnixMillis) -> ProblemResult<String> {
        let wanted = CertificateRequest {
            role: CertificateRole::Node(body.node.clone()),
            names: &body.names,
            now,
            lifetime: LIFETIME,
        };
        self.authority
            .sign(&body.request, &wanted)
            .map_err(|error| ProblemDetails::bad_request(error.to_string()))
    }
}
