//! `rmctl operator status`, `reload` and `loglevel`: the process of the resource manager.

use std::time::Duration;

use headroom_client::{Client, ClientError};
use headroom_types::{Bytes, LogLevel};
use headroom_wire::v1::operator::{LogLevelView, ReloadResult, SetLogLevelRequest};
use serde::Serialize;

use crate::context::CommandContext;
use crate::exit::CommandResult;
use crate::render::figures::{short, span};
use crate::render::metrics::{self, MetricSeries};
use crate::render::{TextPainter, json::MachineOutput};

/// State of the daemon, from its metrics.
#[derive(Debug, PartialEq, Serialize)]
struct DaemonView {
    version: String,
    epoch: u64,
    up_s: u64,
    /// Duration of one turn of the scheduler loop: median and 99th percentile. Seconds.
    turn_p50_s: Option<f64>,
    turn_p99_s: Option<f64>,
    /// Duration of one commit to disk. Seconds.
    write_p50_s: Option<f64>,
    write_p99_s: Option<f64>,
    /// Size of the state directory.
    state_bytes: u64,
    /// Calls and reports that wait for the loop.
    inputs_waiting: u64,
    /// Open calls, including long polls.
    calls: u64,
    /// Calls that were answered with 5xx since the start.
    faults: u64,
    /// Events that a reader or the disk missed since the start.
    events_dropped: u64,
    memory_bytes: u64,
    cpu_s: f64,
    open_files: u64,
    max_files: u64,
    threads: u64,
    /// Level of its log; absent if the daemon runs inside another program.
    log: Option<LogLevelView>,
}

/// Shows the state of the daemon.
pub(crate) async fn status(context: &CommandContext) -> CommandResult {
    let client = context.client()?;
    let (cluster, page, log) =
        tokio::join!(client.status(), client.get_text("/metrics"), log(&client));
    let cluster = cluster?;
    let all = metrics::series(&page?);
    let view = view(
        (cluster.version, cluster.epoch.0.into(), cluster.up_s),
        &all,
        log?,
    );
    let machine = MachineOutput::one(&view).text(&context.output, |v| v.version.clone());
    Ok(context.show(machine, || people(&view, context.term.paint)))
}

/// The log level, or `None` if the daemon has no adjustable log.
async fn log(client: &Client) -> Result<Option<LogLevelView>, ClientError> {
    match client.log_level().await {
        Ok(view) => Ok(Some(view)),
        Err(ClientError::Problem(problem)) if problem.status == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reloads the configuration of the resource manager.
pub(crate) async fn reload(context: &CommandContext) -> CommandResult {
    let reloaded = context.client()?.reload().await?;
    let machine = MachineOutput::one(&reloaded).text(&context.output, |_| String::new());
    Ok(context.show(machine, || changes(&reloaded, context.term.paint)))
}

/// Shows or sets the log level.
pub(crate) async fn loglevel(context: &CommandContext, level: Option<LogLevel>) -> CommandResult {
    let client = context.client()?;
    let view = match level {
        Some(level) => client.set_log_level(SetLogLevelRequest { level }).await?,
        None => client.log_level().await?,
    };
    let machine = MachineOutput::one(&view).text(&context.output, |v| v.level.to_string());
    Ok(context.show(machine, || format!("log  {}\n", in_words(&view))))
}

fn in_words(log: &LogLevelView) -> String {
    match log {
        LogLevelView {
            by_environment: true,
            ..
        } => "set by HEADROOM_LOG in its environment".to_owned(),
        LogLevelView {
            level, configured, ..
        } if level == configured => level.to_string(),
        LogLevelView {
            level, configured, ..
        } => format!("{level}, and {configured} after the next reload or restart"),
    }
}

fn changes(reloaded: &ReloadResult, paint: TextPainter) -> String {
    let ReloadResult {
        holds,
        waits,
        notes,
    } = reloaded;
    let mut text: String = holds
        .iter()
        .map(|key| format!("{} {key}\n", paint.good("✓")))
        .collect();
    text.extend(
        waits
            .iter()
            .map(|key| format!("{} {key}  after a restart\n", paint.warn("…"))),
    );
    text.extend(notes.iter().map(|note| format!("! {note}\n")));
    if text.is_empty() {
        text = "no key has changed\n".to_owned();
    }
    text + &paint.next("rmctl operator status")
}

fn view(
    (version, epoch, up_s): (String, u64, u64),
    all: &[MetricSeries],
    log: Option<LogLevelView>,
) -> DaemonView {
    let spread = |name: &str| (quantile(all, name, 0.5), quantile(all, name, 0.99));
    let (turn, write) = (
        spread("headroom_rm_scheduler_cycle_seconds"),
        spread("headroom_rm_state_write_seconds"),
    );
    let fault = |s: &&MetricSeries| {
        s.labels
            .get("code")
            .is_some_and(|code| code.starts_with('5'))
    };
    let of = |name: &str| whole(all.iter().filter(|s| s.name == name));
    DaemonView {
        version,
        epoch,
        up_s,
        turn_p50_s: turn.0,
        turn_p99_s: turn.1,
        write_p50_s: write.0,
        write_p99_s: write.1,
        state_bytes: of("headroom_rm_state_size_bytes"),
        inputs_waiting: of("headroom_rm_inputs_waiting"),
        calls: of("headroom_rm_http_inflight"),
        faults: whole(
            all.iter()
                .filter(|s| s.name == "headroom_rm_http_requests_total")
                .filter(fault),
        ),
        events_dropped: of("headroom_rm_events_dropped_total"),
        memory_bytes: of("process_resident_memory_bytes"),
        cpu_s: all
            .iter()
            .filter(|s| s.name == "process_cpu_seconds_total")
            .filter_map(|s| s.value)
            .sum(),
        open_files: of("process_open_fds"),
        max_files: of("process_max_fds"),
        threads: of("process_threads"),
        log,
    }
}

/// The sum of series with integer values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
fn whole<'s>(series: impl Iterator<Item = &'s MetricSeries>) -> u64 {
    series
        .filter_map(|s| s.value)
        .filter(|v| *v > 0.0)
        .sum::<f64>() as u64
}

/// The upper bound of the histogram bucket that contains the quantile `share`. `None` for an empty
/// histogram, or if that bucket is unbounded.
fn quantile(all: &[MetricSeries], name: &str, share: f64) -> Option<f64> {
    let bucket = format!("{name}_bucket");
    let bound = |s: &MetricSeries| {
        s.labels.get("le").and_then(|le| {
            if le == "+Inf" {
                Some(f64::INFINITY)
            } else {
                le.parse().ok()
            }
        })
    };
    let mut buckets: Vec<(f64, f64)> = all
        .iter()
        .filter(|s| s.name == bucket)
        .filter_map(|s| Some((bound(s)?, s.value?)))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seen = buckets
        .last()
        .map(|(_, count)| *count)
        .filter(|count| *count > 0.0)?;
    buckets
        .into_iter()
        .find(|(_, count)| *count >= seen * share)
        .map(|(bound, _)| bound)
        .filter(|bound| bound.is_finite())
}

fn people(v: &DaemonView, paint: TextPainter) -> String {
    let time =
        |s: Option<f64>| s.map_or_else(|| "–".to_owned(), |s| format!("{:.1} ms", s * 1000.0));
    let bad = |n: u64, what: &str| {
        let text = format!("{n} {what}");
        if n > 0 { paint.bad(&text) } else { text }
    };
    let log = v
        .log
        .as_ref()
        .map_or_else(|| "set by the program that runs it".to_owned(), in_words);
    format!(
        "{} {} · epoch {} · up {}\nloop    a cycle takes p50 {}, p99 {} · {} inputs wait\n\
         disk    a commit takes p50 {}, p99 {} · {} of state\n\
         calls   {} in flight · {} · {}\nprocess {} · {:.1} s of CPU · {} of {} files · {} threads\nlog     {log}\n{}\n",
        paint.strong("resourcemanager"),
        v.version,
        v.epoch,
        span(Duration::from_secs(v.up_s)),
        time(v.turn_p50_s),
        time(v.turn_p99_s),
        v.inputs_waiting,
        time(v.write_p50_s),
        time(v.write_p99_s),
        short(Bytes::new(v.state_bytes)),
        v.calls,
        bad(v.faults, "failed with 5xx"),
        bad(v.events_dropped, "events dropped"),
        short(Bytes::new(v.memory_bytes)),
        v.cpu_s,
        v.open_files,
        v.max_files,
        v.threads,
        paint.dim("next: rmctl operator metrics · rmctl operator debug"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "headroom_rm_scheduler_cycle_seconds_bucket{le=\"0.001\"} 50\n\
        headroom_rm_scheduler_cycle_seconds_bucket{le=\"0.01\"} 99\nheadroom_rm_scheduler_cycle_seconds_bucket{le=\"+Inf\"} 100\n\
        headroom_rm_state_size_bytes 2097152\nheadroom_rm_http_inflight 3\n\
        headroom_rm_http_requests_total{route=\"/v1/status\",method=\"GET\",code=\"200\"} 9\n\
        headroom_rm_http_requests_total{route=\"/v1/status\",method=\"GET\",code=\"503\"} 2\n\
        process_resident_memory_bytes 41943040\nprocess_cpu_seconds_total 1.5\nprocess_open_fds 17\nprocess_max_fds 1024\nprocess_threads 6\n";

    fn seen(log: Option<LogLevelView>) -> DaemonView {
        view(("0.1.0".into(), 4, 3700), &metrics::series(PAGE), log)
    }

    #[test]
    fn the_screen_shows_the_daemon() {
        let log = LogLevelView {
            level: LogLevel::Debug,
            configured: LogLevel::Info,
            by_environment: false,
        };
        insta::assert_snapshot!(people(&seen(Some(log)), TextPainter::PLAIN), @r"
        resourcemanager 0.1.0 · epoch 4 · up 1h01m
        loop    a cycle takes p50 1.0 ms, p99 10.0 ms · 0 inputs wait
        disk    a commit takes p50 –, p99 – · 2M of state
        calls   3 in flight · 2 failed with 5xx · 0 events dropped
        process 40M · 1.5 s of CPU · 17 of 1024 files · 6 threads
        log     debug, and info after the next reload or restart
        next: rmctl operator metrics · rmctl operator debug
        ");
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let view = seen(None);
        assert_eq!(
            (view.turn_p50_s, view.turn_p99_s, view.write_p50_s),
            (Some(0.001), Some(0.01), None)
        );
        assert_eq!((view.faults, view.calls), (2, 3));
        let all = metrics::series(PAGE);
        assert_eq!(
            quantile(&all, "headroom_rm_scheduler_cycle_seconds", 0.995),
            None,
            "the last bucket has no bound"
        );
    }

    #[test]
    fn a_reload_prints_a_line_for_each_key() {
        let text = changes(
            &ReloadResult {
                holds: vec!["log: a → b".into()],
                waits: vec!["listen".into()],
                notes: vec![],
            },
            TextPainter::PLAIN,
        );
        assert_eq!(
            text,
            "✓ log: a → b\n… listen  after a restart\nnext: rmctl operator status\n"
        );
        assert!(
            changes(&ReloadResult::default(), TextPainter::PLAIN).starts_with("no key has changed")
        );
    }
}
