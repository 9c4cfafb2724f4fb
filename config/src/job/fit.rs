//! Which tasks can never run, whatever else ends.

use headroom_types::{Bytes, Name, Resource};

use super::spec::{JobSpec, StageSpec};

/// A stage or executor set that no node could ever give room to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeverFits {
    /// The stage whose tasks cannot run.
    pub stage: Name,
    /// The container that would be needed.
    pub needs: Resource,
    /// The largest container there could be.
    pub largest: Resource,
    /// In one sentence, with what to do.
    pub sentence: String,
}

/// The stages whose tasks can never run where `largest` is the largest container any node could give: neither in a shared
/// executor nor in a container of their own.
pub fn never_fits(job: &JobSpec, largest: &Resource) -> Vec<NeverFits> {
    job.stages.iter().filter_map(|stage| stage_never_fits(job, stage, largest)).collect()
}

fn stage_never_fits(job: &JobSpec, stage: &StageSpec, largest: &Resource) -> Option<NeverFits> {
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
            NeverFits { stage: stage.name.clone(), needs: shared.clone(), largest: largest.clone(), sentence }
        });
    }
    let needs = Resource::new(own_container(memory, set.reserve), stage.profile.cpus);
    (!needs.fits(largest)).then(|| {
        let sentence = format!(
            "stage {}: a task needs a container of {needs}, and the largest here is {largest}; \
             use a smaller profile, split its input, or add a larger node",
            stage.name
        );
        NeverFits { stage: stage.name.clone(), needs: needs.clone(), largest: largest.clone(), sentence }
    })
}

/// Memory of a container that holds one task of this size and the executor's own reserve.
pub fn own_container(task: Bytes, reserve: Bytes) -> Bytes {
    task.saturating_add(reserve)
}
