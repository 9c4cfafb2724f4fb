//! A cluster with remote listeners: all connections are encrypted, all callers authenticated, and
//! each has only its own permissions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_client::{Client, ClientCredentials, ExpectedPeer, TokenSource};
use headroom_identity::Certificate;
use headroom_transport::CertificateFiles;
use headroom_types::{AppId, AttemptId, Bytes};
use headroom_wire::v1::application_master::RegisterMaster;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, ContainerOwner, NodeShape, ProgramOutput, SOON, ran, until};
use integration::programs;

const JOB: &str = "version = 1\nname = \"hello\"\n[profiles.small]\nmemory = \"96MiB\"\ncpus = 0.5\n\
    [executors.small]\nprofile = \"small\"\nslots = 1\nreserve = \"64MiB\"\n\
    [[stage]]\nname = \"say\"\ncount = 3\nexecutors = \"small\"\ncommand = [\"env\"]\n";

/// A job whose only task waits for a write to the pipe.
fn waiting(pipe: &Path) -> String {
    JOB.replace(
        "command = [\"env\"]",
        &format!("command = [\"cat\", \"{}\"]", pipe.display()),
    )
    .replace("count = 3", "count = 1")
}

fn two_nodes() -> Cluster {
    let shape = NodeShape {
        memory: Bytes::from_mib(512),
        ..NodeShape::default()
    };
    Cluster::start_secured(&[shape, shape]).expect("a cluster")
}

fn well(ran: ProgramOutput) -> String {
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Creates a token for a user, in a file.
fn token(cluster: &Cluster, user: &str, rights: &str) -> PathBuf {
    let file = cluster.dir().join(format!("{user}.token"));
    let path = file.display().to_string();
    well(
        cluster
            .rmctl(&[
                "acl", "token", "create", "--user", user, "--right", rights, "--out", &path,
            ])
            .expect("runs"),
    );
    file
}

fn by(cluster: &Cluster, token: &Path, arguments: &[&str]) -> ProgramOutput {
    cluster
        .papers()
        .expect("certificates")
        .rmctl_as(&cluster.url(), Some(token), arguments)
        .expect("runs")
}

fn refused(ran: &ProgramOutput, code: &str) {
    assert!(
        ran.code == 5 && ran.stderr.contains(code),
        "{} {}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
}

/// Runs a job that prints its environment.
fn tasks_of_a_job_see_no_secret(cluster: &Cluster, user: &Path) {
    let file = cluster.dir().join("hello.toml");
    fs::write(&file, JOB).expect("writes");
    let file = file.display().to_string();
    let app = well(by(cluster, user, &["submit", &file, "-o", "name"]))
        .trim()
        .parse()
        .expect("an id");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(
        (ended.state, ended.user.as_str()),
        (AppState::Finished, "alice"),
        "{}",
        ended.diagnostics
    );
    assert!(
        ended
            .master_url
            .as_deref()
            .is_none_or(|url| url.starts_with("tls://")),
        "{:?}",
        ended.master_url
    );
    let printed = well(by(cluster, user, &["logs", app.to_string().as_str()]));
    assert!(
        printed.contains("HEADROOM_TASK=say/0"),
        "the tasks ran: {printed}"
    );
    let secrets = [
        "HEADROOM_TOKEN",
        "HEADROOM_APP_TOKEN",
        "HEADROOM_MASTER_URL",
        "hra_",
        "hrx_",
        "hru_",
    ];
    assert!(
        secrets.iter().all(|secret| !printed.contains(secret)),
        "a task sees a secret: {printed}"
    );
}

/// Submits a job whose task waits. Returns its id.
fn submit_waiting(cluster: &Cluster, user: &Path) -> String {
    let pipe = cluster.dir().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .expect("runs")
            .success()
    );
    let long = cluster.dir().join("long.toml");
    fs::write(&long, waiting(&pipe)).expect("writes");
    well(by(
        cluster,
        user,
        &["submit", &long.display().to_string(), "-o", "name"],
    ))
    .trim()
    .to_owned()
}

#[test]
fn a_user_with_a_token_can_use_only_its_own_jobs() {
    let cluster = two_nodes();
    let work = "job:read,job:submit,job:kill";
    let (alice, bob) = (token(&cluster, "alice", work), token(&cluster, "bob", work));
    tasks_of_a_job_see_no_secret(&cluster, &alice);
    let app = submit_waiting(&cluster, &alice);
    let id = app.parse().expect("an id");
    let runs = |view: &headroom_wire::v1::apps::AppView| {
        view.job
            .as_ref()
            .filter(|job| job.totals.running == 1)
            .map(|_| ())
    };
    cluster
        .until_app(&id, "the task to run", SOON, runs)
        .expect("runs");
    refused(&by(&cluster, &bob, &["kill", &app, "-y"]), "HR0403");
    refused(
        &by(&cluster, &bob, &["node", "drain", "node-1", "-y"]),
        "HR0403",
    );
    refused(&by(&cluster, &bob, &["audit", "list"]), "HR0403");
    refused(
        &by(
            &cluster,
            &bob,
            &["acl", "token", "create", "--right", "admin"],
        ),
        "HR0403",
    );
    let master = a_master_reaches_its_own_application_only(&cluster, &app);
    well(by(&cluster, &alice, &["kill", &app, "-y"]));
    assert_eq!(
        cluster.until_ended(&id).expect("ends").state,
        AppState::Killed
    );
    its_token_is_good_for_nothing_afterwards(&cluster, &master, &id);
    let record = well(
        cluster
            .rmctl(&["audit", "list", "-o", "jsonl"])
            .expect("runs"),
    );
    let line = record
        .lines()
        .find(|line| line.contains("bob") && line.contains(&app))
        .expect("the audit log has the call");
    assert!(line.contains("403") && line.contains("HR0403"), "{line}");
}

/// The master has read its token and removed the file. A token of another application or a modified
/// token is refused.
fn a_master_reaches_its_own_application_only(cluster: &Cluster, app: &str) -> Client {
    let id = app.parse().expect("an id");
    let masters = cluster
        .live_containers(&id, ContainerOwner::Master)
        .expect("lists");
    let order = cluster
        .state(masters[0].node.as_str())
        .join(format!("containers/{}/order.json", masters[0].id));
    let order: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(order).expect("reads")).expect("JSON");
    let given = order["order"]["token"]
        .as_str()
        .expect("a master has a token")
        .to_owned();
    let left = cluster
        .state(masters[0].node.as_str())
        .join(format!("containers/{}/tasks/.token", masters[0].id));
    assert!(!left.exists(), "the token file is removed after it is read");
    let files = CertificateFiles {
        ca: Some(cluster.papers().expect("certificates").ca()),
        own: None,
    };
    let with = |token: String| {
        let trust = ClientCredentials {
            files: files.clone(),
            token: TokenSource::Text(token),
            other: ExpectedPeer::Manager,
        };
        Client::with_credentials(&cluster.url(), trust).expect("a client")
    };
    let master = with(given.clone());
    assert_eq!(cluster.call(master.app(&id)).expect("its own job").id, id);
    let other = "hello.1".parse().expect("an id");
    let foreign = cluster
        .call(master.app(&other))
        .expect_err("a refused call");
    assert_eq!(
        foreign.code().map(|code| code.to_string()),
        Some("HR0403".to_owned())
    );
    let foreign = cluster
        .call(master.kill(&other, None))
        .expect_err("a refused call");
    assert_eq!(
        foreign.code().map(|code| code.to_string()),
        Some("HR0403".to_owned())
    );
    let forged = with(given.replace(app, "hello.1"));
    let forged = cluster
        .call(forged.app(&other))
        .expect_err("the certificate is not issued by the cluster");
    assert_eq!(
        forged.code().map(|code| code.to_string()),
        Some("HR0401".to_owned())
    );
    master
}

/// The token is refused after its application has ended, and after the record is purged.
fn its_token_is_good_for_nothing_afterwards(cluster: &Cluster, master: &Client, app: &AppId) {
    let attempt = AttemptId {
        app: app.clone(),
        attempt: 1,
    };
    let again = RegisterMaster {
        master_url: Some("tls://192.0.2.1:1".into()),
        ..RegisterMaster::new(attempt)
    };
    let over = cluster
        .call(master.register_master(app, &again))
        .expect_err("the job has ended");
    assert_eq!(
        over.code().map(|code| code.to_string()),
        Some("HR0409".to_owned()),
        "{over}"
    );
    well(
        cluster
            .rmctl(&["job", "purge", &app.to_string(), "-y"])
            .expect("runs"),
    );
    for refused in [
        cluster.call(master.app(app)).map(drop),
        cluster.call(master.register_master(app, &again)).map(drop),
    ] {
        let refused = refused.expect_err("no token is kept");
        assert_eq!(
            refused.code().map(|code| code.to_string()),
            Some("HR0404".to_owned()),
            "{refused}"
        );
    }
}

/// Refuses callers without a token, without TLS, and without trust in the authority.
fn strangers_are_refused(cluster: &Cluster, user: &Path) {
    let (papers, url) = (cluster.papers().expect("certificates"), cluster.url());
    refused(
        &papers
            .rmctl_as(&url, None, &["node", "list"])
            .expect("runs"),
        "HR0401",
    );
    assert_eq!(
        papers
            .rmctl(&url, &["acl", "bootstrap"])
            .expect("runs")
            .code,
        4,
        "the first token is accepted once"
    );
    let plain = by(
        cluster,
        user,
        &["--addr", &url.replace("https", "http"), "node", "list"],
    );
    assert!(
        plain.code != 0 && plain.stderr.contains("https://"),
        "{}",
        plain.stderr
    );
    let mut unvouched = Command::new(programs::path("rmctl").expect("built"));
    unvouched
        .args(["--addr", &url, "node", "list"])
        .env("HEADROOM_TOKEN_FILE", user);
    let unvouched = ran(unvouched).expect("runs");
    assert!(
        unvouched.code != 0,
        "a peer without a trusted certificate is rejected"
    );
}

/// Renews the certificate of the manager, and waits until the manager serves it.
fn renew_certificate(cluster: &Cluster) {
    let (papers, url) = (cluster.papers().expect("certificates"), cluster.url());
    let served = || {
        Certificate::from_pem(
            &fs::read_to_string(papers.manager().join("cert.pem")).expect("reads"),
        )
        .expect("reads")
    };
    let before = served().serial;
    let cert = papers.manager().join("cert.pem").display().to_string();
    well(
        papers
            .rmctl(
                &url,
                &[
                    "ca",
                    "renew",
                    &cert,
                    "--dir",
                    &papers.authority().display().to_string(),
                ],
            )
            .expect("runs"),
    );
    assert_ne!(served().serial, before);
    until("the other certificate to be shown", SOON, || {
        well(papers.rmctl(&url, &["version"])?);
        Ok(cluster
            .log("resourcemanager")
            .contains("a changed certificate is active")
            .then_some(()))
    })
    .expect("the new certificate");
}

#[test]
fn tokens_expire_certificates_change_and_strangers_are_refused() {
    let mut cluster = two_nodes();
    let alice = token(&cluster, "alice", "job:read");
    let me = well(by(&cluster, &alice, &["acl", "token", "self"]));
    assert!(me.contains("alice (token "), "{me}");

    strangers_are_refused(&cluster, &alice);
    join_is_for_once_and_for_its_node(&cluster);

    // A new certificate takes effect without a restart of the manager, also for a restarted agent.
    renew_certificate(&cluster);
    cluster.kill_daemon("node-1").expect("runs");
    cluster.start_node("node-1").expect("starts");
    cluster.until_ready().expect("both are there");

    // Tokens survive a kill of the manager. A revoked token is refused from the next call on.
    cluster.kill_daemon("resourcemanager").expect("runs");
    cluster.start_resource_manager().expect("starts");
    cluster.until_ready().expect("both are there");
    well(by(&cluster, &alice, &["job", "list"]));
    let accessor = fs::read_to_string(&alice)
        .expect("reads")
        .split('_')
        .nth(1)
        .expect("three parts")
        .to_owned();
    well(
        cluster
            .rmctl(&["acl", "token", "revoke", &accessor])
            .expect("runs"),
    );
    refused(&by(&cluster, &alice, &["job", "list"]), "HR0401");
}

fn join_is_for_once_and_for_its_node(cluster: &Cluster) {
    let (papers, url) = (cluster.papers().expect("certificates"), cluster.url());
    let (file, out) = (cluster.dir().join("n9.token"), cluster.dir().join("n9"));
    let (file, out) = (file.display().to_string(), out.display().to_string());
    well(
        cluster
            .rmctl(&[
                "acl",
                "join-token",
                "create",
                "--node",
                "n9",
                "--out",
                &file,
            ])
            .expect("runs"),
    );
    let pin = well(
        cluster
            .rmctl(&[
                "ca",
                "show",
                &papers.ca().display().to_string(),
                "-o",
                "name",
            ])
            .expect("runs"),
    );
    let join = |pin: &str, name: &str, at: &str| {
        let args = [
            "node",
            "join",
            "--pin",
            pin,
            "--token-file",
            &file,
            "--name",
            name,
            "--at",
            at,
            "--out",
            &out,
        ];
        papers.rmctl_as(&url, None, &args).expect("runs")
    };
    let wrong = join(&"00".repeat(32), "n9", "127.0.0.1");
    assert!(
        wrong.code == 5 && wrong.stderr.contains("no token was sent"),
        "{}",
        wrong.stderr
    );
    refused(&join(pin.trim(), "n8", "127.0.0.1"), "HR0403");
    refused(&join(pin.trim(), "n9", "rm.example"), "HR0403");
    assert_eq!(join(pin.trim(), "n9", "127.0.0.1").code, 0);
    fs::remove_dir_all(&out).expect("removes");
    refused(&join(pin.trim(), "n9", "127.0.0.1"), "HR0401");
}

#[test]
fn remote_listeners_refuse_to_start_without_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state").display().to_string();
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(programs::path(program).expect("built"));
        command
            .args(arguments)
            .args(["--state", &state])
            .env(programs::DIR_VARIABLE, programs::dir().expect("built"));
        ran(command).expect("runs")
    };
    let manager = start("resourcemanager", &["--listen", "0.0.0.0:0"]);
    assert!(
        manager.code != 0 && manager.stderr.contains("tls = "),
        "{}",
        manager.stderr
    );
    let agent = start(
        "nodeagent",
        &["--listen", "0.0.0.0:0", "--rm", "http://127.0.0.1:1"],
    );
    assert!(
        agent.code != 0 && agent.stderr.contains("rmctl node join"),
        "{}",
        agent.stderr
    );
    let papers = integration::credentials::ClusterCredentials::new(&dir.path().join("papers"))
        .expect("made");
    let open = dir.path().join("open.toml");
    let text = fs::read_to_string(papers.config())
        .expect("reads")
        .replace("\"nothing\"", "\"read\"");
    fs::write(&open, text).expect("writes");
    let open = start(
        "resourcemanager",
        &[
            "--config",
            &open.display().to_string(),
            "--listen",
            "0.0.0.0:0",
        ],
    );
    assert!(
        open.code != 0 && open.stderr.contains("anonymous = \"nothing\""),
        "{}",
        open.stderr
    );
}
