//! Health of this host: the disk of the state directory, the shared directory of journals, and the
//! operator's health script.
//!
//! Runs in parallel to the loop and reports changes to it. Problems make the node take no work, and
//! their end reverses that. Running containers are not affected.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use headroom_config::HealthChecks;
use headroom_node_exec::{ExecArguments, SpawnCommand, spawn};
use tokio::sync::{mpsc, watch};

use crate::agent_input::AgentInput;
use crate::disk_checks::DiskChecks;
use crate::host;
use crate::journals::{JournalsProblem, SharedJournals};
use crate::node_context::NodeContext;
use crate::process_wait::end_within;

/// Maximum output of the script that is read. Bytes.
const SAID: u64 = 64 << 10;
/// Maximum length of a reported reason. Characters.
const REASON: usize = 300;
/// The directory of journals is checked after this number of intervals of the disk check: each check
/// is about ten calls to a file server, from each node.
const JOURNALS_EVERY: u32 = 3;
/// Minimum difference between the clocks that is logged. The kernel's own corrections are far
/// smaller.
const STEP: Duration = Duration::from_secs(1);

/// Checks periodically until the loop has ended. `found` are the problems that the loop already
/// knows.
pub(crate) async fn watch(
    site: Arc<NodeContext>,
    mut wanted: watch::Receiver<HealthChecks>,
    found: Vec<String>,
    inputs: mpsc::Sender<AgentInput>,
) {
    let mut checks = wanted.borrow_and_update().clone();
    let state = site.layout.state().to_owned();
    let mut disk_ticks = ticks(checks.every);
    let mut journals_ticks = ticks(checks.every.saturating_mul(JOURNALS_EVERY));
    let mut script_ticks = ticks(checks.script_every);
    let (mut disk_ills, mut script_ills) = (Vec::new(), Vec::new());
    // Known since the start, so that it is not taken back before the first check.
    let known = site.journals.as_ref().and_then(SharedJournals::problem);
    let mut journals_ills: Vec<String> = known.iter().map(JournalsProblem::sentence).collect();
    let mut reported = found;
    let mut clocks = ClockReadings::now();
    loop {
        let mut disk_checked = false;
        tokio::select! {
            () = disk_check_due(&mut disk_ticks, &site.disk_checks) => {
                clocks = clocks.compare();
                let (state, checks) = (state.clone(), checks.clone());
                disk_ills = blocking(move || disk(&state, &checks)).await;
                disk_checked = true;
            }
            _ = journals_ticks.tick(), if site.journals.is_some() => {
                let site = Arc::clone(&site);
                journals_ills = blocking(move || journals(&site)).await;
            }
            _ = script_ticks.tick(), if checks.script.is_some() => {
                let (state, checks) = (state.clone(), checks.clone());
                script_ills = blocking(move || script(&state, &checks)).await;
            }
            Ok(()) = wanted.changed() => {
                checks = wanted.borrow_and_update().clone();
                journals_ticks = ticks(checks.every.saturating_mul(JOURNALS_EVERY));
                // All checks run at once. Problems of a removed script are dropped.
                (disk_ticks, script_ticks) = (ticks(checks.every), ticks(checks.script_every));
                script_ills.clear();
                continue;
            }
            () = inputs.closed() => return,
        }
        let ills: Vec<String> = disk_ills
            .iter()
            .chain(&journals_ills)
            .chain(&script_ills)
            .cloned()
            .collect();
        if ills != reported {
            reported.clone_from(&ills);
            if inputs.send(AgentInput::Health(ills)).await.is_err() {
                return;
            }
        }
        if disk_checked {
            site.disk_checks.finish();
        }
    }
}

/// Waits for the next regular check of the disk, or for a launch that failed on a full one.
async fn disk_check_due(ticks: &mut tokio::time::Interval, checks: &DiskChecks) {
    tokio::select! {
        _ = ticks.tick() => {}
        () = checks.requested() => {}
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

async fn blocking(look: impl FnOnce() -> Vec<String> + Send + 'static) -> Vec<String> {
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|_| {
        vec!["the check of this host failed inside the agent; see its log".into()]
    })
}

/// Problems of the disk of the state directory. Blocking.
pub(crate) fn disk(state: &Path, checks: &HealthChecks) -> Vec<String> {
    let mut ills = Vec::new();
    match rustix::fs::statvfs(state) {
        Ok(facts) => {
            let room = [
                (
                    "full",
                    "",
                    checks.disk_full,
                    facts.f_blocks,
                    facts.f_blocks.saturating_sub(facts.f_bfree),
                    facts.f_bavail,
                ),
                (
                    "out of inodes",
                    " of its inodes",
                    checks.inodes_full,
                    facts.f_files,
                    facts.f_files.saturating_sub(facts.f_ffree),
                    facts.f_favail,
                ),
            ];
            for (word, of_what, most, all, used, free) in room {
                if let Some(percent) =
                    host::percent(all, used, free).filter(|p| *p >= u64::from(most))
                {
                    ills.push(format!(
                        "disk {word}: {percent} %{of_what} at {} (limit {most} %)",
                        state.display()
                    ));
                }
            }
        }
        Err(error) => ills.push(format!(
            "disk: the free space of {} cannot be read: {error}",
            state.display()
        )),
    }
    if let Err(error) = probe(state) {
        ills.push(format!(
            "disk: {} is not writable: {error}",
            state.display()
        ));
    }
    ills
}

/// The problem of the shared directory of journals. Blocking, at most for a timeout.
pub(crate) fn journals(site: &NodeContext) -> Vec<String> {
    let problem = site.journals.as_ref().and_then(SharedJournals::check);
    problem
        .map(|problem| problem.sentence())
        .into_iter()
        .collect()
}

/// Writes a few bytes through to the disk.
fn probe(state: &Path) -> io::Result<()> {
    let path = state.join("probe");
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(&[0x55; 4096])?;
    file.sync_data()?;
    fs::remove_file(path)
}

/// Problems that the health script reports. Blocking up to the timeout of the script.
fn script(state: &Path, checks: &HealthChecks) -> Vec<String> {
    let Some(program) = &checks.script else {
        return Vec::new();
    };
    match said_by(program, state, checks.script_timeout) {
        Ok(Some(text)) => errors(&text),
        Ok(None) => vec![format!(
            "{} took longer than {:?} and was killed",
            program.display(),
            checks.script_timeout
        )],
        Err(error) => vec![format!("{} cannot be executed: {error}", program.display())],
    }
}

/// The reported reasons: lines that begin with ERROR.
fn errors(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("ERROR"));
    lines
        .map(|line| {
            line.chars()
                .filter(|c| !c.is_control())
                .take(REASON)
                .collect()
        })
        .take(4)
        .collect()
}

/// The output of the program. `None` if it exceeded its time and was ended.
fn said_by(program: &Path, state: &Path, most: Duration) -> io::Result<Option<String>> {
    let path = state.join("health.out");
    let mut out = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)?;
    let env = [
        (
            "PATH".into(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
        ),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    let arguments = ExecArguments::new([program], &env).map_err(|error| error.source)?;
    let command = SpawnCommand {
        stdout: Some(&out),
        new_session: true,
        ..SpawnCommand::new(&arguments, Path::new("/"))
    };
    let child = spawn(&command).map_err(|error| error.source)?;
    let ended = end_within(&child, most)?;
    fs::remove_file(&path)?;
    if ended.is_none() {
        return Ok(None);
    }
    out.rewind()?;
    let mut bytes = Vec::new();
    out.take(SAID).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Both clocks of the host at one moment.
struct ClockReadings {
    wall: SystemTime,
    steady: Instant,
}

impl ClockReadings {
    fn now() -> Self {
        ClockReadings {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// Logs a step of the wall clock since `self`.
    fn compare(self) -> Self {
        let now = ClockReadings::now();
        let passed = now.steady.duration_since(self.steady);
        let shown = now.wall.duration_since(self.wall).unwrap_or_default();
        let step = passed.abs_diff(shown);
        if step > STEP {
            tracing::warn!(
                ?step,
                "the clock of this host was set; times in earlier and later reports are not comparable"
            );
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn program(dir: &Path, text: &str) -> HealthChecks {
        let path = dir.join("check");
        fs::write(&path, text).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        HealthChecks {
            script: Some(path),
            script_timeout: Duration::from_secs(20),
            ..HealthChecks::default()
        }
    }

    #[test]
    fn a_full_disk_is_reported_with_its_use_and_limit() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(
            disk(
                dir.path(),
                &HealthChecks {
                    disk_full: 100,
                    inodes_full: 100,
                    ..HealthChecks::default()
                }
            ),
            [""; 0]
        );
        let ills = disk(
            dir.path(),
            &HealthChecks {
                disk_full: 0,
                ..HealthChecks::default()
            },
        );
        assert!(
            ills[0].starts_with("disk full: ") && ills[0].ends_with("(limit 0 %)"),
            "{ills:?}"
        );
        let gone = disk(&dir.path().join("gone"), &HealthChecks::default());
        assert!(
            gone.iter().any(|ill| ill.contains("is not writable")),
            "{gone:?}"
        );
    }

    #[test]
    fn only_lines_that_begin_with_error_are_reasons() {
        let dir = tempfile::tempdir().expect("dir");
        let say = |text: &str| script(dir.path(), &program(dir.path(), text));
        assert_eq!(
            say("#!/bin/sh\necho fine\necho 'no ERROR here'\nexit 3\n"),
            [""; 0]
        );
        assert_eq!(
            say("#!/bin/sh\necho noise\necho 'ERROR scratch is read-only'\n"),
            ["ERROR scratch is read-only"]
        );
        assert!(say("no interpreter")[0].contains("cannot be executed"));
    }

    #[test]
    fn a_hanging_script_is_killed_with_its_children() {
        let dir = tempfile::tempdir().expect("dir");
        let pids = dir.path().join("pids");
        let text = format!("#!/bin/sh\nsleep 600 & echo $! >{}\nwait\n", pids.display());
        let checks = HealthChecks {
            script_timeout: Duration::from_millis(500),
            ..program(dir.path(), &text)
        };
        let ills = script(dir.path(), &checks);
        assert!(ills[0].contains("took longer"), "{ills:?}");
        let child: i32 = fs::read_to_string(&pids)
            .expect("pid")
            .trim()
            .parse()
            .expect("number");
        let deadline = Instant::now() + Duration::from_secs(10);
        let alive = || {
            fs::read_to_string(format!("/proc/{child}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z"))
        };
        while alive() {
            assert!(
                Instant::now() < deadline,
                "the child of the program was not killed"
            );
            std::thread::yield_now();
        }
    }
}
