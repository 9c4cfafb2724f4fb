//! Messages of etcd's gRPC gateway: bytes in base64, 64-bit numbers as strings, zero left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a key or a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EncodedBytes(pub(crate) Vec<u8>);

impl Serialize for EncodedBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for EncodedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(EncodedBytes)
            .map_err(serde::de::Error::custom)
    }
}

/// A 64-bit number, which JSON carries as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EncodedNumber(pub(crate) i64);

impl Serialize for EncodedNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EncodedNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(EncodedNumber)
            .map_err(serde::de::Error::custom)
    }
}

/// The number of a member, without a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberId(pub(crate) u64);

impl<'de> Deserialize<'de> for MemberId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(MemberId).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseHeader {
    pub(crate) member_id: MemberId,
    pub(crate) revision: EncodedNumber,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    pub(crate) key: EncodedBytes,
    pub(crate) value: EncodedBytes,
    pub(crate) create_revision: EncodedNumber,
    pub(crate) mod_revision: EncodedNumber,
    pub(crate) lease: EncodedNumber,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RangeRequest {
    pub(crate) key: EncodedBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range_end: Option<EncodedBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<EncodedNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<EncodedNumber>,
}

impl RangeRequest {
    /// Reads a key.
    pub(crate) fn key(key: Vec<u8>) -> Self {
        RangeRequest {
            key: EncodedBytes(key),
            ..RangeRequest::default()
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) kvs: Vec<KeyValue>,
    pub(crate) more: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PutRequest {
    pub(crate) key: EncodedBytes,
    pub(crate) value: EncodedBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<EncodedNumber>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeleteRequest {
    pub(crate) key: EncodedBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range_end: Option<EncodedBytes>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum RequestOp {
    #[serde(rename = "request_put")]
    Put(PutRequest),
    #[serde(rename = "request_delete_range")]
    Delete(DeleteRequest),
    #[serde(rename = "request_range")]
    Range(RangeRequest),
}

impl RequestOp {
    /// Writes a key.
    pub(crate) fn put(key: Vec<u8>, value: Vec<u8>) -> Self {
        RequestOp::Put(PutRequest {
            key: EncodedBytes(key),
            value: EncodedBytes(value),
            lease: None,
        })
    }

    /// Writes a key that ends with a lease.
    pub(crate) fn put_leased(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Self {
        RequestOp::Put(PutRequest {
            key: EncodedBytes(key),
            value: EncodedBytes(value),
            lease: Some(EncodedNumber(lease)),
        })
    }

    /// Removes a key, or all keys from it to before `end`.
    pub(crate) fn delete(key: Vec<u8>, end: Option<Vec<u8>>) -> Self {
        RequestOp::Delete(DeleteRequest {
            key: EncodedBytes(key),
            range_end: end.map(EncodedBytes),
        })
    }

    /// Reads a key.
    pub(crate) fn read(key: Vec<u8>) -> Self {
        RequestOp::Range(RangeRequest::key(key))
    }
}

/// A condition on the revisions of a key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compare {
    pub(crate) key: EncodedBytes,
    pub(crate) target: &'static str,
    pub(crate) result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) create_revision: Option<EncodedNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mod_revision: Option<EncodedNumber>,
}

impl Compare {
    /// The key has this creation revision; 0 for a key that does not exist.
    pub(crate) fn created(key: Vec<u8>, revision: i64) -> Self {
        Compare {
            key: EncodedBytes(key),
            target: "CREATE",
            result: "EQUAL",
            create_revision: Some(EncodedNumber(revision)),
            mod_revision: None,
        }
    }

    /// The key was written last at this revision.
    pub(crate) fn modified(key: Vec<u8>, revision: i64) -> Self {
        Compare {
            key: EncodedBytes(key),
            target: "MOD",
            result: "EQUAL",
            create_revision: None,
            mod_revision: Some(EncodedNumber(revision)),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TxnRequest {
    pub(crate) compare: Vec<Compare>,
    pub(crate) success: Vec<RequestOp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) succeeded: bool,
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ResponseOp {
    pub(crate) response_range: Option<RangeResponse>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LeaseGrantRequest {
    #[serde(rename = "TTL")]
    pub(crate) ttl: EncodedNumber,
}

#[derive(Debug, Serialize)]
pub(crate) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub(crate) id: EncodedNumber,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseResponse {
    #[serde(rename = "ID")]
    pub(crate) id: EncodedNumber,
    /// Seconds; absent for a lease that has expired.
    #[serde(rename = "TTL")]
    pub(crate) ttl: EncodedNumber,
}

/// One message of a streaming call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamMessage<T> {
    Result(T),
    Error(StreamRefusal),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamRefusal {
    pub(crate) grpc_code: i64,
    pub(crate) message: String,
}

/// The body of a refused call. Streaming calls have the form with `error`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum RefusalBody {
    Stream { error: StreamRefusal },
    Call(Refusal),
}

/// The refusal of a call with one answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Refusal {
    #[serde(default)]
    code: i64,
    message: String,
}

impl RefusalBody {
    /// The gRPC code and the sentence.
    pub(crate) fn into_parts(self) -> (i64, String) {
        match self {
            RefusalBody::Stream { error } => (error.grpc_code, error.message),
            RefusalBody::Call(refusal) => (refusal.code, refusal.message),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct WatchRequest {
    pub(crate) create_request: WatchCreate,
}

#[derive(Debug, Serialize)]
pub(crate) struct WatchCreate {
    pub(crate) key: EncodedBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range_end: Option<EncodedBytes>,
    pub(crate) start_revision: EncodedNumber,
    pub(crate) progress_notify: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) canceled: bool,
    pub(crate) cancel_reason: String,
    pub(crate) compact_revision: EncodedNumber,
    pub(crate) events: Vec<WatchEvent>,
}

impl WatchResponse {
    /// The revision up to which the watch has sent all events. To a watch that is behind, etcd sends
    /// them in parts, and the header of each part has the present revision. So the header counts only
    /// in a response without events.
    pub(crate) fn reached(&self) -> i64 {
        self.events
            .last()
            .map_or(self.header.revision.0, |event| event.kv.mod_revision.0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchEvent {
    #[serde(rename = "type")]
    pub(crate) kind: WatchEventKind,
    pub(crate) kv: KeyValue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum WatchEventKind {
    #[default]
    Put,
    Delete,
}

#[derive(Debug, Serialize)]
pub(crate) struct AuthenticateRequest {
    pub(crate) name: String,
    pub(crate) password: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AuthenticateResponse {
    pub(crate) token: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct CompactionRequest {
    pub(crate) revision: EncodedNumber,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EmptyResponse {}

#[derive(Debug, Serialize)]
pub(crate) struct EmptyRequest {}

/// The status of one member.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusResponse {
    pub(crate) header: ResponseHeader,
    pub(crate) version: String,
    /// The member that leads; 0 without one.
    pub(crate) leader: MemberId,
    /// Bytes.
    #[serde(rename = "dbSize")]
    pub(crate) db_size: EncodedNumber,
    /// Bytes.
    #[serde(rename = "dbSizeInUse")]
    pub(crate) db_size_in_use: EncodedNumber,
}

#[derive(Debug, Serialize)]
pub(crate) struct AlarmRequest {
    pub(crate) action: &'static str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AlarmResponse {
    #[serde(default)]
    pub(crate) alarms: Vec<MemberAlarm>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MemberAlarm {
    #[serde(default)]
    pub(crate) alarm: AlarmKind,
}

/// An alarm of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum AlarmKind {
    /// None.
    #[default]
    #[serde(rename = "NONE")]
    None,
    /// The database has reached its quota.
    #[serde(rename = "NOSPACE")]
    NoSpace,
    /// The data of the member differ from those of the others.
    #[serde(rename = "CORRUPT")]
    Corrupt,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_events_does_not_reach_the_present_revision() {
        let read = |text: &str| serde_json::from_str::<WatchResponse>(text).expect("a response");
        let part = r#"{"header": {"revision": "9000"}, "events": [
            {"kv": {"key": "YQ==", "mod_revision": "1999"}},
            {"type": "DELETE", "kv": {"key": "Yg==", "mod_revision": "2000"}}]}"#;
        assert_eq!(read(part).reached(), 2000);
        assert_eq!(read(r#"{"header": {"revision": "9000"}}"#).reached(), 9000);
    }

    #[test]
    fn messages_have_the_form_of_the_gateway() {
        let request = TxnRequest {
            compare: vec![
                Compare::created(b"lead".to_vec(), 7),
                Compare::modified(b"lead".to_vec(), 9),
            ],
            success: vec![RequestOp::put(b"k".to_vec(), vec![0, 255])],
            failure: Vec::new(),
        };
        assert_eq!(
            serde_json::to_value(&request).expect("encodes"),
            serde_json::json!({
                "compare": [
                    {"key": "bGVhZA==", "target": "CREATE", "result": "EQUAL", "create_revision": "7"},
                    {"key": "bGVhZA==", "target": "MOD", "result": "EQUAL", "mod_revision": "9"},
                ],
                "success": [{"request_put": {"key": "aw==", "value": "AP8="}}],
            })
        );
    }

    #[test]
    fn refusals_of_both_kinds_of_calls_are_read() {
        for body in [
            r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
            r#"{"error":{"grpc_code":16,"http_code":401,"message":"etcdserver: invalid auth token"}}"#,
        ] {
            let body: RefusalBody = serde_json::from_str(body).expect("reads");
            let parts = (16, "etcdserver: invalid auth token".to_owned());
            assert_eq!(body.into_parts(), parts);
        }
    }

    #[test]
    fn answers_without_their_zeros_are_read() {
        let answer: TxnResponse = serde_json::from_str(
            r#"{"header":{"revision":"2"},"responses":[{"response_range":{"kvs":[{"key":"bGVhZA==",
                "create_revision":"2","value":"bWU=","lease":"23"}],"count":"1"}}]}"#,
        )
        .expect("reads");
        let range = answer.responses[0]
            .response_range
            .as_ref()
            .expect("a range");
        assert_eq!((answer.succeeded, answer.header.revision.0), (false, 2));
        assert_eq!(range.kvs[0].value.0, b"me");
        assert_eq!(range.kvs[0].lease.0, 23);
        let gone: StreamMessage<LeaseResponse> =
            serde_json::from_str(r#"{"result":{"ID":"23"}}"#).expect("reads");
        assert!(matches!(gone, StreamMessage::Result(LeaseResponse { ttl, .. }) if ttl.0 == 0));
    }
}
