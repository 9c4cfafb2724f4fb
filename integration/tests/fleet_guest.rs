//! Three hosts, from packages to finished jobs, with the operations that operators perform on them.

#![allow(missing_docs)] // a test binary has no public API

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::fleet::fault_rounds::{self, DaemonFault};
use integration::fleet::work::verdicts;
use integration::fleet::{Fleet, MANAGER, NAMES, TranscriptOutput, WORKERS};
use integration::test_packages::LATER;

/// Timeout of the hosts.
const LONGEST: Duration = Duration::from_secs(900);
/// Timeout of a host's shutdown.
const OFF: Duration = Duration::from_secs(80);
/// Number of faults under load.
const ROUNDS: u32 = 4;
/// The examples in the client's package.
const EXAMPLES: &str = "cd /usr/share/doc/headroom-client/examples";
const ALL: [usize; 3] = [MANAGER, WORKERS[0], WORKERS[1]];
const UNITS: [&str; 3] = [
    "headroom-nodeagent",
    "headroom-containers",
    "headroom.slice",
];

/// Tasks are killed for memory, run again with more, and return the right result.
fn a_job_that_escalates(fleet: &mut Fleet) -> Result<()> {
    let output = fleet.person(
        WORKERS[0],
        &format!("{EXAMPLES} && rmctl submit group-by.toml --follow && rmctl ps last"),
    )?;
    ensure!(
        output.contains("5 escalated, 5 memory kills, 0 collateral"),
        "{output}"
    );
    let printed = fleet.person_tried(WORKERS[0], "rmctl logs last")?;
    for part in 0..20 {
        let customers = if part % 4 == 3 { 110_000 } else { 11_000 };
        let line = format!("partition {part}: {customers} customers, at most 2 sales each");
        ensure!(
            printed.stdout.matches(&line).count() == 1,
            "{line}: {}{}",
            printed.stdout,
            printed.stderr
        );
    }
    Ok(())
}

fn a_job_of_jvms(fleet: &mut Fleet) -> Result<()> {
    let output = fleet.person(
        WORKERS[0],
        &format!("{EXAMPLES} && rmctl submit jvm-heap.toml --follow && rmctl ps last"),
    )?;
    ensure!(
        output.matches("out of heap").count() == 2 && output.contains("2 of 2 done"),
        "{output}"
    );
    Ok(())
}

/// Checks the output of systemd's tools on the hosts.
fn what_systemd_shows(fleet: &mut Fleet, app: &str) -> Result<()> {
    let manager = "systemctl --no-pager --full status headroom-resourcemanager.socket headroom-resourcemanager";
    let manager = fleet.on(MANAGER, manager)?;
    ensure!(
        manager.matches("Active: active (running)").count() == 2,
        "{manager}"
    );
    let exposure = |host, unit: &str, most: f64| {
        let output = fleet.on(
            host,
            &format!("systemd-analyze --no-pager security {unit}.service | grep exposure"),
        )?;
        let figure: f64 = output
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .context("a figure")?;
        ensure!(
            figure <= most,
            "{unit} is more exposed than SECURITY.md says: {output}"
        );
        Ok::<(), anyhow::Error>(())
    };
    exposure(MANAGER, "headroom-resourcemanager", 1.5)?;
    exposure(WORKERS[0], "headroom-nodeagent", 7.4)?;
    for host in WORKERS {
        let status = fleet.on(
            host,
            &format!("systemctl --no-pager --lines 0 status {}", UNITS.join(" ")),
        )?;
        ensure!(
            status.matches("Active: active").count() == UNITS.len(),
            "{status}"
        );
        let tree = fleet.on(host, "systemd-cgls --no-pager --full --unit headroom.slice")?;
        let processes = fleet.processes(Some(app))?;
        for (name, container) in fleet
            .where_is(&processes)
            .into_iter()
            .filter(|(name, _)| *name == NAMES[host])
        {
            ensure!(
                tree.contains(&container),
                "{name}: {container} is not in\n{tree}"
            );
        }
        ensure!(
            tree.contains("keeper")
                && tree.contains("nodeagent --config")
                && tree.contains(&format!("{app}.e1.c")),
            "{tree}"
        );
    }
    Ok(())
}

/// Restarts of the daemons do not affect running tasks.
fn daemons_come_and_go(fleet: &mut Fleet, app: &str) -> Result<()> {
    let before = fleet.processes(Some(app))?;
    ensure!(
        fleet.where_is(&before).len() == 3,
        "a master and an executor on each worker: {before:?}"
    );
    for (how, words) in [
        (DaemonFault::Kill, "kill -9 of each daemon, all at once"),
        (DaemonFault::Restart, "systemctl restart of each daemon"),
        (DaemonFault::Upgrade, "a later release of each package"),
    ] {
        fleet.step(words, |fleet| {
            fleet.disturb(&ALL, how)?;
            let now = fleet.processes(Some(app))?;
            ensure!(
                before.is_subset(&now),
                "gone: {:?}",
                before.difference(&now)
            );
            ensure!(
                fleet.where_is(&before) == fleet.where_is(&now),
                "more than before: {now:?}"
            );
            Ok(())
        })?;
    }
    for (host, package) in [
        (MANAGER, "headroom-manager"),
        (WORKERS[0], "headroom-node"),
        (WORKERS[1], "headroom-node"),
    ] {
        let version = fleet.on(host, &format!("dpkg-query -W -f '${{Version}}' {package}"))?;
        ensure!(version == LATER, "{version}");
    }
    Ok(())
}

/// The containers of a host end with its kernel, and the job continues.
fn a_reboot(fleet: &mut Fleet, app: &str) -> Result<()> {
    // The other host runs the master, so that its decisions are visible.
    let busy = fleet.where_is(&fleet.processes(Some(app))?);
    let executors = |host: usize| busy.iter().filter(|(name, _)| *name == NAMES[host]).count();
    let host = if executors(WORKERS[0]) == 1 {
        WORKERS[0]
    } else {
        WORKERS[1]
    };
    // The host may be off before the command has ended.
    fleet.host(host).send("systemctl --no-block poweroff")?;
    fleet.host(host).until_off(OFF)?;
    fleet.host(host).start_again()?;
    fleet.on(host, "until systemctl --quiet is-active headroom-nodeagent; do sleep 0.2; done; cat /proc/uptime")?;
    fleet.until_ready()?;
    fleet.on(
        host,
        "journalctl --no-pager -o cat -u headroom-nodeagent -b | grep -e container -e ready",
    )?;
    let again = |fleet: &Fleet| Ok((fleet.running(app)? == 4).then_some(()));
    fleet
        .until("four tasks to run again", OFF, again)
        .with_context(|| fleet.witness())?;
    let reported = verdicts(&fleet.job(app)?);
    fleet.person(
        WORKERS[0],
        &format!("rmctl ps {app}; rmctl events --tail 12"),
    )?;
    fleet.book.say(&format!("{reported:?}"));
    ensure!(
        !reported.is_empty(),
        "the journal names the containers that ended with the kernel"
    );
    fleet.release()?;
    fleet.finished(app)?;
    let ends: Vec<(String, u64)> = fleet
        .lines(app)?
        .into_iter()
        .filter(|(line, _)| line.starts_with("end"))
        .collect();
    ensure!(
        ends.len() == 4 && ends.iter().all(|(_, count)| *count == 1),
        "{ends:?}"
    );
    Ok(())
}

/// A host is drained and its work continues elsewhere.
fn a_drain(fleet: &mut Fleet) -> Result<()> {
    for host in WORKERS {
        fleet.person(host, "rm -f gate")?;
    }
    let app = fleet.stay(300)?;
    fleet.on(
        MANAGER,
        "rmctl node drain worker-2 --reason 'kernel upgrade' --deadline 3s; rmctl node list",
    )?;
    let left = fleet.processes(None)?;
    ensure!(
        fleet
            .where_is(&left)
            .iter()
            .all(|(name, _)| *name == "worker-1"),
        "{left:?}"
    );
    let elsewhere = |fleet: &Fleet| Ok((fleet.running(&app)? == 4).then_some(()));
    fleet
        .until("all tasks to run on the other host", OFF, elsewhere)
        .with_context(|| fleet.witness())?;
    fleet.person(WORKERS[0], "rmctl events --tail 24")?;
    fleet.release()?;
    fleet.finished(&app)?;
    fleet.on(MANAGER, "rmctl node undrain worker-2")?;
    fleet.until_ready()
}

/// Packages are removed and leave only the documented files.
fn taken_away(fleet: &mut Fleet) -> Result<()> {
    fleet.on_all(
        &ALL,
        "dpkg --remove $(dpkg-query -W -f '${Package} ' 'headroom-*')",
    )?;
    for host in WORKERS {
        let left =
            fleet.tried(host, "systemctl is-active headroom-nodeagent headroom-containers; ls /sys/fs/cgroup/headroom.slice")?;
        ensure!(
            left.stdout.trim() == "inactive\ninactive",
            "{}",
            left.stdout
        );
        ensure!(
            fleet
                .tried(
                    host,
                    "test -e /var/lib/headroom/nodeagent -a -e /etc/headroom/nodeagent.toml"
                )?
                .code
                == 0,
            "a removal leaves state"
        );
    }
    fleet.on_all(
        &ALL,
        "dpkg --purge $(dpkg-query -W -f '${Package} ' 'headroom-*') 2>&1",
    )?;
    // The operator's files stay, and nothing else.
    let kept = [
        "/etc/headroom",
        "/etc/systemd/system/headroom-resourcemanager.socket.d",
    ];
    for host in ALL {
        let left = fleet.on(host, "find /etc /usr /var /run -xdev -path /var/lib/dpkg -prune -o -name '*headroom*' -print")?;
        ensure!(left.lines().all(|line| kept.contains(&line)), "{left}");
        let files = fleet.on(host, "find /etc/headroom -type f")?;
        let papers = |file: &str| {
            ["tls/", "authority/", "client.toml"]
                .iter()
                .any(|kind| file.starts_with(&format!("/etc/headroom/{kind}")))
        };
        ensure!(files.lines().all(papers), "{files}");
    }
    Ok(())
}

#[test]
fn three_hosts_from_packages_to_finished_jobs_in_guests() -> Result<()> {
    let mut fleet = Fleet::boot(TranscriptOutput::Aloud, LONGEST)?;
    let lived = a_life(&mut fleet);
    fleet.book.say(&format!("\n{}", fleet.book.table()));
    lived
}

fn a_life(fleet: &mut Fleet) -> Result<()> {
    fleet.set_up()?;
    fleet.step(
        "a job whose tasks are killed for memory and then succeed",
        a_job_that_escalates,
    )?;
    fleet.step("a job of JVMs", a_job_of_jvms)?;
    let app = fleet.step("a job that stays, on both workers", |fleet| fleet.stay(520))?;
    fleet.step("the output of systemd", |fleet| {
        what_systemd_shows(fleet, &app)
    })?;
    daemons_come_and_go(fleet, &app)?;
    fleet.step("a worker is rebooted, the job finishes", |fleet| {
        a_reboot(fleet, &app)
    })?;
    fleet.step(
        "worker-2 is drained, its tasks continue on another node",
        a_drain,
    )?;
    for host in WORKERS {
        fleet.person(host, "rm -f gate")?;
    }
    let results = fleet.step(&format!("{ROUNDS} faults during memory kills"), |fleet| {
        fault_rounds::run(fleet, ROUNDS, &mut |_| ())
    })?;
    fleet.book.say(&serde_json::to_string(&results)?);
    ensure!(
        (results.lost, results.twice, results.verdicts_lost) == (0, 0, 0)
            && results.rounds == ROUNDS,
        "{results:?}"
    );
    ensure!(
        results.verdicts >= usize::try_from(ROUNDS)?,
        "every job had a kill: {results:?}"
    );
    fleet.step("packages are removed and purged", taken_away)
}
