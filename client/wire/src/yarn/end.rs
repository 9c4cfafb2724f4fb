//! The end of a container as a YARN exit status and diagnostics text.

use headroom_types::{Bytes, ExitReason};

/// Exit status of a container that has not ended.
pub const NOT_ENDED_STATUS: i32 = -1000;
/// Exit status of a container that was killed for its memory.
pub const MEMORY_KILL_STATUS: i32 = -104;

/// The end of a container.
#[derive(Clone, Copy, Debug)]
pub struct YarnContainerEnd {
    /// The verdict.
    pub reason: ExitReason,
    /// Exit code of a program that exited by itself.
    pub exit_code: Option<i32>,
    /// Memory limit. Bytes.
    pub limit: Bytes,
    /// Largest memory use. Bytes.
    pub peak: Option<Bytes>,
}

impl YarnContainerEnd {
    /// The YARN exit status.
    pub fn status(&self) -> i32 {
        self.reason.yarn_status(self.exit_code)
    }

    /// The diagnostics text. Clients search it for `… of … physical memory used` and for `exit code
    /// N`.
    pub fn diagnostics(&self, container: &str) -> String {
        let sentence = self.reason.sentence();
        match self.status() {
            0 => String::new(),
            MEMORY_KILL_STATUS => {
                // The charged memory can be below the limit by the size of the allocation that
                // failed.
                let used = self.peak.unwrap_or(self.limit).max(self.limit);
                let (used, limit) = (format_size(used), format_size(self.limit));
                format!(
                    "Container {container} was killed: {sentence}. Current usage: {used} of {limit} physical memory used."
                )
            }
            status if status > 0 => {
                format!("Container exited with a non-zero exit code {status}: {sentence}.")
            }
            _ => format!("Container {container}: {sentence}."),
        }
    }
}

/// Formats a size with one decimal and a binary unit, as clients expect it: `[0-9.]+ [KMG]B`.
fn format_size(bytes: Bytes) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let n = bytes.get();
    let (unit, name) = UNITS
        .into_iter()
        .find(|(unit, _)| n >= *unit)
        .unwrap_or((1 << 10, "KB"));
    let tenths = u128::from(n) * 10 / u128::from(unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(reason: ExitReason, exit_code: Option<i32>) -> YarnContainerEnd {
        YarnContainerEnd {
            reason,
            exit_code,
            limit: Bytes::from_mib(64),
            peak: Some(Bytes::from_mib(63)),
        }
    }

    #[test]
    fn a_memory_kill_has_the_message_that_yarn_clients_search() {
        let text = end(ExitReason::OverheadOom, None).diagnostics("c");
        assert!(
            text.ends_with("64.0 MB of 64.0 MB physical memory used."),
            "{text}"
        );
        let over = YarnContainerEnd {
            peak: Some(Bytes::from_mib(1536)),
            ..end(ExitReason::StalledAtLimit, None)
        };
        assert!(
            over.diagnostics("c")
                .contains(" 1.5 GB of 64.0 MB physical memory used")
        );
    }

    #[test]
    fn other_ends_do_not_have_the_memory_kill_message() {
        for reason in [
            ExitReason::Exit { code: 3 },
            ExitReason::Signal { signal: 9 },
            ExitReason::Stopped,
            ExitReason::NodeOom,
        ] {
            assert!(
                !end(reason, None)
                    .diagnostics("c")
                    .contains("physical memory used"),
                "{reason}"
            );
        }
        let heap = end(ExitReason::HeapOom, Some(3));
        assert!(
            heap.status() == 3 && heap.diagnostics("c").contains("exit code 3"),
            "a full heap keeps the program's code"
        );
        assert_eq!(
            end(ExitReason::Exit { code: 0 }, Some(0)).diagnostics("c"),
            ""
        );
    }

    #[test]
    fn sizes_have_the_units_of_yarn() {
        assert_eq!(format_size(Bytes::new(0)), "0.0 KB");
        assert_eq!(format_size(Bytes::new(u64::MAX)), "17179869183.9 GB");
    }
}
