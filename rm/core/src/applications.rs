//! Table of all kept applications, with their numbers and idempotency keys.
//!
//! The table owns the application records. It knows neither their containers nor their queue.
//!
//! *Invariants*: the list of ended applications contains each application that is over, once, in
//! the order of the ends. No number is given out twice in one incarnation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use headroom_types::{AppId, RequestId, UnixMillis};

use crate::app::ClusterApplication;
use crate::event::{AppSubmission, CallRefusal, UpdateKind};
use crate::request::PendingRequest;
use crate::save::DurableRecord;
use crate::step_context::StepContext;
use crate::table::{RowPosition, SortedTable};

/// Most application numbers that are reserved at once.
const MAX_RESERVED: usize = 10_000;

/// All kept applications.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applications {
    table: SortedTable<AppId, ClusterApplication>,
    /// Applications by user and idempotency key. A user cannot guess the key of another one.
    keys: BTreeMap<(String, String), AppId>,
    /// Ended applications, the oldest end first.
    ended: VecDeque<AppId>,
    /// Highest number that was given out.
    last_number: u32,
    /// Numbers that are reserved and not used. Not saved: a later incarnation gives them out again.
    reserved: BTreeSet<u32>,
}

impl Applications {
    /// Creates an empty table whose numbers follow `last_number`.
    pub(crate) fn new(last_number: u32) -> Self {
        Applications {
            last_number,
            ..Applications::default()
        }
    }
    /// Looks up an application.
    #[inline]
    pub(crate) fn get(&self, id: &AppId) -> Option<&ClusterApplication> {
        self.table.get(id)
    }
    /// Looks up an application, mutable.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: &AppId) -> Option<&mut ClusterApplication> {
        self.table.get_mut(id)
    }
    /// Row of an application.
    #[inline]
    pub(crate) fn row_of(&self, id: &AppId) -> Option<RowPosition> {
        self.table.row_of(id)
    }
    /// Application in a row.
    #[inline]
    pub(crate) fn at(&self, row: RowPosition) -> Option<&ClusterApplication> {
        self.table.at(row)
    }
    /// Application in a row, mutable.
    #[inline]
    pub(crate) fn at_mut(&mut self, row: RowPosition) -> Option<&mut ClusterApplication> {
        self.table.at_mut(row)
    }
    /// All applications, by id.
    pub(crate) fn values(&self) -> impl Iterator<Item = &ClusterApplication> {
        self.table.values()
    }
    /// All ids, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &AppId> {
        self.table.keys()
    }
    /// Ids from `first` on, in order; all ids when `first` is `None`.
    pub(crate) fn ids_from(&self, first: Option<&AppId>) -> impl Iterator<Item = &AppId> {
        self.table.keys_from(first)
    }
    /// Looks up an application for a call.
    pub(crate) fn known(&self, id: &AppId) -> Result<&ClusterApplication, CallRefusal> {
        self.get(id)
            .ok_or_else(|| CallRefusal::NoSuchApp(id.clone()))
    }
    /// Looks up an application for a call, mutable.
    pub(crate) fn known_mut(&mut self, id: &AppId) -> Result<&mut ClusterApplication, CallRefusal> {
        self.get_mut(id)
            .ok_or_else(|| CallRefusal::NoSuchApp(id.clone()))
    }
    /// Looks up an application for a call that needs a live one.
    pub(crate) fn live(&self, id: &AppId) -> Result<&ClusterApplication, CallRefusal> {
        let app = self.known(id)?;
        if app.state.is_ending() {
            return Err(CallRefusal::AppEnding {
                app: id.clone(),
                state: app.state.as_str(),
            });
        }
        Ok(app)
    }
    /// Looks up a request, mutable.
    pub(crate) fn request_mut(
        &mut self,
        app: &AppId,
        request: &RequestId,
    ) -> Option<&mut PendingRequest> {
        self.get_mut(app)?.requests.get_mut(request)
    }
    /// Application that this user submitted with the same idempotency key.
    pub(crate) fn with_key_of(&self, spec: &AppSubmission) -> Option<&ClusterApplication> {
        self.get(self.keys.get(&key_of(spec)?)?)
    }
    /// Number of applications that have not ended.
    pub(crate) fn live_count(&self) -> usize {
        self.table.len().saturating_sub(self.ended.len())
    }

    /// Reserves a number that no other application gets in this incarnation. Beyond
    /// [`MAX_RESERVED`], the oldest unused number is released.
    pub(crate) fn reserve_number(&mut self) -> u32 {
        self.last_number += 1;
        self.reserved.insert(self.last_number);
        if self.reserved.len() > MAX_RESERVED {
            self.reserved.pop_first();
        }
        self.last_number
    }
    /// Number of a new application: the given one, which must be reserved, or the next one.
    pub(crate) fn take_number(&mut self, reserved: Option<u32>) -> Result<u32, CallRefusal> {
        match reserved {
            Some(number) if self.reserved.remove(&number) => Ok(number),
            Some(number) => Err(CallRefusal::NotReserved(number)),
            None => {
                self.last_number += 1;
                Ok(self.last_number)
            }
        }
    }
    /// Adds a new or restored application.
    pub(crate) fn insert(&mut self, app: ClusterApplication) {
        let id = app.id.clone();
        self.last_number = self.last_number.max(id.seq());
        if let Some(key) = key_of(&app.spec) {
            self.keys.insert(key, id.clone());
        }
        if app.state.is_over() {
            self.ended.push_back(id.clone());
        }
        self.table.insert(id, app);
    }
    /// Records that an application has ended.
    pub(crate) fn note_end(&mut self, id: &AppId) {
        self.ended.push_back(id.clone());
    }
    /// Removes the ended application with the oldest end, if there are more than `most` or it ended
    /// more than `age` before `now`.
    pub(crate) fn pop_expired(
        &mut self,
        most: usize,
        age: Duration,
        now: UnixMillis,
    ) -> Option<AppId> {
        let oldest = self.ended.front()?;
        let ended = self.get(oldest).and_then(|app| app.ended);
        let is_old = ended.is_some_and(|at| now.since(at) > age);
        if self.ended.len() <= most && !is_old {
            return None;
        }
        let oldest = self.ended.pop_front()?;
        self.evict(&oldest);
        Some(oldest)
    }
    /// Removes one ended application.
    pub(crate) fn purge(&mut self, id: &AppId) {
        self.ended.retain(|ended| ended != id);
        self.evict(id);
    }
    fn evict(&mut self, id: &AppId) {
        if let Some(app) = self.table.remove(id)
            && let Some(key) = key_of(&app.spec)
        {
            self.keys.remove(&key);
        }
    }

    /// Queues an update for a master, unless its application is ending.
    pub(crate) fn update(&mut self, id: &AppId, what: UpdateKind, ctx: &mut StepContext<'_>) {
        if let Some(app) = self.get_mut(id) {
            app.queue_update(what, ctx);
        }
    }
    /// Saves the state of an application.
    pub(crate) fn save(&self, id: &AppId, ctx: &mut StepContext<'_>) {
        if let Some(app) = self.get(id) {
            ctx.save(DurableRecord::State {
                app: id.clone(),
                state: Box::new(app.saved()),
            });
        }
    }
}

/// User and idempotency key of a submission.
fn key_of(spec: &AppSubmission) -> Option<(String, String)> {
    Some((spec.user.clone(), spec.key.clone()?))
}

#[cfg(any(test, feature = "testkit"))]
impl Applications {
    /// Checks the invariants of the table and of its records.
    pub(crate) fn check(&self) {
        let over = self.values().filter(|app| app.state.is_over());
        assert_eq!(
            over.map(|app| &app.id).collect::<BTreeSet<_>>(),
            self.ended.iter().collect(),
            "the list of ended applications is wrong"
        );
        assert_eq!(
            self.values().count() - self.live_count(),
            self.ended.len(),
            "an application has ended twice"
        );
        for id in self.keys.values().chain(self.ids()) {
            assert!(self.get(id).is_some(), "{id} has a key and no record");
            assert!(id.seq() <= self.last_number, "{id} has a future number");
        }
        for app in self.values() {
            let (id, updates) = (&app.id, &app.updates);
            assert!(
                !app.state.is_ending() || (app.requests.is_empty() && updates.is_empty()),
                "{id} is ending and has requests or unacknowledged updates"
            );
            assert!(
                !app.state.is_over() || app.containers.is_empty(),
                "{id} has ended and has containers"
            );
        }
    }
}
