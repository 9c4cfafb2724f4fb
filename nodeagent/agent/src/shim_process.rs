//! The line with which a shim reports the start of its program.
//!
//! This module starts and ends no shim.

use std::os::fd::OwnedFd;
use std::time::Duration;

use headroom_container_shim::record::StartResult;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;

/// Maximum time until a shim reports whether its program runs. It is long for heavily loaded hosts.
/// A shim that waits for a disk delays only its own container.
pub(crate) const SHIM_ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum length of a shim's line. Bytes.
const LINE: u64 = 256;

/// The result of reading the shim's pipe.
pub(crate) enum ShimLineResult {
    /// The line arrived.
    Line(StartResult),
    /// The shim ended without a line.
    Nothing,
    /// The timeout ended.
    Silence,
}

/// Waits for the single line of a shim.
pub(crate) async fn listen(line: OwnedFd) -> ShimLineResult {
    let Ok(pipe) = pipe::Receiver::from_owned_fd(line) else {
        return ShimLineResult::Nothing;
    };
    let mut text = String::new();
    let mut reader = BufReader::new(pipe.take(LINE));
    match tokio::time::timeout(SHIM_ANSWER_TIMEOUT, reader.read_line(&mut text)).await {
        Ok(_) => StartResult::decode(&text).map_or(ShimLineResult::Nothing, ShimLineResult::Line),
        Err(_) => ShimLineResult::Silence,
    }
}
