//! An answer that goes on lasts no longer than its caller's leave.
//!
//! Who calls is found once, when the call comes in. A stream can be open for days after that, in which its token may be revoked, its time
//! may be over, or the rights of its caller may have changed: it ends then, and whoever calls again is looked at anew.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::access::Access;

/// Tokens whose time is over are found within so long; those that are revoked at once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// One answer on its way.
struct Lasting<F> {
    body: BodyDataStream,
    access: watch::Receiver<Arc<Access>>,
    look: Interval,
    holds: F,
}

/// The answer, which ends early when `holds` says so of what is known of callers by then. One whose length is known is as it was.
pub(crate) fn while_it_holds<F>(answer: Response, access: watch::Receiver<Arc<Access>>, holds: F) -> Response
where
    F: Fn(&Access) -> bool + Send + 'static,
{
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lasting = Lasting { body: body.into_data_stream(), access, look, holds };
    let chunks = unfold(lasting, async |mut lasting| {
        loop {
            tokio::select! {
                biased;
                // Without a sender the manager is ending, and with it every answer.
                Ok(()) = lasting.access.changed() => {}
                _ = lasting.look.tick() => {}
                chunk = lasting.body.next() => return chunk.map(|chunk| (chunk, lasting)),
            }
            if !(lasting.holds)(&lasting.access.borrow()) {
                tracing::info!("an answer that went on was ended: its caller's token or rights are not what they were");
                return None;
            }
        }
    });
    Response::from_parts(head, Body::from_stream(chunks))
}
