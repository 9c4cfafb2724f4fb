//! Containers by present memory use: kinds of memory, growth rate, and time to the limit. Pure.

use std::time::Duration;

use headroom_types::exit::MemorySample;
use headroom_types::{Bytes, ContainerId, NodeId, UnixMillis};
use headroom_wire::v1::apps::ContainerView;
use serde::Serialize;

use super::TextPainter;
use super::figures::{or_dash, percent, short, short_or_dash, span};
use super::table::Table;
use crate::select::field::list_row;

/// Length of the drawn timeline. Milliseconds.
const PAST_MS: u64 = 60_000;
/// Time window of the growth rate. Milliseconds.
const RATE_MS: u64 = 10_000;
/// Number of drawn points.
const POINTS: usize = 12;
/// Longest time to the limit that is shown as a warning.
const SOON: Duration = Duration::from_secs(600);
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The memory of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ContainerUsageRow {
    /// The container.
    pub(crate) container: ContainerId,
    /// The request of the container, or the application master.
    pub(crate) what: String,
    /// Its node.
    pub(crate) node: NodeId,
    /// Its state.
    pub(crate) state: String,
    /// Memory limit. Bytes.
    pub(crate) limit: Bytes,
    /// Used memory. Bytes.
    pub(crate) used: Option<Bytes>,
    /// Anonymous memory, a part of `used`. Bytes.
    pub(crate) anon: Option<Bytes>,
    /// Page cache, a part of `used`. Bytes.
    pub(crate) cache: Option<Bytes>,
    /// Heap of the runtime, a part of `used`. Bytes.
    pub(crate) heap: Option<Bytes>,
    /// Peak of used memory. Bytes.
    pub(crate) peak: Option<Bytes>,
    /// Growth in the last ten seconds; negative if it shrank. Bytes per second.
    pub(crate) rate: i64,
    /// Time until it reaches its limit at this rate. Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_in_s: Option<u64>,
    /// The last minute, oldest first; absent before the container existed. Bytes.
    pub(crate) past: Vec<Option<Bytes>>,
    /// Time of the grant.
    pub(crate) granted: UnixMillis,
}

impl ContainerUsageRow {
    /// The memory of a container, with the samples of its node.
    pub(crate) fn of(c: &ContainerView, samples: &[MemorySample]) -> ContainerUsageRow {
        let last = samples.last();
        let used = last.map(|s| s.current).or(c.used);
        let limit = last.and_then(|s| s.limit).unwrap_or(c.resource.memory);
        let rate = rate(samples);
        let grows = u64::try_from(rate).ok().filter(|r| *r > 0);
        let left = used.map(|used| limit.saturating_sub(used));
        ContainerUsageRow {
            container: c.id.clone(),
            what: c
                .request
                .as_ref()
                .map_or_else(|| "master".to_owned(), ToString::to_string),
            node: c.node.clone(),
            state: c.state.clone(),
            limit,
            used,
            anon: last.and_then(|s| s.anon),
            cache: last.and_then(|s| s.file),
            heap: last.and_then(|s| s.heap),
            peak: samples.iter().map(|s| s.current).chain(c.peak).max(),
            rate,
            limit_in_s: grows
                .zip(left)
                .map(|(rate, left)| left.get() / rate)
                .filter(|s| *s < SOON.as_secs()),
            past: past(samples),
            granted: c.granted,
        }
    }
}

/// Growth over the last seconds; 0 with too few samples.
fn rate(samples: &[MemorySample]) -> i64 {
    let Some(last) = samples.last() else { return 0 };
    let Some(first) = samples.iter().find(|s| s.at_ms + RATE_MS >= last.at_ms) else {
        return 0;
    };
    let time = i128::from(last.at_ms - first.at_ms);
    if time < 1000 {
        return 0;
    }
    let grown = i128::from(last.current.get()) - i128::from(first.current.get());
    i64::try_from(grown * 1000 / time).unwrap_or(0)
}

/// The largest use in each interval of the last minute. An interval without samples repeats the one
/// before.
fn past(samples: &[MemorySample]) -> Vec<Option<Bytes>> {
    let mut points = vec![None::<Bytes>; POINTS];
    let Some(end) = samples.last().map(|s| s.at_ms) else {
        return points;
    };
    let points_in_all = u64::try_from(POINTS).unwrap_or(1);
    for s in samples.iter().filter(|s| s.at_ms + PAST_MS > end) {
        let ago = (end - s.at_ms) * points_in_all / PAST_MS;
        let at = usize::try_from(points_in_all - 1 - ago.min(points_in_all - 1)).unwrap_or(0);
        if let Some(point) = points.get_mut(at) {
            *point = (*point).max(Some(s.current));
        }
    }
    let mut before = None;
    for point in &mut points {
        *point = point.or(before);
        before = *point;
    }
    points
}

list_row!(ContainerUsageRow, |row| row.container, started: Some(row.granted), {
    "ctr": row.container,
    "job": row.container.app,
    "app": row.container.app,
    "share": share(row),
});

/// Used memory as a share of the limit. Thousandths.
pub(crate) fn share(u: &ContainerUsageRow) -> u64 {
    u.used
        .map_or(0, |used| used.mul_ratio(1000, u.limit.get()).get())
}

/// The last minute as a line of blocks. A full block is the limit.
pub(crate) fn spark(u: &ContainerUsageRow) -> String {
    let block = |point: &Option<Bytes>| match point {
        None => ' ',
        Some(used) => {
            let eighth = usize::try_from(used.mul_ratio(8, u.limit.get()).get())
                .unwrap_or(7)
                .min(7);
            EIGHTHS.get(eighth).copied().unwrap_or(' ')
        }
    };
    u.past.iter().map(block).collect()
}

/// A warning if the container reaches its limit soon.
pub(crate) fn warning(u: &ContainerUsageRow) -> Option<String> {
    let seconds = u.limit_in_s?;
    Some(format!(
        "! limit in ~{}",
        span(Duration::from_secs(seconds))
    ))
}

/// The cells of a row, without sparkline and warning.
pub(crate) fn cells(u: &ContainerUsageRow) -> [String; 8] {
    let part = or_dash(u.used.map(|used| percent(used, u.limit)));
    [
        u.container.to_string(),
        u.node.to_string(),
        short(u.limit),
        short_or_dash(u.anon.or(u.used)),
        short_or_dash(u.cache),
        short_or_dash(u.heap),
        short_or_dash(u.peak),
        part,
    ]
}

/// The headers of these cells.
pub(crate) const HEADERS: [&str; 8] = [
    "CTR", "NODE", ">LIMIT", ">ANON", ">CACHE", ">HEAP", ">PEAK", ">%LIM",
];

/// All rows as a table.
pub(crate) fn lines(
    all: &[ContainerUsageRow],
    headers: bool,
    width: usize,
    paint: TextPainter,
) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut titles = HEADERS.to_vec();
    titles.push("MEMORY 60 s");
    let mut table = Table::new(&titles);
    for u in all {
        let warning = warning(u)
            .map(|w| format!(" {}", paint.warn(&w)))
            .unwrap_or_default();
        let picture = if width < 90 { String::new() } else { spark(u) };
        table.row(cells(u).into_iter().chain([format!("{picture}{warning}")]));
    }
    table.of(headers)
}

/// The whole screen of `rmctl top --once`.
pub(crate) fn screen(
    all: &[ContainerUsageRow],
    headers: bool,
    width: usize,
    paint: TextPainter,
) -> String {
    if all.is_empty() {
        return if headers {
            "no container runs\nnext: rmctl ps · rmctl submit FILE\n".to_owned()
        } else {
            String::new()
        };
    }
    let largest = all.iter().max_by_key(|u| share(u)).filter(|_| headers);
    let next = largest.map(|u| {
        let id = &u.container;
        paint.next(format!(
            "rmctl container history {id} · rmctl diagnose {id}"
        ))
    });
    lines(all, headers, width, paint) + &next.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn sample(at_ms: u64, mib: u64) -> MemorySample {
        let current = Bytes::from_mib(mib);
        MemorySample {
            at_ms,
            current,
            anon: Some(current),
            file: Some(Bytes::from_mib(5)),
            heap: None,
            limit: None,
            mark: None,
        }
    }

    fn usages() -> Vec<ContainerUsageRow> {
        let all = fixture::containers();
        let grows: Vec<MemorySample> = (0..240).map(|i| sample(i * 250, 2000 + i * 30)).collect();
        let flat: Vec<MemorySample> = (0..80).map(|i| sample(i * 250, 40)).collect();
        vec![
            ContainerUsageRow::of(&all[1], &grows),
            ContainerUsageRow::of(&all[0], &flat),
            ContainerUsageRow::of(&all[2], &[]),
        ]
    }

    #[test]
    fn a_growing_container_shows_the_time_to_its_limit() {
        let all = usages();
        assert_eq!(all[0].rate, 120 << 20, "30 MiB each quarter of a second");
        assert_eq!(all[0].limit_in_s, Some(12), "{:?}", all[0]);
        assert_eq!((all[1].rate, all[1].limit_in_s), (0, None));
        insta::assert_snapshot!("top", screen(&all, true, 100, TextPainter::PLAIN));
        assert!(screen(&[], true, 100, TextPainter::PLAIN).contains("no container runs"));
    }

    #[test]
    fn a_shrinking_container_has_no_predicted_limit() {
        let falls: Vec<MemorySample> = (0..40).map(|i| sample(i * 250, 900 - i * 10)).collect();
        let u = ContainerUsageRow::of(&fixture::containers()[1], &falls);
        assert!(
            u.rate < 0 && u.limit_in_s.is_none() && warning(&u).is_none(),
            "{u:?}"
        );
        assert_eq!(
            u.past.iter().flatten().count(),
            2,
            "it ran for ten of sixty seconds"
        );
    }

    #[test]
    fn screens_fit() {
        for width in [60, 80, 100] {
            let text = screen(&usages(), true, width, TextPainter::PLAIN);
            assert!(
                text.lines().all(|l| l.chars().count() <= 100),
                "{width}: {text}"
            );
        }
    }
}
