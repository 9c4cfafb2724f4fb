//! The files of a launch exist before its program starts. Otherwise the program does not start, and
//! the report names the cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use headroom_types::{
    Bytes, ExitReason, FetchedFile, FetchedFileKind, LaunchSpec, Sha256, StopCause,
};
use sha2::Digest as _;
use tokio::sync::Notify;

use crate::fake_rm::FakeRm;
use crate::node::{Node, on_any_disk, sh};
use crate::secured::TlsTestListener;

/// Serves the files of the tests, and counts the requests.
struct Server {
    url: String,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    requests: AtomicU32,
    /// Lets the server send the file `held`.
    release: Notify,
}

/// Content of every file except the archives.
const TEXT: &[u8] = b"#!/bin/sh\necho fetched\n";

impl Server {
    async fn start() -> Server {
        let state = Arc::new(ServerState::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let router = router(&state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Server { url, state }
    }

    /// A server with TLS, and the PEM certificate that its clients must trust.
    async fn secure() -> (Server, String) {
        let state = Arc::new(ServerState::default());
        let (listener, pem) = TlsTestListener::bind().await;
        let url = format!("https://localhost:{}", listener.port);
        let router = router(&state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        (Server { url, state }, pem)
    }

    fn file(&self, name: &str, bytes: &[u8], kind: FetchedFileKind) -> FetchedFile {
        let sha256 = Some(Sha256::new(sha2::Sha256::digest(bytes).into()));
        FetchedFile {
            name: "it".into(),
            from: format!("{}/{name}", self.url),
            sha256,
            kind,
            most: None,
        }
    }

    fn requests(&self) -> u32 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

fn router(state: &Arc<ServerState>) -> Router {
    Router::new()
        .route("/{file}", get(serve))
        .with_state(Arc::clone(state))
}

async fn serve(State(state): State<Arc<ServerState>>, Path(file): Path<String>) -> Response {
    state.requests.fetch_add(1, Ordering::Relaxed);
    match file.as_str() {
        "missing" => axum::http::StatusCode::NOT_FOUND.into_response(),
        "never" => std::future::pending().await,
        "held" => {
            state.release.notified().await;
            TEXT.into_response()
        }
        "moved" => Redirect::temporary("a").into_response(),
        "down" => Redirect::temporary("http://localhost:1/a").into_response(),
        "round" => Redirect::temporary("/round").into_response(),
        "good.tar" => tar_with("bin/it").into_response(),
        "escape.tar" => tar_with("../../../escaped").into_response(),
        _ => TEXT.into_response(),
    }
}

/// An archive with one program.
fn tar_with(name: &str) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(0o755);
    header.set_size(TEXT.len() as u64);
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.extend_from_slice(TEXT);
    archive.resize(2048, 0);
    archive
}

fn with_file(file: FetchedFile, script: &str) -> LaunchSpec {
    LaunchSpec {
        fetch: vec![file],
        ..sh(script)
    }
}

/// The reason why the container did not start.
async fn refusal(rm: &FakeRm, n: u64, file: FetchedFile) -> String {
    let id = rm.run(n, 32, with_file(file, "exit 0"));
    let report = rm.exit(&id).await;
    assert_eq!(report.reason, ExitReason::LaunchFailed, "{report:#?}");
    format!("{report:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_fetched_before_the_program_starts() {
    let (rm, server) = (FakeRm::start(), Server::start().await);
    let node = Node::start(rm.url(), 256, &[]);
    let program = rm.run(
        1,
        32,
        with_file(server.file("a", TEXT, FetchedFileKind::Program), "./it"),
    );
    assert_eq!(rm.exit(&program).await.reason, ExitReason::Exit { code: 0 });
    assert_eq!(node.text(&program, "stdout"), "fetched\n");
    let archive = server.file("good.tar", &tar_with("bin/it"), FetchedFileKind::Archive);
    let archive = rm.run(2, 32, with_file(archive, "./it/bin/it; ls -a . it"));
    assert_eq!(rm.exit(&archive).await.reason, ExitReason::Exit { code: 0 });
    assert!(
        node.text(&archive, "stdout").starts_with("fetched\n"),
        "{}",
        node.text(&archive, "stdout")
    );
    assert!(
        !node.text(&archive, "stdout").contains(".fetching"),
        "temporary files are left"
    );
    let local = node.state().join("data");
    std::fs::write(&local, "local").expect("writes");
    let from = local.to_str().expect("text").to_owned();
    let file = FetchedFile {
        name: "it".into(),
        from,
        sha256: None,
        kind: FetchedFileKind::File,
        most: None,
    };
    let id = rm.run(3, 32, with_file(file, "cat it"));
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
    assert_eq!(node.text(&id, "stdout"), "local");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_file_comes_from_the_resource_manager() {
    let rm = FakeRm::start();
    let mut node = Node::start(rm.url(), 256, &[]);
    let sum = |bytes: &[u8]| Sha256::new(sha2::Sha256::digest(bytes).into());
    rm.add_upload(sum(TEXT), TEXT);
    let file = FetchedFile::uploaded("it", sum(TEXT), FetchedFileKind::Program);
    let id = rm.run(1, 32, with_file(file.clone(), "./it"));
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
    assert_eq!(node.text(&id, "stdout"), "fetched\n");
    let packed = tar_with("bin/it");
    rm.add_upload(sum(&packed), &packed);
    let archive = FetchedFile::uploaded("env", sum(&packed), FetchedFileKind::Archive);
    let id = rm.run(2, 32, with_file(archive, "./env/bin/it"));
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
    let other = FetchedFile::uploaded("it", sum(b"other"), FetchedFileKind::File);
    let missing = refusal(&rm, 3, other.clone()).await;
    assert!(
        missing.contains("the resource manager does not have it")
            && missing.contains("submit again"),
        "{missing}"
    );
    rm.add_upload(sum(b"other"), TEXT);
    let wrong = refusal(&rm, 4, other).await;
    assert!(wrong.contains("its SHA-256 is"), "{wrong}");
    let small = FetchedFile {
        most: Some(Bytes::new(5)),
        ..FetchedFile::uploaded("env", sum(b"large"), FetchedFileKind::File)
    };
    rm.add_upload(sum(b"large"), b"large and more");
    let large = refusal(&rm, 5, small).await;
    assert!(large.contains("larger than"), "{large}");
    node.crash();
    node.start_again();
    let id = rm.run(6, 32, with_file(file, "./it"));
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
    assert_eq!(node.text(&id, "stdout"), "fetched\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_file_fails_the_launch_with_a_reason() {
    let (rm, server) = (FakeRm::start(), Server::start().await);
    let node = Node::start(rm.url(), 256, &[]);
    let other = refusal(
        &rm,
        1,
        server.file("a", b"other bytes", FetchedFileKind::File),
    )
    .await;
    assert!(
        other.contains("its SHA-256 is") && other.contains("sha256sum"),
        "{other}"
    );
    let escape = server.file(
        "escape.tar",
        &tar_with("../../../escaped"),
        FetchedFileKind::Archive,
    );
    let escape = refusal(&rm, 2, escape).await;
    assert!(escape.contains("leads out of the archive"), "{escape}");
    assert!(!node.state().join("escaped").exists() && !node.state().join("cache/escaped").exists());
    let missing = refusal(&rm, 3, server.file("missing", TEXT, FetchedFileKind::File)).await;
    assert!(missing.contains("404"), "{missing}");
    let large = FetchedFile {
        most: Some(Bytes::new(5)),
        ..server.file("a", TEXT, FetchedFileKind::File)
    };
    let large = refusal(&rm, 4, large).await;
    assert!(large.contains("larger than"), "{large}");
    let kept = std::fs::read_dir(node.state().join("cache"))
        .expect("lists")
        .count();
    assert_eq!(kept, 0, "the cache keeps a refused file");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_share_one_fetch_and_a_later_agent_uses_the_cache() {
    let (rm, server) = (FakeRm::start(), Server::start().await);
    let mut node = Node::start(rm.url(), 512, &[]);
    let ids: Vec<_> = (1..=6)
        .map(|n| {
            rm.run(
                n,
                32,
                with_file(server.file("held", TEXT, FetchedFileKind::Program), "./it"),
            )
        })
        .collect();
    rm.until("all containers to wait for the file", |received| {
        let known = ids.iter().all(|id| received.observed.contains_key(id));
        known.then_some(())
    })
    .await;
    server.state.release.notify_one();
    for id in &ids {
        assert_eq!(rm.exit(id).await.reason, ExitReason::Exit { code: 0 });
        assert_eq!(node.text(id, "stdout"), "fetched\n");
    }
    assert_eq!(server.requests(), 1, "all containers share one fetch");
    node.crash();
    node.start_again();
    let id = rm.run(
        7,
        32,
        with_file(server.file("held", TEXT, FetchedFileKind::Program), "./it"),
    );
    assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
    assert_eq!(server.requests(), 1, "the cache outlives the agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_from_a_silent_server_times_out() {
    let (rm, server) = (FakeRm::start(), Server::start().await);
    let dir = tempfile::tempdir().expect("dir");
    let config = dir.path().join("nodeagent.toml");
    let text = "[isolation]\nrun_as = 'agent'\nallow_root = true\nprivate_tmp = false\n[cache]\ndeadline = '1s'\n";
    std::fs::write(&config, on_any_disk(text)).expect("writes");
    let _node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    let late = refusal(&rm, 1, server.file("never", TEXT, FetchedFileKind::File)).await;
    assert!(
        late.contains("did not finish within 1s") && late.contains("deadline"),
        "{late}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_server_is_trusted_if_its_authority_is_configured() {
    let rm = FakeRm::start();
    let (server, pem) = Server::secure().await;
    let dir = tempfile::tempdir().expect("dir");
    let (config, authorities) = (
        dir.path().join("nodeagent.toml"),
        dir.path().join("authorities.pem"),
    );
    std::fs::write(&authorities, pem).expect("writes");
    let text = "[isolation]\nrun_as = 'agent'\nallow_root = true\nprivate_tmp = false\n[cache]\n";
    std::fs::write(
        &config,
        on_any_disk(&format!("{text}ca_file = '{}'\n", authorities.display())),
    )
    .expect("writes");
    let node = Node::start(rm.url(), 256, &[&format!("--config={}", config.display())]);
    for (n, name) in [(1, "a"), (2, "moved")] {
        let id = rm.run(
            n,
            32,
            with_file(server.file(name, TEXT, FetchedFileKind::Program), "./it"),
        );
        assert_eq!(rm.exit(&id).await.reason, ExitReason::Exit { code: 0 });
        assert_eq!(node.text(&id, "stdout"), "fetched\n");
    }
    let down = refusal(&rm, 3, server.file("down", b"else", FetchedFileKind::File)).await;
    assert!(
        down.contains("redirects from https to http://localhost:1/a"),
        "{down}"
    );
    let round = refusal(&rm, 4, server.file("round", b"else", FetchedFileKind::File)).await;
    assert!(round.contains("more than 10 times"), "{round}");
    let stranger = FakeRm::start();
    let _other = Node::start(stranger.url(), 256, &[]);
    let distrusted = refusal(&stranger, 1, server.file("a", TEXT, FetchedFileKind::File)).await;
    assert!(
        distrusted.contains("certificate of the server is not trusted")
            && distrusted.contains("ca_file"),
        "{distrusted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_fetch() {
    let (rm, server) = (FakeRm::start(), Server::start().await);
    let node = Node::start(rm.url(), 256, &[]);
    let fetching = rm.run(
        1,
        32,
        with_file(server.file("never", TEXT, FetchedFileKind::File), "exit 0"),
    );
    // A second container waits for the same fetch.
    let waiting = rm.run(
        2,
        32,
        with_file(server.file("never", TEXT, FetchedFileKind::File), "exit 0"),
    );
    rm.until("a request to the server", |_| {
        (server.requests() == 1).then_some(())
    })
    .await;
    for id in [&fetching, &waiting] {
        rm.stop(id, StopCause::Asked);
        let report = rm.exit(id).await;
        assert_eq!(
            (report.reason, report.started),
            (ExitReason::Stopped, None),
            "{report:#?}"
        );
    }
    let kept = std::fs::read_dir(node.state().join("cache"))
        .expect("lists")
        .count();
    assert_eq!(kept, 0, "the cache keeps a partial file");
}
