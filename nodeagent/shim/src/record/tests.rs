//! Every record survives encoding and decoding, and no torn record is accepted.

use super::*;

fn full_spec() -> ProgramSpec {
    ProgramSpec {
        argv: vec![
            "/bin/sh".into(),
            "-c".into(),
            "printf 'a\\n'\n\techo b \\ c".into(),
            "".into(),
            OsString::from_vec(vec![0xff, b'x']),
        ],
        env: vec![("A".into(), "1=2\t3".into()), ("EMPTY".into(), "".into())],
        cwd: "/work dir/with space".into(),
        stdin: "/tmp/in".into(),
        stdout: "/tmp/out".into(),
        stderr: "/tmp/err".into(),
        procs_files: vec!["/sys/fs/cgroup/memory/x/main/cgroup.procs".into()],
        counters: vec!["/sys/fs/cgroup/memory/x/memory.failcnt".into()],
        oom_score_adj: Some(-5),
        rlimits: vec![RlimitRecord {
            resource: 7,
            soft: 1024,
            hard: u64::MAX,
        }],
        user: Some(ProgramUser {
            uid: 1000,
            gid: 100,
            groups: vec![4, 27],
        }),
        umask: Some(0o27),
        privileges: Privileges::Drop,
        private_tmp: Some("/s/c/tmp".into()),
        tmp_size: Some(1 << 20),
        shm_size: Some(2 << 20),
        user_namespace: UserNamespace::Delegated,
        visible: vec!["/tmp/s/c".into(), "/tmp/s/a\n".into()],
    }
}

#[test]
fn a_spec_survives_its_file() {
    let spec = full_spec();
    assert_eq!(ProgramSpec::decode(&spec.encode()), Ok(spec));
    let small = ProgramSpec {
        argv: vec!["x".into()],
        cwd: "/".into(),
        ..ProgramSpec::default()
    };
    assert_eq!(ProgramSpec::decode(&small.encode()), Ok(small));
}

#[test]
fn an_exit_record_survives_its_file() {
    let ends = [
        ProgramEnd::Code(137),
        ProgramEnd::Signal {
            signal: 9,
            core: true,
        },
        ProgramEnd::Failed {
            step: LaunchStep::Exec,
            errno: 2,
            what: "/no/such prog".into(),
        },
    ];
    for how in ends {
        let record = ExitRecord {
            how,
            started_ms: Some(17),
            ended_ms: 18,
            max_rss: 4096,
            user_us: 5,
            system_us: 6,
            counters: vec![
                ("/a/memory.events".into(), Some("low 0\noom 1\n".into())),
                ("/a/memory.peak".into(), None),
            ],
        };
        assert_eq!(ExitRecord::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn a_truncated_specification_is_refused() {
    let whole = full_spec().encode();
    for length in 0..whole.len() {
        assert!(
            ProgramSpec::decode(&whole[..length]).is_err(),
            "cut at {length}"
        );
    }
}

#[test]
fn unknown_and_incomplete_files_are_refused() {
    assert!(matches!(
        ProgramSpec::decode(b"headroom-spec 2\nend\n"),
        Err(RecordError::Version(_))
    ));
    assert_eq!(
        ProgramSpec::decode(b"headroom-spec 1\nend\n"),
        Err(RecordError::Missing("arg"))
    );
    assert!(matches!(
        ProgramSpec::decode(b"headroom-spec 1\ncolour red\nend\n"),
        Err(RecordError::Line(_))
    ));
    assert_eq!(
        ExitRecord::decode(b"headroom-exit 1\ncode 1\nend\n"),
        Err(RecordError::Missing("ended-ms"))
    );
    assert!(matches!(
        ExitRecord::decode(b"headroom-exit 1\ncode one\nend\n"),
        Err(RecordError::Line(_))
    ));
}

/// A record describes the past, so unknown lines are ignored. A specification gives orders, so no
/// line of it may be ignored.
#[test]
fn an_unknown_line_is_skipped_in_a_record_and_refused_in_a_specification() {
    let later = b"headroom-exit 1\ncode 4\ncolour red\nended-ms 9\nend\n";
    let record = ExitRecord::decode(later).expect("reads");
    assert_eq!((record.how, record.ended_ms), (ProgramEnd::Code(4), 9));
    let later = b"headroom-spec 1\narg x\ncwd /\nconfine yes\nend\n";
    assert!(matches!(
        ProgramSpec::decode(later),
        Err(RecordError::Line(_))
    ));
}

/// Records in the format of the first release. Its shims may still run when a later agent reads
/// their records.
#[test]
fn records_of_the_first_release_are_read() {
    let record = b"headroom-exit 1\nsignal 9 0\nstarted-ms 5\nended-ms 7\nmax-rss 4096\nuser-us 1\nsystem-us 2\n\
        counter /a/memory.events\toom 1\\n\nunread /a/memory.peak\nend\n";
    let record = ExitRecord::decode(record).expect("reads");
    assert_eq!(
        (record.how, record.started_ms),
        (
            ProgramEnd::Signal {
                signal: 9,
                core: false
            },
            Some(5)
        )
    );
    assert_eq!(
        record.counters.first(),
        Some(&("/a/memory.events".into(), Some("oom 1\n".to_owned())))
    );
    assert_eq!(
        ExitRecord::decode(b"headroom-exit 1\ncode 0\nended-ms 7\nend\n")
            .expect("reads")
            .max_rss,
        0
    );
    assert_eq!(
        ProcessIdentity::decode("42 123\n"),
        Some(ProcessIdentity {
            pid: 42,
            starttime: 123
        })
    );
    assert_eq!(
        StartResult::decode("started 42\n"),
        Some(StartResult::Started { pid: 42 })
    );
}

#[test]
fn answers_and_identities_round_trip() {
    for answer in [
        StartResult::Started { pid: 7 },
        StartResult::Failed {
            step: LaunchStep::Chdir,
            errno: 13,
        },
    ] {
        assert_eq!(StartResult::decode(&answer.encode()), Some(answer));
    }
    assert_eq!(
        StartResult::decode("started 7"),
        None,
        "a line without a newline is incomplete"
    );
    assert_eq!(StartResult::decode("hello\n"), None);
    let id = ProcessIdentity {
        pid: 42,
        starttime: 123_456,
    };
    assert_eq!(ProcessIdentity::decode(&id.encode()), Some(id));
    assert_eq!(ProcessIdentity::decode("42 1234"), None);
}
