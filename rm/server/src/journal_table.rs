//! The journals of application masters in the store: what may be appended, and how much. Pure.
//!
//! The main loop owns it, as a part of its documents. It has only the end of each journal; the
//! records are in the store. Appends of one attempt come one after the other, so a repeated call is
//! always that of the last group.

use std::collections::BTreeMap;

use headroom_config::JournalLimits;
use headroom_rm_store::JournalGroup;
use headroom_types::{AppId, AttemptId, Bytes};
use headroom_wire::v1::application_master::JOURNAL_GROUP_OVERHEAD;
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

/// The end of one journal.
#[derive(Clone, Copy, Debug)]
struct JournalEnd {
    /// The last group; its attempt is the latest one that has appended.
    last: JournalGroup,
    /// Records of all groups. Bytes.
    length: u64,
    /// Records and entries of all groups. Bytes.
    charged: u64,
}

/// What the journal of an application has, for its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalExtent {
    /// Whether it continues on the node of an earlier master.
    pub(crate) moved: bool,
    /// Records of all groups. Bytes.
    pub(crate) length: u64,
    /// Maximum size with all groups. Bytes.
    pub(crate) limit: Bytes,
}

/// Whether a later attempt may read a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalUse {
    /// The application runs.
    Needed,
    /// The application is ending, or has ended.
    Ended,
}

/// An accepted append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalAppend {
    /// The group is new.
    New,
    /// The group is in the journal already: the call was repeated.
    Repeated,
}

/// The journals of all applications.
#[derive(Debug)]
pub(crate) struct JournalTable {
    limits: JournalLimits,
    /// By number of the application.
    ends: BTreeMap<u32, JournalEnd>,
    /// Sum of all journals. Bytes.
    charged: u64,
}

impl JournalTable {
    /// The journals with these groups, which are in the order of the journals.
    pub(crate) fn restored(groups: &[(u32, JournalGroup)], limits: JournalLimits) -> Self {
        let mut journals = JournalTable {
            limits,
            ends: BTreeMap::new(),
            charged: 0,
        };
        for (app, group) in groups {
            journals.add(*app, *group);
        }
        journals
    }

    /// Number of journals, and their size. Bytes.
    #[cfg(test)]
    fn size(&self) -> (usize, u64) {
        (self.ends.len(), self.charged)
    }

    /// The extent of a journal that `attempt`, the present one, is to continue.
    ///
    /// # Errors
    /// This attempt has appended already.
    pub(crate) fn take_over(&self, attempt: &AttemptId) -> ProblemResult<JournalExtent> {
        let end = self.ends.get(&attempt.app.seq());
        let own = end.filter(|end| end.last.attempt >= attempt.attempt && !end.last.moved);
        if let Some(end) = own {
            let used = end.last.attempt;
            return Err(ProblemDetails::conflict(format!(
                "attempt {used} of {} has already used its journal",
                attempt.app
            ))
            .hint("another process of this attempt has appended; this one must end"));
        }
        Ok(JournalExtent {
            moved: end.is_some_and(|end| end.last.moved),
            length: end.map_or(0, |end| end.length),
            limit: Bytes::new(self.limit(end.map_or(0, |end| end.charged))),
        })
    }

    /// Checks an append of the present attempt of an application, and takes it in.
    ///
    /// # Errors
    /// The group does not follow the last one, or exceeds a limit.
    pub(crate) fn append(
        &mut self,
        app: &AppId,
        group: JournalGroup,
    ) -> ProblemResult<JournalAppend> {
        let end = self.ends.get(&app.seq()).copied();
        let own = end.map(|end| end.last);
        if own == Some(group) {
            return Ok(JournalAppend::Repeated);
        }
        let expected = match own {
            Some(last) if last.moved => {
                return Err(ProblemDetails::conflict(format!(
                    "the journal of {app} continues on the node of its master"
                )));
            }
            Some(last) if last.attempt > group.attempt => {
                return Err(ProblemDetails::conflict(format!(
                    "attempt {} of {app} has taken its journal over",
                    last.attempt
                )));
            }
            Some(last) if last.attempt == group.attempt => last.end,
            Some(_) | None => 0,
        };
        if group.begin != expected {
            return Err(ProblemDetails::conflict(format!(
                "a group at offset {} does not follow the journal of {app}, which ends at {expected}",
                group.begin
            ))
            .hint("another process with the same attempt has appended; this one must end"));
        }
        if group.moved {
            self.remove(app);
            self.add(app.seq(), group);
            return Ok(JournalAppend::New);
        }
        let before = end.map_or(0, |end| end.charged);
        let limit = self.limit(before);
        let after = before.saturating_add(charge(&group));
        if after > limit {
            return Err(ProblemDetails::too_large(format!(
                "the journal of {app} would have {} and may have {} (journals.max_journal, journals.max_total)",
                Bytes::new(after),
                Bytes::new(limit)
            )));
        }
        self.add(app.seq(), group);
        Ok(JournalAppend::New)
    }

    /// Forgets the journal of an application. Returns whether there was one.
    pub(crate) fn remove(&mut self, app: &AppId) -> bool {
        let removed = self.ends.remove(&app.seq());
        self.charged -= removed.map_or(0, |end| end.charged);
        removed.is_some()
    }

    /// Maximum size of a journal that has this size. Bytes.
    fn limit(&self, charged: u64) -> u64 {
        let others = self.charged.saturating_sub(charged);
        let left = self.limits.max_total.get().saturating_sub(others);
        self.limits.max_journal.get().min(left)
    }

    fn add(&mut self, app: u32, group: JournalGroup) {
        let before = self.ends.get(&app);
        let (length, charged) = before.map_or((0, 0), |end| (end.length, end.charged));
        let charge = charge(&group);
        self.charged = self.charged.saturating_add(charge);
        let end = JournalEnd {
            last: group,
            length: length.saturating_add(group.length()),
            charged: charged.saturating_add(charge),
        };
        self.ends.insert(app, end);
    }
}

/// What a group counts. Bytes.
fn charge(group: &JournalGroup) -> u64 {
    group.length().saturating_add(JOURNAL_GROUP_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use headroom_wire::v1::error::ErrorCode;

    use super::*;

    const LIMITS: JournalLimits = JournalLimits {
        max_journal: Bytes::from_kib(1),
        max_total: Bytes::from_kib(2),
    };

    fn app(n: u32) -> AppId {
        format!("job.{n}").parse().expect("id")
    }

    fn attempt(n: u32, attempt: u32) -> AttemptId {
        AttemptId {
            app: app(n),
            attempt,
        }
    }

    fn journals() -> JournalTable {
        JournalTable::restored(&[], LIMITS)
    }

    fn code<T>(result: ProblemResult<T>) -> Option<ErrorCode> {
        result.err().map(|problem| problem.code)
    }

    #[test]
    fn a_repeated_group_is_acknowledged_and_any_other_one_out_of_order_is_refused() {
        let mut journals = journals();
        let (first, second) = (
            JournalGroup::new(1, 0, b"one\n"),
            JournalGroup::new(1, 4, b"two\n"),
        );
        assert_eq!(journals.append(&app(1), first), Ok(JournalAppend::New));
        assert_eq!(journals.append(&app(1), first), Ok(JournalAppend::Repeated));
        let size = journals.size();
        for wrong in [
            JournalGroup::new(1, 0, b"two\n"), // the same place and length, other records
            JournalGroup::new(1, 0, b"long\n"), // the same place, another length
            JournalGroup::new(1, 8, b"two\n"), // a gap
            JournalGroup::new(1, 2, b"two\n"), // an overlap
        ] {
            let refused = code(journals.append(&app(1), wrong));
            assert_eq!(refused, Some(ErrorCode::HR0409), "{wrong:?}");
        }
        assert_eq!(journals.size(), size, "a refused group changes nothing");
        assert_eq!(journals.append(&app(1), second), Ok(JournalAppend::New));
        assert_eq!(
            code(journals.append(&app(1), first)),
            Some(ErrorCode::HR0409),
            "the second one was acknowledged"
        );
    }

    #[test]
    fn a_later_attempt_begins_at_zero_and_an_earlier_one_appends_nothing_more() {
        let mut journals = journals();
        let group = |attempt, begin| JournalGroup::new(attempt, begin, b"one\n");
        assert_eq!(
            code(journals.append(&app(1), group(1, 4))),
            Some(ErrorCode::HR0409)
        );
        assert_eq!(
            journals.append(&app(1), group(1, 0)),
            Ok(JournalAppend::New)
        );
        assert_eq!(
            code(journals.take_over(&attempt(1, 1))),
            Some(ErrorCode::HR0409),
            "the attempt was used"
        );
        let extent = journals.take_over(&attempt(1, 2)).expect("a new attempt");
        let found = (extent.moved, extent.length, extent.limit);
        assert_eq!(found, (false, 4, LIMITS.max_journal));
        assert_eq!(
            journals.append(&app(1), group(2, 0)),
            Ok(JournalAppend::New)
        );
        assert_eq!(
            code(journals.append(&app(1), group(1, 4))),
            Some(ErrorCode::HR0409)
        );
        assert_eq!(
            journals.append(&app(1), group(2, 4)),
            Ok(JournalAppend::New)
        );
    }

    #[test]
    fn one_journal_and_all_together_are_bounded_and_the_end_of_a_job_frees_its_part() {
        let mut journals = journals();
        let whole = |n: usize| JournalGroup::new(1, 0, &vec![b' '; n]);
        let overhead = usize::try_from(JOURNAL_GROUP_OVERHEAD).expect("small");
        assert_eq!(
            code(journals.append(&app(1), whole(1025 - overhead))),
            Some(ErrorCode::HR0413)
        );
        for n in [1, 2] {
            let added = journals.append(&app(n), whole(1024 - overhead));
            assert_eq!(added, Ok(JournalAppend::New));
        }
        let third = |journals: &mut JournalTable| code(journals.append(&app(3), whole(1)));
        assert_eq!(third(&mut journals), Some(ErrorCode::HR0413), "no space");
        let extent = journals.take_over(&attempt(3, 1)).expect("it may look");
        assert_eq!(extent.limit, Bytes::ZERO);
        assert!(journals.remove(&app(1)) && !journals.remove(&app(1)));
        assert_eq!(third(&mut journals), None);
    }

    #[test]
    fn a_moved_journal_frees_its_space_and_stays_moved() {
        let mut journals = journals();
        let records = JournalGroup::new(1, 0, &[b' '; 700]);
        assert_eq!(journals.append(&app(1), records), Ok(JournalAppend::New));
        let mark = JournalGroup::moved(1, 700);
        assert_eq!(journals.append(&app(1), mark), Ok(JournalAppend::New));
        assert_eq!(journals.append(&app(1), mark), Ok(JournalAppend::Repeated));
        assert_eq!(journals.size(), (1, JOURNAL_GROUP_OVERHEAD));
        let later = JournalGroup::new(2, 0, b"one\n");
        assert_eq!(
            code(journals.append(&app(1), later)),
            Some(ErrorCode::HR0409)
        );
        for n in [1, 2] {
            let extent = journals.take_over(&attempt(1, n)).expect("it may look");
            assert!(extent.moved);
        }
    }

    #[test]
    fn a_restart_continues_from_the_groups_in_the_store() {
        let groups = [
            (1, JournalGroup::new(1, 0, b"one\n")),
            (1, JournalGroup::new(2, 0, b"two\n")),
            (2, JournalGroup::new(1, 0, b"one\n")),
        ];
        let mut journals = JournalTable::restored(&groups, LIMITS);
        assert_eq!(journals.size(), (2, 3 * (4 + JOURNAL_GROUP_OVERHEAD)));
        assert_eq!(
            journals.append(&app(1), groups[1].1),
            Ok(JournalAppend::Repeated)
        );
        assert_eq!(
            code(journals.append(&app(1), groups[0].1)),
            Some(ErrorCode::HR0409)
        );
        assert_eq!(
            journals.append(&app(1), JournalGroup::new(2, 4, b"more\n")),
            Ok(JournalAppend::New)
        );
    }
}
