//! Permissions of another user of the host, whom the kernel identifies at the Unix socket.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;
mod guarded;

use fakes::unmanaged as submit;
use guarded::{as_nobody, code, guarded};
use headroom_config::AnonymousAccess;
use headroom_wire::v1::acl::CreateTokenRequest;
use headroom_wire::v1::error::ErrorCode;

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_the_host_may_change_only_own_jobs() {
    let world = guarded(AnonymousAccess::Read).await;
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can call as another user");
        return;
    }
    let others = world
        .by_socket
        .submit(&submit("rootjob"))
        .await
        .expect("the caller is an administrator")
        .app;
    let socket = world.socket.clone();
    let calls = tokio::task::spawn_blocking(move || {
        let call = |method: &str, path: &str, body: &str| as_nobody(&socket, method, path, body);
        let body = serde_json::to_value(submit("sort")).expect("JSON");
        let named = |user: Option<&str>| {
            let mut body = body.clone();
            body["user"] = user.into();
            body.to_string()
        };
        [
            call("POST", "/v1/apps", &named(None)),
            call("POST", "/v1/apps", &named(Some("root"))),
            call("POST", &format!("/v1/apps/{others}/kill"), "{}"),
            call("POST", "/v1/nodes/n1/drain", "{}"),
            call("PUT", "/v1/queues", "{}"),
            call("GET", "/v1/audit", ""),
            call("GET", "/v1/apps", ""),
        ]
    });
    let [own, forged, kill, drain, queues, audit, list] = calls.await.expect("calls");
    assert_eq!(own.0, 200, "{}", own.1);
    let statuses = [&forged, &kill, &drain, &queues, &audit].map(|answer| answer.0);
    assert_eq!(statuses, [403; 5], "{}", forged.1);
    assert!(
        forged
            .1
            .contains("nobody may not submit in the name of root"),
        "{}",
        forged.1
    );
    assert_eq!(list.0, 200);
    let app = world
        .by_socket
        .apps()
        .await
        .expect("lists")
        .into_iter()
        .find(|a| a.id.name().as_str() == "sort")
        .expect("it exists");
    assert_eq!(app.user, "nobody", "the kernel identifies the user");
    let (socket, id) = (world.socket.clone(), app.id);
    let ended = tokio::task::spawn_blocking(move || {
        as_nobody(&socket, "POST", &format!("/v1/apps/{id}/kill"), "{}")
    });
    assert_eq!(
        ended.await.expect("calls").0,
        200,
        "a user may kill an own job"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spelling_of_an_id_gives_no_rights() {
    let world = guarded(AnonymousAccess::Read).await;
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can call as another user");
        return;
    }
    let job = submit("rootjob");
    let app = world.by_socket.submit(&job).await.expect("submits").app;
    assert_eq!(app.to_string(), "rootjob.1");
    let socket = world.socket.clone();
    let calls = tokio::task::spawn_blocking(move || {
        let call = |method: &str, path: &str, body: &str| as_nobody(&socket, method, path, body);
        [
            call("POST", "/v1/apps/rootjob%2E1/kill", "{}"),
            call("GET", "/v1/apps/%72ootjob.1/requests", ""),
            call("GET", "/v1/apps/rootjob%2e1/updates?epoch=1&cursor=0", ""),
            call("POST", "/v1/containers/rootjob%2E1.e1.c1/stop", "{}"),
            call(
                "GET",
                "/v1/containers/rootjob%2E1.e1.c1/files/content?path=x",
                "",
            ),
            call("GET", "/v1/nodes/n%31/desired?epoch=1", ""),
            call("POST", "/v1/queues/root%2Edefault/state", "{}"),
            call("POST", "/v1/apps/no%20id/kill", "{}"),
        ]
    });
    let calls = calls.await.expect("calls");
    let statuses: Vec<u16> = calls.iter().map(|(status, _)| *status).collect();
    assert_eq!(
        statuses,
        [403, 403, 403, 403, 403, 403, 403, 400],
        "{calls:?}"
    );
    let app = world.by_socket.app(&app).await.expect("it is known");
    assert!(!app.state.is_final(), "it was not killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_idempotency_key_gives_no_rights() {
    let world = guarded(AnonymousAccess::Read).await;
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can call as another user");
        return;
    }
    let mut job = submit("rootjob");
    job.idempotency_key = Some("application_1700000000000_0001".to_owned());
    let app = world.by_socket.submit(&job).await.expect("submits").app;
    let mut same = serde_json::to_value(&job).expect("JSON");
    same["access"] = serde_json::json!({"change": ["nobody"]});
    same["user"] = serde_json::Value::Null;
    let (socket, path) = (world.socket.clone(), format!("/v1/apps/{app}/kill"));
    let (submitted, killed) = tokio::task::spawn_blocking(move || {
        let call = |path: &str, body: &str| as_nobody(&socket, "POST", path, body);
        (call("/v1/apps", &same.to_string()), call(&path, "{}"))
    })
    .await
    .expect("calls");
    assert_eq!(submitted.0, 200, "{}", submitted.1);
    assert!(submitted.1.contains("rootjob.2"), "{}", submitted.1);
    assert_eq!(killed.0, 403, "{}", killed.1);
    job.name = "other".parse().expect("a name");
    let taken = world.by_socket.submit(&job).await.expect_err("another job");
    assert_eq!(code(&taken), Some(ErrorCode::HR0409));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_administrator_creates_the_first_token() {
    let world = guarded(AnonymousAccess::Read).await;
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can call as another user");
        return;
    }
    let socket = world.socket.clone();
    let refused =
        tokio::task::spawn_blocking(move || as_nobody(&socket, "POST", "/v1/acl/bootstrap", ""));
    let (status, text) = refused.await.expect("calls");
    assert_eq!(status, 403, "{text}");
    let wanted = CreateTokenRequest {
        user: None,
        rights: vec!["cluster:read".to_owned()],
        about: String::new(),
        lifetime_s: None,
    };
    let refused = world.port.mint(&wanted).await;
    assert_eq!(
        code(&refused.expect_err("the caller is not authenticated")),
        Some(ErrorCode::HR0403)
    );
}
