//! Handle with which handlers send inputs to the main loop.
//!
//! A handle never touches the core. It waits with a timeout, and returns an error when the main
//! loop is too slow.

use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::{CallRefusal, CallResult, ClusterCall, NodeHeartbeat};
use headroom_rm_store::SavedResponse;
use headroom_types::{AppId, NodeId, Tick};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemResult};
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::nodes::{DesiredStateLine, NodeView};
use tokio::sync::{mpsc, oneshot, watch};

use crate::access::{AccessChange, AccessChangeResult};
use crate::call_reply::{CallReply, Master, Node, Received};
use crate::clock::ManagerClock;
use crate::inbox::{InputSenders, QueuedHeartbeat};
use crate::input::{ClusterQuery, DocumentChange, LoopInput};
use crate::profiles::{ProfileChange, ProfileChangeResult};
use crate::published::Published;
use crate::to_wire;
use crate::view::ClusterSnapshot;

/// Timeout for queueing an input and receiving its result.
const REPLY_TIMEOUT: Duration = Duration::from_secs(9);
/// Maximum wait of a master that registers before the recovery after a restart is complete. Shorter
/// than the timeout of callers.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(6);
/// Interval between attempts to register a master that names its nodes meanwhile. Thousands of
/// masters may wait.
const RECOVERY_LOOK: Duration = Duration::from_millis(300);

/// Handle with which handlers send inputs to the main loop.
#[derive(Clone, Debug)]
pub(crate) struct MainLoopHandle {
    lines: InputSenders,
    published: Arc<Published>,
    clock: ManagerClock,
}

impl MainLoopHandle {
    pub(crate) fn new(lines: InputSenders, published: Arc<Published>, clock: ManagerClock) -> Self {
        MainLoopHandle {
            lines,
            published,
            clock,
        }
    }

    /// Makes a call of the core.
    pub(crate) async fn call<R: CallReply>(&self, what: ClusterCall) -> ProblemResult<R> {
        self.call_with(what, None).await
    }

    /// Makes a call of the core, with rows of a job.
    pub(crate) async fn call_with<R: CallReply>(
        &self,
        what: ClusterCall,
        job: Option<(AppId, JobViewPatch)>,
    ) -> ProblemResult<R> {
        match self.result(what, job).await? {
            Ok(answer) => R::of(answer),
            Err(refusal) => Err(self.refused(&refusal).await),
        }
    }

    /// Result of a call of the core.
    async fn result(
        &self,
        what: ClusterCall,
        job: Option<(AppId, JobViewPatch)>,
    ) -> ProblemResult<CallResult> {
        self.ask(|reply| LoopInput::Call {
            what: Box::new(what),
            job: job.map(Box::new),
            reply,
        })
        .await
    }

    /// Problem for a refusal. For an object that does not exist, it suggests the most similar name.
    pub(crate) async fn refused(&self, refusal: &CallRefusal) -> ProblemDetails {
        let problem = to_wire::problem(refusal);
        if problem.code != ErrorCode::HR0404 {
            return problem;
        }
        match self.view().await {
            Ok(view) => view.with_nearest(refusal, problem),
            Err(_) => problem, // without a view there is no suggestion
        }
    }

    /// Registers a node, and opens the stream of its desired state.
    pub(crate) async fn join_node(
        &self,
        node: NodeId,
        what: ClusterCall,
    ) -> ProblemResult<(Node, mpsc::Receiver<DesiredStateLine>)> {
        let joined = self.ask(|reply| LoopInput::JoinNode {
            node,
            what: Box::new(what),
            reply,
        });
        match joined.await? {
            Ok((answer, mailbox)) => Ok((Node::of(answer)?, mailbox)),
            Err(refusal) => Err(self.refused(&refusal).await),
        }
    }

    /// Sends a node's heartbeat, through its own queue.
    pub(crate) async fn report(
        &self,
        node: NodeId,
        report: Box<NodeHeartbeat>,
    ) -> ProblemResult<Received> {
        let (reply, answer) = oneshot::channel();
        let input = LoopInput::Call {
            what: Box::new(ClusterCall::Report { node, report }),
            job: None,
            reply,
        };
        let sign = QueuedHeartbeat {
            input,
            arrived: self.clock.now(),
        };
        let whole = async {
            self.lines.signs.send(sign).await.map_err(|_| ending())?;
            answer.await.map_err(|_| ending())
        };
        let answer = tokio::time::timeout(REPLY_TIMEOUT, whole)
            .await
            .unwrap_or_else(|_| Err(late()))?;
        Received::of(answer.map_err(|refusal| to_wire::problem(&refusal))?)
    }

    /// Registers a master. After a restart, the resource manager knows the master's containers only
    /// when their nodes have registered again. The call waits for that instead of being refused,
    /// because the retries of a master become slower and slower.
    pub(crate) async fn register_master(&self, call: ClusterCall) -> ProblemResult<Master> {
        let names_nodes = matches!(&call, ClusterCall::RegisterMaster { nodes: Some(_), .. });
        let mut recovered = self.published.recovery();
        let until = tokio::time::Instant::now() + RECOVERY_TIMEOUT;
        loop {
            let refusal = match self.result(call.clone(), None).await? {
                Ok(answer) => return Master::of(answer),
                Err(refusal) => refusal,
            };
            let early = matches!(refusal, CallRefusal::Recovering(_));
            if !early || tokio::time::Instant::now() >= until {
                return Err(to_wire::problem(&refusal));
            }
            // The nodes of this master may have registered before all have.
            let look = if names_nodes {
                until.min(tokio::time::Instant::now() + RECOVERY_LOOK)
            } else {
                until
            };
            let _ = tokio::time::timeout_at(look, recovered.wait_for(|r| *r)).await;
        }
    }

    /// Stores a response with its idempotency key. Returns when it is durable.
    pub(crate) async fn keep(&self, answer: SavedResponse, gone: Vec<String>) -> ProblemResult<()> {
        self.ask(|reply| {
            LoopInput::Document(DocumentChange::Response {
                answer: Box::new(answer),
                gone,
                reply,
            })
        })
        .await
    }

    /// Changes or deletes a profile. Returns when the change is durable.
    pub(crate) async fn change_profile(&self, change: ProfileChange) -> ProfileChangeResult {
        let change = Box::new(change);
        self.ask(|reply| LoopInput::Document(DocumentChange::Profile { change, reply }))
            .await?
    }

    /// Changes tokens, policies or shares. Returns when the change is durable.
    pub(crate) async fn change_access(&self, change: AccessChange) -> AccessChangeResult {
        let change = Box::new(change);
        self.ask(|reply| LoopInput::Document(DocumentChange::Access { change, reply }))
            .await?
    }

    /// Checks that the main loop runs.
    pub(crate) async fn turns(&self) -> ProblemResult<()> {
        self.ask(|reply| LoopInput::Query(ClusterQuery::Turn(reply)))
            .await
    }

    /// One node, with the time of its last heartbeat.
    pub(crate) async fn node(&self, node: &NodeId) -> ProblemResult<Option<(NodeView, Tick)>> {
        self.ask(|reply| LoopInput::Query(ClusterQuery::Node(node.clone(), reply)))
            .await
    }

    /// Last published view, however old; for its index.
    pub(crate) fn last(&self) -> Arc<ClusterSnapshot> {
        self.published.last()
    }

    /// Sends an input and waits for its result.
    pub(crate) async fn ask<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<T>) -> LoopInput,
    ) -> ProblemResult<T> {
        let (reply, answer) = oneshot::channel();
        let whole = async {
            self.lines
                .calls
                .send(input(reply))
                .await
                .map_err(|_| ending())?;
            answer.await.map_err(|_| ending())
        };
        tokio::time::timeout(REPLY_TIMEOUT, whole)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Current view: not older than any result that was sent before.
    pub(crate) async fn view(&self) -> ProblemResult<Arc<ClusterSnapshot>> {
        if let Some(view) = self.published.fresh() {
            return Ok(view);
        }
        let wanted = self.published.batches();
        let mut views = self.published.views();
        let whole = async {
            self.lines
                .calls
                .send(LoopInput::Query(ClusterQuery::Refresh))
                .await
                .map_err(|_| ending())?;
            let view = views
                .wait_for(|view| view.batch >= wanted)
                .await
                .map_err(|_| ending())?;
            Ok(view.clone())
        };
        tokio::time::timeout(REPLY_TIMEOUT, whole)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Number of inputs that wait for the main loop.
    pub(crate) fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Number of inputs that wait for the main loop, without heartbeats of nodes.
    pub(crate) fn calls_waiting(&self) -> usize {
        self.lines.calls_waiting()
    }

    /// Receiver of the number of batches.
    pub(crate) fn batches(&self) -> watch::Receiver<u64> {
        self.published.news()
    }

    /// Orders the main loop to stop. Returns `false` if it has ended.
    pub(crate) async fn stop(&self) -> bool {
        self.lines.calls.send(LoopInput::Stop).await.is_ok()
    }
}

fn ending() -> ProblemDetails {
    ProblemDetails::unavailable("the resource manager is shutting down")
        .hint("try again in a moment")
}

fn late() -> ProblemDetails {
    ProblemDetails::unavailable(format!(
        "the resource manager did not respond within {} s",
        REPLY_TIMEOUT.as_secs()
    ))
    .hint("the outcome is unknown; the same call may be sent again")
}
