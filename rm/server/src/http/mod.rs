//! HTTP interface: routes and handlers. It has no logic of its own: messages become calls of the
//! core, and results become messages.

mod acl;
pub(crate) mod am;
pub(crate) mod answer;
pub(crate) mod apps;
pub(crate) mod audit;
mod callers;
mod channel_forwarding;
pub(crate) mod cluster;
pub(crate) mod container_access;
pub(crate) mod containers;
pub(crate) mod describe;
pub(crate) mod error;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod families;
pub(crate) mod guard;
mod head_holding_stream;
pub(crate) mod idempotency;
pub(crate) mod join;
pub(crate) mod leader;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod listeners;
mod live_masters;
mod master_address;
pub(crate) mod metrics;
mod node_channel;
mod node_keys;
mod node_reports;
pub(crate) mod nodes;
pub(crate) mod operator;
pub(crate) mod origin;
pub(crate) mod pages;
pub(crate) mod parse;
mod passing;
pub(crate) mod profiles;
pub(crate) mod queues;
pub(crate) mod report;
mod rows;
pub(crate) mod service;
mod shedding;
pub(crate) mod signer;
pub(crate) mod standby;
pub(crate) mod stream;
mod stream_authorization;
pub(crate) mod submission_channel;
pub(crate) mod suggestions;
pub(crate) mod switch;
pub(crate) mod tasks;
pub(crate) mod topic_stream;
mod trace;
pub(crate) mod ui;
mod upgrade;
pub(crate) mod upload_copies;
pub(crate) mod uploads;
pub(crate) mod visibility;
pub(crate) mod wait;
pub(crate) mod web;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use headroom_config::CallerLimits;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::{RequestBodyDeadlineLayer, RequestBodyTimeoutLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::idempotency::{IdempotencyState, IdempotencyStore};
use self::limits::CallerRateLimiter;
use self::service::InterfaceRoutes;
use self::web::WebHandlerState;
use crate::uploads::UploadStore;

/// Maximum body of most calls. Bytes.
const BODY: usize = 1 << 20;
/// Maximum body of calls with rows of a job, or with all containers of a node. Bytes.
const LARGE_BODY: usize = 16 << 20;

/// Limits for callers, and the timeout for their bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) limits: CallerLimits,
    pub(crate) body_time: Duration,
}

/// Routes of nodes and masters, which are called all the time: large bodies, no rate limit, no
/// idempotency keys.
fn daemons() -> OpenApiRouter<WebHandlerState> {
    OpenApiRouter::new()
        .routes(routes!(am::sync))
        .routes(routes!(am::finish))
        .routes(routes!(am::register))
        .routes(routes!(am::journal, am::append_to_journal))
        .routes(routes!(nodes::register))
        .routes(routes!(nodes::report))
        .layer(DefaultBodyLimit::max(LARGE_BODY))
}

/// Routes of users and their programs.
fn people() -> OpenApiRouter<WebHandlerState> {
    OpenApiRouter::new()
        .routes(routes!(apps::submit, apps::list))
        .routes(routes!(apps::one, apps::change, apps::purge))
        .routes(routes!(apps::kill))
        .routes(routes!(apps::scale))
        .routes(routes!(submission_channel::open))
        .routes(routes!(submission_channel::token))
        .routes(routes!(apps::shared, apps::share))
        .routes(routes!(tasks::one))
        .routes(routes!(tasks::kill))
        .routes(routes!(tasks::retry))
        .routes(routes!(tasks::resize))
        .routes(routes!(tasks::rank))
        .routes(routes!(report::report))
        .routes(routes!(apps::why))
        .routes(routes!(master_address::show))
        .routes(routes!(am::ask, apps::requests))
        .routes(routes!(am::withdraw))
        .routes(routes!(am::updates))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::groups))
        .routes(routes!(nodes::one, nodes::tag))
        .routes(routes!(nodes::desired))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(containers::list))
        .routes(routes!(containers::one))
        .routes(routes!(containers::stop))
        .routes(routes!(containers::resize))
        .routes(routes!(containers::log))
        .routes(routes!(containers::timeline))
        .routes(routes!(container_access::signal))
        .routes(routes!(container_access::files))
        .routes(routes!(container_access::content))
        .routes(routes!(container_access::exec))
        .routes(routes!(queues::list, queues::put))
        .routes(routes!(queues::one, queues::patch))
        .routes(routes!(queues::set_state))
        .routes(routes!(families::list))
        .routes(routes!(families::one))
        .routes(routes!(suggestions::list))
        .routes(routes!(profiles::list))
        .routes(routes!(profiles::one, profiles::put, profiles::delete))
        .routes(routes!(events::events))
        .routes(routes!(audit::list))
        .routes(routes!(operator::reload))
        .routes(routes!(operator::log, operator::set_log))
        .routes(routes!(errors::list))
        .routes(routes!(errors::one))
        .routes(routes!(topic_stream::stream))
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::version))
        .routes(routes!(leader::leader))
        .routes(routes!(cluster::description))
        .routes(routes!(metrics::metrics))
        .routes(routes!(cluster::live))
        .routes(routes!(cluster::ready))
        .routes(routes!(ui::root))
        .routes(routes!(ui::folder))
        .routes(routes!(ui::index))
        .routes(routes!(ui::file))
        .merge(access())
        .layer(DefaultBodyLimit::max(BODY))
}

/// Routes of access control.
fn access() -> OpenApiRouter<WebHandlerState> {
    OpenApiRouter::new()
        .routes(routes!(acl::tokens, acl::mint))
        .routes(routes!(acl::revoke))
        .routes(routes!(acl::mint_join))
        .routes(routes!(acl::bootstrap))
        .routes(routes!(acl::who))
        .routes(routes!(acl::policies))
        .routes(routes!(acl::allow, acl::forget))
        .routes(routes!(acl::session, acl::leave))
        .routes(routes!(join::ca))
        .routes(routes!(join::join))
}

/// Routes of uploads: bodies of any size, which may take long.
fn uploads() -> OpenApiRouter<WebHandlerState> {
    OpenApiRouter::new()
        .routes(routes!(uploads::get, uploads::put))
        .merge(upload_copies::routes())
        .layer(DefaultBodyLimit::max(LARGE_BODY))
}

/// All routes, without those of interfaces of other systems.
fn all() -> OpenApiRouter<WebHandlerState> {
    people().merge(daemons()).merge(uploads())
}

/// OpenAPI description of all routes, made for its first reader.
pub(crate) static DESCRIPTION: LazyLock<String> = LazyLock::new(description);

/// OpenAPI description of all routes, as text.
pub fn description() -> String {
    let api = all().into_openapi();
    // Cannot fail: all names and texts are of this crate.
    describe::text(&describe::whole(api)).unwrap_or_default()
}

/// All paths, for the call metrics.
pub(crate) fn addresses() -> Vec<String> {
    all().into_openapi().paths.paths.into_keys().collect()
}

/// All methods and paths, without those of interfaces of other systems.
#[cfg(test)]
pub(crate) fn operations() -> Vec<(&'static str, String)> {
    let mut api = all().into_openapi();
    let all = api.paths.paths.iter_mut();
    all.flat_map(|(path, item)| {
        describe::operations(item)
            .into_iter()
            .map(|(method, _)| (method, path.clone()))
    })
    .collect()
}

/// Routes of a standby for the other managers.
pub(crate) fn copies_router(store: Arc<UploadStore>, body_time: Duration) -> Router {
    Router::from(upload_copies::routes::<Arc<UploadStore>>())
        .layer(DefaultBodyLimit::max(LARGE_BODY))
        .layer(RequestBodyTimeoutLayer::new(body_time))
        .layer(from_fn(upload_copies::managers_only))
        .with_state(store)
}

/// Router with all routes and those of `interfaces`, for the listener at `listen`.
pub(crate) fn router(
    web: WebHandlerState,
    once: IdempotencyStore,
    listen: SocketAddr,
    bounds: RequestLimits,
    interfaces: &[InterfaceRoutes],
) -> Router {
    let rates = Arc::new(CallerRateLimiter::new(bounds.limits));
    let keys = IdempotencyState {
        once: Arc::new(once),
        handle: web.reader.handle.clone(),
        clock: web.reader.clock,
    };
    let known = callers::AuthenticationState {
        access: web.reader.shared.access.subscribe(),
        clock: web.reader.clock,
        scheme: web.nodes.scheme(),
    };
    let ids = Arc::new(trace::RequestIdGenerator::new(
        web.reader.epoch,
        web.reader.shared.counters.clone(),
        (web.audit.clone(), web.reader.clock),
    ));
    let people = Router::from(people())
        .layer(from_fn_with_state(keys, idempotency::once))
        .merge(service::routes(&web, interfaces).with_state::<WebHandlerState>(()));
    let handle = web.reader.handle.clone();
    // The first layer of a pair is the outer one. One call of `layer` makes one boxed service for each
    // route, which every request copies.
    let people = people.layer((
        from_fn_with_state(rates.clone(), limits::rate),
        from_fn_with_state(handle, shedding::shed),
    ));
    let guarded = from_fn_with_state(web.clone(), guard::guard);
    // A large upload may take longer than the deadline of other bodies.
    let uploads = Router::from(uploads())
        .layer((guarded.clone(), from_fn_with_state(rates, limits::rate)))
        .layer(RequestBodyTimeoutLayer::new(bounds.body_time));
    people
        .merge(Router::from(daemons()))
        .layer(guarded)
        .layer(RequestBodyDeadlineLayer::new(bounds.body_time))
        .merge(uploads)
        .method_not_allowed_fallback(error::no_method)
        .fallback(error::no_route)
        .layer((
            from_fn_with_state(known, callers::identify),
            from_fn_with_state(ids, trace::trace),
            CatchPanicLayer::custom(error::panicked),
            from_fn_with_state(listen, origin::guard),
        ))
        .with_state(web)
}
