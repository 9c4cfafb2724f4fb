//! Quantiles of a list of times: pure.

/// The smallest value that at least `percent` of all values do not exceed; `None` without values.
pub(crate) fn quantile(values: &[u128], percent: usize) -> Option<u128> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Nanoseconds as milliseconds.
#[allow(clippy::cast_precision_loss)] // times of hours are still exact to the microsecond
pub(crate) fn millis(nanos: u128) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_an_existing_value() {
        let values: Vec<u128> = (1..=50).rev().collect();
        assert_eq!(
            (quantile(&values, 50), quantile(&values, 99)),
            (Some(25), Some(50))
        );
        assert_eq!(quantile(&[7], 99), Some(7));
        assert_eq!(quantile(&[], 50), None);
    }
}
