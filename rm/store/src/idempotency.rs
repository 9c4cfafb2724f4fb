//! Responses to idempotent calls, kept so that a call repeated after a restart gets the same
//! response.
//!
//! The core does not know them, and a cluster works without them. The server interprets them.

use headroom_types::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::replay_error::{ReplayError, parse};

/// Prefix of the keys of these records.
pub(crate) const ANSWERS: &str = "once/";

/// One idempotent call and its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedResponse {
    /// The caller's idempotency key.
    pub key: String,
    /// Hash of method, address and body.
    pub call: u64,
    /// The time of the response.
    pub at: UnixMillis,
    /// HTTP status.
    pub status: u16,
    /// Headers by name, in the order of the response.
    pub headers: Vec<(String, String)>,
    /// The body of the response.
    pub body: String,
}

/// The key of the record, in hexadecimal digits, because a caller's key may contain any printable
/// character.
pub(crate) fn record_key(key: &str) -> String {
    use std::fmt::Write as _;
    key.bytes().fold(ANSWERS.to_owned(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// All responses among the records, oldest first.
///
/// # Errors The first record that cannot be parsed.
pub fn answers(records: &[(String, Vec<u8>)]) -> Result<Vec<SavedResponse>, ReplayError> {
    let ours = records.iter().filter(|(key, _)| key.starts_with(ANSWERS));
    let mut all = ours
        .map(|(key, value)| parse::<SavedResponse>(key, value))
        .collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_restored_in_order_and_a_damaged_record_is_named() {
        let answer = |key: &str, at| SavedResponse {
            key: key.into(),
            call: 7,
            at: UnixMillis(at),
            status: 200,
            headers: vec![("etag".into(), "\"1\"".into())],
            body: "{}".into(),
        };
        let record =
            |a: &SavedResponse| (record_key(&a.key), serde_json::to_vec(a).expect("writes"));
        let (first, second) = (answer("z#/", 1), answer("a", 2));
        let records = [
            ("meta".to_owned(), b"{}".to_vec()),
            record(&second),
            record(&first),
        ];
        assert_eq!(records[2].0, "once/7a232f");
        assert_eq!(answers(&records).expect("reads"), [first, second]);
        let damaged =
            answers(&[("once/61".to_owned(), b"{}".to_vec())]).expect_err("the record is damaged");
        assert!(damaged.to_string().contains("once/61"), "{damaged}");
    }
}
