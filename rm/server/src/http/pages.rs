//! Pagination of lists: a stable order, a limit, and the id after which the next page begins.

use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

/// Maximum number of rows of a page.
pub(crate) const MOST: usize = 1000;

/// Limit that the caller requests; all rows without one.
pub(crate) fn limit(asked: Option<usize>) -> ProblemResult<usize> {
    match asked {
        None => Ok(usize::MAX),
        Some(n) if (1..=MOST).contains(&n) => Ok(n),
        Some(n) => Err(ProblemDetails::bad_request(format!(
            "the parameters: limit is {n}, which is out of range"
        ))
        .hint(format!(
            "write 1 to {MOST}, and follow the header Link for more"
        ))),
    }
}

/// At most `limit` of the rows after `after`, and the id of the last one if further rows follow.
/// The rows are in the order of their ids.
pub(crate) fn piece<T, K: Ord + Clone>(
    rows: impl Iterator<Item = T>,
    id: impl Fn(&T) -> &K,
    after: Option<&K>,
    limit: usize,
) -> (Vec<T>, Option<K>) {
    let mut rows = rows.skip_while(|row| after.is_some_and(|after| id(row) <= after));
    let piece: Vec<T> = rows.by_ref().take(limit).collect();
    let more = rows.next().is_some();
    let next = piece.last().filter(|_| more).map(|row| id(row).clone());
    (piece, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_contain_each_row_once() {
        let all: Vec<u32> = (0..25).collect();
        for size in 1..30 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (rows, next) = piece(all.iter().copied(), |n| n, after.as_ref(), size);
                assert!(!rows.is_empty() && rows.len() <= size);
                seen.extend(rows);
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, all, "in pages of {size}");
        }
    }

    #[test]
    fn a_page_can_start_after_a_deleted_row() {
        assert_eq!(
            piece([1, 3, 5].into_iter(), |n| n, Some(&2), 1),
            (vec![3], Some(3))
        );
        assert_eq!(
            piece([1, 3, 5].into_iter(), |n| n, Some(&9), 1),
            (vec![], None)
        );
    }

    #[test]
    fn the_page_limit_has_a_minimum_and_a_maximum() {
        assert_eq!(limit(Some(1000)), Ok(1000));
        assert!(limit(Some(0)).is_err() && limit(Some(1001)).is_err());
    }
}
