//! The requests to the resource manager, always as the complete list. Sending the list again
//! changes nothing.

use std::collections::BTreeSet;

use headroom_config::job::executor_request::{constrained, executor_launch};
use headroom_types::{ContainerId, NodeId, RequestId};
use headroom_wire::v1::application_master::PlacementRequest;

use super::MasterCore;
use crate::executors::{DesiredRequest, RequestPurpose};
use crate::spec::{self, ExecutorEnvironment};

impl MasterCore {
    /// All open requests in wire form. Requests for own containers have a higher priority than
    /// those of sets, which grows with the rung.
    pub fn open_requests(&self, greeting: &ExecutorEnvironment) -> Vec<PlacementRequest> {
        self.fleet
            .open()
            .iter()
            .filter_map(|w| self.ask(w, greeting))
            .collect()
    }

    /// Ids of requests that need no further containers.
    pub fn spent_requests(&self) -> Vec<RequestId> {
        self.fleet
            .desired_requests()
            .into_iter()
            .filter(|w| w.count == w.ended)
            .map(|w| w.request)
            .collect()
    }

    /// Containers to stop.
    pub fn releases(&self) -> Vec<ContainerId> {
        self.fleet.releases()
    }

    pub(super) fn desired_fleet(&self) -> (Vec<DesiredRequest>, Vec<ContainerId>) {
        (self.fleet.open(), self.fleet.releases())
    }

    fn ask(
        &self,
        wanted: &DesiredRequest,
        greeting: &ExecutorEnvironment,
    ) -> Option<PlacementRequest> {
        let mut avoid: BTreeSet<NodeId> = self.excluded_nodes().cloned().collect();
        let (resource, priority) = match wanted.purpose {
            RequestPurpose::Set(set) => (spec::set_resource(self.job.executors.get(set)?), 0),
            RequestPurpose::Own(key) => {
                let task = self.tasks.get(key)?;
                let memory = match spec::purpose_of(&self.job, &wanted.request)? {
                    spec::RequestOwner::Own { rung, .. } if rung == task.size.rung => {
                        task.size.memory()
                    }
                    // The container of an earlier rung that is being stopped: its size does not
                    // matter any more.
                    spec::RequestOwner::Own { .. } | spec::RequestOwner::Set(_) => {
                        task.size.memory()
                    }
                };
                let priority = i32::try_from(task.size.rung)
                    .unwrap_or(i32::MAX)
                    .saturating_add(10)
                    .saturating_add(task.priority);
                avoid.extend(task.avoid.node.clone());
                avoid.extend(task.failed_starts().map(|row| row.node.clone()));
                (
                    spec::own_resource(
                        &self.job.retry,
                        self.set_of(key)?,
                        self.stage_of(key)?,
                        (memory, task.size.rung),
                    ),
                    priority,
                )
            }
        };
        let set = self.set_of_purpose(wanted.purpose)?;
        let files = match wanted.purpose {
            RequestPurpose::Own(key) if set.program.is_none() => self.stage_of(key)?.files.clone(),
            // A program of the job may be a file that another stage names.
            RequestPurpose::Own(_) | RequestPurpose::Set(_) => self.job.files_for(&set.name),
        };
        let placement = constrained(self.preference(wanted.purpose, &avoid), set);
        Some(PlacementRequest {
            request: wanted.request.clone(),
            resource,
            count: wanted.count,
            ended: wanted.ended,
            priority,
            avoid_nodes: avoid.into_iter().collect(),
            nodes: set.place.nodes.iter().cloned().collect(),
            placement: Box::new(placement),
            deadline_ms: None,
            waited_ms: 0,
            launch: Box::new(executor_launch(
                (Some(&greeting.master_url), &greeting.token),
                wanted.purpose.slots(&self.job),
                files,
                set.program.as_ref(),
            )),
        })
    }
}
