//! `rmctl job replay`: recorded tasks under other sizing modes and on other nodes.

use headroom_appmaster::replay::{
    self, ClusterShape, GrowthChoice, ReplayScenario, StatedNodes, trace,
};
use headroom_wire::v1::error::ErrorCode;

use super::job_trace::fetch_trace;
use crate::args::JobReplayArgs;
use crate::context::CommandContext;
use crate::exit::{CommandFailure, CommandResult};
use crate::progress::ProgressLine;
use crate::render::json::MachineOutput;
use crate::render::replay as screen;

/// Runs the replay.
pub(super) async fn run(context: &CommandContext, args: JobReplayArgs) -> CommandResult {
    let scenario = scenario(&args)?;
    let wrong = |e: trace::TraceError| CommandFailure::usage(e.to_string());
    let datasets = match (&args.traces, &args.job) {
        (Some(path), _) => trace::read(path).map_err(wrong)?,
        (None, Some(job)) => trace::parse(&fetch_trace(context, job).await?, job).map_err(wrong)?,
        (None, None) => Vec::new(),
    };
    check_node_memory(&args, &datasets)?;
    let progress = ProgressLine::keys(&context.term, "replayed");
    let work = move || {
        let rows = replay::replay(&datasets, &scenario, &mut |d| progress.at(d.tasks, d.of));
        drop(progress);
        rows
    };
    let rows = tokio::task::spawn_blocking(work).await;
    let rows =
        rows.map_err(|e| CommandFailure::failed(format!("the replay ended by a fault: {e}")))?;
    let text = MachineOutput::list(&rows).text(&context.output, |row| {
        format!("{}/{}", row.dataset, row.mode.as_str())
    });
    Ok(context.show(text, || screen::screen(&rows, context.term.paint)))
}

/// The scenario that the arguments describe.
fn scenario(args: &JobReplayArgs) -> CommandResult<ReplayScenario> {
    let stated = match (args.nodes, args.node_memory) {
        (Some(nodes), None) => {
            let sentence = format!("--nodes {nodes}: the memory of a node is missing");
            return Err(
                CommandFailure::coded(ErrorCode::HR0400, sentence).help(format!(
                    "add it: rmctl job replay --nodes {nodes} --node-memory 128GiB …"
                )),
            );
        }
        (Some(_), Some(_)) => StatedNodes::Nodes,
        (None, Some(_)) => StatedNodes::Memory,
        (None, None) => StatedNodes::Nothing,
    };
    let modes = args.mode.0.clone();
    if let ([mode], true) = (modes.as_slice(), args.growth)
        && !replay::grows(*mode)
    {
        let sentence = format!(
            "--growth: mode {} never grows a running task",
            mode.as_str()
        );
        return Err(CommandFailure::coded(ErrorCode::HR0400, sentence)
            .help("omit --growth, or use --mode headroom"));
    }
    let growth = match (args.growth, args.no_growth) {
        (false, true) => GrowthChoice::Off,
        (false, false) if !args.utilization.is_empty() => GrowthChoice::Both,
        (true, _) | (false, false) => GrowthChoice::On,
    };
    let usual = ClusterShape::default();
    let cluster = ClusterShape {
        nodes: args.nodes.map_or(usual.nodes, usize::from),
        cpus: args.node_cpus,
        memory: args.node_memory.unwrap_or(usual.memory),
    };
    Ok(ReplayScenario {
        modes,
        growth,
        cluster,
        stated,
        utilizations: args.utilization.clone(),
    })
}

/// Refuses nodes that are too small for every task.
fn check_node_memory(
    args: &JobReplayArgs,
    datasets: &[trace::RecordedDataset],
) -> CommandResult<()> {
    let Some(memory) = args.node_memory else {
        return Ok(());
    };
    let tasks = || {
        datasets
            .iter()
            .flat_map(|dataset| dataset.tasks.iter().map(move |task| (&dataset.name, task)))
    };
    let Some((dataset, smallest)) = tasks()
        .min_by_key(|(_, task)| task.peak)
        .filter(|(_, task)| task.peak > memory)
    else {
        return Ok(());
    };
    let sentence = format!(
        "--node-memory {memory}: no task fits a node; the smallest needs {} (dataset {dataset}, task type {})",
        smallest.peak, smallest.kind
    );
    let largest = tasks()
        .map(|(_, task)| task.peak)
        .max()
        .unwrap_or(smallest.peak);
    Err(
        CommandFailure::coded(ErrorCode::HR0400, sentence).help(format!(
            "every task fits a node of {} bytes, {largest}",
            largest.get()
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{JobSubcommand, RmctlArguments, RootSubcommand};
    use crate::exit::CommandExitCode;
    use clap::Parser;
    use headroom_types::Bytes;
    use headroom_wire::v1::job::MemoryFailureMode;

    fn parsed(more: &[&str]) -> JobReplayArgs {
        let line = ["rmctl", "job", "replay", "--traces", "t"]
            .iter()
            .chain(more);
        let parsed = RmctlArguments::try_parse_from(line)
            .expect("can be parsed")
            .verb;
        let RootSubcommand::Job(JobSubcommand::Replay(args)) = parsed else {
            panic!("another verb")
        };
        args
    }

    fn refused(more: &[&str]) -> String {
        scenario(&parsed(more)).expect_err("refused").to_string()
    }

    #[test]
    fn growth_is_the_default_and_utilizations_compare() {
        let growth = |more: &[&str]| scenario(&parsed(more)).expect("accepted").growth;
        assert_eq!(growth(&[]), GrowthChoice::On);
        assert_eq!(
            growth(&["--growth"]),
            GrowthChoice::On,
            "mode all has one that grows"
        );
        assert_eq!(growth(&["--no-growth"]), GrowthChoice::Off);
        assert_eq!(growth(&["--utilization", "0.5,80%"]), GrowthChoice::Both);
        assert_eq!(
            growth(&["--utilization", "0.5", "--no-growth"]),
            GrowthChoice::Off
        );
        assert_eq!(
            parsed(&["--utilization", "0.5,80%"]).utilization,
            [0.5, 0.8]
        );
    }

    #[test]
    fn the_stated_nodes_are_the_nodes() {
        let usual = scenario(&parsed(&[])).expect("accepted");
        assert_eq!(
            (usual.cluster, usual.stated),
            (ClusterShape::default(), StatedNodes::Nothing)
        );
        let two = scenario(&parsed(&[
            "--nodes",
            "2",
            "--node-memory",
            "16GiB",
            "--node-cpus",
            "8",
        ]))
        .expect("accepted");
        assert_eq!(
            two.cluster,
            ClusterShape {
                nodes: 2,
                cpus: 8,
                memory: Bytes::from_gib(16)
            }
        );
        assert_eq!(
            scenario(&parsed(&["--node-memory", "16GiB"]))
                .expect("accepted")
                .stated,
            StatedNodes::Memory
        );
    }

    #[test]
    fn bad_input_names_the_flag_and_the_cure() {
        assert_eq!(
            refused(&["--nodes", "4"]),
            "error[HR0400]: --nodes 4: the memory of a node is missing\n\
             help: add it: rmctl job replay --nodes 4 --node-memory 128GiB …"
        );
        assert_eq!(
            refused(&["--growth", "--mode", "uber"]),
            "error[HR0400]: --growth: mode uber never grows a running task\n\
             help: omit --growth, or use --mode headroom"
        );
        assert!(replay::grows(MemoryFailureMode::Headroom));
    }

    #[test]
    fn a_node_that_holds_no_task_is_refused_with_the_smallest() {
        let head =
            "dataset,task_type,seq,input_bytes,peak_mem_bytes,runtime_s,user_mem_bytes,cpus\n";
        let text = format!("{head}d,sort,0,0,2147483648,1,0,1\nd,join,1,0,4294967296,1,0,1\n");
        let datasets = trace::parse(&text, "made").expect("a trace");
        let refused =
            check_node_memory(&parsed(&["--node-memory", "1GiB"]), &datasets).expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "error[HR0400]: --node-memory 1 GiB: no task fits a node; the smallest needs 2 GiB (dataset d, task type sort)\n\
             help: every task fits a node of 4294967296 bytes, 4 GiB"
        );
        assert_eq!(refused.exit(), CommandExitCode::Usage);
        assert!(check_node_memory(&parsed(&["--node-memory", "2GiB"]), &datasets).is_ok());
        assert!(check_node_memory(&parsed(&[]), &datasets).is_ok());
    }
}
