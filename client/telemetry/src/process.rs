//! Metrics of the process itself from `/proc/self`, under the names that all exporters use.
//! Unreadable values are omitted.

use std::fs;

use crate::names::{
    PROCESS_CPU_SECONDS, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT_MEMORY,
    PROCESS_START_TIME, PROCESS_THREADS, PROCESS_VIRTUAL_MEMORY,
};
use crate::page::MetricsPage;

/// Clock ticks per second in `/proc/self/stat`: `USER_HZ`, 100 on every platform.
const TICKS: f64 = 100.0;

/// Adds the metrics to a page. `started` is the start of the process, in seconds of the wall clock.
pub fn add_process_metrics(page: &mut MetricsPage, started: f64) {
    page.number(&PROCESS_START_TIME, &[], started);
    if let Ok(fds) = fs::read_dir("/proc/self/fd") {
        page.count(
            &PROCESS_OPEN_FDS,
            &[],
            u64::try_from(fds.count()).unwrap_or(u64::MAX),
        );
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(most) = max_fds(&limits) {
        page.count(&PROCESS_MAX_FDS, &[], most);
    }
    if let Some(seconds) = fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(cpu_seconds)
    {
        page.number(&PROCESS_CPU_SECONDS, &[], seconds);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rows = [
        (&PROCESS_RESIDENT_MEMORY, "VmRSS:", 1024),
        (&PROCESS_VIRTUAL_MEMORY, "VmSize:", 1024),
        (&PROCESS_THREADS, "Threads:", 1),
    ];
    for (metric, key, unit) in rows {
        if let Some(n) = field(&status, key) {
            page.count(metric, &[], n * unit);
        }
    }
}

fn max_fds(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The program name is in brackets and may contain any character, so the last bracket ends it.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((user + system) / TICKS)
}

fn field(status: &str, key: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|l| l.strip_prefix(key))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_parsed() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 5 1 1";
        assert_eq!(
            cpu_seconds(stat).map(|s| s.to_string()).as_deref(),
            Some("3")
        );
        assert_eq!(
            max_fds("Limit  Soft\nMax open files            1024  4096 files\n"),
            Some(1024)
        );
        assert_eq!(field("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12));
    }

    #[test]
    fn this_process_is_on_the_page() {
        let mut page = MetricsPage::new();
        add_process_metrics(&mut page, 1.0);
        assert_eq!(page.names().count(), 7);
    }
}
