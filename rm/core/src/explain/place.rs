//! Reason why a container cannot be placed now, as one sentence with names and numbers.

use headroom_types::{AppId, NodeId, RequestId, Resource, Tick};

use crate::cluster::Cluster;
use crate::ledger::NodeAccount;
use crate::phrase::{either, left_words, pair, shortfall};
use crate::placement::{AttributeMatch, LocalityLevel, PlacementRules, RelaxationPolicy};
use crate::sched::constraint::{
    ANYWHERE, candidates, has_rules, is_choosy, lasting_misfit, misfit,
};
use crate::sched::fit::{self, PlacementNeed};
use crate::sched::index::{FreeIndex, IndexedNode};
use crate::sched::locality::ExcludedPlaces;
use crate::sched::node_ix::NodeNumber;
use crate::sched::reservation::Reservation;
use crate::timer::{TimerKey, TimerQueue};

impl Cluster {
    /// Reason why a container cannot be placed now.
    pub(crate) fn place_sentence(&self, need: PlacementNeed<'_>, now: Tick) -> String {
        if let Some(sentence) = self
            .patience_sentence(need, now)
            .or_else(|| apart_sentence(self.nodes.index(), need))
        {
            return sentence;
        }
        let sentence = if is_choosy(need.place) {
            self.kind_sentence(need)
        } else {
            self.open_sentence(need)
        };
        match self.kept_sentence(need, now) {
            Some(kept) => format!("{sentence}; {kept}"),
            None => sentence,
        }
    }

    /// The node that is reserved for the request, or a suitable node that is reserved for another
    /// request.
    fn kept_sentence(&self, need: PlacementNeed<'_>, now: Tick) -> Option<String> {
        let free = |kept: &Reservation| self.ledger().node(&kept.node).map(NodeAccount::free);
        let own = need
            .of
            .and_then(|(app, request)| self.scheduler.reservations.of(&app.id, request));
        if let Some((_, kept)) = own {
            let (node, since) = (&kept.node, now.since(kept.since).as_secs());
            let short = shortfall(need.size, &free(kept)?);
            let frees = self.frees_up(kept, now).unwrap_or_default();
            return Some(format!(
                "{node} is reserved for this request since {since} s, {short}{frees}"
            ));
        }
        let would = |node: NodeNumber| {
            let account = self.ledger().account(node);
            account.is_some_and(|account| need.size.fits(&account.free()))
                && self
                    .nodes
                    .index()
                    .slot(node)
                    .is_some_and(|slot| misfit(need.place, slot).is_none())
        };
        let mut all = self.scheduler.reservations.all();
        let (_, kept) = all.find(|(node, _)| would(*node))?;
        Some(format!(
            "{} has enough free resources and is {}",
            kept.node,
            reserved_for(kept, now)
        ))
    }

    fn frees_up(&self, kept: &Reservation, now: Tick) -> Option<String> {
        let on_node = self.containers_on(&kept.node);
        let oldest = on_node
            .filter(|c| c.state.is_alive())
            .min_by_key(|c| (c.granted, &c.id))?;
        let age = self.wall(now).0.saturating_sub(oldest.granted.0) / 1000;
        Some(format!(
            "; its containers must end first; {} has run longest, for {age} s",
            oldest.id
        ))
    }

    /// Reason when a node has enough free resources, but the request still waits for a preferred
    /// one.
    fn patience_sentence(&self, need: PlacementNeed<'_>, now: Tick) -> Option<String> {
        let preferred = match (need.place.relax, need.reach) {
            (RelaxationPolicy::After { .. }, LocalityLevel::Nodes) => either(need.prefer.iter()),
            (RelaxationPolicy::After { .. }, LocalityLevel::Racks) => {
                format!(
                    "a preferred rack, such as {}",
                    near(self.nodes.index(), need)?
                )
            }
            (RelaxationPolicy::AtOnce | RelaxationPolicy::Never, _)
            | (RelaxationPolicy::After { .. }, LocalityLevel::Anywhere) => return None,
        };
        let (app, request) = need.of?;
        let elsewhere = self.nodes.index().id(fit::choose(
            self.nodes.index(),
            PlacementNeed {
                reach: LocalityLevel::Anywhere,
                ..need
            },
        )?)?;
        let left = wait_left(&self.timers, &app.id, request, now);
        Some(format!(
            "waits {left} s more for {preferred}; {elsewhere} has enough free resources"
        ))
    }

    /// Reason why no node that matches the placement rules has enough free resources.
    fn kind_sentence(&self, need: PlacementNeed<'_>) -> String {
        let (place, size) = (need.place, need.size);
        let kind: Vec<&IndexedNode> = candidates(self.nodes.index(), place, size)
            .filter(|slot| misfit(place, slot).is_none())
            .collect();
        let named = has_rules(place)
            && rules(place)
                == rules(&PlacementRules {
                    nodes: place.nodes.clone(),
                    ..PlacementRules::default()
                });
        let count = if named { place.nodes.len() } else { kind.len() };
        let those = if named {
            "that the request names".into()
        } else {
            rules(place)
        };
        let open = kind
            .iter()
            .filter_map(|slot| Some((slot.room.as_ref()?, &slot.node)));
        let Some((room, node)) =
            open.max_by_key(|(room, node)| (size.fits(room), room.memory, room.cpus, *node))
        else {
            let but = |slot: &&IndexedNode| lasting_misfit(place, slot).is_none();
            let tainted = candidates(self.nodes.index(), place, size)
                .find(but)
                .filter(|_| count == 0);
            return if let Some((slot, misfit)) =
                tainted.and_then(|slot| Some((slot, misfit(place, slot)?)))
            {
                format!(
                    "no node {those} takes this request now; {}: {misfit}",
                    slot.node
                )
            } else if count == 0 {
                format!("no node is {those} now")
            } else if count == 1 {
                format!("the only node {those} takes no work now")
            } else {
                format!("none of the {count} nodes {those} takes work now")
            };
        };
        if size.fits(room) {
            return "a node has enough free resources; the container is about to be placed".into();
        }
        let largest = kind
            .iter()
            .filter_map(|slot| Some((slot.offers.as_ref()?, &slot.node)));
        let largest =
            largest.max_by_key(|(offers, node)| (size.fits(offers), offers.memory, *node));
        if let Some((offers, node)) = largest.filter(|(offers, _)| !size.fits(offers)) {
            return format!(
                "needs {size} on a node {those}, and the largest that is left, {node}, has only {offers} in all"
            );
        }
        let left = if size.memory > room.memory {
            left_words(self.ledger().unattributed(node))
        } else {
            String::new()
        };
        if named {
            return format!(
                "needs {} on one of the {count} named nodes; best of them is {node} with {room} free{left}",
                size.memory
            );
        }
        format!("needs {size} on a node {those}; best is {node} with {room} free{left}")
    }

    /// Reason why no schedulable node has enough free resources.
    fn open_sentence(&self, need: PlacementNeed<'_>) -> String {
        let Some((most, room)) = self.nodes.index().most_memory() else {
            return self.no_node_sentence();
        };
        let size = need.size;
        let holds = |slot: &IndexedNode| slot.offers.as_ref().is_some_and(|o| size.fits(o));
        if !self.nodes.by_offered_memory().any(holds)
            && let Some((node, largest)) = self.nodes.largest()
        {
            return format!(
                "needs {size} on one node, and the largest node that is left, {node}, has only {largest} in all"
            );
        }
        if room.memory < size.memory {
            let left = left_words(self.ledger().unattributed(most));
            return format!(
                "needs {} on one node; best is {most} with {} free{left}",
                size.memory, room.memory
            );
        }
        if self.nodes.index().best_fit(size).is_some() {
            return "a node has enough free resources; the container is about to be placed".into();
        }
        let (node, room) = most_pieces(self.nodes.index(), need)
            .or_else(|| self.nodes.index().most_cpus(size.memory))
            .unwrap_or((most, room));
        format!("needs {size} on one node; best is {node} with {room} free")
    }

    fn no_node_sentence(&self) -> String {
        let Some(node) = self.nodes.values().find(|n| n.state.is_member()) else {
            return "no node has registered".into();
        };
        let none = match self.nodes.values().filter(|n| n.state.is_member()).count() {
            1 => "the only node does not take".to_owned(),
            members => format!("none of {members} nodes takes"),
        };
        if let Some(kept) = self.nodes.index().rooms().map(|(node, _)| node).next() {
            let why = self
                .nodes
                .slot_of(kept)
                .and_then(|slot| misfit(&ANYWHERE, slot));
            let why = why
                .map(|misfit| format!("; {kept}: {misfit}"))
                .unwrap_or_default();
            return format!("{none} this work now{why}");
        }
        let left = left_words(self.ledger().unattributed(&node.id));
        format!(
            "{none} work now; {} is {}{left}",
            node.id,
            self.nodes.standing_words(node)
        )
    }
}

fn near(index: &FreeIndex, need: PlacementNeed<'_>) -> Option<String> {
    let of_node = |ix| index.slot(ix)?.traits.rack.as_ref();
    let of_nodes = need
        .prefer
        .iter()
        .filter_map(|node| of_node(index.ix(node)?));
    need.place
        .prefer_racks
        .iter()
        .chain(of_nodes)
        .next()
        .map(ToString::to_string)
}

/// Seconds until the preference is relaxed by one level, rounded up.
pub(super) fn wait_left(timers: &TimerQueue, app: &AppId, request: &RequestId, now: Tick) -> f64 {
    let due = timers.of(&TimerKey::Reach(app.clone(), request.clone()));
    due.map_or(0.0, |due| due.since(now).as_secs_f64().ceil())
}

/// Reason when only anti-affinity excludes nodes with enough free resources.
fn apart_sentence(index: &FreeIndex, need: PlacementNeed<'_>) -> Option<String> {
    let (app, request) = need.of?;
    let barred = ExcludedPlaces::apart(index, app, request, need.place);
    if barred.nodes.is_empty() && barred.racks.is_empty() {
        return None;
    }
    let beside = index.id(fit::choose(index, PlacementNeed { of: None, ..need })?)?;
    Some(format!(
        "{beside} has enough free resources, but anti-affinity with containers there excludes it"
    ))
}

/// Node with the most free pieces of the rarest countable resource of a need.
fn most_pieces<'i>(
    index: &'i FreeIndex,
    need: PlacementNeed<'_>,
) -> Option<(&'i NodeId, &'i Resource)> {
    let known = need
        .size
        .extra
        .keys()
        .filter_map(|name| Some((name, index.extras.get(name)?)));
    let (name, extra) = known.min_by_key(|(_, extra)| extra.members.len())?;
    let rooms = extra
        .members
        .iter()
        .filter_map(|ix| index.slot(*ix))
        .filter_map(|slot| Some((&slot.node, slot.room.as_ref()?)));
    rooms.max_by_key(|(node, room)| (room.extra.get(name).copied(), room.memory, *node))
}

/// Owner of a reservation, as text.
pub(super) fn reserved_for(kept: &Reservation, now: Tick) -> String {
    format!(
        "reserved for {}/{} since {} s",
        kept.app,
        kept.request,
        now.since(kept.since).as_secs()
    )
}

/// Placement rules as text that follows "a node" or "no node is".
pub(super) fn rules(place: &PlacementRules) -> String {
    let mut all = Vec::new();
    if !place.nodes.is_empty() {
        all.push(format!("among the {} named nodes", place.nodes.len()));
    }
    if !place.racks.is_empty() {
        all.push(format!("in rack {}", either(place.racks.iter())));
    }
    all.extend(
        place
            .labels
            .iter()
            .map(|label| format!("with label {label}")),
    );
    all.extend(place.attributes.iter().map(|(name, wanted)| match wanted {
        AttributeMatch::Exists => format!("with attribute {name}"),
        AttributeMatch::Absent => format!("without attribute {name}"),
        AttributeMatch::OneOf(values) => format!("with {name} {}", either(values.iter())),
        AttributeMatch::NoneOf(values) => {
            format!("with {name} other than {}", either(values.iter()))
        }
    }));
    if !place.tolerate.is_empty() {
        let taints = place
            .tolerate
            .iter()
            .map(|(name, value)| pair(name, value.as_deref().unwrap_or_default()));
        all.push(format!("without taints other than {}", either(taints)));
    }
    if place.relax == RelaxationPolicy::Never && !place.prefer_nodes.is_empty() {
        all.push(format!(
            "among its required preferences: {}",
            either(place.prefer_nodes.iter())
        ));
    } else if place.relax == RelaxationPolicy::Never && !place.prefer_racks.is_empty() {
        all.push(format!(
            "in one of its required racks: {}",
            either(place.prefer_racks.iter())
        ));
    }
    all.join(" and ")
}

/// Reason why anti-affinity excludes a node.
pub(super) fn barred(
    index: &FreeIndex,
    need: PlacementNeed<'_>,
    slot: &IndexedNode,
) -> Option<String> {
    let (app, request) = need.of?;
    let barred = ExcludedPlaces::apart(index, app, request, need.place);
    let ix = index.ix(&slot.node)?;
    match &slot.traits.rack {
        Some(rack) if barred.racks.contains(rack) => {
            Some(format!("anti-affinity with containers in rack {rack}"))
        }
        Some(_) | None => barred
            .nodes
            .contains(&ix)
            .then(|| "anti-affinity with containers there".into()),
    }
}
