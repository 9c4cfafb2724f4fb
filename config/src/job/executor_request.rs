//! Requests for the executors of a set: their ids, sizes, places and launches. Pure.
//!
//! The master sends them. The submission of a job contains the first one, so that an executor starts
//! along with the master.

use std::collections::BTreeSet;

use headroom_types::{FetchedFile, LaunchSpec, Name, RequestId, Resource};
use headroom_wire::v1::application_master::{AttributeMatch, Placement, PlacementRequest};

use super::spec::{ExecutorProgram, ExecutorSpec, InputLocality, JobSpec, StageSpec, TaskGroups};

/// The request id of a set's executors.
pub fn set_request(set: &ExecutorSpec) -> Option<RequestId> {
    format!("set-{}", set.name).parse().ok()
}

/// Size of one container of a shared set.
pub fn set_resource(set: &ExecutorSpec) -> Resource {
    set.profile.resource()
}

/// `placement` with the node constraints of the set, except for named nodes.
pub fn constrained(placement: Placement, set: &ExecutorSpec) -> Placement {
    let one_of = |(name, values): (&Name, &BTreeSet<String>)| {
        (name.clone(), AttributeMatch::OneOf(values.clone()))
    };
    Placement {
        labels: set.place.labels.clone(),
        attributes: set.place.attributes.iter().map(one_of).collect(),
        tolerate: set.place.tolerate.clone(),
        ..placement
    }
}

/// The launch of an executor with `slots` slots and the `files` of its tasks. The program is the
/// node's own executor, or that of the job. The master has `secret`, and an address if it runs.
pub fn executor_launch(
    (master_url, secret): (Option<&str>, &str),
    slots: u32,
    files: Vec<FetchedFile>,
    program: Option<&ExecutorProgram>,
) -> LaunchSpec {
    let slots = slots.to_string();
    let env = [
        ("HEADROOM_MASTER_URL", master_url),
        ("HEADROOM_APP_TOKEN", Some(secret)),
        ("HEADROOM_SLOTS", Some(slots.as_str())),
    ];
    LaunchSpec {
        command: program.map_or_else(
            || vec!["executor".to_owned()],
            |program| program.command.clone(),
        ),
        env: env
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect(),
        fetch: files,
        task_groups: program.is_none_or(|program| program.task_groups == TaskGroups::Yes),
        ..LaunchSpec::default()
    }
}

/// The request for one executor of the first stage, which a submission contains. The master will have
/// `secret`. `None` if the job may not need it: its tasks come later, do not fit into an executor of
/// the set, or prefer nodes, or the executor is a program of the job, which needs the address of the
/// master.
pub fn first_request(job: &JobSpec, secret: &str) -> Option<PlacementRequest> {
    let stage = job.stages.iter().find(|stage| stage.after.is_empty())?;
    let set = job.executors_of(stage)?;
    let needed = set
        .slots_for(stage.profile.memory())
        .max(stage.cpus_per_task);
    let is_local = |stage: &StageSpec| stage.input_locality == Some(InputLocality::Local);
    if stage.count == 0
        || needed > set.slots
        || set.program.is_some()
        || job.stages.iter().any(is_local)
    {
        return None;
    }
    let launch = executor_launch((None, secret), set.slots, job.files_for(&set.name), None);
    let mut request = PlacementRequest::new(set_request(set)?, set_resource(set), launch);
    request.nodes = set.place.nodes.iter().cloned().collect();
    *request.placement = constrained(Placement::default(), set);
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first request of a job with these keys of its executors and its stage.
    fn requested(executors: &str, stage: &str) -> Option<PlacementRequest> {
        let text = format!(
            "version = 1\nname = \"job\"\n[profiles.exec]\nmemory = \"256MiB\"\ncpus = 2\n\
             [executors.main]\nprofile = \"exec\"\nslots = 2\n{executors}\n\
             [[stage]]\nname = \"one\"\ncommand = [\"true\"]\n{stage}\n"
        );
        let job = super::super::compile(&text, "job.toml");
        let job = job.unwrap_or_else(|problems| panic!("{}", crate::render(&problems)));
        first_request(&job, "secret")
    }

    #[test]
    fn it_is_for_an_executor_that_does_not_know_its_master() {
        let request = requested("", "").expect("a request");
        assert_eq!((request.request.as_str(), request.count), ("set-main", 1));
        let env = request.launch.env.iter();
        let env: Vec<_> = env.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [("HEADROOM_APP_TOKEN", "secret"), ("HEADROOM_SLOTS", "2")];
        assert_eq!(env, expected);
    }

    #[test]
    fn a_job_that_may_not_need_it_has_none() {
        let program = "program = [\"python3\", \"executor.py\"]";
        assert_eq!(requested(program, ""), None);
        let local = "input_locality = \"local\"\ninput_hosts = [\"worker-1\"]";
        assert_eq!(requested("", local), None);
        let large = "profile = \"large\"\n[profiles.large]\nmemory = \"1GiB\"\ncpus = 1";
        assert_eq!(requested("", large), None, "it needs its own container");
    }
}
