//! Idempotency: the header `Idempotency-Key` names a call, and a repeated call with the same key
//! gets the same response without being made again.
//!
//! Keys are bounded in number, size and time, and survive a restart: a response is sent when it is
//! in the journal. A call that the restart itself interrupted is made again when it is sent again.
//! A submission is not, because its key is part of the application.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_identity::Principal;
use headroom_rm_store::SavedResponse;
use headroom_types::UnixMillis;
use headroom_wire::v1::error::ProblemDetails;
use tokio::sync::watch;

use super::error::ProblemResponse;
use crate::clock::ManagerClock;
use crate::handle::MainLoopHandle;
use crate::to_wire;

/// Request header with the key.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Response header that marks a repeated response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key.
pub(crate) const LONGEST: usize = 64;
/// Limit on calls that are kept.
const MOST: usize = 10_000;
/// Limit on bytes of response bodies that are kept.
const MOST_BYTES: usize = 64 << 20;
/// Time for which a key is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Maximum body of a call with a key, and of its response. Bytes.
const LARGEST: usize = 1 << 20;
/// Maximum response that is kept over a restart. Bytes.
const LARGEST_SAVED: usize = 64 << 10;

/// Path prefixes whose responses contain secrets.
const SECRET: [&str; 3] = ["/v1/acl/", "/v1/join", "/v1/session"];
/// Path suffixes of calls that open a connection, or whose responses contain secrets.
const UNRECORDED: [&str; 2] = ["/channel", "/channel-token"];

/// Recorded response.
#[derive(Clone, Debug)]
struct RecordedResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    problem: Option<ProblemDetails>,
}

/// A key with its call.
#[derive(Debug)]
struct IdempotencyEntry {
    /// Hash of the whole call: method, path, body.
    call: u64,
    at: Instant,
    answer: watch::Receiver<Option<RecordedResponse>>,
}

/// Keys and their responses.
#[derive(Debug, Default)]
pub(crate) struct IdempotencyStore {
    kept: Mutex<IdempotencyTable>,
}

#[derive(Debug, Default)]
struct IdempotencyTable {
    entries: BTreeMap<String, IdempotencyEntry>,
    /// Keys, oldest first. A key whose call failed stays here until it is the oldest.
    order: VecDeque<(Instant, String)>,
    bytes: usize,
    /// Removed keys that may still be in the journal.
    gone: Vec<String>,
}

/// State of the middleware.
#[derive(Clone, Debug)]
pub(crate) struct IdempotencyState {
    pub(crate) once: Arc<IdempotencyStore>,
    pub(crate) handle: MainLoopHandle,
    pub(crate) clock: ManagerClock,
}

/// Role of a call with a key.
enum KeyedCallRole {
    /// It is the first call with the key.
    First(watch::Sender<Option<RecordedResponse>>),
    /// Another call with the key was the first.
    Later(watch::Receiver<Option<RecordedResponse>>),
    /// The key belongs to a different call.
    Taken,
}

impl IdempotencyStore {
    /// Restores the responses of an earlier incarnation, oldest first.
    pub(crate) fn restored(answers: Vec<SavedResponse>, wall: UnixMillis) -> Self {
        let (once, now) = (IdempotencyStore::default(), Instant::now());
        {
            let mut kept = once.kept();
            for saved in answers {
                let (key, call) = (saved.key.clone(), saved.call);
                // The host may have started after that time, which `Instant` cannot express. The
                // response is then kept a little longer.
                let at = now.checked_sub(wall.since(saved.at)).unwrap_or(now);
                let Some(answer) = restored(saved) else {
                    continue;
                };
                kept.bytes += answer.body.len();
                kept.entries.insert(
                    key.clone(),
                    IdempotencyEntry {
                        call,
                        at,
                        answer: watch::channel(Some(answer)).1,
                    },
                );
                kept.order.push_back((at, key));
            }
        }
        once
    }

    /// Takes the keys that can be removed from the journal; each is returned once.
    fn take_gone(&self) -> Vec<String> {
        std::mem::take(&mut self.kept().gone)
    }

    fn kept(&self) -> MutexGuard<'_, IdempotencyTable> {
        // Poisoning is harmless: no panic can leave the map half changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, key: &str, call: u64, now: Instant) -> KeyedCallRole {
        let mut kept = self.kept();
        kept.forget(|kept, at| {
            kept.order.len() >= 2 * MOST || now.saturating_duration_since(at) >= KEPT
        });
        if let Some(entry) = kept.entries.get(key) {
            return if entry.call == call {
                KeyedCallRole::Later(entry.answer.clone())
            } else {
                KeyedCallRole::Taken
            };
        }
        kept.forget(|kept, _| kept.entries.len() >= MOST || kept.bytes >= MOST_BYTES);
        let (sender, answer) = watch::channel(None);
        kept.entries.insert(
            key.to_owned(),
            IdempotencyEntry {
                call,
                at: now,
                answer,
            },
        );
        kept.order.push_back((now, key.to_owned()));
        KeyedCallRole::First(sender)
    }

    fn answered(&self, size: usize) {
        self.kept().bytes += size;
    }

    /// Removes the key of a failed call: the next call with this key is the first again.
    fn give_up(&self, key: &str) {
        self.kept().entries.remove(key);
    }
}

impl IdempotencyTable {
    /// Removes the oldest keys while `too_many` returns `true`.
    fn forget(&mut self, too_many: impl Fn(&IdempotencyTable, Instant) -> bool) {
        while self
            .order
            .front()
            .is_some_and(|(at, _)| too_many(self, *at))
        {
            let Some((at, key)) = self.order.pop_front() else {
                break;
            };
            if self.entries.get(&key).is_some_and(|e| e.at == at)
                && let Some(gone) = self.entries.remove(&key)
            {
                let size = gone.answer.borrow().as_ref().map_or(0, |a| a.body.len());
                self.bytes = self.bytes.saturating_sub(size);
                self.gone.push(key);
            }
        }
    }
}

/// Middleware that responds to a repeated call with the recorded response.
pub(crate) async fn once(
    State(keys): State<IdempotencyState>,
    request: Request,
    next: Next,
) -> Response {
    let Some(key) = request
        .headers()
        .get(&KEY)
        .filter(|_| *request.method() == Method::POST)
    else {
        return next.run(request).await;
    };
    // A response with a secret is sent once and not recorded.
    let path = request.uri().path();
    if SECRET.iter().any(|secret| path.starts_with(secret))
        || UNRECORDED.iter().any(|end| path.ends_with(end))
    {
        return next.run(request).await;
    }
    let plain = |k: &HeaderValue| {
        (1..=LONGEST).contains(&k.len()) && k.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let Some(key) = Some(key)
        .filter(|k| plain(k))
        .and_then(|k| k.to_str().ok())
        .map(|key| owned(key, request.extensions().get()))
    else {
        let detail = format!("Idempotency-Key must have 1 to {LONGEST} plain characters");
        return ProblemResponse(ProblemDetails::bad_request(detail)).into_response();
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return ProblemResponse(ProblemDetails::too_large(
            "the body is larger than this call allows",
        ))
        .into_response();
    };
    let mut whole = format!("{} {}\n", parts.method, parts.uri).into_bytes();
    whole.extend_from_slice(&body);
    let request = Request::from_parts(parts, Body::from(body));
    let call = digest(&whole);
    match keys.once.turn(&key, call, Instant::now()) {
        KeyedCallRole::First(sender) => first(keys, (key, call), request, next, sender).await,
        KeyedCallRole::Later(answer) => later(answer).await,
        KeyedCallRole::Taken => {
            let problem =
                ProblemDetails::conflict("this Idempotency-Key was used for another call");
            ProblemResponse(problem.hint("use a new key for a new call")).into_response()
        }
    }
}

/// The key with its user: users neither get the responses of others nor take their keys. A key has no
/// space, so no two users share one.
fn owned(key: &str, caller: Option<&Principal>) -> String {
    let user = match caller {
        None | Some(Principal::Open) => return key.to_owned(),
        Some(Principal::User { name, .. }) => name.clone(),
        Some(
            program @ (Principal::Anonymous
            | Principal::Manager
            | Principal::Node(_)
            | Principal::Master(_)
            | Principal::Executor(_)),
        ) => program.audit_name().unwrap_or_default(),
    };
    format!("{user} {key}")
}

/// Makes the call to its end, even if the caller disconnects.
async fn first(
    keys: IdempotencyState,
    (key, call): (String, u64),
    request: Request,
    next: Next,
    sender: watch::Sender<Option<RecordedResponse>>,
) -> Response {
    let (once, named) = (keys.once.clone(), key.clone());
    let made = tokio::spawn(async move {
        let (parts, body) = next.run(request).await.into_parts();
        let Ok(body) = to_bytes(body, LARGEST).await else {
            keys.once.give_up(&named);
            return broken();
        };
        if parts.status.is_server_error() || parts.status == StatusCode::TOO_MANY_REQUESTS {
            keys.once.give_up(&named);
            return Response::from_parts(parts, Body::from(body));
        }
        let problem = parts.extensions.get::<ProblemDetails>().cloned();
        let answer = RecordedResponse {
            status: parts.status,
            headers: parts.headers.clone(),
            body: body.clone(),
            problem,
        };
        let saved = answer.saved(named, call, keys.clock.unix_now());
        keys.once.answered(body.len());
        // Fails if no other call waits for the response; later calls read it from the map.
        let _ = sender.send(Some(answer));
        if let Some(saved) = saved
            && let Err(problem) = keys.handle.keep(saved, keys.once.take_gone()).await
        {
            return ProblemResponse(problem).into_response();
        }
        Response::from_parts(parts, Body::from(body))
    });
    made.await.unwrap_or_else(|_| {
        once.give_up(&key);
        broken()
    })
}

impl RecordedResponse {
    /// Form of the response in the journal. `None` if it is too large or not text.
    fn saved(&self, key: String, call: u64, at: UnixMillis) -> Option<SavedResponse> {
        let body = (self.body.len() <= LARGEST_SAVED)
            .then(|| String::from_utf8(self.body.to_vec()).ok())??;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let headers = self.headers.iter().map(text).collect::<Option<Vec<_>>>()?;
        Some(SavedResponse {
            key,
            call,
            at,
            status: self.status.as_u16(),
            headers,
            body,
        })
    }
}

/// Restores a response from the journal. `None` if another version wrote an invalid one; it is then
/// ignored.
fn restored(saved: SavedResponse) -> Option<RecordedResponse> {
    let mut headers = HeaderMap::new();
    for (name, value) in saved.headers {
        headers.append(
            HeaderName::try_from(name).ok()?,
            HeaderValue::try_from(value).ok()?,
        );
    }
    let status = StatusCode::from_u16(saved.status).ok()?;
    Some(RecordedResponse {
        status,
        headers,
        body: Bytes::from(saved.body),
        problem: None,
    })
}

/// Hash of a call, FNV-1a. It is on disk, so it must be the same in later versions.
fn digest(call: &[u8]) -> u64 {
    call.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

async fn later(mut answer: watch::Receiver<Option<RecordedResponse>>) -> Response {
    // Ends without a response if the first call failed.
    let Ok(answer) = answer.wait_for(Option::is_some).await.map(|a| a.clone()) else {
        let problem =
            ProblemDetails::unavailable("the first call with this Idempotency-Key has failed");
        return ProblemResponse(problem.hint("send the call again")).into_response();
    };
    let Some(answer) = answer else {
        return broken();
    };
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(problem) = answer.problem {
        response.extensions_mut().insert(problem);
    }
    response
}

fn broken() -> Response {
    ProblemResponse(to_wire::internal_error()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_identity::{AccessRights, SecretToken, SecretTokenKind};

    #[test]
    fn the_oldest_keys_are_removed_and_keys_expire() {
        let once = IdempotencyStore::default();
        let start = Instant::now();
        let first = |key: &str, at| matches!(once.turn(key, 1, at), KeyedCallRole::First(_));
        assert!((0..MOST).all(|i| first(&format!("k{i}"), start)));
        assert!(!first("k0", start), "the key is kept");
        assert!(
            first("one more", start) && first("k0", start),
            "the oldest key was removed"
        );
        assert_eq!(once.kept().entries.len(), MOST);
        assert!(first("k9999", start + KEPT), "all keys expire after a day");
        assert_eq!(once.kept().entries.len(), 1);
    }

    #[test]
    fn users_do_not_share_keys() {
        let user = |name: &str, token| Principal::User {
            name: name.into(),
            token,
            rights: AccessRights::user_default(),
            groups: [].into(),
        };
        let of = |caller: &Principal| owned("nightly", Some(caller));
        let alice = of(&user("alice", None));
        assert_ne!(alice, of(&user("bob", None)));
        assert_ne!(alice, of(&Principal::Open));
        let token = SecretToken::mint(SecretTokenKind::User).expect("random numbers");
        assert_eq!(
            alice,
            of(&user("alice", Some(token.accessor()))),
            "another token of the same user may repeat the call"
        );
        assert_eq!(of(&Principal::Open), "nightly");
    }

    #[test]
    fn a_recorded_response_survives_a_restart_and_expires() {
        let answer = RecordedResponse {
            status: StatusCode::CREATED,
            headers: HeaderMap::from_iter([(
                axum::http::header::ETAG,
                HeaderValue::from_static("\"3\""),
            )]),
            body: Bytes::from_static(b"{}"),
            problem: None,
        };
        let saved = answer
            .saved("a".into(), 1, UnixMillis(1_000_000))
            .expect("the body is text");
        let large = RecordedResponse {
            body: Bytes::from(vec![b' '; LARGEST_SAVED + 1]),
            ..answer
        };
        assert_eq!(large.saved("b".into(), 1, UnixMillis(0)), None);
        let once = IdempotencyStore::restored(vec![saved], UnixMillis(1_001_000));
        assert!(matches!(
            once.turn("a", 2, Instant::now()),
            KeyedCallRole::Taken
        ));
        let KeyedCallRole::Later(again) = once.turn("a", 1, Instant::now()) else {
            panic!("the call has no response")
        };
        let again = again.borrow().clone().expect("a response");
        assert_eq!(
            (again.status, again.headers["etag"].as_bytes(), &*again.body),
            (StatusCode::CREATED, &b"\"3\""[..], &b"{}"[..])
        );
        assert!(
            matches!(
                once.turn("a", 1, Instant::now() + KEPT),
                KeyedCallRole::First(_)
            ),
            "the key expires after a day"
        );
        assert_eq!(
            (once.take_gone(), once.take_gone()),
            (vec!["a".to_owned()], Vec::new())
        );
    }

    #[test]
    fn large_responses_are_removed_at_the_size_limit() {
        let once = IdempotencyStore::default();
        let now = Instant::now();
        let KeyedCallRole::First(sender) = once.turn("a", 1, now) else {
            panic!("the call is not the first")
        };
        let body = Bytes::from(vec![0; MOST_BYTES]);
        once.answered(body.len());
        sender
            .send(Some(RecordedResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body,
                problem: None,
            }))
            .expect("the receiver is kept");
        assert!(matches!(once.turn("b", 1, now), KeyedCallRole::First(_)));
        assert!(
            matches!(once.turn("a", 1, now), KeyedCallRole::First(_)),
            "the large response was removed"
        );
        assert_eq!(once.kept().bytes, 0);
    }

    #[test]
    fn a_key_is_bound_to_a_single_call() {
        let once = IdempotencyStore::default();
        let now = Instant::now();
        assert!(matches!(once.turn("a", 1, now), KeyedCallRole::First(_)));
        assert!(matches!(once.turn("a", 1, now), KeyedCallRole::Later(_)));
        assert!(matches!(once.turn("a", 2, now), KeyedCallRole::Taken));
        once.give_up("a");
        assert!(matches!(once.turn("a", 2, now), KeyedCallRole::First(_)));
    }
}
