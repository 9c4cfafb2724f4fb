//! Usage history: the needs of ended tasks, for each user and job name; each ended job adds a
//! bounded lesson.
//!
//! Only the main loop writes it, in the batch that ends the job, so that each job counts once.
//! Handlers read it and share the entries. It is outside of the core: no decision of the core
//! depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_rm_store::{SavedEnlargedTask, SavedJobHistory, SavedKind};
use headroom_sizes::suggest::suggest;
use headroom_types::{Bytes, ExitCharge, Name, UnixMillis};
use headroom_wire::v1::job::{TaskRow, TaskState};
use headroom_wire::v1::job_history::{
    EnlargedTask, JobHistory, JobHistoryRow, TaskKindHistory, TaskMemoryNeed,
};
use headroom_wire::v1::suggestions::Suggestion;

/// Limit on families. When it is reached, the one with the oldest last run is removed.
const FAMILIES: usize = 512;
/// Limit on kinds of tasks in one family.
const KINDS: usize = 64;
/// Limit on tasks of one kind; the latest are kept.
const TASKS: usize = 250;
/// Limit on tasks with more memory than configured in one family; the latest are kept.
pub(crate) const MAX_ENLARGED: usize = 2000;

type JobHistoryKey = (String, Name);

/// All families.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory {
    known: Mutex<BTreeMap<JobHistoryKey, Arc<JobHistory>>>,
    /// Suggestions computed from the families, valid while the family is unchanged.
    suggestions: Mutex<BTreeMap<JobHistoryKey, CachedSuggestions>>,
}

/// Suggestions, and the state of the family from which they were computed.
#[derive(Clone, Debug)]
struct CachedSuggestions {
    family: Arc<JobHistory>,
    says: Arc<Vec<Suggestion>>,
}

/// Changes that an ended job causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobHistoryUpdate {
    /// Family to save.
    pub(crate) family: Arc<JobHistory>,
    /// Family to delete, to stay within the limit.
    pub(crate) gone: Option<JobHistoryKey>,
}

impl UsageHistory {
    /// Restores the families that an earlier incarnation saved.
    pub(crate) fn restored(saved: Vec<SavedJobHistory>) -> Self {
        let families = saved.into_iter().map(restored);
        let known = families
            .map(|f| ((f.user.clone(), f.name.clone()), Arc::new(f)))
            .collect();
        UsageHistory {
            known: Mutex::new(known),
            suggestions: Mutex::default(),
        }
    }

    /// Adds the needs of those tasks that succeeded, and the sizes of enlarged tasks. Returns `None`
    /// without either.
    pub(crate) fn learn<'a>(
        &self,
        user: &str,
        name: &Name,
        at: UnixMillis,
        rows: impl Iterator<Item = &'a TaskRow>,
        enlarged: &[EnlargedTask],
    ) -> Option<JobHistoryUpdate> {
        let lessons: Vec<(&str, TaskMemoryNeed)> = rows
            .filter_map(|row| Some((row.task.stage.as_str(), need(row)?)))
            .collect();
        if lessons.is_empty() && enlarged.is_empty() {
            return None;
        }
        let mut known = self.known();
        let key = (user.to_owned(), name.clone());
        let gone = if known.contains_key(&key) || known.len() < FAMILIES {
            None
        } else {
            oldest(&known)
        };
        if let Some(gone) = &gone {
            known.remove(gone);
        }
        let fresh = || {
            Arc::new(JobHistory {
                user: user.to_owned(),
                name: name.clone(),
                runs: 0,
                last: at,
                kinds: Vec::new(),
                enlarged: Vec::new(),
            })
        };
        let family = known.entry(key).or_insert_with(fresh);
        let changed = Arc::make_mut(family);
        changed.runs = changed.runs.saturating_add(1);
        changed.last = at;
        lessons
            .into_iter()
            .for_each(|(kind, need)| add(&mut changed.kinds, kind, need));
        renew(&mut changed.enlarged, enlarged);
        Some(JobHistoryUpdate {
            family: Arc::clone(family),
            gone,
        })
    }

    /// Families of one user, or all.
    pub(crate) fn list(&self, user: Option<&str>) -> Vec<JobHistoryRow> {
        self.known()
            .values()
            .filter(|f| user.is_none_or(|u| u == f.user))
            .map(|f| row(f))
            .collect()
    }

    /// One family.
    pub(crate) fn get(&self, user: &str, name: &Name) -> Option<Arc<JobHistory>> {
        self.known().get(&(user.to_owned(), name.clone())).cloned()
    }

    /// Suggested initial sizes, for one user and name or for all. Slow for families whose
    /// suggestions are not cached.
    pub(crate) fn suggestions(&self, user: Option<&str>, name: Option<&Name>) -> Vec<Suggestion> {
        let wanted =
            |f: &JobHistory| user.is_none_or(|u| u == f.user) && name.is_none_or(|n| *n == f.name);
        let families: Vec<Arc<JobHistory>> = self
            .known()
            .values()
            .filter(|f| wanted(f))
            .cloned()
            .collect();
        families
            .iter()
            .flat_map(|family| self.says(family).iter().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Computes the suggestions once for each state of a family, without holding a lock.
    fn says(&self, family: &Arc<JobHistory>) -> Arc<Vec<Suggestion>> {
        let key = (family.user.clone(), family.name.clone());
        let cached = self
            .suggestion_cache()
            .get(&key)
            .filter(|cached| Arc::ptr_eq(&cached.family, family))
            .map(|cached| cached.says.clone());
        cached.unwrap_or_else(|| {
            let says = Arc::new(suggest(family));
            let mut cache = self.suggestion_cache();
            if cache.len() >= FAMILIES {
                // The cache is full, so it holds entries of removed families.
                cache.clear();
            }
            cache.insert(
                key,
                CachedSuggestions {
                    family: family.clone(),
                    says: says.clone(),
                },
            );
            says
        })
    }

    fn suggestion_cache(&self) -> MutexGuard<'_, BTreeMap<JobHistoryKey, CachedSuggestions>> {
        // Poisoning is harmless: no panic can leave the map half changed.
        self.suggestions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<JobHistoryKey, Arc<JobHistory>>> {
        // Poisoning is harmless: a panic of a reader changes no state.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn oldest(known: &BTreeMap<JobHistoryKey, Arc<JobHistory>>) -> Option<JobHistoryKey> {
    known
        .iter()
        .min_by_key(|(key, family)| (family.last, *key))
        .map(|(key, _)| key.clone())
}

fn row(family: &JobHistory) -> JobHistoryRow {
    let tasks: usize = family.kinds.iter().map(|kind| kind.tasks.len()).sum();
    JobHistoryRow {
        user: family.user.clone(),
        name: family.name.clone(),
        runs: family.runs,
        tasks: u32::try_from(tasks).unwrap_or(u32::MAX),
        last: family.last,
    }
}

/// Need of a task that succeeded and was measured.
fn need(row: &TaskRow) -> Option<TaskMemoryNeed> {
    if row.state != TaskState::Done {
        return None;
    }
    let (first, last) = (
        row.attempts.first()?,
        row.attempts
            .iter()
            .rfind(|a| a.reason.is_some_and(|r| r.charge() == ExitCharge::Success))?,
    );
    let kills = row
        .attempts
        .iter()
        .filter(|a| a.reason.is_some_and(|r| r.charge() == ExitCharge::Memory))
        .count();
    Some(TaskMemoryNeed {
        peak: last.peak.filter(|peak| *peak > Bytes::new(0))?,
        first: first.profile.memory(),
        last: last.profile.memory(),
        kills: u32::try_from(kills).unwrap_or(u32::MAX),
        runtime_ms: last.ended?.0.saturating_sub(last.started.0),
    })
}

fn add(kinds: &mut Vec<TaskKindHistory>, name: &str, need: TaskMemoryNeed) {
    let at = match kinds.binary_search_by(|kind| kind.name.as_str().cmp(name)) {
        Ok(at) => at,
        Err(_) if kinds.len() >= KINDS => return,
        Err(at) => {
            kinds.insert(
                at,
                TaskKindHistory {
                    name: name.to_owned(),
                    tasks: Vec::new(),
                },
            );
            at
        }
    };
    if let Some(kind) = kinds.get_mut(at) {
        if kind.tasks.len() >= TASKS {
            kind.tasks.remove(0);
        }
        kind.tasks.push(need);
    }
}

/// Replaces the sizes of these tasks, and removes the oldest ones above the limit.
fn renew(known: &mut Vec<EnlargedTask>, latest: &[EnlargedTask]) {
    let names: BTreeSet<&str> = latest.iter().map(|task| task.name.as_str()).collect();
    known.retain(|task| !names.contains(task.name.as_str()));
    known.extend_from_slice(latest);
    let surplus = known.len().saturating_sub(MAX_ENLARGED);
    known.drain(..surplus);
}

fn restored(saved: SavedJobHistory) -> JobHistory {
    let kinds = saved.kinds.into_iter().map(|kind| TaskKindHistory {
        name: kind.name,
        tasks: kind.tasks.into_iter().map(read).collect(),
    });
    JobHistory {
        user: saved.user,
        name: saved.name,
        runs: saved.runs,
        last: saved.last,
        kinds: kinds.collect(),
        enlarged: saved.enlarged.into_iter().map(enlarged_task).collect(),
    }
}

fn enlarged_task(saved: SavedEnlargedTask) -> EnlargedTask {
    let SavedEnlargedTask {
        name,
        rung,
        cpus,
        memory,
    } = saved;
    EnlargedTask {
        name,
        rung,
        cpus,
        memory,
    }
}

fn saved_enlarged_task(task: &EnlargedTask) -> SavedEnlargedTask {
    SavedEnlargedTask {
        name: task.name.clone(),
        rung: task.rung,
        cpus: task.cpus,
        memory: task.memory.clone(),
    }
}

fn read([peak, first, last, kills, runtime_ms]: [u64; 5]) -> TaskMemoryNeed {
    let (peak, first, last) = (Bytes::new(peak), Bytes::new(first), Bytes::new(last));
    TaskMemoryNeed {
        peak,
        first,
        last,
        kills: u32::try_from(kills).unwrap_or(u32::MAX),
        runtime_ms,
    }
}

/// Converts a family to its saved form.
pub(crate) fn saved(family: &JobHistory) -> SavedJobHistory {
    let write = |n: &TaskMemoryNeed| {
        [
            n.peak.get(),
            n.first.get(),
            n.last.get(),
            u64::from(n.kills),
            n.runtime_ms,
        ]
    };
    let kinds = family.kinds.iter().map(|kind| SavedKind {
        name: kind.name.clone(),
        tasks: kind.tasks.iter().map(write).collect(),
    });
    let (user, name) = (family.user.clone(), family.name.clone());
    SavedJobHistory {
        user,
        name,
        runs: family.runs,
        last: family.last,
        kinds: kinds.collect(),
        enlarged: family.enlarged.iter().map(saved_enlarged_task).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task with one attempt for each reason. The last attempt used `peak_mib` for a minute.
    fn task(id: &str, state: &str, reasons: &[&str], peak_mib: u64) -> TaskRow {
        let profile =
            |mib: u64| serde_json::json!({"heap": 0, "overhead": mib << 20, "cpus": 1000});
        let attempts: Vec<serde_json::Value> = (1u64..)
            .zip(reasons)
            .map(|(n, kind)| {
                let reason = if *kind == "exit" { serde_json::json!({"kind": "exit", "code": 0}) } else { serde_json::json!({"kind": kind}) };
                serde_json::json!({
                    "attempt": format!("{id}@{n}"), "profile": profile(512 * n), "slots": 1, "rung": n, "container": "count.1.e1.c2",
                    "node": "n1", "started": 1000, "ended": 61_000, "peak": peak_mib << 20, "reason": reason,
                })
            })
            .collect();
        let row = serde_json::json!({"task": id, "state": state, "profile": profile(512), "rung": 1, "attempts": attempts});
        serde_json::from_value(row).expect("a row")
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn learn(
        families: &UsageHistory,
        user: &str,
        job: &str,
        at: u64,
        rows: &[TaskRow],
    ) -> Option<JobHistoryUpdate> {
        families.learn(user, &name(job), UnixMillis(at), rows.iter(), &[])
    }

    #[test]
    fn usage_history_records_successful_tasks_and_counts_kills() {
        let families = UsageHistory::default();
        let rows = [
            task("map/0", "done", &["exit"], 300),
            task("map/1", "done", &["task_oom", "node_lost", "exit"], 900),
            task("map/2", "failed", &["task_oom"], 511),
            task("map/3", "running", &["node_lost"], 50),
            task("fold/0", "done", &["exit"], 20),
        ];
        let lesson = learn(&families, "ann", "count", 7, &rows).expect("some tasks succeeded");
        let mib = Bytes::from_mib;
        let need = |peak, last, kills| TaskMemoryNeed {
            peak: mib(peak),
            first: mib(512),
            last: mib(last),
            kills,
            runtime_ms: 60_000,
        };
        let kind = |name: &str, tasks: &[TaskMemoryNeed]| TaskKindHistory {
            name: name.into(),
            tasks: tasks.to_vec(),
        };
        assert_eq!(
            lesson.family.kinds,
            [
                kind("fold", &[need(20, 512, 0)]),
                kind("map", &[need(300, 512, 0), need(900, 1536, 1)])
            ]
        );
        assert_eq!(
            (lesson.family.runs, lesson.family.last, lesson.gone),
            (1, UnixMillis(7), None)
        );
        assert_eq!(
            learn(&families, "ann", "count", 8, &rows[2..4]),
            None,
            "no task succeeded"
        );
        assert_eq!(
            families
                .list(None)
                .iter()
                .map(|f| (f.runs, f.tasks))
                .collect::<Vec<_>>(),
            [(1, 3)]
        );
    }

    #[test]
    fn suggestions_follow_the_current_usage_history() {
        let families = UsageHistory::default();
        let rows = |mib: u64| {
            (0..10)
                .map(|i| task(&format!("map/{i}"), "done", &["exit"], mib))
                .collect::<Vec<_>>()
        };
        learn(&families, "ann", "count", 1, &rows(300)[..4]);
        learn(&families, "bob", "count", 1, &rows(100));
        let of = |user| families.suggestions(user, Some(&name("count")));
        assert_eq!(
            of(None)
                .iter()
                .map(|s| (s.user.as_str(), s.tasks))
                .collect::<Vec<_>>(),
            [("ann", 4), ("bob", 10)]
        );
        assert_eq!(of(Some("ann"))[0].suggested, None, "too few tasks");
        learn(&families, "ann", "count", 2, &rows(300));
        assert!(
            of(Some("ann"))[0].suggested >= Some(Bytes::from_mib(300)),
            "{:?}",
            of(Some("ann"))
        );
        assert_eq!(families.suggestions(None, Some(&name("other"))), []);
    }

    #[test]
    fn users_do_not_share_usage_history() {
        let families = UsageHistory::default();
        learn(
            &families,
            "ann",
            "count",
            1,
            &[task("map/0", "done", &["exit"], 300)],
        );
        learn(
            &families,
            "bob",
            "count",
            2,
            &[task("map/0", "done", &["exit"], 8000)],
        );
        assert_eq!(
            families.get("ann", &name("count")).expect("known").kinds[0]
                .tasks
                .len(),
            1
        );
        assert_eq!(families.get("eve", &name("count")), None);
        assert_eq!(families.list(Some("bob")).len(), 1);
    }

    #[test]
    fn usage_history_keeps_a_bounded_number_of_latest_tasks() {
        let families = UsageHistory::default();
        for round in 0..3u64 {
            let rows: Vec<TaskRow> = (0..100)
                .map(|i| task(&format!("map/{i}"), "done", &["exit"], 100 * (round + 1)))
                .collect();
            learn(&families, "ann", "count", round, &rows);
        }
        let tasks = families.get("ann", &name("count")).expect("known").kinds[0]
            .tasks
            .clone();
        assert_eq!(
            (tasks.len(), tasks[0].peak, tasks[249].peak),
            (TASKS, Bytes::from_mib(100), Bytes::from_mib(300))
        );
        let one = [task("map/0", "done", &["exit"], 1)];
        let gone: Vec<JobHistoryKey> = (0..FAMILIES)
            .filter_map(|i| learn(&families, "ann", &format!("j{i}"), 10, &one)?.gone)
            .collect();
        assert_eq!(
            gone,
            [("ann".to_owned(), name("count"))],
            "the job with the oldest last run"
        );
        assert_eq!(families.list(None).len(), FAMILIES);
        let stages: Vec<TaskRow> = (0..100)
            .map(|i| task(&format!("s{i}/0"), "done", &["exit"], 1))
            .collect();
        assert_eq!(
            learn(&families, "ann", "j0", 11, &stages)
                .expect("learned")
                .family
                .kinds
                .len(),
            KINDS
        );
    }

    fn enlarged(task: &str, mib: u64) -> EnlargedTask {
        EnlargedTask {
            name: task.to_owned(),
            rung: 3,
            cpus: 1,
            memory: BTreeMap::from([(name("heap"), Bytes::from_mib(mib))]),
        }
    }

    #[test]
    fn enlarged_tasks_are_replaced_by_name_and_bounded() {
        let families = UsageHistory::default();
        let learn = |at, tasks: &[EnlargedTask]| {
            let rows = std::iter::empty();
            families.learn("ann", &name("count"), UnixMillis(at), rows, tasks)
        };
        assert_eq!(learn(1, &[]), None, "there is nothing to keep");
        learn(2, &[enlarged("a/1", 1024), enlarged("a/2", 1024)]);
        let update = learn(3, &[enlarged("a/1", 2048)]).expect("a size");
        assert_eq!(
            update.family.enlarged,
            [enlarged("a/2", 1024), enlarged("a/1", 2048)]
        );
        let again = UsageHistory::restored(vec![saved(&update.family)]);
        assert_eq!(
            again.get("ann", &name("count")),
            Some(update.family),
            "it is unchanged after save and restore"
        );
        let many: Vec<EnlargedTask> = (0..MAX_ENLARGED)
            .map(|n| enlarged(&format!("b/{n}"), 512))
            .collect();
        let update = learn(4, &many).expect("sizes");
        assert_eq!(update.family.enlarged, many, "the oldest are removed");
    }

    #[test]
    fn usage_history_is_unchanged_after_save_and_restore() {
        let families = UsageHistory::default();
        let lesson = learn(
            &families,
            "ann",
            "count",
            7,
            &[task("map/1", "done", &["task_oom", "exit"], 900)],
        )
        .expect("learned");
        let again = UsageHistory::restored(vec![saved(&lesson.family)]);
        assert_eq!(again.get("ann", &name("count")), Some(lesson.family));
    }
}
