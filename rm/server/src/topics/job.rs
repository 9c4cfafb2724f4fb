//! Topics for one job with its tasks, aggregated where there are many, and for one task with all
//! its attempts.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_types::{AppId, ExitCharge, TaskId};
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::job::{FoldedTasks, JobTotals, JobView, TaskRow, TaskState};
use serde_json::{Value, json};

use super::overview::filled;
use super::task_summary::needed_more_memory;
use super::{TopicState, brief, json, lists};
use crate::input::ClusterQuery;
use crate::jobs::JobRowSnapshot;
use crate::reader::ClusterReader;

/// Limit on tasks that are sent with all their attempts; the others are only cells of the grid.
const TASKS: usize = 200;
/// Limit on cells in the grid of a stage.
const SQUARES: usize = 20_000;
/// Bars of the histogram of peaks relative to limits; the last bar contains peaks at the limit.
const BARS: usize = 20;

/// Task rows of a job at one moment.
#[derive(Clone, Debug)]
pub(crate) enum JobTaskRows {
    /// Live job, in memory.
    Live(Box<JobRowSnapshot>),
    /// Ended job, from the store; it never changes.
    Over(Arc<JobView>),
}

impl JobTaskRows {
    fn totals(&self) -> &JobTotals {
        match self {
            JobTaskRows::Live(snapshot) => snapshot.totals(),
            JobTaskRows::Over(view) => &view.totals,
        }
    }
    fn rows(&self) -> Box<dyn Iterator<Item = &TaskRow> + '_> {
        match self {
            JobTaskRows::Live(snapshot) => Box::new(snapshot.rows()),
            JobTaskRows::Over(view) => Box::new(view.tasks.iter()),
        }
    }
}

/// Task rows of an application. Those of an ended application are read once, and cached in `kept`.
async fn tasks(
    reader: &ClusterReader,
    app: &AppId,
    kept: &mut Option<Arc<JobView>>,
) -> Option<JobTaskRows> {
    if let Some(snapshot) = reader.shared.jobs.snapshot(app) {
        return Some(JobTaskRows::Live(Box::new(snapshot)));
    }
    if kept.is_none() {
        *kept = reader.job(app).await.map(Arc::new);
    }
    kept.clone().map(JobTaskRows::Over)
}

/// State of the topic of one job; `None` if it does not exist.
pub(crate) async fn job(
    reader: &ClusterReader,
    id: &AppId,
    kept: &mut Option<Arc<JobView>>,
) -> ProblemResult<Option<TopicState>> {
    let Some(mut app) = reader
        .query(|reply| ClusterQuery::App(id.clone(), reply))
        .await?
    else {
        return Ok(None);
    };
    app.attempts = reader
        .query(|reply| ClusterQuery::Attempts(id.clone(), reply))
        .await?;
    let mut board = TopicState::from([("app".into(), json(&app))]);
    if app.pending > 0 {
        board.insert(
            "waits".into(),
            lists::waits(reader, Some(id.clone())).await?,
        );
    }
    if let Some(tasks) = tasks(reader, id, kept).await {
        board.insert("totals".into(), brief::totals(tasks.totals()));
        board.insert("inputs".into(), json(&tasks.totals().inputs));
        board.extend(stages(tasks.rows(), &tasks.totals().folded));
        board.extend(chosen(tasks.rows()));
    }
    Ok(Some(board))
}

/// Aggregates of one stage.
#[derive(Default)]
struct StageAggregates {
    squares: String,
    /// Index of the first task.
    from: Option<u32>,
    tasks: usize,
    states: BTreeMap<&'static str, u32>,
    kills: u32,
    peaks: [u32; BARS],
    first: Option<Value>,
}

/// Character of a task: `b`locked, `p`ending, `r`unning, `d`one, `f`ailed; in upper case if its
/// size was escalated or grown, or if it was killed for memory.
fn square(row: &TaskRow) -> char {
    let plain = match row.state {
        TaskState::Blocked => 'b',
        TaskState::Pending => 'p',
        TaskState::Running => 'r',
        TaskState::Done => 'd',
        TaskState::Failed => 'f',
    };
    if needed_more_memory(row) {
        plain.to_ascii_uppercase()
    } else {
        plain
    }
}

fn stages<'a>(rows: impl Iterator<Item = &'a TaskRow>, folded: &'a [FoldedTasks]) -> TopicState {
    let mut stages: BTreeMap<&str, StageAggregates> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for row in rows {
        let name = row.task.stage.as_str();
        let stage = stages.entry(name).or_insert_with(|| {
            order.push(name);
            StageAggregates::default()
        });
        stage.tasks += 1;
        // A row that is missing between others is that of a task that is only counted.
        let place = usize::try_from(
            row.task
                .index
                .saturating_sub(*stage.from.get_or_insert(row.task.index)),
        )
        .unwrap_or(usize::MAX);
        if folded.iter().any(|of| of.stage == row.task.stage) {
            let missing = place.min(SQUARES).saturating_sub(stage.squares.len());
            stage.squares.extend(std::iter::repeat_n('d', missing));
        }
        if stage.squares.len() < SQUARES {
            stage.squares.push(square(row));
        }
        *stage.states.entry(row.state.as_str()).or_default() += 1;
        let sized = |p: &headroom_types::Profile| json!({"heap": p.heap, "overhead": p.overhead, "cpus": p.cpus});
        stage.first.get_or_insert_with(|| {
            sized(row.attempts.first().map_or(&row.profile, |a| &a.profile))
        });
        for a in &row.attempts {
            stage.kills += u32::from(a.reason.is_some_and(|r| r.charge() == ExitCharge::Memory));
            let peak = a.peak.filter(|_| a.ended.is_some());
            let at = peak.map(|p| {
                usize::try_from(filled(p, a.profile.memory())).unwrap_or(1000) * BARS / 1001
            });
            if let Some(bar) = at.and_then(|at| stage.peaks.get_mut(at.min(BARS - 1))) {
                *bar += 1;
            }
        }
    }
    for FoldedTasks {
        stage,
        done,
        failed,
    } in folded
    {
        let Some(stage) = stages.get_mut(stage.as_str()) else {
            continue;
        };
        stage.tasks = stage
            .tasks
            .saturating_add(usize::try_from(done.saturating_add(*failed)).unwrap_or(usize::MAX));
        let missing = stage.tasks.min(SQUARES).saturating_sub(stage.squares.len());
        stage.squares.extend(std::iter::repeat_n('d', missing));
        *stage.states.entry(TaskState::Done.as_str()).or_default() += done;
        if *failed > 0 {
            *stage.states.entry(TaskState::Failed.as_str()).or_default() += failed;
        }
    }
    let row = |name: &str, s: &StageAggregates| {
        json!({
            "name": name, "squares": s.squares, "tasks": s.tasks, "states": s.states, "kills": s.kills, "peaks": s.peaks,
            "first": s.first,
        })
    };
    let mut board: TopicState = stages
        .iter()
        .map(|(name, stage)| (format!("stage:{name}"), row(name, stage)))
        .collect();
    board.insert("stages".into(), json(&order));
    board
}

/// Tasks that are sent with their attempts: failed, escalated or grown, retried, running and
/// pending ones, in this order, up to a limit.
fn chosen<'a>(rows: impl Iterator<Item = &'a TaskRow>) -> TopicState {
    let (ranked, all) = ranked(rows);
    let mut board: TopicState = ranked
        .into_iter()
        .map(|row| (format!("task:{}", row.task), brief::task(row)))
        .collect();
    board.insert("lines".into(), json!({"shown": board.len(), "of": all}));
    board
}

/// Ids of the tasks of [`chosen`]; empty if the job has no rows.
pub(crate) async fn chosen_tasks(
    reader: &ClusterReader,
    app: &AppId,
    kept: &mut Option<Arc<JobView>>,
) -> Vec<TaskId> {
    let Some(tasks) = tasks(reader, app, kept).await else {
        return Vec::new();
    };
    ranked(tasks.rows())
        .0
        .into_iter()
        .map(|row| row.task.clone())
        .collect()
}

/// Tasks by importance, up to a limit, and their number without the limit.
fn ranked<'a>(rows: impl Iterator<Item = &'a TaskRow>) -> (Vec<&'a TaskRow>, usize) {
    let mut ranked: Vec<(u8, &TaskRow)> = Vec::new();
    for row in rows {
        let rank = match row.state {
            TaskState::Failed => 0,
            TaskState::Done | TaskState::Pending | TaskState::Running | TaskState::Blocked
                if needed_more_memory(row) =>
            {
                1
            }
            TaskState::Done | TaskState::Pending | TaskState::Running if row.attempts.len() > 1 => {
                2
            }
            TaskState::Running => 3,
            TaskState::Pending => 4,
            TaskState::Done | TaskState::Blocked => continue,
        };
        ranked.push((rank, row));
    }
    let all = ranked.len();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(TASKS);
    (ranked.into_iter().map(|(_, row)| row).collect(), all)
}

/// State of the topic of one task; `None` if the job or the task does not exist.
pub(crate) async fn task(
    reader: &ClusterReader,
    id: &AppId,
    task: &TaskId,
    kept: &mut Option<Arc<JobView>>,
) -> ProblemResult<Option<TopicState>> {
    let Some(app) = reader
        .query(|reply| ClusterQuery::App(id.clone(), reply))
        .await?
    else {
        return Ok(None);
    };
    let Some(tasks) = tasks(reader, id, kept).await else {
        return Ok(None);
    };
    let Some(row) = tasks.rows().find(|row| row.task == *task) else {
        return Ok(None);
    };
    let mut board = TopicState::from([
        ("app".into(), brief::app(&app, None)),
        ("row".into(), brief::task(row)),
    ]);
    board.extend(row.attempts.iter().map(|a| {
        (
            format!("attempt:{}", a.attempt.attempt),
            brief::whole_attempt(a),
        )
    }));
    if row.state == TaskState::Pending {
        board.insert(
            "waits".into(),
            lists::waits(reader, Some(id.clone())).await?,
        );
    }
    Ok(Some(board))
}
