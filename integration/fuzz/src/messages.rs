//! The messages of the API: bodies of calls, lines of the node and master streams, and their
//! validation.

use headroom_wire::v1::{
    acl, application_master, apps, audit, container_access, error, events, job, job_history, nodes,
    profiles, queue_tree, queues, validation,
};
use headroom_wire::v1::{share, suggestions};
use serde_json::Value;

use super::again;

type One = fn(&[u8]);

/// All messages, in order of their index.
const ALL: &[One] = &[
    submit,
    sync,
    ask,
    launch,
    tree,
    report,
    plain::<application_master::RegisterMaster>,
    plain::<application_master::MasterRegistered>,
    plain::<application_master::MasterSyncReply>,
    plain::<application_master::FinishApplicationRequest>,
    plain::<application_master::ApplicationUpdate>,
    plain::<nodes::RegisterNode>,
    plain::<nodes::NodeRegistered>,
    plain::<nodes::NodeReportReply>,
    plain::<nodes::DesiredStateLine>,
    plain::<nodes::NodeView>,
    plain::<nodes::TagNodeRequest>,
    plain::<nodes::DrainNodeRequest>,
    plain::<apps::SubmissionResult>,
    plain::<apps::AppView>,
    plain::<apps::ChangeApplicationRequest>,
    plain::<apps::KillApplicationRequest>,
    plain::<apps::ScaleExecutorsRequest>,
    plain::<apps::TaskOrderRequest>,
    plain::<apps::ResizeTaskRequest>,
    plain::<apps::PendingExplanation>,
    plain::<apps::ContainerView>,
    plain::<apps::ContainerTimeline>,
    plain::<apps::ResizeContainer>,
    plain::<apps::ResizeAccepted>,
    plain::<apps::ClusterView>,
    plain::<acl::CreateTokenRequest>,
    plain::<acl::CreateJoinTokenRequest>,
    plain::<acl::TokenView>,
    plain::<acl::PolicySpec>,
    plain::<acl::PolicyView>,
    plain::<acl::CallerIdentity>,
    plain::<acl::NodeJoinRequest>,
    plain::<acl::JoinResponse>,
    plain::<acl::AuthorityView>,
    plain::<container_access::SignalContainer>,
    plain::<container_access::ContainerFileEntry>,
    plain::<container_access::ExecContainer>,
    plain::<container_access::ExecOutputLine>,
    plain::<job::JobView>,
    plain::<job::JobViewPatch>,
    plain::<job::TaskRow>,
    plain::<job::StageInputs>,
    plain::<queues::QueueSpec>,
    plain::<queues::SetQueueState>,
    plain::<queues::QueuesView>,
    plain::<queues::QueueTreeCheck>,
    plain::<profiles::ProfileSpec>,
    plain::<profiles::ClusterProfile>,
    plain::<job_history::JobHistory>,
    plain::<suggestions::Suggestion>,
    plain::<share::ResourceShare>,
    plain::<error::ProblemDetails>,
    plain::<events::LoggedEvent>,
    plain::<audit::AuditLine>,
];

/// The first byte selects the message; the rest is its body.
pub fn check(data: &[u8]) {
    let Some((which, body)) = data.split_first() else {
        return;
    };

    ALL[usize::from(*which) % ALL.len()](body);
}

fn plain<T: serde::Serialize + serde::de::DeserializeOwned>(body: &[u8]) {
    let _ = again::<T>(body);
}

fn refused(problem: Result<(), error::ProblemDetails>, body: &[u8]) {
    if let Err(problem) = problem {
        assert!(problem.detail.len() <= 4096 + 8 * body.len());
    }
}

fn submit(body: &[u8]) {
    if let Some(app) = again::<apps::SubmitApplicationRequest>(body) {
        refused(validation::check_submit(&app), body);
    }
}

fn sync(body: &[u8]) {
    if let Some(sync) = again::<application_master::MasterSync>(body) {
        sync.asks
            .iter()
            .for_each(|ask| refused(validation::check_request(ask), body));
    }
}

fn ask(body: &[u8]) {
    if let Some(ask) = again::<application_master::PlacementRequest>(body) {
        refused(validation::check_request(&ask), body);
    }
}

fn launch(body: &[u8]) {
    let Some(launch) = again::<headroom_types::LaunchSpec>(body) else {
        return;
    };
    let checked = validation::check_launch(&launch);
    if checked.is_ok() {
        let names = launch
            .files
            .keys()
            .chain(launch.fetch.iter().map(|f| &f.name));
        assert!(
            names
                .into_iter()
                .all(|n| !n.contains(['/', '\0']) && n != ".." && n != "." && !n.is_empty())
        );
        assert!(!launch.command.iter().any(|word| word.contains('\0')));
    }
    refused(checked, body);
}

fn report(body: &[u8]) {
    let _ = again::<nodes::NodeReport>(body);
}

fn tree(body: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    let (spec, problems) = queue_tree::parse_queue_tree(&value);
    let length: usize = problems
        .iter()
        .map(|p| p.queue.len() + p.key.len() + p.what.len() + p.fix.len())
        .sum();
    assert!(
        length <= (256 << 10) + 64 * body.len(),
        "{} bytes give an error of {length} bytes",
        body.len()
    );
    if problems.is_empty() {
        let written = serde_json::to_value(&spec).expect("writes");
        assert_eq!(queue_tree::parse_queue_tree(&written), (spec, problems));
    }
}
