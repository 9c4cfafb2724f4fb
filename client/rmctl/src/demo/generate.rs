//! The generated data set: rows of a key and a number, in scrambled order. Most keys occur once.
//! Streamed to disk.
//!
//! The same seed gives the same bytes everywhere.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::{DemoError, at, partition};

/// Number of recent keys that can be repeated.
const RECENT: usize = 1024;

/// Statistics of the written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GeneratedFileStats {
    /// Rows without the header.
    pub(crate) rows: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
}

/// Writes `keys[i]` different keys for each partition `i`. Every sixteenth row repeats a recent
/// key. `progress` gets the number of finished keys at intervals.
pub(crate) fn generate(
    path: &Path,
    keys: &[u64],
    seed: u32,
    mut progress: impl FnMut(u64),
) -> Result<GeneratedFileStats, DemoError> {
    let mut out = BufWriter::with_capacity(1 << 18, File::create(path).map_err(at(path))?);
    let mut rows = RowGenerator::new(keys, seed);
    let mut written = GeneratedFileStats::default();
    let mut line = b"key,value\n".to_vec();
    loop {
        out.write_all(&line).map_err(at(path))?;
        written.bytes += line.len() as u64;
        if written.rows.is_multiple_of(1 << 16) {
            progress(rows.made);
        }
        line.clear();
        if !rows.next(&mut line) {
            break;
        }
        written.rows += 1;
    }
    out.flush().map_err(at(path))?;
    Ok(written)
}

/// Generates rows. Keys are numbers in a scrambled order; keys of complete partitions are skipped.
struct RowGenerator {
    missing: Vec<u64>,
    left: u64,
    made: u64,
    counter: u32,
    seed: u32,
    random: u64,
    recent: Vec<u32>,
}

impl RowGenerator {
    fn new(keys: &[u64], seed: u32) -> Self {
        let left = keys.iter().sum();
        RowGenerator {
            missing: keys.to_vec(),
            left,
            made: 0,
            counter: 0,
            seed,
            random: u64::from(seed) | 1,
            recent: Vec::with_capacity(RECENT),
        }
    }

    /// Appends one row; `false` when all keys are written.
    fn next(&mut self, line: &mut Vec<u8>) -> bool {
        let drawn = self.roll();
        let again = usize::try_from(drawn >> 40).unwrap_or(0) % RECENT;
        let key = match self.recent.get(again) {
            Some(key) if drawn.is_multiple_of(16) && self.left > 0 => *key,
            Some(_) | None => match self.fresh() {
                Some(key) => key,
                None => return false,
            },
        };
        let cents = (drawn >> 8) % 10_000;
        // Writing to a `Vec` cannot fail.
        let _ = writeln!(line, "{key:08x},{}.{:02}", cents / 100, cents % 100);
        true
    }

    /// The next key of an incomplete partition. All 2^32 numbers occur once before one repeats.
    fn fresh(&mut self) -> Option<u32> {
        while self.left > 0 {
            let key = scramble(self.counter ^ self.seed);
            self.counter = self.counter.wrapping_add(1);
            let partitions = u32::try_from(self.missing.len()).unwrap_or(1);
            let at = usize::try_from(partition(&hex(key), partitions)).unwrap_or(0);
            let Some(missing) = self.missing.get_mut(at).filter(|m| **m > 0) else {
                continue;
            };
            *missing -= 1;
            self.left -= 1;
            self.made += 1;
            let slot = usize::try_from(self.made).unwrap_or(0) % RECENT;
            match self.recent.get_mut(slot) {
                Some(old) => *old = key,
                None => self.recent.push(key),
            }
            return Some(key);
        }
        None
    }

    fn roll(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random ^ (self.random >> 31)
    }
}

/// A bijection on 32 bits (the finaliser of MurmurHash3).
fn scramble(mut n: u32) -> u32 {
    n ^= n >> 16;
    n = n.wrapping_mul(0x85eb_ca6b);
    n ^= n >> 13;
    n = n.wrapping_mul(0xc2b2_ae35);
    n ^ (n >> 16)
}

/// The number as eight hexadecimal digits.
fn hex(n: u32) -> [u8; 8] {
    let mut text = [0; 8];
    for (i, digit) in text.iter_mut().enumerate() {
        let nibble = (n >> (28 - 4 * i)) & 15;
        *digit = b"0123456789abcdef"
            .get(usize::try_from(nibble).unwrap_or(0))
            .copied()
            .unwrap_or(b'0');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn made(keys: &[u64], seed: u32) -> String {
        let file = tempfile::NamedTempFile::new().expect("file");
        let written = generate(file.path(), keys, seed, |_| {}).expect("writes");
        let text = std::fs::read_to_string(file.path()).expect("reads");
        assert_eq!(
            (written.bytes, written.rows + 1),
            (text.len() as u64, text.lines().count() as u64)
        );
        text
    }

    #[test]
    fn each_partition_has_the_planned_keys() {
        let want = [300, 100, 900, 0, 100];
        let text = made(&want, 7);
        let mut have: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let (key, value) = line.split_once(',').expect("two fields");
            assert!(
                value
                    .parse::<f64>()
                    .is_ok_and(|v| (0.0..100.0).contains(&v)),
                "{line}"
            );
            have.entry(partition(key.as_bytes(), 5))
                .or_default()
                .insert(key);
        }
        let counts: Vec<u64> = (0..5)
            .map(|i| have.get(&i).map_or(0, BTreeSet::len) as u64)
            .collect();
        assert_eq!(counts, want);
    }

    #[test]
    fn some_keys_repeat_and_most_do_not() {
        let text = made(&[5000, 5000], 1);
        let rows = text.lines().count() - 1;
        assert!(
            (10_400..11_000).contains(&rows),
            "{rows} rows of 10000 keys"
        );
    }

    #[test]
    fn the_seed_alone_decides() {
        assert_eq!(made(&[50, 70], 3), made(&[50, 70], 3));
        assert_ne!(made(&[50, 70], 3), made(&[50, 70], 4));
    }

    #[test]
    fn digits() {
        assert_eq!(&hex(0x00c0_ffee), b"00c0ffee");
    }
}
