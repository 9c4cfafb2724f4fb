//! `rmctl job init, validate, plan`: job files before they are submitted.

use std::io::Write as _;
use std::path::Path;

use headroom_config::JobSpec;
use headroom_config::job::NodeConstraints;
use headroom_types::{Name, Resource};
use headroom_wire::v1::node_groups::NodeGroup;
use headroom_wire::v1::nodes::NodeView;

use super::feasibility::{polls, refuse_growth, refuse_infeasible};
use super::job_file::load;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{count, figures::short, plan};

/// A job file with the keys that most jobs need.
const DRAFT: &str = r#"# Check it: rmctl job validate FILE      Look ahead: rmctl job plan FILE      Run it: rmctl submit FILE --follow
version = 1
name = "NAME"

[profiles.exec]                 # a container that tasks share
memory = "512MiB"
cpus = 1

[executors.main]                # equal containers; a task takes a slot of one
profile = "exec"
count = 1
slots = 2
reserve = "32MiB"               # of the executor itself

[[stage]]
name = "work"
array = "0-3"                   # a task for each number
command = ["echo", "task {index}, attempt {attempt}"]
timeout = "10m"

[retry]
memory_attempts = 4             # after a memory kill: more slots, then a container of its own, larger each time
"#;

/// Writes a new job file.
pub(super) fn init(context: &CommandContext, name: &Name, to: Option<&Path>) -> CommandResult {
    let text = DRAFT.replace("NAME", name.as_str());
    let Some(path) = to else {
        context.term.print(&text);
        return Ok(CommandExitCode::Ok);
    };
    let failed = |e: std::io::Error| {
        let exit = if e.kind() == std::io::ErrorKind::AlreadyExists {
            CommandExitCode::Conflict
        } else {
            CommandExitCode::Failed
        };
        CommandFailure::new(exit, format!("{}: {e}", path.display()))
    };
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    context.term.line(&format!(
        "{} written\nnext: rmctl job plan {}",
        path.display(),
        path.display()
    ));
    Ok(CommandExitCode::Ok)
}

/// Reports all mistakes of a file, or that there are none.
pub(super) async fn validate(context: &CommandContext, file: &Path) -> CommandResult {
    let job = load(context, file, None).await?;
    let stages = u64::try_from(job.spec.stages.len()).unwrap_or(u64::MAX);
    let what = format!(
        "{} in {}",
        count(job.spec.tasks(), "task"),
        count(stages, "stage")
    );
    context.term.print(&plan::named(&job.named));
    context.term.line(&format!(
        "{} is valid: {what}\nnext: rmctl job plan {}",
        file.display(),
        file.display()
    ));
    Ok(CommandExitCode::Ok)
}

/// Prints the plan of a file, and whether the cluster has enough free memory for it now.
pub(super) async fn plan(context: &CommandContext, file: &Path) -> CommandResult {
    let job = load(context, file, None).await?;
    let nodes = context.client()?.nodes().await?;
    let groups = NodeGroup::group(&nodes);
    refuse_infeasible(&job.spec, &groups)?;
    refuse_growth(&job, &file.display().to_string(), &groups)?;
    let largest = groups.iter().map(|group| group.offers.memory).max();
    context
        .term
        .print(&plan::plan(&job.spec, job.mode, largest, |stage| {
            polls(&job.spec, stage, &groups)
        }));
    context.term.print(&plan::named(&job.named));
    let (wanted, fit) = fits_now(&job.spec, &nodes);
    let paint = context.term.paint;
    if fit == wanted {
        context.term.line(&format!(
            "now   {}",
            paint.good(&format!("✓ all {} fit", count(wanted, "executor")))
        ));
        context
            .term
            .line(&paint.dim(&format!("next: rmctl submit {} --follow", file.display())));
        return Ok(CommandExitCode::Ok);
    }
    let room = nodes
        .iter()
        .filter(|n| n.state == "ready")
        .filter_map(|n| n.offers.checked_sub(&n.allocated))
        .map(|r| r.memory)
        .max();
    let best = room.map_or_else(
        || "no node is ready".to_owned(),
        |room| format!("the most free memory on a node is {}", short(room)),
    );
    context.term.line(&format!(
        "now   {}",
        paint.warn(&format!(
            "… {fit} of {} fit; {best}",
            count(wanted, "executor")
        ))
    ));
    context.term.line(&paint.dim("next: rmctl node list"));
    Ok(CommandExitCode::NotNow)
}

/// The initial number of executors, and how many of them fit into the free resources. The largest
/// executors are placed first.
fn fits_now(job: &JobSpec, nodes: &[NodeView]) -> (u32, u32) {
    let ready = nodes.iter().filter(|n| n.state == "ready");
    let mut room: Vec<(Resource, &NodeView)> = ready
        .filter_map(|n| Some((n.offers.checked_sub(&n.allocated)?, n)))
        .collect();
    let sets = job
        .executors
        .iter()
        .map(|set| ((set.profile.resource(), &set.place), set.count));
    let mut wanted: Vec<(Resource, &NodeConstraints)> = sets
        .flat_map(|(one, count)| std::iter::repeat_n(one, usize::try_from(count).unwrap_or(0)))
        .collect();
    wanted.sort_by_key(|(size, _)| std::cmp::Reverse(size.memory));
    let mut fit: u32 = 0;
    for (size, place) in &wanted {
        let found = room
            .iter_mut()
            .find(|(room, node)| size.fits(room) && place.allows_node(&node.id, &node.traits))
            .map(|(room, _)| room);
        if let Some(left) = found.as_ref().and_then(|room| room.checked_sub(size))
            && let Some(room) = found
        {
            *room = left;
            fit += 1;
        }
    }
    (u32::try_from(wanted.len()).unwrap_or(u32::MAX), fit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn the_draft_compiles() {
        let text = DRAFT.replace("NAME", "etl");
        let job = headroom_config::job::compile(&text, "job.toml")
            .unwrap_or_else(|p| panic!("{}", headroom_config::render(&p)));
        assert_eq!((job.name.as_str(), job.tasks()), ("etl", 4));
    }

    #[test]
    fn free_memory_is_counted_once() {
        let job = |memory: &str, count: u32| {
            let text = DRAFT
                .replace("NAME", "etl")
                .replace("512MiB", memory)
                .replace("count = 1", &format!("count = {count}"));
            headroom_config::job::compile(&text, "job.toml").expect("compiles")
        };
        // Free on ready nodes: 4.2, 9.6 and 15 GiB.
        assert_eq!(fits_now(&job("4GiB", 3), &fixture::nodes()), (3, 3));
        assert_eq!(fits_now(&job("9GiB", 3), &fixture::nodes()), (3, 2));
        assert_eq!(fits_now(&job("20GiB", 1), &fixture::nodes()), (1, 0));
        assert_eq!(fits_now(&job("1GiB", 1), &[]), (1, 0));
        let mut nodes = fixture::nodes();
        nodes.iter_mut().for_each(|n| {
            n.traits.taints = [("etl".parse().expect("a name"), String::new())].into()
        });
        assert_eq!(
            fits_now(&job("1GiB", 1), &nodes),
            (1, 0),
            "every node is tainted"
        );
    }
}
