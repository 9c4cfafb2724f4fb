//! Heap monitor of the JVM in a task, which reads its shared counters.
//!
//! Owned by the task. It searches the processes until it finds a JVM and keeps its counter file
//! open, so that a last read is possible after a kill. A task without a declared runtime has no
//! monitor.

use headroom_node_cgroup::hsperf::HsperfFile;
use headroom_node_core::hsperf;
use headroom_node_core::starved::GcTimeWindow;
use headroom_types::exit::{HeapReport, TimelineMark};

/// Maximum number of processes of a task that are searched for a JVM.
const MOST_PROCESSES: usize = 32;

/// The heap monitor of one task.
#[derive(Debug, Default)]
pub struct HeapMonitor {
    file: Option<HsperfFile>,
    last: Option<HeapReport>,
    window: GcTimeWindow,
    /// Reason that the last search or read failed.
    absent: Option<String>,
}

impl HeapMonitor {
    /// Searches `pids` for a JVM if none is known, and reads its counters `at_ms` milliseconds
    /// after the start of the task. Returns a mark when the heap becomes starved.
    pub fn look(&mut self, at_ms: u64, pids: impl FnOnce() -> Vec<i32>) -> Option<TimelineMark> {
        if self.file.is_none() {
            for pid in pids().into_iter().take(MOST_PROCESSES) {
                match HsperfFile::locate(pid) {
                    Ok(file) => {
                        self.file = Some(file);
                        break;
                    }
                    Err(e) => self.absent = Some(e.to_string()),
                }
            }
        }
        self.read(at_ms)
    }

    /// Reads the current counters of the JVM or, after its end, its last ones.
    pub fn read(&mut self, at_ms: u64) -> Option<TimelineMark> {
        let file = self.file.as_ref()?;
        let parsed = file
            .read()
            .map_err(|e| e.to_string())
            .and_then(|bytes| hsperf::parse(&bytes).map_err(|e| e.to_string()));
        match parsed {
            Ok(mut facts) => {
                facts.pid = Some(file.pid());
                let mark = self.window.take(at_ms, &mut facts);
                self.last = Some(facts);
                mark
            }
            Err(why) => {
                self.absent = Some(why); // the previous values stay valid
                None
            }
        }
    }

    /// True if the JVM spends its time in garbage collection of a heap that is too small.
    pub fn is_starved(&self) -> bool {
        self.window.is_starved()
    }

    /// The last values.
    pub fn facts(&self) -> Option<HeapReport> {
        self.last
    }

    /// Reason that values are missing; `None` if there are values.
    pub fn missing(&self) -> Option<String> {
        match (self.last, &self.absent) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(format!("heap: {why}")),
            (None, None) => Some("heap: the task ended before its runtime was found".to_owned()),
        }
    }
}
