//! Permissions of callers: unauthenticated over TCP, as root over the Unix socket, and with tokens.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;
mod guarded;

use fakes::unmanaged as submit;
use guarded::{Guarded, code, guarded};
use headroom_client::{
    AuditQuery, Client, ClientCredentials, FileUploadError, FollowMode, TokenSource, UploadSource,
};
use headroom_config::AnonymousAccess;
use headroom_types::AppId;
use headroom_wire::v1::acl::{AppAccess, CreateTokenRequest, MintedToken};
use headroom_wire::v1::apps::{ChangeApplicationRequest, SubmitApplicationRequest};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::queues::QueueRunState;

/// Timeout that is much longer than any call.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn an_unauthenticated_caller_may_only_read() {
    let world = guarded(AnonymousAccess::Read).await;
    assert!(
        world
            .port
            .apps()
            .await
            .expect("the caller may read")
            .is_empty()
    );
    let refused = world
        .port
        .submit(&submit("sort"))
        .await
        .expect_err("the caller may only read");
    assert_eq!(code(&refused), Some(ErrorCode::HR0403));
    assert!(
        refused
            .to_string()
            .contains("anonymous may not do this: it needs the right job:submit"),
        "{refused}"
    );
    let refused = world
        .port
        .audit(&AuditQuery::default(), 0)
        .await
        .expect_err("the caller is not an operator");
    assert_eq!(code(&refused), Some(ErrorCode::HR0403));
    // The audit log contains every refusal, with the caller.
    let lines = world
        .by_socket
        .audit(&AuditQuery::default(), 0)
        .await
        .expect("the caller is an administrator");
    let line = lines
        .iter()
        .find(|line| line.object == "apps")
        .expect("the refusal");
    assert_eq!(
        (line.who.as_str(), line.outcome, line.code),
        ("anonymous", 403, Some(ErrorCode::HR0403))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_health_checks_are_open_to_unauthenticated_callers() {
    let world = guarded(AnonymousAccess::Nothing).await;
    assert!(
        world.port.get_text("/livez").await.is_ok()
            && world.port.get_text("/v1/version").await.is_ok()
    );
    let refused = world
        .port
        .apps()
        .await
        .expect_err("the caller is unauthenticated");
    assert_eq!(code(&refused), Some(ErrorCode::HR0401));
    assert_eq!(
        code(
            &world
                .port
                .get_text("/v1/nodes")
                .await
                .expect_err("unauthenticated")
        ),
        Some(ErrorCode::HR0401)
    );
    assert!(
        world
            .by_socket
            .apps()
            .await
            .expect("the user of the daemon may read")
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_need_the_right_to_submit() {
    let world = guarded(AnonymousAccess::Read).await;
    let path = world.dir.path().join("a.jar");
    std::fs::write(&path, "a jar").expect("writes");
    let source = UploadSource::open(&path, |_| ()).expect("opens");
    let refused = world.port.upload(&source, |_| ()).await;
    let refused = refused.expect_err("the caller may only read");
    assert!(
        matches!(&refused, FileUploadError::Call(error) if error.denied()),
        "{refused:?}"
    );
    let sent = world.by_socket.upload(&source, |_| ()).await;
    assert!(sent.expect("the caller is an administrator"));
    let read = world.port.uploaded_file(source.sha256()).await;
    assert_eq!(code(&read.expect_err("a reader")), Some(ErrorCode::HR0403));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_serves_the_same_calls_as_the_port() {
    let world = guarded(AnonymousAccess::All).await;
    let app = world
        .by_socket
        .submit(&submit("sort"))
        .await
        .expect("submits")
        .app;
    assert_eq!(
        world
            .port
            .app(&app)
            .await
            .expect("the application exists")
            .id,
        app
    );
    let gone = Client::new("unix:/nowhere/rm.sock")
        .expect("address")
        .apps()
        .await
        .expect_err("no process listens");
    assert!(
        gone.unreachable() && gone.to_string().contains("unix:/nowhere/rm.sock /v1/apps"),
        "{gone}"
    );
    assert!(Client::new("unix:relative").is_err());
}

/// The stream has the same permissions as the calls, and reports topics that the caller may not
/// see.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_requires_the_same_rights_as_the_calls() {
    let world = guarded(AnonymousAccess::Read).await;
    let refused = world
        .port
        .submit(&submit("sort"))
        .await
        .expect_err("the caller may only read");
    assert_eq!(code(&refused), Some(ErrorCode::HR0403));
    let url = format!("{}/v1/stream?topics=audit,jobs", world.port.base());
    let mut answer = reqwest::get(url).await.expect("answers");
    assert_eq!(answer.status(), 200);
    let mut received = String::new();
    while !received.contains("\"snapshot\"") {
        received += std::str::from_utf8(
            &answer
                .chunk()
                .await
                .expect("reads")
                .expect("the stream is open"),
        )
        .expect("text");
    }
    let lines: Vec<serde_json::Value> = received
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let audit: Vec<_> = lines
        .iter()
        .filter(|line| line["topic"] == "audit")
        .collect();
    assert_eq!(audit.len(), 1, "{received}");
    assert_eq!(audit[0]["kind"], "refused");
    let detail = audit[0]["detail"].as_str().expect("a sentence");
    assert!(
        detail.contains("anonymous may not do this: it needs the right operator:read"),
        "{detail}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line["topic"] == "jobs" && line["kind"] == "snapshot"),
        "{received}"
    );
    assert!(
        !received.contains("HR0403"),
        "the stream contains a line of the audit log: {received}"
    );
}

/// A stream ends when its token is revoked or expires; other streams continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_authorization_of_its_caller() {
    let world = guarded(AnonymousAccess::Nothing).await;
    let ann = mint(&world, "ann", &["cluster:read"], None).await;
    let bob = mint(&world, "bob", &["cluster:read"], None).await;
    let brief = mint(&world, "eve", &["cluster:read"], Some(1)).await;
    let open = async |token: &MintedToken, path: &str| {
        let call = reqwest::Client::new()
            .get(format!("{}{path}", world.port.base()))
            .bearer_auth(&token.token.0);
        let mut answer = call.send().await.expect("answers");
        assert_eq!(answer.status(), 200, "{path}");
        answer
            .chunk()
            .await
            .expect("reads")
            .expect("the stream has a message");
        answer
    };
    let streams = ["/v1/stream?topics=nodes", "/v1/events?follow=true"];
    let anns = [open(&ann, streams[0]).await, open(&ann, streams[1]).await];
    let briefs = open(&brief, streams[0]).await;
    let mut bobs = open(&bob, streams[0]).await;
    world
        .by_socket
        .revoke(&ann.view.accessor)
        .await
        .expect("the caller is an administrator");
    for answer in anns.into_iter().chain([briefs]) {
        tokio::time::timeout(SOON, answer.bytes())
            .await
            .expect("ends")
            .expect("the stream ends without an error");
    }
    // A caller that is still authorized receives a keep-alive message.
    tokio::time::timeout(SOON, bobs.chunk())
        .await
        .expect("in time")
        .expect("reads")
        .expect("the stream is open");
}

/// A browser sends an invalid cookie until it receives another one. The cookie allows the page and
/// the sign-in, and no other call. An invalid token in a header is always refused, because a
/// program can omit it.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_cookie_permits_only_the_page_and_the_sign_in() {
    let world = guarded(AnonymousAccess::All).await;
    let (base, stale) = (
        world.port.base().to_owned(),
        format!("hru_{}_{}", "0".repeat(16), "0".repeat(64)),
    );
    let client = reqwest::Client::new();
    let cookie = format!("headroom_session={stale}");
    let with_cookie = async |path: &str| {
        client
            .get(format!("{base}{path}"))
            .header("cookie", &cookie)
            .send()
            .await
            .expect("answers")
    };
    assert_eq!(with_cookie("/ui/").await.status(), 200);
    assert_eq!(with_cookie("/ui/app.js").await.status(), 200);
    for path in [
        "/v1/nodes",
        "/v1/acl/self",
        "/v1/stream?topics=nodes",
        "/metrics",
    ] {
        assert_eq!(with_cookie(path).await.status(), 401, "{path}");
    }
    let bearer = client
        .get(format!("{base}/ui/"))
        .bearer_auth(&stale)
        .send()
        .await
        .expect("answers");
    assert_eq!(bearer.status(), 401);
    let sign = |token: &str| {
        let call = client
            .post(format!("{base}/v1/session"))
            .header("cookie", &cookie)
            .header("content-type", "application/json");
        call.body(format!("{token:?}")).send()
    };
    assert_eq!(sign(&stale).await.expect("answers").status(), 401);
    let minted = mint(&world, "ann", &["cluster:read"], None).await;
    let signed = sign(&minted.token.0).await.expect("answers");
    let set = signed.headers()["set-cookie"]
        .to_str()
        .expect("text")
        .to_owned();
    assert_eq!(
        (signed.status().as_u16(), set),
        (
            204,
            format!(
                "headroom_session={}; Path=/; HttpOnly; SameSite=Strict",
                minted.token.0
            )
        )
    );
    let left = client
        .delete(format!("{base}/v1/session"))
        .header("cookie", &cookie)
        .send()
        .await
        .expect("answers");
    let set = left.headers()["set-cookie"].to_str().expect("text");
    assert_eq!(
        (left.status().as_u16(), set),
        (
            204,
            "headroom_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        )
    );
    // Over plain HTTP the cookie has no `Secure` attribute, because the browser would discard it.
    let after = session_changes(&world).await;
    assert!(
        after
            .iter()
            .any(|after| after.starts_with("ann (token ") && after.ends_with("signed in")),
        "{after:?}"
    );
}

/// Outcomes of the calls that opened or closed a session, from the audit log.
async fn session_changes(world: &Guarded) -> Vec<String> {
    let lines = world
        .by_socket
        .audit(&AuditQuery::default(), 0)
        .await
        .expect("the caller is an administrator");
    lines
        .into_iter()
        .filter(|line| line.object == "session")
        .filter_map(|line| line.after)
        .collect()
}

async fn mint(
    world: &Guarded,
    user: &str,
    rights: &[&str],
    lifetime_s: Option<u64>,
) -> MintedToken {
    let rights = rights.iter().map(|right| (*right).to_owned()).collect();
    let wanted = CreateTokenRequest {
        user: Some(user.to_owned()),
        rights,
        lifetime_s,
        about: String::new(),
    };
    world
        .by_socket
        .mint(&wanted)
        .await
        .expect("the caller is an administrator")
}

/// A client with a token for a user with these rights.
async fn somebody(world: &Guarded, user: &str, rights: &[&str]) -> Client {
    let minted = mint(world, user, rights, None).await;
    let trust = ClientCredentials {
        token: TokenSource::Text(minted.token.0),
        ..ClientCredentials::default()
    };
    Client::with_credentials(&world.running.url, trust).expect("address")
}

async fn names(client: &Client) -> Vec<String> {
    client
        .apps()
        .await
        .expect("lists")
        .into_iter()
        .map(|app| app.id.name().to_string())
        .collect()
}

async fn event_apps(client: &Client) -> Vec<String> {
    let mut lines = client
        .events_of(None, 0, FollowMode::No)
        .await
        .expect("answers");
    let mut all = Vec::new();
    while let Some(event) = lines.next().await {
        all.extend(
            event
                .expect("an event")
                .app
                .map(|app| app.name().to_string()),
        );
    }
    all.dedup();
    all
}

/// Four users and two applications in two queues.
struct TwoQueues {
    _world: Guarded,
    /// Owner of `sort`.
    alice: Client,
    /// Owner of `page`.
    bob: Client,
    /// Administrator of `root.etl`.
    keeper: Client,
    /// Viewer of `root.web`.
    viewer: Client,
    /// In `root.etl`.
    sort: AppId,
    /// In `root.web`.
    page: AppId,
}

fn into_queue(name: &str, queue: &str) -> SubmitApplicationRequest {
    let mut job = submit(name);
    (job.queue, job.user) = (Some(queue.parse().expect("a queue")), None);
    job
}

async fn two_queues() -> TwoQueues {
    let world = guarded(AnonymousAccess::Nothing).await;
    let tree = serde_json::json!({"queues": {"etl": {}, "web": {}}});
    world.by_socket.set_queues(&tree, None).await.expect("sets");
    let work = ["job:submit", "job:kill"];
    let (alice, bob) = (
        somebody(&world, "alice", &work).await,
        somebody(&world, "bob", &work).await,
    );
    let keeper = somebody(&world, "carol", &["queue-admin:root.etl"]).await;
    let viewer = somebody(&world, "dan", &["queue-view:root.web"]).await;
    let sort = alice.submit(&into_queue("sort", "root.etl")).await;
    let page = bob.submit(&into_queue("page", "root.web")).await;
    TwoQueues {
        _world: world,
        sort: sort.expect("submits").app,
        page: page.expect("submits").app,
        alice,
        bob,
        keeper,
        viewer,
    }
}

fn share(view: &[&str], change: &[&str]) -> AppAccess {
    AppAccess {
        view: view.iter().map(|s| (*s).to_owned()).collect(),
        change: change.iter().map(|s| (*s).to_owned()).collect(),
    }
}

fn with_priority(priority: i32) -> ChangeApplicationRequest {
    ChangeApplicationRequest {
        priority: Some(priority),
        ..ChangeApplicationRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_only_their_own_applications() {
    let TwoQueues {
        alice,
        bob,
        keeper,
        viewer,
        sort,
        ..
    } = &two_queues().await;
    assert_eq!(
        (names(alice).await, names(bob).await),
        (vec!["sort".to_owned()], vec!["page".to_owned()])
    );
    assert_eq!(
        (names(keeper).await, names(viewer).await),
        (vec!["sort".to_owned()], vec!["page".to_owned()])
    );
    assert_eq!(
        (event_apps(alice).await, event_apps(viewer).await),
        (vec!["sort".to_owned()], vec!["page".to_owned()])
    );
    assert_eq!(
        code(&bob.app(sort).await.expect_err("the job belongs to alice")),
        Some(ErrorCode::HR0403)
    );
    let refused = bob
        .events_of(Some(sort), 0, FollowMode::No)
        .await
        .map(|_| ())
        .expect_err("the job belongs to alice");
    assert_eq!(code(&refused), Some(ErrorCode::HR0403));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_shares_an_application_for_viewing_or_for_changes() {
    let TwoQueues {
        alice, bob, sort, ..
    } = &two_queues().await;
    assert_eq!(
        code(
            &bob.share_app(sort, &share(&["bob"], &[]))
                .await
                .expect_err("not the owner")
        ),
        Some(ErrorCode::HR0403)
    );
    alice
        .share_app(sort, &share(&["bob"], &[]))
        .await
        .expect("the owner may");
    assert_eq!(bob.app(sort).await.expect("the user may view").id, *sort);
    assert_eq!(
        code(
            &bob.kill(sort, None)
                .await
                .expect_err("the user may only view")
        ),
        Some(ErrorCode::HR0403)
    );
    let faster = with_priority(3);
    alice
        .share_app(sort, &share(&[], &["bob"]))
        .await
        .expect("the owner may");
    assert_eq!(
        bob.change_app(sort, None, &faster)
            .await
            .expect("the user may change")
            .priority,
        3
    );
    alice
        .share_app(sort, &share(&[], &[]))
        .await
        .expect("the owner may");
    assert_eq!(
        code(
            &bob.app(sort)
                .await
                .expect_err("the job is no longer shared")
        ),
        Some(ErrorCode::HR0403)
    );
    assert_eq!(
        code(
            &alice
                .share_app(sort, &share(&["no body"], &[]))
                .await
                .expect_err("invalid")
        ),
        Some(ErrorCode::HR0400)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_shared_at_its_submission() {
    let TwoQueues {
        alice, bob, viewer, ..
    } = &two_queues().await;
    let faster = with_priority(3);
    let shared = SubmitApplicationRequest {
        access: share(&["dan"], &["bob"]),
        ..into_queue("merge", "root.etl")
    };
    let merge = alice.submit(&shared).await.expect("submits").app;
    assert_eq!(
        alice.app_access(&merge).await.expect("the owner may"),
        shared.access
    );
    assert_eq!(
        viewer.app(&merge).await.expect("the user may view").id,
        merge
    );
    assert_eq!(
        bob.change_app(&merge, None, &faster)
            .await
            .expect("the user may change")
            .priority,
        3
    );
    let wrong = SubmitApplicationRequest {
        access: share(&["no body"], &[]),
        ..into_queue("wrong", "root.etl")
    };
    assert_eq!(
        code(&alice.submit(&wrong).await.expect_err("the name is invalid")),
        Some(ErrorCode::HR0400)
    );
    assert_eq!(names(alice).await, ["sort", "merge"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_administrator_changes_only_its_own_queue() {
    let TwoQueues {
        keeper,
        viewer,
        sort,
        page,
        ..
    } = &two_queues().await;
    let state = QueueRunState::Paused;
    keeper
        .set_queue_state(&"root.etl".parse().expect("a queue"), state)
        .await
        .expect("the queue is her own");
    let refused = keeper
        .set_queue_state(&"root.web".parse().expect("a queue"), state)
        .await
        .expect_err("the queue is another");
    assert!(
        refused.to_string().contains("queue-admin:root.web"),
        "{refused}"
    );
    assert_eq!(
        code(
            &viewer
                .kill(page, None)
                .await
                .expect_err("the user may only view")
        ),
        Some(ErrorCode::HR0403)
    );
    assert_eq!(
        code(
            &keeper
                .kill(page, None)
                .await
                .expect_err("the job is in another queue")
        ),
        Some(ErrorCode::HR0403)
    );
    keeper.kill(sort, None).await.expect("the queue is her own");
}
