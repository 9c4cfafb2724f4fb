//! What daemons tell of themselves: the names of all metrics, the page a scraper reads, the log, and files of lines that stay bounded.
//!
//! *Architecture Invariant*: a figure on a page has a name from [`names`], with the labels that are written down there. Whoever
//! counts does so without a lock; whoever reads adds up.

#![forbid(unsafe_code)]

pub mod histogram;
pub mod journal;
pub mod lines;
pub mod log;
pub mod names;
pub mod page;
pub mod process;
pub mod turned;

pub use histogram::{Histogram, Spread};
pub use lines::{Bounds, Lines};
pub use names::{Kind, Metric};
pub use page::{Format, Page};
pub use turned::{Turned, Why};
