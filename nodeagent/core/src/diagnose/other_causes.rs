//! Rules for the program's own data, and for ends that are not charged to it.

use headroom_types::exit::OuterLevel;
use headroom_types::{Bytes, Certainty, Diagnosis, Dimension, ExitReason, SubCause};

use super::case::{DiagnosisInput, next_size, row};
use super::overhead;

pub(super) fn own_data(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    if c.verdict.dimension != Some(Dimension::Native)
        || c.verdict.reason == ExitReason::StalledAtLimit
    {
        return None;
    }
    let anon = c.e.own.stat.anon;
    let (certainty, what) = match (anon, anon.map(|anon| anon.saturating_sub(explained(c)))) {
        (Some(anon), Some(plain)) if c.is_share(plain, 50) => (
            Certainty::Certain,
            format!(
                "the program's own data ({anon} of anonymous memory when measured) filled the limit of {}",
                c.limit
            ),
        ),
        (_, _) if c.marked.is_some() => (
            Certainty::Likely,
            format!(
                "the runtime reported that its memory is full, at a limit of {}",
                c.limit
            ),
        ),
        (_, _) => (
            Certainty::Possible,
            format!(
                "the program needs more than its limit of {}; the use is only partly known",
                c.limit
            ),
        ),
    };
    let fix = format!(
        "try {}, the next size; a kill shows only that the program needs more than {}",
        next_size(c.seen),
        c.seen
    );
    Some(row(SubCause::OwnData, certainty, what, fix).with_trade_off("fewer tasks fit on a node"))
}

/// Anonymous memory that another row explains more exactly.
fn explained(c: &DiagnosisInput<'_>) -> Bytes {
    let arenas =
        c.e.inside
            .filter(|_| overhead::arenas(c).is_some())
            .map(|i| i.arenas);
    let stacks =
        c.e.inside
            .filter(|_| overhead::threads(c).is_some())
            .map(|i| i.stacks);
    let children = overhead::children(c).map(|_| overhead::others(c));
    [arenas, stacks, children]
        .into_iter()
        .flatten()
        .fold(Bytes::ZERO, Bytes::saturating_add)
}

/// From this share of the outer limit on, memory left behind by ended programs is reported. In
/// percent.
const LEFTOVER: u64 = 10;
/// From this share on, that memory alone explains the hit limit. In percent.
const LEFTOVER_CERTAIN: u64 = 25;

fn is_hit(level: &OuterLevel) -> bool {
    level.level != "host" && (level.local.oom > 0 || level.local.max > 0)
}

fn words(level: &OuterLevel) -> String {
    match level.limit {
        Some(limit) => format!("the cgroup `{}` ({limit})", level.level),
        None => format!("the cgroup `{}`", level.level),
    }
}

/// The innermost level that was hit and that leftover memory had filled.
pub(super) fn leftover(c: &DiagnosisInput<'_>) -> Option<Diagnosis> {
    let is_share = |level: &OuterLevel, percent| {
        let left = level
            .unattributed
            .as_ref()
            .map(|left| left.memory)
            .unwrap_or_default();
        level
            .limit
            .is_some_and(|limit| !limit.is_zero() && left >= limit.mul_ratio(percent, 100))
    };
    let level =
        c.e.outer
            .iter()
            .find(|level| is_hit(level) && is_share(level, LEFTOVER))?;
    let left = level.unattributed.as_ref()?;
    let certainty = if is_share(level, LEFTOVER_CERTAIN) {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    let cause = format!(
        "{} ran out of memory with {} of it held by no running program, {}; the kernel chose this victim with {} in use",
        words(level),
        left.memory,
        left.owners_text(),
        c.seen
    );
    let fix = "try again with the same size elsewhere; here, remove the files or shared memory of ended programs";
    Some(row(SubCause::Leftover, certainty, cause, fix).with_trade_off("none for the application"))
}

pub(super) fn outer_limit(c: &DiagnosisInput<'_>) -> Diagnosis {
    let level = c.e.outer.iter().find(|level| is_hit(level));
    let whose = level.map_or("an outer cgroup".to_owned(), words);
    let certainty = if level.is_some() {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    let cause = format!(
        "{whose} ran out of memory, and the kernel chose this victim with {} in use",
        c.seen
    );
    let fix =
        "try again with the same size on another node; here, raise the outer limit or offer less";
    row(SubCause::OuterLimit, certainty, cause, fix).with_trade_off("none for the application")
}

pub(super) fn host() -> Diagnosis {
    let cause = "the host itself ran out of memory; programs outside the containers use it";
    let fix = "try again with the same size on another node; here, raise the node's `reserve`";
    row(SubCause::HostMemory, Certainty::Certain, cause, fix)
        .with_trade_off("a larger reserve means fewer containers on this node")
}

pub(super) fn from_outside() -> Diagnosis {
    let cause = "neither the kernel's memory counters nor this agent explain the SIGKILL";
    let fix = "look for an operator or for systemd-oomd (journalctl -u systemd-oomd) at the time of the end";
    row(SubCause::FromOutside, Certainty::Possible, cause, fix)
}

pub(super) fn code_137() -> Diagnosis {
    let cause = "exit code 137 means that a child process got SIGKILL, and no memory counter moved";
    row(
        SubCause::Code137,
        Certainty::Possible,
        cause,
        "look into its log for the killed process and the sender",
    )
}
