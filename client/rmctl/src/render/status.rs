//! The cluster on one screen.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_wire::v1::apps::{AppState, AppView, ClusterView};
use headroom_wire::v1::nodes::NodeView;

use super::figures::{gib, percent, span};
use super::{Paint, bars, count};

/// Characters of the memory bar.
const WIDTH: usize = 24;

/// The whole screen.
pub(crate) fn screen(cluster: &ClusterView, nodes: &[NodeView], apps: &[AppView], paint: Paint) -> String {
    let mut lines = vec![head(cluster, paint), memory(cluster, nodes), jobs(cluster, apps)];
    lines.push(kills(cluster, paint));
    if let Some(sentence) = &cluster.longest_wait {
        let see = sentence.split(':').next().filter(|id| id.parse::<headroom_types::AppId>().is_ok()).unwrap_or("JOB");
        lines.push(format!("{} {sentence}  → rmctl why {see}", paint.warn("!")));
    }
    lines.extend(nodes.iter().filter(|n| n.state != "ready").map(|n| trouble(n, paint)));
    lines.push(paint.dim("next: rmctl node list · rmctl ps · rmctl events -w"));
    lines.join("\n") + "\n"
}

fn head(c: &ClusterView, paint: Paint) -> String {
    let other = c.nodes.saturating_sub(c.nodes_ready);
    let rest = if other > 0 { format!(", {other} not") } else { String::new() };
    let enforcer = match c.enforcers.as_slice() {
        [] => "no enforcer yet".to_owned(),
        all => format!("enforcer {}", all.iter().map(|e| named(e)).collect::<Vec<_>>().join(", ")),
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

/// The fallback is never shown without saying what it is.
fn named(enforcer: &str) -> String {
    if enforcer == "poll" { "poll (not kernel-enforced)".to_owned() } else { enforcer.to_owned() }
}

fn memory(c: &ClusterView, nodes: &[NodeView]) -> String {
    let heap = nodes.iter().fold(Bytes::ZERO, |sum, n| sum.saturating_add(n.allocated_heap)).min(c.allocated);
    // Where no container declares a heap, all of it is one quantity.
    let (heap, overhead) = if heap.is_zero() { (c.allocated, Bytes::ZERO) } else { (heap, c.allocated.saturating_sub(heap)) };
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

fn kills(c: &ClusterView, paint: Paint) -> String {
    let text = format!("oom 1h  {}", count(c.oom_1h, "kill"));
    if c.oom_1h == 0 { text } else { format!("{} · rmctl events --warnings", paint.warn(&text)) }
}

fn trouble(node: &NodeView, paint: Paint) -> String {
    let reason = node.reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default();
    let silent = Duration::from_millis(node.silent_ms);
    let silence = if silent >= Duration::from_secs(3) { format!(", silent for {}", span(silent)) } else { String::new() };
    format!("{} node {} is {}{reason}{silence}", paint.warn("!"), node.id, node.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_cluster_at_work() {
        insta::assert_snapshot!(screen(&fixture::cluster(), &fixture::nodes(), &[fixture::app()], Paint::PLAIN));
    }

    #[test]
    fn an_empty_cluster_that_only_measures() {
        let mut c = fixture::cluster();
        (c.nodes, c.nodes_ready, c.memory, c.allocated, c.used) = (1, 1, Bytes::from_gib(2), Bytes::ZERO, Bytes::ZERO);
        (c.oom_1h, c.longest_wait, c.enforcers) = (0, None, vec!["poll".into()]);
        (c.containers, c.pending, c.up_s) = (0, 0, 4);
        insta::assert_snapshot!(screen(&c, &[], &[], Paint::PLAIN));
    }
}
