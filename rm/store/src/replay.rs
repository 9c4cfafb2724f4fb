//! Converts records to the initial state of the core. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::{EndedContainer, NodeTags, RestoredApp, RestoredCluster, SavedDrainMark};
use headroom_types::{Epoch, NodeId};

use crate::access::{ACCESS, access};
use crate::history::{FAMILIES, families};
use crate::idempotency::{ANSWERS, answers};
use crate::profiles::{PROFILES, profiles};
use crate::queues::StoredQueueTree;
use crate::record::{
    AppRecord, ContainerEndRecord, DOCUMENTS, DrainRecord, ExpectedNode, META, MetaRecord, QUEUES,
    StateRecord, TagsRecord,
};
use crate::replay_error::{ReplayError, parse};

/// Parses all records. Returns the numbers of the epoch that wrote them, and the initial state of
/// the next epoch.
pub fn replay(records: &[(String, Vec<u8>)]) -> Result<(MetaRecord, RestoredCluster), ReplayError> {
    let (mut meta, mut apps, mut states) = (None, BTreeMap::new(), BTreeMap::new());
    let mut finished: Vec<EndedContainer> = Vec::new();
    let mut nodes: Vec<NodeId> = Vec::new();
    let mut marks: Vec<(NodeId, SavedDrainMark)> = Vec::new();
    let mut tags: Vec<(NodeId, NodeTags)> = Vec::new();
    let mut queues = None;
    for (key, value) in records {
        match key.split_once('/') {
            None if key == META => meta = Some(parse::<MetaRecord>(key, value)?),
            None if key == PROFILES || key == ACCESS => {}
            None if key == QUEUES => queues = Some(tree(parse(key, value)?)?),
            Some(("app", number)) => {
                apps.insert(number.to_owned(), parse::<AppRecord>(key, value)?);
            }
            Some(("state", number)) => {
                states.insert(number.to_owned(), parse::<StateRecord>(key, value)?);
            }
            Some(("done", _)) => finished.push(parse::<ContainerEndRecord>(key, value)?.finished()),
            Some(("node", _)) => nodes.push(parse::<ExpectedNode>(key, value)?.id),
            Some(("mark", _)) => marks.push(parse::<DrainRecord>(key, value)?.mark()),
            Some(("tags", _)) => tags.push(parse::<TagsRecord>(key, value)?.tags()),
            Some(_)
                if [DOCUMENTS, ANSWERS, FAMILIES]
                    .iter()
                    .any(|other| key.starts_with(other)) => {}
            Some(_) | None => return Err(ReplayError::Kind(key.clone())),
        }
    }
    let meta = meta.ok_or(ReplayError::NoMeta)?;
    // Parsed only to find damage; their users parse them again.
    answers(records)?;
    families(records)?;
    profiles(records)?;
    access(records)?;
    finished.sort_by(|a, b| (a.ended, &a.container).cmp(&(b.ended, &b.container)));
    let restored = RestoredCluster {
        epoch: Epoch(meta.epoch.0.saturating_add(1)),
        last_app: meta.last_app,
        apps: pair(apps, states)?,
        finished,
        nodes,
        marks,
        tags,
        queues,
    };
    Ok((meta, restored))
}

fn tree(saved: StoredQueueTree) -> Result<(u64, QueueTree), ReplayError> {
    let StoredQueueTree { generation, root } = saved;
    let tree = QueueTree::new(root.spec()).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        ReplayError::Queues {
            generation,
            problems: problems.join("; "),
        }
    })?;
    Ok((generation, tree))
}

/// Applications in the order of their ends, running ones last, as the core expects its history.
fn pair(
    apps: BTreeMap<String, AppRecord>,
    mut states: BTreeMap<String, StateRecord>,
) -> Result<Vec<RestoredApp>, ReplayError> {
    let mut whole = Vec::with_capacity(apps.len());
    for (number, app) in apps {
        let state = states
            .remove(&number)
            .ok_or(ReplayError::Half(number, "state"))?
            .saved();
        let (id, submitted) = (app.id.clone(), app.submitted);
        whole.push(RestoredApp {
            id,
            spec: Arc::new(app.spec()),
            submitted,
            state,
        });
    }
    if let Some((number, _)) = states.pop_first() {
        return Err(ReplayError::Half(number, "app"));
    }
    whole.sort_by_key(|app| (app.state.ended.is_none(), app.state.ended, app.id.seq()));
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, text: &str) -> (String, Vec<u8>) {
        (key.to_owned(), text.as_bytes().to_vec())
    }

    #[test]
    fn an_application_without_both_records_is_refused() {
        let meta = record(META, r#"{"epoch":3,"last_app":9}"#);
        let state = record("state/0000000009", r#"{"stage":"running","attempt":1}"#);
        let refused = replay(&[meta.clone(), state]).expect_err("a record is missing");
        assert_eq!(
            refused.to_string(),
            "application number 0000000009 has no app record"
        );
        let app = record(
            "app/0000000009",
            r#"{"id":"j.9","submitted":1,"queue":"default"}"#,
        );
        let refused = replay(&[meta, app]).expect_err("a record is missing");
        assert_eq!(
            refused.to_string(),
            "application number 0000000009 has no state record"
        );
    }

    #[test]
    fn the_next_incarnation_has_the_next_epoch() {
        let (meta, restored) =
            replay(&[record(META, r#"{"epoch":3,"last_app":9}"#)]).expect("replays");
        assert_eq!(
            (meta.epoch, restored.epoch, restored.last_app),
            (Epoch(3), Epoch(4), 9)
        );
    }

    #[test]
    fn a_queue_tree_is_restored_and_an_invalid_tree_is_refused_with_its_problems() {
        let meta = record(META, r#"{"epoch":3,"last_app":9}"#);
        let queues = |root: &str| {
            replay(&[
                meta.clone(),
                record(QUEUES, &format!(r#"{{"generation":4,"root":{root}}}"#)),
            ])
        };
        let (_, restored) =
            queues(r#"{"children":{"etl":{"weight":2},"adhoc":{"state":"paused"}}}"#)
                .expect("replays");
        let (generation, tree) = restored.queues.expect("the tree is restored");
        let names: Vec<&str> = tree
            .root()
            .children
            .keys()
            .map(|name| name.as_str())
            .collect();
        assert_eq!((generation, names), (4, vec!["adhoc", "etl"]));
        let refused = queues(r#"{"children":{"etl":{"weight":0}}}"#)
            .expect_err("the weight is invalid")
            .to_string();
        assert!(
            refused.contains("generation 4") && refused.contains("root.etl: weight"),
            "{refused}"
        );
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_refused() {
        let meta = record(META, r#"{"epoch":3,"last_app":9}"#);
        assert!(
            replay(&[meta, record("lease/1", "{}")])
                .expect_err("the kind is unknown")
                .to_string()
                .contains("lease/1")
        );
    }
}
