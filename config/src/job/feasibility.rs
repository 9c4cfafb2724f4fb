//! Detection of infeasible tasks.

use headroom_types::{Bytes, Name, Resource};

use super::spec::{JobSpec, StageSpec};

/// An infeasible stage: no node could ever run its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfeasibleStage {
    /// The stage.
    pub stage: Name,
    /// The required container.
    pub needs: Resource,
    /// The largest possible container.
    pub largest: Resource,
    /// The reason and the correction in one sentence.
    pub sentence: String,
}

/// The infeasible stages if `largest` is the largest container that any node could grant. Their
/// tasks fit neither a shared executor nor a container of their own.
pub fn infeasible_stages(job: &JobSpec, largest: &Resource) -> Vec<InfeasibleStage> {
    job.stages
        .iter()
        .filter_map(|stage| infeasible_stage(job, stage, largest))
        .collect()
}

/// The error if no node could ever run the tasks of `stage`, whose executors are those of `job`.
pub fn infeasible_stage(
    job: &JobSpec,
    stage: &StageSpec,
    largest: &Resource,
) -> Option<InfeasibleStage> {
    let set = job.executors_of(stage)?;
    let memory = stage.profile.memory();
    let slots = set.slots_for(memory).max(stage.cpus_per_task);
    let shared = set.profile.resource();
    if slots <= set.slots {
        return (!shared.fits(largest)).then(|| {
            let sentence = format!(
                "stage {}: an executor of \"{}\" needs {shared}, and the largest container here is {largest}; \
                 use a smaller profile for [executors.{}], or add a larger node",
                stage.name, set.name, set.name
            );
            InfeasibleStage { stage: stage.name.clone(), needs: shared.clone(), largest: largest.clone(), sentence }
        });
    }
    let needs = Resource::new(own_container(memory, set.reserve), stage.profile.cpus);
    (!needs.fits(largest)).then(|| {
        let sentence = format!(
            "stage {}: a task needs a container of {needs}, and the largest here is {largest}; \
             use a smaller profile, split its input, or add a larger node",
            stage.name
        );
        InfeasibleStage {
            stage: stage.name.clone(),
            needs: needs.clone(),
            largest: largest.clone(),
            sentence,
        }
    })
}

/// Memory of a container for one task of this size, with the reserve of the executor.
pub fn own_container(task: Bytes, reserve: Bytes) -> Bytes {
    task.saturating_add(reserve)
}
