//! Memory from birth to death as a chart of block characters, with the limit as a broken line and a mark where it was killed.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::Sample;

use super::Paint;
use super::figures::{fine_span, short};

/// Rows of the chart.
const HEIGHT: usize = 6;
/// The broken line of the limit.
const LIMIT: char = '╌';
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How the life that is drawn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Killed for memory.
    Killed,
    /// Otherwise.
    Other,
}

/// The largest use within one column, and the limit then.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    used: Bytes,
    limit: Option<Bytes>,
}

/// The chart, `width` columns wide without its axis. Empty without at least two points.
pub(crate) fn chart(samples: &[Sample], end: End, width: usize, paint: Paint) -> Vec<String> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    if samples.len() < 2 || last.at_ms <= first.at_ms {
        return Vec::new();
    }
    let columns = columns(samples, width.max(8));
    let top = samples.iter().map(|s| s.current.max(s.limit.unwrap_or_default())).max().unwrap_or_default();
    // A little air above the limit, so that its line is not the upper edge.
    let scale = Bytes::new(top.get().max(1)).mul_ratio(21, 20);
    // A killed process has given its memory back before the last sample: the mark stands where it died.
    let died_at = columns.last().and_then(|c| c.limit).unwrap_or(top);
    let mark = (end == End::Killed).then(|| eighths(died_at, scale) / 8);
    let mut lines: Vec<String> = (0..HEIGHT).rev().map(|row| line(&columns, row, scale, mark, paint)).collect();
    lines.push(format!("{:>6} └{}", "", "─".repeat(columns.len())));
    let span = fine_span(Duration::from_millis(last.at_ms - first.at_ms));
    let gap = columns.len().saturating_sub(1 + span.chars().count());
    lines.push(format!("{:>6}  0{}{span}", "", " ".repeat(gap)));
    lines
}

/// Each column takes the samples of its stretch of time; a stretch without one takes those before it.
fn columns(samples: &[Sample], width: usize) -> Vec<Column> {
    let first = samples.first().map_or(0, |s| s.at_ms);
    let length = samples.last().map_or(0, |s| s.at_ms).saturating_sub(first).max(1);
    let cells = u64::try_from(width).unwrap_or(1).max(1);
    let mut columns = vec![None::<Column>; width];
    for sample in samples {
        let at = sample.at_ms.saturating_sub(first).saturating_mul(cells - 1) / length;
        let Some(cell) = usize::try_from(at).ok().and_then(|at| columns.get_mut(at)) else { continue };
        let column = cell.get_or_insert_default();
        column.used = column.used.max(sample.current);
        column.limit = sample.limit.or(column.limit);
    }
    let mut before = Column::default();
    let fill = |column: Option<Column>| {
        before = column.unwrap_or(before);
        before
    };
    columns.into_iter().map(fill).collect()
}

fn line(columns: &[Column], row: usize, scale: Bytes, mark: Option<usize>, paint: Paint) -> String {
    let limit_row = |c: &Column| c.limit.map(|l| eighths(l, scale) / 8);
    let label = columns.iter().rev().find(|c| limit_row(c) == Some(row)).and_then(|c| c.limit);
    let axis = label.map_or_else(String::new, short);
    let cells: String = columns.iter().map(|c| cell(c, row, scale)).collect();
    let killed_here = mark == Some(row);
    let edge = if label.is_some() { '┤' } else { '│' };
    let mark = if killed_here { format!(" {}", paint.bad("✗ killed")) } else { String::new() };
    let cells = if mark.is_empty() { cells.trim_end().to_owned() } else { cells };
    format!("{axis:>6} {edge}{cells}{mark}").trim_end().to_owned()
}

/// The part of the column that lies in this row; the limit's line where the column leaves it free.
fn cell(column: &Column, row: usize, scale: Bytes) -> char {
    let filled = eighths(column.used, scale).saturating_sub(row * 8).min(8);
    let limit_here = column.limit.is_some_and(|l| eighths(l, scale) / 8 == row);
    match EIGHTHS.get(filled) {
        Some(' ') if limit_here => LIMIT,
        Some(c) => *c,
        None => ' ',
    }
}

/// Height in eighths of a row, below the top of the chart.
fn eighths(size: Bytes, scale: Bytes) -> usize {
    let all = HEIGHT * 8;
    let n = size.mul_ratio(u64::try_from(all).unwrap_or(1), scale.get()).get();
    usize::try_from(n).unwrap_or(all).min(all - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_life_that_ended_at_its_limit() {
        let lines = chart(&fixture::killed().timeline, End::Killed, 48, Paint::PLAIN);
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_limit_that_was_raised_is_a_step() {
        let sample = |at_ms, mib, limit| Sample {
            at_ms,
            current: Bytes::from_mib(mib),
            anon: None,
            file: None,
            heap: None,
            limit: Some(Bytes::from_mib(limit)),
        };
        let samples: Vec<Sample> = (0..20).map(|i| sample(i * 250, 10 + i * 5, if i < 10 { 64 } else { 128 })).collect();
        insta::assert_snapshot!(chart(&samples, End::Other, 40, Paint::PLAIN).join("\n"));
    }

    #[test]
    fn one_point_is_no_life() {
        let one = fixture::killed().timeline.into_iter().take(1).collect::<Vec<_>>();
        assert!(chart(&one, End::Killed, 40, Paint::PLAIN).is_empty());
        assert!(chart(&[], End::Killed, 40, Paint::PLAIN).is_empty());
    }

    #[test]
    fn rows_are_never_wider_than_asked() {
        for width in [8, 9, 40, 120] {
            let lines = chart(&fixture::killed().timeline, End::Other, width, Paint::PLAIN);
            assert!(lines.iter().all(|l| l.chars().count() <= width + 8), "{width}: {lines:?}");
        }
    }
}
