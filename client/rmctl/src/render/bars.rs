//! Bars of block characters.

use headroom_types::Bytes;

/// Allocated heap.
pub(crate) const HEAP: char = '█';
/// Allocated overhead.
pub(crate) const OVERHEAD: char = '▒';
/// Free.
pub(crate) const FREE: char = '·';

/// A bar of `width` characters that stands for `whole`: heap, then overhead, then free. Every
/// quantity above zero has at least one character, as far as the width allows.
pub(crate) fn stacked(heap: Bytes, overhead: Bytes, whole: Bytes, width: usize) -> String {
    let cells = |b: Bytes| -> usize {
        let exact = b
            .mul_ratio(u64::try_from(width).unwrap_or(u64::MAX), whole.get())
            .get();
        usize::try_from(exact).unwrap_or(width).min(width)
    };
    let at_least_one = |b: Bytes, n: usize| {
        if b.is_zero() || whole.is_zero() {
            0
        } else {
            n.max(1)
        }
    };
    let heap_cells = at_least_one(heap, cells(heap)).min(width);
    let both = at_least_one(
        overhead,
        cells(heap.saturating_add(overhead)).saturating_sub(heap_cells),
    ) + heap_cells;
    let over_cells = both.min(width) - heap_cells;
    let free = width - heap_cells - over_cells;
    [(HEAP, heap_cells), (OVERHEAD, over_cells), (FREE, free)]
        .iter()
        .flat_map(|(c, n)| std::iter::repeat_n(*c, *n))
        .collect()
}

/// Width of a node's bar, if the bar of the largest node has `most` characters.
pub(crate) fn scaled(size: Bytes, largest: Bytes, most: usize) -> usize {
    let n = size
        .mul_ratio(u64::try_from(most).unwrap_or(1), largest.get())
        .get();
    usize::try_from(n).unwrap_or(most).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;

    fn bar(heap: u64, overhead: u64, whole: u64) -> String {
        stacked(
            Bytes::from_mib(heap),
            Bytes::from_mib(overhead),
            Bytes::from_mib(whole),
            10,
        )
    }

    #[test]
    fn parts_are_in_proportion() {
        assert_eq!(bar(50, 20, 100), "█████▒▒···");
        assert_eq!(bar(0, 0, 100), "··········");
        assert_eq!(bar(90, 10, 100), "█████████▒");
    }

    #[test]
    fn small_parts_are_visible_and_large_parts_do_not_overflow() {
        assert_eq!(bar(1, 0, 100), "█·········");
        assert_eq!(bar(1, 1, 100), "█▒········");
        assert_eq!(bar(200, 50, 100), "██████████");
        assert_eq!(bar(0, 0, 0), "··········");
        assert_eq!(bar(5, 5, 0).chars().count(), 10);
    }
}
