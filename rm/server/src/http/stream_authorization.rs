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

/// The authorization of one caller, which may end while a stream or a channel is open.
#[derive(Clone)]
pub(crate) struct CallerAuthorization {
    access: watch::Receiver<Arc<AccessControl>>,
    holds: Arc<dyn Fn(&AccessControl) -> bool + Send + Sync>,
}

headroom_types::debug_fields!(CallerAuthorization {});

impl CallerAuthorization {
    /// The authorization lasts while `holds` returns `true` for the current access state.
    pub(crate) fn new(
        access: watch::Receiver<Arc<AccessControl>>,
        holds: impl Fn(&AccessControl) -> bool + Send + Sync + 'static,
    ) -> Self {
        CallerAuthorization {
            access,
            holds: Arc::new(holds),
        }
    }

    /// Returns when the token or the rights of the caller have changed.
    pub(crate) async fn ended(mut self) {
        let mut look = look();
        while self.holds() {
            tokio::select! {
                // No branch for an error: without a sender the resource manager is ending.
                Ok(()) = self.access.changed() => {}
                _ = look.tick() => {}
            }
        }
    }

    fn holds(&self) -> bool {
        (self.holds)(&self.access.borrow())
    }
}

fn look() -> Interval {
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// State of one open stream.
struct AuthorizedStream {
    body: BodyDataStream,
    caller: CallerAuthorization,
    look: Interval,
}

/// Wraps a response so that it ends early when the authorization of its caller ends. A response of
/// known length is unchanged.
pub(crate) fn while_it_holds(answer: Response, caller: CallerAuthorization) -> Response {
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let lasting = AuthorizedStream {
        body: body.into_data_stream(),
        caller,
        look: look(),
    };
    let chunks = unfold(lasting, async |mut lasting| {
        loop {
            tokio::select! {
                biased;
                // No branch for an error: without a sender the resource manager is ending, and all
                // streams with it.
                Ok(()) = lasting.caller.access.changed() => {}
                _ = lasting.look.tick() => {}
                chunk = lasting.body.next() => return chunk.map(|chunk| (chunk, lasting)),
            }
            if !lasting.caller.holds() {
                tracing::info!(
                    "closing a stream, because the token or the rights of its caller have changed"
                );
                return None;
            }
        }
    });
    Response::from_parts(head, Body::from_stream(chunks))
}
