//! Watches the heap of the JVM in a task, by the counters it shares.
//!
//! Owned by the task. It looks for a JVM until it finds one, keeps its counters open, and so can read them once more after the
//! kernel has killed it. A task without declared runtime is never looked at.

use headroom_node_cgroup::hsperf::HeapFile;
use headroom_node_core::hsperf;
use headroom_node_core::starved::GcWindow;
use headroom_types::exit::{HeapFacts, Mark};

/// Most processes of a task that are looked at for being a JVM.
const MOST_PROCESSES: usize = 32;

/// The heap of one task.
#[derive(Debug, Default)]
pub struct HeapWatch {
    file: Option<HeapFile>,
    last: Option<HeapFacts>,
    window: GcWindow,
    /// Why nothing was found, the last time it was looked for.
    absent: Option<String>,
}

impl HeapWatch {
    /// Looks for a JVM among `pids` if none is known, and reads what it tells `at_ms` milliseconds after its birth. Gives a mark
    /// when its heap turns out to be starved.
    pub fn look(&mut self, at_ms: u64, pids: impl FnOnce() -> Vec<i32>) -> Option<Mark> {
        if self.file.is_none() {
            for pid in pids().into_iter().take(MOST_PROCESSES) {
                match HeapFile::locate(pid) {
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

    /// Reads what the JVM tells now or, when it is gone, told last.
    pub fn read(&mut self, at_ms: u64) -> Option<Mark> {
        let file = self.file.as_ref()?;
        let parsed = file.read().map_err(|e| e.to_string()).and_then(|bytes| hsperf::parse(&bytes).map_err(|e| e.to_string()));
        match parsed {
            Ok(mut facts) => {
                let mark = self.window.take(at_ms, &mut facts);
                self.last = Some(facts);
                mark
            }
            Err(why) => {
                self.absent = Some(why); // what was told before stands
                None
            }
        }
    }

    /// Whether it spends its time collecting a heap that is too small.
    pub fn is_starved(&self) -> bool {
        self.window.is_starved()
    }

    /// The last thing it told.
    pub fn facts(&self) -> Option<HeapFacts> {
        self.last
    }

    /// Why there is nothing; `None` when there is something.
    pub fn missing(&self) -> Option<String> {
        match (self.last, &self.absent) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(format!("heap: {why}")),
            (None, None) => Some("heap: it ended before its runtime was looked for".to_owned()),
        }
    }
}
