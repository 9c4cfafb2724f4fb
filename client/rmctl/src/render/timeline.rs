//! The memory of a container or an attempt as a chart of block characters.
//!
//! The limit is a broken line, and the heap is darker than the other memory. A row of marks shows
//! changes of the limit, a starved heap, and the end.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::{MemorySample, TimelineMark};

use super::TextPainter;
use super::figures::{fine_span, short};

/// Height of the chart. Rows.
const HEIGHT: usize = 6;
/// Character of the limit line.
const LIMIT: char = '╌';
/// A full cell of memory beside the heap, if the heap is known.
const BESIDE: char = '▒';
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The end of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelineEnd {
    /// A memory kill.
    Killed,
    /// Any other end.
    Other,
}

/// The largest use within one column, and the limit at that time.
#[derive(Clone, Copy, Debug, Default)]
struct TimelineColumn {
    used: Bytes,
    heap: Option<Bytes>,
    limit: Option<Bytes>,
    mark: Option<TimelineMark>,
}

/// The chart, `width` columns wide without its axis. Empty with fewer than two points.
pub(crate) fn chart(
    samples: &[MemorySample],
    end: TimelineEnd,
    width: usize,
    paint: TextPainter,
) -> Vec<String> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    if samples.len() < 2 || last.at_ms <= first.at_ms {
        return Vec::new();
    }
    let columns = columns(samples, width.max(8));
    let top = samples
        .iter()
        .map(|s| s.current.max(s.limit.unwrap_or_default()))
        .max()
        .unwrap_or_default();
    // Some space above the limit, so that its line is not the upper edge.
    let scale = Bytes::new(top.get().max(1)).mul_ratio(21, 20);
    // A killed process has returned its memory before the last sample, so the mark is at the limit.
    let died_at = columns.last().and_then(|c| c.limit).unwrap_or(top);
    let mark = (end == TimelineEnd::Killed).then(|| eighths(died_at, scale) / 8);
    let mut lines: Vec<String> = (0..HEIGHT)
        .rev()
        .map(|row| line(&columns, row, scale, mark, paint))
        .collect();
    lines.push(format!("{:>6} └{}", "", axis(&columns)));
    let span = fine_span(Duration::from_millis(last.at_ms - first.at_ms));
    let gap = columns.len().saturating_sub(1 + span.chars().count());
    lines.push(format!("{:>6}  0{}{span}", "", " ".repeat(gap)));
    lines.extend(legend(samples).map(|text| format!("{:>6}  {text}", "")));
    lines
}

/// The shape of a timeline as a sentence, such as a leak or a jump. `None` with too few samples.
pub(crate) fn shape(samples: &[MemorySample]) -> Option<String> {
    let (first, last) = (samples.first()?, samples.last()?);
    let length = last.at_ms.saturating_sub(first.at_ms);
    let top = samples.iter().map(|s| s.current).max()?;
    if samples.len() < 8 || length < 1000 || top.is_zero() {
        return None;
    }
    // The largest use up to a tenth of the time. The last sample is no measure, because a killed
    // process has returned its memory.
    let at = |part: u64| {
        samples
            .iter()
            .filter(|s| s.at_ms - first.at_ms <= length * part / 10)
            .map(|s| s.current)
            .max()
    };
    let (half, late) = (at(5)?, at(9)?);
    let of_top = |part: Bytes, percent: u64| part >= top.mul_ratio(percent, 100);
    let grown = top.saturating_sub(first.current);
    let tenth = fine_span(Duration::from_millis(length / 10));
    Some(match () {
        () if of_top(top.saturating_sub(late), 40) => {
            format!(
                "jumped by {} in its last {tenth}: one large step, not a leak",
                top.saturating_sub(late)
            )
        }
        () if !of_top(grown, 30) || of_top(half, 90) => {
            "flat in its second half: near its limit all the time, not a leak".to_owned()
        }
        () if of_top(half.saturating_sub(first.current), 20)
            && of_top(top.saturating_sub(half), 20) =>
        {
            format!(
                "grew all its life, by {} a second: data that only grows, or a leak",
                per_second(grown, length)
            )
        }
        () if fell(samples, length) => "rose and fell: its largest moment counts".to_owned(),
        () => "rose in steps and never fell: it needed all of the memory until its end".to_owned(),
    })
}

/// True if the use fell by a tenth of its maximum before the last tenth of the time.
fn fell(samples: &[MemorySample], length: u64) -> bool {
    let Some(first) = samples.first() else {
        return false;
    };
    let (mut high, mut drop) = (Bytes::ZERO, Bytes::ZERO);
    for sample in samples
        .iter()
        .filter(|s| s.at_ms - first.at_ms <= length * 9 / 10)
    {
        high = high.max(sample.current);
        drop = drop.max(high.saturating_sub(sample.current));
    }
    let top = samples.iter().map(|s| s.current).max().unwrap_or_default();
    drop >= top.mul_ratio(1, 10)
}

fn per_second(grown: Bytes, ms: u64) -> Bytes {
    let rate = grown.mul_ratio(1000, ms.max(1));
    // Rates are rounded for readability.
    if rate >= Bytes::from_mib(1) {
        rate.round_up(Bytes::from_kib(128))
    } else {
        rate.round_up(Bytes::from_kib(1))
    }
}

/// The axis of the chart, with marks.
fn axis(columns: &[TimelineColumn]) -> String {
    columns.iter().map(|c| c.mark.map_or('─', sign)).collect()
}

fn sign(mark: TimelineMark) -> char {
    match mark {
        TimelineMark::HeapStarved => '!',
        TimelineMark::LimitLowered => '▼',
        TimelineMark::LimitRaised => '▲',
        TimelineMark::Ended => '■',
        TimelineMark::Stopped => '◆',
        TimelineMark::Killed => '✗',
    }
}

/// The legend: each mark once with its first time, and the two shades if the heap is known.
fn legend(samples: &[MemorySample]) -> Option<String> {
    let mut words = Vec::new();
    if samples.iter().any(|s| s.heap.is_some()) {
        words.push(format!("█ heap {BESIDE} other memory"));
    }
    let first_ms = samples.first().map_or(0, |s| s.at_ms);
    for mark in TimelineMark::ALL {
        let Some(at) = samples.iter().find(|s| s.mark == Some(mark)) else {
            continue;
        };
        let to = match mark {
            TimelineMark::LimitLowered | TimelineMark::LimitRaised => at
                .limit
                .map(|l| format!(" to {}", short(l)))
                .unwrap_or_default(),
            TimelineMark::HeapStarved
            | TimelineMark::Ended
            | TimelineMark::Stopped
            | TimelineMark::Killed => String::new(),
        };
        let when = fine_span(Duration::from_millis(at.at_ms.saturating_sub(first_ms)));
        words.push(format!("{} {mark}{to} at {when}", sign(mark)));
    }
    (!words.is_empty()).then(|| words.join(" · "))
}

/// Each column contains the samples of its interval. An interval without samples repeats the last
/// sample before.
fn columns(samples: &[MemorySample], width: usize) -> Vec<TimelineColumn> {
    let first = samples.first().map_or(0, |s| s.at_ms);
    let length = samples
        .last()
        .map_or(0, |s| s.at_ms)
        .saturating_sub(first)
        .max(1);
    let cells = u64::try_from(width).unwrap_or(1).max(1);
    let mut columns = vec![None::<(TimelineColumn, MemorySample)>; width];
    for sample in samples {
        let at = sample.at_ms.saturating_sub(first).saturating_mul(cells - 1) / length;
        let Some(cell) = usize::try_from(at).ok().and_then(|at| columns.get_mut(at)) else {
            continue;
        };
        let (column, last) = cell.get_or_insert((TimelineColumn::default(), *sample));
        *last = *sample;
        if sample.current >= column.used {
            (column.used, column.heap) = (sample.current, sample.heap.or(column.heap));
        }
        column.limit = sample.limit.or(column.limit);
        column.mark = column.mark.max(sample.mark);
    }
    let mut before = TimelineColumn::default();
    let fill = |column: Option<(TimelineColumn, MemorySample)>| {
        let Some((column, last)) = column else {
            return before;
        };
        before = TimelineColumn {
            used: last.current,
            heap: last.heap.or(column.heap),
            limit: column.limit,
            mark: None,
        };
        column
    };
    columns.into_iter().map(fill).collect()
}

fn line(
    columns: &[TimelineColumn],
    row: usize,
    scale: Bytes,
    mark: Option<usize>,
    paint: TextPainter,
) -> String {
    let limit_row = |c: &TimelineColumn| c.limit.map(|l| eighths(l, scale) / 8);
    let label = columns
        .iter()
        .rev()
        .find(|c| limit_row(c) == Some(row))
        .and_then(|c| c.limit);
    let axis = label.map_or_else(String::new, short);
    let cells: String = columns.iter().map(|c| cell(c, row, scale)).collect();
    let killed_here = mark == Some(row);
    let edge = if label.is_some() { '┤' } else { '│' };
    let mark = if killed_here {
        format!(" {}", paint.bad("✗ killed"))
    } else {
        String::new()
    };
    let cells = if mark.is_empty() {
        cells.trim_end().to_owned()
    } else {
        cells
    };
    format!("{axis:>6} {edge}{cells}{mark}")
        .trim_end()
        .to_owned()
}

/// The character of a column in one row. The limit line appears where the column leaves the row
/// free.
fn cell(column: &TimelineColumn, row: usize, scale: Bytes) -> char {
    let filled = eighths(column.used, scale).saturating_sub(row * 8).min(8);
    let limit_here = column.limit.is_some_and(|l| eighths(l, scale) / 8 == row);
    match EIGHTHS.get(filled) {
        Some(' ') if limit_here => LIMIT,
        Some('█')
            if column
                .heap
                .is_some_and(|heap| eighths(heap, scale) < row * 8 + 4) =>
        {
            BESIDE
        }
        Some(c) => *c,
        None => ' ',
    }
}

/// Height in eighths of a row.
fn eighths(size: Bytes, scale: Bytes) -> usize {
    let all = HEIGHT * 8;
    let n = size
        .mul_ratio(u64::try_from(all).unwrap_or(1), scale.get())
        .get();
    usize::try_from(n).unwrap_or(all).min(all - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_timeline_that_ends_at_its_limit() {
        let lines = chart(
            &fixture::killed().timeline,
            TimelineEnd::Killed,
            48,
            TextPainter::PLAIN,
        );
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_limit_that_was_raised_is_a_step() {
        let sample = |at_ms, mib, limit| MemorySample {
            at_ms,
            current: Bytes::from_mib(mib),
            anon: None,
            file: None,
            heap: None,
            limit: Some(Bytes::from_mib(limit)),
            mark: None,
        };
        let samples: Vec<MemorySample> = (0..20)
            .map(|i| sample(i * 250, 10 + i * 5, if i < 10 { 64 } else { 128 }))
            .collect();
        insta::assert_snapshot!(
            chart(&samples, TimelineEnd::Other, 40, TextPainter::PLAIN).join("\n")
        );
    }

    #[test]
    fn marks_are_drawn_at_their_time() {
        let sample = |i: u64| MemorySample {
            at_ms: i * 250,
            current: Bytes::from_mib(10 + i * 6),
            anon: None,
            file: None,
            heap: Some(Bytes::from_mib(8 + i * 2)),
            limit: Some(Bytes::from_mib(if i < 10 { 64 } else { 128 })),
            mark: match i {
                6 => Some(TimelineMark::HeapStarved),
                10 => Some(TimelineMark::LimitRaised),
                19 => Some(TimelineMark::Killed),
                _ => None,
            },
        };
        let samples: Vec<MemorySample> = (0..20).map(sample).collect();
        insta::assert_snapshot!(
            chart(&samples, TimelineEnd::Killed, 40, TextPainter::PLAIN).join("\n")
        );
    }

    #[test]
    fn a_leak_and_a_jump_are_distinguished() {
        let life = |of: fn(u64) -> u64| -> Vec<MemorySample> {
            let point = |i| MemorySample {
                at_ms: i * 250,
                current: Bytes::from_mib(of(i)),
                anon: None,
                file: None,
                heap: None,
                limit: None,
                mark: None,
            };
            (0..40).map(point).collect()
        };
        let said = |of| shape(&life(of)).unwrap_or_default();
        assert!(
            said(|i| 10 + i * 4).contains("by 16 MiB a second"),
            "{}",
            said(|i| 10 + i * 4)
        );
        assert!(said(|i| if i < 38 { 20 } else { 200 }).starts_with("jumped by 180 MiB"));
        assert!(said(|i| if i < 3 { 20 } else { 60 }).starts_with("flat"));
        assert!(
            said(|i| if i == 30 { 90 } else { 20 }).starts_with("rose and fell"),
            "{}",
            said(|i| if i == 30 { 90 } else { 20 })
        );
        // Small at first, large from the middle of the second half on, and never returned.
        let late = |i| if i < 28 { 20 + i } else { 140 };
        assert!(said(late).starts_with("rose in steps"), "{}", said(late));
        assert_eq!(shape(&[]), None);
    }

    #[test]
    fn a_single_point_makes_no_chart() {
        let one = fixture::killed()
            .timeline
            .into_iter()
            .take(1)
            .collect::<Vec<_>>();
        assert!(chart(&one, TimelineEnd::Killed, 40, TextPainter::PLAIN).is_empty());
        assert!(chart(&[], TimelineEnd::Killed, 40, TextPainter::PLAIN).is_empty());
    }

    #[test]
    fn rows_are_never_wider_than_the_given_width() {
        for width in [8, 9, 40, 120] {
            let lines = chart(
                &fixture::killed().timeline,
                TimelineEnd::Other,
                width,
                TextPainter::PLAIN,
            );
            let chart = lines.iter().take_while(|l| !l.contains("other memory"));
            assert!(
                chart.clone().all(|l| l.chars().count() <= width + 8),
                "{width}: {lines:?}"
            );
        }
    }
}
