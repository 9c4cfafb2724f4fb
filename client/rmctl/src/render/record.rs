//! The finished tasks of a job as CSV, in the columns that `rmctl job replay` reads.

use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};

const HEADER: &str =
    "dataset,task_type,seq,input_bytes,peak_mem_bytes,runtime_s,user_mem_bytes,cpus\n";

/// A header, and a line for each finished task with a known peak. Its request is the size of its
/// first attempt.
pub(crate) fn trace(app: &AppView) -> String {
    let tasks = app
        .job
        .iter()
        .flat_map(|job| &job.tasks)
        .filter(|task| task.state == TaskState::Done);
    let mut text = HEADER.to_owned();
    for (seq, task) in tasks.enumerate() {
        text.extend(
            task.attempts
                .last()
                .and_then(|last| line(app, seq, task, last)),
        );
    }
    text
}

fn line(app: &AppView, seq: usize, task: &TaskRow, last: &AttemptRow) -> Option<String> {
    let (first, peak, ended) = (task.attempts.first()?, last.peak?, last.ended?);
    let given = first
        .grown
        .first()
        .map_or_else(|| first.profile.memory(), |growth| growth.from);
    let (name, kind, seconds) = (
        app.id.name(),
        &task.task.stage,
        ended.since(last.started).as_secs_f64(),
    );
    let cpus = last.profile.cpus.milli().div_ceil(1000).max(1);
    Some(format!(
        "{name},{kind},{seq},0,{},{seconds},{},{cpus}\n",
        peak.get(),
        given.get()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn tasks_that_are_done_are_lines_of_a_trace() {
        let app = fixture::app();
        let done = app
            .job
            .iter()
            .flat_map(|j| &j.tasks)
            .filter(|t| t.state == TaskState::Done);
        let known = done
            .filter(|t| {
                t.attempts
                    .last()
                    .is_some_and(|a| a.peak.is_some() && a.ended.is_some())
            })
            .count();
        let text = trace(&app);
        assert!(known > 0);
        assert_eq!(text.lines().count(), known + 1, "{text}");
        assert!(
            text.lines().all(|line| line.split(',').count() == 8),
            "{text}"
        );
    }

    #[cfg(feature = "dev")]
    #[test]
    fn a_written_record_is_read_back() {
        let read = headroom_appmaster::replay::trace::parse(&trace(&fixture::app()), "record")
            .expect("a trace");
        assert_eq!(read.len(), 1);
        assert!(read.iter().all(|dataset| {
            dataset
                .tasks
                .iter()
                .all(|t| t.request.is_some() && t.peak.get() > 0)
        }));
    }
}
