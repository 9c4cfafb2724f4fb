//! `rmctl node bench`: measures how fast a node starts containers and tasks, fills memory, and
//! reports a kill.
//!
//! The benchmark is an ordinary job on that node only. Its last task is killed for memory on
//! purpose.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headroom_client::Client;
use headroom_config::job::ClusterProfiles;
use headroom_types::{AppId, Bytes, ContainerId, ExitReason, NodeId, UnixMillis, millis};
use headroom_wire::v1::apps::{AppView, ContainerView};
use headroom_wire::v1::job::{AttemptRow, MemoryFailureMode};
use headroom_wire::v1::node_groups::NodeGroup;
use serde::Serialize;

use super::feasibility::refuse_infeasible;
use super::job_file::CompiledJob;
use super::submission::submit;
use crate::args::NodeBenchArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::follow::{JobObservation, follow};
use crate::progress::ProgressLine;
use crate::render::figures::short;
use crate::render::{TextPainter, count, json::MachineOutput};

/// Memory of each container.
const SIZE: Bytes = Bytes::from_mib(96);
/// The executor's part of that memory.
const RESERVE: Bytes = Bytes::from_mib(32);
/// Size of the blocks that one task writes to fresh memory. One process after the other writes one
/// block.
const BLOCK: Bytes = Bytes::from_mib(32);
const BLOCKS: u64 = 64;

/// The measurements.
#[derive(Debug, Serialize)]
struct NodeBenchReport {
    node: NodeId,
    job: AppId,
    containers: u32,
    /// Time from the grant of a container to its first task. Milliseconds.
    ready_p50_ms: Option<u64>,
    ready_p99_ms: Option<u64>,
    tasks: u32,
    /// Rate of tasks that end at once, one after the other in each container.
    tasks_per_s: Option<f64>,
    task_p50_ms: Option<u64>,
    task_p99_ms: Option<u64>,
    /// Rate at which consecutive processes of one task write fresh memory.
    fill_mib_per_s: Option<f64>,
    /// The reported reason of the kill; absent if the task has no attempt with a reason.
    kill: Option<ExitReason>,
    /// Time from the start of the killed task to its report. Milliseconds.
    kill_ms: Option<u64>,
}

/// Runs the job and prints the measurements. Exit code 1 if a task failed, or if the kill was not
/// reported as a memory kill.
pub(crate) async fn run(context: &CommandContext, args: NodeBenchArgs) -> CommandResult {
    let client = context.client()?;
    let node = client.node(&args.node).await?;
    let text = job_file(&args);
    let spec = headroom_config::job::compile(&text, "bench").map_err(|problems| {
        CommandFailure::laid_out(CommandExitCode::Failed, headroom_config::render(&problems))
    })?;
    refuse_infeasible(&spec, &NodeGroup::group([&node]))?;
    let job = CompiledJob {
        spec,
        text,
        named: ClusterProfiles::new(),
        base: PathBuf::from("/"),
        mode: MemoryFailureMode::Fixed,
        uploads: Vec::new(),
    };
    let id = submit(&client, &job).await?.app;
    context.term.say(&format!("{id} measures {}", args.node));
    let app = tokio::select! {
        app = to_its_end(context, &client, &id, u64::from(args.tasks) + 2) => app?,
        _ = tokio::signal::ctrl_c() => {
            client.kill(&id, Some("interrupted".to_owned())).await?;
            return Err(CommandFailure::failed(format!("{id} was interrupted")));
        }
    };
    let figures = figures(&args, &app, &client.containers(Some(&id)).await?);
    let machine = MachineOutput::one(&figures).text(&context.output, |f| f.node.to_string());
    context.show(machine, || people(&figures, context.term.paint));
    let killed_for_memory = figures
        .kill
        .is_some_and(|reason| reason.charge() == headroom_types::ExitCharge::Memory);
    Ok(
        if killed_for_memory && figures.tasks == args.tasks && figures.fill_mib_per_s.is_some() {
            CommandExitCode::Ok
        } else {
            CommandExitCode::Failed
        },
    )
}

async fn to_its_end(
    context: &CommandContext,
    client: &Client,
    id: &AppId,
    of: u64,
) -> CommandResult<AppView> {
    let progress = ProgressLine::tasks(&context.term);
    let see = |sight: JobObservation<'_>| match sight {
        JobObservation::View(view) => {
            let over = view.job.as_ref().map_or(0, |job| {
                u64::from(job.totals.done) + u64::from(job.totals.failed)
            });
            progress.at(over, of);
        }
        JobObservation::Waits(why) => context.term.say(&format!("{id} waits: {}", why.sentence)),
        JobObservation::Event(_) => {}
    };
    Ok(follow(client, id, see).await?)
}

fn job_file(args: &NodeBenchArgs) -> String {
    let NodeBenchArgs {
        node,
        containers,
        tasks,
    } = args;
    let (size, reserve, block) = (SIZE.get(), RESERVE.get(), BLOCK.get());
    format!(
        "version = 1\nname = \"bench\"\n[profiles.one]\nmemory = \"{size}B\"\ncpus = 0.1\n\
         [executors.main]\nprofile = \"one\"\ncount = {containers}\nslots = 1\nreserve = \"{reserve}B\"\nnodes = [\"{node}\"]\n\
         [[stage]]\nname = \"start\"\ncount = {tasks}\ncommand = [\"true\"]\n\
         [[stage]]\nname = \"fill\"\nafter = [\"start\"]\n\
         command = [\"sh\", \"-c\", \"for i in $(seq {BLOCKS}); do dd if=/dev/zero of=/dev/null bs={block} count=1 2>&1 || exit 1; done\"]\n\
         [[stage]]\nname = \"kill\"\nafter = [\"fill\"]\ncommand = [\"tail\", \"/dev/zero\"]\n",
    )
}

fn figures(args: &NodeBenchArgs, app: &AppView, containers: &[ContainerView]) -> NodeBenchReport {
    let attempts = |stage: &str| -> Vec<&AttemptRow> {
        let tasks = app
            .job
            .iter()
            .flat_map(|job| &job.tasks)
            .filter(|row| row.task.stage.as_str() == stage);
        tasks.flat_map(|row| row.attempts.last()).collect()
    };
    let well = |a: &&AttemptRow| {
        a.reason
            .is_some_and(|reason| reason.charge() == headroom_types::ExitCharge::Success)
    };
    let took = |a: &AttemptRow| a.ended.map(|end| end.since(a.started));
    let started: Vec<&AttemptRow> = attempts("start").into_iter().filter(well).collect();
    let (ready, mut tasks) = (
        ready(&started, containers),
        started.iter().filter_map(|a| took(a)).collect::<Vec<_>>(),
    );
    tasks.sort();
    let first = started.iter().map(|a| a.started).min();
    let last = started.iter().filter_map(|a| a.ended).max();
    let span = first
        .zip(last)
        .map(|(first, last)| last.since(first).as_secs_f64())
        .filter(|s| *s > 0.0);
    let number = u32::try_from(started.len()).unwrap_or(u32::MAX);
    let fill = attempts("fill")
        .into_iter()
        .filter(well)
        .filter_map(took)
        .next()
        .map(|t| t.as_secs_f64())
        .filter(|s| *s > 0.0);
    let killed = attempts("kill").into_iter().next();
    #[expect(clippy::cast_precision_loss, reason = "a rounded number for a screen")]
    let filled = BLOCK.get() as f64 * BLOCKS as f64 / Bytes::from_mib(1).get() as f64;
    NodeBenchReport {
        node: args.node.clone(),
        job: app.id.clone(),
        containers: u32::try_from(ready.len()).unwrap_or(u32::MAX),
        ready_p50_ms: at(&ready, 50),
        ready_p99_ms: at(&ready, 99),
        tasks: number,
        tasks_per_s: span.map(|s| f64::from(number) / s),
        task_p50_ms: at(&tasks, 50),
        task_p99_ms: at(&tasks, 99),
        fill_mib_per_s: fill.map(|s| filled / s),
        kill: killed.and_then(|a| a.reason),
        kill_ms: killed.and_then(took).map(millis),
    }
}

/// Time from the grant of each container to its first task, in ascending order.
fn ready(started: &[&AttemptRow], containers: &[ContainerView]) -> Vec<Duration> {
    let mut first: BTreeMap<&ContainerId, UnixMillis> = BTreeMap::new();
    for attempt in started {
        let at = first.entry(&attempt.container).or_insert(attempt.started);
        *at = attempt.started.min(*at);
    }
    let granted = |id: &ContainerId| containers.iter().find(|c| c.id == *id).map(|c| c.granted);
    let mut all: Vec<Duration> = first
        .iter()
        .filter_map(|(id, at)| Some(at.since(granted(id)?)))
        .collect();
    all.sort();
    all
}

/// The percentile of sorted times. Milliseconds.
fn at(sorted: &[Duration], percent: usize) -> Option<u64> {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().map(millis)
}

fn people(f: &NodeBenchReport, paint: TextPainter) -> String {
    let ms = |ms: Option<u64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms} ms"));
    let rate = |rate: Option<f64>, unit: &str| {
        rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0} {unit}"))
    };
    let kill = match f.kill {
        Some(reason) => format!("reported as {reason} {} after its start", ms(f.kill_ms)),
        None => paint.bad("was not reported"),
    };
    format!(
        "{}\ncontainers  {} of {}, from grant to first task p50 {}, p99 {}\ntasks       {} that end at once: {}, each p50 {}, p99 {}\n\
         memory      new pages, 32 MiB in each process, filled at {}\nkill        {kill}\n{}\n",
        paint.strong(f.node.as_str()),
        f.containers,
        short(SIZE),
        ms(f.ready_p50_ms),
        ms(f.ready_p99_ms),
        count(f.tasks, "task"),
        rate(f.tasks_per_s, "a second"),
        ms(f.task_p50_ms),
        ms(f.task_p99_ms),
        rate(f.fill_mib_per_s, "MiB/s"),
        paint.dim(&format!(
            "next: rmctl node show {} · rmctl diagnose {}",
            f.node, f.job
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_file_compiles_and_names_the_node() {
        let args = NodeBenchArgs {
            node: "worker-03".parse().expect("a node"),
            containers: 4,
            tasks: 40,
        };
        let spec = headroom_config::job::compile(&job_file(&args), "bench")
            .unwrap_or_else(|problems| panic!("{}", headroom_config::render(&problems)));
        assert_eq!(spec.tasks(), 42);
        assert_eq!(spec.executors[0].place.nodes, [args.node].into());
        assert!(
            BLOCK < spec.stages[1].profile.memory(),
            "a block has room in a task"
        );
    }

    #[test]
    fn percentiles_are_taken_from_sorted_times() {
        let all: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(
            (at(&all, 50), at(&all, 99), at(&all[..1], 99), at(&[], 50)),
            (Some(100), Some(198), Some(1), None)
        );
    }
}
