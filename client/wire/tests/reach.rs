//! Golden samples of the messages for container access; see `golden.rs`.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::UnixMillis;
use headroom_wire::v1::container_access;
use kept::golden;

#[test]
fn container_access_messages_match_the_golden_files() {
    let signal = "USR1".parse().expect("a signal");
    golden(
        "signal_container",
        &container_access::SignalContainer {
            signal,
            all: true,
            reason: Some("rotate".into()),
        },
    );
    golden(
        "signalled",
        &container_access::SignalDelivered {
            signal,
            processes: 3,
        },
    );
    golden(
        "file_row",
        &container_access::ContainerFileEntry {
            path: "work/last".into(),
            kind: container_access::FileEntryKind::Link,
            bytes: 6,
            modified: UnixMillis(1_790_000_000_000),
            target: Some("part-0".into()),
        },
    );
    let input = Some(container_access::TextOrBytes::of(b"a b\n"));
    golden(
        "exec_in",
        &container_access::ExecContainer {
            command: vec!["ps".into(), "-e".into()],
            input,
            timeout_ms: Some(5000),
        },
    );
    golden(
        "exec_stdout",
        &container_access::ExecOutputLine::Stdout {
            data: container_access::TextOrBytes::of(b"text\n"),
        },
    );
    golden(
        "exec_stderr",
        &container_access::ExecOutputLine::Stderr {
            data: container_access::TextOrBytes::of(b"\xff\x00"),
        },
    );
    golden(
        "exec_ended",
        &container_access::ExecOutputLine::Ended {
            end: container_access::ExecExitStatus::Exit { code: 3 },
        },
    );
    golden(
        "exec_not_found",
        &container_access::ExecOutputLine::Ended {
            end: container_access::ExecExitStatus::NotFound {
                why: "No such file".into(),
            },
        },
    );
    golden(
        "exec_timeout",
        &container_access::ExecOutputLine::Ended {
            end: container_access::ExecExitStatus::Timeout,
        },
    );
}
