//! Inputs of the main loop: a closed enum in bounded queues, and the handle with which handlers
//! send them.
//!
//! A handle never touches the core. It waits with a timeout, and returns an error when the main
//! loop is too slow.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_rm_core::{
    CallAnswer, CallRefusal, CallResult, ClusterCall, MasterUpdate, NodeHeartbeat,
};
use headroom_rm_store::SavedResponse;
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Epoch, NodeId, QueuePath, RequestId, Resource, Tick,
};
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{AppView, AttemptView, ContainerView, PendingExplanation};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::job::JobPatch;
use headroom_wire::v1::nodes::{DesiredStateLine, NodeView};
use tokio::sync::{mpsc, oneshot, watch};

use crate::access::{AccessChange, AccessChangeResult};
use crate::clock::Clock;
use crate::http::errors::with_nearest;
use crate::inbox::{InputSenders, QueuedHeartbeat};
use crate::profiles::{Decided, ProfileChange};
use crate::view::View;
use crate::{reports, to_wire};

/// Timeout for queueing an input and receiving its result.
const REPLY_TIMEOUT: Duration = Duration::from_secs(9);
/// Maximum wait of a master that registers before the recovery after a restart is complete. Shorter
/// than the timeout of callers.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(6);

/// Inputs of the main loop.
#[derive(Debug)]
pub(crate) enum LoopInput {
    /// A call of the core, with rows of a job.
    Call {
        /// The call.
        what: Box<ClusterCall>,
        /// Merged when the core accepts the call.
        job: Option<Box<(AppId, JobPatch)>>,
        /// Receives the result, once it is durable.
        reply: oneshot::Sender<CallResult>,
    },
    /// A node opens the stream of its desired state.
    WatchNode {
        /// The node.
        node: NodeId,
        /// Epoch with which the node registered.
        epoch: Epoch,
        /// Receives the stream.
        reply: oneshot::Sender<Result<mpsc::Receiver<DesiredStateLine>, CallRefusal>>,
    },
    /// A master opens its stream of updates.
    WatchApp {
        /// The application.
        app: AppId,
        /// Epoch with which the master registered.
        epoch: Epoch,
        /// Cursor of the last update that the master has.
        cursor: u64,
        /// Receives the stream.
        reply: oneshot::Sender<Result<mpsc::Receiver<Vec<MasterUpdate>>, ProblemDetails>>,
    },
    /// Stores the response to a call with an idempotency key, and removes unused keys.
    Keep {
        /// Response, stored before the caller receives it.
        answer: Box<SavedResponse>,
        /// Keys to remove.
        gone: Vec<String>,
        /// Notified when the change is durable.
        reply: oneshot::Sender<()>,
    },
    /// Changes or deletes a profile of the cluster.
    Profile {
        /// The change.
        change: Box<ProfileChange>,
        /// Receives the result, once it is durable.
        reply: oneshot::Sender<Decided>,
    },
    /// Changes tokens, policies or shares.
    Access {
        /// The change.
        wish: Box<AccessChange>,
        /// Receives the result, once it is durable.
        reply: oneshot::Sender<AccessChangeResult>,
    },
    /// A query.
    Query(ClusterQuery),
    /// Saves the state, closes all streams and ends.
    Stop,
}

/// Queries about the cluster in its state after the batch.
#[derive(Debug)]
pub(crate) enum ClusterQuery {
    /// Publishes a new view.
    Refresh,
    /// Checks only that the main loop runs.
    Turn(oneshot::Sender<()>),
    /// One node with the time of its last heartbeat, without a new view.
    Node(NodeId, oneshot::Sender<Option<(NodeView, Tick)>>),
    /// One application, without a new view.
    App(AppId, oneshot::Sender<Option<AppView>>),
    /// A report with data that the view lacks.
    Facts(reports::ReportQuery),
    /// Reasons why requests wait.
    Why(AppId, oneshot::Sender<Option<Vec<PendingExplanation>>>),
    /// The requests of an application.
    Requests(AppId, oneshot::Sender<Option<Vec<PlacementRequest>>>),
    /// Containers, including ended ones.
    Containers(Box<ContainerFilter>, oneshot::Sender<Vec<ContainerView>>),
    /// Application attempts.
    Attempts(AppId, oneshot::Sender<Vec<AttemptView>>),
    /// One container.
    Container(ContainerId, oneshot::Sender<Option<ContainerView>>),
    /// Containers on these nodes, at most [`HELD`] for each.
    Held(
        Vec<NodeId>,
        oneshot::Sender<Vec<(NodeId, Vec<HeldContainer>)>>,
    ),
    /// Waiting requests of one application or of all, longest wait first, up to a maximum number.
    Waits(Option<AppId>, usize, oneshot::Sender<Vec<WaitingRequest>>),
}

/// Maximum number of containers for each node.
pub(crate) const HELD: usize = 256;

/// A container on its node.
#[derive(Clone, Debug)]
pub(crate) struct HeldContainer {
    /// View of the container.
    pub(crate) view: ContainerView,
    /// Heap budget, if declared. Bytes.
    pub(crate) heap: Option<Bytes>,
}

/// A waiting request.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRequest {
    /// The application.
    pub(crate) app: AppId,
    /// The request.
    pub(crate) request: RequestId,
    /// Its queue.
    pub(crate) queue: QueuePath,
    /// Start of the wait.
    pub(crate) since: Tick,
    /// Number of containers not yet granted.
    pub(crate) missing: u32,
    /// Size of one container.
    pub(crate) asks: Resource,
    /// Reason of the wait, as a sentence.
    pub(crate) sentence: String,
}

/// Selection of containers.
#[derive(Debug, Default)]
pub(crate) struct ContainerFilter {
    /// Application.
    pub(crate) app: Option<AppId>,
    /// Node.
    pub(crate) node: Option<NodeId>,
    /// State.
    pub(crate) state: Option<String>,
    /// Set of applications.
    pub(crate) apps: Option<BTreeSet<AppId>>,
    /// Lower bound of the id, exclusive.
    pub(crate) after: Option<ContainerId>,
    /// Maximum number.
    pub(crate) most: usize,
}

/// The published view, and the number of batches.
#[derive(Debug)]
pub(crate) struct Published {
    view: watch::Sender<Arc<View>>,
    batches: AtomicU64,
    /// Notifies callers that wait for the next batch.
    news: watch::Sender<u64>,
    /// Whether the recovery after a restart is complete.
    recovered: watch::Sender<bool>,
}

impl Published {
    /// Starts with an outdated view, so that no caller sees it before the first turn of the main
    /// loop.
    pub(crate) fn new(view: View) -> Self {
        let batches = view.batch + 1;
        Published {
            batches: AtomicU64::new(batches),
            news: watch::Sender::new(batches),
            recovered: watch::Sender::new(false),
            view: watch::Sender::new(Arc::new(view)),
        }
    }
    /// Marks the published view as outdated after a batch.
    pub(crate) fn outdate(&self) {
        let before = self.batches.fetch_add(1, Ordering::AcqRel);
        if self.news.receiver_count() > 0 {
            self.news.send_replace(before + 1);
        }
    }
    /// Sets whether the recovery after a restart is complete, so that no node is awaited any more.
    pub(crate) fn recovered(&self, recovered: bool) {
        self.recovered
            .send_if_modified(|known| std::mem::replace(known, recovered) != recovered);
    }
    /// Whether the recovery after a restart is complete.
    pub(crate) fn is_recovered(&self) -> bool {
        *self.recovered.borrow()
    }
    /// Number of batches.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }
    /// Last published view, possibly outdated.
    pub(crate) fn last(&self) -> Arc<View> {
        self.view.borrow().clone()
    }
    pub(crate) fn publish(&self, view: View) {
        self.view.send_replace(Arc::new(view));
    }
    fn fresh(&self) -> Option<Arc<View>> {
        let view = self.view.borrow().clone();
        (view.batch >= self.batches.load(Ordering::Acquire)).then_some(view)
    }
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh().is_some()
    }
}

/// Handle with which handlers send inputs to the main loop.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    lines: InputSenders,
    published: Arc<Published>,
    clock: Clock,
}

impl Handle {
    pub(crate) fn new(lines: InputSenders, published: Arc<Published>, clock: Clock) -> Self {
        Handle {
            lines,
            published,
            clock,
        }
    }

    /// Makes a call of the core.
    pub(crate) async fn call(&self, what: ClusterCall) -> Result<CallAnswer, ProblemDetails> {
        self.call_with(what, None).await
    }

    /// Makes a call of the core, with rows of a job.
    pub(crate) async fn call_with(
        &self,
        what: ClusterCall,
        job: Option<(AppId, JobPatch)>,
    ) -> Result<CallAnswer, ProblemDetails> {
        let answer = self
            .ask(|reply| LoopInput::Call {
                what: Box::new(what),
                job: job.map(Box::new),
                reply,
            })
            .await?;
        match answer {
            Ok(answer) => Ok(answer),
            Err(refusal) => Err(self.refused(&refusal).await),
        }
    }

    /// Problem for a refusal. For an object that does not exist, it suggests the most similar name.
    pub(crate) async fn refused(&self, refusal: &CallRefusal) -> ProblemDetails {
        let problem = to_wire::problem(refusal);
        if problem.code != ErrorCode::HR0404 {
            return problem;
        }
        match self.view().await {
            Ok(view) => with_nearest(&view, refusal, problem),
            Err(_) => problem, // without a view there is no suggestion
        }
    }

    /// Sends a node's heartbeat, through its own queue.
    pub(crate) async fn report(
        &self,
        node: NodeId,
        report: Box<NodeHeartbeat>,
    ) -> Result<CallAnswer, ProblemDetails> {
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
        answer.map_err(|refusal| to_wire::problem(&refusal))
    }

    /// Registers a master. After a restart, the resource manager knows the master's containers only
    /// when all nodes have registered again. The call waits for that instead of being refused,
    /// because the retries of a master become slower and slower.
    pub(crate) async fn register_master(
        &self,
        attempt: AttemptId,
        url: Option<String>,
    ) -> Result<CallAnswer, ProblemDetails> {
        let mut recovered = self.published.recovered.subscribe();
        let until = tokio::time::Instant::now() + RECOVERY_TIMEOUT;
        loop {
            let what = ClusterCall::RegisterMaster {
                attempt: attempt.clone(),
                url: url.clone(),
            };
            let answer: CallResult = self
                .ask(|reply| LoopInput::Call {
                    what: Box::new(what),
                    job: None,
                    reply,
                })
                .await?;
            let refusal = match answer {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            let early = matches!(refusal, CallRefusal::Recovering(_));
            let waited = early
                && matches!(
                    tokio::time::timeout_at(until, recovered.wait_for(|r| *r)).await,
                    Ok(Ok(_))
                );
            if !waited {
                return Err(to_wire::problem(&refusal));
            }
        }
    }

    /// Stores a response with its idempotency key. Returns when it is durable.
    pub(crate) async fn keep(
        &self,
        answer: SavedResponse,
        gone: Vec<String>,
    ) -> Result<(), ProblemDetails> {
        self.ask(|reply| LoopInput::Keep {
            answer: Box::new(answer),
            gone,
            reply,
        })
        .await
    }

    /// Checks that the main loop runs.
    pub(crate) async fn turns(&self) -> Result<(), ProblemDetails> {
        self.ask(|reply| LoopInput::Query(ClusterQuery::Turn(reply)))
            .await
    }

    /// One node, with the time of its last heartbeat.
    pub(crate) async fn node(
        &self,
        node: &NodeId,
    ) -> Result<Option<(NodeView, Tick)>, ProblemDetails> {
        self.ask(|reply| LoopInput::Query(ClusterQuery::Node(node.clone(), reply)))
            .await
    }

    /// Last published view, however old; for its index.
    pub(crate) fn last(&self) -> Arc<View> {
        self.published.last()
    }

    /// Sends an input and waits for its result.
    pub(crate) async fn ask<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<T>) -> LoopInput,
    ) -> Result<T, ProblemDetails> {
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
    pub(crate) async fn view(&self) -> Result<Arc<View>, ProblemDetails> {
        if let Some(view) = self.published.fresh() {
            return Ok(view);
        }
        let wanted = self.published.batches.load(Ordering::Acquire);
        let mut views = self.published.view.subscribe();
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

    /// Receiver of the number of batches.
    pub(crate) fn batches(&self) -> watch::Receiver<u64> {
        self.published.news.subscribe()
    }

    /// Orders the main loop to stop. Returns `false` if it has ended.
    pub(crate) async fn stop(&self) -> bool {
        self.lines.calls.send(LoopInput::Stop).await.is_ok()
    }
}

fn ending() -> ProblemDetails {
    ProblemDetails::new(ErrorCode::HR0503, "the resource manager is shutting down")
        .hint("try again in a moment")
}

fn late() -> ProblemDetails {
    ProblemDetails::new(
        ErrorCode::HR0503,
        format!(
            "the resource manager did not respond within {} s",
            REPLY_TIMEOUT.as_secs()
        ),
    )
    .hint("the outcome is unknown; the same call may be sent again")
}
