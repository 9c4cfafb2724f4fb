//! Screens of waiting requests: the requested resources, and the missing resources on each node.

use std::time::Duration;

use headroom_types::UnixMillis;
use headroom_wire::v1::apps::{AppView, NodeFitExplanation, PendingExplanation};
use headroom_wire::v1::job::{TaskRow, TaskState};

use super::figures::{short, span};
use super::ladder::{ladder, rung};
use super::table::{Column, list};
use super::{ListStyle, TextPainter, apps, count, job};

/// The reasons why a job waits.
pub(crate) fn of_app(
    app: &AppView,
    waits: &[PendingExplanation],
    now: UnixMillis,
    paint: TextPainter,
) -> String {
    let mut text = format!(
        "{}  {}\n",
        paint.strong(&app.id.to_string()),
        apps::state(app.state, paint)
    );
    if app.state.is_final() {
        let why = if app.diagnostics.is_empty() {
            "it has ended"
        } else {
            app.diagnostics.as_str()
        };
        return text + why + "\n" + &paint.next(format!("rmctl diagnose {}", app.id));
    }
    text.extend(waits.iter().map(|w| request(w, paint)));
    if waits.is_empty() {
        text.push_str("no container request waits: all requests are granted\n");
    }
    if let Some(view) = &app.job {
        text.push_str(&job::figures(&view.totals));
        let frozen = view
            .tasks
            .iter()
            .filter_map(|t| Some((t, t.frozen.as_ref()?)))
            .take(5);
        text.extend(frozen.map(|(t, frozen)| {
            format!(
                "{:<10} {}: its node has no more free memory\n",
                t.task,
                job::frozen(frozen, now)
            )
        }));
        let notes = view
            .tasks
            .iter()
            .filter(|t| t.state == TaskState::Pending && !t.note.is_empty())
            .take(5);
        text.extend(notes.map(|t| format!("{:<10} {}\n", t.task, t.note)));
    }
    text + &paint.next("rmctl node list · rmctl ps")
}

/// The reasons why requests wait.
pub(crate) fn of_requests(
    app: &AppView,
    waits: &[PendingExplanation],
    paint: TextPainter,
) -> String {
    let mut text: String = waits.iter().map(|w| request(w, paint)).collect();
    if waits.is_empty() {
        text.push_str("the request does not wait: all its containers are granted\n");
    }
    text + &paint.next(format!("rmctl request list {} · rmctl node list", app.id))
}

/// The reasons why a task waits, or its present state.
pub(crate) fn of_task(
    app: &AppView,
    t: &TaskRow,
    waits: &[PendingExplanation],
    now: UnixMillis,
    paint: TextPainter,
) -> String {
    let head = format!("{}/{}  {}", app.id, t.task, job::state(t.state, paint));
    let mut text = format!(
        "{}  {} · rung {}  {}\n",
        head,
        t.profile,
        rung(t),
        ladder(t)
    );
    let usual = match t.state {
        TaskState::Blocked => "its stage has not started: it waits for the stages before it",
        TaskState::Pending if waits.is_empty() => {
            "it waits for a slot: all slots of its executors are taken"
        }
        TaskState::Pending | TaskState::Running | TaskState::Done | TaskState::Failed => "",
    };
    let said = if t.note.is_empty() {
        usual
    } else {
        t.note.as_str()
    };
    if !said.is_empty() {
        text.push_str(&format!("{said}\n"));
    }
    if let Some(frozen) = &t.frozen {
        text.push_str(&format!(
            "{} more: its node is full; the master drains an executor of the job or evicts a task\n",
            job::frozen(frozen, now)
        ));
    }
    if let Some(a) = t.attempts.last() {
        let at = format!(
            "attempt {} in {} on {}",
            a.attempt.attempt, a.container, a.node
        );
        match (a.ended, a.reason) {
            (Some(end), Some(reason)) => {
                text.push_str(&format!(
                    "{at}: {} after {}\n",
                    reason.sentence(),
                    span(end.since(a.started))
                ));
            }
            (_, _) => text.push_str(&format!("{at}: runs for {}\n", span(now.since(a.started)))),
        }
        if !a.decision.is_empty() {
            text.push_str(&format!("decided: {}\n", a.decision));
        }
    }
    // The request of a task's own container has a name with this prefix.
    let own = format!("own-{}-{}-", t.task.stage, t.task.index);
    let (mine, others): (Vec<_>, Vec<_>) = waits
        .iter()
        .partition(|w| w.request.as_str().starts_with(&own));
    let shown = if mine.is_empty() && t.state == TaskState::Pending {
        others
    } else {
        mine
    };
    text.extend(shown.iter().map(|w| request(w, paint)));
    let see = match t.state {
        TaskState::Pending | TaskState::Blocked => "rmctl node list".to_owned(),
        TaskState::Running => format!("rmctl logs -f {}/{}", app.id, t.task),
        TaskState::Done | TaskState::Failed => format!("rmctl diagnose {}/{}", app.id, t.task),
    };
    text + &paint.next(see)
}

fn request(w: &PendingExplanation, paint: TextPainter) -> String {
    let waited = span(Duration::from_millis(w.waiting_ms));
    let asks = count(w.missing, "container");
    let mut text = format!(
        "{} waits {waited} · asks {asks} of {} · {} ahead\n{}\n",
        paint.strong(w.request.as_str()),
        w.asks,
        count(w.ahead, "request"),
        w.sentence
    );
    if let Some(r) = &w.reserved {
        let since = span(Duration::from_millis(r.for_ms));
        text.push_str(&format!(
            "{} is reserved for it since {since}: {} of {} free now\n",
            r.node, r.free, w.asks
        ));
    }
    let closest = |n: &NodeFitExplanation| {
        let is_closest = w.nodes.len() > 1 && !n.out && w.nodes.first() == Some(n);
        if is_closest { "   ← closest" } else { "" }
    };
    if !w.nodes.is_empty() {
        let columns: &[Column<'_, &NodeFitExplanation>] = &[
            ("NODE", &|n| n.node.to_string()),
            (">FREE", &|n| short(n.free.memory)),
            (">MAX", &|n| short(n.offers.memory)),
            (">CPUS", &|n| format!("{}/{}", n.free.cpus, n.offers.cpus)),
            ("VERDICT", &|n| format!("{}{}", n.verdict, closest(n))),
        ];
        text.push_str(&list(&w.nodes, ListStyle::whole(paint), columns));
    }
    text + &ways(w)
}

/// Possible commands: undrain or uncordon a node that has enough free resources.
fn ways(w: &PendingExplanation) -> String {
    let verb = |verdict: &str| match verdict.split(':').next() {
        Some("draining" | "drained") => Some("undrain"),
        Some("cordoned") => Some("uncordon"),
        Some(_) | None => None,
    };
    let roomy = w.nodes.iter().filter(|n| w.asks.fits(&n.free));
    let ways = roomy.filter_map(|n| Some(format!("rmctl node {} {}", verb(&n.verdict)?, n.node)));
    let ways: Vec<String> = ways.take(2).collect();
    if ways.is_empty() {
        String::new()
    } else {
        format!("ways    {}\n", ways.join(" │ "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_wire::v1::apps::NodeReservation;

    #[test]
    fn a_drained_node_with_free_memory_is_suggested() {
        let mut waits = fixture::why();
        assert!(!of_requests(&fixture::app(), &waits, TextPainter::PLAIN).contains("ways"));
        waits[0].nodes[2].verdict = "draining".into();
        let text = of_requests(&fixture::app(), &waits, TextPainter::PLAIN);
        assert!(
            text.contains("\nways    rmctl node undrain worker-04\n"),
            "{text}"
        );
        waits[0].nodes[2].verdict = "cordoned: a slow disk".into();
        let text = of_requests(&fixture::app(), &waits, TextPainter::PLAIN);
        assert!(
            text.contains("\nways    rmctl node uncordon worker-04\n"),
            "{text}"
        );
        waits[0].nodes[2].verdict = "not drained at all".into();
        assert!(!of_requests(&fixture::app(), &waits, TextPainter::PLAIN).contains("ways"));
    }

    #[test]
    fn a_job_that_waits_for_free_memory() {
        insta::assert_snapshot!(of_app(
            &fixture::app(),
            &fixture::why(),
            fixture::NOW,
            TextPainter::PLAIN
        ));
    }

    #[test]
    fn a_request_with_a_reserved_node() {
        let mut waits = fixture::why();
        let free = waits[0].nodes[0].free.clone();
        waits[0].reserved = Some(NodeReservation {
            node: waits[0].nodes[0].node.clone(),
            free,
            for_ms: 90_000,
        });
        let text = of_app(&fixture::app(), &waits, fixture::NOW, TextPainter::PLAIN);
        assert!(text.contains("worker-03 is reserved for it since 1m30s: 9.5 GiB, 2 cpus of 10 GiB, 2 cpus free now"), "{text}");
    }

    #[test]
    fn a_task_that_waits_for_its_own_container() {
        let app = fixture::app();
        let row = app
            .job
            .as_ref()
            .and_then(|j| j.tasks.last())
            .expect("a task");
        insta::assert_snapshot!(of_task(
            &app,
            row,
            &fixture::why(),
            fixture::NOW,
            TextPainter::PLAIN
        ));
    }

    #[test]
    fn a_task_that_runs() {
        let text = of_task(
            &fixture::app(),
            &fixture::escalated(),
            &fixture::why(),
            fixture::NOW,
            TextPainter::PLAIN,
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_task_without_a_note_is_explained_by_its_state() {
        let mut row = fixture::done();
        row.attempts.clear();
        row.state = TaskState::Blocked;
        assert!(
            of_task(&fixture::app(), &row, &[], fixture::NOW, TextPainter::PLAIN)
                .contains("waits for the stages before it")
        );
        row.state = TaskState::Pending;
        assert!(
            of_task(&fixture::app(), &row, &[], fixture::NOW, TextPainter::PLAIN)
                .contains("waits for a slot")
        );
    }

    #[test]
    fn a_job_without_waiting_requests() {
        let text = of_app(&fixture::app(), &[], fixture::NOW, TextPainter::PLAIN);
        assert!(text.contains("no container request waits"), "{text}");
    }
}
