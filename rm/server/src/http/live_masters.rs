//! Registered masters, with the secrets of their submission channels.
//!
//! Handlers share them. They are in memory only: a master registers again after a restart of the
//! resource manager. The secrets appear in no view and no log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use headroom_types::AppId;
use headroom_wire::v1::apps::{AppState, AppView};

use crate::view::ClusterSnapshot;

/// Number of masters from which those of ended applications are removed.
const PRUNE_FROM: usize = 1024;

/// Registered masters by application.
#[derive(Debug, Default)]
pub(crate) struct LiveMasterStore(Mutex<MasterRegistrations>);

#[derive(Debug, Default)]
struct MasterRegistrations {
    by_app: BTreeMap<AppId, MasterRegistration>,
    /// Number of masters at which ended ones are removed; doubles with the live ones.
    prune_at: usize,
}

/// The latest registration of a master.
#[derive(Clone, PartialEq, Eq)]
struct MasterRegistration {
    /// Run of the master.
    attempt: u32,
    /// Secret of its submission channel; `None` if the job is not live.
    token: Option<String>,
}

headroom_types::debug_fields!(MasterRegistration { attempt });

/// Whether tasks can be submitted to the master of an application.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SubmissionReadiness {
    /// The master accepts channels.
    Ready(SubmissionEndpoint),
    /// No master has registered with this incarnation of the resource manager.
    Unregistered,
    /// The job is not live.
    NotLive,
    /// The application has ended, or its master has reported the end.
    Ended(AppState),
}

/// The address and the secret of a submission channel.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SubmissionEndpoint {
    /// Address of the master: `tcp://HOST:PORT` or `tls://HOST:PORT#PIN`.
    pub(crate) url: String,
    /// The secret.
    pub(crate) token: String,
    /// Run of the master.
    pub(crate) attempt: u32,
}

impl LiveMasterStore {
    /// Stores a successful registration. A late registration of an earlier run changes nothing.
    pub(crate) fn registered(
        &self,
        app: &AppId,
        attempt: u32,
        token: Option<String>,
        view: &ClusterSnapshot,
    ) {
        // Poisoning is harmless: no panic can leave the map half changed.
        let mut masters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if masters.by_app.len() >= masters.prune_at.max(PRUNE_FROM) {
            masters.prune(|app| view.apps.get(app).is_some_and(|a| !a.state.is_final()));
        }
        let known = masters.by_app.get(app);
        if known.is_none_or(|known| known.attempt <= attempt) {
            let registration = MasterRegistration { attempt, token };
            masters.by_app.insert(app.clone(), registration);
        }
    }

    /// Whether tasks can be submitted to the master of this application.
    pub(crate) fn readiness(&self, app: &AppView) -> SubmissionReadiness {
        match app.state {
            AppState::Finishing | AppState::Finished | AppState::Failed | AppState::Killed => {
                return SubmissionReadiness::Ended(app.state);
            }
            AppState::Accepted | AppState::Running => {}
        }
        let masters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let registration = masters.by_app.get(&app.id);
        let current = registration.filter(|known| known.attempt == app.attempt);
        match (current, &app.master_url) {
            (Some(MasterRegistration { token: None, .. }), _) => SubmissionReadiness::NotLive,
            (
                Some(MasterRegistration {
                    token: Some(token),
                    attempt,
                }),
                Some(url),
            ) => SubmissionReadiness::Ready(SubmissionEndpoint {
                url: url.clone(),
                token: token.clone(),
                attempt: *attempt,
            }),
            (Some(_), None) | (None, _) => SubmissionReadiness::Unregistered,
        }
    }
}

impl MasterRegistrations {
    fn prune(&mut self, is_live: impl Fn(&AppId) -> bool) {
        self.by_app.retain(|app, _| is_live(app));
        self.prune_at = self.by_app.len().saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, UnixMillis};

    fn app(state: AppState, attempt: u32, url: Option<&str>) -> AppView {
        AppView {
            id: "job.1".parse().expect("id"),
            queue: headroom_types::QueuePath::default_leaf(),
            priority: 0,
            user: "u".into(),
            state,
            diagnostics: String::new(),
            master_url: url.map(str::to_owned),
            attempt,
            until: None,
            attempts: Vec::new(),
            managed: true,
            submitted: UnixMillis(0),
            ended: None,
            containers: 0,
            memory: Bytes::ZERO,
            pending: 0,
            job: None,
        }
    }

    fn stored(attempt: u32, token: Option<&str>) -> LiveMasterStore {
        let mut masters = MasterRegistrations::default();
        let token = token.map(str::to_owned);
        let registration = MasterRegistration { attempt, token };
        masters
            .by_app
            .insert("job.1".parse().expect("id"), registration);
        LiveMasterStore(Mutex::new(masters))
    }

    fn is_unregistered(store: &LiveMasterStore, app: &AppView) -> bool {
        store.readiness(app) == SubmissionReadiness::Unregistered
    }

    #[test]
    fn only_the_registered_master_of_the_current_run_is_ready() {
        let here = Some("tcp://127.0.0.1:1");
        let none = LiveMasterStore::default();
        assert!(is_unregistered(&none, &app(AppState::Accepted, 1, None)));
        assert!(
            is_unregistered(&none, &app(AppState::Running, 1, here)),
            "its registration with this incarnation is still to come"
        );
        let live = stored(1, Some("secret"));
        assert!(is_unregistered(&live, &app(AppState::Running, 2, None)));
        let found = live.readiness(&app(AppState::Running, 1, here));
        assert!(
            matches!(&found, SubmissionReadiness::Ready(at) if at.token == "secret" && at.attempt == 1)
        );
        let fixed = stored(1, None).readiness(&app(AppState::Running, 1, here));
        assert!(fixed == SubmissionReadiness::NotLive);
        for over in [AppState::Finishing, AppState::Failed] {
            let ended = live.readiness(&app(over, 1, here));
            assert!(ended == SubmissionReadiness::Ended(over));
        }
    }

    #[test]
    fn masters_of_ended_applications_are_removed() {
        let store = stored(1, Some("secret"));
        let mut masters = store.0.lock().expect("no panic");
        masters.prune(|_| true);
        assert_eq!((masters.by_app.len(), masters.prune_at), (1, 2));
        masters.prune(|_| false);
        assert!(masters.by_app.is_empty());
    }
}
