//! Programs that leave memory behind when they end, and their effect on the next job of the node.

use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::{Bytes, EnforcerKind};
use integration::leftovers::{HostLeak, LeftoverBench, LeftoverCase, LeftoverRow, TaskUser, cases};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{guest_run, progress};

/// Memory of the node.
const NODE: Bytes = Bytes::from_mib(1024);
/// Size of the leak on a tmpfs of the host. It exceeds the share of memory above which a node is
/// unhealthy.
const LEAK: Bytes = Bytes::from_mib(300);
/// Timeout of all programs in a guest on a busy machine.
const GUEST_TIMEOUT: Duration = Duration::from_secs(1800);

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The enforcer; the best available one if absent.
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Only programs with this text in their name.
    pub(crate) only: String,
    /// `[isolation] ipc`.
    pub(crate) ipc: String,
}

/// Results.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeftoverResults {
    /// Number of runs of programs, one for each user.
    programs: usize,
    /// Attempts of all jobs that were killed for an outer limit.
    collateral_reruns: u32,
    /// Ordinary jobs after a program that failed or had to repeat a task.
    poisoned_jobs: usize,
    /// From a leak on a tmpfs of the host until `GET /v1/nodes` reports it. Milliseconds; null if
    /// it was not measured.
    unattributed_seen_ms: Option<u64>,
    /// From the removal of that leak until `GET /v1/nodes` reports none. Milliseconds.
    #[serde(default)]
    unattributed_gone_ms: Option<u64>,
    /// Programs that did not end as expected.
    wrong: usize,
    /// Objects of programs that were on the host after their end.
    left: u32,
    /// `[isolation] ipc` of the node.
    ipc: String,
    rows: Vec<LeftoverRow>,
}

/// The host's tmpfs is below `/tmp`, which the job must see. Without a kernel's enforcer no cgroup
/// is charged.
fn leak(plan: &Plan) -> Result<Option<HostLeak>> {
    let bench = LeftoverBench::new(
        NODE,
        plan.enforcer,
        TaskUser::Agent,
        "private_tmp = false\n",
    )?;
    if bench.enforcer() == EnforcerKind::Poll {
        Ok(None)
    } else {
        bench.leak_on_host_tmpfs(LEAK).map(Some)
    }
}

/// Runs all programs as each user that this process can start.
pub(crate) fn measure(plan: &Plan) -> Result<LeftoverResults> {
    let root = rustix::process::geteuid().is_root();
    let users = if root {
        vec![TaskUser::Agent, TaskUser::Nobody]
    } else {
        vec![TaskUser::Agent]
    };
    let mut rows = Vec::new();
    for user in users {
        // A private /tmp needs CAP_SYS_ADMIN.
        let tmp = if root {
            "private_tmp = true\ntmp_size = \"600MiB\"\n"
        } else {
            "private_tmp = false\n"
        };
        let mut bench = LeftoverBench::new(
            NODE,
            plan.enforcer,
            user,
            &format!("ipc = \"{}\"\n{tmp}", plan.ipc),
        )?;
        for case in cases()
            .iter()
            .filter(|case| case.program.contains(&plan.only))
        {
            rows.push(play(&mut bench, case)?);
        }
    }
    let leak = if root { leak(plan)? } else { None };
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let played: Vec<&LeftoverRow> = rows.iter().filter(|row| row.skipped.is_none()).collect();
    Ok(LeftoverResults {
        programs: played.len(),
        collateral_reruns: played.iter().map(|row| row.collateral).sum(),
        poisoned_jobs: played.iter().filter(|row| row.poisoned).count(),
        unattributed_seen_ms: leak.map(|leak| ms(leak.seen)),
        unattributed_gone_ms: leak.map(|leak| ms(leak.gone)),
        wrong: played.iter().filter(|row| !row.right).count(),
        left: played.iter().map(|row| row.left).sum(),
        ipc: plan.ipc.clone(),
        rows,
    })
}

fn play(bench: &mut LeftoverBench, case: &LeftoverCase) -> Result<LeftoverRow> {
    let row = bench.play(case).with_context(|| case.program)?;
    progress::print_line(line(&row).trim_end());
    Ok(row)
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(plan: &Plan) -> Result<LeftoverResults> {
    let words = ["leftovers", "--only", &plan.only, "--ipc", &plan.ipc];
    serde_json::from_value(Value::Object(guest_run::in_a_guest(&words, GUEST_TIMEOUT)?))
        .context("the report of the guest")
}

fn line(row: &LeftoverRow) -> String {
    let user = row.user.as_str();
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let next = match &row.skipped {
        Some(why) => why,
        None if row.poisoned => "POISONED",
        None => "unharmed",
    };
    format!(
        "{:22} {user:7} {:9} {:6} {:5} {:11} {next}\n",
        row.program,
        row.enforcer.as_str(),
        yes(row.right),
        row.left,
        row.collateral
    )
}

/// The table as text, with one row for each run.
pub(crate) fn table(figures: &LeftoverResults) -> String {
    let head = format!(
        "{:22} {:7} {:9} {:6} {:5} {:11} {}\n",
        "PROGRAM", "USER", "ENFORCER", "RIGHT", "LEFT", "COLLATERAL", "NEXT JOB"
    );
    let seen = figures
        .unattributed_seen_ms
        .map_or("not shown".to_owned(), |ms| format!("{ms} ms"));
    let sum = format!(
        "{} programs, {} collateral re-runs, {} poisoned jobs; a leak on a tmpfs of the host is shown after: {seen}\n",
        figures.programs, figures.collateral_reruns, figures.poisoned_jobs
    );
    head + &figures.rows.iter().map(line).collect::<String>() + &sum
}
