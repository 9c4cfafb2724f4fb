//! HTTP clients for other daemons, with the current certificate of the resource manager if it has
//! one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_identity::tls::PeerExpectation;
use headroom_rm_reports::RequestScheme;
use headroom_transport::{ReloadingKeys, trust_none_config};

/// Timeout for connecting to a daemon.
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout for a silent daemon.
const SILENCE: Duration = Duration::from_secs(10);
/// TCP keep-alive interval for streams that may be silent.
const FEEL: Duration = Duration::from_secs(30);

/// Clients with and without a read timeout.
#[derive(Debug)]
pub(crate) struct PeerHttpClients {
    keys: Option<Arc<ReloadingKeys>>,
    expected: PeerExpectation,
    now: Mutex<PeerClientPair>,
}

#[derive(Clone, Debug)]
struct PeerClientPair {
    /// Generation of the certificate.
    generation: u64,
    usual: reqwest::Client,
    patient: reqwest::Client,
}

impl PeerHttpClients {
    /// Creates the clients, with this certificate if there is one. They accept daemons of the
    /// `expected` role only.
    pub(crate) fn new(
        keys: Option<Arc<ReloadingKeys>>,
        expected: PeerExpectation,
    ) -> anyhow::Result<Self> {
        let generation = keys.as_ref().map_or(0, |keys| keys.identity().1);
        let now = Mutex::new(make(keys.as_deref(), expected, generation)?);
        Ok(PeerHttpClients {
            keys,
            expected,
            now,
        })
    }

    /// Client for calls with a prompt response.
    pub(crate) fn usual(&self) -> reqwest::Client {
        self.pair().usual
    }

    /// Client for followed logs, which may be silent: it has no read timeout.
    pub(crate) fn patient(&self) -> reqwest::Client {
        self.pair().patient
    }

    /// Whether connections are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.keys.is_some()
    }

    /// URL scheme of this daemon.
    pub(crate) fn scheme(&self) -> RequestScheme {
        RequestScheme(if self.encrypts() { "https" } else { "http" })
    }

    /// Certificate of the cluster's authority.
    pub(crate) fn ca(&self) -> Option<String> {
        self.keys.as_ref().map(|keys| keys.identity().0.ca.clone())
    }

    fn pair(&self) -> PeerClientPair {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.keys.as_ref().map_or(0, |keys| keys.identity().1);
        if now.generation != generation {
            match make(self.keys.as_deref(), self.expected, generation) {
                Ok(pair) => *now = pair,
                Err(error) => {
                    tracing::warn!(%error, "cannot use the new certificate; calls to other daemons use the previous one")
                }
            }
        }
        now.clone()
    }
}

fn make(
    keys: Option<&ReloadingKeys>,
    expected: PeerExpectation,
    generation: u64,
) -> anyhow::Result<PeerClientPair> {
    let builder = || -> anyhow::Result<reqwest::ClientBuilder> {
        let trust_none = trust_none_config()?;
        let tls = match keys {
            Some(keys) => keys.client(expected)?,
            None => trust_none,
        };
        Ok(reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT)
            .tls_backend_preconfigured(tls))
    };
    Ok(PeerClientPair {
        generation,
        usual: builder()?.read_timeout(SILENCE).build()?,
        patient: builder()?.tcp_keepalive(FEEL).build()?,
    })
}
