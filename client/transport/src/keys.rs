//! A daemon's certificate, its key and its authority; the files are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use headroom_identity::Certificate;
use headroom_identity::tls::{self, CertificatePaths, PeerExpectation, TlsFileError, TlsIdentity};
use headroom_identity::token::Sha256Digest;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::file_watch::FileWatcher;

/// File names in a daemon's directory.
const CA: &str = "ca.pem";
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";

/// The certificate files of a caller; each is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The authority that signs the peer's certificate; the default is the list of authorities of
    /// this host.
    pub ca: Option<PathBuf>,
    /// The caller's certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The certificate files are unusable.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file, or its contents.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// This host has no authorities, and the user named none.
    #[error("this host has no list of authorities; name one with --ca FILE")]
    NoAuthorities,
}

impl CertificateFiles {
    /// The files of a daemon's directory.
    pub fn of(dir: &Path) -> Self {
        CertificateFiles {
            ca: Some(dir.join(CA)),
            own: Some((dir.join(CERT), dir.join(KEY))),
        }
    }

    /// All named files, for change detection.
    pub fn paths(&self) -> Vec<PathBuf> {
        let own = self
            .own
            .iter()
            .flat_map(|(cert, key)| [cert.clone(), key.clone()]);
        self.ca.iter().cloned().chain(own).collect()
    }

    /// The TLS configuration of a caller with these files.
    ///
    /// # Errors
    /// The first file that is unusable.
    pub fn client(&self, expect: PeerExpectation) -> Result<ClientConfig, KeysError> {
        let own = match (&self.ca, &self.own) {
            (ca, Some((cert, key))) => {
                let ca = ca.clone().unwrap_or_else(|| cert.clone());
                Some(
                    CertificatePaths {
                        ca,
                        cert: cert.clone(),
                        key: key.clone(),
                    }
                    .read()?,
                )
            }
            (_, None) => None,
        };
        let roots = match &self.ca {
            Some(path) => {
                tls::roots(&headroom_identity::files::read(path).map_err(TlsFileError::File)?)?
            }
            None => native()?,
        };
        let own = own
            .as_ref()
            .map(|own| (own.cert.as_str(), own.key.as_str()));
        Ok(tls::client(roots, own, expect)?)
    }
}

/// A TLS configuration that trusts no certificate, for callers that do not encrypt.
///
/// # Errors
/// The library rejects its own defaults.
pub fn trust_none_config() -> Result<ClientConfig, TlsFileError> {
    // A library that requests the process-wide provider would panic if there were none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tls::pinned(Some(Sha256Digest::of(b"")))
}

/// The TLS configuration for servers of other systems: it trusts the authorities of this host.
///
/// # Errors
/// The host has none.
pub fn host_authorities_config() -> Result<ClientConfig, KeysError> {
    Ok(tls::foreign_client_of(native()?)?)
}

fn native() -> Result<RootCertStore, KeysError> {
    let mut roots = RootCertStore::empty();
    let (taken, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if taken == 0 {
        Err(KeysError::NoAuthorities)
    } else {
        Ok(roots)
    }
}

/// The certificate of a daemon, for its listener and for its calls. Valid changed files replace the
/// earlier ones. Invalid ones are logged, and the earlier ones stay in use.
#[derive(Debug)]
pub struct ReloadingKeys {
    files: CertificatePaths,
    now: Mutex<LoadedKeys>,
}

#[derive(Debug)]
struct LoadedKeys {
    watched: FileWatcher,
    identity: Arc<TlsIdentity>,
    server: Arc<ServerConfig>,
    /// Increases with every change.
    generation: u64,
}

impl ReloadingKeys {
    /// Reads the files of a daemon's directory: `ca.pem`, `cert.pem`, `key.pem`.
    ///
    /// # Errors
    /// The first file that is unusable.
    pub fn open(dir: &Path) -> Result<Self, TlsFileError> {
        let files = CertificatePaths {
            ca: dir.join(CA),
            cert: dir.join(CERT),
            key: dir.join(KEY),
        };
        let watched = FileWatcher::new(vec![
            files.ca.clone(),
            files.cert.clone(),
            files.key.clone(),
        ]);
        let (identity, server) = read(&files)?;
        Ok(ReloadingKeys {
            files,
            now: Mutex::new(LoadedKeys {
                watched,
                identity,
                server,
                generation: 1,
            }),
        })
    }

    /// The present TLS configuration of a listener.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.look().1
    }

    /// The present certificate and its generation, which increases with every change.
    pub fn identity(&self) -> (Arc<TlsIdentity>, u64) {
        let (identity, _, generation) = self.look();
        (identity, generation)
    }

    /// The present TLS configuration of a call.
    ///
    /// # Errors
    /// The certificate, the key and the authority do not match.
    pub fn client(&self, expect: PeerExpectation) -> Result<ClientConfig, TlsFileError> {
        let (identity, _) = self.identity();
        tls::client(
            tls::roots(&identity.ca)?,
            Some((&identity.cert, &identity.key)),
            expect,
        )
    }

    /// The contents of the daemon's own certificate.
    pub fn facts(&self) -> Certificate {
        self.identity().0.facts.clone()
    }

    /// Checks the files for changes at once, without waiting for the interval.
    pub fn reread(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed_now() {
            self.renew(&mut now);
        }
    }

    fn look(&self) -> (Arc<TlsIdentity>, Arc<ServerConfig>, u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed() {
            self.renew(&mut now);
        }
        (now.identity.clone(), now.server.clone(), now.generation)
    }

    fn renew(&self, now: &mut LoadedKeys) {
        match read(&self.files) {
            Ok((identity, server)) => {
                let until = identity.facts.until.0;
                info!(certificate = %self.files.cert.display(), until, "a changed certificate is active");
                (now.identity, now.server, now.generation) = (identity, server, now.generation + 1);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(
                    error,
                    "the changed certificate cannot be used; the previous one stays active"
                );
            }
        }
    }
}

fn read(files: &CertificatePaths) -> Result<(Arc<TlsIdentity>, Arc<ServerConfig>), TlsFileError> {
    let identity = files.read()?;
    let server = Arc::new(identity.server()?);
    Ok((Arc::new(identity), server))
}
