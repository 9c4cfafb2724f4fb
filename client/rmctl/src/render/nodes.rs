//! Screens of nodes, with a bar of allocated memory for each. All bars have the same scale.

use std::time::Duration;

use headroom_types::unattributed::owners;
use headroom_types::{Bytes, UnixMillis};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::nodes::NodeView;

use super::figures::{or_dash, percent, short, span};
use super::table::{Column, list};
use super::{ListStyle, TextPainter, bars, containers, count, tags};

/// Width of the largest node's bar. Characters.
const WIDTH: usize = 24;

/// The whole screen.
pub(crate) fn screen(nodes: &[NodeView], look: ListStyle) -> String {
    let paint = look.paint;
    if nodes.is_empty() {
        let next = "no node has registered\nnext: nodeagent --rm URL, or rmctl dev for a cluster on this machine\n";
        return look.advice(next.to_owned());
    }
    let largest = nodes
        .iter()
        .map(|n| n.offers.memory)
        .max()
        .unwrap_or_default();
    let state = |n: &NodeView| {
        if n.state == "ready" {
            n.state.clone()
        } else {
            paint.warn(&n.state)
        }
    };
    let size = |n: &NodeView| n.offers.memory;
    let taints = |n: &NodeView| Some(tags::taints(n).join(",")).filter(|t| !t.is_empty());
    let columns: &[Column<'_, &NodeView>] = &[
        ("NODE", &|n| n.id.to_string()),
        ("STATE", &state),
        (">SIZE", &|n| short(size(n))),
        (">ALLOC", &|n| percent(n.allocated.memory, size(n))),
        (">USED", &|n| percent(n.used, size(n))),
        (">PEAK1H", &|n| {
            or_dash(n.peak_1h.map(|peak| percent(peak, size(n))))
        }),
        (">HOST", &|n| short(n.host_used)),
        (">CTR", &|n| n.containers.to_string()),
        (">FREE", &|n| short(n.free_memory())),
        ("+>LEFT", &|n| short(n.unattributed)),
        ("+>CPUS", &|n| {
            format!("{}/{}", n.allocated.cpus, n.offers.cpus)
        }),
        ("+ENFORCER", &|n| n.enforcer.to_string()),
        ("+VERSION", &|n| n.version.clone()),
        ("+>SILENT", &|n| span(Duration::from_millis(n.silent_ms))),
        ("+LABELS", &tags::brief),
        ("+TAINTS", &|n| or_dash(taints(n))),
        ("+URL", &|n| n.url.clone()),
        ("█ heap  ▒ overhead  · free", &|n| {
            picture(n, largest, paint)
        }),
    ];
    let rows = list(nodes, look, columns);
    rows + &look.advice(paint.next("rmctl status · rmctl ps"))
}

/// One node with its containers, the largest first.
pub(crate) fn one(
    n: &NodeView,
    on_it: &[ContainerView],
    now: UnixMillis,
    paint: TextPainter,
) -> String {
    let mut text = heading(n, paint);
    let lines = memory_lines(n, paint)
        .into_iter()
        .chain(agent_lines(n))
        .chain(mark_lines(n, now));
    for (name, value) in lines {
        text.push_str(&format!("{name:<11}{value}\n"));
    }
    text.push_str(&self::on_it(on_it, now, paint));
    let verb = n.undo_verb().unwrap_or("drain");
    text + &paint.next(format!(
        "rmctl node events {} · rmctl node {verb} {}",
        n.id, n.id
    ))
}

/// The name of a node with its state.
fn heading(n: &NodeView, paint: TextPainter) -> String {
    let state = if n.state == "ready" {
        paint.good("✓ ready")
    } else {
        paint.warn(&format!("! {}", n.state))
    };
    let reason = n
        .reason
        .as_deref()
        .map(|r| format!(": {r}"))
        .unwrap_or_default();
    format!("{}  {state}{reason}\n", paint.strong(n.id.as_str()))
}

/// Granted memory and memory in use.
fn memory_lines(n: &NodeView, paint: TextPainter) -> Vec<(&'static str, String)> {
    let size = n.offers.memory;
    let (granted, part) = (n.allocated.memory, percent(n.allocated.memory, size));
    let host = short(n.host_used);
    let peak = n
        .peak_1h
        .map(|p| format!(", {} at most in the last hour", short(p)))
        .unwrap_or_default();
    let mut lines = vec![
        (
            "memory",
            format!(
                "{}  {} of {} granted ({part})",
                bar(n, size),
                short(granted),
                short(size)
            ),
        ),
        (
            "in use",
            format!(
                "{} ({}) by its containers{peak}; {host} on the whole host",
                short(n.used),
                percent(n.used, size)
            ),
        ),
    ];
    if let Some(left) = n.leftover_text() {
        let left = paint.warn(&format!("{left}; {}", owners(&n.left_by)));
        lines.push(("left", left));
    }
    lines
}

/// Granted processors, the enforcer and the agent.
fn agent_lines(n: &NodeView) -> [(&'static str, String); 3] {
    let held = if n.enforcer.is_kernel() {
        ""
    } else {
        " (not kernel-enforced)"
    };
    let silent = span(Duration::from_millis(n.silent_ms));
    [
        (
            "cpus",
            format!("{} of {} granted", n.allocated.cpus, n.offers.cpus),
        ),
        ("enforcer", format!("{}{held}", n.enforcer)),
        (
            "agent",
            format!("{} at {}, last heartbeat {silent} ago", n.version, n.url),
        ),
    ]
}

/// Labels, taints, the cordon and the drain, as far as present.
fn mark_lines(n: &NodeView, now: UnixMillis) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for (name, words) in [("labels", tags::labels(n)), ("taints", tags::taints(n))] {
        if !words.is_empty() {
            lines.push((name, words.join(", ")));
        }
    }
    if let Some(reason) = &n.tags.cordon {
        let reason = if reason.is_empty() {
            "no reason was given".to_owned()
        } else {
            reason.clone()
        };
        lines.push(("cordoned", reason));
    }
    if let Some(mark) = &n.mark {
        let until = mark
            .until
            .map(|until| format!(", the rest is stopped in {}", span(until.since(now))))
            .unwrap_or_default();
        lines.push(("drained", format!("{}{until}", mark.reason)));
    }
    lines
}

/// The running containers of a node, the largest first.
pub(crate) fn on_it(all: &[ContainerView], now: UnixMillis, paint: TextPainter) -> String {
    let mut alive: Vec<&ContainerView> = all
        .iter()
        .filter(|c| c.ended.is_none() && c.state != "exited")
        .collect();
    alive.sort_by(|a, b| {
        b.resource
            .memory
            .cmp(&a.resource.memory)
            .then_with(|| a.id.cmp(&b.id))
    });
    containers::table(&alive, now, ListStyle::whole(paint))
}

/// The result of a drain.
pub(crate) fn drained(n: &NodeView, now: UnixMillis) -> String {
    let id = &n.id;
    let Some(mark) = &n.mark else {
        return format!("{id} is {}: its drain was cancelled\n", n.state);
    };
    if mark.drained && mark.decommission {
        return format!(
            "{id} is empty and has left the cluster\nnext: rmctl node undrain {id} lets it rejoin\n"
        );
    }
    if mark.drained {
        return format!(
            "{id} is empty\nnext: rmctl node undrain {id} when it may take work again\n"
        );
    }
    let left = mark
        .until
        .map(|until| format!(", the rest is stopped in {}", span(until.since(now))))
        .unwrap_or_default();
    format!(
        "{id} gets no new work; {} on it{left}\nnext: rmctl node list\n",
        count(n.containers, "container")
    )
}

/// The bar of a node, and the reason why it is not ready.
fn picture(n: &NodeView, largest: Bytes, paint: TextPainter) -> String {
    let reason = n
        .not_ready_reason()
        .map(|r| format!("  {}", paint.warn(r)))
        .unwrap_or_default();
    let label = if n.enforcer.is_kernel() {
        ""
    } else {
        "  not kernel-enforced"
    };
    // A node that is not ready for this reason shows it as its reason.
    let left = n
        .leftover_text()
        .filter(|_| n.not_ready_reason().is_none())
        .map(|left| format!("  {}", paint.warn(&left)))
        .unwrap_or_default();
    format!("{}{reason}{left}{label}", bar(n, largest))
}

fn bar(n: &NodeView, largest: Bytes) -> String {
    let granted = n.allocated.memory;
    // If no container declares a heap, all memory is one quantity.
    let heap = if n.allocated_heap.is_zero() {
        granted
    } else {
        n.allocated_heap.min(granted)
    };
    bars::stacked(
        heap,
        granted.saturating_sub(heap),
        n.offers.memory,
        bars::scaled(n.offers.memory, largest, WIDTH),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_wire::v1::nodes::NodeDrainMark;

    #[test]
    fn nodes_of_two_sizes() {
        insta::assert_snapshot!(screen(&fixture::nodes(), ListStyle::USUAL));
    }

    #[test]
    fn a_node_with_its_containers() {
        insta::assert_snapshot!(one(
            &fixture::nodes()[0],
            &fixture::containers(),
            fixture::NOW,
            TextPainter::PLAIN
        ));
    }

    #[test]
    fn a_node_with_labels_and_a_cordon() {
        let node = fixture::tagged();
        insta::assert_snapshot!(one(&node, &[], fixture::NOW, TextPainter::PLAIN));
        insta::assert_snapshot!(screen(&[node], ListStyle::WIDE));
    }

    #[test]
    fn memory_of_ended_containers_is_not_free_and_is_named() {
        let mut node = fixture::nodes().remove(3);
        node.unattributed = Bytes::from_gib(5);
        let owner = headroom_types::exit::LeftoverOwner {
            name: "etl.4.e1.c2".into(),
            memory: Bytes::from_gib(4),
        };
        node.left_by = vec![owner];
        let text = screen(&[node.clone()], ListStyle::USUAL);
        let row = text.lines().nth(1).expect("a row");
        assert!(
            row.contains("  10G  ") && row.ends_with("5 GiB left behind by ended containers"),
            "{text}"
        );
        let text = one(&node, &[], fixture::NOW, TextPainter::PLAIN);
        assert!(
            text.contains(
                "left       5 GiB left behind by ended containers; left by etl.4.e1.c2 (4 GiB)"
            ),
            "{text}"
        );
        assert!(
            screen(&[node], ListStyle::WIDE)
                .lines()
                .next()
                .is_some_and(|head| head.contains("LEFT"))
        );
    }

    #[test]
    fn a_drained_node_shows_its_reason() {
        let mut node = fixture::nodes().remove(0);
        node.state = "draining".into();
        node.mark = Some(NodeDrainMark {
            reason: "kernel upgrade".into(),
            until: None,
            decommission: false,
            drained: false,
        });
        let text = screen(&[node], ListStyle::USUAL);
        assert!(
            text.lines()
                .nth(1)
                .is_some_and(|line| line.ends_with("  kernel upgrade")),
            "{text}"
        );
    }

    #[test]
    fn wide_output_shows_addresses_and_versions() {
        insta::assert_snapshot!(screen(&fixture::nodes(), ListStyle::WIDE));
    }

    #[test]
    fn a_draining_node_shows_its_remaining_containers() {
        let mut node = fixture::nodes().remove(0);
        let until = Some(UnixMillis(fixture::NOW.0 + 600_000));
        let mut mark = NodeDrainMark {
            reason: "kernel".into(),
            until,
            decommission: false,
            drained: false,
        };
        let drain_text = |mark: &NodeDrainMark, node: &mut NodeView| {
            node.mark = Some(mark.clone());
            drained(node, fixture::NOW)
        };
        let text = drain_text(&mark, &mut node);
        assert!(
            text.starts_with(
                "worker-01 gets no new work; 4 containers on it, the rest is stopped in 10m"
            ),
            "{text}"
        );
        mark.drained = true;
        assert!(drain_text(&mark, &mut node).starts_with("worker-01 is empty\n"));
        mark.decommission = true;
        assert!(drain_text(&mark, &mut node).contains("has left the cluster"));
    }

    #[test]
    fn an_empty_list_shows_how_to_start_a_node() {
        assert!(screen(&[], ListStyle::USUAL).contains("rmctl dev"));
    }
}
