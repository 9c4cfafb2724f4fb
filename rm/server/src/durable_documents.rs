//! Documents that the main loop saves beside the records of the core: job rows, usage history,
//! responses to idempotent calls, profiles, access control, and journals of masters.
//!
//! The main loop owns them. A change applies at once and joins one ordered list of writes. The loop
//! appends the list to the journal with the rest of the batch, and after the commit the callers
//! receive their results in the order of the list. Readers see only durable profiles and rights.

use std::sync::Arc;

use headroom_config::JournalLimits;
use headroom_rm_store::{JournalGroup, RecordJournal, SavedResponse, StoreError};
use headroom_types::{AppId, UnixMillis};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use headroom_wire::v1::events::LoggedEvent;
use tokio::sync::oneshot;

use crate::access::{AccessChangeResult, AccessControl};
use crate::input::{DocumentChange, JournalCall};
use crate::journal_table::{JournalAppend, JournalExtent, JournalTable, JournalUse};
use crate::profiles::{ProfileCatalog, ProfileChangeResult};
use crate::shared_state::SharedState;
use crate::usage_history::{JobHistoryUpdate, saved};

/// Documents of the main loop.
#[derive(Debug)]
pub(crate) struct DurableDocuments {
    profiles: ProfileCatalog,
    access: AccessControl,
    journals: JournalTable,
    /// Writes of the batch, in the order of their changes.
    writes: Vec<DocumentWrite>,
}

/// A write that is not yet durable, with the caller that waits for it.
#[derive(Debug)]
pub(crate) enum DocumentWrite {
    /// Rows of an ending job.
    Job { app: AppId, rows: Vec<u8> },
    /// Needs of an ended job's tasks.
    History(JobHistoryUpdate),
    /// Response to an idempotent call; `gone` are keys to remove.
    Response {
        answer: Box<SavedResponse>,
        gone: Vec<String>,
        reply: oneshot::Sender<()>,
    },
    /// Result of a change of profiles. The event exists if a profile has changed.
    Profile {
        result: ProfileChangeResult,
        event: Option<LoggedEvent>,
        reply: oneshot::Sender<ProfileChangeResult>,
    },
    /// Result of a change of access control.
    Access {
        result: AccessChangeResult,
        reply: oneshot::Sender<AccessChangeResult>,
    },
    /// Result of an append to a master's journal. `new` is a group that the journal has not.
    JournalAppend {
        app: AppId,
        new: Option<(JournalGroup, Vec<u8>)>,
        result: ProblemResult<()>,
        reply: oneshot::Sender<ProblemResult<()>>,
    },
    /// A master waits until all groups before are durable.
    JournalExtent {
        result: ProblemResult<JournalExtent>,
        reply: oneshot::Sender<ProblemResult<JournalExtent>>,
    },
    /// An application is ending: no attempt reads its journal.
    JournalEnd { app: AppId },
    /// Access control after a start: a new cluster has just created its application key.
    RestoredAccess,
}

impl DocumentWrite {
    /// Whether all readers see its document, once it is durable.
    pub(crate) fn is_published(&self) -> bool {
        self.is_profile() || self.is_access()
    }

    fn is_profile(&self) -> bool {
        matches!(self, DocumentWrite::Profile { .. })
    }

    fn is_access(&self) -> bool {
        matches!(self, DocumentWrite::Access { .. })
    }
}

impl DurableDocuments {
    /// Continues from the documents that an earlier incarnation saved.
    pub(crate) fn restored(
        shared: &SharedState,
        groups: &[(u32, JournalGroup)],
        limits: JournalLimits,
    ) -> Self {
        DurableDocuments {
            journals: JournalTable::restored(groups, limits),
            profiles: ProfileCatalog::clone(&shared.profiles.borrow()),
            access: AccessControl::clone(&shared.access.borrow()),
            writes: vec![DocumentWrite::RestoredAccess],
        }
    }

    /// Applies a change of a caller. `is_kept` is false for applications that no longer exist.
    pub(crate) fn change(
        &mut self,
        change: DocumentChange,
        now: UnixMillis,
        is_kept: impl Fn(&AppId) -> bool,
    ) {
        self.writes.push(match change {
            DocumentChange::Response {
                answer,
                gone,
                reply,
            } => DocumentWrite::Response {
                answer,
                gone,
                reply,
            },
            DocumentChange::Profile { change, reply } => {
                let generation = self.profiles.generation;
                let result = self.profiles.change(&change, now);
                let changed = self.profiles.generation != generation;
                let done = result.as_ref().ok().filter(|_| changed);
                DocumentWrite::Profile {
                    event: done.and_then(|done| done.event(now)),
                    result,
                    reply,
                }
            }
            DocumentChange::Access { change, reply } => {
                self.access.forget_shares(is_kept);
                DocumentWrite::Access {
                    result: self.access.change(*change, now),
                    reply,
                }
            }
        });
    }

    /// Processes the call of a master about its journal. `journal_use` is that of its attempt. All
    /// replies, also refusals, follow the commit: an earlier leader may know less than the present
    /// one.
    pub(crate) fn call_journal(
        &mut self,
        call: JournalCall,
        journal_use: ProblemResult<JournalUse>,
    ) {
        let write = match call {
            JournalCall::TakeOver { attempt, reply } => DocumentWrite::JournalExtent {
                result: journal_use.and_then(|journal_use| match journal_use {
                    JournalUse::Needed => self.journals.take_over(&attempt),
                    JournalUse::Ended => Err(ProblemDetails::conflict(format!(
                        "{} is ending, so no attempt continues its journal",
                        attempt.app
                    ))),
                }),
                reply,
            },
            JournalCall::Append {
                app,
                group,
                records,
                reply,
            } => {
                let appended = match journal_use {
                    Ok(JournalUse::Needed) => self.journals.append(&app, group),
                    // No attempt follows, so nothing reads the group.
                    Ok(JournalUse::Ended) => Ok(JournalAppend::Repeated),
                    Err(refused) => Err(refused),
                };
                DocumentWrite::JournalAppend {
                    app,
                    new: (appended == Ok(JournalAppend::New)).then_some((group, records)),
                    result: appended.map(drop),
                    reply,
                }
            }
        };
        self.writes.push(write);
    }

    /// Removes the journal of an application that is ending.
    pub(crate) fn remove_journal(&mut self, app: &AppId) {
        if self.journals.remove(app) {
            self.writes
                .push(DocumentWrite::JournalEnd { app: app.clone() });
        }
    }

    /// Adds the encoded rows of an ending job.
    pub(crate) fn keep_job(&mut self, app: AppId, rows: Vec<u8>) {
        self.writes.push(DocumentWrite::Job { app, rows });
    }

    /// Adds the needs of an ended job's tasks.
    pub(crate) fn keep_history(&mut self, update: JobHistoryUpdate) {
        self.writes.push(DocumentWrite::History(update));
    }

    /// Appends the writes to the journal and returns them, for [`DurableDocuments::answer`] after
    /// their commit.
    pub(crate) fn append(
        &mut self,
        journal: &mut RecordJournal,
    ) -> Result<Vec<DocumentWrite>, StoreError> {
        let mut writes = std::mem::take(&mut self.writes);
        for write in &mut writes {
            match write {
                DocumentWrite::Job { app, rows } => {
                    journal.append_document(app, std::mem::take(rows))?;
                }
                DocumentWrite::History(JobHistoryUpdate { family, gone }) => {
                    if let Some((user, name)) = gone {
                        journal.remove_history(user, name);
                    }
                    journal.append_history(&saved(family))?;
                }
                DocumentWrite::Response { answer, gone, .. } => {
                    gone.iter().for_each(|key| journal.remove_response(key));
                    journal.append_response(answer)?;
                }
                DocumentWrite::Profile { event: Some(_), .. } => {
                    journal.append_profiles(&self.profiles.saved())?;
                }
                DocumentWrite::Access { result: Ok(_), .. } | DocumentWrite::RestoredAccess => {
                    journal.append_access(&self.access.saved())?;
                }
                DocumentWrite::JournalAppend { app, new, .. } => {
                    let Some((group, records)) = new.take() else {
                        continue;
                    };
                    if group.moved {
                        journal.remove_master_journal(app);
                    }
                    journal.append_journal_group(app, &group, records)?;
                }
                DocumentWrite::JournalEnd { app } => journal.remove_master_journal(app),
                DocumentWrite::JournalExtent { .. }
                | DocumentWrite::Profile { event: None, .. }
                | DocumentWrite::Access { result: Err(_), .. } => {} // nothing has changed
            }
        }
        Ok(writes)
    }

    /// Publishes the documents and sends the results. All changes of published documents must be
    /// durable.
    pub(crate) fn answer(&self, writes: Vec<DocumentWrite>, shared: &SharedState) {
        if writes.iter().any(DocumentWrite::is_access) {
            shared.access.send_replace(Arc::new(self.access.clone()));
        }
        if writes.iter().any(DocumentWrite::is_profile) {
            let profiles = Arc::new(self.profiles.clone());
            shared.profiles.send_replace(profiles);
        }
        for write in writes {
            // A reply fails if its caller has gone; the change is made anyway.
            match write {
                DocumentWrite::Response { reply, .. } => _ = reply.send(()),
                DocumentWrite::Profile {
                    result,
                    event,
                    reply,
                } => {
                    shared.events.push(event);
                    _ = reply.send(result);
                }
                DocumentWrite::Access { result, reply } => _ = reply.send(result),
                DocumentWrite::JournalAppend { result, reply, .. } => _ = reply.send(result),
                DocumentWrite::JournalExtent { result, reply } => _ = reply.send(result),
                DocumentWrite::Job { .. }
                | DocumentWrite::History(_)
                | DocumentWrite::JournalEnd { .. }
                | DocumentWrite::RestoredAccess => {}
            }
        }
    }
}
