//! Where one container goes. Pure: a need and the index in, a node out.

use headroom_types::{NodeId, Resource};

use super::index::FreeIndex;

/// What one container needs of its node.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// Its size.
    pub size: &'a Resource,
    /// Not on these while another fits.
    pub avoid: &'a [NodeId],
    /// Only on these; empty for any.
    pub only: &'a [NodeId],
    /// There if it fits.
    pub prefer: Option<&'a NodeId>,
}

/// The node for it, if any has the room now.
pub fn choose<'a>(index: &'a FreeIndex, need: Need<'a>) -> Option<&'a NodeId> {
    let fits = |node: &NodeId| index.room(node).is_some_and(|room| need.size.fits(room));
    if let Some(node) = need.prefer
        && fits(node)
        && !need.avoid.contains(node)
    {
        return Some(node);
    }
    let wanted = |node: &NodeId| !need.avoid.contains(node);
    if need.only.is_empty() {
        return index.best_fit(need.size, wanted).or_else(|| index.best_fit(need.size, |_| true));
    }
    let tightest = |keep: &dyn Fn(&NodeId) -> bool| {
        let candidates = need.only.iter().filter(|n| fits(n) && keep(n));
        candidates.min_by_key(|n| (index.room(n).map(|room| room.memory), *n))
    };
    tightest(&wanted).or_else(|| tightest(&|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    fn node(text: &str) -> NodeId {
        text.parse().expect("id")
    }
    fn index() -> FreeIndex {
        let mut index = FreeIndex::default();
        for (name, gib) in [("big", 16), ("mid", 8), ("small", 4)] {
            index.put(&node(name), Resource::new(Bytes::from_gib(gib), Cpus::from_cores(4)));
        }
        index
    }
    fn pick(gib: u64, avoid: &[NodeId], only: &[NodeId], prefer: Option<&NodeId>) -> Option<String> {
        let size = Resource::new(Bytes::from_gib(gib), Cpus::from_cores(1));
        choose(&index(), Need { size: &size, avoid, only, prefer }).map(ToString::to_string)
    }

    #[test]
    fn the_tightest_node_wins() {
        assert_eq!(pick(3, &[], &[], None).as_deref(), Some("small"));
        assert_eq!(pick(5, &[], &[], None).as_deref(), Some("mid"));
        assert_eq!(pick(17, &[], &[], None), None);
    }

    #[test]
    fn an_avoided_node_is_taken_only_when_no_other_fits() {
        assert_eq!(pick(3, &[node("small")], &[], None).as_deref(), Some("mid"));
        assert_eq!(pick(9, &[node("big")], &[], None).as_deref(), Some("big"));
    }

    #[test]
    fn placement_and_preference() {
        assert_eq!(pick(3, &[], &[node("big"), node("mid")], None).as_deref(), Some("mid"));
        assert_eq!(pick(9, &[], &[node("mid")], None), None);
        assert_eq!(pick(3, &[], &[], Some(&node("big"))).as_deref(), Some("big"));
        assert_eq!(pick(3, &[node("mid")], &[node("big"), node("mid")], None).as_deref(), Some("big"));
    }
}
