//! Validation of a queue tree: all problems at once, each with queue, key and correction.
//!
//! Reads only the definitions. Conditions that depend on the size of the cluster are not checked.

use std::collections::BTreeSet;

use headroom_types::{Name, QueuePath};

use super::spec::{LeafOrder, QueueDefinition, QueueDefinitionError, QueueShare, ShareOrAmount};

/// Most queues of a tree, including the root.
pub const MAX_QUEUES: usize = 10_000;
/// Most levels below the root.
pub const MAX_DEPTH: usize = 8;
/// Largest weight.
pub(super) const MAX_WEIGHT: u32 = 1_000_000;
/// The whole. Thousandths.
const WHOLE: u32 = 1000;
/// Longest path of a queue. Bytes.
const MAX_PATH: usize = 255;

/// All problems, in the order of the tree.
pub(super) fn problems(root: &QueueDefinition) -> Vec<QueueDefinitionError> {
    let mut check = QueueTreeValidator {
        queues: 0,
        problems: Vec::new(),
    };
    let path = QueuePath::root();
    if root.children.is_empty() {
        check.wrong(
            &path,
            "queues",
            "has no child queue".into(),
            "add one, such as default",
        );
    }
    if root.guaranteed != QueueShare::default() {
        check.wrong(
            &path,
            "guaranteed",
            "the root queue cannot have a guarantee".into(),
            "remove it",
        );
    }
    check.queue(&path, root, 0);
    if check.queues > MAX_QUEUES {
        let what = format!("{} queues are too many", check.queues);
        check.wrong(
            &path,
            "queues",
            what,
            "define at most 10000, and let several users share a leaf",
        );
    }
    check.problems
}

struct QueueTreeValidator {
    queues: usize,
    problems: Vec<QueueDefinitionError>,
}

impl QueueTreeValidator {
    fn wrong(&mut self, queue: &QueuePath, key: &'static str, what: String, fix: &str) {
        self.problems.push(QueueDefinitionError {
            queue: queue.clone(),
            key,
            what,
            fix: fix.to_owned(),
        });
    }

    fn queue(&mut self, path: &QueuePath, spec: &QueueDefinition, depth: usize) {
        self.queues += 1;
        self.share(path, "guaranteed", &spec.guaranteed);
        self.share(path, "maximum", &spec.maximum);
        self.order_of_shares(path, spec);
        self.limits(path, spec);
        if !spec.children.is_empty() {
            self.inner(path, spec);
            self.guarantees_of_children(path, spec);
        }
        if depth == MAX_DEPTH && !spec.children.is_empty() {
            let what = format!("is {MAX_DEPTH} levels below the root and cannot have child queues");
            self.wrong(path, "queues", what, "make it a leaf");
            return;
        }
        for (name, child) in &spec.children {
            let path = path.child(name);
            if path.as_str().len() > MAX_PATH {
                self.wrong(
                    &path,
                    "queues",
                    format!("its path is longer than {MAX_PATH} bytes"),
                    "use shorter names",
                );
            }
            self.queue(&path, child, depth + 1);
        }
    }

    fn share(&mut self, path: &QueuePath, key: &'static str, share: &QueueShare) {
        let memory = share.memory.map(|amount| {
            (
                "memory",
                part(amount),
                amount == ShareOrAmount::Exactly(Default::default()),
            )
        });
        let cpus = share.cpus.map(|amount| {
            (
                "cpus",
                part(amount),
                amount == ShareOrAmount::Exactly(Default::default()),
            )
        });
        let extra = share
            .extra
            .iter()
            .map(|(name, amount)| (name.as_str(), part(*amount), false));
        for (resource, part, zero) in memory.into_iter().chain(cpus).chain(extra) {
            if part.is_some_and(|part| part > WHOLE) {
                let what = format!("{resource} is more than 100 % of the parent queue");
                self.wrong(path, key, what, "write at most 100 %");
            }
            // a queue may be excluded from a countable resource
            if key == "maximum"
                && (zero || (part == Some(0) && matches!(resource, "memory" | "cpus")))
            {
                self.wrong(
                    path,
                    key,
                    format!("{resource} is 0"),
                    "write more than 0, or stop the queue with its key state",
                );
            }
        }
    }

    /// Checks that the maximum is not below the guarantee where both use the same unit.
    fn order_of_shares(&mut self, path: &QueuePath, spec: &QueueDefinition) {
        let (low, high) = (&spec.guaranteed, &spec.maximum);
        let mut short = Vec::new();
        if is_less(high.memory, low.memory) {
            short.push("memory".to_owned());
        }
        if is_less(high.cpus.or(follow(high)), low.cpus.or(follow(low))) {
            short.push("cpus".to_owned());
        }
        for name in low
            .extra
            .keys()
            .chain(high.extra.keys())
            .collect::<BTreeSet<_>>()
        {
            let of = |share: &QueueShare| share.extra.get(name).copied().or(follow(share));
            if is_less(of(high), of(low)) {
                short.push(name.to_string());
            }
        }
        for resource in short {
            let what = format!("less {resource} than is guaranteed");
            self.wrong(
                path,
                "maximum",
                what,
                "raise it to the guarantee, or lower the guarantee",
            );
        }
    }

    fn limits(&mut self, path: &QueuePath, spec: &QueueDefinition) {
        if spec
            .weight
            .is_some_and(|weight| !(1..=MAX_WEIGHT).contains(&weight))
        {
            self.wrong(
                path,
                "weight",
                "is not a valid weight".into(),
                "write 1 to 1000000",
            );
        }
        for (key, part) in [
            ("user_limit", spec.user_limit),
            ("master_share", spec.master_share),
        ] {
            if part.is_some_and(|part| !(1..=WHOLE).contains(&part)) {
                self.wrong(
                    path,
                    key,
                    "is not a valid share of the queue".into(),
                    "write more than 0 and at most 100 %",
                );
            }
        }
        for (key, zero) in [
            ("max_running", spec.max_running == Some(0)),
            ("max_apps", spec.max_apps == Some(0)),
            ("max_lifetime", spec.max_lifetime_ms == Some(0)),
        ] {
            if zero {
                self.wrong(
                    path,
                    key,
                    "is 0".into(),
                    "write more than 0, or stop the queue with its key state",
                );
            }
        }
    }

    /// Checks for keys that only a leaf can have.
    fn inner(&mut self, path: &QueuePath, spec: &QueueDefinition) {
        for (key, set) in [
            ("order", spec.order != LeafOrder::default()),
            ("user_limit", spec.user_limit.is_some()),
            ("master_share", spec.master_share.is_some()),
            ("max_running", spec.max_running.is_some()),
            ("max_apps", spec.max_apps.is_some()),
            ("max_lifetime", spec.max_lifetime_ms.is_some()),
        ] {
            if set {
                self.wrong(
                    path,
                    key,
                    "has no effect on a queue with child queues".into(),
                    "set it on its leaves",
                );
            }
        }
    }

    /// Checks that the guarantees of siblings do not exceed that of their parent.
    fn guarantees_of_children(&mut self, path: &QueuePath, spec: &QueueDefinition) {
        let children = || spec.children.values().map(|child| &child.guaranteed);
        let own = &spec.guaranteed;
        let memory = sum(children().map(|share| share.memory), |b| b.get());
        self.promised(
            path,
            "memory",
            memory,
            own.memory.and_then(exactly).map(headroom_types::Bytes::get),
        );
        let cpus = sum(children().map(|share| share.cpus.or(follow(share))), |c| {
            u64::from(c.milli())
        });
        self.promised(
            path,
            "cpus",
            cpus,
            own.cpus.and_then(exactly).map(|c| u64::from(c.milli())),
        );
        let names: BTreeSet<&Name> = children().flat_map(|share| share.extra.keys()).collect();
        for name in names {
            let given = sum(
                children().map(|share| share.extra.get(name).copied().or(follow(share))),
                |n| n,
            );
            self.promised(
                path,
                name.as_str(),
                given,
                own.extra.get(name).copied().and_then(exactly),
            );
        }
    }

    fn promised(
        &mut self,
        path: &QueuePath,
        resource: &str,
        (parts, exact): (u64, u64),
        own: Option<u64>,
    ) {
        if parts > u64::from(WHOLE) {
            let what = format!(
                "its child queues are guaranteed {}.{} % of its {resource} together",
                parts / 10,
                parts % 10
            );
            self.wrong(
                path,
                "guaranteed",
                what,
                "lower them to at most 100 % together",
            );
        }
        let left = own.map(|own| {
            own.saturating_sub(own.saturating_mul(parts.min(u64::from(WHOLE))) / u64::from(WHOLE))
        });
        if left.is_some_and(|left| exact > left) {
            let what =
                format!("its child queues are guaranteed more {resource} than the queue itself");
            self.wrong(
                path,
                "guaranteed",
                what,
                "lower them, or raise the guarantee of the queue",
            );
        }
    }
}

/// Amount of a resource that is not named.
fn follow<T>(share: &QueueShare) -> Option<ShareOrAmount<T>> {
    share.memory.and_then(part).map(ShareOrAmount::Part)
}

fn part<T>(amount: ShareOrAmount<T>) -> Option<u32> {
    match amount {
        ShareOrAmount::Part(part) => Some(part),
        ShareOrAmount::Exactly(_) => None,
    }
}

fn exactly<T>(amount: ShareOrAmount<T>) -> Option<T> {
    match amount {
        ShareOrAmount::Exactly(n) => Some(n),
        ShareOrAmount::Part(_) => None,
    }
}

fn is_less<T: PartialOrd>(high: Option<ShareOrAmount<T>>, low: Option<ShareOrAmount<T>>) -> bool {
    match (high, low) {
        (Some(ShareOrAmount::Part(high)), Some(ShareOrAmount::Part(low))) => high < low,
        (Some(ShareOrAmount::Exactly(high)), Some(ShareOrAmount::Exactly(low))) => high < low,
        // the comparison depends on the size of the cluster
        (Some(ShareOrAmount::Part(_) | ShareOrAmount::Exactly(_)), _) | (None, _) => false,
    }
}

/// Sums of the parts and of the absolute amounts.
fn sum<T>(
    amounts: impl Iterator<Item = Option<ShareOrAmount<T>>>,
    plain: impl Fn(T) -> u64,
) -> (u64, u64) {
    amounts
        .flatten()
        .fold((0, 0), |(parts, exact), amount| match amount {
            ShareOrAmount::Part(part) => (parts.saturating_add(u64::from(part)), exact),
            ShareOrAmount::Exactly(n) => (parts, exact.saturating_add(plain(n))),
        })
}
