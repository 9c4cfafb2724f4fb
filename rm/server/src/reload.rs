//! Reload of the configuration of a running daemon.
//!
//! Either all reloadable keys change, or none: the core accepts its part as a whole, and its
//! refusal prevents the rest. Keys that wait for a restart are reported at every reload until the
//! restart.

use headroom_config::reference::{self, TakesEffect};
use headroom_config::{FileProblem, LogLevel, in_one_line, render};
use headroom_rm_core::{ClusterCall, LogObject, QueuesFrom};
use headroom_types::Reason;
use headroom_wire::v1::audit::AuditLine;
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::operator::ReloadResult;
use tracing::warn;

use crate::call_reply::Configured;
use crate::eventlog;
use crate::operator::reload_summary;
use crate::options::ManagerOptions;
use crate::reason_log::log_reason;
use crate::start::RunningManager;

/// Caller of a reload by signal, in the audit log.
const WHO: &str = "SIGHUP";

/// Origin of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOrigin {
    /// A signal. The reload itself writes the line of the audit log.
    Signal,
    /// A call, which the interface records in the audit log.
    Call,
}

impl RunningManager {
    /// Applies the keys that can change in a running daemon. The outcome is written to the log and
    /// as an event, and after a signal also to the audit log.
    ///
    /// # Errors
    /// The reason why no key has changed.
    pub async fn reload(
        &mut self,
        read: Result<ManagerOptions, Vec<FileProblem>>,
        by: ReloadOrigin,
    ) -> Result<ReloadResult, String> {
        let taken = match read {
            Ok(new) => self.take(new).await,
            Err(problems) => {
                warn!(
                    "the configuration is invalid:\n{}",
                    render(&problems).trim_end()
                );
                Err(in_one_line(&problems))
            }
        };
        let (reason, level, message, outcome) = match &taken {
            Ok(taken) => (
                Reason::ConfigReloaded,
                EventLevel::Normal,
                reload_summary(taken),
                200,
            ),
            Err(why) => (
                Reason::ConfigRefused,
                EventLevel::Warning,
                format!("nothing has changed: {why}"),
                400,
            ),
        };
        self.record_event(reason, level, &message);
        match by {
            ReloadOrigin::Signal => self.record(message, outcome),
            ReloadOrigin::Call => {}
        }
        taken
    }

    /// Configured log level.
    pub fn log(&self) -> LogLevel {
        self.options.config.log
    }

    async fn take(&mut self, new: ManagerOptions) -> Result<ReloadResult, String> {
        let call = ClusterCall::Configure(Box::new(new.settings(self.clock)));
        let configured = self.handle.call(call).await;
        let Configured { queues } = configured.map_err(|problem| problem.detail)?;
        let taken = compare(&self.options, &new, queues);
        let (events, audit, kept) = (
            self.events.clone(),
            self.audit.clone(),
            (new.config.events, new.config.audit),
        );
        let bounds = tokio::task::spawn_blocking(move || {
            events.keep(kept.0);
            audit.keep(kept.1);
        });
        if let Err(fault) = bounds.await {
            warn!(error = %fault, "cannot change the limits of the event and audit logs");
        }
        self.options.take(new);
        Ok(taken)
    }

    fn record_event(&self, reason: Reason, level: EventLevel, message: &str) {
        match level {
            EventLevel::Normal => log_reason!(info, reason, "{reason}: {message}"),
            EventLevel::Warning => log_reason!(warn, reason, "{reason}: {message}"),
        }
        let (now, object) = (self.clock.unix_now(), LogObject::Manager.to_string());
        let event = eventlog::event(now, level, reason, object, message.to_owned());
        self.events.push([event]);
    }

    fn record(&self, message: String, outcome: u16) {
        self.audit.write(AuditLine {
            index: 0,
            time: self.clock.unix_now(),
            from: WHO.to_owned(),
            who: WHO.to_owned(),
            verb: "RELOAD".to_owned(),
            object: "configuration".to_owned(),
            request: "-".to_owned(),
            outcome,
            code: None,
            before: None,
            after: Some(message),
        });
    }
}

fn compare(before: &ManagerOptions, now: &ManagerOptions, queues: QueuesFrom) -> ReloadResult {
    let mut taken = ReloadResult::default();
    for (key, was, is) in reference::changes(reference::MANAGER_KEYS, &before.config, &now.config) {
        match key.takes {
            TakesEffect::Reload => taken.holds.push(format!("{}: {was} → {is}", key.name)),
            TakesEffect::Restart => taken.waits.push(key.name.to_owned()),
        }
    }
    if before.config.log != now.config.log && std::env::var_os("HEADROOM_LOG").is_some() {
        taken.notes.push("HEADROOM_LOG overrides log".to_owned());
    }
    if before.queues != now.queues {
        match queues {
            QueuesFrom::Settings => taken.holds.push("queues".to_owned()),
            QueuesFrom::Operator => taken
                .notes
                .push("a queue tree that was set at run time overrides queues".to_owned()),
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn options() -> ManagerOptions {
        ManagerOptions::new(([127, 0, 0, 1], 0).into(), "/s".into())
    }

    #[test]
    fn a_reload_separates_applied_pending_and_overridden_keys() {
        let mut new = options();
        new.config.lost = Duration::from_secs(60);
        (new.config.limits.streams, new.config.history.apps) = (7, 9);
        let taken = compare(&options(), &new, QueuesFrom::Settings);
        assert_eq!(
            reload_summary(&taken),
            "lost: \"30s\" → \"1m\"; history.apps: 500 → 9; after a restart: limits.streams"
        );
        assert_eq!(
            reload_summary(&compare(&new, &new, QueuesFrom::Operator)),
            "no key has changed"
        );
        let mut in_force = options();
        in_force.take(new.clone());
        let again = compare(&in_force, &new, QueuesFrom::Settings);
        assert_eq!(
            reload_summary(&again),
            "after a restart: limits.streams",
            "until the next restart"
        );
    }

    #[test]
    fn a_configuration_error_is_reported_in_a_single_line() {
        let problems =
            headroom_config::compile::resourcemanager("# x\nlost = 30\nlsten = 'x'\n", "rm.toml")
                .expect_err("two");
        let line = in_one_line(&problems);
        assert!(
            line.starts_with("rm.toml:2: lost: ") && line.ends_with("(1 more in the log)"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }
}
