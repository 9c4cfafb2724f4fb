//! Name of an entry in a queue: a waiting request, or a waiting master.
//!
//! Plain data; the tree of queues has the order.

use headroom_types::{AppId, RequestId};

/// A waiting request or master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementWaiter {
    /// The application.
    pub app: AppId,
    /// The request; `None` for the master.
    pub request: Option<RequestId>,
}

impl PlacementWaiter {
    /// Entry of a request, or of the master when `request` is `None`.
    pub(crate) fn new(app: &AppId, request: Option<&RequestId>) -> Self {
        PlacementWaiter {
            app: app.clone(),
            request: request.cloned(),
        }
    }
}
