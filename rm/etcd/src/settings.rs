//! Settings of the connection to etcd.

use std::path::PathBuf;
use std::time::Duration;

/// Where etcd is, and how the resource manager uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs of its members: `https://etcd1:2379`.
    pub endpoints: Vec<String>,
    /// Prefix of all keys of the cluster: `/headroom/prod`.
    pub prefix: String,
    /// Directory of certificates: `ca.pem`, and `cert.pem` with `key.pem` if members verify clients.
    pub tls: Option<PathBuf>,
    /// File with `USER:PASSWORD`; none for certificates or an open etcd.
    pub login: Option<PathBuf>,
    /// Time without a renewal after which etcd gives the leadership away.
    pub lease: Duration,
}
