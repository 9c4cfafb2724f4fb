//! Routes that can be replaced while the listeners serve: a standby becomes the leader.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;

/// The routes in effect.
#[derive(Clone, Debug)]
pub(crate) struct RouteSwitch {
    routes: watch::Sender<Router>,
}

impl RouteSwitch {
    /// A switch that begins with these routes.
    pub(crate) fn new(routes: Router) -> Self {
        RouteSwitch {
            routes: watch::Sender::new(routes),
        }
    }

    /// Replaces the routes. Requests in progress end with the earlier ones.
    pub(crate) fn set(&self, routes: Router) {
        let _earlier = self.routes.send_replace(routes);
    }

    /// A router that passes each request to the routes in effect.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(pass).with_state(self.clone())
    }
}

async fn pass(State(switch): State<RouteSwitch>, request: Request) -> Response {
    let routes = switch.routes.borrow().clone();
    match TowerToHyperService::new(routes).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
