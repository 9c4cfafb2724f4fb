//! Refuses jobs that no node of the cluster can run, before they are submitted.
//!
//! It compares a compiled job with the groups of equal nodes that the resource manager lists: nodes
//! that accept work now or may do so again.

use headroom_config::job::{
    GrowthRefusal, GrowthSetting, InfeasibleStage, NodeConstraints, growth, growth_problems,
};
use headroom_config::{JobSpec, StageSpec};
use headroom_types::NodeId;
use headroom_wire::v1::node_groups::NodeGroup;

use super::job_file::CompiledJob;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// A node of the group that satisfies the constraints, regardless of its taints.
fn suitable_node<'a>(place: &NodeConstraints, group: &'a NodeGroup) -> Option<&'a NodeId> {
    let mut nodes = group.nodes.iter();
    nodes.find(|node| place.matches_node(node, &group.traits))
}

/// The groups with a suitable node, each with one of its suitable nodes.
fn suitable<'a>(
    place: &'a NodeConstraints,
    groups: &'a [NodeGroup],
) -> impl Iterator<Item = (&'a NodeId, &'a NodeGroup)> {
    groups
        .iter()
        .filter_map(|group| Some((suitable_node(place, group)?, group)))
}

/// The group with the largest suitable nodes.
fn largest<'a>(
    place: &'a NodeConstraints,
    groups: &'a [NodeGroup],
) -> Option<(&'a NodeId, &'a NodeGroup)> {
    suitable(place, groups).max_by_key(|(_, group)| group.offers.memory)
}

fn largest_node_text(node: &NodeId, group: &NodeGroup) -> String {
    format!("the largest node is {node} with {}", group.offers)
}

/// Refuses a job with a stage that fits on no node. The error names the largest node.
pub(crate) fn refuse_infeasible(job: &JobSpec, groups: &[NodeGroup]) -> CommandResult<()> {
    if groups.is_empty() {
        return Ok(());
    }
    if let Some(set) = job
        .executors
        .iter()
        .find(|set| suitable(&set.place, groups).next().is_none())
    {
        let what = format!(
            "{} cannot run here: no node is {}, as [executors.{}] requires",
            job.name, set.place, set.name
        );
        return Err(CommandFailure::new(CommandExitCode::Never, what)
            .help("rmctl node list -o wide shows labels and taints"));
    }
    refuse_large_executors(job, groups)?;
    let fails = |stage: &StageSpec, group: &NodeGroup| {
        headroom_config::job::infeasible_stages(job, &group.offers)
            .into_iter()
            .find(|f| f.stage == stage.name)
    };
    let never = job.stages.iter().filter_map(|stage| {
        let set = job.executors_of(stage)?;
        let (node, group) = largest(&set.place, groups)?;
        let nowhere = suitable(&set.place, groups).all(|(_, group)| fails(stage, group).is_some());
        nowhere
            .then(|| Some((fails(stage, group)?, node, group)))
            .flatten()
    });
    let never: Vec<(InfeasibleStage, &NodeId, &NodeGroup)> = never.collect();
    let Some((first, node, group)) = never.first() else {
        return Ok(());
    };
    let place = largest_node_text(node, group);
    let failure = CommandFailure::new(
        CommandExitCode::Never,
        format!("{} can never run here: {}", job.name, first.sentence),
    )
    .help(place);
    Err(never
        .iter()
        .skip(1)
        .fold(failure, |f, (n, ..)| f.help(format!("also {}", n.sentence))))
}

/// Refuses a live job with executors that fit on no node: a later stage may use any of them.
fn refuse_large_executors(job: &JobSpec, groups: &[NodeGroup]) -> CommandResult<()> {
    if job.live.is_none() {
        return Ok(());
    }
    for set in &job.executors {
        let needs = set.profile.resource();
        if let Some((node, group)) = largest(&set.place, groups)
            && !suitable(&set.place, groups).any(|(_, group)| needs.fits(&group.offers))
        {
            let what = format!(
                "{} can never run here: an executor of {:?} needs {needs}",
                job.name,
                set.name.as_str()
            );
            return Err(CommandFailure::new(CommandExitCode::Never, what)
                .help(largest_node_text(node, group))
                .help(format!(
                    "use a smaller profile for [executors.{}]",
                    set.name
                )));
        }
    }
    Ok(())
}

/// Refuses a stage with `grow = true` where growth is impossible. The error has the stage's place
/// in the file.
pub(crate) fn refuse_growth(
    job: &CompiledJob,
    file: &str,
    groups: &[NodeGroup],
) -> CommandResult<()> {
    let why = |stage: &StageSpec| match stage.grow {
        GrowthSetting::Stated(_) if !growth::mode_allows_growth(job.mode) => {
            Some(GrowthRefusal::Mode(job.mode))
        }
        GrowthSetting::Stated(_) if polls(&job.spec, stage, groups) => {
            Some(GrowthRefusal::PollOnly)
        }
        GrowthSetting::Stated(_) | GrowthSetting::Usual(_) | GrowthSetting::Off => None,
    };
    let refused: Vec<(&StageSpec, GrowthRefusal)> = job
        .spec
        .stages
        .iter()
        .filter_map(|stage| Some((stage, why(stage)?)))
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(growth_problems(&job.text, file, &refused).into())
    }
}

/// True if nodes can run the stage and all of them limit memory by polling only.
pub(crate) fn polls(job: &JobSpec, stage: &StageSpec, groups: &[NodeGroup]) -> bool {
    let Some(set) = job.executors_of(stage) else {
        return false;
    };
    let mut suitable = suitable(&set.place, groups).peekable();
    suitable.peek().is_some() && suitable.all(|(_, group)| !group.enforcer.is_kernel())
}

#[cfg(test)]
mod tests {
    use headroom_types::exit::EnforcerKind;
    use headroom_wire::v1::job::MemoryFailureMode;

    use super::*;
    use crate::cmd::job_file::sample_job;
    use crate::render::fixture;

    fn node_groups() -> Vec<NodeGroup> {
        NodeGroup::group(&fixture::nodes())
    }

    #[test]
    fn executors_of_a_live_job_without_stages_must_fit() {
        let live = |memory: &str| {
            let text = format!(
                "version = 1\nname = \"open\"\nlive = true\n[profiles.exec]\nheap = \"{memory}\"\ncpus = 1\n\
                 [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 2\n"
            );
            headroom_config::job::compile(&text, "job.toml")
                .unwrap_or_else(|p| panic!("{}", headroom_config::render(&p)))
        };
        let nodes = node_groups();
        assert_eq!(refuse_infeasible(&live("1GiB"), &nodes), Ok(()));
        let refused = refuse_infeasible(&live("900GiB"), &nodes).expect_err("too large");
        assert_eq!(refused.exit(), CommandExitCode::Never);
        let text = refused.to_string();
        assert!(
            text.contains("an executor of \"main\" needs 900 GiB"),
            "{text}"
        );
    }

    #[test]
    fn an_unmatched_node_constraint_is_refused_with_its_table() {
        let mut nodes = node_groups();
        nodes.iter_mut().for_each(|n| {
            n.traits.taints = [("etl".parse().expect("a name"), String::new())].into()
        });
        assert_eq!(
            refuse_infeasible(&sample_job("1GiB").spec, &nodes),
            Ok(()),
            "the job waits, because taints can be removed"
        );
        nodes.iter_mut().for_each(|n| n.traits.exclusive = true);
        let refused = refuse_infeasible(&sample_job("1GiB").spec, &nodes)
            .expect_err("kept for others")
            .to_string();
        assert!(
            refused.contains("no node is open to all requests, as [executors.main] requires"),
            "{refused}"
        );
        nodes[0].traits.exclusive = false;
        assert_eq!(refuse_infeasible(&sample_job("1GiB").spec, &nodes), Ok(()));
        let large = refuse_infeasible(&sample_job("20GiB").spec, &nodes)
            .expect_err("the large one is kept for others")
            .to_string();
        assert!(large.contains("worker-01 with 15 GiB"), "{large}");
    }

    #[test]
    fn an_infeasible_job_is_refused_with_the_largest_node() {
        let refused =
            refuse_infeasible(&sample_job("64GiB").spec, &node_groups()).expect_err("too large");
        assert_eq!(refused.exit() as u8, 7);
        assert!(refused.to_string().contains("worker-03"), "{refused}");
        assert_eq!(
            refuse_infeasible(&sample_job("20GiB").spec, &node_groups()),
            Ok(())
        );
        assert_eq!(
            refuse_infeasible(&sample_job("64GiB").spec, &[]),
            Ok(()),
            "a node may still come"
        );
    }

    #[test]
    fn impossible_growth_is_refused_with_its_place_in_the_file() {
        let asked = |mode: MemoryFailureMode| {
            let text = sample_job("1GiB").text + "grow = true\n";
            let spec = headroom_config::job::compile(&text, "job.toml").expect("compiles");
            CompiledJob {
                spec,
                text,
                mode,
                ..sample_job("1GiB")
            }
        };
        let kernel = node_groups();
        let mut poll = node_groups();
        poll.iter_mut()
            .for_each(|n| n.enforcer = EnforcerKind::Poll);
        assert_eq!(
            refuse_growth(&asked(MemoryFailureMode::Headroom), "job.toml", &kernel),
            Ok(())
        );
        assert_eq!(
            refuse_growth(&asked(MemoryFailureMode::Headroom), "job.toml", &[]),
            Ok(()),
            "a node may still come"
        );
        assert_eq!(
            refuse_growth(&sample_job("1GiB"), "job.toml", &poll),
            Ok(()),
            "the default is off without an error"
        );
        for (mode, nodes, word) in [
            (MemoryFailureMode::Headroom, &poll, "poll"),
            (MemoryFailureMode::Uber, &kernel, "mode uber"),
        ] {
            let refused = refuse_growth(&asked(mode), "job.toml", nodes)
                .expect_err(word)
                .to_string();
            assert!(
                refused.contains("job.toml:13:")
                    && refused.contains(word)
                    && refused.contains("remove grow"),
                "{refused}"
            );
        }
        assert!(
            polls(
                &sample_job("1GiB").spec,
                &sample_job("1GiB").spec.stages[0],
                &poll
            ),
            "the plan shows it"
        );
    }
}
