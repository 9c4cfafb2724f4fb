//! Carries out the effects of the session with the resource manager.

use super::MasterDriver;
use crate::run_error::MasterRunError;
use crate::session::{JobReport, SessionEffect, SessionFailure, SessionInput};

impl MasterDriver {
    /// Registers this run.
    pub(super) fn register(&mut self) {
        self.session.register(&mut self.session_effects);
        self.carry_out_session();
    }

    /// Makes the call that is due.
    pub(super) fn make_due_call(&mut self) {
        let now = self.now().tick;
        let spans_dropped = self.traces.dropped();
        let report = || {
            let mut report = JobReport::of(&mut self.core, &self.environment);
            report.patch.totals.spans_dropped = spans_dropped;
            report
        };
        self.session.wake(now, report, &mut self.session_effects);
        self.carry_out_session();
    }

    /// Processes an input from the resource manager at `url`.
    pub(super) fn hear_rm(&mut self, input: SessionInput, url: &str) -> Result<(), MasterRunError> {
        let now = self.now().tick;
        let taken = self.session.take(now, input, &mut self.session_effects);
        taken.map_err(|failure| match failure {
            SessionFailure::Refused(error) => MasterRunError::Refused(error),
            SessionFailure::Unreachable(source) => MasterRunError::Unreachable {
                url: url.to_owned(),
                source,
            },
        })?;
        self.carry_out_session();
        Ok(())
    }

    /// Carries out effects of the session. Calls contain the state of the core, so they wait until
    /// its records are durable.
    pub(super) fn carry_out_session(&mut self) {
        for effect in std::mem::take(&mut self.session_effects) {
            let is_call = matches!(effect, SessionEffect::Call(_) | SessionEffect::Resize(..));
            if is_call && !self.queue.is_empty() {
                self.queue.push_session(effect);
            } else {
                self.carry_out_session_effect(effect);
            }
        }
    }

    pub(super) fn carry_out_session_effect(&mut self, effect: SessionEffect) {
        match effect {
            SessionEffect::Call(call) => self.link.call(call),
            SessionEffect::Resize(container, body) => self.link.resize(container, body),
            SessionEffect::OpenStream(number, from) => self.link.listen(number, from),
            SessionEffect::Event(event) => self.step(event),
            SessionEffect::RestorePatch(patch) => self.core.restore_patch(*patch),
            SessionEffect::SelectCollector(traces) => {
                self.traces.select_collector(traces.as_deref())
            }
        }
    }
}
