//! Golden samples of the messages for container access; see `golden.rs`.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::UnixMillis;
use headroom_wire::v1::reach;
use kept::golden;

#[test]
fn container_access_messages_match_the_golden_files() {
    let signal = "USR1".parse().expect("a signal");
    golden("signal_container", &reach::SignalContainer { signal, all: true, reason: Some("rotate".into()) });
    golden("signalled", &reach::SignalDelivered { signal, processes: 3 });
    golden(
        "file_row",
        &reach::ContainerFileEntry {
            path: "work/last".into(),
            kind: reach::FileEntryKind::Link,
            bytes: 6,
            modified: UnixMillis(1_790_000_000_000),
            target: Some("part-0".into()),
        },
    );
    let input = Some(reach::TextOrBytes::of(b"a b\n"));
    golden("exec_in", &reach::ExecContainer { command: vec!["ps".into(), "-e".into()], input, timeout_ms: Some(5000) });
    golden("exec_stdout", &reach::ExecLine::Stdout { data: reach::TextOrBytes::of(b"text\n") });
    golden("exec_stderr", &reach::ExecLine::Stderr { data: reach::TextOrBytes::of(b"\xff\x00") });
    golden("exec_ended", &reach::ExecLine::Ended { end: reach::ExecExitStatus::Exit { code: 3 } });
    golden("exec_not_found", &reach::ExecLine::Ended { end: reach::ExecExitStatus::NotFound { why: "No such file".into() } });
    golden("exec_timeout", &reach::ExecLine::Ended { end: reach::ExecExitStatus::Timeout });
}
