//! Parses the log of a HotSpot collector (`-Xlog:gc*`). Pure.
//!
//! The log is read from the end of the program's output. A log that the user's command switches on
//! is parsed like one that a job file requests. Lines look like
//! `[1.234s][info][gc,heap] GC(7) Humongous regions: 12->12` and `[1.235s][info][gc] GC(7) Pause
//! Full (G1 Compaction Pause) 60M->58M(64M) 12.345ms`.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::HeapReport;

/// Values of the last lines of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcLogSummary {
    /// Size of a region.
    pub region: Option<Bytes>,
    /// Regions of large objects after the last collection. A count.
    pub humongous: Option<u64>,
    /// Heap in use after the last collection that logged it.
    pub after: Option<Bytes>,
    /// Collections in the lines that were read. A count.
    pub pauses: u64,
    /// Time spent in them.
    pub paused: Duration,
    /// From the first of these lines to the last.
    pub span: Duration,
}

impl GcLogSummary {
    /// The share of collection time, in percent; `None` where the lines cover less than a second.
    pub fn percent(&self) -> Option<u8> {
        if self.span < Duration::from_secs(1) {
            return None;
        }
        let share = self
            .paused
            .as_millis()
            .saturating_mul(100)
            .checked_div(self.span.as_millis())?;
        Some(u8::try_from(share.min(100)).unwrap_or(100))
    }
}

/// Adds the values that only the collector's log contains to those of the counters.
pub fn add(log: &GcLogSummary, heap: &mut HeapReport) {
    let gc = heap.gc.get_or_insert_default();
    gc.region = log.region.or(gc.region);
    gc.humongous = log.humongous.or(gc.humongous);
    gc.recent_percent = gc.recent_percent.or(log.percent());
}

/// Parses all collector lines in `text`; `None` without any.
pub fn parse(text: &str) -> Option<GcLogSummary> {
    let mut log = GcLogSummary::default();
    let mut ends: Option<(Duration, Duration)> = None;
    for line in text.lines() {
        let Some((at, said)) = split(line) else {
            continue;
        };
        if let Some(at) = at {
            ends = Some((ends.map_or(at, |(first, _)| first), at));
        }
        take(&mut log, said);
        log.region = log
            .region
            .or(said.strip_prefix("Heap Region Size: ").and_then(size));
    }
    let known = log.pauses > 0 || log.region.is_some() || log.humongous.is_some();
    if let Some((first, last)) = ends {
        log.span = last.saturating_sub(first);
    }
    known.then_some(log)
}

/// The time and the message of a line whose tags name the collector.
fn split(line: &str) -> Option<(Option<Duration>, &str)> {
    let (mut rest, mut at, mut of_gc) = (line.trim(), None, false);
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        let words = inside.trim();
        at = at.or_else(|| words.strip_suffix('s').and_then(seconds));
        of_gc |= words == "gc" || words.starts_with("gc,");
        rest = after;
    }
    of_gc.then_some((at, rest.trim()))
}

fn take(log: &mut GcLogSummary, said: &str) {
    let said = said
        .strip_prefix("GC(")
        .and_then(|r| r.split_once(") "))
        .map_or(said, |(_, said)| said);
    if let Some(counts) = said.strip_prefix("Humongous regions: ") {
        log.humongous = counts
            .split_once("->")
            .and_then(|(_, after)| leading(after))
            .or(log.humongous);
    }
    if !said.starts_with("Pause ") {
        return;
    }
    let Some(took) = said
        .strip_suffix("ms")
        .and_then(|s| s.rsplit(' ').next())
        .and_then(millis)
    else {
        return;
    };
    log.pauses += 1;
    log.paused += took;
    let sizes = said.rsplit(' ').find_map(|word| word.split_once("->"));
    log.after = sizes
        .and_then(|(_, after)| size(after.split('(').next()?))
        .or(log.after);
}

fn leading(text: &str) -> Option<u64> {
    text.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .ok()
}

fn size(text: &str) -> Option<Bytes> {
    let n = leading(text)?;
    match text.trim_start_matches(|c: char| c.is_ascii_digit()) {
        "K" => Some(Bytes::from_kib(n)),
        "M" => Some(Bytes::from_mib(n)),
        "G" => Some(Bytes::from_gib(n)),
        _ => None,
    }
}

/// A number with a point or, in some locales, a comma, in thousandths: `1.234` or `1,234`.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once(['.', ','])?;
    let whole: u64 = whole.parse().ok()?;
    whole
        .checked_mul(1000)?
        .checked_add(part.get(..3)?.parse().ok()?)
}

fn seconds(text: &str) -> Option<Duration> {
    thousandths(text).map(Duration::from_millis)
}

fn millis(text: &str) -> Option<Duration> {
    thousandths(text).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = "working on part 3\n\
        [0.006s][info][gc,init] Heap Region Size: 1M\n\
        [0.500s][info][gc] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation) 30M->20M(64M) 2.500ms\n\
        [0.501s][info][gc,heap     ] GC(0) Humongous regions: 12->9\n\
        [0.502s][info][gc] GC(1) Concurrent Mark Cycle 5.000ms\n\
        [2.500s][info][gc] GC(2) Pause Full (G1 Compaction Pause) 60M->58M(64M) 1200.250ms\n\
        [2.501s][info][gc,heap] GC(2) Humongous regions: 40->38\n\
        Terminating due to java.lang.OutOfMemoryError: Java heap space\n";

    #[test]
    fn pauses_regions_and_heap_after_collection_are_parsed() {
        let log = parse(LOG).expect("a log");
        assert_eq!(
            (log.region, log.humongous, log.after),
            (
                Some(Bytes::from_mib(1)),
                Some(38),
                Some(Bytes::from_mib(58))
            )
        );
        assert_eq!(
            (log.pauses, log.paused),
            (2, Duration::from_micros(1_202_750))
        );
        assert_eq!(log.percent(), Some(48));
    }

    #[test]
    fn output_without_gc_lines_is_not_a_log() {
        for text in [
            "",
            "Pause Full 1M->1M(2M) 1.000ms",
            "[1.000s][info][class] loaded",
            "[gc] hello",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(
            parse("[0.1s][info][gc] GC(1) Pause Young 1M->1M(2M) 1.000ms").map(|l| l.percent()),
            Some(None)
        );
    }

    proptest! {
        #[test]
        fn safety_no_text_makes_the_parser_panic(text in "(\\[[0-9.,]{0,24}s?\\])?(\\[gc[,a-z ]{0,6}\\])? ?(GC\\([0-9]\\) )?[ A-Za-z0-9(),.>-]{0,60}\n") {
            let _ = parse(&text);
        }
    }
}
