//! Resource managers and a real etcd with TLS, client certificates, users and a compacted history.

#![allow(missing_docs)] // tests are read, not imported

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_client::Client;
use headroom_test_fakes::EtcdCluster;
use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, EtcdSetup, NodeShape, SOON, free_port, rmctl, until};
use integration::jobs::JobFile;
use integration::programs;

const LEASE: Duration = Duration::from_secs(2);
/// Lifetime of a token of etcd.
const TOKEN: Duration = Duration::from_secs(2);

/// A resource manager that cannot lead. It ends with this value.
struct BarredManager {
    process: Child,
    url: String,
}

impl Drop for BarredManager {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl BarredManager {
    fn start(dir: &Path, name: &str, keys: &str) -> Result<Self> {
        let (file, port) = (dir.join(format!("{name}.toml")), free_port()?);
        fs::write(&file, format!("[etcd]\n{keys}"))?;
        let process = Command::new(programs::path("resourcemanager")?)
            .arg("--config")
            .arg(&file)
            .args(["--listen", &format!("127.0.0.1:{port}"), "--state"])
            .arg(dir.join(name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join(format!("{name}.log")))?)
            .spawn()?;
        Ok(BarredManager {
            process,
            url: format!("http://127.0.0.1:{port}"),
        })
    }

    /// Waits until `/readyz` names the reason, then compares the answer to `rmctl status`.
    fn explains(&self, reason: &str) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = Client::new(&self.url)?.with_timeout(Duration::from_secs(2));
        let mut last = String::new();
        let found = until("the reason", Duration::from_secs(20), || {
            let answer = runtime.block_on(client.get_text("/readyz"));
            last = answer.map_or_else(|error| error.to_string(), |text| format!("ready: {text}"));
            Ok(last.contains(reason).then_some(()))
        });
        found.with_context(|| format!("{reason:?}; last: {last}"))?;
        ensure!(last.contains("HR0503"), "{last}");
        let status = rmctl(&self.url, &["status", "--call-timeout", "1s"])?;
        ensure!(
            status.code == 6 && status.stderr.contains("HR0503") && status.stderr.contains(reason),
            "{status:?}"
        );
        Ok(())
    }
}

#[test]
fn each_refusal_of_etcd_is_explained() {
    refusals().expect("every reason is named");
}

fn refusals() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (data, other) = (dir.path().join("etcd"), dir.path().join("other"));
    fs::create_dir(&data)?;
    let etcd = EtcdCluster::start_secured(&data, 1, &[], "/headroom")?;
    let tls = etcd.client_certificates()?;
    let copy = |name: &str, files: &[&str]| -> Result<String> {
        let to = dir.path().join(name);
        fs::create_dir(&to)?;
        for file in files {
            fs::copy(tls.join(file), to.join(file))?;
        }
        Ok(to.display().to_string())
    };
    let without = copy("without", &["ca.pem"])?;
    let strange = copy("strange", &["cert.pem", "key.pem"])?;
    let authority = ["ca", "init", "--dir", &other.display().to_string()];
    let made = rmctl("", &[&authority[..], &["--name", "other"]].concat())?;
    ensure!(made.code == 0, "{made:?}");
    fs::copy(other.join("ca.pem"), Path::new(&strange).join("ca.pem"))?;

    let login = |user, password| etcd.login(user, password);
    let right = login("manager", "manager")?;
    let tls = tls.display().to_string();
    for (name, tls, login, reason) in [
        (
            "a",
            &strange,
            &right,
            "the certificate of the member is refused",
        ),
        ("b", &without, &right, "requires a client certificate"),
        (
            "c",
            &tls,
            &login("manager", "wrong")?,
            "invalid user ID or password",
        ),
        (
            "d",
            &tls,
            &login("reader", "reader")?,
            "etcd denies access (etcdserver: permission denied)",
        ),
    ] {
        let keys = format!(
            "endpoints = {:?}\ntls = {tls:?}\nlogin = {login:?}\n",
            etcd.endpoints()
        );
        BarredManager::start(dir.path(), name, &keys)?
            .explains(reason)
            .with_context(|| format!("manager {name}"))?;
    }
    let keys = format!("endpoints = {:?}\ntls = {tls:?}\n", etcd.endpoints());
    BarredManager::start(dir.path(), "e", &keys)?.explains("user name is empty")
}

#[test]
fn the_doctor_checks_etcd() {
    examined().expect("every problem is found");
}

/// The states of the checks with this code.
fn state_of(checks: &serde_json::Value, code: &str) -> Vec<String> {
    let all = checks.as_array().into_iter().flatten();
    all.filter(|check| check["code"] == code)
        .filter_map(|check| Some(check["state"].as_str()?.to_owned()))
        .collect()
}

fn examined() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("etcd");
    fs::create_dir(&data)?;
    // Full after a few writes.
    let quota = ["--quota-backend-bytes=4000000"];
    let mut etcd = EtcdCluster::start_secured(&data, 3, &quota, "/headroom")?;
    let (file, tls) = (dir.path().join("rm.toml"), etcd.client_certificates()?);
    let doctor = |etcd: &EtcdCluster, user: &str| -> Result<(i32, serde_json::Value)> {
        let login = etcd.login(user, user)?;
        let text = format!(
            "[etcd]\nendpoints = {:?}\ntls = {tls:?}\nlogin = {login:?}\n",
            etcd.endpoints()
        );
        fs::write(&file, text)?;
        let (file, state) = (file.display().to_string(), dir.path().display().to_string());
        let ran = rmctl(
            "",
            &[
                "doctor",
                "--manager",
                &file,
                "--state",
                &state,
                "-o",
                "json",
            ],
        )?;
        let checks = serde_json::from_str(&ran.stdout).with_context(|| format!("{ran:?}"))?;
        Ok((ran.code, checks))
    };
    let (_, checks) = doctor(&etcd, "manager")?;
    for code in "etcd-quorum etcd-access etcd-version etcd-space etcd-alarm etcd-lease etcd-clock \
        etcd-cluster advertise"
        .split_whitespace()
    {
        ensure!(state_of(&checks, code) == ["ok"], "{code}: {checks:#}");
    }
    ensure!(
        state_of(&checks, "etcd-endpoint") == ["ok"; 3],
        "{checks:#}"
    );
    let text = checks.to_string();
    ensure!(
        text.contains("leads, ") && text.contains(" of 3 MiB"),
        "{text}"
    );

    let (code, checks) = doctor(&etcd, "reader")?;
    ensure!(
        code == 1 && state_of(&checks, "etcd-access") == ["fail"],
        "{code}: {checks:#}"
    );
    let value = "x".repeat(100_000);
    let full = (0..100).any(|n| etcd.etcdctl(0, &["put", &format!("k{n}"), &value]).is_err());
    ensure!(full, "etcd is not full");
    let (code, checks) = doctor(&etcd, "manager")?;
    ensure!(
        code == 1 && state_of(&checks, "etcd-alarm") == ["fail"],
        "{code}: {checks:#}"
    );
    ensure!(
        checks.to_string().contains("etcdctl alarm disarm"),
        "{checks:#}"
    );

    etcd.kill(1)?;
    let (_, checks) = doctor(&etcd, "manager")?;
    ensure!(
        state_of(&checks, "etcd-endpoint") == ["ok", "warn", "ok"],
        "{checks:#}"
    );
    etcd.kill(2)?;
    let (code, checks) = doctor(&etcd, "manager")?;
    ensure!(
        code == 1 && state_of(&checks, "etcd-quorum") == ["fail"],
        "{code}: {checks:#}"
    );
    Ok(())
}

fn finish_a_job(cluster: &Cluster) -> Result<()> {
    let job = JobFile::new("short", 1, 1, Bytes::from_mib(16)).stage("s", 1, &["true"], "");
    let app = cluster.submit(job.text())?;
    let ended = cluster.until_ended(&app)?;
    ensure!(ended.state == AppState::Finished, "{ended:?}");
    Ok(())
}

#[test]
fn managers_lead_over_tls_with_tokens_that_expire_and_a_compacted_history() {
    secured().expect("the leader stays");
}

fn secured() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let key = dir.path().join("token.key");
    fs::write(&key, "a key for signatures of tokens")?;
    let setup = EtcdSetup {
        secured: true,
        // Unlike simple tokens, these expire although they are used.
        arguments: vec![format!(
            "--auth-token=jwt,priv-key={},sign-method=HS256,ttl={}s",
            key.display(),
            TOKEN.as_secs()
        )],
        keys: "compact = \"1s\"\n".into(),
        ..EtcdSetup::default()
    };
    let mut cluster =
        Cluster::start_replicated_with(&[NodeShape::default()], (2, 1), LEASE, &setup)?;
    let leader = cluster.leading_manager()?;
    let epoch = cluster.call(cluster.client().status())?.epoch;
    let standby = 3 - leader;
    let followed = revision(cluster.etcd()?)?;
    cluster.end_connections_to_etcd(standby)?;

    let began = Instant::now();
    while began.elapsed() < TOKEN * 4 {
        finish_a_job(&cluster)?;
    }
    // A change of users makes all tokens invalid at once.
    cluster.etcd()?.etcdctl(0, &["role", "add", "another"])?;
    finish_a_job(&cluster)?;
    ensure!(cluster.leading_manager()? == leader, "another one leads");
    ensure!(cluster.call(cluster.client().status())?.epoch == epoch);
    let log = fs::read_to_string(cluster.dir().join("etcd/m0.log"))?;
    ensure!(
        log.contains("expired"),
        "no token has expired, so none was renewed"
    );
    catch_up(&mut cluster, standby, followed)?;
    cluster.kill_daemon(&format!("rm-{leader}"))?;
    until("the standby to lead", SOON, || {
        Ok((cluster.leading_manager()? == standby).then_some(()))
    })?;
    cluster.until_ready()?;
    finish_a_job(&cluster)
}

/// The history that the standby followed is gone, and it follows the state again.
fn catch_up(cluster: &mut Cluster, standby: usize, followed: i64) -> Result<()> {
    let old = format!("--rev={followed}");
    let etcd = cluster.etcd()?;
    until("the history to be compacted", SOON, || {
        let read = etcd.etcdctl(0, &["get", "/headroom/leader", &old]);
        Ok(read
            .is_err_and(|error| error.to_string().contains("has been compacted"))
            .then_some(()))
    })?;
    let client = Client::new(&cluster.manager_url(standby)?)?;
    let behind = |cluster: &Cluster| -> Result<Option<bool>> {
        let page = cluster.call(client.get_text("/metrics"))?;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("headroom_rm_standby_behind_revisions "));
        Ok(line.map(|value| value.parse() != Ok(0.0)))
    };
    ensure!(
        behind(cluster)?.is_none(),
        "it is cut off, so it cannot know its distance"
    );
    cluster.cut_from_etcd(standby, false)?;
    until("the standby to follow again", SOON, || {
        Ok((behind(cluster)? == Some(false)).then_some(()))
    })
}

/// The current revision of etcd.
fn revision(etcd: &EtcdCluster) -> Result<i64> {
    let text = etcd.etcdctl(0, &["get", "x", "--write-out=json"])?;
    let answer: serde_json::Value = serde_json::from_str(&text)?;
    answer["header"]["revision"]
        .as_i64()
        .with_context(|| format!("no revision in {text}"))
}
