//! One round of one case on a real agent: launch, action, exit report, check.

use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_node_core::{VerdictScope, classify};
use headroom_test_fakes::ReportedEnd;
use headroom_types::{ContainerId, LaunchSpec, TaskReport};
use headroom_wire::v1::task::TaskStart;
use serde_json::Value;

use super::case::{CaseAction, VerdictCase, shown, stuck_ms};
use super::master::Master;
use super::node::Node;
use super::wrong::WrongVerdict;

/// Timeout for an exit report, including the start of a runtime in a guest on a busy machine.
pub(super) const REPORT_TIMEOUT: Duration = Duration::from_secs(240);

/// The verdict of a container whose report did not arrive.
const NO_REPORT: &str = "no report";

/// The result of one container, or of one task of an executor.
#[derive(Debug)]
pub(super) struct CaseResult {
    /// The reported verdict.
    pub(super) verdict: String,
    /// Whether a process of it was killed: by the kernel for memory, by the agent, or by the
    /// simulated operator.
    pub(super) killed: bool,
    /// Run time of its main process, as measured by its shim. Milliseconds.
    pub(super) lived_ms: Option<u64>,
    /// From the end of that process to the report at the resource manager. Milliseconds.
    pub(super) report_delay_ms: Option<u64>,
    /// Duration of the stall at its limit, if the program reported its begin. Milliseconds.
    pub(super) stuck_ms: Option<u64>,
    /// The difference from the right verdict.
    pub(super) wrong: Option<WrongVerdict>,
}

/// Runs `case` once. An error is a failure of this program or of the machine, not a wrong verdict.
pub(super) async fn play(
    node: &Node,
    case: &VerdictCase,
    launch: &LaunchSpec,
    round: u32,
) -> Result<CaseResult> {
    let id = node.manager.run(case.limit(), launch.clone())?;
    if case.waits() {
        node.ready(&id)
            .await
            .with_context(|| format!("{}, round {round}", case.name))?;
        act(node, case.act, &id, round)?;
    }
    Ok(match node.manager.end(&id, REPORT_TIMEOUT).await {
        Some(end) => judge(node, case, &end, &launch.heap_exit_codes, round),
        None => missing_report(node, case, &id, round),
    })
}

/// Runs an executor once: its tasks, and its own successful end.
pub(super) async fn play_tasks(
    node: &Node,
    case: &VerdictCase,
    launch: &LaunchSpec,
    tasks: &[TaskStart],
    round: u32,
) -> Result<Vec<CaseResult>> {
    let master = Master::open().await?;
    let mut launch = launch.clone();
    launch.env.extend(master.environment(tasks.len()));
    let id = node.manager.run(case.limit(), launch)?;
    let reports = match tokio::time::timeout(REPORT_TIMEOUT, master.carry(tasks)).await {
        Ok(reports) => {
            reports.with_context(|| format!("{}, round {round}: its executor", case.name))?
        }
        Err(_) => return Ok(vec![missing_report(node, case, &id, round)]),
    };
    let Some(end) = node.manager.end(&id, REPORT_TIMEOUT).await else {
        return Ok(vec![missing_report(node, case, &id, round)]);
    };
    let container = judge(node, case, &end, &[], round);
    // If the executor was killed before it could report, the container's report covers its tasks.
    let missing = tasks.len().saturating_sub(reports.len());
    let played = reports.iter().map(|report| judge_task(case, report, round));
    if missing > 0 || container.wrong.is_some() {
        return Ok(played.chain([container]).collect());
    }
    Ok(played.collect())
}

/// A missing report counts as wrong. The state of its container is attached.
fn missing_report(node: &Node, case: &VerdictCase, id: &ContainerId, round: u32) -> CaseResult {
    let wrong = WrongVerdict {
        case: case.name.to_owned(),
        round,
        expected: case.expected(),
        verdict: NO_REPORT.to_owned(),
        why: format!("no report of {id} within {} s", REPORT_TIMEOUT.as_secs()),
        evidence: Value::Null,
        log_tail: String::new(),
        agent: node.traces_of(id),
    };
    CaseResult {
        verdict: NO_REPORT.to_owned(),
        killed: false,
        lived_ms: None,
        report_delay_ms: None,
        stuck_ms: None,
        wrong: Some(wrong),
    }
}

fn judge_task(case: &VerdictCase, report: &TaskReport, round: u32) -> CaseResult {
    let e = &report.evidence;
    let verdict = shown(report.reason, report.dimension);
    let wrong = case.judge_task(report).err().map(|why| WrongVerdict {
        case: case.name.to_owned(),
        round,
        expected: case.expected(),
        verdict: verdict.clone(),
        why,
        evidence: serde_json::to_value(e).unwrap_or(Value::Null),
        log_tail: report.log_tail.clone(),
        agent: Vec::new(),
    });
    let lived_ms = report.started.and_then(|s| report.ended.0.checked_sub(s.0));
    CaseResult {
        verdict,
        killed: e.own.events.oom_kill > 0 || e.signal == Some(9),
        lived_ms,
        report_delay_ms: None,
        stuck_ms: None,
        wrong,
    }
}

fn act(node: &Node, act: CaseAction, id: &ContainerId, round: u32) -> Result<()> {
    match act {
        CaseAction::None => Ok(()),
        CaseAction::Kill => node.kill_program(id),
        CaseAction::KillAll => node.kill_group(id),
        CaseAction::Stop => {
            node.manager.stop(id);
            Ok(())
        }
        CaseAction::StopAsItContinues => {
            if round.is_multiple_of(2) {
                node.let_continue(id)?;
                pause(round % 13);
                node.manager.stop(id);
                Ok(())
            } else {
                node.manager.stop(id);
                pause(round % 5);
                node.let_continue(id)
            }
        }
        CaseAction::CrashAsItContinues => {
            node.let_continue(id)?;
            pause(round % 17);
            node.crash()?;
            node.start_agent()
        }
    }
}

/// A wait from before the kill to after it, so that each round hits a different moment of the end.
fn pause(ms: u32) {
    crate::clock::pause(Duration::from_millis(u64::from(ms)));
}

/// Checks one report.
pub(super) fn judge(
    node: &Node,
    case: &VerdictCase,
    end: &ReportedEnd,
    codes: &[i32],
    round: u32,
) -> CaseResult {
    let report = &end.report;
    let e = &report.evidence;
    let verdict = shown(
        report.reason,
        classify(e, VerdictScope::Container, codes).dimension,
    );
    let wrong = case.judge(report, codes).err().map(|why| WrongVerdict {
        case: case.name.to_owned(),
        round,
        expected: case.expected(),
        verdict: verdict.clone(),
        why,
        evidence: serde_json::to_value(e).unwrap_or(Value::Null),
        log_tail: report.log_tail.clone(),
        agent: node.log_of(&report.container),
    });
    let killed = e.own.events.oom_kill > 0 || e.signal == Some(9);
    let lived_ms = report.started.and_then(|s| report.ended.0.checked_sub(s.0));
    CaseResult {
        verdict,
        killed,
        lived_ms,
        report_delay_ms: end.received.0.checked_sub(report.ended.0),
        stuck_ms: stuck_ms(report),
        wrong,
    }
}
