//! The environment of executors, and the first request of a submission.

use headroom_appmaster::spec::ExecutorEnvironment;
use headroom_config::JobSpec;
use headroom_config::job::executor_request::first_request;
use headroom_wire::v1::application_master::PlacementRequest;

pub(crate) fn greeting() -> ExecutorEnvironment {
    ExecutorEnvironment {
        master_url: "tcp://127.0.0.1:1".into(),
        token: "t".into(),
    }
}

/// The first request of a submission is one that the master makes, too: it takes it over.
pub(crate) fn same_as_first(job: &JobSpec, ask: &PlacementRequest) {
    let first = first_request(job, &greeting().token);
    let Some(mut first) = first.filter(|first| first.request == ask.request) else {
        return;
    };
    let url = ("HEADROOM_MASTER_URL".to_owned(), greeting().master_url);
    first.launch.env.extend([url]);
    first.avoid_nodes.clone_from(&ask.avoid_nodes);
    (first.count, first.ended) = (ask.count, ask.ended);
    assert_eq!(first, *ask);
}
