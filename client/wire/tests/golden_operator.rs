//! Golden sample of the message about the resource managers of a cluster.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::{Epoch, UnixMillis};
use headroom_wire::v1::operator::{LeaderView, ManagerRole, ManagerView};
use kept::golden;

fn manager(url: &str, state: ManagerRole, since: Option<u64>) -> ManagerView {
    ManagerView {
        url: url.to_owned(),
        state,
        since_ms: since.map(UnixMillis),
        version: since.map(|_| "0.1.0".to_owned()),
    }
}

#[test]
fn the_managers_of_a_cluster_match_the_golden_file() {
    let leader = LeaderView {
        own: "https://rm1:7070".to_owned(),
        state: ManagerRole::Standby,
        leader: Some("https://rm2:7070".to_owned()),
        epoch: Some(Epoch(7)),
        lease_ms: Some(2_700),
        problem: Some("etcd has no quorum".to_owned()),
        managers: vec![
            manager("https://rm1:7070", ManagerRole::Standby, None),
            manager(
                "https://rm2:7070",
                ManagerRole::Leader,
                Some(1_790_000_000_000),
            ),
        ],
    };
    golden("leader_view", &leader);
}

#[test]
fn a_view_without_leader_and_one_of_a_later_version_can_be_read() {
    let view: LeaderView = serde_json::from_str(
        r#"{"self":"http://a:1","state":"witness","leader":null,"epoch":null,"managers":[]}"#,
    )
    .expect("reads");
    assert_eq!(
        (view.state, view.leader, view.epoch),
        (ManagerRole::Unknown, None, None)
    );
}
