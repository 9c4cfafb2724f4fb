//! Refuses jobs that no node of the cluster can run, before they are submitted.
//!
//! It compares a compiled job with the nodes that the resource manager lists.

use headroom_config::job::{
    GrowthRefusal, GrowthSetting, InfeasibleStage, growth, growth_problems,
};
use headroom_config::{JobSpec, StageSpec};
use headroom_wire::v1::nodes::NodeView;

use super::job_file::CompiledJob;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// Nodes that accept work now or may do so again.
pub(super) fn candidates(nodes: &[NodeView]) -> impl Iterator<Item = &NodeView> {
    nodes.iter().filter(|n| n.state != "lost")
}

/// Refuses a job with a stage that fits on no node. The error names the largest node.
pub(crate) fn refuse_infeasible(job: &JobSpec, nodes: &[NodeView]) -> CommandResult<()> {
    if candidates(nodes).next().is_none() {
        return Ok(());
    }
    if let Some(set) = job
        .executors
        .iter()
        .find(|set| !candidates(nodes).any(|n| set.place.matches_node(&n.id, &n.traits)))
    {
        let what = format!(
            "{} cannot run here: no node is {}, as [executors.{}] requires",
            job.name, set.place, set.name
        );
        return Err(CommandFailure::new(CommandExitCode::Never, what)
            .help("rmctl node list -o wide shows labels and taints"));
    }
    refuse_large_executors(job, nodes)?;
    let fails = |stage: &StageSpec, n: &NodeView| {
        headroom_config::job::infeasible_stages(job, &n.offers)
            .into_iter()
            .find(|f| f.stage == stage.name)
    };
    let never = job.stages.iter().filter_map(|stage| {
        let set = job.executors_of(stage)?;
        let suits = || candidates(nodes).filter(|n| set.place.matches_node(&n.id, &n.traits));
        let largest = suits().max_by_key(|n| n.offers.memory)?;
        let nowhere = suits().all(|n| fails(stage, n).is_some());
        nowhere
            .then(|| Some((fails(stage, largest)?, largest)))
            .flatten()
    });
    let never: Vec<(InfeasibleStage, &NodeView)> = never.collect();
    let Some((first, largest)) = never.first() else {
        return Ok(());
    };
    let place = format!("the largest node is {} with {}", largest.id, largest.offers);
    let failure = CommandFailure::new(
        CommandExitCode::Never,
        format!("{} can never run here: {}", job.name, first.sentence),
    )
    .help(place);
    Err(never
        .iter()
        .skip(1)
        .fold(failure, |f, (n, _)| f.help(format!("also {}", n.sentence))))
}

/// Refuses a live job with executors that fit on no node: a later stage may use any of them.
fn refuse_large_executors(job: &JobSpec, nodes: &[NodeView]) -> CommandResult<()> {
    if job.live.is_none() {
        return Ok(());
    }
    for set in &job.executors {
        let needs = set.profile.resource();
        let suits = || candidates(nodes).filter(|n| set.place.matches_node(&n.id, &n.traits));
        let largest = suits().max_by_key(|n| n.offers.memory);
        if let Some(largest) = largest
            && !suits().any(|n| needs.fits(&n.offers))
        {
            let what = format!(
                "{} can never run here: an executor of {:?} needs {needs}",
                job.name,
                set.name.as_str()
            );
            let place = format!("the largest node is {} with {}", largest.id, largest.offers);
            return Err(CommandFailure::new(CommandExitCode::Never, what)
                .help(place)
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
    nodes: &[NodeView],
) -> CommandResult<()> {
    let why = |stage: &StageSpec| match stage.grow {
        GrowthSetting::Stated(_) if !growth::mode_allows_growth(job.mode) => {
            Some(GrowthRefusal::Mode(job.mode))
        }
        GrowthSetting::Stated(_) if polls(&job.spec, stage, nodes) => Some(GrowthRefusal::PollOnly),
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
pub(crate) fn polls(job: &JobSpec, stage: &StageSpec, nodes: &[NodeView]) -> bool {
    let Some(set) = job.executors_of(stage) else {
        return false;
    };
    let mut suits = candidates(nodes)
        .filter(|n| set.place.matches_node(&n.id, &n.traits))
        .peekable();
    suits.peek().is_some() && suits.all(|n| !n.enforcer.is_kernel())
}

#[cfg(test)]
mod tests {
    use headroom_types::exit::EnforcerKind;
    use headroom_wire::v1::job::MemoryFailureMode;

    use super::*;
    use crate::cmd::job_file::sample_job;
    use crate::render::fixture;

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
        let nodes = fixture::nodes();
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
        let mut nodes = fixture::nodes();
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
            refuse_infeasible(&sample_job("64GiB").spec, &fixture::nodes()).expect_err("too large");
        assert_eq!(refused.exit() as u8, 7);
        assert!(refused.to_string().contains("worker-03"), "{refused}");
        assert_eq!(
            refuse_infeasible(&sample_job("20GiB").spec, &fixture::nodes()),
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
        let kernel = fixture::nodes();
        let mut poll = fixture::nodes();
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
