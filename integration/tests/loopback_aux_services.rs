//! An auxiliary service on real daemons: started on demand, shared by the containers of an
//! application, adopted after a restart of the agent, started again after it ended.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{
    AttemptId, Bytes, ContainerId, Cpus, Epoch, ExitReason, LaunchSpec, Resource,
};
use headroom_wire::v1::application_master::{
    FinishApplicationRequest, MasterSync, PlacementRequest,
};
use headroom_wire::v1::apps::ContainerView;
use integration::cluster::{Cluster, JOB, NodeShape, SOON, free_port, until};

/// Uses at least 64 MiB in any POSIX shell, and keeps it.
const GREEDY: &str =
    "x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; sleep 62";

/// An application whose master is the test, on one node with auxiliary services.
struct ServiceScenario {
    cluster: Cluster,
    attempt: AttemptId,
    epoch: Epoch,
}

impl ServiceScenario {
    /// Starts the cluster with these tables of services, and the application.
    fn begin(services: &str) -> Result<ServiceScenario> {
        let isolation = "[isolation]\nrun_as = \"agent\"\nallow_root = true\nprivate_tmp = false\n";
        let cluster =
            Cluster::start_configured(&[NodeShape::default()], &format!("{isolation}{services}"))?;
        let submitted = cluster.register_master("shuffle")?;
        Ok(ServiceScenario {
            attempt: submitted.attempt,
            epoch: submitted.epoch,
            cluster,
        })
    }

    /// Sends a heartbeat of the master with these requests; it acknowledges all updates.
    fn sync(&self, asks: Vec<PlacementRequest>) -> Result<()> {
        let body = MasterSync {
            attempt: self.attempt.clone(),
            epoch: self.epoch,
            ack: u64::MAX,
            asks,
            drop: Vec::new(),
            release: Vec::new(),
            job: None,
        };
        let client = self.cluster.client();
        self.cluster
            .call(client.sync_master(&self.attempt.app, &body))?;
        Ok(())
    }

    /// Waits for a container of this request in a state; the master sends heartbeats meanwhile.
    fn container(&self, request: &str, state: &str) -> Result<ContainerView> {
        until(&format!("{request} to be {state}"), SOON, || {
            self.sync(Vec::new())?;
            let client = self.cluster.client();
            let all = self
                .cluster
                .call(client.containers(Some(&self.attempt.app)))?;
            let is_it = |c: &ContainerView| {
                c.request.as_ref().is_some_and(|r| r.as_str() == request) && c.state == state
            };
            Ok(all.into_iter().find(is_it))
        })
    }

    fn state(&self) -> PathBuf {
        self.cluster.state("node-1")
    }
    /// The directory of the application on the node.
    fn app_dir(&self) -> PathBuf {
        self.state().join("apps").join(self.attempt.app.to_string())
    }
    /// A file that a container wrote there.
    fn written(&self, name: &str) -> Result<String> {
        let path = self.app_dir().join(name);
        until(&format!("{name} to be written"), SOON, || {
            self.sync(Vec::new())?;
            Ok(fs::read_to_string(&path).ok().filter(|t| t.ends_with('\n')))
        })
    }
    /// The pid in the record of a service, if the service has been started.
    fn recorded_pid(&self, service: &str) -> Option<i32> {
        let path = self.state().join("aux").join(service).join("pid");
        let record = fs::read_to_string(path).ok()?;
        record.split(' ').next()?.parse().ok()
    }
    /// The pid of the service `web`, if it accepts connections.
    fn web(&self, port: u16) -> Option<i32> {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        self.recorded_pid("web")
    }
    /// The exit report of a container, as its node wrote it.
    fn report(&self, id: &ContainerId) -> Result<String> {
        let dir = self.state().join("containers").join(id.to_string());
        Ok(fs::read_to_string(dir.join("report.json"))?)
    }
}

/// A request for one container that needs a service.
fn ask(request: &str, service: &str, script: &str) -> PlacementRequest {
    let launch = LaunchSpec {
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        aux_services: vec![service.parse().expect("a name")],
        ..LaunchSpec::default()
    };
    let size = Resource::new(Bytes::from_mib(64), Cpus::from_milli(500));
    PlacementRequest::new(request.parse().expect("a request"), size, launch)
}

/// A request whose program connects to `web`, writes the directory of its application into a file
/// there, and stays.
fn client(request: &str, port: u16) -> PlacementRequest {
    let connect =
        format!("import socket; socket.create_connection((\"127.0.0.1\", {port}), 5).close()");
    let write = format!("echo \"$HEADROOM_APP_DIR {{app_dir}}\" > \"$HEADROOM_APP_DIR/{request}\"");
    ask(
        request,
        "web",
        &format!("python3 -c '{connect}' && {write} && exec sleep 600"),
    )
}

#[test]
fn containers_share_a_service_and_the_directory_of_their_application() -> Result<()> {
    let port = free_port()?;
    let mut s = ServiceScenario::begin(&format!(
        "[aux_services.web]\n\
         command = [\"python3\", \"-m\", \"http.server\", \"{port}\", \"--bind\", \"127.0.0.1\"]\n\
         memory = \"64MiB\"\nport = {port}\nstart_timeout = \"60s\"\n"
    ))?;
    let node = s
        .cluster
        .call(s.cluster.client().node(&"node-1".parse()?))?;
    let whole = NodeShape::default().memory;
    assert_eq!(
        node.offers.memory,
        whole.saturating_sub(Bytes::from_mib(64)),
        "the service has its own memory"
    );
    assert_eq!(s.web(port), None, "nothing needs it yet");

    s.sync(vec![client("one", port), client("two", port)])?;
    let texts = [s.written("one")?, s.written("two")?];
    let dir = s.app_dir().canonicalize()?.display().to_string();
    assert_eq!(texts, [format!("{dir} {dir}\n"), format!("{dir} {dir}\n")]);
    for request in ["one", "two"] {
        s.container(request, "running")?;
    }
    let first = s.web(port).context("the service runs")?;

    Cluster::kill_process(first)?;
    let second = until("the service to run again", SOON, || {
        s.sync(Vec::new())?;
        Ok(s.web(port).filter(|pid| *pid != first))
    })?;

    s.cluster.stop_daemon("node-1")?;
    assert_eq!(s.web(port), Some(second), "it outlives the agent");
    s.sync(Vec::new())?;
    s.cluster.start_node("node-1")?;
    s.cluster.until_ready()?;
    assert_eq!(s.web(port), Some(second), "the next agent adopts it");
    // A container that is ordered now finds the adopted service ready.
    s.sync(vec![client("three", port)])?;
    s.written("three")?;
    assert_eq!(s.web(port), Some(second));

    s.sync(vec![ask("four", "nothing", "true")])?;
    let refused = s.container("four", "exited")?;
    assert_eq!(refused.reason, Some(ExitReason::LaunchFailed));
    let text = s.report(&refused.id)?;
    for word in ["nothing", "node node-1", "[aux_services.nothing]"] {
        ensure!(text.contains(word), "{word} is not in {text}");
    }

    let body = FinishApplicationRequest {
        attempt: s.attempt.clone(),
        succeeded: true,
        diagnostics: String::new(),
        job: None,
    };
    s.cluster
        .call(s.cluster.client().finish(&s.attempt.app, &body))?;
    until(
        "the directory of the application to be removed",
        JOB,
        || Ok((!s.app_dir().exists()).then_some(())),
    )?;
    assert_eq!(s.web(port), Some(second), "an idle service stays");
    Ok(())
}

/// A service that ends at once, or that never listens, fails the launch with the end of its log.
#[test]
fn a_service_that_does_not_start_fails_the_launch_with_its_log() -> Result<()> {
    let s = ServiceScenario::begin(&format!(
        "[aux_services.broken]\ncommand = [\"/bin/sh\", \"-c\", \"echo no database >&2; exit 7\"]\n\
         memory = \"16MiB\"\nport = {}\n\
         [aux_services.silent]\ncommand = [\"/bin/sh\", \"-c\", \"echo waits; exec sleep 600\"]\n\
         memory = \"16MiB\"\nport = {}\nstart_timeout = \"1s\"\n",
        free_port()?,
        free_port()?
    ))?;
    for (request, service, words) in [
        ("one", "broken", ["exited with code 7", "no database"]),
        ("two", "silent", ["not ready within 1 s", "waits"]),
    ] {
        s.sync(vec![ask(request, service, "true")])?;
        let failed = s.container(request, "exited")?;
        assert_eq!(failed.reason, Some(ExitReason::LaunchFailed));
        let text = s.report(&failed.id)?;
        for word in words {
            ensure!(text.contains(word), "{service}: {word} is not in {text}");
        }
    }
    Ok(())
}

/// A service above its memory is killed and started again; its container is not affected.
#[test]
fn a_service_above_its_memory_is_killed_alone() -> Result<()> {
    let script =
        format!("while [ ! -e grow ]; do sleep 0.05; done; rm grow; {GREEDY}; exec sleep 600");
    let s = ServiceScenario::begin(&format!(
        "[aux_services.hog]\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]\nmemory = \"16MiB\"\n"
    ))?;
    s.sync(vec![ask("one", "hog", "exec sleep 600")])?;
    let container = s.container("one", "running")?;
    let first = s.recorded_pid("hog").context("the service runs")?;
    fs::write(
        s.state().join("aux").join("hog").join("work").join("grow"),
        "",
    )?;
    until("the service to run again", SOON, || {
        s.sync(Vec::new())?;
        Ok(s.recorded_pid("hog").filter(|pid| *pid != first))
    })?;
    let log = s.cluster.log("node-1");
    ensure!(
        log.contains("it exceeded its memory limit of 16 MiB"),
        "the cause is not in the log: {log}"
    );
    assert_eq!(s.container("one", "running")?.id, container.id);
    Ok(())
}
