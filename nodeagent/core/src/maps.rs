//! Attributes the memory of a process to kinds, by the text of `/proc/PID/smaps`. Pure.
//!
//! The kernel does not report the purpose of a mapping, so its shape decides:
//!
//! - An arena of glibc's allocator begins at a multiple of 64 MiB, and its unopened part follows.
//! - A thread's stack lies directly above a guard without permissions.
//! - Code made at run time is anonymous and executable.
//! - All other mappings are `other`.
//!
//! A managed heap reserves far more than it uses and is never taken for a stack, because stacks are
//! small. `headroom-node-cgroup` reads the text.

use headroom_types::Bytes;
use headroom_types::exit::ProcessMemory;

/// Alignment of an arena, and its length including the closed part. Adjacent arenas may look like
/// one.
const ARENA: u64 = 64 << 20;
/// Lowest address of an arena in a JVM. A JVM puts its heap below it, aligned as well. Other
/// processes may have arenas there, where the address space is small.
const LOW: u64 = 1 << 46;
/// A library that every JVM maps.
const JVM: &str = "libjvm.so";
/// Libraries of glibc's allocator. Only statically linked programs lack them.
const LIBC: [&str; 2] = ["/libc.so", "/libc-2"];
/// The 256 GiB of addresses where a Go program prefers its heap, in pieces that look like arenas.
const GO: std::ops::Range<u64> = if cfg!(target_arch = "aarch64") {
    0x40 << 32..0x80 << 32
} else {
    0xc0 << 32..0x100 << 32
};
/// Largest guard below a stack. In bytes.
const GUARD: u64 = 1 << 20;
/// Largest stack: four times the usual `ulimit -s`. In bytes.
const STACK: u64 = 32 << 20;

/// One mapping.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryMapping {
    start: u64,
    end: u64,
    kind: MappingKind,
    may_run: bool,
    /// No permissions: a guard, or the closed part of an arena.
    closed: bool,
    /// Resident memory, and the anonymous part of it. In KiB.
    rss: u64,
    anon: u64,
}

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MappingKind {
    #[default]
    Anonymous,
    Brk,
    MainStack,
    File,
    Shared,
    /// Made by the kernel: vdso and similar.
    Special,
}

/// Sums the mappings in `smaps`. Missing numbers count as 0; text that is not `smaps` gives zeros.
pub fn parse(smaps: &str) -> ProcessMemory {
    let mut facts = ProcessMemory::default();
    let all = mappings(smaps);
    let arenas = ArenaAddresses {
        any: LIBC.iter().any(|libc| smaps.contains(libc)),
        from: if smaps.contains(JVM) { LOW } else { 0 },
    };
    for (i, mapping) in all.iter().enumerate() {
        let below = i
            .checked_sub(1)
            .and_then(|b| all.get(b))
            .filter(|b| b.end == mapping.start);
        let above = all.get(i + 1).filter(|a| a.start == mapping.end);
        add(&mut facts, mapping, below, above, arenas);
    }
    facts
}

/// The addresses where arenas are possible.
#[derive(Clone, Copy, Debug)]
struct ArenaAddresses {
    any: bool,
    from: u64,
}

impl ArenaAddresses {
    fn may_be(self, m: &MemoryMapping) -> bool {
        self.any && m.start >= self.from && !GO.contains(&m.start)
    }
}

fn add(
    facts: &mut ProcessMemory,
    m: &MemoryMapping,
    below: Option<&MemoryMapping>,
    above: Option<&MemoryMapping>,
    arenas: ArenaAddresses,
) {
    let (anon, rest) = (
        Bytes::from_kib(m.anon),
        Bytes::from_kib(m.rss.saturating_sub(m.anon)),
    );
    let into = |sum: &mut Bytes, part: Bytes| *sum = sum.saturating_add(part);
    match m.kind {
        MappingKind::Special => {}
        MappingKind::Brk => into(&mut facts.brk, anon),
        MappingKind::MainStack => into(&mut facts.stacks, anon),
        MappingKind::File => {
            into(&mut facts.other, anon);
            into(&mut facts.file, rest);
        }
        MappingKind::Shared => into(&mut facts.shmem, Bytes::from_kib(m.rss)),
        MappingKind::Anonymous if m.closed => {}
        MappingKind::Anonymous if m.may_run => into(&mut facts.code, anon),
        MappingKind::Anonymous if arenas.may_be(m) && is_arena(m, above) => {
            let arenas = u32::try_from((m.end - m.start).div_ceil(ARENA)).unwrap_or(u32::MAX);
            facts.arena_count = facts.arena_count.saturating_add(arenas);
            into(&mut facts.arenas, anon);
        }
        MappingKind::Anonymous if is_stack(m, below) => {
            facts.stack_count += 1;
            into(&mut facts.stacks, anon);
        }
        MappingKind::Anonymous => into(&mut facts.other, anon),
    }
}

fn is_arena(m: &MemoryMapping, above: Option<&MemoryMapping>) -> bool {
    let closed_end = above
        .filter(|a| a.closed && a.kind == MappingKind::Anonymous)
        .map_or(m.end, |a| a.end);
    let whole = closed_end - m.start;
    m.start.is_multiple_of(ARENA) && whole > 0 && whole.is_multiple_of(ARENA)
}

fn is_stack(m: &MemoryMapping, below: Option<&MemoryMapping>) -> bool {
    let guarded = below
        .is_some_and(|b| b.closed && b.kind == MappingKind::Anonymous && b.end - b.start <= GUARD);
    guarded && m.end - m.start <= STACK
}

fn mappings(smaps: &str) -> Vec<MemoryMapping> {
    let mut all: Vec<MemoryMapping> = Vec::new();
    for line in smaps.lines() {
        if let Some(mapping) = head(line) {
            all.push(mapping);
        } else if let Some(last) = all.last_mut() {
            figure(line, last);
        }
    }
    all
}

/// `7f0000000000-7f0000021000 rw-p 00000000 00:00 0   NAME`.
fn head(line: &str) -> Option<MemoryMapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    let rights = words.next().filter(|r| r.len() == 4)?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default();
    let kind = match name {
        "[heap]" => MappingKind::Brk,
        "[stack]" => MappingKind::MainStack,
        _ if rights.ends_with('s') => shared(name),
        "" => MappingKind::Anonymous,
        _ if name.starts_with("[anon") => MappingKind::Anonymous,
        _ if name.starts_with('[') && inode == "0" => MappingKind::Special,
        _ if in_memory(name) => MappingKind::Shared,
        _ => MappingKind::File,
    };
    (end >= start).then(|| MemoryMapping {
        start,
        end,
        kind,
        may_run: rights.contains('x'),
        closed: rights.starts_with("---"),
        rss: 0,
        anon: 0,
    })
}

fn shared(name: &str) -> MappingKind {
    if name.is_empty() || in_memory(name) {
        MappingKind::Shared
    } else {
        MappingKind::File
    }
}

/// Files whose name shows that they lie in memory. Others may lie in memory too, and count as
/// files.
fn in_memory(name: &str) -> bool {
    ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"]
        .iter()
        .any(|known| name.starts_with(known))
}

fn figure(line: &str, mapping: &mut MemoryMapping) {
    let Some((key, rest)) = line.split_once(':') else {
        return;
    };
    let sum = match key {
        "Rss" => &mut mapping.rss,
        "Anonymous" => &mut mapping.anon,
        _ => return,
    };
    *sum = rest
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(rows: &[(&str, u64, u64)]) -> String {
        rows.iter()
            .map(|(head, rss, anon)| {
                format!("{head}\nSize: 4 kB\nRss: {rss} kB\nAnonymous: {anon} kB\nVmFlags: rd\n")
            })
            .collect()
    }

    const LIBC: (&str, u64, u64) = (
        "7f1000000000-7f1000100000 r-xp 00000000 08:01 78 /usr/lib/x86_64-linux-gnu/libc.so.6",
        4,
        0,
    );

    #[test]
    fn each_kind_of_mapping_is_classified() {
        let facts = parse(&text(&[
            LIBC,
            (
                "00400000-00500000 r-xp 00000000 08:01 77 /usr/bin/prog",
                100,
                0,
            ),
            (
                "00500000-00501000 rw-p 00100000 08:01 77 /usr/bin/prog",
                8,
                4,
            ),
            ("01000000-01200000 rw-p 00000000 00:00 0 [heap]", 200, 200),
            (
                "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 ",
                3000,
                3000,
            ),
            ("7f0001000000-7f0004000000 ---p 00000000 00:00 0 ", 0, 0),
            ("7f0010000000-7f0010001000 ---p 00000000 00:00 0 ", 0, 0),
            ("7f0010001000-7f0010801000 rw-p 00000000 00:00 0 ", 64, 64),
            ("7f0020000000-7f0020100000 rwxp 00000000 00:00 0 ", 500, 500),
            (
                "7f0030001000-7f0040000000 rw-p 00000000 00:00 0 ",
                7000,
                7000,
            ),
            (
                "7f0050000000-7f0050100000 rw-s 00000000 00:01 9 /dev/shm/x (deleted)",
                900,
                0,
            ),
            (
                "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]",
                16,
                16,
            ),
            (
                "7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0 [vdso]",
                4,
                0,
            ),
        ]));
        assert_eq!(
            (facts.arena_count, facts.arenas),
            (1, Bytes::from_kib(3000))
        );
        assert_eq!((facts.stack_count, facts.stacks), (1, Bytes::from_kib(80)));
        assert_eq!(
            (facts.code, facts.brk),
            (Bytes::from_kib(500), Bytes::from_kib(200))
        );
        assert_eq!(
            (facts.other, facts.shmem),
            (Bytes::from_kib(7004), Bytes::from_kib(900))
        );
        assert_eq!(facts.file, Bytes::from_kib(108));
    }

    /// Measured mappings of a Go program of 200 MiB, with and without C code.
    #[test]
    fn the_heap_of_a_go_program_is_not_an_arena() {
        let own = if cfg!(target_arch = "aarch64") {
            "40"
        } else {
            "c0"
        };
        let open = format!("{own}00000000-{own}0c800000 rw-p 00000000 00:00 0 ");
        let closed = format!("{own}0c800000-{own}10000000 ---p 00000000 00:00 0 ");
        for c in [&[LIBC][..], &[]] {
            let rows = [
                &[(open.as_str(), 204_800, 204_800), (closed.as_str(), 0, 0)][..],
                c,
            ]
            .concat();
            let facts = parse(&text(&rows));
            assert_eq!(
                (facts.arena_count, facts.other),
                (0, Bytes::from_kib(204_800))
            );
        }
        // In a small address space, as in a guest, the heap can lie at any address.
        let low = (
            "4008000000-4014800000 rw-p 00000000 00:00 0 ",
            204_800,
            204_800,
        );
        let rest = ("4014800000-4018000000 ---p 00000000 00:00 0 ", 0, 0);
        assert_eq!(parse(&text(&[low, rest])).arena_count, 0);
        assert_eq!(
            parse(&text(&[low, rest, LIBC])).arena_count,
            if cfg!(target_arch = "aarch64") { 0 } else { 4 }
        );
    }

    /// No process has such mappings, but a text can contain them.
    #[test]
    fn the_number_of_arenas_saturates() {
        let whole = (
            "0000000000000000-fffffffffc000000 rw-p 00000000 00:00 0 ",
            4,
            4,
        );
        assert_eq!(parse(&text(&[LIBC, whole, whole])).arena_count, u32::MAX);
    }

    #[test]
    fn a_guard_page_belongs_to_an_adjacent_stack_only() {
        let facts = parse(&text(&[
            ("7f0010000000-7f0010001000 ---p 00000000 00:00 0", 0, 0),
            ("7f0010002000-7f0010802000 rw-p 00000000 00:00 0", 64, 64),
            ("7f0010802000-7f0090802000 rw-p 00000000 00:00 0", 640, 640),
        ]));
        assert_eq!((facts.stack_count, facts.other), (0, Bytes::from_kib(704)));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // the kernel's own text, so that the parser is not tested only with our texts
    fn the_mappings_of_this_process_are_parsed() {
        let text = std::fs::read_to_string("/proc/self/smaps").expect("reads");
        let facts = parse(&text);
        assert!(
            facts.file > Bytes::from_kib(100) && facts.anon() > Bytes::from_kib(50),
            "{facts:?}"
        );
        assert!(
            facts.stack_count >= 1,
            "a test runs in its own thread: {facts:?}"
        );
    }

    proptest! {
        #[test]
        fn safety_no_text_makes_the_parser_panic(text in "([0-9a-f]{0,17}-?[0-9a-f]{0,17} [r-][w-][x-][ps] 0 0:0 0 ?[a-z\\[\\]/]{0,9}\n(Rss: [0-9]{0,21} kB\n)?){0,20}") {
            let _ = parse(&text);
        }
    }
}
