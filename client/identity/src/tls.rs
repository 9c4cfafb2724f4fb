//! What a daemon shows and whom it believes, from three files: the authority's certificate, its own, and its key.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError as Mismatch, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::certificate::{Certificate, CertificateError, certificates};
use crate::files::{self, FileError};
use crate::role::Role;
use crate::token::Hash;

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

/// Who is to be at the other end, besides being reached at the name it was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A resource manager.
    Manager,
    /// The agent of a node.
    Node,
    /// Either.
    Daemon,
}

impl Expect {
    /// A certificate that tells of no role was given by somebody who vouches for host names only; one of another role is refused.
    fn fits(self, role: Option<&Role>) -> bool {
        match (self, role) {
            (_, None) | (Expect::Manager | Expect::Daemon, Some(Role::Manager)) => true,
            (Expect::Node | Expect::Daemon, Some(Role::Node(_))) => true,
            (Expect::Manager, Some(Role::Node(_))) | (Expect::Node, Some(Role::Manager)) | (_, Some(Role::User(_))) => false,
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn damaged(error: CertificateError) -> TlsError {
    TlsError::Verifier(error.to_string())
}

/// The authorities of a PEM text.
///
/// # Errors
/// There is none, or one of them cannot vouch for anybody.
pub fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem).map_err(damaged)? {
        roots.add(root)?;
    }
    Ok(roots)
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| TlsError::Verifier(error.to_string()))
}

impl Identity {
    /// What a listener shows. Callers may show a certificate of the same authority; one of another is refused.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn server(&self) -> Result<ServerConfig, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&self.ca)?), provider());
        let verifier = verifier.allow_unauthenticated().build().map_err(|error| TlsError::Verifier(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.cert).map_err(damaged)?, key(&self.key)?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// What a caller shows and demands: the authorities `roots` must vouch for the other end, which must have the role that is expected.
///
/// # Errors
/// The caller's certificate and key do not belong together.
pub fn client(roots: RootCertStore, own: Option<(&str, &str)>, expect: Expect) -> Result<ClientConfig, TlsError> {
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let inner = inner.map_err(|error| TlsError::Verifier(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Roled { inner, expect }));
    Ok(match own {
        Some((cert, own)) => config.with_client_auth_cert(certificates(cert).map_err(damaged)?, key(own)?)?,
        None => config.with_no_client_auth(),
    })
}

/// Demands that the other end has exactly this certificate, whatever its names and whoever vouches for it; `None` takes any, for
/// asking what is then checked by other means.
///
/// # Errors
/// The library refuses its own defaults.
pub fn pinned(pin: Option<Hash>) -> Result<ClientConfig, TlsError> {
    let algorithms = provider().signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin, algorithms })).with_no_client_auth())
}

/// What a listener shows that is known by its pin: it asks nobody for a certificate.
///
/// # Errors
/// Certificate and key do not belong together.
pub fn plain_server(cert: &str, own: &str) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_single_cert(certificates(cert).map_err(damaged)?, key(own)?)?)
}

/// Chain and name as usual, then the role.
#[derive(Debug)]
struct Roled {
    inner: Arc<WebPkiServerVerifier>,
    expect: Expect,
}

impl ServerCertVerifier for Roled {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(end, between, name, ocsp, now)?;
        let role = Certificate::from_der(end).map_err(|_| Mismatch::BadEncoding)?.role;
        if self.expect.fits(role.as_ref()) {
            return Ok(verified);
        }
        let role = role.map(|role| role.to_string()).unwrap_or_default();
        Err(rustls::Error::General(format!("who answers shows the certificate of {role}, which is somebody else's")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// One certificate, known by its hash.
#[derive(Debug)]
struct Pinned {
    pin: Option<Hash>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pin.is_none_or(|pin| pin.is(&Hash::of(end))) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Mismatch::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
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
