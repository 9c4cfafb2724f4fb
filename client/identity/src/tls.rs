//! What a daemon shows and whom it believes, from three files: the authority's certificate, its own, and its key.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::certificate::{Certificate, CertificateError, certificates};
use crate::files::{self, FileError};

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Who vouches for the others.
    pub ca: PathBuf,
    /// One's own certificate.
    pub cert: PathBuf,
    /// The key to it.
    pub key: PathBuf,
}

/// What was in the files.
#[derive(Clone)]
pub struct Identity {
    /// PEM.
    pub ca: String,
    /// PEM.
    pub cert: String,
    /// PEM. Secret.
    pub key: String,
    /// What the certificate says.
    pub facts: Certificate,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Why they are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A certificate in one of them.
    #[error("{path}: {source}", path = path.display())]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        source: CertificateError,
    },
    /// No key in the key's file.
    #[error("{path}: there is no private key in it (-----BEGIN PRIVATE KEY----- …)", path = path.display())]
    Key {
        /// Which.
        path: PathBuf,
    },
    /// They do not belong together, or cannot be used.
    #[error("the certificate, its key and its authority: {0}")]
    Rustls(#[from] rustls::Error),
    /// Nobody could be checked with this authority.
    #[error("the authority cannot vouch for anybody: {0}")]
    Verifier(String),
}

impl Files {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with the first that is.
    pub fn read(&self) -> Result<Identity, TlsError> {
        let (ca, cert, key) = (files::read(&self.ca)?, files::read(&self.cert)?, files::read_secret(&self.key)?);
        certificates(&ca).map_err(|source| TlsError::Certificate { path: self.ca.clone(), source })?;
        let facts = Certificate::from_pem(&cert).map_err(|source| TlsError::Certificate { path: self.cert.clone(), source })?;
        if PrivateKeyDer::from_pem_slice(key.as_bytes()).is_err() {
            return Err(TlsError::Key { path: self.key.clone() });
        }
        Ok(Identity { ca, cert, key, facts })
    }
}

impl Identity {
    /// What a listener shows. Callers may show a certificate of the same authority; one of another is refused.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn server(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let damaged = |error: CertificateError| TlsError::Verifier(error.to_string());
        for root in certificates(&self.ca).map_err(damaged)? {
            roots.add(root)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).allow_unauthenticated();
        let verifier = verifier.build().map_err(|error| TlsError::Verifier(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| TlsError::Verifier(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.cert).map_err(damaged)?, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, Wanted, create};
    use crate::files::{Over, Readers};
    use headroom_types::UnixMillis;
    use std::time::Duration;

    const NOW: UnixMillis = UnixMillis(1_790_000_000_000);
    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    #[test]
    fn three_files_make_a_listener_and_what_does_not_fit_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let made = create("test", NOW, YEAR).expect("an authority");
        let authority = Authority::open(&made.certificate, &made.key).expect("opens");
        let wanted = Wanted { role: "manager".parse().expect("a role"), names: &["localhost".into()], now: NOW, lifetime: YEAR };
        let issued = authority.issue(&wanted).expect("issued");
        files::write(&at("ca.pem"), &made.certificate, Readers::All, Over::Keep).expect("writes");
        files::write(&at("cert.pem"), &issued.certificate, Readers::All, Over::Keep).expect("writes");
        files::write(&at("key.pem"), &issued.key, Readers::Owner, Over::Keep).expect("writes");
        let set = Files { ca: at("ca.pem"), cert: at("cert.pem"), key: at("key.pem") };
        let identity = set.read().expect("reads");
        assert_eq!(identity.facts.role.as_ref().map(ToString::to_string), Some("manager".into()));
        identity.server().expect("a listener");
        assert!(!format!("{identity:?}").contains("PRIVATE"));

        let mixed = Identity { key: made.key.clone(), ..identity };
        assert!(matches!(mixed.server(), Err(TlsError::Rustls(_))), "the key of another certificate");
        assert!(matches!(Files { key: at("cert.pem"), ..set.clone() }.read(), Err(TlsError::File(FileError::Open { .. }))));
        files::write(&at("empty"), "", Readers::Owner, Over::Keep).expect("writes");
        assert!(matches!(Files { key: at("empty"), ..set.clone() }.read(), Err(TlsError::Key { .. })));
        assert!(matches!(Files { cert: at("empty"), ..set }.read(), Err(TlsError::Certificate { .. })));
    }
}
