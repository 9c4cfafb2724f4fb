//! All nodes, with what is granted on each as a bar. Bars are to one scale, so that a larger node has a longer one.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_wire::v1::nodes::NodeView;

use super::figures::{percent, short, span};
use super::table::Table;
use super::{Paint, bars};

/// Characters of the largest node's bar.
const WIDTH: usize = 36;

/// The whole screen.
pub(crate) fn screen(nodes: &[NodeView], wide: bool, paint: Paint) -> String {
    if nodes.is_empty() {
        return "no node has registered\nnext: nodeagent --rm URL, or rmctl dev for a cluster on this machine\n".to_owned();
    }
    let legend = "█ heap  ▒ overhead  · free";
    let mut headers = vec!["NODE", "STATE", ">SIZE", ">ALLOC", ">USED", ">HOST", ">CTR", ">FREE"];
    if wide {
        headers.extend([">CPUS", "ENFORCER", "VERSION", ">SILENT", "URL"]);
    }
    headers.push(legend);
    let mut table = Table::new(&headers);
    let largest = nodes.iter().map(|n| n.offers.memory).max().unwrap_or_default();
    for node in nodes {
        table.row(cells(node, largest, wide, paint));
    }
    table.text() + &paint.dim("next: rmctl status · rmctl ps") + "\n"
}

fn cells(n: &NodeView, largest: Bytes, wide: bool, paint: Paint) -> Vec<String> {
    let size = n.offers.memory;
    let state = if n.state == "ready" { n.state.clone() } else { paint.warn(&n.state) };
    let mut cells = vec![n.id.to_string(), state, short(size)];
    cells.extend([percent(n.allocated.memory, size), percent(n.used, size), short(n.host_used), n.containers.to_string()]);
    cells.push(short(size.saturating_sub(n.allocated.memory)));
    if wide {
        let silent = span(Duration::from_millis(n.silent_ms));
        let cpus = format!("{}/{}", n.allocated.cpus, n.offers.cpus);
        cells.extend([cpus, n.enforcer.to_string(), n.version.clone(), silent, n.url.clone()]);
    }
    let reason = n.reason.as_deref().map(|r| format!("  {}", paint.warn(r))).unwrap_or_default();
    let label = if n.enforcer.is_kernel() { "" } else { "  not kernel-enforced" };
    cells.push(format!("{}{reason}{label}", bar(n, largest)));
    cells
}

fn bar(n: &NodeView, largest: Bytes) -> String {
    let granted = n.allocated.memory;
    // Where no container declares a heap, all of it is one quantity.
    let heap = if n.allocated_heap.is_zero() { granted } else { n.allocated_heap.min(granted) };
    bars::stacked(heap, granted.saturating_sub(heap), n.offers.memory, bars::scaled(n.offers.memory, largest, WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn nodes_of_two_sizes() {
        insta::assert_snapshot!(screen(&fixture::nodes(), false, Paint::PLAIN));
    }

    #[test]
    fn wide_tells_where_they_are() {
        insta::assert_snapshot!(screen(&fixture::nodes(), true, Paint::PLAIN));
    }

    #[test]
    fn no_node_says_how_to_get_one() {
        assert!(screen(&[], false, Paint::PLAIN).contains("rmctl dev"));
    }
}
