//! `rmctl demo`: group a skewed data set under tight memory, repair the tasks that do not fit, prove the result, and show that
//! trying the same size again would have lost the job.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_client::Client;
use headroom_types::{Bytes, Cpus};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::Mode;

use crate::args::{Demo, Format};
use crate::cluster::{Cluster, Home, Wish};
use crate::cmd::dev::listen_to_daemons;
use crate::cmd::submit;
use crate::context::Context;
use crate::demo::data::{self, Data, Wanted};
use crate::demo::reference::{Verdict, compare};
use crate::demo::{DemoError, job};
use crate::exit::{Exit, Failure};
use crate::groupby::Done;
use crate::render::demo::{Fixed, Report, Run, outcome};
use crate::render::{count, json};

/// Smallest and largest share for generated data: a larger one would make it too large for a demonstration.
const SHARES: (Bytes, Bytes) = (Bytes::from_mib(16), Bytes::from_mib(256));
/// Longest a run may take.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Processors the embedded node offers at least: this is about memory, and tasks may well take turns.
const CPUS: u32 = 16;

/// Runs the demonstration.
pub(crate) async fn run(context: &Context, args: Demo) -> Result<Exit, Failure> {
    listen_to_daemons("error");
    check(&args)?;
    let home = Home::make(args.keep.as_deref())?;
    let outcome_of = tokio::select! {
        report = play(context, &args, home.path()) => report,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Failed, "interrupted before anything was started")),
    };
    let report = outcome_of?;
    match context.format {
        Format::Table | Format::Wide => context.term.print(&outcome(&report, context.term.paint)),
        Format::Json | Format::Jsonl => context.term.line(&json::line(&report.json())),
        Format::Name => context.term.line(&report.run.app),
    }
    if let Home::Kept(dir) = &home {
        context.term.say(&format!("kept   {}: data, parts, results, job files", dir.display()));
    }
    Ok(report.exit())
}

fn check(args: &Demo) -> Result<(), Failure> {
    match args.share {
        Some(share) if args.input.is_none() && !(SHARES.0..=SHARES.1).contains(&share) => {
            Err(Failure::new(Exit::Usage, format!("--share {share} does not suit the generated data set"))
                .help(format!("write a size from {} to {}, or bring data with --input FILE", SHARES.0, SHARES.1)))
        }
        Some(_) | None => Ok(()),
    }
}

async fn play(context: &Context, args: &Demo, dir: &Path) -> Result<Report, Failure> {
    let data = prepare(context, args, dir).await?;
    if context.addr_named {
        return show(context, args, &context.client()?, &data, dir).await;
    }
    let wish = Wish {
        nodes: 1,
        memory: None,
        cpus: Some(Cpus::from_cores(std::thread::available_parallelism().map_or(CPUS, |n| n_cpus(n.get())))),
        enforcer: args.enforcer,
        listen: ([127, 0, 0, 1], 0).into(),
        keep: Some(dir.join("cluster")),
    };
    let cluster = Cluster::start(&wish).await?;
    for node in cluster.nodes() {
        let label = if node.enforcer.is_kernel() { "" } else { " (not kernel-enforced)" };
        context.term.say(&format!("node   {} offers {} · enforcer {}{label}", node.node, node.offers, node.enforcer));
    }
    let client = Client::new(cluster.url())?;
    // From here on an interruption must end every container first.
    let shown = tokio::select! {
        shown = show(context, args, &client, &data, dir) => shown,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Failed, "interrupted; every container was ended")),
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

async fn prepare(context: &Context, args: &Demo, dir: &Path) -> Result<Data, Failure> {
    let wanted = Wanted {
        input: args.input.clone(),
        key: args.key.clone(),
        value: args.value.clone(),
        partitions: args.partitions,
        share: args.share,
        dir: dir.to_owned(),
    };
    let term = context.term;
    let made = tokio::task::spawn_blocking(move || data::prepare(&wanted, &term)).await;
    let mut data =
        made.map_err(|e| Failure::new(Exit::Failed, format!("the data set was not made: {e}")))?.map_err(|e| refused(&e))?;
    if !data.generated && args.share.is_none() {
        data.share = probe(context, &data, dir).await?;
    }
    Ok(data)
}

/// Mistakes in the user's data are usage errors; a disk that is full is not.
fn refused(e: &DemoError) -> Failure {
    let exit = match e {
        DemoError::File { source, .. } if source.kind() != std::io::ErrorKind::NotFound => Exit::Failed,
        DemoError::File { .. } | DemoError::Csv(_) | DemoError::NoRows { .. } | DemoError::NoNumbers { .. } => Exit::Usage,
    };
    Failure::new(exit, e.to_string())
}

/// Groups the median partition once without a limit, and takes a quarter more than it needed as the share.
async fn probe(context: &Context, data: &Data, dir: &Path) -> Result<Bytes, Failure> {
    let Some(part) = data::median(&data.parts) else { return Ok(data.share) };
    let output = tokio::process::Command::new(program()?)
        .args(["sample", "group-by", "--input"])
        .arg(&part.path)
        .arg("--output")
        .arg(dir.join("probe.csv"))
        .kill_on_drop(true)
        .output();
    let wrong = |e: String| Failure::new(Exit::Failed, format!("the median partition {} could not be measured: {e}", part.index));
    let output =
        tokio::time::timeout(PATIENCE, output).await.map_err(|e| wrong(e.to_string()))?.map_err(|e| wrong(e.to_string()))?;
    let done: Done =
        serde_json::from_slice(&output.stdout).map_err(|_| wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
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

/// This program, which is also what the tasks run.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::new(Exit::Failed, format!("this program's own file cannot be found: {e}")))
}

async fn show(context: &Context, args: &Demo, client: &Client, data: &Data, dir: &Path) -> Result<Report, Failure> {
    let enforcers = client.status().await?.enforcers;
    let run = one_run(context, client, data, dir, args.mode).await?;
    let fixed = if args.no_fixed {
        None
    } else {
        context.term.say("again  the same job in mode fixed: the same size every time");
        Some(one_run(context, client, data, dir, Mode::Fixed).await?)
    };
    let fixed = fixed.map(|f| Fixed { finished: f.finished, kills: f.totals.memory_kills, wall: f.wall });
    Ok(Report { enforcer: enforcers.join(","), generated: data.generated, share: data.share, run, fixed })
}

async fn one_run(context: &Context, client: &Client, data: &Data, dir: &Path, mode: Mode) -> Result<Run, Failure> {
    let out = dir.join(mode.as_str());
    let unwritable = |e: std::io::Error| Failure::new(Exit::Failed, format!("{}: {e}", out.display()));
    std::fs::create_dir_all(&out).map_err(unwritable)?;
    let partitions = u32::try_from(data.parts.len()).unwrap_or(u32::MAX);
    let text = job::text("group-by", mode, data.share, partitions, &program()?, dir, &out);
    let file = dir.join(format!("group-by-{}.toml", mode.as_str()));
    std::fs::write(&file, text).map_err(unwritable)?;
    let job = submit::load(&file, None)?;
    submit::refuse_what_never_fits(&job.spec, &client.nodes().await?)?;
    let started = Instant::now();
    let id = submit::submit(client, &job).await?.app;
    context.term.say(&format!(
        "job    {id}: {} on {} executors × {} slots of {}, mode {}",
        count(partitions, "task"),
        job::EXECUTORS,
        job::SLOTS,
        data.share,
        mode.as_str()
    ));
    let app = tokio::time::timeout(PATIENCE, submit::stay(context, client, &id, false)).await;
    let app =
        app.map_err(|_| Failure::new(Exit::WaitTimeout, format!("{id} has not ended after {} s", PATIENCE.as_secs())))??;
    let wall = started.elapsed();
    let result = judge(data, &app, &out).await?;
    Ok(Run::of(&app, mode, wall, result))
}

/// Compares the results of a run that finished with the reference.
async fn judge(data: &Data, app: &AppView, out: &Path) -> Result<Option<Verdict>, Failure> {
    if app.state != AppState::Finished {
        return Ok(None);
    }
    let outputs: Vec<PathBuf> = data.parts.iter().map(|p| out.join(format!("out-{}.csv", p.index))).collect();
    let (input, columns, result) = (data.input.clone(), data.columns.clone(), out.join("result.csv"));
    let compared = tokio::task::spawn_blocking(move || compare(&input, &columns, &outputs, &result)).await;
    let compared = compared.map_err(|e| Failure::new(Exit::Failed, format!("the result was not compared: {e}")))?;
    compared.map(Some).map_err(|e| Failure::new(Exit::Failed, format!("the result cannot be compared: {e}")))
}
