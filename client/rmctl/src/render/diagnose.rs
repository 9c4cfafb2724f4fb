//! Screen of an ended attempt: verdict, cause, evidence, decision, remedy.

use headroom_types::{AppliedTreatment, Bytes, Diagnosis, Dimension, ExitCharge, ExitReason};
use headroom_wire::v1::apps::{AppView, ContainerView};
use headroom_wire::v1::job::{AttemptRow, JobView, ShadowOutcome, TaskRow, TaskState};

use super::figures::{fine_span, short, short_or_dash, span, time_of_day};
use super::table::{Column, list, wrap};
use super::timeline::{self, TimelineEnd};
use super::{ListStyle, TextPainter, apps, evidence, inputs, job};

/// Width of the labels on the left. Columns.
const LABEL: usize = 10;
/// Width of the chart. Columns.
const CHART: usize = 64;

/// One attempt.
pub(crate) fn attempt(
    app: &AppView,
    task: &TaskRow,
    a: &AttemptRow,
    width: usize,
    paint: TextPainter,
) -> String {
    let mut page = LabeledPage {
        text: String::new(),
        width,
    };
    page.block("VERDICT", &verdict(a, paint));
    page.wrapped("ATTEMPT", &what(a));
    if let Some(size) = size(a) {
        page.wrapped("SIZE", &size);
    }
    if let Some(input) = &a.input {
        page.wrapped("INPUT", &inputs::of_attempt(input));
    }
    match &a.evidence {
        Some(e) => page.lines("EVIDENCE", &evidence::lines(e, &a.timeline)),
        None if a.reason.is_some() => page.wrapped("EVIDENCE", "none is stored"),
        None => page.wrapped("EVIDENCE", &so_far(a)),
    }
    let end = if charge(a) == Some(ExitCharge::Memory) {
        TimelineEnd::Killed
    } else {
        TimelineEnd::Other
    };
    if let Some(shape) = timeline::shape(&a.timeline) {
        page.wrapped("SHAPE", &shape);
    }
    for line in timeline::chart(
        &a.timeline,
        end,
        CHART.min(width.saturating_sub(LABEL + 20)),
        paint,
    ) {
        page.text
            .push_str(&format!("{}{line}\n", " ".repeat(LABEL - 3)));
    }
    if a.ended.is_some() && charge(a) != Some(ExitCharge::Success) {
        page.wrapped("DID", &did(task, a));
        if let Some(treated) = &a.treatment {
            page.wrapped("TREATMENT", &treatment(treated));
        }
    }
    if matches!(charge(a), Some(ExitCharge::Memory | ExitCharge::Plain)) || !a.diagnosis.is_empty()
    {
        page.lines("FIX", &fixes(&a.diagnosis, charge(a)));
    }
    if let Some(enough) = enough(task, a) {
        page.wrapped("ENOUGH", &enough);
    }
    if let Some(tail) = tail(&a.log_tail) {
        page.lines("STDERR", &tail);
    }
    let id = format!("{}/{}", app.id, a.attempt);
    page.block(
        "SEE",
        &paint.dim(&format!(
            "rmctl logs {id} --stderr --tail 50 · rmctl ps {}",
            app.id
        )),
    );
    page.text
}

/// The failed attempts of a job, one line each, the newest last.
pub(crate) fn of_app(app: &AppView, paint: TextPainter) -> String {
    let mut text = format!(
        "{}  {}",
        paint.strong(&app.id.to_string()),
        apps::state(app.state, paint)
    );
    text.push_str(&if app.diagnostics.is_empty() {
        "\n".to_owned()
    } else {
        format!(" · {}\n", app.diagnostics)
    });
    let Some(view) = &app.job else {
        let see = format!("rmctl logs {} --master --stderr", app.id);
        return text + "its master has not reported any task\n" + &paint.next(see);
    };
    text.push_str(&job::figures(&view.totals));
    text.push_str(&inputs::remote_kills(&view.totals.inputs));
    let failed = failures(view);
    if failed.is_empty() {
        return text
            + "nothing to diagnose: no attempt has failed\n"
            + &paint.next(format!("rmctl ps {}", app.id));
    }
    let ran = |a: &AttemptRow| a.ended.map(|e| fine_span(e.since(a.started)));
    let rows = failed.iter().copied();
    let columns: &[Column<'_, &AttemptRow>] = &[
        ("ATTEMPT", &|a| a.attempt.to_string()),
        ("VERDICT", &|a| {
            a.reason.map(|r| r.to_string()).unwrap_or_default()
        }),
        ("TREATMENT", &|a| {
            a.treatment
                .map_or_else(|| "-".to_owned(), |treated| treated.to_string())
        }),
        (">LIMIT", &|a| short(a.profile.memory())),
        (">PEAK", &|a| short_or_dash(a.peak)),
        (">AFTER", &|a| ran(a).unwrap_or_default()),
        ("NODE", &|a| a.node.to_string()),
        ("DECIDED", &|a| a.decision.clone()),
    ];
    text.push_str(&list(rows, ListStyle::whole(paint), columns));
    let first = worst(view).or_else(|| failed.last().copied());
    let see = first
        .map(|a| format!("next: rmctl diagnose {}/{}", app.id, a.attempt))
        .unwrap_or_default();
    text + &paint.dim(&see) + "\n"
}

/// A container with the values of the resource manager.
pub(crate) fn container(c: &ContainerView, paint: TextPainter) -> String {
    let whose = c.request.as_ref().map_or_else(
        || "its application master".to_owned(),
        |r| format!("request {r}"),
    );
    let verdict = c.reason.map_or_else(
        || format!("{}: it has not ended", c.state),
        |r| format!("{r}: {}", r.sentence()),
    );
    let used = c
        .used
        .map(|u| format!(" · last seen using {u}"))
        .unwrap_or_default();
    format!(
        "VERDICT   {verdict}\nCONTAINER {} on {} for {whose}\nEVIDENCE  size {}{used}\nSEE       {}\n",
        c.id,
        c.node,
        c.resource,
        paint.dim(&format!(
            "rmctl logs {} --stderr · rmctl diagnose {}",
            c.id, c.id.app
        ))
    )
}

/// Failed attempts in the order of their ends.
pub(crate) fn failures(view: &JobView) -> Vec<&AttemptRow> {
    let bad = |a: &&AttemptRow| charge(a).is_some_and(|c| c != ExitCharge::Success);
    let mut found: Vec<&AttemptRow> = view
        .tasks
        .iter()
        .flat_map(|t| &t.attempts)
        .filter(bad)
        .collect();
    found.sort_by_key(|a| (a.ended, &a.attempt));
    found
}

/// The last attempt of a failed task, which the diagnosis of the job shows.
fn worst(view: &JobView) -> Option<&AttemptRow> {
    view.tasks
        .iter()
        .find(|t| t.state == TaskState::Failed)
        .and_then(|t| t.attempts.last())
}

fn charge(a: &AttemptRow) -> Option<ExitCharge> {
    a.reason.map(|r| r.charge())
}

fn verdict(a: &AttemptRow, paint: TextPainter) -> String {
    let Some(reason) = a.reason else {
        return paint.live("▶ running");
    };
    let text = format!("{reason}: {}", reason.sentence());
    let sure = a
        .diagnosis
        .first()
        .map(|d| format!("  ({}, {})", d.name, d.certainty))
        .unwrap_or_default();
    match reason.charge() {
        ExitCharge::Success => paint.good(&format!("✓ {text}")),
        ExitCharge::Memory => format!("{}{sure}", paint.bad(&format!("✗ {text}"))),
        ExitCharge::Plain => paint.bad(&format!("✗ {text}")),
        ExitCharge::Free => paint.warn(&format!("↻ {text}; not charged to the task")),
    }
}

fn what(a: &AttemptRow) -> String {
    let place = format!("{} in {} on {}", a.attempt, a.container, a.node);
    let size = format!(
        "size {} in {} slot{}",
        a.profile,
        a.slots,
        if a.slots == 1 { "" } else { "s" }
    );
    let ran_out = a
        .dimension
        .map(|d| format!("; {} ran out", dimension(d)))
        .unwrap_or_default();
    match a.ended {
        None => format!("{place}, {size}, since {} UTC", time_of_day(a.started)),
        Some(end) => {
            let how = exit(a.reason, a.evidence.as_ref().and_then(|e| e.signal));
            format!(
                "{place} ended {} UTC after {}{how}; {size}{ran_out}",
                time_of_day(end),
                fine_span(end.since(a.started))
            )
        }
    }
}

/// The reason of the attempt's size, and the size that a learner in shadow mode would have chosen.
fn size(a: &AttemptRow) -> Option<String> {
    let shadow = a.shadow.as_ref().map(|s| {
        let outcome = match s.outcome {
            None => "",
            Some(ShadowOutcome::Fits) => ", which would have been enough",
            Some(ShadowOutcome::Killed) => ", at which it would have been killed",
            Some(ShadowOutcome::Perhaps) => ", which might have been enough",
        };
        format!(
            "a learned size would have been {}{outcome} ({})",
            s.profile, s.why
        )
    });
    let parts: Vec<String> = [Some(a.why.clone()).filter(|why| !why.is_empty()), shadow]
        .into_iter()
        .flatten()
        .collect();
    let rung = format!("rung {}: ", a.rung);
    let said = parts.join("; ");
    (!parts.is_empty()).then(|| {
        if said.starts_with(&rung) {
            said
        } else {
            rung + &said
        }
    })
}

fn so_far(a: &AttemptRow) -> String {
    let used = a
        .used
        .map(|u| format!("uses {u}"))
        .unwrap_or_else(|| "its use is not known yet".to_owned());
    let peak = a.peak.map(|p| format!(", peak {p}")).unwrap_or_default();
    format!("{used}{peak} of {}", a.profile.memory())
}

fn exit(reason: Option<ExitReason>, signal: Option<i32>) -> String {
    match (reason.map(|r| r.charge()), signal) {
        (Some(ExitCharge::Memory), Some(9)) => " by SIGKILL of the kernel".to_owned(),
        (_, Some(n)) => format!(" by signal {n}"),
        (_, None) => String::new(),
    }
}

fn dimension(d: Dimension) -> &'static str {
    match d {
        Dimension::Heap => "the heap",
        Dimension::Overhead => "the overhead",
        Dimension::Native => "memory (one quantity)",
    }
}

/// The treatment of the sub-cause.
fn treatment(treated: &AppliedTreatment) -> String {
    let remedy = treated
        .remedy
        .map(|remedy| format!(": the same size again, {}", remedy.sentence()))
        .unwrap_or_default();
    format!("{treated} for {}{remedy}", treated.cause)
}

/// The decision after the attempt, and its result.
fn did(task: &TaskRow, a: &AttemptRow) -> String {
    let decided = if a.decision.is_empty() {
        "no decision was recorded".to_owned()
    } else {
        a.decision.clone()
    };
    let Some(next) = task
        .attempts
        .iter()
        .find(|n| n.attempt.attempt == a.attempt.attempt + 1)
    else {
        let is_complete = task.note.is_empty() || decided.contains(&task.note);
        return if is_complete {
            decided
        } else {
            format!("{decided}; {}", task.note)
        };
    };
    let fate = match (next.reason, next.ended) {
        (Some(reason), Some(end)) => format!(
            "{} after {}",
            reason.sentence(),
            span(end.since(next.started))
        ),
        (_, _) => "running".to_owned(),
    };
    let peak = next.peak.map(|p| format!(", peak {p}")).unwrap_or_default();
    format!(
        "{decided}; attempt {} at {}: {fate}{peak}",
        next.attempt.attempt, next.profile
    )
}

fn fixes(diagnosis: &[Diagnosis], charge: Option<ExitCharge>) -> Vec<String> {
    if diagnosis.is_empty() {
        let plain = "memory is not the cause: read its standard error";
        let fix = if charge == Some(ExitCharge::Plain) {
            plain
        } else {
            "no rule applies to this evidence"
        };
        return vec![fix.to_owned()];
    }
    let one = |d: &Diagnosis| {
        let cost = if d.trade_off.is_empty() {
            String::new()
        } else {
            format!(" (costs: {})", d.trade_off)
        };
        let fits = d
            .would_fit
            .map(|b| format!("; with this fix alone it would have fitted in {b} so far"))
            .unwrap_or_default();
        format!(
            "{} · {}: {} → {}{fits}{cost}",
            d.name, d.certainty, d.cause, d.fix
        )
    };
    diagnosis.iter().map(one).collect()
}

/// The memory that the attempt would have needed, from a later attempt that succeeded.
fn enough(task: &TaskRow, a: &AttemptRow) -> Option<String> {
    if charge(a) != Some(ExitCharge::Memory) {
        return None;
    }
    let later = task
        .attempts
        .iter()
        .filter(|n| n.attempt.attempt > a.attempt.attempt);
    let done = later
        .filter(|n| charge(n) == Some(ExitCharge::Success))
        .find_map(|n| Some((n, n.peak?)))?;
    let (next, peak) = done;
    let step = if peak >= Bytes::from_gib(1) {
        Bytes::from_mib(64)
    } else {
        Bytes::from_mib(4)
    };
    let fits = peak.mul_ratio(51, 50).round_up(step);
    let given = next.profile.memory();
    let not = if fits < given {
        format!(", not {given}")
    } else {
        String::new()
    };
    Some(format!(
        "{fits} would be enough{not}: attempt {} peaked at {peak}",
        next.attempt.attempt
    ))
}

fn tail(log: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    let kept: Vec<String> = lines
        .iter()
        .rev()
        .take(3)
        .rev()
        .map(|l| (*l).to_owned())
        .collect();
    (!kept.is_empty()).then_some(kept)
}

/// A page with labels on the left and wrapped text on the right.
struct LabeledPage {
    text: String,
    width: usize,
}

impl LabeledPage {
    fn block(&mut self, label: &str, line: &str) {
        self.text.push_str(&format!("{label:<LABEL$}{line}\n"));
    }
    fn wrapped(&mut self, label: &str, text: &str) {
        self.lines(label, &[text.to_owned()]);
    }
    fn lines(&mut self, label: &str, lines: &[String]) {
        let wrapped = lines
            .iter()
            .flat_map(|l| wrap(l, self.width.saturating_sub(LABEL)));
        for (i, line) in wrapped.enumerate() {
            let label = if i == 0 { label } else { "" };
            self.text.push_str(&format!("{label:<LABEL$}{line}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_kill_with_all_its_evidence() {
        let text = attempt(
            &fixture::app(),
            &fixture::escalated(),
            &fixture::killed(),
            100,
            TextPainter::PLAIN,
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_running_attempt_and_a_lost_attempt() {
        let row = fixture::retried();
        let texts: Vec<String> = row
            .attempts
            .iter()
            .map(|a| attempt(&fixture::app(), &row, a, 100, TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!(texts.join("---\n"));
    }

    #[test]
    fn a_job_with_failures() {
        insta::assert_snapshot!(of_app(&fixture::app(), TextPainter::PLAIN));
    }

    #[test]
    fn a_failed_job_points_at_its_last_failed_attempt() {
        let mut app = fixture::app();
        app.job
            .as_mut()
            .expect("job")
            .tasks
            .push(fixture::task_given_up());
        assert!(
            of_app(&app, TextPainter::PLAIN).contains("next: rmctl diagnose wordcount.7/map/11@6")
        );
    }

    #[test]
    fn containers() {
        let texts: Vec<String> = fixture::containers()
            .iter()
            .map(|c| container(c, TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!(texts.join("---\n"));
    }
}
