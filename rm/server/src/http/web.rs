//! State that all handlers share. `start` makes it once; each handler receives a pointer to it.
//!
//! It holds what only HTTP needs, around a reader of the cluster. It contains no logic.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use axum::extract::FromRef;
use headroom_rm_core::ClusterCall;
use headroom_rm_etcd::LeaseClock;
use headroom_wire::v1::error::ProblemResult;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::live_masters::LiveMasterStore;
use super::node_keys::NodeKeyStore;
use super::signer::CertificateSigner;
use crate::audit::AuditRecorder;
use crate::call_reply::CallReply;
use crate::limit_warnings::LimitWarnings;
use crate::manager_group::ManagerGroup;
use crate::operator::OperatorHandle;
use crate::peaks::NodePeaks;
use crate::peer_clients::PeerHttpClients;
use crate::reader::ClusterReader;
use crate::topics::SharedTopicStates;
use crate::upload_copies::UploadCopies;
use crate::uploads::UploadStore;

/// State of all handlers. A request makes several copies, so a copy is one pointer.
#[derive(Clone, Debug)]
pub(crate) struct WebHandlerState(Arc<WebResources>);

impl From<WebResources> for WebHandlerState {
    fn from(resources: WebResources) -> Self {
        WebHandlerState(Arc::new(resources))
    }
}

impl Deref for WebHandlerState {
    type Target = WebResources;

    fn deref(&self) -> &WebResources {
        &self.0
    }
}

/// Everything that handlers use.
#[derive(Debug)]
pub(crate) struct WebResources {
    /// Reads the cluster and sends calls to it.
    pub(crate) reader: ClusterReader,
    pub(crate) nodes: Arc<PeerHttpClients>,
    /// Callers are authenticated, so masters and executors receive tokens.
    pub(crate) asks: bool,
    /// Signs certificates of joining hosts.
    pub(crate) authority: Option<Arc<CertificateSigner>>,
    /// Endpoint to which masters send traces of their jobs.
    pub(crate) traces: Option<Arc<str>>,
    pub(crate) closing: CancellationToken,
    /// Slots for event streams and waiting queries.
    pub(crate) streams: Arc<Semaphore>,
    /// Held by a handler while it changes a state that it has read.
    pub(crate) changes: Arc<Mutex<()>>,
    /// Topic states that all pages share, made once for all of them.
    pub(crate) boards: Arc<SharedTopicStates>,
    /// Containers with an open limit warning.
    pub(crate) near: Arc<LimitWarnings>,
    /// Keys with which nodes grant access to their containers.
    pub(crate) keys: Arc<NodeKeyStore>,
    /// Registered masters, with the secrets of their submission channels.
    pub(crate) masters: Arc<LiveMasterStore>,
    /// Recent peak of memory use by node.
    pub(crate) peaks: Arc<NodePeaks>,
    /// The audit log.
    pub(crate) audit: Arc<AuditRecorder>,
    /// Reloads the configuration and changes the log level; `None` if this runs inside another
    /// program.
    pub(crate) operator: Option<OperatorHandle>,
    /// OpenAPI description of the interface.
    pub(crate) description: &'static LazyLock<String>,
    /// Files that users uploaded.
    pub(crate) uploads: Arc<UploadStore>,
    /// Their copies on the other managers; `None` without an election.
    pub(crate) copies: Option<Arc<UploadCopies>>,
    /// URL at which callers reach this manager.
    pub(crate) url: Arc<str>,
    /// The managers of the cluster and the lease of this one; `None` without an election.
    pub(crate) election: Option<(ManagerGroup, Arc<LeaseClock>)>,
    /// State directory; only its size is read.
    pub(crate) state: Arc<Path>,
}

impl FromRef<WebHandlerState> for Arc<UploadStore> {
    fn from_ref(web: &WebHandlerState) -> Self {
        web.uploads.clone()
    }
}

impl WebHandlerState {
    /// Makes a call of the core.
    ///
    /// # Errors
    /// The core refuses the call, or the main loop does not respond.
    pub(crate) async fn call<R: CallReply>(&self, call: ClusterCall) -> ProblemResult<R> {
        self.reader.handle.call(call).await
    }
}
