//! Golden samples of the messages about one task, like [the others](golden.rs).

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::{Bytes, ScaleOrder, TaskOrder, TaskWish};
use headroom_wire::v1::{am, apps};
use kept::golden;

#[test]
fn messages_about_one_task() {
    let resize = TaskWish::Resize { memory: Bytes::from_gib(2) };
    let wishes = [
        ("kill", TaskWish::Cancel),
        ("retry", TaskWish::Retry { attempt: 2 }),
        ("resize", resize),
        ("rank", TaskWish::Rank { priority: 7 }),
    ];
    for (name, wish) in wishes {
        let order = TaskOrder { task: "map/7".parse().expect("id"), wish, reason: Some("it will need it".into()) };
        golden(&format!("update_order_{name}"), &am::Update { cursor: 12, what: am::UpdateKind::Order(order) });
    }
    let executors = Some("main".parse().expect("name"));
    let scale = ScaleOrder { executors: executors.clone(), count: 6, reason: Some("the night is long".into()) };
    golden("update_scale", &am::Update { cursor: 13, what: am::UpdateKind::Scale(scale) });
    golden("scale_app", &apps::ScaleApp { executors, count: 6, reason: None });
    golden("order_task", &apps::OrderTask { reason: Some("wrong day".into()) });
    golden("resize_task", &apps::ResizeTask { memory: Bytes::from_gib(2), reason: None });
    golden("rank_task", &apps::RankTask { priority: -3, reason: Some("it is long".into()) });
}
