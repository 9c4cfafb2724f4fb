//! Upper bounds of the buckets of histograms.

/// Bounds for times from 0.1 ms to 10 s: calls, writes, turns of a loop. Seconds.
pub const SHORT: [f64; 14] = [
    0.0001, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Bounds for times from 0.1 s to 2 h: waits and run times. Seconds.
pub const LONG: [f64; 12] = [
    0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0,
];
/// Bounds for fractions of a whole, finer near 1.
pub const PARTS: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
