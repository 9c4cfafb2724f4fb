//! Stream authorization: closes a stream when its caller's authorization ends.
//!
//! A call is authorized once, when it arrives. A stream can then stay open for days. Meanwhile its
//! token may be revoked or expire, or the rights of its caller may change. The stream then ends,
//! and a new call is authorized again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::access::AccessControl;

/// Interval of the check for expired tokens; revoked tokens are noticed at once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// State of one open stream.
struct AuthorizedStream<F> {
    body: BodyDataStream,
    access: watch::Receiver<Arc<AccessControl>>,
    look: Interval,
    holds: F,
}

/// Wraps a response so that it ends early when `holds` returns `false` for the current access
/// state. A response of known length is unchanged.
pub(crate) fn while_it_holds<F>(
    answer: Response,
    access: watch::Receiver<Arc<AccessControl>>,
    holds: F,
) -> Response
where
    F: Fn(&AccessControl) -> bool + Send + 'static,
{
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lasting = AuthorizedStream {
        body: body.into_data_stream(),
        access,
        look,
        holds,
    };
    let chunks = unfold(lasting, async |mut lasting| {
        loop {
            tokio::select! {
                biased;
                // No branch for an error: without a sender the resource manager is ending, and all
                // streams with it.
                Ok(()) = lasting.access.changed() => {}
                _ = lasting.look.tick() => {}
                chunk = lasting.body.next() => return chunk.map(|chunk| (chunk, lasting)),
            }
            if !(lasting.holds)(&lasting.access.borrow()) {
                tracing::info!(
                    "closing a stream, because the token or the rights of its caller have changed"
                );
                return None;
            }
        }
    });
    Response::from_parts(head, Body::from_stream(chunks))
}
