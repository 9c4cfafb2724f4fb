//! The node agent: killed at each step, upgraded, and with shims of another release. No container
//! is lost, duplicated or left over.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_test_fakes::FakeResourceManager;
use headroom_types::{Bytes, ContainerId, ExitReason};
use integration::cluster::{SOON, until};
use integration::guest::{Guest, in_guest};
use integration::single_agent::agent::{container, order, words};
use integration::single_agent::leftover_counts::LeftoverCounts;
use integration::single_agent::{Shape, SingleAgent, kill_rounds, start_manager};
use integration::{on_host_and_in_guest, programs};

/// Enough rounds for all crash points in the agent's code, alternating with kills at other moments.
const ROUNDS: u32 = 42;
/// A guest has one slow processor; `measure adopt` runs more rounds.
const ROUNDS_IN_GUEST: u32 = 10;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_gib(1))
        .timeout(Duration::from_secs(280))
}

fn shape() -> Shape {
    Shape {
        memory: Bytes::from_gib(1),
        cpus: 16,
    }
}

fn shell(id: &ContainerId, script: &str) -> (ContainerId, headroom_wire::v1::nodes::RunOrder) {
    (
        id.clone(),
        order(id, Bytes::from_mib(16), words(&["/bin/sh", "-c", script])).expect("an order"),
    )
}

/// A script that runs until a file appears, with its own exit code.
fn gated(gate: &Path, code: u32) -> String {
    format!(
        "echo run >> runs; while [ ! -e {} ]; do sleep 0.05; done; exit {code}",
        gate.display()
    )
}

fn reason(manager: &FakeResourceManager, id: &ContainerId) -> ExitReason {
    manager
        .until("an end", SOON, |received| {
            received.exit(id).map(|report| report.reason)
        })
        .expect("ends")
}

fn killed_at_every_step() {
    let rounds = if in_guest() { ROUNDS_IN_GUEST } else { ROUNDS };
    let results = kill_rounds::run(rounds, 1, &mut |_, _| {}).expect("runs");
    assert_eq!(
        (results.lost, results.twice, results.leaked),
        (0, 0, 0),
        "{:#?}",
        results.notes
    );
    assert!(
        results.kills >= rounds && results.at_places > 0,
        "{results:?}"
    );
}
on_host_and_in_guest!(agent_killed, guest(), killed_at_every_step);

/// Copies the two programs of a node into a separate directory.
fn installed(dir: &Path) -> PathBuf {
    let bin = dir.join("old-release");
    fs::create_dir(&bin).expect("a directory");
    for name in ["nodeagent", "container-shim"] {
        fs::copy(programs::path(name).expect("is built"), bin.join(name)).expect("copies");
    }
    bin
}

fn upgraded_under_running_containers() {
    let manager = start_manager().expect("starts");
    let mut agent = SingleAgent::new(&manager, shape()).expect("a place");
    let old = installed(agent.dir());
    agent.use_programs(old.clone());
    agent.start(&manager).expect("starts");
    let gate = agent.dir().join("gate");
    let ids: Vec<ContainerId> = (1..=3).map(|n| container(n).expect("id")).collect();
    manager.run(
        ids.iter()
            .zip(1..)
            .map(|(id, code)| shell(id, &gated(&gate, code))),
    );
    manager
        .until("all to run", SOON, |received| {
            ids.iter()
                .all(|id| received.running.contains_key(id))
                .then_some(())
        })
        .expect("run");
    let pids: Vec<_> = ids.iter().map(|id| agent.process(id, "pid")).collect();
    agent.terminate().expect("ends");
    // The files of the old release are removed; its shims keep running.
    fs::remove_dir_all(&old).expect("removes");
    agent.use_programs(programs::dir().expect("programs").to_owned());
    agent.start(&manager).expect("starts");
    assert_eq!(
        manager.with(|received| received.registrations.last().map(|r| r.containers.len())),
        Some(ids.len()),
        "the new agent lists the containers of the old agent"
    );
    assert_eq!(
        pids,
        ids.iter()
            .map(|id| agent.process(id, "pid"))
            .collect::<Vec<_>>(),
        "the new agent changed no container"
    );
    fs::write(&gate, "").expect("opens the gate");
    for (id, code) in ids.iter().zip(1..) {
        assert_eq!(reason(&manager, id), ExitReason::Exit { code });
        assert_eq!(
            fs::read_to_string(agent.file(id, "work/runs")).expect("runs"),
            "run\n",
            "launched once"
        );
    }
}
on_host_and_in_guest!(upgraded, guest(), upgraded_under_running_containers);

/// The shim of the first release as a script: the same files and output line, without record lines
/// that later releases added.
const OLDER_SHIM: &str = r#"#!/bin/sh
case "$1" in -*) exit 2;; esac
start_of() { cut -d' ' -f22 "/proc/$1/stat"; }
cd "$1/work"
echo "$$ $(start_of $$)" > ../shim.pid
sh -c "$(sed -n 's/^arg //p' ../spec | tail -n 1)" > ../stdout 2> ../stderr < /dev/null &
echo "$! $(start_of $!)" > ../pid
echo "started $!"
exec > /dev/null
wait $!
printf 'headroom-exit 1\ncode %s\nstarted-ms 1\nended-ms 2\nend\n' $? > ../exit.tmp
mv ../exit.tmp ../exit
"#;

/// Two shims of the older release: one survives the upgrade of the agent, the other ends while no
/// agent runs.
fn containers_of_an_older_shim_are_adopted() {
    let manager = start_manager().expect("starts");
    let mut agent = SingleAgent::new(&manager, shape()).expect("a place");
    let bin = installed(agent.dir());
    let shim = bin.join("container-shim");
    fs::write(&shim, OLDER_SHIM).expect("writes");
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).expect("executable");
    agent.use_programs(bin);
    agent.start(&manager).expect("starts");
    let gates = [agent.dir().join("gate-1"), agent.dir().join("gate-2")];
    let ids = [container(1).expect("id"), container(2).expect("id")];
    manager.run(
        ids.iter()
            .zip(&gates)
            .zip(4..)
            .map(|((id, gate), code)| shell(id, &gated(gate, code))),
    );
    manager
        .until("both to run", SOON, |received| {
            ids.iter()
                .all(|id| received.running.contains_key(id))
                .then_some(())
        })
        .expect("run");
    agent.kill().expect("kills");
    fs::write(&gates[0], "").expect("opens a gate");
    until("its record", SOON, || {
        Ok(agent.file(&ids[0], "exit").exists().then_some(()))
    })
    .expect("ends");
    agent.use_programs(programs::dir().expect("programs").to_owned());
    agent.start(&manager).expect("starts");
    assert_eq!(reason(&manager, &ids[0]), ExitReason::Exit { code: 4 });
    fs::write(&gates[1], "").expect("opens a gate");
    assert_eq!(reason(&manager, &ids[1]), ExitReason::Exit { code: 5 });
}
on_host_and_in_guest!(older_shim, guest(), containers_of_an_older_shim_are_adopted);

fn a_hundred_containers_leave_no_leftovers() {
    let manager = start_manager().expect("starts");
    let mut agent = SingleAgent::new(&manager, shape()).expect("a place");
    agent.start(&manager).expect("starts");
    let before = LeftoverCounts::of(&agent);
    let ids: Vec<ContainerId> = (1..=100).map(|n| container(n).expect("id")).collect();
    for some in ids.chunks(25) {
        manager.run(
            some.iter()
                .map(|id| shell(id, "(setsid sleep 60 &); exit 9")),
        );
        some.iter()
            .for_each(|id| assert_eq!(reason(&manager, id), ExitReason::Exit { code: 9 }));
    }
    manager.forget(ids.iter().cloned());
    until("all processes and files to disappear", SOON, || {
        Ok((LeftoverCounts::of(&agent).beyond(&before) == 0).then_some(()))
    })
    .unwrap_or_else(|e| panic!("{e}: {:?}, before: {before:?}", LeftoverCounts::of(&agent)));
}
on_host_and_in_guest!(
    hundred_containers,
    guest(),
    a_hundred_containers_leave_no_leftovers
);
