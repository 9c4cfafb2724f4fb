//! The data set of the demonstration: generated or from the user, split by key, and a suitable size
//! of a slot.

use std::path::{Path, PathBuf};

use headroom_types::Bytes;

use super::shape::{self, PartitionWeight};
use super::split::{DemoPartition, KeyValueColumns};
use super::{DemoError, generate, split};
use crate::groupby::GroupByStats;
use crate::progress::ProgressLine;
use crate::render::count;
use crate::term::TerminalOutput;

/// Seed of the generated data set, so that all runs have the same rows.
const SEED: u32 = 0x5eed;
/// Default memory of a slot.
pub(crate) const SHARE: Bytes = Bytes::from_mib(32);
/// Granularity of the memory of a slot.
const STEP: Bytes = Bytes::from_mib(8);

/// Parameters of the data set.
#[derive(Clone, Debug)]
pub(crate) struct DataSetParams {
    /// The user's own file.
    pub(crate) input: Option<PathBuf>,
    /// The columns, if the user names them.
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    /// Number of partitions.
    pub(crate) partitions: u32,
    /// Memory of one slot, if the user sets it.
    pub(crate) share: Option<Bytes>,
    /// Directory for generated files.
    pub(crate) dir: PathBuf,
}

/// A data set in partitions.
#[derive(Clone, Debug)]
pub(crate) struct DemoDataSet {
    /// The whole file.
    pub(crate) input: PathBuf,
    /// The column to group by and the column with the numbers.
    pub(crate) columns: KeyValueColumns,
    /// The partitions.
    pub(crate) parts: Vec<DemoPartition>,
    /// Memory of one slot.
    pub(crate) share: Bytes,
    /// The data set was generated, skewed on purpose.
    pub(crate) generated: bool,
}

/// Generates or opens the data set and splits it. Blocks the thread.
pub(crate) fn prepare(
    wanted: &DataSetParams,
    term: &TerminalOutput,
) -> Result<DemoDataSet, DemoError> {
    let share = wanted.share.unwrap_or(SHARE);
    let generated = wanted.input.is_none();
    let input = match &wanted.input {
        Some(input) => input.canonicalize().map_err(super::at(input))?,
        None => make(term, wanted.partitions, share, &wanted.dir)?,
    };
    let columns = split::columns(&input, wanted.key.as_deref(), wanted.value.as_deref())?;
    if !generated {
        term.say(&format!(
            "data   {}: column {} by column {}",
            input.display(),
            columns.value,
            columns.key
        ));
    }
    let length = std::fs::metadata(&input).map_or(0, |m| m.len());
    let progress = ProgressLine::bytes(term, "splitting by key");
    let parts = split::split(&input, &columns, wanted.partitions, &wanted.dir, |n| {
        progress.at(n.min(length), length)
    })?;
    drop(progress);
    term.say(&describe(&parts));
    Ok(DemoDataSet {
        input,
        columns,
        parts,
        share,
        generated,
    })
}

fn make(
    term: &TerminalOutput,
    partitions: u32,
    share: Bytes,
    dir: &Path,
) -> Result<PathBuf, DemoError> {
    let weights = shape::weights(partitions);
    let keys: Vec<u64> = weights.iter().map(|w| shape::keys(*w, share)).collect();
    let path = dir.join("data.csv");
    let progress = ProgressLine::keys(term, "making a skewed data set");
    let all = keys.iter().sum();
    let written = generate::generate(&path, &keys, SEED, |n| progress.at(n, all))?;
    drop(progress);
    let n = |w: PartitionWeight| weights.iter().filter(|x| **x == w).count();
    term.say(&format!(
        "data   {} rows, {}, seed {SEED:#x}: {} partitions fit a slot of {share}, {} need {:.1} slots, {} needs {:.1}",
        written.rows,
        Bytes::new(written.bytes),
        n(PartitionWeight::Light),
        n(PartitionWeight::Heavy),
        slots(PartitionWeight::Heavy),
        n(PartitionWeight::Mega),
        slots(PartitionWeight::Mega),
    ));
    Ok(path)
}

/// Number of slots that a weight needs, for messages.
fn slots(weight: PartitionWeight) -> f64 {
    f64::from(u32::try_from(weight.hundredths()).unwrap_or(u32::MAX)) / 100.0
}

fn describe(parts: &[DemoPartition]) -> String {
    let rows: u64 = parts.iter().map(|p| p.rows).sum();
    let size = |p: Option<&DemoPartition>| p.map_or(Bytes::ZERO, |p| Bytes::new(p.bytes));
    let largest = parts.iter().max_by_key(|p| p.bytes);
    format!(
        "split  {rows} rows by hash of the key into {}: median {}, largest {} (part {})",
        count(u64::try_from(parts.len()).unwrap_or(0), "file"),
        size(median(parts)),
        size(largest),
        largest.map_or(0, |p| p.index)
    )
}

/// The partition of median size.
pub(crate) fn median(parts: &[DemoPartition]) -> Option<&DemoPartition> {
    let mut sorted: Vec<&DemoPartition> = parts.iter().collect();
    sorted.sort_by_key(|p| (p.bytes, p.index));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// The memory of a slot for a partition with this peak: a quarter more, in whole steps, at least 24
/// MiB for the program itself.
pub(crate) fn fitted(done: &GroupByStats) -> Bytes {
    Bytes::new(done.peak_bytes)
        .mul_ratio(5, 4)
        .round_up(STEP)
        .max(Bytes::from_mib(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_an_existing_partition() {
        let part = |index, bytes| DemoPartition {
            index,
            path: PathBuf::new(),
            rows: 1,
            bytes,
        };
        let parts = [part(0, 900), part(1, 10), part(2, 30), part(3, 20)];
        assert_eq!(median(&parts).map(|p| p.index), Some(3));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_share_leaves_a_quarter() {
        let peak = |mib: u64| GroupByStats {
            rows: 1,
            keys: 1,
            peak_bytes: mib << 20,
        };
        assert_eq!(fitted(&peak(40)), Bytes::from_mib(56));
        assert_eq!(fitted(&peak(3)), Bytes::from_mib(24));
    }
}
