//! TLS configuration from three files: the certificate of the authority, the own certificate, and
//! its private key.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError as Mismatch, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::certificate::{Certificate, CertificateError, certificates};
use crate::files::{self, FileError};
use crate::role::CertificateRole;
use crate::token::Sha256Digest;

/// Paths of the certificate files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// Certificate of the authority.
    pub ca: PathBuf,
    /// Own certificate.
    pub cert: PathBuf,
    /// Private key of the own certificate.
    pub key: PathBuf,
}

/// The contents of the certificate files.
#[derive(Clone)]
pub struct TlsIdentity {
    /// Certificate of the authority, PEM.
    pub ca: String,
    /// Own certificate, PEM.
    pub cert: String,
    /// Private key, PEM. Secret.
    pub key: String,
    /// Parsed own certificate.
    pub facts: Certificate,
}

headroom_types::debug_fields!(TlsIdentity { facts });

/// The error of certificate files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A certificate is invalid.
    #[error("{path}: {source}", path = path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: CertificateError,
    },
    /// The key file contains no private key.
    #[error("{path}: it contains no private key (-----BEGIN PRIVATE KEY----- …)", path = path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// The certificate, key and authority do not match, or are not usable.
    #[error("the certificate, its key and its authority: {0}")]
    Rustls(#[from] rustls::Error),
    /// No peer can be verified with this authority.
    #[error("the authority cannot verify certificates: {0}")]
    Verifier(String),
}

impl CertificatePaths {
    /// Reads the files.
    ///
    /// # Errors
    /// The first error.
    pub fn read(&self) -> Result<TlsIdentity, TlsFileError> {
        let (ca, cert, key) = (
            files::read(&self.ca)?,
            files::read(&self.cert)?,
            files::read_secret(&self.key)?,
        );
        certificates(&ca).map_err(|source| TlsFileError::Certificate {
            path: self.ca.clone(),
            source,
        })?;
        let facts = Certificate::from_pem(&cert).map_err(|source| TlsFileError::Certificate {
            path: self.cert.clone(),
            source,
        })?;
        if PrivateKeyDer::from_pem_slice(key.as_bytes()).is_err() {
            return Err(TlsFileError::Key {
                path: self.key.clone(),
            });
        }
        Ok(TlsIdentity {
            ca,
            cert,
            key,
            facts,
        })
    }
}

/// The expected role of the peer, in addition to its host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerExpectation {
    /// A resource manager.
    Manager,
    /// The agent of a node.
    Node,
    /// A resource manager or a node agent.
    Daemon,
}

impl PeerExpectation {
    /// A certificate without a role is accepted, because its authority certifies host names only. A
    /// certificate with another role is rejected.
    fn fits(self, role: Option<&CertificateRole>) -> bool {
        match (self, role) {
            (_, None)
            | (
                PeerExpectation::Manager | PeerExpectation::Daemon,
                Some(CertificateRole::Manager),
            ) => true,
            (PeerExpectation::Node | PeerExpectation::Daemon, Some(CertificateRole::Node(_))) => {
                true
            }
            (PeerExpectation::Manager, Some(CertificateRole::Node(_)))
            | (PeerExpectation::Node, Some(CertificateRole::Manager))
            | (_, Some(CertificateRole::User(_))) => false,
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn damaged(error: CertificateError) -> TlsFileError {
    TlsFileError::Verifier(error.to_string())
}

/// Parses the authorities of a PEM text.
///
/// # Errors
/// The text contains no certificate, or one that is not usable as an authority.
pub fn roots(pem: &str) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem).map_err(damaged)? {
        roots.add(root)?;
    }
    Ok(roots)
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| TlsFileError::Verifier(error.to_string()))
}

impl TlsIdentity {
    /// TLS configuration of a listener. Client certificates of the same authority are optional;
    /// others are rejected.
    ///
    /// # Errors
    /// Certificate, key and authority do not match.
    pub fn server(&self) -> Result<ServerConfig, TlsFileError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&self.ca)?), provider());
        let verifier = verifier
            .allow_unauthenticated()
            .build()
            .map_err(|error| TlsFileError::Verifier(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.cert).map_err(damaged)?, key(&self.key)?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// TLS configuration for calls to a server of another system. Its certificate must be of the
/// authorities in the PEM text `ca` and name the host; it has no role. Without `ca`, every
/// certificate is rejected.
///
/// # Errors
/// `ca` is unusable, or the caller's certificate and key do not match.
pub fn foreign_client(
    ca: Option<&str>,
    own: Option<(&str, &str)>,
) -> Result<ClientConfig, TlsFileError> {
    let roots = ca.map_or_else(|| Ok(RootCertStore::empty()), roots)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match own {
        Some((cert, secret)) => {
            config.with_client_auth_cert(certificates(cert).map_err(damaged)?, key(secret)?)?
        }
        None => config.with_no_client_auth(),
    })
}

/// As [`foreign_client`], with these authorities and without a certificate of the caller.
///
/// # Errors
/// The library rejects its own defaults.
pub fn foreign_client_of(authorities: RootCertStore) -> Result<ClientConfig, TlsFileError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities);
    Ok(config.with_no_client_auth())
}

/// The side that refused the other, in a failed TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The certificate of the peer was refused here.
    PeerRefused(String),
    /// The peer refused the own certificate, or requires one.
    RefusedByPeer(String),
    /// Any other error of TLS.
    Other(String),
}

/// The failure of TLS that caused an error, if it was one.
pub fn failure(error: &(dyn std::error::Error + 'static)) -> Option<TlsFailure> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(if let rustls::Error::InvalidCertificate(cause) = error {
                TlsFailure::PeerRefused(cause.to_string())
            } else if let rustls::Error::AlertReceived(alert) = error {
                TlsFailure::RefusedByPeer(format!("{alert:?}"))
            } else {
                TlsFailure::Other(error.to_string())
            });
        }
        // The source of an `io::Error` is the source of its inner error, not that error.
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
            .map(|inner| inner as &(dyn std::error::Error + 'static));
        next = inner.or_else(|| error.source());
    }
    None
}

/// TLS configuration of a caller. The peer must have a certificate of the authorities `roots` and
/// the expected role.
///
/// # Errors
/// The caller's certificate and key do not match.
pub fn client(
    roots: RootCertStore,
    own: Option<(&str, &str)>,
    expect: PeerExpectation,
) -> Result<ClientConfig, TlsFileError> {
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let inner = inner.map_err(|error| TlsFileError::Verifier(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RoleVerifier { inner, expect }));
    Ok(match own {
        Some((cert, own)) => {
            config.with_client_auth_cert(certificates(cert).map_err(damaged)?, key(own)?)?
        }
        None => config.with_no_client_auth(),
    })
}

/// TLS configuration that accepts exactly the certificate with this hash, regardless of its names
/// and issuer. `None` accepts any certificate, for responses that are verified by other means.
///
/// # Errors
/// The TLS library rejects its own defaults.
pub fn pinned(pin: Option<Sha256Digest>) -> Result<ClientConfig, TlsFileError> {
    let algorithms = provider().signature_verification_algorithms;
    let config =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier { pin, algorithms }))
        .with_no_client_auth())
}

/// TLS configuration of a listener whose certificate is pinned by its peers; it requests no client
/// certificate.
///
/// # Errors
/// Certificate and key do not match.
pub fn plain_server(cert: &str, own: &str) -> Result<ServerConfig, TlsFileError> {
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config
        .with_no_client_auth()
        .with_single_cert(certificates(cert).map_err(damaged)?, key(own)?)?)
}

/// Verifies chain and host name as usual, then the role.
#[derive(Debug)]
struct RoleVerifier {
    inner: Arc<WebPkiServerVerifier>,
    expect: PeerExpectation,
}

impl ServerCertVerifier for RoleVerifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .inner
            .verify_server_cert(end, between, name, ocsp, now)?;
        let role = Certificate::from_der(end)
            .map_err(|_| Mismatch::BadEncoding)?
            .role;
        if self.expect.fits(role.as_ref()) {
            return Ok(verified);
        }
        let role = role.map(|role| role.to_string()).unwrap_or_default();
        Err(rustls::Error::General(format!(
            "the server has the certificate of {role}, which is not the expected role"
        )))
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

/// Accepts a single certificate, identified by its hash.
#[derive(Debug)]
struct PinVerifier {
    pin: Option<Sha256Digest>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self
            .pin
            .is_none_or(|pin| pin.matches(&Sha256Digest::of(end)))
        {
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
    use crate::authority::{Authority, CertificateRequest, create};
    use crate::files::{FileReaders, OverwritePolicy};
    use headroom_types::UnixMillis;
    use std::time::Duration;

    const NOW: UnixMillis = UnixMillis(1_790_000_000_000);
    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    #[test]
    fn a_failure_of_tls_is_found_below_errors_of_input_and_output() {
        use std::io;
        let expired = rustls::Error::InvalidCertificate(Mismatch::Expired);
        let inner = io::Error::new(io::ErrorKind::InvalidData, expired);
        let found = failure(&io::Error::other(inner));
        assert!(
            matches!(found, Some(TlsFailure::PeerRefused(_))),
            "{found:?}"
        );
        assert_eq!(failure(&io::Error::other("refused")), None);
    }

    #[test]
    fn three_files_make_a_listener_and_mismatches_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let made = create("test", NOW, YEAR).expect("an authority");
        let authority = Authority::open(&made.certificate, &made.key).expect("opens");
        let wanted = CertificateRequest {
            role: "manager".parse().expect("a role"),
            names: &["localhost".into()],
            now: NOW,
            lifetime: YEAR,
        };
        let issued = authority.issue(&wanted).expect("issued");
        files::write(
            &at("ca.pem"),
            &made.certificate,
            FileReaders::All,
            OverwritePolicy::Keep,
        )
        .expect("writes");
        files::write(
            &at("cert.pem"),
            &issued.certificate,
            FileReaders::All,
            OverwritePolicy::Keep,
        )
        .expect("writes");
        files::write(
            &at("key.pem"),
            &issued.key,
            FileReaders::Owner,
            OverwritePolicy::Keep,
        )
        .expect("writes");
        let set = CertificatePaths {
            ca: at("ca.pem"),
            cert: at("cert.pem"),
            key: at("key.pem"),
        };
        let identity = set.read().expect("reads");
        assert_eq!(
            identity.facts.role.as_ref().map(ToString::to_string),
            Some("manager".into())
        );
        identity.server().expect("a listener");
        assert!(!format!("{identity:?}").contains("PRIVATE"));

        let mixed = TlsIdentity {
            key: made.key.clone(),
            ..identity
        };
        assert!(
            matches!(mixed.server(), Err(TlsFileError::Rustls(_))),
            "the key of another certificate"
        );
        assert!(matches!(
            CertificatePaths {
                key: at("cert.pem"),
                ..set.clone()
            }
            .read(),
            Err(TlsFileError::File(FileError::Open { .. }))
        ));
        files::write(&at("empty"), "", FileReaders::Owner, OverwritePolicy::Keep).expect("writes");
        assert!(matches!(
            CertificatePaths {
                key: at("empty"),
                ..set.clone()
            }
            .read(),
            Err(TlsFileError::Key { .. })
        ));
        assert!(matches!(
            CertificatePaths {
                cert: at("empty"),
                ..set
            }
            .read(),
            Err(TlsFileError::Certificate { .. })
        ));
    }
}
