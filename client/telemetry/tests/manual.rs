//! Generated pages about telemetry are current and complete.

#![allow(missing_docs)] // tests are read, not imported

use std::fmt::Write as _;
use std::path::Path;

use headroom_telemetry::names::{AM, NODE, PROCESS, RM};

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let made = manual();
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &made).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        kept == made,
        "docs/metrics.md is out of date: run the tests once with HEADROOM_UPDATE_GOLDEN=1"
    );
}

#[test]
fn lines_with_a_message_id_are_in_the_catalog_and_documented() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let (catalog, page) = (read("systemd/headroom.catalog"), read("docs/observing.md"));
    let listed: Vec<&str> = catalog
        .lines()
        .filter_map(|line| line.strip_prefix("-- "))
        .collect();
    let known: Vec<&str> = headroom_telemetry::journal::MESSAGES
        .iter()
        .map(|m| m.id)
        .collect();
    assert_eq!(
        listed, known,
        "systemd/headroom.catalog lists the message ids of the code"
    );
    for message in headroom_telemetry::journal::MESSAGES {
        let by = if message.by == "both" {
            "both".to_owned()
        } else {
            format!("`{}`", message.by)
        };
        let row = format!("| `{}` | {by} | {} |\n", message.id, message.when);
        assert!(page.contains(&row), "docs/observing.md lacks: {row}");
    }
}

/// The text of `docs/metrics.md`.
fn manual() -> String {
    let mut text = String::from(ABOUT);
    let parts = [
        (
            "Resource manager",
            "At `/metrics` of the resource manager.",
            RM,
        ),
        ("Application masters", AM_ABOUT, AM),
        ("Node agent", "At `/metrics` of each node agent.", NODE),
        ("Processes", "At both.", PROCESS),
    ];
    for (title, about, metrics) in parts {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n{about}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"
        );
        for m in metrics {
            let labels = if m.labels.is_empty() {
                "–".to_owned()
            } else {
                m.labels.join(", ")
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {labels} | {} |",
                m.name,
                m.kind.as_str(),
                m.help
            );
        }
    }
    text
}

const ABOUT: &str = "# Metrics

Generated from `client/telemetry/src/names.rs`; a test keeps it current.

`GET /metrics` of the resource manager (port 7070) and of each node agent (port 7072) answers in the text format, or in the
OpenMetrics format to requests for `application/openmetrics-text`. Counters begin at zero when a process starts. Units are bytes and
seconds. Scraping and alerts: [observing](observing.md).

The number of series is bounded. `telemetry.cardinality` in the configuration of a daemon sets their granularity:

| value | label `job` | label `task` | series |
| --- | --- | --- | --- |
| `profile` (default) | left out: summed over all jobs | left out | grow with nodes, queues and kinds of tasks |
| `job` | the application, while it lives | left out | and with live jobs |
| `task` | the application | the request of the container | and with running containers |

The label `profile` is the stage of a job that the task belongs to. At most 200 different profiles have names; further ones are `other`.
";

const AM_ABOUT: &str = "At `/metrics` of the resource manager. A master runs only as long as its job, on an unpredictable port, and ends before a last scrape; \
    it reports all statistics to the resource manager. The counters cover the attempts of tasks that ended in this epoch of \
    the resource manager, so they begin at zero after a restart like other counters.";
