//! Golden samples of the messages about one task, like [the others](golden.rs).

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::{Bytes, ScaleOrder, TaskOrder, TaskOrderAction};
use headroom_wire::v1::{application_master, apps};
use kept::golden;

#[test]
fn task_orders_match_the_golden_files() {
    let resize = TaskOrderAction::Resize {
        memory: Bytes::from_gib(2),
    };
    let actions = [
        ("kill", TaskOrderAction::Cancel),
        ("retry", TaskOrderAction::Retry { attempt: 2 }),
        ("resize", resize),
        ("rank", TaskOrderAction::Rank { priority: 7 }),
    ];
    for (name, action) in actions {
        let order = TaskOrder {
            task: "map/7".parse().expect("id"),
            action,
            reason: Some("it will need it".into()),
        };
        golden(
            &format!("update_order_{name}"),
            &application_master::ApplicationUpdate {
                cursor: 12,
                what: application_master::ApplicationUpdateKind::Order(order),
            },
        );
    }
    let executors = Some("main".parse().expect("name"));
    let scale = ScaleOrder {
        executors: executors.clone(),
        count: 6,
        reason: Some("the night is long".into()),
    };
    golden(
        "update_scale",
        &application_master::ApplicationUpdate {
            cursor: 13,
            what: application_master::ApplicationUpdateKind::Scale(scale),
        },
    );
    golden(
        "scale_app",
        &apps::ScaleExecutorsRequest {
            executors,
            count: 6,
            reason: None,
        },
    );
    golden(
        "order_task",
        &apps::TaskOrderRequest {
            reason: Some("wrong day".into()),
        },
    );
    golden(
        "resize_task",
        &apps::ResizeTaskRequest {
            memory: Bytes::from_gib(2),
            reason: None,
        },
    );
    golden(
        "rank_task",
        &apps::PrioritizeTask {
            priority: -3,
            reason: Some("it is long".into()),
        },
    );
}
