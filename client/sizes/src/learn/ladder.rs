//! The cheapest ladder over the observations: the sizes to try, in order.
//!
//! Sizes are ratios to a prediction. A size that is too small costs the memory × time of the killed
//! attempt, and the price of the kill. A size that is too large costs its memory for the whole run.
//! Dynamic programming minimizes the sum.

/// Maximum number of considered sizes.
const CANDIDATES: usize = 24;

/// The price of a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KillPrices {
    /// Part of its run that a killed attempt wastes, from 0 to 1.
    pub burnt: f64,
    /// Price of one kill, in mean runs at the mean need.
    pub kill: f64,
}

impl Default for KillPrices {
    fn default() -> Self {
        KillPrices {
            burnt: 0.55,
            kill: 4.0,
        }
    }
}

impl KillPrices {
    /// Prices with growth: a size that is too small wastes no work and costs little time.
    pub fn of_growth() -> KillPrices {
        KillPrices {
            burnt: 0.0,
            kill: 0.3,
        }
    }
}

/// An observed task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObservedTask {
    /// Ratio of the need to the prediction.
    pub need: f64,
    /// Weight.
    pub weight: f64,
    /// Weight times run time, as a ratio to the mean run time.
    pub time: f64,
}

/// A ladder with its cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheapestLadder {
    /// Ratios to the prediction, ascending; never empty if there are observations.
    pub sizes: Vec<f64>,
    /// Expected cost of a task, in mean runs at the predicted size.
    pub cost: f64,
}

/// Computes the cheapest ladder; sorts `seen`. A fictitious task of weight 0.5 with a need above
/// the largest observation is added.
pub fn cheapest(seen: &mut Vec<ObservedTask>, prices: KillPrices) -> CheapestLadder {
    seen.retain(|s| s.need.is_finite() && s.need > 0.0);
    seen.sort_by(|a, b| a.need.total_cmp(&b.need));
    let Some(most) = seen.last().map(|s| s.need) else {
        return CheapestLadder::default();
    };
    let (weight, time) = seen
        .iter()
        .fold((0.0, 0.0), |(w, t), s| (w + s.weight, t + s.time));
    let each = if weight > 0.0 { time / weight } else { 1.0 };
    let top = ObservedTask {
        need: most * (1.0 + 1.0 / weight.max(1.0).sqrt()),
        weight: 0.5,
        time: 0.5 * each,
    };
    seen.push(top);
    let stairs = candidate_sizes(seen);
    // A kill costs time of users regardless of the prediction, so its price is scaled by the needs.
    let mean = seen.iter().map(|s| s.need * s.time).sum::<f64>()
        / (time + top.time).max(f64::MIN_POSITIVE);
    let (next, cost) = solve_ladder(
        &stairs,
        KillPrices {
            kill: prices.kill * mean,
            ..prices
        },
    );
    let mut sizes = Vec::new();
    let mut at = next.first().copied().unwrap_or(0);
    while let Some(stair) = at.checked_sub(1).and_then(|k| stairs.get(k)) {
        sizes.push(stair.size);
        if at >= stairs.len() {
            break;
        }
        at = next.get(at).copied().unwrap_or(0);
    }
    CheapestLadder {
        sizes,
        cost: cost / (weight + 0.5).max(f64::MIN_POSITIVE),
    }
}

/// A considered size, with the observations that fit it.
#[derive(Clone, Copy, Debug)]
struct CandidateSize {
    size: f64,
    weight: f64,
    time: f64,
}

/// Selects few sizes that represent all, denser near the top.
fn candidate_sizes(seen: &[ObservedTask]) -> Vec<CandidateSize> {
    let all: f64 = seen.iter().map(|s| s.weight).sum();
    let shares: [f64; CANDIDATES + 1] = std::array::from_fn(share);
    let reached = |weight: f64, wanted: usize| {
        shares
            .get(wanted)
            .is_some_and(|share| weight >= all * share)
    };
    let mut stairs: Vec<CandidateSize> = Vec::with_capacity(CANDIDATES);
    let (mut weight, mut time) = (0.0, 0.0);
    let mut wanted = 0usize;
    for (n, one) in seen.iter().enumerate() {
        weight += one.weight;
        time += one.time;
        let last = n + 2 >= seen.len();
        if last || reached(weight, wanted) {
            stairs.push(CandidateSize {
                size: one.need,
                weight,
                time,
            });
            while wanted < CANDIDATES && reached(weight, wanted) {
                wanted += 1;
            }
        }
    }
    stairs
}

/// Quantiles of the tasks at which a size is considered: even steps up to four fifths, then smaller
/// and smaller ones.
#[allow(clippy::cast_precision_loss)] // small numbers
fn share(n: usize) -> f64 {
    const EVEN: usize = 8;
    if n < EVEN {
        0.1 * (n + 1) as f64
    } else {
        1.0 - 0.2 * 0.72_f64.powi(i32::try_from(n - EVEN + 1).unwrap_or(i32::MAX))
    }
}

/// For each size, and for the start before them, the next size of the ladder, counted from 1; and
/// the cost from the start.
fn solve_ladder(stairs: &[CandidateSize], prices: KillPrices) -> (Vec<usize>, f64) {
    let end = stairs.last().copied().unwrap_or(CandidateSize {
        size: 0.0,
        weight: 0.0,
        time: 0.0,
    });
    let mut cost = vec![0.0; stairs.len() + 1];
    let mut next = vec![0usize; stairs.len() + 1];
    for from in (0..stairs.len()).rev() {
        let below = from
            .checked_sub(1)
            .and_then(|k| stairs.get(k))
            .map_or(0.0, |s| s.time);
        let mut best = (f64::INFINITY, 0usize);
        for (k, stair) in stairs.iter().enumerate().skip(from) {
            let fits = stair.size * (stair.time - below);
            let killed = prices.burnt * stair.size * (end.time - stair.time)
                + prices.kill * (end.weight - stair.weight);
            let all = fits + killed + cost.get(k + 1).copied().unwrap_or(0.0);
            if all < best.0 {
                best = (all, k + 1);
            }
        }
        if let (Some(cost), Some(next)) = (cost.get_mut(from), next.get_mut(from)) {
            (*cost, *next) = best;
        }
    }
    (next, cost.first().copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(needs: &[f64]) -> Vec<ObservedTask> {
        needs
            .iter()
            .map(|need| ObservedTask {
                need: *need,
                weight: 1.0,
                time: 1.0,
            })
            .collect()
    }

    #[test]
    fn no_observations_yield_no_ladder() {
        assert_eq!(
            cheapest(&mut Vec::new(), KillPrices::default()),
            CheapestLadder::default()
        );
    }

    #[test]
    fn similar_tasks_get_one_size_that_fits_all_observed_tasks() {
        let rungs = cheapest(&mut seen(&[1.0; 50]), KillPrices::default());
        assert!(
            rungs
                .sizes
                .first()
                .is_some_and(|size| (1.0..1.2).contains(size)),
            "{rungs:?}"
        );
    }

    #[test]
    fn an_outlier_does_not_set_the_first_size() {
        let mut needs = vec![1.0; 99];
        needs.push(40.0);
        let rungs = cheapest(&mut seen(&needs), KillPrices::default());
        assert!(
            rungs.sizes.first().is_some_and(|size| *size < 1.5),
            "{rungs:?}"
        );
        assert!(
            rungs.sizes.last().is_some_and(|size| *size >= 40.0),
            "{rungs:?}"
        );
    }

    #[test]
    fn expensive_kills_make_the_first_size_larger() {
        let needs: Vec<f64> = (0..100)
            .map(|n| if n % 10 == 0 { 6.0 } else { 1.0 })
            .collect();
        let first = |kill| {
            cheapest(
                &mut seen(&needs),
                KillPrices {
                    kill,
                    ..KillPrices::default()
                },
            )
            .sizes
            .first()
            .copied()
        };
        assert_eq!(first(0.6), Some(1.0));
        assert!(first(50.0) >= Some(6.0));
    }

    proptest! {
        #[test]
        fn a_ladder_grows_beyond_all_observed_needs(needs in prop::collection::vec(0.01f64..100.0, 1..250)) {
            let most = needs.iter().copied().fold(0.0, f64::max);
            let rungs = cheapest(&mut seen(&needs), KillPrices::default());
            prop_assert!(rungs.sizes.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(rungs.sizes.len() <= CANDIDATES + 2);
            prop_assert!(rungs.sizes.last().is_some_and(|top| *top > most));
        }

        #[test]
        fn no_single_size_is_cheaper(needs in prop::collection::vec(0.1f64..10.0, 2..60)) {
            let prices = KillPrices::default();
            let mut all = seen(&needs);
            let rungs = cheapest(&mut all, prices);
            let top = all.last().map_or(0.0, |s| s.need);
            // One size for all, large enough for each task.
            let time: f64 = all.iter().map(|s| s.time).sum();
            let weight: f64 = all.iter().map(|s| s.weight).sum();
            prop_assert!(rungs.cost <= top * time / weight + 1e-9);
        }
    }
}
