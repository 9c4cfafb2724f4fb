//! `rmctl demo`: groups a skewed data set under tight memory and repairs the tasks that do not fit.
//! It verifies the result and shows that retries at the same size would have lost the job.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_client::Client;
use headroom_config::job::ClusterProfiles;
use headroom_types::{Bytes, Cpus, EnforcerKind};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::MemoryFailureMode;

use crate::args::{DemoArgs, OutputFormat};
use crate::cmd::dev::begin_log;
use crate::cmd::feasibility::refuse_infeasible;
use crate::cmd::job_file::{CompiledJob, compiled};
use crate::cmd::submission::submit;
use crate::cmd::submit::stay;
use crate::context::CommandContext;
use crate::demo::data::{self, DataSetParams, DemoDataSet};
use crate::demo::reference::{ComparisonResult, compare};
use crate::demo::{DemoError, job};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::groupby::GroupByStats;
use crate::interrupt::Interrupt;
use crate::local_cluster::{ClusterDirectory, LocalCluster, LocalClusterParams};
use crate::render::demo::{DemoReport, DemoRun, FixedSizeRun, outcome};
use crate::render::{count, json};

/// Smallest and largest share for generated data. A larger share would make the data set too large.
const SHARES: (Bytes, Bytes) = (Bytes::from_mib(16), Bytes::from_mib(256));
/// Timeout of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(1800);
/// Default log level.
const LOG: &str = "error";
/// Minimum processors of the demonstration's node. The demonstration is about memory, so its tasks
/// may share processors.
const CPUS: u32 = 16;

/// Runs the demonstration.
pub(crate) async fn run(context: &CommandContext, args: DemoArgs) -> CommandResult {
    begin_log(LOG, context.term.live);
    check(&args)?;
    let home = ClusterDirectory::make(args.keep.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let report = play(context, &args, home.path(), &interrupt).await?;
    match context.format {
        OutputFormat::Table | OutputFormat::Wide => {
            context.term.print(&outcome(&report, context.term.paint))
        }
        OutputFormat::Json | OutputFormat::Jsonl => context.term.line(&json::line(&report.json())),
        OutputFormat::Name => context.term.line(&report.run.app),
        OutputFormat::Yaml | OutputFormat::Csv | OutputFormat::Cols | OutputFormat::Template => {
            let whole = report.json();
            let text =
                json::MachineOutput::one(&whole).text(&context.output, |_| report.run.app.clone());
            context.show(text, String::new);
        }
    }
    if let ClusterDirectory::Kept(dir) = &home {
        context.term.say(&format!(
            "kept   {}: data, parts, results, job files",
            dir.display()
        ));
    }
    Ok(report.exit())
}

fn check(args: &DemoArgs) -> CommandResult<()> {
    match args.share {
        Some(share) if args.input.is_none() && !(SHARES.0..=SHARES.1).contains(&share) => {
            Err(CommandFailure::usage(format!(
                "--share {share} is outside the range of the generated data set"
            ))
            .help(format!(
                "use a size from {} to {}, or your own data with --input FILE",
                SHARES.0, SHARES.1
            )))
        }
        Some(_) | None => Ok(()),
    }
}

async fn play(
    context: &CommandContext,
    args: &DemoArgs,
    dir: &Path,
    interrupt: &Interrupt,
) -> CommandResult<DemoReport> {
    let data = tokio::select! {
        data = prepare(context, args, dir) => data?,
        () = interrupt.asked() => return Err(CommandFailure::failed("interrupted; nothing had been started")),
    };
    if context.addr_named {
        let client = context.client()?;
        let stage = DemoRunInputs {
            context,
            args,
            client: &client,
            data: &data,
            dir,
        };
        return tokio::select! {
            shown = stage.show() => shown,
            () = interrupt.asked() => {
                Err(CommandFailure::failed("interrupted; the job keeps running").help("rmctl kill last"))
            }
        };
    }
    let params = LocalClusterParams {
        nodes: 1,
        memory: None,
        cpus: Some(Cpus::from_cores(
            std::thread::available_parallelism().map_or(CPUS, |n| n_cpus(n.get())),
        )),
        enforcer: args.enforcer,
        listen: ([127, 0, 0, 1], 0).into(),
        keep: Some(dir.join("cluster")),
        log: LOG,
    };
    let cluster = LocalCluster::start(&params).await?;
    for node in cluster.nodes() {
        let label = if node.enforcer.is_kernel() {
            ""
        } else {
            " (not kernel-enforced)"
        };
        context.term.say(&format!(
            "node   {} offers {} · enforcer {}{label}",
            node.node, node.offers, node.enforcer
        ));
    }
    let client = Client::new(cluster.url())?;
    let stage = DemoRunInputs {
        context,
        args,
        client: &client,
        data: &data,
        dir,
    };
    // From here on an interruption must end every container first.
    let shown = tokio::select! {
        shown = stage.show() => shown,
        () = interrupt.asked() => Err(CommandFailure::failed("interrupted; every container was ended")),
    };
    cluster.stop().await;
    if args.keep.is_none() {
        let _ = std::fs::remove_dir_all(dir.join("cluster"));
    }
    shown
}

fn n_cpus(machine: usize) -> u32 {
    u32::try_from(machine).unwrap_or(CPUS).max(CPUS)
}

async fn prepare(
    context: &CommandContext,
    args: &DemoArgs,
    dir: &Path,
) -> CommandResult<DemoDataSet> {
    let wanted = DataSetParams {
        input: args.input.clone(),
        key: args.key.clone(),
        value: args.value.clone(),
        partitions: args.partitions,
        share: args.share,
        dir: dir.to_owned(),
    };
    let term = context.term;
    let made = tokio::task::spawn_blocking(move || data::prepare(&wanted, &term)).await;
    let mut data = made
        .map_err(|e| CommandFailure::failed(format!("the data set was not created: {e}")))?
        .map_err(|e| refused(&e))?;
    if !data.generated && args.share.is_none() {
        data.share = probe(context, &data, dir).await?;
    }
    Ok(data)
}

/// Errors in the user's data are usage errors; errors of the disk are not.
fn refused(e: &DemoError) -> CommandFailure {
    let exit = match e {
        DemoError::File { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
            CommandExitCode::Failed
        }
        DemoError::File { .. }
        | DemoError::Csv(_)
        | DemoError::NoRows { .. }
        | DemoError::NoNumbers { .. } => CommandExitCode::Usage,
    };
    CommandFailure::new(exit, e.to_string())
}

/// Groups the median partition once without a limit. The share is the used memory plus a quarter.
async fn probe(context: &CommandContext, data: &DemoDataSet, dir: &Path) -> CommandResult<Bytes> {
    let Some(part) = data::median(&data.parts) else {
        return Ok(data.share);
    };
    let output = tokio::process::Command::new(program()?)
        .args(["sample", "group-by", "--input"])
        .arg(&part.path)
        .arg("--output")
        .arg(dir.join("probe.csv"))
        .kill_on_drop(true)
        .output();
    let wrong = |e: String| {
        CommandFailure::failed(format!(
            "the median partition {} could not be measured: {e}",
            part.index
        ))
    };
    let output = tokio::time::timeout(RUN_TIMEOUT, output)
        .await
        .map_err(|e| wrong(e.to_string()))?
        .map_err(|e| wrong(e.to_string()))?;
    let done: GroupByStats = serde_json::from_slice(&output.stdout)
        .map_err(|_| wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
    let share = data::fitted(&done);
    context.term.say(&format!(
        "share  {share} a slot: part {} is the median ({}, {} keys) and needed {}",
        part.index,
        Bytes::new(part.bytes),
        done.keys,
        Bytes::new(done.peak_bytes)
    ));
    Ok(share)
}

/// This program, which the tasks also run.
fn program() -> CommandResult<PathBuf> {
    std::env::current_exe().map_err(|e| {
        CommandFailure::failed(format!("the path of this program cannot be read: {e}"))
    })
}

/// The inputs of a run.
struct DemoRunInputs<'a> {
    context: &'a CommandContext,
    args: &'a DemoArgs,
    client: &'a Client,
    data: &'a DemoDataSet,
    dir: &'a Path,
}

impl DemoRunInputs<'_> {
    /// Runs the requested mode, and then mode `fixed` for comparison.
    async fn show(&self) -> CommandResult<DemoReport> {
        let enforcers = self.client.status().await?.enforcers;
        let kernel_enforced = !enforcers.iter().any(|e| e == EnforcerKind::Poll.as_str());
        let enforcer = enforcers.join(",");
        let run = self.run(self.args.mode).await?;
        let fixed = if self.args.no_fixed {
            None
        } else {
            self.context
                .term
                .say("again  the same job in mode fixed: the same size every time");
            Some(self.run(MemoryFailureMode::Fixed).await?)
        };
        let fixed = fixed.map(|f| FixedSizeRun {
            finished: f.finished,
            kills: f.totals.memory_kills,
            wall: f.wall,
        });
        Ok(DemoReport {
            enforcer,
            kernel_enforced,
            generated: self.data.generated,
            share: self.data.share,
            run,
            fixed,
        })
    }

    async fn run(&self, mode: MemoryFailureMode) -> CommandResult<DemoRun> {
        let out = self.dir.join(mode.as_str());
        let job = self.job(mode, &out)?;
        refuse_infeasible(&job.spec, &self.client.node_groups().await?)?;
        let (started, tasks) = (Instant::now(), count(job.spec.tasks(), "task"));
        let id = submit(self.client, &job).await?.app;
        let (executors, slots, share) = (job::EXECUTORS, job::SLOTS, self.data.share);
        let mode_name = mode.as_str();
        self.context
            .term
            .say(&format!("job    {id}: {tasks} on {executors} executors × {slots} slots of {share}, mode {mode_name}"));
        let app =
            tokio::time::timeout(RUN_TIMEOUT, stay(self.context, self.client, &id, false)).await;
        let late = || {
            CommandFailure::new(
                CommandExitCode::WaitTimeout,
                format!("{id} has not ended after {} s", RUN_TIMEOUT.as_secs()),
            )
        };
        let app = app.map_err(|_| late())??;
        let wall = started.elapsed();
        let result = self.judge(&app, &out).await?;
        if self.args.keep.is_none() {
            // Frees disk space for the next run; the whole directory is removed at the end.
            let _ = std::fs::remove_dir_all(&out);
        }
        Ok(DemoRun::of(&app, mode, wall, result))
    }

    /// Writes the job file and reads it like a user's file.
    fn job(&self, mode: MemoryFailureMode, out: &Path) -> CommandResult<CompiledJob> {
        let unwritable =
            |e: std::io::Error| CommandFailure::failed(format!("{}: {e}", out.display()));
        std::fs::create_dir_all(out).map_err(unwritable)?;
        let partitions = u32::try_from(self.data.parts.len()).unwrap_or(u32::MAX);
        let text = job::text(
            "group-by",
            mode,
            self.data.share,
            partitions,
            &program()?,
            self.dir,
            out,
        );
        let file = self.dir.join(format!("group-by-{}.toml", mode.as_str()));
        std::fs::write(&file, &text).map_err(unwritable)?;
        compiled(&file, text, None, &ClusterProfiles::new())
    }

    /// Compares the results of a finished run with the reference.
    async fn judge(&self, app: &AppView, out: &Path) -> CommandResult<Option<ComparisonResult>> {
        if app.state != AppState::Finished {
            return Ok(None);
        }
        let outputs: Vec<PathBuf> = self
            .data
            .parts
            .iter()
            .map(|p| out.join(format!("out-{}.csv", p.index)))
            .collect();
        let (input, columns) = (self.data.input.clone(), self.data.columns.clone());
        let result = self.args.keep.is_some().then(|| out.join("result.csv"));
        let compared = tokio::task::spawn_blocking(move || {
            compare(&input, &columns, &outputs, result.as_deref())
        })
        .await;
        let compared = compared
            .map_err(|e| CommandFailure::failed(format!("the result was not compared: {e}")))?;
        compared
            .map(Some)
            .map_err(|e| CommandFailure::failed(format!("the result cannot be compared: {e}")))
    }
}
