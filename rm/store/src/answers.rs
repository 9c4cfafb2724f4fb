//! Answers to calls that carry a key: kept so that a call that is sent again after a restart gets the answer it got before.
//!
//! The core knows nothing of them, and a cluster goes on without them. What they mean is the server's business.

use headroom_types::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::replay::ReplayError;

/// Keys of these records begin so.
pub(crate) const ANSWERS: &str = "once/";

/// One call and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAnswer {
    /// The caller's name for the call.
    pub key: String,
    /// Stands for method, address and body.
    pub call: u64,
    /// When it was answered.
    pub at: UnixMillis,
    /// HTTP status.
    pub status: u16,
    /// Headers by name, in the order they were sent.
    pub headers: Vec<(String, String)>,
    /// What was sent.
    pub body: String,
}

/// The record's key. A caller's key may have any plain character in it, and ours may not.
pub(crate) fn record_key(key: &str) -> String {
    use std::fmt::Write as _;
    key.bytes().fold(ANSWERS.to_owned(), |mut hex, byte| {
        // Writing to a text cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// All answers among the records, oldest first.
///
/// # Errors
/// The first record that cannot be what was written.
pub fn answers(records: &[(String, Vec<u8>)]) -> Result<Vec<SavedAnswer>, ReplayError> {
    let ours = records.iter().filter(|(key, _)| key.starts_with(ANSWERS));
    let mut all = ours.map(|(key, value)| read(key, value)).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
    Ok(all)
}

fn read(key: &str, value: &[u8]) -> Result<SavedAnswer, ReplayError> {
    serde_json::from_slice(value).map_err(|source| ReplayError::Text { key: key.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_in_the_order_they_were_given_and_a_damaged_one_is_named() {
        let answer = |key: &str, at| SavedAnswer {
            key: key.into(),
            call: 7,
            at: UnixMillis(at),
            status: 200,
            headers: vec![("etag".into(), "\"1\"".into())],
            body: "{}".into(),
        };
        let record = |a: &SavedAnswer| (record_key(&a.key), serde_json::to_vec(a).expect("writes"));
        let (first, second) = (answer("z#/", 1), answer("a", 2));
        let records = [("meta".to_owned(), b"{}".to_vec()), record(&second), record(&first)];
        assert_eq!(records[2].0, "once/7a232f");
        assert_eq!(answers(&records).expect("reads"), [first, second]);
        let damaged = answers(&[("once/61".to_owned(), b"{}".to_vec())]).expect_err("no answer");
        assert!(damaged.to_string().contains("once/61"), "{damaged}");
    }
}
