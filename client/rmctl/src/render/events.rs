//! Events as lines.

use headroom_types::UnixMillis;
use headroom_wire::v1::apps::PendingExplanation;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};

use super::TextPainter;
use super::figures::{clock, rfc3339, time_of_day};
use super::table::cut;

/// Width of a line. Columns.
const COLUMNS: usize = 100;
/// Minimum width of a message. Columns.
const LEAST: usize = 30;

/// The glyph of an event.
fn glyph(e: &LoggedEvent, paint: TextPainter) -> String {
    let warning = e.level == EventLevel::Warning;
    match e.reason.as_str() {
        "OomKilled"
        | "TaskFailed"
        | "EscalationExhausted"
        | "NodeLost"
        | "AppFailed"
        | "AppKilled"
        | "MasterFailed" => paint.bad("✗"),
        "JobFinished" if warning => paint.bad("✗"),
        "TaskFinished" | "JobFinished" | "AppFinished" | "NodeReady" => paint.good("✓"),
        "Escalated" => paint.warn("↑"),
        "TaskRetried" | "TaskMoved" | "AttemptLost" => paint.warn("↻"),
        "JobStarted" | "AppRunning" | "ContainerStarted" => paint.live("▶"),
        _ if warning => paint.warn("!"),
        _ => "·".to_owned(),
    }
}

/// A line of the log: time of day in UTC, number, reason, object, message.
pub(crate) fn line(e: &LoggedEvent, wide: bool, paint: TextPainter) -> String {
    let time = if wide {
        rfc3339(e.time)
    } else {
        time_of_day(e.time)
    };
    let node = e
        .node
        .as_ref()
        .filter(|n| wide && n.as_str() != e.object)
        .map(|n| format!("  on {n}"))
        .unwrap_or_default();
    let object = match &e.app {
        Some(app) if e.object.contains('/') && !e.object.starts_with(&app.to_string()) => {
            format!("{app}/{}", e.object)
        }
        Some(_) | None => e.object.clone(),
    };
    let reason = format!("{:<16}", e.reason);
    let head = format!("{time} {:<6} x {reason} {object:<20}  ", number(e.index))
        .chars()
        .count();
    // A shortened message is complete with `-o wide`.
    let said = if wide {
        said(e).to_owned()
    } else {
        cut(said(e), COLUMNS.saturating_sub(head).max(LEAST))
    };
    let reason = if e.level == EventLevel::Warning {
        paint.warn(&reason)
    } else {
        reason
    };
    format!(
        "{time} {:<6} {} {reason} {object:<20}  {said}{node}",
        number(e.index),
        glyph(e, paint)
    )
    .trim_end()
    .to_owned()
}

/// The event number. The upper 32 bits of the index are the incarnation of the resource manager,
/// which precedes the number.
pub(crate) fn number(index: u64) -> String {
    let (life, n) = (index >> 32, index & u64::from(u32::MAX));
    if life == 0 {
        format!("#{n}")
    } else {
        format!("#{life}.{n}")
    }
}

/// The command to type after these events.
pub(crate) fn next(all: &[LoggedEvent], paint: TextPainter) -> String {
    let killed = all.iter().rev().find(|e| e.reason == "OomKilled");
    let about = killed.and_then(|e| e.app.as_ref().map(|app| (app, &e.object)));
    let see = match about {
        Some((app, object)) if object.contains('/') => {
            format!("rmctl diagnose {app}/{object} · rmctl events -w")
        }
        Some((_, object)) => format!("rmctl diagnose {object} · rmctl events -w"),
        None => "rmctl events -w · rmctl explain REASON".to_owned(),
    };
    paint.next(see)
}

/// A line for a followed job: time since submission, object, message.
pub(crate) fn followed(e: &LoggedEvent, submitted: UnixMillis, paint: TextPainter) -> String {
    let since = clock(e.time.since(submitted));
    format!(
        "{since:>5}  {:<10} {} {}",
        e.object,
        glyph(e, paint),
        said(e)
    )
    .trim_end()
    .to_owned()
}

/// A line for a followed job without events: the waiting request and the reason.
pub(crate) fn waits(why: &PendingExplanation, paint: TextPainter) -> String {
    let request = why.request.as_str();
    format!(
        "{:>5}  {request:<10} {} waits: {}",
        "",
        paint.warn("…"),
        why.sentence
    )
}

/// The message without the object at its beginning, or the reason if the message is empty.
fn said(e: &LoggedEvent) -> &str {
    let message = e
        .message
        .strip_prefix(&e.object)
        .map_or(e.message.as_str(), |rest| {
            rest.trim_start_matches([':', ' '])
        });
    if message.is_empty() {
        &e.reason
    } else {
        message
    }
}

/// Whether a followed job shows this event. Of finished tasks it shows only those with a second
/// attempt, or all tasks of a small job. Other lines show the state of the job.
pub(crate) fn worth_following(e: &LoggedEvent, tasks: u32) -> bool {
    let again = e.object.rsplit_once('@').is_some_and(|(_, n)| n != "1");
    match e.reason.as_str() {
        "JobSubmitted" | "MasterLaunched" | "AppRunning" | "ContainerStarted" => false,
        "JobFinished" | "AppFinished" | "AppFailed" | "AppKilled" => false,
        // The failure of the task follows and says the same.
        "EscalationExhausted" => false,
        "TaskFinished" => again || tasks <= 4,
        "ContainerExited" => e.level == EventLevel::Warning,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn the_log() {
        let lines: Vec<String> = fixture::events()
            .iter()
            .map(|e| line(e, false, TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert_eq!(
            next(&fixture::events(), TextPainter::PLAIN),
            "next: rmctl diagnose wordcount.7/map/7@2 · rmctl events -w\n"
        );
        let wide: Vec<String> = fixture::events()
            .iter()
            .map(|e| line(e, true, TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!("wide_events", wide.join("\n"));
    }

    #[test]
    fn event_numbers_begin_with_the_epoch() {
        assert_eq!(
            (number(8812), number((3 << 32) + 12)),
            ("#8812".to_owned(), "#3.12".to_owned())
        );
    }

    #[test]
    fn a_job_followed() {
        let events = fixture::events();
        let wanted = events.iter().filter(|e| worth_following(e, 24));
        let lines: Vec<String> = wanted
            .map(|e| followed(e, UnixMillis(fixture::START), TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_small_job_shows_every_task_that_finished() {
        let finished = fixture::events()
            .into_iter()
            .find(|e| e.reason == "TaskFinished")
            .expect("one");
        assert!(worth_following(&finished, 3) && !worth_following(&finished, 24));
    }
}
