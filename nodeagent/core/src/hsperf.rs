//! Parser of the JVM's shared heap counters ("hsperfdata", version 2.0).
//!
//! The watched process writes the file, so nothing in it is trusted: every offset is checked
//! against the present bytes, the number of entries is bounded, and a sum that would overflow
//! saturates. This module opens no files; `headroom-node-cgroup` finds and reads them.
//!
//! The file begins with a header of 32 bytes: a big-endian magic, then fields in the byte order
//! that byte 4 names. Entries follow: `length, name offset, vector length, type, flags, units,
//! variability, data offset`, each 20 bytes and its name and data.

use headroom_types::Bytes;
use headroom_types::exit::{CollectionReport, GarbageCollector, GcCause, HeapReport};

/// Maximum number of entries that are read; a JVM has about 200.
const MAX_ENTRIES: u32 = 4096;
/// Length of the header. In bytes.
const HEADER: usize = 32;
/// Length of an entry before its name. In bytes.
const ENTRY: usize = 20;
/// Maximum generations and spaces; HotSpot has at most 2 and 3.
const GENERATIONS: usize = 3;
const SPACES: usize = 8;
/// Maximum collectors: young, full, and the pauses of a concurrent one.
const COLLECTORS: usize = 3;
/// Index of the collector of the whole heap.
const FULL: usize = 1;

/// The reason why bytes are not the counters of a JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HsperfError {
    /// There are fewer bytes than a header has, or an entry reaches beyond the end.
    #[error("the JVM's counters end in the middle of an entry")]
    Truncated,
    /// The first four bytes are not the magic of hsperfdata.
    #[error("the file has no JVM counters")]
    Magic,
    /// The header names neither byte order.
    #[error("the JVM's counters name no byte order")]
    ByteOrder,
    /// The version is not 2.
    #[error("JVM counters have version {major}; Headroom reads version 2")]
    Version {
        /// The version in the header.
        major: u8,
    },
    /// The JVM is still filling in the counters: try again later.
    #[error("the JVM has not initialized its counters yet")]
    NotReady,
    /// More entries than any JVM has.
    #[error("the JVM's counters have {entries} entries; the maximum is {MAX_ENTRIES}")]
    TooMany {
        /// The number in the header.
        entries: u32,
    },
    /// There are no heap counters among the entries.
    #[error("the JVM's counters contain no heap counters")]
    NoHeap,
}

/// Parses the heap counters in `bytes`.
pub fn parse(bytes: &[u8]) -> Result<HeapReport, HsperfError> {
    let file = HsperfReader::new(bytes)?;
    let mut heap = HeapCounters::default();
    let mut at = file.first;
    for _ in 0..file.entries {
        let (entry, next) = file.entry(at)?;
        match entry.value {
            CounterValue::Long(value) => heap.take(entry.name, value),
            CounterValue::Text(text) => heap.take_text(entry.name, text),
            CounterValue::Other => {}
        }
        at = next;
    }
    heap.facts()
}

/// The bytes of the file and their byte order.
struct HsperfReader<'a> {
    bytes: &'a [u8],
    little: bool,
    first: usize,
    entries: u32,
}

/// One counter.
struct HsperfCounter<'a> {
    name: &'a [u8],
    value: CounterValue<'a>,
}

/// The value of a counter, for the types that this parser needs.
enum CounterValue<'a> {
    Long(u64),
    Text(&'a [u8]),
    Other,
}

impl<'a> HsperfReader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, HsperfError> {
        let head = bytes.get(..HEADER).ok_or(HsperfError::Truncated)?;
        let [m0, m1, m2, m3, order, major, _minor, accessible, ..] = head else {
            return Err(HsperfError::Truncated);
        };
        if [*m0, *m1, *m2, *m3] != [0xCA, 0xFE, 0xC0, 0xC0] {
            return Err(HsperfError::Magic);
        }
        let little = match order {
            0 => false,
            1 => true,
            _ => return Err(HsperfError::ByteOrder),
        };
        if *major != 2 {
            return Err(HsperfError::Version { major: *major });
        }
        if *accessible == 0 {
            return Err(HsperfError::NotReady);
        }
        let mut file = HsperfReader {
            bytes,
            little,
            first: 0,
            entries: 0,
        };
        file.first = file.offset(24)?;
        file.entries = file.u32(28)?;
        if file.entries > MAX_ENTRIES {
            return Err(HsperfError::TooMany {
                entries: file.entries,
            });
        }
        Ok(file)
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], HsperfError> {
        let end = at.checked_add(N).ok_or(HsperfError::Truncated)?;
        self.bytes
            .get(at..end)
            .and_then(|b| b.try_into().ok())
            .ok_or(HsperfError::Truncated)
    }
    fn u32(&self, at: usize) -> Result<u32, HsperfError> {
        let raw = self.array::<4>(at)?;
        Ok(if self.little {
            u32::from_le_bytes(raw)
        } else {
            u32::from_be_bytes(raw)
        })
    }
    fn u64(&self, at: usize) -> Result<u64, HsperfError> {
        let raw = self.array::<8>(at)?;
        Ok(if self.little {
            u64::from_le_bytes(raw)
        } else {
            u64::from_be_bytes(raw)
        })
    }
    fn offset(&self, at: usize) -> Result<usize, HsperfError> {
        usize::try_from(self.u32(at)?).map_err(|_| HsperfError::Truncated)
    }

    /// The entry at `at`, and the offset of the next one.
    fn entry(&self, at: usize) -> Result<(HsperfCounter<'a>, usize), HsperfError> {
        let length = self.offset(at)?;
        let end = at.checked_add(length).ok_or(HsperfError::Truncated)?;
        if length < ENTRY || end > self.bytes.len() {
            return Err(HsperfError::Truncated);
        }
        let within = |offset: usize| {
            at.checked_add(offset)
                .filter(|p| *p < end)
                .ok_or(HsperfError::Truncated)
        };
        let name_at = within(self.offset(at + 4)?)?;
        let vector = self.u32(at + 8)?;
        let [kind] = self.array::<1>(at + 12)?;
        let name = self.bytes.get(name_at..end).unwrap_or_default();
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let data = within(self.offset(at + 16)?)?;
        let value = match (kind, vector) {
            (b'J', 0) if data + 8 > end => return Err(HsperfError::Truncated),
            (b'J', 0) => CounterValue::Long(self.u64(data)?),
            (b'B', 1..) => {
                let text = self.bytes.get(data..end).unwrap_or_default();
                CounterValue::Text(text.split(|b| *b == 0).next().unwrap_or_default())
            }
            _ => CounterValue::Other,
        };
        Ok((HsperfCounter { name, value }, end))
    }
}

/// One generation of the heap.
#[derive(Clone, Copy, Default)]
struct HeapGeneration {
    capacity: Option<u64>,
    max: Option<u64>,
    used: [Option<u64>; SPACES],
}

impl HeapGeneration {
    fn used(&self) -> Option<u64> {
        self.used
            .iter()
            .flatten()
            .copied()
            .reduce(u64::saturating_add)
    }
}

/// The heap counters that were read so far.
#[derive(Default)]
struct HeapCounters {
    generations: [HeapGeneration; GENERATIONS],
    metaspace: Option<u64>,
    threads: Option<u64>,
    compiled: Option<u64>,
    /// Clock ticks of the JVM per second.
    frequency: Option<u64>,
    /// Runs and ticks of each collector.
    runs: [Option<u64>; COLLECTORS],
    ticks: [Option<u64>; COLLECTORS],
    collector: Option<GarbageCollector>,
    cause: Option<GcCause>,
    /// True when the policy is named after two collectors (`Copy:MSC`): each has its own part of
    /// the heap.
    divided: bool,
}

impl HeapCounters {
    fn take(&mut self, name: &[u8], value: u64) {
        match name {
            b"sun.gc.metaspace.used" => self.metaspace = Some(value),
            b"java.threads.live" => self.threads = Some(value),
            b"sun.ci.nmethodSize" => self.compiled = Some(value),
            b"sun.os.hrt.frequency" => self.frequency = Some(value),
            _ => {
                if let Some(rest) = name.strip_prefix(b"sun.gc.generation.") {
                    self.take_generation(rest, value);
                } else if let Some(rest) = name.strip_prefix(b"sun.gc.collector.") {
                    self.take_collector(rest, value);
                }
            }
        }
    }

    /// `rest` is the name after the prefix, for example `0.invocations`.
    fn take_collector(&mut self, rest: &[u8], value: u64) {
        let mut words = rest.split(|b| *b == b'.');
        let Some(which) = words.next().and_then(digit) else {
            return;
        };
        let figures = match words.next() {
            Some(b"invocations") => &mut self.runs,
            Some(b"time") => &mut self.ticks,
            Some(_) | None => return,
        };
        if let Some(slot) = figures.get_mut(which) {
            *slot = Some(value);
        }
    }

    fn take_text(&mut self, name: &[u8], text: &[u8]) {
        match name {
            b"sun.gc.policy.name" => {
                self.divided |= text.contains(&b':');
                self.collector = self.collector.or(collector(text));
            }
            b"sun.gc.collector.0.name" => self.collector = self.collector.or(collector(text)),
            b"sun.gc.lastCause" => self.cause = cause(text),
            _ => {}
        }
    }

    /// `rest` is the name after the prefix, for example `1.capacity` or `0.space.2.used`.
    fn take_generation(&mut self, rest: &[u8], value: u64) {
        let mut words = rest.split(|b| *b == b'.');
        let Some(generation) = words
            .next()
            .and_then(digit)
            .and_then(|g| self.generations.get_mut(g))
        else {
            return;
        };
        match (words.next(), words.next(), words.next()) {
            (Some(b"capacity"), None, _) => generation.capacity = Some(value),
            (Some(b"maxCapacity"), None, _) => generation.max = Some(value),
            (Some(b"space"), Some(space), Some(b"used")) => {
                if let Some(slot) = digit(space).and_then(|s| generation.used.get_mut(s)) {
                    *slot = Some(value);
                }
            }
            _ => {}
        }
    }

    fn facts(&self) -> Result<HeapReport, HsperfError> {
        let sum = |of: fn(&HeapGeneration) -> Option<u64>| {
            self.generations
                .iter()
                .filter_map(of)
                .reduce(u64::saturating_add)
        };
        let used = sum(HeapGeneration::used).ok_or(HsperfError::NoHeap)?;
        let committed = sum(|g| g.capacity).ok_or(HsperfError::NoHeap)?;
        Ok(HeapReport {
            pid: None,
            used: Bytes::new(used),
            committed: Bytes::new(committed),
            max: Bytes::new(self.max().unwrap_or(0)),
            old_used: self
                .generations
                .get(1)
                .and_then(HeapGeneration::used)
                .map(Bytes::new),
            old_max: self.old_max(),
            cached: None,
            metaspace: self.metaspace.map(Bytes::new),
            threads: self.threads,
            eden: self.space(0),
            survivor: self
                .space(1)
                .map(|one| one.saturating_add(self.space(2).unwrap_or_default())),
            compiled: self.compiled.map(Bytes::new),
            gc: self.gc(),
        })
    }

    /// The capacity of the old generation, where the heap is divided permanently.
    fn old_max(&self) -> Option<Bytes> {
        let old = self.generations.get(1)?.max?;
        self.max()
            .filter(|all| old < *all && self.collector != Some(GarbageCollector::G1))
            .map(|_| Bytes::new(old))
    }

    /// A space of the young generation, where that generation exists.
    fn space(&self, which: usize) -> Option<Bytes> {
        let [young, old, ..] = &self.generations;
        old.used()?;
        young.used.get(which).copied().flatten().map(Bytes::new)
    }

    fn gc(&self) -> Option<CollectionReport> {
        let sum = |all: &[Option<u64>]| all.iter().flatten().copied().reduce(u64::saturating_add);
        let collections = sum(&self.runs)?;
        let ticks = u128::from(sum(&self.ticks).unwrap_or(0));
        let millis = (ticks * 1000)
            .checked_div(u128::from(self.frequency.unwrap_or(0)))
            .unwrap_or(0);
        Some(CollectionReport {
            collector: self.collector,
            collections,
            full: self.runs.get(FULL).copied().flatten().unwrap_or(0),
            spent_ms: u64::try_from(millis).unwrap_or(u64::MAX),
            cause: self.cause,
            ..CollectionReport::default()
        })
    }

    /// Collectors with fixed generations divide the heap among them. Collectors with regions (G1)
    /// report the whole heap for each generation. An unnamed policy with two equal generations
    /// counts as the latter.
    fn max(&self) -> Option<u64> {
        let mut all = self.generations.iter().filter_map(|g| g.max);
        let first = all.next()?;
        let (mut sum, mut same, mut more) = (first, true, false);
        for max in all {
            sum = sum.saturating_add(max);
            same &= max == first;
            more = true;
        }
        if self.collector == Some(GarbageCollector::G1) {
            // Each generation may fill the heap, and adds a few bytes so that no size is zero.
            return self.generations.iter().filter_map(|g| g.max).min();
        }
        Some(if same && more && !self.divided {
            first
        } else {
            sum
        })
    }
}

/// The collector, by the name of its policy or of its first collector.
fn collector(text: &[u8]) -> Option<GarbageCollector> {
    let names: [(&[u8], GarbageCollector); 7] = [
        (b"Copy", GarbageCollector::Serial),
        (b"Serial", GarbageCollector::Serial),
        (b"ParScav", GarbageCollector::Parallel),
        (b"PSScav", GarbageCollector::Parallel),
        (b"G", GarbageCollector::G1),
        (b"Z", GarbageCollector::Z),
        (b"Shenandoah", GarbageCollector::Shenandoah),
    ];
    names
        .iter()
        .find(|(name, _)| text.starts_with(name))
        .map(|(_, collector)| *collector)
}

/// The cause of the last collection; `None` before the first.
fn cause(text: &[u8]) -> Option<GcCause> {
    let has = |words: &str| text.windows(words.len()).any(|w| w == words.as_bytes());
    match () {
        () if text.is_empty() || has("No GC") => None,
        () if has("Humongous") => Some(GcCause::Humongous),
        () if has("Metadata") => Some(GcCause::Metadata),
        () if has("CodeCache") => Some(GcCause::CodeCache),
        () if has("System.gc") => Some(GcCause::Asked),
        () if has("Allocation") || has("Compaction") || has("Evacuation") => {
            Some(GcCause::Allocation)
        }
        () => Some(GcCause::Other),
    }
}

fn digit(word: &[u8]) -> Option<usize> {
    match word {
        [d @ b'0'..=b'9'] => Some(usize::from(d - b'0')),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with these 64-bit counters, in the layout of a JVM.
    fn file(little: bool, counters: &[(&str, u64)]) -> Vec<u8> {
        let u32b = |n: usize| {
            let n = u32::try_from(n).expect("small");
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut out = vec![0xCA, 0xFE, 0xC0, 0xC0, u8::from(little), 2, 0, 1];
        out.extend([0; 16]);
        out.extend(u32b(HEADER));
        out.extend(u32b(counters.len()));
        for (name, value) in counters {
            let name_room = (name.len() + 1).next_multiple_of(8) + 4; // data on a multiple of 8: 20 + 4 + …
            let length = ENTRY + name_room + 8;
            out.extend(u32b(length));
            out.extend(u32b(ENTRY));
            out.extend(u32b(0));
            out.extend([b'J', 4, 2, 3]);
            out.extend(u32b(ENTRY + name_room));
            out.extend(name.as_bytes());
            out.extend(vec![0; name_room - name.len()]);
            out.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        }
        out
    }

    const SERIAL: [(&str, u64); 12] = [
        ("java.threads.live", 11),
        ("sun.gc.generation.0.capacity", 20),
        ("sun.gc.generation.0.maxCapacity", 100),
        ("sun.gc.generation.0.space.0.used", 7),
        ("sun.gc.generation.0.space.1.used", 2),
        ("sun.gc.generation.0.space.1.capacity", 900),
        ("sun.gc.generation.0.space.2.used", 0),
        ("sun.gc.generation.1.capacity", 50),
        ("sun.gc.generation.1.maxCapacity", 200),
        ("sun.gc.generation.1.space.0.used", 40),
        ("sun.gc.metaspace.used", 5),
        ("sun.gc.generation.0.agetable.bytes.03", 77),
    ];

    #[test]
    fn sums_spaces_and_generations_in_either_byte_order() {
        for little in [true, false] {
            let heap = parse(&file(little, &SERIAL)).expect("parses");
            assert_eq!(
                (heap.used, heap.committed, heap.max),
                (Bytes::new(49), Bytes::new(70), Bytes::new(300))
            );
            assert_eq!(
                (heap.old_used, heap.old_max),
                (Some(Bytes::new(40)), Some(Bytes::new(200)))
            );
            assert_eq!(
                (heap.metaspace, heap.threads),
                (Some(Bytes::new(5)), Some(11))
            );
        }
    }

    #[test]
    fn a_region_heap_is_not_counted_twice() {
        let mut g1 = SERIAL;
        g1[2].1 = 256;
        g1[8].1 = 256;
        assert_eq!(
            parse(&file(true, &g1)).expect("parses").max,
            Bytes::new(256)
        );
    }

    #[test]
    fn the_maximum_of_g1_generations_is_not_added() {
        let (young, old) = (
            HeapGeneration {
                max: Some(67_108_888),
                ..HeapGeneration::default()
            },
            HeapGeneration {
                max: Some(67_108_872),
                ..HeapGeneration::default()
            },
        );
        let heap = HeapCounters {
            generations: [young, old, HeapGeneration::default()],
            collector: Some(GarbageCollector::G1),
            ..HeapCounters::default()
        };
        assert_eq!(
            heap.max(),
            Some(67_108_872),
            "the value of a JVM with -Xmx64m"
        );
    }

    #[test]
    fn two_equal_generations_of_fixed_size_are_both_counted() {
        let mut serial = SERIAL;
        serial[2].1 = 128;
        serial[8].1 = 128;
        let mut bytes = file(true, &serial);
        let text = [48u32, 20, 9].map(u32::to_le_bytes).concat();
        bytes.extend(text);
        bytes.extend([b'B', 4, 5, 1]);
        bytes.extend(39u32.to_le_bytes());
        bytes.extend(b"sun.gc.policy.name\0Copy:MSC\0");
        bytes[28] += 1;
        assert_eq!(parse(&bytes).expect("parses").max, Bytes::new(256));
    }

    #[test]
    fn a_heap_with_one_generation_is_read() {
        let z = [
            ("sun.gc.generation.1.capacity", 9),
            ("sun.gc.generation.1.maxCapacity", 10),
            ("sun.gc.generation.1.space.0.used", 4),
        ];
        let heap = parse(&file(true, &z)).expect("parses");
        assert_eq!(
            (heap.used, heap.committed, heap.max),
            (Bytes::new(4), Bytes::new(9), Bytes::new(10))
        );
        assert_eq!((heap.metaspace, heap.threads), (None, None));
    }

    #[test]
    fn collections_are_counted_and_timed() {
        let mut serial = SERIAL.to_vec();
        serial.extend([
            ("sun.os.hrt.frequency", 1_000_000),
            ("sun.gc.collector.0.invocations", 7),
            ("sun.gc.collector.0.time", 250_000),
            ("sun.gc.collector.1.invocations", 2),
            ("sun.gc.collector.1.time", 1_000_000),
            ("sun.ci.nmethodSize", 4096),
        ]);
        let heap = parse(&file(true, &serial)).expect("parses");
        let gc = heap.gc.expect("collections");
        assert_eq!((gc.collections, gc.full, gc.spent_ms), (9, 2, 1250));
        assert_eq!(
            (heap.eden, heap.survivor),
            (Some(Bytes::new(7)), Some(Bytes::new(2)))
        );
        assert_eq!(heap.compiled, Some(Bytes::new(4096)));
    }

    #[test]
    fn causes_and_collectors_of_hotspot_are_parsed() {
        assert_eq!(cause(b"G1 Humongous Allocation"), Some(GcCause::Humongous));
        assert_eq!(
            cause(b"Metadata GC Clear Soft References"),
            Some(GcCause::Metadata)
        );
        assert_eq!(cause(b"No GC"), None);
        assert_eq!(collector(b"Copy:MSC"), Some(GarbageCollector::Serial));
        assert_eq!(collector(b"GarbageFirst"), Some(GarbageCollector::G1));
        assert_eq!(collector(b"ParScav:MSC"), Some(GarbageCollector::Parallel));
    }

    #[test]
    fn an_error_names_the_invalid_part() {
        let good = file(true, &SERIAL);
        assert_eq!(parse(&[]), Err(HsperfError::Truncated));
        assert_eq!(parse(&[0; 64]), Err(HsperfError::Magic));
        let with = |at: usize, byte: u8| {
            let mut b = good.clone();
            b[at] = byte;
            b
        };
        assert_eq!(parse(&with(4, 9)), Err(HsperfError::ByteOrder));
        assert_eq!(parse(&with(5, 1)), Err(HsperfError::Version { major: 1 }));
        assert_eq!(parse(&with(7, 0)), Err(HsperfError::NotReady));
        assert_eq!(
            parse(&with(30, 1)),
            Err(HsperfError::TooMany {
                entries: 12 + (1 << 16)
            })
        );
        assert_eq!(
            parse(&with(HEADER, 3)),
            Err(HsperfError::Truncated),
            "an entry shorter than its own head"
        );
        assert_eq!(
            parse(&file(true, &[("java.threads.live", 1)])),
            Err(HsperfError::NoHeap)
        );
    }

    proptest! {
        #[test]
        fn safety_no_bytes_make_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), patch in any::<bool>()) {
            if patch && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[0xCA, 0xFE, 0xC0, 0xC0, 1, 2, 0, 1]);
            }
            let _ = parse(&bytes);
        }

        #[test]
        fn safety_no_flipped_byte_makes_the_parser_panic(at in 0usize..700, byte in any::<u8>(), cut in 0usize..700) {
            let mut bytes = file(true, &SERIAL);
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
            bytes.truncate(bytes.len().min(cut));
            let _ = parse(&bytes);
        }
    }
}
