//! Uploaded files over HTTP: stored once, sent to nodes, refused with a code.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::path::{Path, PathBuf};

use fakes::{launch, managed, mib, soon, unmanaged};
use headroom_client::{Client, ClientError, FileUploadError, UploadSource};
use headroom_config::UploadLimits;
use headroom_rm_server::{ManagerOptions, RunningManager, start};
use headroom_types::{Bytes, FetchedFile, FetchedFileKind, LaunchSpec, Sha256};
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails, ProblemReason};
use reqwest::StatusCode;

struct World {
    dir: tempfile::TempDir,
    running: RunningManager,
    client: Client,
}

impl World {
    async fn start(limits: UploadLimits) -> World {
        World::in_dir(tempfile::tempdir().expect("a directory"), limits).await
    }
    async fn in_dir(dir: tempfile::TempDir, limits: UploadLimits) -> World {
        let address = "127.0.0.1:0".parse().expect("address");
        let mut options = ManagerOptions::new(address, dir.path().join("state"));
        options.config.uploads = limits;
        let running = start(options).await.expect("starts");
        let client = Client::new(&running.url).expect("address");
        World {
            dir,
            running,
            client,
        }
    }
    async fn restart(self, limits: UploadLimits) -> World {
        self.running.shutdown().await.expect("ends");
        World::in_dir(self.dir, limits).await
    }
    fn source(&self, name: &str, content: &[u8]) -> UploadSource {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).expect("writes");
        UploadSource::open(&path, |_| ()).expect("opens")
    }
    async fn upload(&self, source: &UploadSource) -> Result<bool, FileUploadError> {
        soon("the upload", self.client.upload(source, |_| ())).await
    }
    async fn text(&self, sha256: Sha256) -> Result<Vec<u8>, ClientError> {
        let mut stream = self.client.uploaded_file(sha256).await?;
        let mut all = Vec::new();
        while let Some(piece) = soon("a piece", stream.next()).await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }
    fn url(&self, of: impl std::fmt::Display) -> String {
        format!("{}/v1/uploads/{of}", self.client.base())
    }
    /// Sends a body as it is. Returns the status and the problem.
    async fn put(
        &self,
        of: impl std::fmt::Display,
        body: impl Into<reqwest::Body>,
    ) -> (StatusCode, Option<ProblemDetails>) {
        let sent = reqwest::Client::new().put(self.url(of)).body(body).send();
        let answer = soon("the answer", sent).await.expect("answers");
        (answer.status(), answer.json().await.ok())
    }
    fn stored(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path().join("state/uploads")).expect("lists");
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

fn code(error: &FileUploadError) -> Option<ErrorCode> {
    match error {
        FileUploadError::Call(error) => error.code(),
        FileUploadError::Unreadable { .. }
        | FileUploadError::NotAFile { .. }
        | FileUploadError::Changed { .. }
        | FileUploadError::Unsupported { .. } => None,
    }
}

fn small() -> UploadLimits {
    UploadLimits {
        max_file: Bytes::from_kib(1),
        max_total: Bytes::from_kib(2),
        ..UploadLimits::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_once_and_survives_a_restart() {
    let world = World::start(UploadLimits::default()).await;
    // More than the limit of other bodies, and than the buffers of a connection.
    let content: Vec<u8> = (0..=250u8).cycle().take(40 << 20).collect();
    let source = world.source("large.bin", &content);
    let sum = source.sha256();
    assert!(!world.client.has_upload(sum).await.expect("answers"));
    assert!(world.upload(&source).await.expect("uploads"), "it is sent");
    assert!(
        !world.upload(&source).await.expect("uploads"),
        "it is known"
    );
    assert!(world.client.has_upload(sum).await.expect("answers"));
    let (status, _) = world.put(sum, content.clone()).await;
    assert_eq!(status, StatusCode::OK, "a repeated call changes nothing");
    let empty = world.source("empty", b"");
    assert!(world.upload(&empty).await.expect("uploads"), "it is sent");
    let (status, _) = world.put(empty.sha256(), Vec::new()).await;
    assert_eq!(status, StatusCode::OK);
    std::fs::write(world.dir.path().join("state/uploads/unfinished-7"), "x").expect("writes");
    let world = world.restart(UploadLimits::default()).await;
    assert_eq!(world.text(sum).await.expect("is there"), content);
    assert_eq!(world.text(empty.sha256()).await.expect("is there"), b"");
    assert_eq!(world.stored().len(), 2, "an unfinished file is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_are_refused_with_a_reason() {
    let world = World::start(UploadLimits::default()).await;
    let sum = Sha256::new([7; 32]);
    let (status, problem) = world.put(sum, "other").await;
    let problem = problem.expect("a problem");
    assert_eq!(
        (status, problem.reason),
        (StatusCode::BAD_REQUEST, Some(ProblemReason::DigestMismatch))
    );
    assert!(
        problem.detail.contains("has the SHA-256 d9298a10"),
        "{problem}"
    );
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("in ch"), Ok("unks")]);
    let (status, problem) = world.put(sum, reqwest::Body::wrap_stream(pieces)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        problem
            .expect("a problem")
            .detail
            .contains("Content-Length")
    );
    for wrong in ["abc", &"g".repeat(64), &"0".repeat(65)] {
        let (status, problem) = world.put(wrong, "x").await;
        let detail = problem.expect("a problem").detail;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{detail}");
        assert!(detail.contains("is not a SHA-256"), "{detail}");
    }
    let missing = world.text(sum).await.expect_err("was never uploaded");
    assert_eq!(missing.code(), Some(ErrorCode::HR0404));
    assert!(world.stored().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_beyond_the_limits_is_refused_before_it_is_sent() {
    let world = World::start(small()).await;
    let large = world.source("large", &vec![1; 32 << 20]);
    let refused = world.upload(&large).await.expect_err("is too large");
    assert_eq!(code(&refused), Some(ErrorCode::HR0413), "{refused}");
    assert!(refused.to_string().contains("at most 1 KiB"), "{refused}");
    for n in 0..2 {
        let source = world.source("part", &[n; 1024]);
        assert!(world.upload(&source).await.expect("fits"));
    }
    let more = world.source("more", b"x");
    let full = world.upload(&more).await.expect_err("is full");
    assert_eq!(code(&full), Some(ErrorCode::HR0507), "{full}");
    assert!(full.to_string().contains("2 KiB of 2 KiB"), "{full}");
    let known = world.source("part", &[1; 1024]);
    assert!(!world.upload(&known).await.expect("is known"));
    assert_eq!(world.stored().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_of_one_file_succeed() {
    let world = World::start(UploadLimits::default()).await;
    let content = vec![9; 3 << 20];
    let sum = world.source("same", &content).sha256();
    let calls = (0..6).map(|_| world.put(sum, content.clone()));
    let answers = futures_util::future::join_all(calls).await;
    assert!(
        answers.iter().all(|(status, _)| status.is_success()),
        "{answers:?}"
    );
    assert_eq!(world.stored().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_meanwhile_is_not_stored() {
    let world = World::start(UploadLimits::default()).await;
    for later in [&b"longer than before"[..], b"short", b"other text!!"] {
        let source = world.source("data", b"as it began.");
        std::fs::write(source.path(), later).expect("writes");
        let changed = world.upload(&source).await.expect_err("has changed");
        assert!(
            matches!(changed, FileUploadError::Changed { .. }),
            "{changed:?}"
        );
    }
    assert!(world.stored().is_empty());
}

fn with_upload(sum: Sha256) -> SubmitApplicationRequest {
    let file = FetchedFile::uploaded("a.jar", sum, FetchedFileKind::File);
    let named = LaunchSpec {
        fetch: vec![file],
        ..launch()
    };
    let mut request = managed("spark", mib(64), 1);
    if let ApplicationMaster::Managed { launch, .. } = &mut request.master {
        **launch = named;
    }
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_needs_the_files_that_it_names() {
    let world = World::start(UploadLimits::default()).await;
    let source = world.source("a.jar", b"a jar");
    let early = world.client.submit(&with_upload(source.sha256())).await;
    let early = early.expect_err("it is not uploaded");
    assert_eq!(early.code(), Some(ErrorCode::HR0404));
    assert!(early.to_string().contains("launch.fetch: a.jar"), "{early}");
    world.upload(&source).await.expect("uploads");
    let submitted = world.client.submit(&with_upload(source.sha256())).await;
    submitted.expect("it is there");
    world
        .client
        .submit(&unmanaged("other"))
        .await
        .expect("names no file");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_and_a_server_without_the_call_are_named() {
    let world = World::start(UploadLimits::default()).await;
    let sum = Sha256::new([1; 32]);
    let answer = reqwest::Client::new().post(world.url(sum)).send().await;
    let text = answer.expect("answers").text().await.expect("reads");
    assert!(text.contains("does not take POST"), "{text}");
    let old = Client::new(&format!("{}/older", world.client.base())).expect("address");
    let source = world.source("a", b"a");
    let error = old.upload(&source, |_| ()).await.expect_err("no such call");
    assert!(
        matches!(error, FileUploadError::Unsupported { .. }),
        "{error:?}"
    );
    assert!(Path::new(source.path()).exists());
}
