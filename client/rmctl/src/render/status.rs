//! Screen of the cluster's summary.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_wire::v1::apps::{AppState, AppView, ClusterView};
use headroom_wire::v1::nodes::NodeView;

use super::figures::{byte_time, gib, percent, span};
use super::table::cut;
use super::{TextPainter, bars, count};

/// Width of the memory bar. Characters.
const WIDTH: usize = 24;
/// Longest line of the attention list. Columns.
const MOST: usize = 100;
/// Maximum number of nodes in the attention list.
const NODES: usize = 4;
/// Maximum number of failed jobs in the attention list.
const FAILED: usize = 2;

/// The whole screen.
pub(crate) fn screen(
    cluster: &ClusterView,
    nodes: &[NodeView],
    apps: &[AppView],
    paint: TextPainter,
) -> String {
    let mut lines = vec![
        head(cluster, paint),
        memory(cluster, nodes),
        jobs(cluster, apps),
    ];
    lines.push(kills(cluster, paint));
    let look = attention(cluster, nodes, apps);
    lines.extend(look.iter().map(|l| {
        format!(
            "{} {}  → {}",
            paint.warn("!"),
            cut(&l.what, MOST.saturating_sub(6 + l.see.len())),
            l.see
        )
    }));
    let see = look
        .first()
        .map(|l| format!("{} · ", l.see))
        .unwrap_or_default();
    lines.push(paint.dim(&format!(
        "next: {see}rmctl node list · rmctl ps · rmctl events -w"
    )));
    lines.join("\n") + "\n"
}

fn head(c: &ClusterView, paint: TextPainter) -> String {
    let other = c.nodes.saturating_sub(c.nodes_ready);
    let rest = if other > 0 {
        format!(", {other} not")
    } else {
        String::new()
    };
    let enforcer = match c.enforcers.as_slice() {
        [] => "no enforcer yet".to_owned(),
        all => format!(
            "enforcer {}",
            all.iter().map(|e| named(e)).collect::<Vec<_>>().join(", ")
        ),
    };
    format!(
        "{} · {} ({} ready{rest}) · resourcemanager {} up {}, epoch {} · {enforcer}",
        paint.strong("headroom"),
        count(c.nodes, "node"),
        c.nodes_ready,
        c.version,
        span(Duration::from_secs(c.up_s)),
        c.epoch
    )
}

/// The name of an enforcer. The fallback `poll` always has an explanation.
fn named(enforcer: &str) -> String {
    if enforcer == "poll" {
        "poll (not kernel-enforced)".to_owned()
    } else {
        enforcer.to_owned()
    }
}

fn memory(c: &ClusterView, nodes: &[NodeView]) -> String {
    let heap = nodes
        .iter()
        .fold(Bytes::ZERO, |sum, n| sum.saturating_add(n.allocated_heap))
        .min(c.allocated);
    // If no container declares a heap, all memory is one quantity.
    let (heap, overhead) = if heap.is_zero() {
        (c.allocated, Bytes::ZERO)
    } else {
        (heap, c.allocated.saturating_sub(heap))
    };
    format!(
        "memory  {}  {}/{} GiB allocated ({}), {} GiB in use · cpus {}/{}",
        bars::stacked(heap, overhead, c.memory, WIDTH),
        gib(c.allocated),
        gib(c.memory),
        percent(c.allocated, c.memory),
        gib(c.used),
        c.cpus_allocated,
        c.cpus
    )
}

fn jobs(c: &ClusterView, apps: &[AppView]) -> String {
    let n = |state: AppState| apps.iter().filter(|a| a.state == state).count();
    format!(
        "jobs    {} running, {} accepted, {} finished, {} failed    containers {} running, {} pending",
        n(AppState::Running) + n(AppState::Finishing),
        n(AppState::Accepted),
        n(AppState::Finished),
        n(AppState::Failed),
        c.containers,
        c.pending
    )
}

/// Memory kills, and the results of the tasks that escalated after them.
fn kills(c: &ClusterView, paint: TextPainter) -> String {
    let text = format!("oom 1h  {}", count(c.oom_1h, "kill"));
    let text = if c.oom_1h == 0 {
        text
    } else {
        paint.warn(&text)
    };
    let Some(h) = c
        .memory_1h
        .filter(|h| c.oom_1h > 0 || h.escalated > 0 || h.wasted_byte_s > 0)
    else {
        return text;
    };
    let rerun = byte_time(u128::from(h.wasted_byte_s) * 1000);
    let fates = format!(
        "{} recovered, {} running, {} exhausted",
        h.recovered, h.going_on, h.exhausted
    );
    format!(
        "{text} → {} escalated: {fates} · {rerun} re-run",
        count(h.escalated, "task")
    )
}

/// An entry of the attention list, with the command to type.
struct AttentionEntry {
    what: String,
    see: String,
}

/// The attention list, worst first: nodes, leftovers, waiting requests, recently failed jobs.
fn attention(cluster: &ClusterView, nodes: &[NodeView], apps: &[AppView]) -> Vec<AttentionEntry> {
    // Nodes that an operator drained or cordoned come last.
    let (planned, sick): (Vec<&NodeView>, Vec<&NodeView>) = nodes
        .iter()
        .filter(|n| n.state != "ready")
        .partition(|n| n.undo_verb().is_some());
    let mut look: Vec<AttentionEntry> = sick.iter().take(NODES).map(|n| trouble(n)).collect();
    let more = sick.len().saturating_sub(NODES);
    if more > 0 {
        look.push(AttentionEntry {
            what: format!("{more} more nodes are not ready"),
            see: "rmctl node list".into(),
        });
    }
    let left = |n: &NodeView| {
        let left = n.leftover_text().filter(|_| n.state == "ready")?;
        Some(AttentionEntry {
            what: format!("{} has {left}", n.id),
            see: format!("rmctl node show {}", n.id),
        })
    };
    look.extend(nodes.iter().filter_map(left).take(NODES));
    if let Some(sentence) = &cluster.longest_wait {
        let job = sentence
            .split(['/', ':', ' '])
            .next()
            .filter(|id| id.parse::<headroom_types::AppId>().is_ok())
            .unwrap_or("JOB");
        look.push(AttentionEntry {
            what: sentence.clone(),
            see: format!("rmctl why {job}"),
        });
    }
    let failed = apps
        .iter()
        .filter(|a| a.state == AppState::Failed && a.ended.is_some());
    let mut failed: Vec<&AppView> = failed.collect();
    failed.sort_by_key(|a| std::cmp::Reverse(a.ended));
    look.extend(failed.into_iter().take(FAILED).map(|a| AttentionEntry {
        what: format!("{} failed: {}", a.id, a.diagnostics),
        see: format!("rmctl diagnose {}", a.id),
    }));
    look.extend(planned.iter().take(NODES).map(|n| trouble(n)));
    look
}

fn trouble(node: &NodeView) -> AttentionEntry {
    let reason = node
        .not_ready_reason()
        .map(|r| format!(": {r}"))
        .unwrap_or_default();
    let verb = node.undo_verb().unwrap_or("show");
    let silent = Duration::from_millis(node.silent_ms);
    let silence = if silent >= Duration::from_secs(3) {
        format!(", silent for {}", span(silent))
    } else {
        String::new()
    };
    AttentionEntry {
        what: format!("{} is {}{silence}{reason}", node.id, node.state),
        see: format!("rmctl node {verb} {}", node.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_cluster_at_work() {
        let failed = AppView {
            id: "sort.3".parse().expect("id"),
            state: AppState::Failed,
            ended: Some(fixture::NOW),
            diagnostics: "3 of 4 tasks done, 1 failed: part/2 was killed alone at 15 GiB, the largest container here".into(),
            ..fixture::app()
        };
        let text = screen(
            &fixture::cluster(),
            &fixture::nodes(),
            &[fixture::app(), failed],
            TextPainter::PLAIN,
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn memory_left_on_a_ready_node_needs_attention() {
        let mut nodes = fixture::nodes();
        nodes[0].unattributed = Bytes::from_gib(12);
        let text = screen(&fixture::cluster(), &nodes, &[], TextPainter::PLAIN);
        assert!(text.contains("! worker-01 has 12 GiB left behind by ended containers  → rmctl node show worker-01"), "{text}");
    }

    #[test]
    fn kills_are_counted_without_a_report_of_their_results() {
        let mut c = fixture::cluster();
        c.memory_1h = None;
        assert!(screen(&c, &[], &[], TextPainter::PLAIN).contains("\noom 1h  6 kills\n"));
    }

    #[test]
    fn an_empty_cluster_without_kernel_enforcement() {
        let mut c = fixture::cluster();
        (c.nodes, c.nodes_ready, c.memory, c.allocated, c.used) =
            (1, 1, Bytes::from_gib(2), Bytes::ZERO, Bytes::ZERO);
        (c.oom_1h, c.memory_1h, c.longest_wait, c.enforcers) = (0, None, None, vec!["poll".into()]);
        (c.containers, c.pending, c.up_s) = (0, 0, 4);
        insta::assert_snapshot!(screen(&c, &[], &[], TextPainter::PLAIN));
    }
}
