//! The trace of a run: one line per event, the last lines as text, and a hash over all lines to
//! compare two runs.

use std::collections::VecDeque;

/// Number of kept lines.
const KEPT: usize = 40;

/// The trace of one run.
#[derive(Clone, Debug)]
pub(super) struct RunTrace {
    hash: u64,
    count: u64,
    last: VecDeque<String>,
    echo: bool,
}

impl RunTrace {
    pub(super) fn new() -> Self {
        let echo = std::env::var_os("HEADROOM_SIM_ECHO").is_some();
        RunTrace {
            hash: 0xcbf2_9ce4_8422_2325,
            count: 0,
            last: VecDeque::new(),
            echo,
        }
    }
    /// Adds a line.
    pub(super) fn note(&mut self, now: u64, what: &str) {
        let line = format!("{:>7}.{:03} {what}", now / 1000, now % 1000);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.count += 1;
        if self.echo {
            self.say(&line);
        }
        self.last.push_back(line);
        if self.last.len() > KEPT {
            self.last.pop_front();
        }
    }
    #[allow(clippy::print_stderr)] // requested by HEADROOM_SIM_ECHO
    fn say(&self, line: &str) {
        eprintln!("{line}");
    }
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
    pub(super) fn count(&self) -> u64 {
        self.count
    }
    pub(super) fn tail(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}
