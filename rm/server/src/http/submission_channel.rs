//! `/v1/apps/{app}/channel`: the submission channel of a live job, through the resource manager or
//! to its master itself.
//!
//! The handler waits for a registered master, connects to it, and gives the connection of its
//! caller to `channel_forwarding`.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use headroom_transport::{MasterAddress, MasterConnection, connect};
use headroom_types::AppId;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemResult};
use headroom_wire::v1::submission::{SubmissionChannelAccess, UPGRADE};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::audited;
use super::channel_forwarding::ForwardedChannel;
use super::describe::{Bad, Missing, NotLive, NotUpgraded, Over, TooMany};
use super::error::HandlerResult;
use super::live_masters::{SubmissionEndpoint, SubmissionReadiness};
use super::parse::{EmptyQuery, PathId, QueryParams};
use super::stream_authorization::CallerAuthorization;
use super::web::WebHandlerState;
use super::{limits, upgrade};

/// Maximum wait for the registration of a master.
const MASTER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for connecting to a master, with the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which changes of the cluster are collected before the state is read again.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Opens the submission channel of a live job.
///
/// The response 101 changes the protocol of the connection: the resource manager adds the secret of
/// the channel to the caller's first line, then forwards all bytes between the caller and the
/// master of the job. The call waits up to 30 s for a master that has not registered yet.
/// `docs/submission-protocol.md` describes the lines.
#[utoipa::path(post, path = "/v1/apps/{app}/channel", tag = "applications", params(
    ("app" = AppId, Path),
    ("Connection" = String, Header, description = "`Upgrade`"),
    ("Upgrade" = String, Header, description = "`headroom-submission/1`"),
), responses(
    (status = 101, description = "The connection now has the protocol headroom-submission/1."),
    Bad, Missing, NotLive, Over, NotUpgraded, TooMany,
))]
pub(crate) async fn open(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    Extension(caller): Extension<CallerAuthorization>,
    mut request: Request,
) -> HandlerResult<Response> {
    require_upgrade(request.headers())?;
    let place = limits::place(&web.streams)?;
    let endpoint = wait_for_master(&web, &app).await?;
    let master = connect_to_master(&app, &endpoint).await?;
    let run = format!("channel to run {} of the master", endpoint.attempt);
    let channel = ForwardedChannel {
        app,
        upgrade: hyper::upgrade::on(&mut request),
        master,
        token: endpoint.token,
        caller,
        reader: web.reader.clone(),
        closing: web.closing.clone(),
        _place: place,
    };
    tokio::spawn(channel.forward());
    let response = upgrade::switching_to(UPGRADE);
    Ok(audited("", run, response).into_response())
}

/// Returns the address of a live job's master and the secret of its submission channel.
///
/// For a client that can reach the master itself. The first line of the client contains the secret.
/// The call waits up to 30 s for a master that has not registered yet.
#[utoipa::path(post, path = "/v1/apps/{app}/channel-token", tag = "applications", params(("app" = AppId, Path)),
    responses((status = 200, body = SubmissionChannelAccess), Bad, Missing, NotLive, Over, TooMany))]
pub(crate) async fn token(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Response> {
    let _place = limits::place(&web.streams)?;
    let SubmissionEndpoint {
        url,
        token,
        attempt,
    } = wait_for_master(&web, &app).await?;
    let access = SubmissionChannelAccess {
        url,
        token,
        expires: None,
    };
    let run = format!("channel token of run {attempt} of the master");
    Ok(audited("", run, Json(access)).into_response())
}

/// Checks that the caller asks for the protocol of the channel.
fn require_upgrade(headers: &HeaderMap) -> ProblemResult<()> {
    if upgrade::is_asked_for(headers, UPGRADE) {
        return Ok(());
    }
    let problem = ProblemDetails::new(
        ErrorCode::HR0426,
        format!("a submission channel has the protocol {UPGRADE}"),
    );
    Err(problem.hint(format!(
        "send the headers Connection: Upgrade and Upgrade: {UPGRADE}"
    )))
}

/// Returns the endpoint of the master, as soon as it has registered.
async fn wait_for_master(web: &WebHandlerState, app: &AppId) -> ProblemResult<SubmissionEndpoint> {
    let until = Instant::now() + MASTER_TIMEOUT;
    let mut batches = web.reader.handle.batches();
    loop {
        batches.mark_unchanged();
        let view = web.reader.app(app).await?;
        match web.masters.readiness(&view) {
            SubmissionReadiness::Ready(endpoint) => return Ok(endpoint),
            SubmissionReadiness::NotLive => {
                let problem = ProblemDetails::new(
                    ErrorCode::HR0418,
                    format!("{app} is not a live job: its tasks are those of its job file"),
                );
                return Err(problem.hint("add `live = true` to the job file and submit it again"));
            }
            SubmissionReadiness::Ended(state) => {
                let detail = format!("{app} is {}: it accepts no more tasks", state.as_str());
                let problem = ProblemDetails::new(ErrorCode::HR0419, detail);
                return Err(problem.hint(format!("rmctl ps {app}")));
            }
            SubmissionReadiness::Unregistered => {}
        }
        let waits = || {
            let why = match view.diagnostics.as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            let problem = ProblemDetails::unavailable(format!(
                "the master of {app} has not registered within {} s{why}",
                MASTER_TIMEOUT.as_secs()
            ));
            problem.hint(format!("try again in a moment; rmctl why {app}"))
        };
        tokio::select! {
            () = web.closing.cancelled() => return Err(
                ProblemDetails::unavailable("the resource manager is shutting down")
                    .hint("try again in a moment")
            ),
            () = sleep_until(until) => return Err(waits()),
            // Without a sender the resource manager is ending, and the next read fails.
            _ = batches.changed() => {}
        }
        sleep_until(until.min(Instant::now() + LOOK_INTERVAL)).await;
    }
}

async fn connect_to_master(
    app: &AppId,
    endpoint: &SubmissionEndpoint,
) -> ProblemResult<MasterConnection> {
    let unreachable = |why: String| {
        let problem =
            ProblemDetails::unavailable(format!("the master of {app} cannot be reached: {why}"));
        problem.hint("it may be restarting: try again in a moment")
    };
    let address: MasterAddress = endpoint
        .url
        .parse()
        .map_err(|error| unreachable(format!("{}: {error}", endpoint.url)))?;
    match timeout(CONNECT_TIMEOUT, connect(&address.at, address.pin)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(unreachable(format!("{}: {error}", address.at))),
        Err(_) => Err(unreachable(format!(
            "{} did not answer within {} s",
            address.at,
            CONNECT_TIMEOUT.as_secs()
        ))),
    }
}
