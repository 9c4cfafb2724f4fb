//! Screen of `rmctl operator leader`: a row for each resource manager.

use std::time::Duration;

use headroom_types::{Epoch, UnixMillis, word_enum};
use headroom_wire::v1::operator::{LeaderView, ManagerRole, ManagerView};
use serde::Serialize;

use super::figures::{fine_span, or_dash, span};
use super::table::{Column, list};
use super::{ListStyle, TextPainter};

word_enum! {
    /// State of a resource manager, as its answer or its silence shows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum ManagerState: "is not a state of a resource manager; use" {
        /// Serves the cluster.
        Leader = "leader",
        /// Waits to lead.
        Standby = "standby",
        /// Serves the cluster without an election.
        Single = "single",
        /// Did not answer, or another manager reported it.
        Unreachable = "unreachable",
        /// Answered without its role.
        Unknown = "unknown",
    }
}

/// The answer of one resource manager.
#[derive(Clone, Debug)]
pub(crate) enum ManagerAnswer {
    /// Its view of the cluster.
    View(LeaderView),
    /// It does not know the call.
    Older {
        /// Its version.
        version: String,
    },
    /// No answer, or a refusal.
    None {
        /// The cause in a few words.
        cause: String,
    },
}

impl ManagerAnswer {
    /// The view of the cluster.
    pub(crate) fn view(&self) -> Option<&LeaderView> {
        match self {
            ManagerAnswer::View(view) => Some(view),
            ManagerAnswer::Older { .. } | ManagerAnswer::None { .. } => None,
        }
    }
}

/// One resource manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ManagerRow {
    /// Address in the list, or advertised address of a manager that is not in the list.
    pub(crate) address: String,
    /// Its state.
    pub(crate) state: ManagerState,
    /// Epoch of the leader that it knows.
    pub(crate) epoch: Option<Epoch>,
    /// Its version, if it reported one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The reason for the state, or what else it reported.
    pub(crate) detail: String,
}

/// True for a manager that serves the cluster.
pub(crate) fn is_leading(view: &LeaderView) -> bool {
    match view.state {
        ManagerRole::Leader | ManagerRole::Single => true,
        ManagerRole::Standby | ManagerRole::Unknown => false,
    }
}

/// A row for each answer, and one for each manager that an answer names and the list does not.
pub(crate) fn rows(answers: &[(String, ManagerAnswer)], now: UnixMillis) -> Vec<ManagerRow> {
    let mut rows: Vec<ManagerRow> = answers
        .iter()
        .map(|(address, answer)| row(address, answer, now))
        .collect();
    let is_listed = |url: &str| {
        answers.iter().any(|(address, answer)| {
            address == url || answer.view().is_some_and(|view| view.own == url)
        })
    };
    for (address, answer) in answers {
        let managers = answer.view().map(|view| view.managers.as_slice());
        for manager in managers.unwrap_or_default() {
            if !is_listed(&manager.url) && rows.iter().all(|row| row.address != manager.url) {
                rows.push(ManagerRow {
                    address: manager.url.clone(),
                    state: state(manager.state),
                    epoch: None,
                    version: manager.version.clone(),
                    detail: format!("reported by {address}; not in the list of addresses"),
                });
            }
        }
    }
    rows
}

fn row(address: &str, answer: &ManagerAnswer, now: UnixMillis) -> ManagerRow {
    let (state, epoch, detail) = match answer {
        ManagerAnswer::View(view) => (state(view.state), view.epoch, detail(address, view, now)),
        ManagerAnswer::Older { version } => (
            ManagerState::Unknown,
            None,
            format!("version {version} does not report its role"),
        ),
        ManagerAnswer::None { cause } => (ManagerState::Unreachable, None, cause.clone()),
    };
    ManagerRow {
        address: address.to_owned(),
        state,
        epoch,
        version: answer
            .view()
            .and_then(own)
            .and_then(|own| own.version.clone()),
        detail,
    }
}

/// What the manager that answered reported of itself.
fn own(view: &LeaderView) -> Option<&ManagerView> {
    view.managers.iter().find(|manager| manager.url == view.own)
}

fn state(role: ManagerRole) -> ManagerState {
    match role {
        ManagerRole::Leader => ManagerState::Leader,
        ManagerRole::Standby => ManagerState::Standby,
        ManagerRole::Single => ManagerState::Single,
        ManagerRole::Unknown => ManagerState::Unknown,
    }
}

fn detail(address: &str, view: &LeaderView, now: UnixMillis) -> String {
    let started = own(view).and_then(|own| own.since_ms);
    let up = started.map(|started| format!("up {}", span(now.since(started))));
    let lease = view
        .lease_ms
        .map(|ms| format!("lease for {}", fine_span(Duration::from_millis(ms))));
    let role = match (view.state, &view.leader) {
        (ManagerRole::Leader, _) => None,
        (ManagerRole::Standby, Some(leader)) => Some(format!("the leader is {leader}")),
        (ManagerRole::Standby, None) => Some("knows no leader".to_owned()),
        (ManagerRole::Single, _) => Some("no standbys are configured".to_owned()),
        (ManagerRole::Unknown, _) => Some("its version is newer than this rmctl".to_owned()),
    };
    let advertised = (view.own != address).then(|| format!("advertises {}", view.own));
    let version = own(view).and_then(|own| own.version.as_ref());
    let version = version.map(|version| format!("version {version}"));
    let parts = [role, view.problem.clone(), version, up, lease, advertised];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The table.
pub(crate) fn screen(rows: &[ManagerRow], look: ListStyle) -> String {
    let columns: &[Column<'_, &ManagerRow>] = &[
        ("ADDRESS", &|row| row.address.clone()),
        ("STATE", &|row| painted(row.state, look.paint)),
        (">EPOCH", &|row| or_dash(row.epoch)),
        ("DETAIL", &|row| row.detail.clone()),
    ];
    list(rows, look, columns) + &look.advice(look.paint.next("rmctl operator status"))
}

fn painted(state: ManagerState, paint: TextPainter) -> String {
    match state {
        ManagerState::Leader | ManagerState::Single => paint.good(state.as_str()),
        ManagerState::Standby | ManagerState::Unknown => state.to_string(),
        ManagerState::Unreachable => paint.bad(state.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_790_000_720_000);

    fn manager(url: &str, state: ManagerRole) -> ManagerView {
        ManagerView {
            url: url.to_owned(),
            state,
            since_ms: (state == ManagerRole::Leader).then_some(UnixMillis(1_790_000_000_000)),
            version: None,
        }
    }

    fn answer(own: &str, state: ManagerRole, leader: Option<&str>) -> ManagerAnswer {
        ManagerAnswer::View(LeaderView {
            own: own.to_owned(),
            state,
            leader: leader.map(str::to_owned),
            epoch: leader.map(|_| Epoch(7)),
            lease_ms: (state == ManagerRole::Leader).then_some(8_500),
            problem: None,
            managers: vec![
                manager("https://rm1:7070", ManagerRole::Leader),
                manager("https://rm2:7070", ManagerRole::Standby),
                manager("https://rm5:7070", ManagerRole::Standby),
            ],
        })
    }

    #[test]
    fn every_resource_manager_has_a_row() {
        let leader = Some("https://rm1:7070");
        let at = |address: &str, answer| (address.to_owned(), answer);
        let answers = [
            at(
                "https://rm1:7070",
                answer("https://rm1:7070", ManagerRole::Leader, leader),
            ),
            at(
                "https://10.0.0.2:7070",
                answer("https://rm2:7070", ManagerRole::Standby, leader),
            ),
            at(
                "https://rm3:7070",
                ManagerAnswer::None {
                    cause: "Connection refused (os error 111)".to_owned(),
                },
            ),
            at(
                "https://rm4:7070",
                ManagerAnswer::Older {
                    version: "0.1.0".to_owned(),
                },
            ),
        ];
        let rows = rows(&answers, NOW);
        let look = ListStyle::whole(TextPainter::PLAIN);
        insta::assert_snapshot!("managers", screen(&rows, look));
        let alone = [at(
            "http://127.0.0.1:7070",
            ManagerAnswer::View(LeaderView {
                own: "http://127.0.0.1:7070".to_owned(),
                state: ManagerRole::Single,
                leader: Some("http://127.0.0.1:7070".to_owned()),
                epoch: Some(Epoch(3)),
                lease_ms: None,
                problem: None,
                managers: Vec::new(),
            }),
        )];
        let alone = super::rows(&alone, NOW);
        insta::assert_snapshot!("single_manager", screen(&alone, look));
        assert_eq!(
            serde_json::to_string(&rows[1]).expect("JSON"),
            r#"{"address":"https://10.0.0.2:7070","state":"standby","epoch":7,"detail":"the leader is https://rm1:7070 · advertises https://rm2:7070"}"#
        );
    }

    #[test]
    fn a_standby_without_a_leader_says_so() {
        let mut waits = answer("https://rm2:7070", ManagerRole::Standby, None);
        if let ManagerAnswer::View(view) = &mut waits {
            view.problem = Some("etcd has no quorum".to_owned());
        }
        let rows = rows(&[("https://rm2:7070".to_owned(), waits)], NOW);
        assert_eq!(rows[0].detail, "knows no leader · etcd has no quorum");
        assert_eq!(rows[0].epoch, None);
    }
}
