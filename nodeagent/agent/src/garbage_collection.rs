//! Garbage collection of the state directory: keeps logs within their limits while programs write,
//! and removes directories some time after containers end.
//!
//! Runs in parallel to the loop. For containers that are still needed it only removes the oldest
//! parts of their logs. Each kind of work has a loop of its own, so a resource manager or a file server
//! that does not answer delays neither the log limits nor the removal of directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use headroom_client::{Client, ClientError, TaskRowScope};
use headroom_types::{AppId, ContainerId, UnixMillis};
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::agent_input::AgentInput;
use crate::disk::{StateLayout, file};
use crate::logs;
use crate::node_context::NodeContext;

/// Interval of the log limit check.
const BOUND: Duration = Duration::from_secs(1);
/// Maximum wait until the next check of a container that writes nothing, in these intervals.
const MAX_LOG_CHECK_WAIT: u64 = 4;
/// Interval of the search for old directories.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval of queries whether applications without containers here have ended.
const ASK: Duration = Duration::from_secs(10);
/// Maximum interval between two queries about the same application. Data of an ended application
/// occupies the disk no longer than this.
const MAX_QUERY_INTERVAL: Duration = Duration::from_secs(120);
/// Maximum number of journals that wait for their removal.
const MAX_WAITING_JOURNALS: usize = 16;

/// An application that has ended, with the time of its submission.
type EndedApp = (AppId, UnixMillis);

/// One kind of work: the interval of its starts, and the function that starts it.
type PeriodicWork = (Duration, Box<dyn FnMut() -> JoinHandle<()> + Send>);

/// Collects garbage until the loop has ended.
pub(crate) async fn keep(site: Arc<NodeContext>, rm: Client, inputs: mpsc::Sender<AgentInput>) {
    let (ended, journals) = mpsc::channel(MAX_WAITING_JOURNALS);
    tokio::select! {
        () = run_all(all_work(&site, &rm, &ended)) => {}
        () = remove_journals(&site, journals) => {}
        () = inputs.closed() => {}
    }
}

/// All work of the garbage collection, except for the removal of shared journals.
fn all_work(
    site: &Arc<NodeContext>,
    rm: &Client,
    ended: &mpsc::Sender<EndedApp>,
) -> [PeriodicWork; 3] {
    let checks: Arc<Mutex<LogChecks>> = Arc::default();
    let of = Arc::clone(site);
    let bound = move || {
        let (site, checks) = (Arc::clone(&of), Arc::clone(&checks));
        spawn_blocking(move || {
            bound_logs(
                &site,
                &mut checks.lock().unwrap_or_else(PoisonError::into_inner),
            );
        })
    };
    let of = Arc::clone(site);
    let sweep = move || {
        let site = Arc::clone(&of);
        spawn_blocking(move || sweep_away(&site.layout, site.logs().keep))
    };
    let (of, rm, ended) = (Arc::clone(site), rm.clone(), ended.clone());
    let mut schedule = QuerySchedule::default();
    let ask = move || {
        let (site, rm, ended) = (Arc::clone(&of), rm.clone(), ended.clone());
        let due = schedule.due(site.layout.resting().unwrap_or_default(), Instant::now());
        tokio::spawn(async move { remove_ended_apps(&site, &rm, due, &ended).await })
    };
    [
        (BOUND, Box::new(bound)),
        (SWEEP, Box::new(sweep)),
        (ASK, Box::new(ask)),
    ]
}

/// Runs all work at its intervals. No kind of work waits for another, and none runs twice at once.
async fn run_all<const N: usize>(all: [PeriodicWork; N]) {
    futures_util::future::join_all(all.map(repeat)).await;
}

async fn repeat((interval, mut start): PeriodicWork) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A panic is already in the log.
        AbortOnDropHandle::new(start()).await.ok();
    }
}

/// Removes the shared journals of ended applications, unless their masters did so.
async fn remove_journals(site: &NodeContext, mut ended: mpsc::Receiver<EndedApp>) {
    while let Some((app, submitted)) = ended.recv().await {
        if let Some(journals) = &site.journals {
            journals.remove(&app, submitted).await;
        }
    }
}

/// Removes the directories of ended applications. The agent must ask: an application may have no
/// container here for hours. A restarted master finds its journal in the directory, and auxiliary
/// services read data of its containers there. Without an answer, nothing is removed. The shared
/// journal of each goes to `ended`.
async fn remove_ended_apps(
    site: &NodeContext,
    rm: &Client,
    resting: Vec<AppId>,
    ended: &mpsc::Sender<EndedApp>,
) {
    let layout = &site.layout;
    for app in resting {
        let answer = rm.app_with(&app, TaskRowScope::None).await;
        if let Ok(view) = &answer
            && view.state.is_final()
            && site.journals.is_some()
            && ended.try_send((app.clone(), view.submitted)).is_err()
        {
            // Too many journals wait. The next query about the application tries again.
            continue;
        }
        let answer = answer.map(|view| view.state);
        let over = has_ended(&answer);
        let (layout, of) = (layout.clone(), app.clone());
        if over
            && let Ok(Err(error)) =
                spawn_blocking(move || fs::remove_dir_all(layout.app(&of))).await
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%app, %error, "the directory of an ended application cannot be removed, trying again");
        }
    }
}

/// Whether an application has ended, by an answer about it. Without an answer it has not.
fn has_ended(answer: &Result<AppState, ClientError>) -> bool {
    match answer {
        Ok(state) => state.is_final(),
        // So long ago that the resource manager no longer knows it.
        Err(error) => error.code() == Some(ErrorCode::HR0404),
    }
}

/// Schedule of the queries about applications without containers: the interval doubles with each
/// query.
#[derive(Debug, Default)]
struct QuerySchedule(BTreeMap<AppId, (Instant, Duration)>);

impl QuerySchedule {
    /// The applications of `resting` whose query is due. Applications no longer in `resting` are
    /// dropped.
    fn due(&mut self, resting: Vec<AppId>, now: Instant) -> Vec<AppId> {
        self.0.retain(|app, _| resting.contains(app));
        let is_due = |app: &AppId| {
            let (at, pause) = self.0.entry(app.clone()).or_insert((now, ASK));
            let due = *at <= now;
            if due {
                (*at, *pause) = (
                    now + *pause,
                    pause.saturating_mul(2).min(MAX_QUERY_INTERVAL),
                );
            }
            due
        };
        resting.into_iter().filter(is_due).collect()
    }
}

/// The checks of the logs of all containers.
#[derive(Debug, Default)]
struct LogChecks {
    /// Number of the current round of checks.
    round: u64,
    containers: BTreeMap<ContainerId, LogCheck>,
}

/// The last check of the logs of one container.
#[derive(Clone, Copy, Debug, Default)]
struct LogCheck {
    /// The lengths of its own two logs. Other lengths mean new output.
    lengths: [u64; 2],
    /// Rounds until the next check.
    wait: u64,
    /// The round of the next check.
    due: u64,
}

impl LogChecks {
    /// Whether a container is checked in this round.
    fn is_due(&self, id: &ContainerId) -> bool {
        self.containers
            .get(id)
            .is_none_or(|check| check.due <= self.round)
    }

    /// Records a check. Returns whether the logs may exceed their limits. Without new output, the
    /// wait doubles. Containers with logs of tasks are checked in every round.
    fn record(&mut self, id: &ContainerId, lengths: [u64; 2], has_task_logs: bool) -> bool {
        let before = self.containers.get(id).copied();
        let grown = has_task_logs || before.is_none_or(|check| check.lengths != lengths);
        let wait = match before {
            Some(check) if !grown => check.wait.saturating_mul(2).min(MAX_LOG_CHECK_WAIT),
            Some(_) | None => 1,
        };
        let due = self.round.saturating_add(wait);
        let check = LogCheck { lengths, wait, due };
        self.containers.insert(id.clone(), check);
        grown
    }
}

fn bound_logs(site: &NodeContext, checks: &mut LogChecks) {
    let all = site.layout.list().unwrap_or_default();
    checks
        .containers
        .retain(|id, _| all.binary_search(id).is_ok());
    checks.round += 1;
    for id in all
        .iter()
        .filter(|id| checks.is_due(id))
        .collect::<Vec<_>>()
    {
        if site.layout.is_forgotten(id) {
            checks.containers.remove(id);
            continue;
        }
        let dir = site.layout.container(id);
        let lengths = [file::STDOUT, file::STDERR]
            .map(|name| fs::metadata(dir.join(name)).map_or(0, |m| m.len()));
        let has_task_logs =
            fs::read_dir(dir.join(file::TASKS)).is_ok_and(|mut entries| entries.next().is_some());
        if checks.record(id, lengths, has_task_logs) {
            logs::keep_within(&dir, &site.logs());
        }
    }
    for service in site.aux_services.keys() {
        logs::keep_within(&site.layout.aux_service(service), &site.logs());
    }
}

/// Removes forgotten containers after their retention.
fn sweep_away(layout: &StateLayout, keep: Duration) {
    if let Err(error) = layout.remove_older(keep, SystemTime::now()) {
        tracing::warn!(%error, "old logs cannot be listed, trying again in a minute");
    }
}

impl StateLayout {
    /// Applications with a directory, but without a container that is still needed.
    pub(crate) fn resting(&self) -> io::Result<Vec<AppId>> {
        let names = fs::read_dir(self.apps())?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut apps: Vec<AppId> = names.filter_map(|name| name.parse().ok()).collect();
        if !apps.is_empty() {
            let needed: BTreeSet<AppId> = self
                .list()?
                .into_iter()
                .filter(|id| !self.is_forgotten(id))
                .map(|id| id.app)
                .collect();
            apps.retain(|app| !needed.contains(app));
        }
        Ok(apps)
    }

    /// Removes containers that were forgotten more than `keep` before `now`.
    pub(crate) fn remove_older(&self, keep: Duration, now: SystemTime) -> io::Result<()> {
        self.remove_each_older(keep, now, |dir| fs::remove_dir_all(dir))
    }

    /// Calls `remove` for each of them. One that cannot be removed does not keep the others.
    fn remove_each_older(
        &self,
        keep: Duration,
        now: SystemTime,
        remove: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let old = |since: SystemTime| now.duration_since(since).is_ok_and(|age| age > keep);
        for id in self.list()? {
            let dir = self.container(&id);
            let is_old = fs::metadata(dir.join(file::FORGOTTEN))
                .and_then(|m| m.modified())
                .is_ok_and(old);
            if is_old && let Err(error) = remove(&dir) {
                tracing::warn!(container_id = %id, %error, "old logs cannot be removed, trying again in a minute");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headroom_wire::v1::error::ProblemDetails;

    use super::*;

    #[test]
    fn logs_without_new_output_are_checked_less_often() {
        let id: ContainerId = "job.1.e1.c1".parse().expect("id");
        let mut checks = LogChecks::default();
        let mut checked = Vec::new();
        let mut play = |rounds: u64, lengths: [u64; 2], has_task_logs| {
            for _ in 0..rounds {
                checks.round += 1;
                if checks.is_due(&id) {
                    let grown = checks.record(&id, lengths, has_task_logs);
                    checked.push((checks.round, grown));
                }
            }
            std::mem::take(&mut checked)
        };
        assert_eq!(
            play(12, [0, 0], false),
            [(1, true), (2, false), (4, false), (8, false), (12, false)]
        );
        assert_eq!(
            play(6, [0, 9], false),
            [(16, true), (17, false)],
            "new output is found at the next check, and the wait begins again"
        );
        assert_eq!(
            play(4, [0, 9], true),
            [(19, true), (20, true), (21, true), (22, true)],
            "logs of tasks are checked in each round"
        );
    }

    #[test]
    fn the_query_interval_of_an_idle_application_doubles() {
        let (mut schedule, started) = (QuerySchedule::default(), Instant::now());
        let app: AppId = "job.1".parse().expect("id");
        let mut asked = Vec::new();
        for second in (0..3600).step_by(10) {
            if !schedule
                .due(vec![app.clone()], started + Duration::from_secs(second))
                .is_empty()
            {
                asked.push(second);
            }
        }
        assert_eq!(asked.get(..5), Some([0, 10, 30, 70, 150].as_slice()));
        assert!(
            asked.windows(2).all(|w| w[1] - w[0] <= 120) && asked.len() < 40,
            "{asked:?}"
        );
        assert!(schedule.due(Vec::new(), started).is_empty() && schedule.0.is_empty());
    }

    #[test]
    fn without_an_answer_an_application_has_not_ended() {
        let problem = |code| {
            let details = ProblemDetails::new(code, "no");
            Err(ClientError::Problem(Box::new(details)))
        };
        assert!(has_ended(&Ok(AppState::Finished)) && has_ended(&Ok(AppState::Failed)));
        assert!(has_ended(&problem(ErrorCode::HR0404)));
        for answer in [
            Ok(AppState::Running),
            problem(ErrorCode::HR0500),
            problem(ErrorCode::HR0403),
            Err(ClientError::NotSent),
        ] {
            assert!(!has_ended(&answer), "{answer:?}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_removed_does_not_keep_the_others() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        let ids: [ContainerId; 3] =
            ["a.1.e1.c1", "a.1.e1.c2", "a.1.e1.c3"].map(|id| id.parse().expect("id"));
        for id in &ids {
            fs::create_dir_all(layout.container(id)).expect("makes");
            layout.forget(id).expect("forgets");
        }
        let stuck = layout.container(&ids[0]);
        let remove = |dir: &Path| {
            if dir == stuck {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            fs::remove_dir_all(dir)
        };
        let later = SystemTime::now() + Duration::from_secs(10);
        layout
            .remove_each_older(Duration::from_secs(1), later, remove)
            .expect("sweeps");
        assert_eq!(layout.list().expect("lists"), [ids[0].clone()]);
    }

    /// A query that has no answer never ends.
    #[tokio::test]
    async fn work_that_does_not_end_delays_no_other_work() {
        let (checked, mut checks) = mpsc::channel(1);
        let bound = move || {
            let checked = checked.clone();
            tokio::spawn(async move { checked.send(()).await.expect("the test waits") })
        };
        let (asked, mut queries) = mpsc::channel(1);
        let ask = move || {
            let asked = asked.clone();
            tokio::spawn(async move {
                asked.send(()).await.expect("the test waits");
                std::future::pending().await
            })
        };
        let often = Duration::from_millis(1);
        let all: [PeriodicWork; 2] = [(often, Box::new(ask)), (often, Box::new(bound))];
        let several_checks = async {
            queries.recv().await.expect("a query");
            for _ in 0..5 {
                checks.recv().await.expect("a check");
            }
        };
        tokio::select! {
            () = run_all(all) => panic!("the work never ends"),
            in_time = tokio::time::timeout(Duration::from_secs(20), several_checks) => {
                in_time.expect("the logs are checked while the query waits");
            }
        }
        assert!(queries.try_recv().is_err(), "one query runs at a time");
    }

    #[test]
    fn only_old_forgotten_containers_are_removed() {
        let dir = tempfile::tempdir().expect("dir");
        let layout = StateLayout::open(dir.path()).expect("opens");
        let ids = ["old.1.e1.c1", "old.1.e1.c2", "new.2.e1.c3"].map(|id| id.parse().expect("id"));
        for id in &ids {
            fs::create_dir_all(layout.container(id)).expect("makes");
            fs::create_dir_all(layout.app(&id.app)).expect("makes");
        }
        assert!(
            layout.resting().expect("lists").is_empty(),
            "each application has a container"
        );
        layout.forget(&ids[0]).expect("forgets");
        assert!(
            layout.resting().expect("lists").is_empty(),
            "another container of the application is left"
        );
        let (day, later) = (
            Duration::from_secs(86_400),
            SystemTime::now() + Duration::from_secs(90_000),
        );
        layout.remove_older(day, SystemTime::now()).expect("sweeps");
        assert_eq!(
            layout.list().expect("lists").len(),
            3,
            "no container is old"
        );
        layout.remove_older(day, later).expect("sweeps");
        assert_eq!(
            layout.list().expect("lists").len(),
            2,
            "only the forgotten container was removed"
        );
        assert!(
            layout.app(&ids[0].app).exists(),
            "another container of the application is left"
        );
        layout.forget(&ids[1]).expect("forgets");
        assert_eq!(layout.resting().expect("lists"), [ids[1].app.clone()]);
        layout.remove_older(day, later).expect("sweeps");
        assert_eq!(layout.list().expect("lists"), [ids[2].clone()]);
        assert!(
            layout.app(&ids[0].app).exists() && layout.app(&ids[2].app).exists(),
            "only the resource manager knows whether an application has ended"
        );
    }
}
