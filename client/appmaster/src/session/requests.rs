//! The requests of the master as the resource manager has them: those that it accepted, and those
//! that are sent again although they are unchanged.

use std::collections::BTreeMap;

use headroom_types::RequestId;
use headroom_wire::v1::application_master::PlacementRequest;

/// The requests that were sent to the resource manager.
#[derive(Debug, Default)]
pub(super) struct SentRequests {
    /// Requests that the resource manager accepted in this epoch.
    accepted: BTreeMap<RequestId, PlacementRequest>,
    /// The requests of the synchronisation in progress.
    in_progress: Vec<PlacementRequest>,
    /// Requests that are sent again although they are unchanged, until a synchronisation is
    /// answered that acknowledges this cursor. The resource manager counts an acknowledged end
    /// again until it receives the master's own count. A synchronisation without an answer may or
    /// may not have been processed.
    owed: BTreeMap<RequestId, u64>,
    /// The cursor that the synchronisation in progress acknowledges.
    acknowledged: u64,
}

/// The requests of one synchronisation.
#[derive(Debug)]
pub(super) struct RequestChanges {
    pub(super) changed: Vec<PlacementRequest>,
    pub(super) withdrawn: Vec<RequestId>,
}

impl SentRequests {
    /// Selects the requests for a synchronisation that acknowledges `acknowledged`.
    pub(super) fn select(
        &mut self,
        open: Vec<PlacementRequest>,
        spent: Vec<RequestId>,
        acknowledged: u64,
    ) -> RequestChanges {
        self.acknowledged = acknowledged;
        let is_new = |request: &PlacementRequest| {
            self.owed.contains_key(&request.request)
                || self.accepted.get(&request.request) != Some(request)
        };
        let changed: Vec<PlacementRequest> = open.into_iter().filter(is_new).collect();
        let withdrawn: Vec<RequestId> = spent
            .into_iter()
            .filter(|id| self.owed.contains_key(id) || self.accepted.contains_key(id))
            .collect();
        for id in &withdrawn {
            self.accepted.remove(id);
            self.owed.entry(id.clone()).or_insert(0);
        }
        self.in_progress.clone_from(&changed);
        RequestChanges { changed, withdrawn }
    }

    /// Ends the synchronisation in progress with an answer, and returns its requests.
    pub(super) fn take_answered(&mut self) -> Vec<PlacementRequest> {
        let acknowledged = self.acknowledged;
        self.owed.retain(|_, cursor| *cursor > acknowledged);
        std::mem::take(&mut self.in_progress)
    }

    /// Notes that the resource manager accepted a request.
    pub(super) fn accept(&mut self, request: PlacementRequest) {
        self.accepted.insert(request.request.clone(), request);
    }

    /// Ends the synchronisation in progress without an answer.
    pub(super) fn drop_unanswered(&mut self) {
        self.in_progress.clear();
    }

    /// Marks all requests to be sent again, because the resource manager may not have the last
    /// ones.
    pub(super) fn send_all_again(&mut self) {
        for id in std::mem::take(&mut self.accepted).into_keys() {
            self.owed.entry(id).or_insert(0);
        }
    }

    /// Notes a registration: the resource manager has no requests, and may number its updates from
    /// the start.
    pub(super) fn on_registered(&mut self) {
        self.accepted.clear();
        self.owed.values_mut().for_each(|cursor| *cursor = 0);
    }

    /// Notes the end of a container of this request.
    pub(super) fn on_container_exited(&mut self, request: RequestId, cursor: u64) {
        self.owed.insert(request, cursor);
    }
}
