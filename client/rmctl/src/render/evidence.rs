//! Evidence as sentences: the values of counters, and the values that could not be read.

use std::time::Duration;

use headroom_types::exit::{Evidence, MemoryEvents, MemorySample, OuterLevel};
use headroom_types::{Bytes, StopCause};

use super::figures::{fine_span, percent};

/// One line for each kind of evidence.
pub(crate) fn lines(e: &Evidence, timeline: &[MemorySample]) -> Vec<String> {
    let mut lines = vec![own(e)];
    let outer: Vec<String> = e.outer.iter().map(level).collect();
    if !outer.is_empty() {
        lines.push(format!("outer levels: {}", outer.join(" · ")));
    }
    lines.extend(if e.inside.is_some() {
        parts(e)
    } else {
        kinds(e, timeline)
    });
    lines.extend(heap(e));
    lines.extend(collecting(e));
    if let Some(marker) = &e.heap_marker {
        lines.push(format!("runtime message: {}", marker.trim()));
    }
    if !e.own_limits.is_empty() {
        let set: Vec<String> = e.own_limits.iter().map(ToString::to_string).collect();
        lines.push(format!("limits set by hand: {}", set.join(", ")));
    }
    if let Some(cause) = e.stop_asked {
        lines.push(format!("stop requested: {}", stop(cause)));
    }
    if !e.victims.is_empty() {
        let named: Vec<String> = e
            .victims
            .iter()
            .take(3)
            .map(|v| format!("{} (pid {}) {}", v.name, v.pid, v.rss))
            .collect();
        lines.push(format!("largest: {}", named.join(", ")));
    }
    if !e.missing.is_empty() {
        lines.push(format!(
            "not used, because it could not be read: {}",
            e.missing.join("; ")
        ));
    }
    lines
}

fn own(e: &Evidence) -> String {
    let limit = e
        .own
        .limit
        .map_or_else(|| "no limit".to_owned(), |l| format!("limit {l}"));
    let peak = e
        .own
        .peak
        .map(|p| format!(", peak {p}"))
        .unwrap_or_default();
    let held = if e.enforcer.is_kernel() {
        e.enforcer.to_string()
    } else {
        "poll (not kernel-enforced)".to_owned()
    };
    format!(
        "{limit}{peak} · own counters: {} · enforcer {held}",
        counters(&e.own.local, &e.own.events)
    )
}

/// The counters that are not zero. A local counter is shown if it differs from the hierarchical
/// one.
fn counters(local: &MemoryEvents, all: &MemoryEvents) -> String {
    let pick = |name: &str, local: u64, all: u64| match (local, all) {
        (0, 0) => None,
        (l, a) if l == a => Some(format!("{name} {a}")),
        (l, a) => Some(format!("{name} {a} (own level {l})")),
    };
    let moved: Vec<String> = [
        pick("max", local.max, all.max),
        pick("oom", local.oom, all.oom),
        pick("oom_kill", local.oom_kill, all.oom_kill),
        pick("oom_group_kill", local.oom_group_kill, all.oom_group_kill),
    ]
    .into_iter()
    .flatten()
    .collect();
    if moved.is_empty() {
        "all zero".to_owned()
    } else {
        moved.join(", ")
    }
}

fn level(level: &OuterLevel) -> String {
    let limit = level
        .limit
        .map(|l| format!(" (limit {l})"))
        .unwrap_or_default();
    format!(
        "{}{limit} {}",
        level.level,
        counters(&level.local, &level.local)
    )
}

/// The kinds of memory. A killed process has returned its memory before the counters are read, so
/// the largest sample is shown then.
fn kinds(e: &Evidence, timeline: &[MemorySample]) -> Option<String> {
    let s = &e.own.stat;
    let at_end = [
        ("anon", s.anon),
        ("file", s.file),
        ("tmpfs", s.shmem),
        ("kernel", s.kernel),
        ("sockets", s.sock),
    ];
    let largest = timeline.iter().max_by_key(|p| p.current);
    let peak = e
        .own
        .peak
        .or(largest.map(|p| p.current))
        .unwrap_or_default();
    match largest.filter(|_| e.own.current < peak.mul_ratio(1, 2)) {
        Some(p) => shares(
            "at the largest sample",
            p.current,
            &[("anon", p.anon), ("file", p.file)],
        ),
        None => shares("at the end", e.own.current, &at_end),
    }
}

/// The parts of the charged memory at the last inspection of the largest process.
fn parts(e: &Evidence) -> Option<String> {
    let shares = e.memory_parts();
    let whole = shares
        .iter()
        .fold(Bytes::ZERO, |sum, share| sum.saturating_add(share.bytes));
    let worth = shares
        .iter()
        .filter(|share| share.bytes >= whole.mul_ratio(1, 100));
    let parts: Vec<String> = worth
        .map(|share| {
            format!(
                "{} {} ({})",
                share.what,
                percent(share.bytes, whole),
                share.bytes
            )
        })
        .collect();
    (!parts.is_empty()).then(|| format!("at its largest: {}", parts.join(", ")))
}

fn collecting(e: &Evidence) -> Option<String> {
    let gc = e.heap?.gc?;
    let which = gc.collector.map(|c| format!("{c}: ")).unwrap_or_default();
    let recent = gc
        .recent_percent
        .map(|p| format!(", {p} % of the last seconds"))
        .unwrap_or_default();
    let large = gc
        .humongous
        .map(|n| format!(", {n} humongous regions"))
        .unwrap_or_default();
    let time = fine_span(Duration::from_millis(gc.spent_ms));
    Some(format!(
        "garbage collections: {which}{} ({} full), {time} in total{recent}{large}",
        gc.collections, gc.full
    ))
}

fn shares(when: &str, whole: Bytes, parts: &[(&str, Option<Bytes>)]) -> Option<String> {
    let some = parts
        .iter()
        .filter_map(|(name, b)| b.filter(|b| !b.is_zero()).map(|b| (name, b)));
    let parts: Vec<String> = some
        .map(|(name, b)| format!("{name} {} ({b})", percent(b, whole)))
        .collect();
    (!parts.is_empty() && !whole.is_zero()).then(|| format!("{when} {whole}: {}", parts.join(", ")))
}

fn heap(e: &Evidence) -> Option<String> {
    let budget = e.heap_budget?;
    let Some(heap) = e.heap else {
        return Some(format!(
            "heap budget {budget}; the runtime did not report its use"
        ));
    };
    let outside = e
        .own
        .peak
        .unwrap_or(e.own.current)
        .saturating_sub(heap.committed);
    let room = e
        .own
        .limit
        .map(|l| l.saturating_sub(budget))
        .unwrap_or_default();
    let verdict = match (heap.used >= budget.mul_ratio(95, 100), outside > room) {
        (true, _) => " → the heap ran out",
        (false, true) => " → the overhead ran out",
        (false, false) => "",
    };
    let threads = heap
        .threads
        .map(|n| format!(", {n} threads"))
        .unwrap_or_default();
    let outside = if outside == Bytes::ZERO {
        String::new()
    } else {
        format!("; {outside} outside it where {room} is allowed")
    };
    Some(format!(
        "heap {} used, {} committed of {budget}{threads}{outside}{verdict}",
        heap.used, heap.committed
    ))
}

fn stop(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Asked => "by the application or a user",
        StopCause::Preempted => "by the resource manager, which preempted it",
        StopCause::Timeout => "its timeout",
        StopCause::OverLimit => "by the agent: a measurement above its limit",
        StopCause::Stalled => "by the agent: stuck at its limit",
        StopCause::Fenced => "by the agent: no contact with the resource manager for too long",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_kill_at_its_own_limit() {
        insta::assert_snapshot!(lines(&fixture::evidence(), &[]).join("\n"));
    }

    #[test]
    fn released_memory_is_shown_by_the_largest_sample() {
        let mut e = fixture::evidence();
        e.own.current = Bytes::from_kib(280);
        let text = lines(&e, &fixture::killed().timeline).join("\n");
        assert!(
            text.contains("at the largest sample 4.4 GiB: anon"),
            "{text}"
        );
        assert!(!text.contains("280 KiB"), "{text}");
    }

    #[test]
    fn memory_parts_and_collections_are_shown_if_known() {
        use headroom_types::exit::{CollectionReport, GarbageCollector, ProcessMemory};
        let mut e = fixture::evidence();
        let gc = CollectionReport {
            collector: Some(GarbageCollector::G1),
            collections: 56,
            full: 8,
            spent_ms: 2100,
            ..CollectionReport::default()
        };
        e.heap = e.heap.map(|h| headroom_types::exit::HeapReport {
            gc: Some(CollectionReport {
                recent_percent: Some(91),
                ..gc
            }),
            ..h
        });
        let other = Bytes::from_gib(4);
        e.inside = Some(ProcessMemory {
            other,
            stacks: Bytes::from_mib(100),
            stack_count: 41,
            ..ProcessMemory::default()
        });
        insta::assert_snapshot!(lines(&e, &[]).join("\n"));
    }

    #[test]
    fn unknown_evidence_is_not_shown() {
        let bare = Evidence::empty(headroom_types::EnforcerKind::Poll);
        assert_eq!(
            lines(&bare, &[]),
            ["no limit · own counters: all zero · enforcer poll (not kernel-enforced)"]
        );
        let mut e = fixture::evidence();
        e.heap = None;
        e.missing = vec!["memory.peak".into()];
        let text = lines(&e, &[]).join("\n");
        assert!(
            text.contains("did not report its use")
                && text.contains("could not be read: memory.peak"),
            "{text}"
        );
        assert!(!text.contains("ran out"), "{text}");
    }
}
