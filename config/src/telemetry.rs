//! Metrics and retention settings of daemons: checked types, and their keys.

use std::time::Duration;

use headroom_types::{Bytes, word_enum};
use toml::de::DeValue;

use crate::toml_reader::{
    self, TomlSection, count, duration, hint, nonzero_size, parsed, read_keys, read_table,
};

/// Settings of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// Granularity of metrics.
    pub cardinality: MetricsGranularity,
}

word_enum! {
    /// The granularity of metrics.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum MetricsGranularity: "is not one of" {
        /// Summed over all jobs, by kind of task.
        #[default]
        Profile = "profile",
        /// One series per job, while it lives.
        Job = "job",
        /// One series per running container.
        Task = "task",
    }
}

/// Retention of a log of the resource manager on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Size of one segment. Bytes.
    pub segment: Bytes,
    /// Number of kept segments; the oldest is removed first.
    pub segments: u32,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        RetentionLimits {
            segment: Bytes::from_mib(8),
            segments: 16,
        }
    }
}

/// Retention of ended applications and containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Maximum number of ended applications, with their tasks, attempts and reports.
    pub apps: u32,
    /// Maximum number of ended containers.
    pub containers: u32,
    /// Maximum age of ended applications, regardless of their number.
    pub age: Duration,
}

impl Default for HistoryBounds {
    fn default() -> Self {
        HistoryBounds {
            apps: 500,
            containers: 5000,
            age: Duration::from_secs(30 * 86_400),
        }
    }
}

/// Limits of files that users upload for their applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    /// Maximum size of one file. Bytes.
    pub max_file: Bytes,
    /// Maximum size of all files. Bytes.
    pub max_total: Bytes,
    /// Time since its last use after which a file is removed, unless an application that has not
    /// ended names it.
    pub keep: Duration,
}

impl Default for UploadLimits {
    fn default() -> Self {
        UploadLimits {
            max_file: Bytes::from_gib(1),
            max_total: Bytes::from_gib(10),
            keep: Duration::from_secs(86_400),
        }
    }
}

/// Limits of the journals that the resource manager keeps for application masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Maximum size of the journal of one application. Bytes.
    pub max_journal: Bytes,
    /// Maximum size of all journals. Bytes.
    pub max_total: Bytes,
}

impl Default for JournalLimits {
    fn default() -> Self {
        JournalLimits {
            max_journal: Bytes::from_mib(1),
            max_total: Bytes::from_mib(64),
        }
    }
}

/// Reads the table `[journals]`.
pub(crate) fn journals(root: &mut TomlSection<'_>) -> JournalLimits {
    read_table!(root, "journals" => JournalLimits:
        "it limits the journals that masters keep in the resource manager",
        "write a table: [journals]";
    {
        max_journal | max_total: toml_reader::size =>
            "each record of these journals is written to the state of the resource manager",
            "write a size such as \"1MiB\"";
    })
}

/// Reads the table `[telemetry]`.
pub(crate) fn telemetry(root: &mut TomlSection<'_>) -> Telemetry {
    read_table!(root, "telemetry" => Telemetry:
        "it sets the granularity of the metrics",
        "write a table: [telemetry]";
    {
        cardinality: parsed =>
            "each value of a label is a series that must be stored",
            "write \"profile\", \"job\" or \"task\"";
    })
}

/// Reads the table `[events]` or `[audit]`.
pub(crate) fn kept(root: &mut TomlSection<'_>, name: &'static str) -> RetentionLimits {
    read_table!(root, name => RetentionLimits:
        "it limits the size on the disk",
        "write a table with segment and segments";
    {
        segment: segment =>
            "a file is closed at this size and the next one is started",
            "write a size from 64KiB, such as \"8MiB\"";
        segments: count(2, 10_000) =>
            "the oldest file is removed when there are more",
            "write a whole number from 2";
    })
}

/// Reads the size of a segment of a log, at least 64KiB.
pub(crate) fn segment(value: &DeValue<'_>) -> Result<Bytes, String> {
    let size = toml_reader::size(value)?;
    if size < Bytes::from_kib(64) {
        Err(format!("{size} is less than 64KiB"))
    } else {
        Ok(size)
    }
}

/// Reads the table `[history]`.
pub(crate) fn history(root: &mut TomlSection<'_>) -> HistoryBounds {
    let whole = hint(
        "it limits the number of ended objects",
        "write a table: [history]",
    );
    root.read_table("history", whole, |table| {
        let (why, fix) = (
            "the oldest are removed first",
            "write a whole number from 1",
        );
        read_keys!(table, HistoryBounds::default(), {
            apps: count(1, 100_000) => why, fix;
            containers: count(1, 1_000_000) => why, fix;
            age: duration =>
                "older applications are forgotten",
                "write a time with its unit, such as \"720h\"";
        })
    })
}

/// Reads the table `[uploads]`.
pub(crate) fn uploads(root: &mut TomlSection<'_>) -> UploadLimits {
    let whole = hint(
        "it limits the files that users upload",
        "write a table: [uploads]",
    );
    root.read_table("uploads", whole, |table| {
        let (why, fix) = (
            "uploaded files are on the disk of the resource manager",
            "write a size such as \"1GiB\"",
        );
        read_keys!(table, UploadLimits::default(), {
            max_file: nonzero_size => why, fix;
            max_total: toml_reader::size => why, fix;
            keep: duration =>
                "an unused file is removed after this time",
                "write a time with its unit, such as \"24h\"";
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::{nodeagent, resourcemanager};
    use crate::telemetry::MetricsGranularity;

    #[test]
    fn telemetry_and_retention_can_be_set() {
        let text = "[telemetry]\ncardinality='job'\n[events]\nsegment='64KiB'\nsegments=2\n[history]\nage='1h'\napps=7\n";
        let config = resourcemanager(text, "f").expect("right");
        assert_eq!(
            (
                config.telemetry.cardinality,
                config.events.segments,
                config.history.apps
            ),
            (MetricsGranularity::Job, 2, 7)
        );
        assert_eq!(
            nodeagent("[telemetry]\ncardinality='task'\n", "f")
                .expect("right")
                .telemetry
                .cardinality,
            MetricsGranularity::Task
        );
        let text = "[uploads]\nmax_file='2MiB'\nmax_total='1GiB'\nkeep='90m'\n";
        let uploads = resourcemanager(text, "f").expect("right").uploads;
        let sizes = (uploads.max_file.whole_mib(), uploads.max_total.whole_mib());
        assert_eq!((sizes, uploads.keep.as_secs()), ((2, 1024), 5400));
        let text =
            "[telemetry]\ncardinality='all'\n[audit]\nsegment=1\nsegments=1\n[history]\nage=5\n";
        let keys: Vec<String> = resourcemanager(text, "f")
            .expect_err("four")
            .into_iter()
            .map(|p| p.key)
            .collect();
        assert_eq!(
            keys,
            [
                "telemetry.cardinality",
                "audit.segment",
                "audit.segments",
                "history.age"
            ]
        );
    }
}
