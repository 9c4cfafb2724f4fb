//! Result of the demonstration: one table, or one JSON object.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, ExitCharge};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{JobTotals, MemoryFailureMode};
use serde::Serialize;

use super::figures::{byte_time, fine_span, gib_seconds};
use super::table::{Column, Table, cut, list};
use super::{ListStyle, TextPainter, count};
use crate::demo::reference::ComparisonResult;
use crate::exit::CommandExitCode;

/// One run of the job.
#[derive(Clone, Debug)]
pub(crate) struct DemoRun {
    /// Id of the application.
    pub(crate) app: String,
    /// Sizing mode.
    pub(crate) mode: MemoryFailureMode,
    /// Whether the job finished.
    pub(crate) finished: bool,
    /// Reason of a failure.
    pub(crate) diagnostics: String,
    /// The comparison with the reference, or `None` without a result.
    pub(crate) result: Option<ComparisonResult>,
    /// Totals over all tasks.
    pub(crate) totals: JobTotals,
    /// Failed attempts by verdict, with their tasks.
    pub(crate) verdicts: BTreeMap<String, Vec<String>>,
    /// Time from submission to end.
    pub(crate) wall: Duration,
}

impl DemoRun {
    /// Collects the values from the last view of the application.
    pub(crate) fn of(
        app: &AppView,
        mode: MemoryFailureMode,
        wall: Duration,
        result: Option<ComparisonResult>,
    ) -> DemoRun {
        let job = app.job.clone().unwrap_or_default();
        let mut verdicts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for attempt in job.tasks.iter().flat_map(|t| &t.attempts) {
            if let Some(reason) = attempt.reason.filter(|r| r.charge() != ExitCharge::Success) {
                verdicts
                    .entry(reason.to_string())
                    .or_default()
                    .push(attempt.attempt.task.to_string());
            }
        }
        let (id, finished) = (app.id.to_string(), app.state == AppState::Finished);
        DemoRun {
            app: id,
            mode,
            finished,
            diagnostics: app.diagnostics.clone(),
            result,
            totals: job.totals,
            verdicts,
            wall,
        }
    }
    /// True if the result equals the reference, byte for byte.
    pub(crate) fn equal(&self) -> bool {
        matches!(self.result, Some(ComparisonResult::Equal { .. }))
    }
}

/// The run with the same size at every attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedSizeRun {
    /// Whether the job finished.
    pub(crate) finished: bool,
    /// Attempts killed for memory.
    pub(crate) kills: u32,
    /// Time from submission to end.
    pub(crate) wall: Duration,
}

/// The whole report.
#[derive(Clone, Debug)]
pub(crate) struct DemoReport {
    /// Enforcer of the limits.
    pub(crate) enforcer: String,
    /// Whether the kernel enforces the limits on every node.
    pub(crate) kernel_enforced: bool,
    /// The data set was generated so that it needs escalation.
    pub(crate) generated: bool,
    /// Memory of one slot.
    pub(crate) share: Bytes,
    /// The run with escalation.
    pub(crate) run: DemoRun,
    /// The run without escalation, or `None` if it was skipped.
    pub(crate) fixed: Option<FixedSizeRun>,
}

/// The JSON object of `-o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DemoSummary {
    finished: bool,
    result_equal: bool,
    enforcer: String,
    kills: u32,
    collateral_reruns: u32,
    rerun_gib_s: f64,
    fixed_mode: &'static str,
    wall_s: f64,
}

impl DemoReport {
    /// The JSON object of `-o json`.
    pub(crate) fn json(&self) -> DemoSummary {
        let totals = &self.run.totals;
        DemoSummary {
            finished: self.run.finished,
            result_equal: self.run.equal(),
            enforcer: self.enforcer.clone(),
            kills: totals.memory_kills,
            collateral_reruns: totals.collateral_reruns,
            rerun_gib_s: rounded(gib_seconds(totals.rerun_byte_ms)),
            fixed_mode: match self.fixed {
                Some(FixedSizeRun { finished: true, .. }) => "finished",
                Some(FixedSizeRun {
                    finished: false, ..
                }) => "failed",
                None => "skipped",
            },
            wall_s: rounded(self.run.wall.as_secs_f64()),
        }
    }

    /// The exit code. The demonstration succeeds if the job finished with the right result. With
    /// generated data the run without escalation must also have failed, unless it was skipped.
    pub(crate) fn exit(&self) -> CommandExitCode {
        let needed = !self.generated || self.fixed.is_none_or(|f| !f.finished);
        if self.run.finished && self.run.equal() && needed {
            CommandExitCode::Ok
        } else {
            CommandExitCode::Failed
        }
    }
}

fn rounded(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

/// The whole screen.
pub(crate) fn outcome(report: &DemoReport, paint: TextPainter) -> String {
    let mut table = Table::new(&[
        "MODE",
        "ENDED",
        ">KILLS",
        ">COLLATERAL",
        ">RE-RUN",
        ">WALL",
        "RESULT",
    ]);
    let run = &report.run;
    let ended = |ok: bool| {
        if ok {
            paint.good("✓ finished")
        } else {
            paint.bad("✗ failed")
        }
    };
    table.row([
        run.mode.as_str().to_owned(),
        ended(run.finished),
        run.totals.memory_kills.to_string(),
        run.totals.collateral_reruns.to_string(),
        byte_time(run.totals.rerun_byte_ms),
        fine_span(run.wall),
        result(run, paint),
    ]);
    if let Some(fixed) = report.fixed {
        let said = if fixed.finished {
            "finished without escalation"
        } else {
            "failed, as expected"
        };
        let (kills, wall) = (fixed.kills.to_string(), fine_span(fixed.wall));
        table.row([
            "fixed".to_owned(),
            ended(fixed.finished),
            kills,
            "–".into(),
            "–".into(),
            wall,
            said.into(),
        ]);
    }
    let mut text = table.text();
    text.push_str(&verdicts(run, paint));
    let label = if report.kernel_enforced {
        ""
    } else {
        " (not kernel-enforced)"
    };
    text.push_str(&format!(
        "share of a slot {} · enforcer {}{label}\n",
        report.share, report.enforcer
    ));
    if !run.diagnostics.is_empty() && !run.finished {
        text.push_str(&format!("{}\n", run.diagnostics));
    }
    if report.generated && report.fixed.is_some_and(|f| f.finished) {
        let note = "mode fixed was expected to fail this job but did not: this cluster did not enforce the shares of its tasks";
        text.push_str(&format!("{} {note}\n", paint.warn("!")));
    }
    let next = "next: rmctl dev in another terminal, then rmctl demo --addr http://127.0.0.1:7070 to inspect it while it runs";
    text + &paint.dim(next) + "\n"
}

fn result(run: &DemoRun, paint: TextPainter) -> String {
    match &run.result {
        Some(ComparisonResult::Equal { lines }) => paint.good(&format!(
            "✓ {lines} lines equal to the reference, byte for byte"
        )),
        Some(ComparisonResult::Differ {
            at,
            tasks,
            reference,
        }) => {
            let shown = |t: &Option<String>| {
                t.as_deref()
                    .map_or("nothing".to_owned(), |t| cut(t.trim_end(), 40))
            };
            paint.bad(&format!(
                "✗ line {at} is {} and should be {}",
                shown(tasks),
                shown(reference)
            ))
        }
        None => "none".to_owned(),
    }
}

/// Kills by verdict, with their number for each task.
fn verdicts(run: &DemoRun, paint: TextPainter) -> String {
    if run.verdicts.is_empty() {
        return format!(
            "no attempt failed in mode {} ({} ran)\n",
            run.mode.as_str(),
            count(run.totals.tasks, "task")
        );
    }
    let times = |tasks: &[String]| {
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for task in tasks {
            *times.entry(task).or_default() += 1;
        }
        let shown = times.iter().map(|(task, n)| {
            if *n > 1 {
                format!("{task} ×{n}")
            } else {
                (*task).to_owned()
            }
        });
        cut(&shown.collect::<Vec<_>>().join(", "), 90)
    };
    let columns: &[Column<'_, (&String, &Vec<String>)>] = &[
        ("VERDICT", &|(verdict, _)| verdict.clone()),
        (">ATTEMPTS", &|(_, tasks)| tasks.len().to_string()),
        ("TASKS", &|(_, tasks)| times(tasks)),
    ];
    list(&run.verdicts, ListStyle::whole(paint), columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn report() -> DemoReport {
        let mut app = fixture::app();
        app.state = AppState::Finished;
        let result = Some(ComparisonResult::Equal { lines: 5_560_432 });
        let run = DemoRun::of(
            &app,
            MemoryFailureMode::Headroom,
            Duration::from_millis(14_300),
            result,
        );
        let fixed = Some(FixedSizeRun {
            finished: false,
            kills: 20,
            wall: Duration::from_millis(8_250),
        });
        DemoReport {
            enforcer: "cgroup1".into(),
            kernel_enforced: true,
            generated: true,
            share: Bytes::from_mib(32),
            run,
            fixed,
        }
    }

    #[test]
    fn a_job_repaired() {
        insta::assert_snapshot!(outcome(&report(), TextPainter::PLAIN));
        assert_eq!(report().exit(), CommandExitCode::Ok);
    }

    #[test]
    fn the_object_for_machines() {
        insta::assert_snapshot!(crate::render::json::line(&report().json()));
    }

    #[test]
    fn unexpected_results_are_reported() {
        let mut r = report();
        r.fixed = Some(FixedSizeRun {
            finished: true,
            kills: 0,
            wall: Duration::from_secs(5),
        });
        r.enforcer = "poll".into();
        r.kernel_enforced = false;
        r.run.result = Some(ComparisonResult::Differ {
            at: 7,
            tasks: Some("a,1,2,2\n".into()),
            reference: None,
        });
        r.run.verdicts.clear();
        insta::assert_snapshot!(outcome(&r, TextPainter::PLAIN));
        assert_eq!(r.exit(), CommandExitCode::Failed);
    }

    #[test]
    fn success_needs_a_finished_job_and_an_equal_result() {
        let with = |change: fn(&mut DemoReport)| {
            let mut r = report();
            change(&mut r);
            r.exit()
        };
        assert_eq!(with(|r| r.run.finished = false), CommandExitCode::Failed);
        assert_eq!(with(|r| r.run.result = None), CommandExitCode::Failed);
        assert_eq!(
            with(|r| r.fixed = Some(FixedSizeRun {
                finished: true,
                kills: 0,
                wall: Duration::ZERO
            })),
            CommandExitCode::Failed
        );
        assert_eq!(
            with(|r| (r.generated, r.fixed) = (
                false,
                Some(FixedSizeRun {
                    finished: true,
                    kills: 0,
                    wall: Duration::ZERO
                })
            )),
            CommandExitCode::Ok
        );
    }
}
