//! A daemon's certificate, its key and its authority, read again when the files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use headroom_identity::Certificate;
use headroom_identity::tls::{self, Expect, Files, Identity, TlsError};
use headroom_identity::token::Hash;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::watched::Watched;

/// Names of the files in a daemon's directory.
const CA: &str = "ca.pem";
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";

/// Which files a caller uses; each may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFiles {
    /// Who vouches for the other end; the authorities of this host when left out.
    pub ca: Option<PathBuf>,
    /// The caller's own certificate and the key to it.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Why they are of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file, or what is in it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// This host trusts nobody, and nobody was named.
    #[error("this host has no list of authorities; name one with --ca FILE")]
    NoAuthorities,
}

impl KeyFiles {
    /// Those of a daemon's directory.
    pub fn of(dir: &Path) -> Self {
        KeyFiles { ca: Some(dir.join(CA)), own: Some((dir.join(CERT), dir.join(KEY))) }
    }

    /// All that are named, for looking whether one has changed.
    pub fn paths(&self) -> Vec<PathBuf> {
        let own = self.own.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]);
        self.ca.iter().cloned().chain(own).collect()
    }

    /// What a caller with these files shows and demands.
    ///
    /// # Errors
    /// What is wrong with the first file that is.
    pub fn client(&self, expect: Expect) -> Result<ClientConfig, KeysError> {
        let own = match (&self.ca, &self.own) {
            (ca, Some((cert, key))) => {
                let ca = ca.clone().unwrap_or_else(|| cert.clone());
                Some(Files { ca, cert: cert.clone(), key: key.clone() }.read()?)
            }
            (_, None) => None,
        };
        let roots = match &self.ca {
            Some(path) => tls::roots(&headroom_identity::files::read(path).map_err(TlsError::File)?)?,
            None => native()?,
        };
        let own = own.as_ref().map(|own| (own.cert.as_str(), own.key.as_str()));
        Ok(tls::client(roots, own, expect)?)
    }
}

/// For callers that do not encrypt: it trusts nobody.
///
/// # Errors
/// The library refuses its own defaults.
pub fn trusting_nobody() -> Result<ClientConfig, TlsError> {
    // A library that asks for the provider of the process would end it where there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tls::pinned(Some(Hash::of(b"")))
}

fn native() -> Result<RootCertStore, KeysError> {
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if taken == 0 { Err(KeysError::NoAuthorities) } else { Ok(roots) }
}

/// What a daemon shows at its listener and to those it calls. Good files that change take the place of those before; bad ones are told
/// in the log, and those before stay.
#[derive(Debug)]
pub struct Keys {
    files: Files,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    watched: Watched,
    identity: Arc<Identity>,
    server: Arc<ServerConfig>,
    /// Counts up with every change.
    generation: u64,
}

impl Keys {
    /// Reads the files of a daemon's directory: `ca.pem`, `cert.pem`, `key.pem`.
    ///
    /// # Errors
    /// What is wrong with the first that is.
    pub fn open(dir: &Path) -> Result<Self, TlsError> {
        let files = Files { ca: dir.join(CA), cert: dir.join(CERT), key: dir.join(KEY) };
        let watched = Watched::new(vec![files.ca.clone(), files.cert.clone(), files.key.clone()]);
        let (identity, server) = read(&files)?;
        Ok(Keys { files, now: Mutex::new(Now { watched, identity, server, generation: 1 }) })
    }

    /// What a listener shows now.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.look().1
    }

    /// The certificate that is shown now, and how often it has changed.
    pub fn identity(&self) -> (Arc<Identity>, u64) {
        let (identity, _, generation) = self.look();
        (identity, generation)
    }

    /// What a call shows now.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn client(&self, expect: Expect) -> Result<ClientConfig, TlsError> {
        let (identity, _) = self.identity();
        tls::client(tls::roots(&identity.ca)?, Some((&identity.cert, &identity.key)), expect)
    }

    /// What its own certificate says.
    pub fn facts(&self) -> Certificate {
        self.identity().0.facts.clone()
    }

    /// Looks at the files now, not in a few seconds.
    pub fn reread(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed_now() {
            self.renew(&mut now);
        }
    }

    fn look(&self) -> (Arc<Identity>, Arc<ServerConfig>, u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.watched.changed() {
            self.renew(&mut now);
        }
        (now.identity.clone(), now.server.clone(), now.generation)
    }

    fn renew(&self, now: &mut Now) {
        match read(&self.files) {
            Ok((identity, server)) => {
                let until = identity.facts.until.0;
                info!(certificate = %self.files.cert.display(), until, "another certificate is shown from now on");
                (now.identity, now.server, now.generation) = (identity, server, now.generation + 1);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "the certificate has changed and cannot be used; the one before stays, going on");
            }
        }
    }
}

fn read(files: &Files) -> Result<(Arc<Identity>, Arc<ServerConfig>), TlsError> {
    let identity = files.read()?;
    let server = Arc::new(identity.server()?);
    Ok((Arc::new(identity), server))
}
