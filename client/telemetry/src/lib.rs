//! Telemetry of the daemons: the names of all metrics, the metrics page, the log, and bounded files
//! of lines.
//!
//! *Architecture Invariant*: each metric on a page has a name from [`names`], with the labels that
//! are declared there. A writer holds no lock longer than for one count; the reader adds up.

#![forbid(unsafe_code)]

pub mod histogram;
pub mod journal;
pub mod lines;
pub mod log;
pub mod names;
pub mod page;
pub mod process;
pub mod rejected;

pub use lines::{SegmentLimits, SegmentedLog};
pub use names::{MetricDefinition, MetricKind};
pub use page::{ExpositionFormat, MetricsPage};
pub use prometheus_client::metrics::histogram::Histogram;
pub use rejected::{RejectedConnections, RejectionReason};
