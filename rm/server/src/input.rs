//! The one way into the loop: bounded lines of a closed enum, and the handle that handlers put things into them with.
//!
//! A handle never touches the core. It waits with a deadline, and says so when the loop does not keep up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_rm_core::{Answer, Answered, Call, Refusal, Report, Update};
use headroom_rm_store::SavedAnswer;
use headroom_types::{AppId, AttemptId, Bytes, ContainerId, Epoch, NodeId, QueuePath, RequestId, Resource, Tick};
use headroom_wire::v1::am::Ask;
use headroom_wire::v1::apps::{AppView, AttemptView, ContainerView, WhyPending};
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::job::JobPatch;
use headroom_wire::v1::nodes::{Desired, NodeView};
use tokio::sync::{mpsc, oneshot, watch};

use crate::access::{Ruled, Wish};
use crate::clock::Clock;
use crate::http::errors::with_nearest;
use crate::inbox::{Lines, Sign};
use crate::profiles::{Change, Decided};
use crate::view::View;
use crate::{facts, outgoing};

/// How long a caller waits for a place in the line and for the answer.
const PATIENCE: Duration = Duration::from_secs(9);
/// How long a master that comes too early after a restart is kept waiting before it is sent away. Shorter than callers wait.
const RECOVERY: Duration = Duration::from_secs(6);

/// Everything the loop is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something for the core, and rows of a job that go with it.
    Call {
        /// What.
        what: Box<Call>,
        /// Merged when the core accepts the call.
        job: Option<Box<(AppId, JobPatch)>>,
        /// Where the answer goes, once it is durable.
        reply: oneshot::Sender<Answered>,
    },
    /// A node listens for what it should have.
    WatchNode {
        /// Which.
        node: NodeId,
        /// The life it speaks to.
        epoch: Epoch,
        /// Gets the line.
        reply: oneshot::Sender<Result<mpsc::Receiver<Desired>, Refusal>>,
    },
    /// A master listens for updates.
    WatchApp {
        /// Whose.
        app: AppId,
        /// The life it speaks to.
        epoch: Epoch,
        /// It has those up to here.
        cursor: u64,
        /// Gets the line.
        reply: oneshot::Sender<Result<mpsc::Receiver<Vec<Update>>, Problem>>,
    },
    /// Answers to calls with a key, to be kept over a restart, and keys that are not needed any more.
    Keep {
        /// What was answered, before the caller is.
        answer: Box<SavedAnswer>,
        /// These can go.
        gone: Vec<String>,
        /// Told when it is durable.
        reply: oneshot::Sender<()>,
    },
    /// Another size for a profile of the cluster, or none.
    Profile {
        /// What.
        change: Box<Change>,
        /// What came of it, once it is durable.
        reply: oneshot::Sender<Decided>,
    },
    /// Another token, or one less; another policy.
    Access {
        /// What.
        wish: Box<Wish>,
        /// What came of it, once it is durable.
        reply: oneshot::Sender<Ruled>,
    },
    /// Somebody wants to see something.
    Query(Query),
    /// Save, hang up, end.
    Stop,
}

/// Questions about the cluster as it is after the batch.
#[derive(Debug)]
pub(crate) enum Query {
    /// Publish a new view.
    Refresh,
    /// Only that the loop turns.
    Turn(oneshot::Sender<()>),
    /// One node and its last sign of life, without making a view of all.
    Node(NodeId, oneshot::Sender<Option<(NodeView, Tick)>>),
    /// One application, without making a view of all.
    App(AppId, oneshot::Sender<Option<AppView>>),
    /// More than the view has.
    Facts(facts::Question),
    /// Why requests wait.
    Why(AppId, oneshot::Sender<Option<Vec<WhyPending>>>),
    /// The requests themselves.
    Requests(AppId, oneshot::Sender<Option<Vec<Ask>>>),
    /// Containers, those that are over included.
    Containers(Box<Wanted>, oneshot::Sender<Vec<ContainerView>>),
    /// The runs of an application's master.
    Attempts(AppId, oneshot::Sender<Vec<AttemptView>>),
    /// One container.
    Container(ContainerId, oneshot::Sender<Option<ContainerView>>),
    /// What these nodes hold, at most [`HELD`] containers each.
    Held(Vec<NodeId>, oneshot::Sender<Vec<(NodeId, Vec<Held>)>>),
    /// At most so many requests that wait, of one application or of all; the one that has waited longest first.
    Waits(Option<AppId>, usize, oneshot::Sender<Vec<Waits>>),
}

/// Containers told of one node.
pub(crate) const HELD: usize = 256;

/// A container on its node.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// What is known of it.
    pub(crate) view: ContainerView,
    /// Its heap budget, where declared. Bytes.
    pub(crate) heap: Option<Bytes>,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Whose.
    pub(crate) app: AppId,
    /// Which.
    pub(crate) request: RequestId,
    /// In which queue.
    pub(crate) queue: QueuePath,
    /// Since when.
    pub(crate) since: Tick,
    /// Containers still to come.
    pub(crate) missing: u32,
    /// The size of one.
    pub(crate) asks: Resource,
    /// The whole reason.
    pub(crate) sentence: String,
}

/// Which containers somebody wants to see.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Of this application.
    pub(crate) app: Option<AppId>,
    /// On this node.
    pub(crate) node: Option<NodeId>,
    /// In this state.
    pub(crate) state: Option<String>,
    /// Of one of these applications.
    pub(crate) apps: Option<BTreeSet<AppId>>,
    /// After this one.
    pub(crate) after: Option<ContainerId>,
    /// At most so many.
    pub(crate) most: usize,
}

/// The published view, and how many batches there have been.
#[derive(Debug)]
pub(crate) struct Published {
    view: watch::Sender<Arc<View>>,
    batches: AtomicU64,
    /// For those who wait until there is another one.
    news: watch::Sender<u64>,
    /// Nobody is waited for any more after the restart.
    recovered: watch::Sender<bool>,
}

impl Published {
    /// Begins with a view that is already old: nobody may see it before the loop has turned once.
    pub(crate) fn new(view: View) -> Self {
        let batches = view.batch + 1;
        Published {
            batches: AtomicU64::new(batches),
            news: watch::Sender::new(batches),
            recovered: watch::Sender::new(false),
            view: watch::Sender::new(Arc::new(view)),
        }
    }
    /// Another batch changed the cluster: the published view is old now.
    pub(crate) fn outdate(&self) {
        let before = self.batches.fetch_add(1, Ordering::AcqRel);
        if self.news.receiver_count() > 0 {
            self.news.send_replace(before + 1);
        }
    }
    /// Whether nodes that had containers are still waited for.
    pub(crate) fn recovered(&self, recovered: bool) {
        self.recovered.send_if_modified(|known| std::mem::replace(known, recovered) != recovered);
    }
    /// Nobody is waited for any more after the restart.
    pub(crate) fn is_recovered(&self) -> bool {
        *self.recovered.borrow()
    }
    /// How many batches there have been.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }
    /// The view that was published last, fresh or not.
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

/// A handler's end of the lines.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    lines: Lines,
    published: Arc<Published>,
    clock: Clock,
}

impl Handle {
    pub(crate) fn new(lines: Lines, published: Arc<Published>, clock: Clock) -> Self {
        Handle { lines, published, clock }
    }

    /// Asks the core.
    pub(crate) async fn call(&self, what: Call) -> Result<Answer, Problem> {
        self.call_with(what, None).await
    }

    /// Asks the core, and hands in rows of a job.
    pub(crate) async fn call_with(&self, what: Call, job: Option<(AppId, JobPatch)>) -> Result<Answer, Problem> {
        let answer = self.ask(|reply| Input::Call { what: Box::new(what), job: job.map(Box::new), reply }).await?;
        match answer {
            Ok(answer) => Ok(answer),
            Err(refusal) => Err(self.refused(&refusal).await),
        }
    }

    /// A refusal; of a thing that is not there, with the name that was most likely meant.
    pub(crate) async fn refused(&self, refusal: &Refusal) -> Problem {
        let problem = outgoing::problem(refusal);
        if problem.code != Code::HR0404 {
            return problem;
        }
        match self.view().await {
            Ok(view) => with_nearest(&view, refusal, problem),
            Err(_) => problem, // the refusal says enough without a name
        }
    }

    /// A node's sign of life: has a line of its own.
    pub(crate) async fn report(&self, node: NodeId, report: Box<Report>) -> Result<Answer, Problem> {
        let (reply, answer) = oneshot::channel();
        let input = Input::Call { what: Box::new(Call::Report { node, report }), job: None, reply };
        let sign = Sign { input, arrived: self.clock.now() };
        let whole = async {
            self.lines.signs.send(sign).await.map_err(|_| ending())?;
            answer.await.map_err(|_| ending())
        };
        let answer = tokio::time::timeout(PATIENCE, whole).await.unwrap_or_else(|_| Err(late()))?;
        answer.map_err(|refusal| outgoing::problem(&refusal))
    }

    /// A master that comes. After a restart it cannot be told what it has before all nodes have come back: instead of being sent
    /// away to try again later and later, it waits here for as long as that may take.
    pub(crate) async fn register_master(&self, attempt: AttemptId, url: Option<String>) -> Result<Answer, Problem> {
        let mut recovered = self.published.recovered.subscribe();
        let until = tokio::time::Instant::now() + RECOVERY;
        loop {
            let what = Call::RegisterMaster { attempt: attempt.clone(), url: url.clone() };
            let answer: Answered = self.ask(|reply| Input::Call { what: Box::new(what), job: None, reply }).await?;
            let refusal = match answer {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            let early = matches!(refusal, Refusal::Recovering(_));
            let waited = early && matches!(tokio::time::timeout_at(until, recovered.wait_for(|r| *r)).await, Ok(Ok(_)));
            if !waited {
                return Err(outgoing::problem(&refusal));
            }
        }
    }

    /// Keeps an answer over a restart. Returns when it is durable.
    pub(crate) async fn keep(&self, answer: SavedAnswer, gone: Vec<String>) -> Result<(), Problem> {
        self.ask(|reply| Input::Keep { answer: Box::new(answer), gone, reply }).await
    }

    /// That the loop turns.
    pub(crate) async fn turns(&self) -> Result<(), Problem> {
        self.ask(|reply| Input::Query(Query::Turn(reply))).await
    }

    /// One node as it is, and its last sign of life.
    pub(crate) async fn node(&self, node: &NodeId) -> Result<Option<(NodeView, Tick)>, Problem> {
        self.ask(|reply| Input::Query(Query::Node(node.clone(), reply))).await
    }

    /// The view that was published last, however old: for where it stands.
    pub(crate) fn last(&self) -> Arc<View> {
        self.published.last()
    }

    /// Puts something in and waits for what comes back.
    pub(crate) async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        let whole = async {
            self.lines.calls.send(input(reply)).await.map_err(|_| ending())?;
            answer.await.map_err(|_| ending())
        };
        tokio::time::timeout(PATIENCE, whole).await.unwrap_or_else(|_| Err(late()))
    }

    /// The cluster as it is now: not older than the last answer that was given.
    pub(crate) async fn view(&self) -> Result<Arc<View>, Problem> {
        if let Some(view) = self.published.fresh() {
            return Ok(view);
        }
        let wanted = self.published.batches.load(Ordering::Acquire);
        let mut views = self.published.view.subscribe();
        let whole = async {
            self.lines.calls.send(Input::Query(Query::Refresh)).await.map_err(|_| ending())?;
            let view = views.wait_for(|view| view.batch >= wanted).await.map_err(|_| ending())?;
            Ok(view.clone())
        };
        tokio::time::timeout(PATIENCE, whole).await.unwrap_or_else(|_| Err(late()))
    }

    /// How many inputs wait for the loop.
    pub(crate) fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Tells when there is another batch.
    pub(crate) fn batches(&self) -> watch::Receiver<u64> {
        self.published.news.subscribe()
    }

    /// Tells the loop to end. False when it has.
    pub(crate) async fn stop(&self) -> bool {
        self.lines.calls.send(Input::Stop).await.is_ok()
    }
}

fn ending() -> Problem {
    Problem::new(Code::HR0503, "the resource manager is ending").hint("try again in a moment")
}

fn late() -> Problem {
    Problem::new(Code::HR0503, format!("the resource manager did not get to it within {} s", PATIENCE.as_secs()))
        .hint("whether it was done is not known; the same call may be sent again")
}
