//! What is asked of every reader of bytes from outside: more than that it does not panic.
//!
//! Each module has one `check`, which panics when a promise is broken. The targets of cargo-fuzz call it with bytes that nobody thought
//! of, and `integration/tests/fuzz_corpus.rs` with all that were kept, in every ordinary test run.

#![forbid(unsafe_code)]

pub mod channel;
pub mod config;
pub mod identity;
pub mod jobs;
pub mod journal;
pub mod jvm;
pub mod kernel;
pub mod messages;
pub mod shim;
pub mod store;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One check of bytes.
pub type Check = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Check); 10] = [
    ("channel", channel::check),
    ("config", config::check),
    ("identity", identity::check),
    ("jobs", jobs::check),
    ("journal", journal::check),
    ("jvm", jvm::check),
    ("kernel", kernel::check),
    ("messages", messages::check),
    ("shim", shim::check),
    ("store", store::check),
];

/// What is read and written again is read as the same, and is not out of proportion to what came.
fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    assert!(written.len() <= 4096 + 200 * bytes.len(), "{} bytes became {}", bytes.len(), written.len());
    let second: T = serde_json::from_slice(&written).expect("what was written can be read");
    let twice = serde_json::to_vec(&second).expect("writes");
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&twice), "read again, it is something else");
    Some(read)
}

/// A text that is read is displayed as a text that is read as the same.
fn text_again<T: std::str::FromStr + std::fmt::Display + PartialEq + std::fmt::Debug>(text: &str) -> Option<T> {
    let read: T = text.parse().ok()?;
    let shown = read.to_string();
    assert_eq!(shown.parse::<T>().ok().as_ref(), Some(&read), "{text:?} is shown as {shown:?}");
    Some(read)
}
