//! The time of a replay: ticks and seconds, and the time at which an attempt reaches its limit.
//! Pure functions.

/// Ticks per second: one tick is a microsecond.
const TICKS: f64 = 1e6;

/// The fraction of its run after which an attempt reaches its limit. It follows the distribution of
/// real kills: half of them before 0.52.
pub(super) fn moment(task: usize, failures: u32) -> f64 {
    const QUARTILES: [f64; 5] = [0.0, 0.11, 0.52, 0.86, 1.0];
    let mut x = (task as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(failures).wrapping_mul(0xd1b5_4a32_d192_ed03));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let quarter = usize::try_from(x >> 62).unwrap_or(0);
    #[allow(clippy::cast_precision_loss)] // 53 bits
    let within = ((x << 2) >> 11) as f64 / (1u64 << 53) as f64;
    let from = QUARTILES.get(quarter).copied().unwrap_or(0.0);
    let to = QUARTILES.get(quarter + 1).copied().unwrap_or(1.0);
    from + (to - from) * within
}

/// The ticks of a duration in seconds, rounded up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // traces last hours, far below the range
pub(super) fn ticks(seconds: f64) -> u64 {
    (seconds * TICKS).ceil() as u64
}

/// The seconds of a duration in ticks.
#[allow(clippy::cast_precision_loss)] // below 2^53
pub(super) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS
}
