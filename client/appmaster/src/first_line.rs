//! The first line of each attempt in a journal to which the attempts append one after the other. It
//! names the attempt and its process, so two processes never append the same text. It is no record.

use serde::{Deserialize, Serialize};

/// Beginning of the line; no record begins like this.
pub(crate) const FIRST_LINE: &[u8] = b"{\"attempt\":";

/// The first line of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstLine {
    /// The attempt.
    pub(crate) attempt: u32,
    /// A random word of the process.
    pub(crate) process: String,
}

impl FirstLine {
    /// The line, with its end.
    pub(crate) fn line(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|line| line + "\n")
    }

    /// The first line at the beginning of `text`, and the text after it. `None` if `text` begins with
    /// a record.
    pub(crate) fn split(text: &[u8]) -> Option<(FirstLine, &[u8])> {
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = text.split_at_checked(end + 1)?;
        let line = line.starts_with(FIRST_LINE).then_some(line)?;
        Some((serde_json::from_slice(line).ok()?, rest))
    }
}
