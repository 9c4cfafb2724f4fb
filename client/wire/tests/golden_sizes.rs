//! Golden samples of the messages about sizes: profiles of the cluster and suggestions.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::{Bytes, Cpus, UnixMillis};
use headroom_wire::v1::{profiles, suggestions};
use kept::golden;

#[test]
fn profile_messages_match_the_golden_files() {
    let (heap, overhead, cpus) = (
        Bytes::from_gib(4),
        Bytes::from_mib(512),
        Cpus::from_cores(2),
    );
    let (name, about) = (
        "jvm-medium".parse().expect("name"),
        "most JVM jobs".to_owned(),
    );
    golden(
        "profile_spec",
        &profiles::ProfileSpec {
            heap,
            overhead,
            cpus,
            about: about.clone(),
        },
    );
    let changed = UnixMillis(1_790_000_000_000);
    golden(
        "cluster_profile",
        &profiles::ClusterProfile {
            name,
            heap,
            overhead,
            cpus,
            about,
            revision: 3,
            changed,
        },
    );
}

#[test]
fn suggestion_messages_match_the_golden_files() {
    let one = suggestions::Suggestion {
        user: "ann".into(),
        job: "word-count".parse().expect("name"),
        kind: "map".into(),
        tasks: 20,
        asked: Bytes::from_gib(2),
        p50: Bytes::from_mib(300),
        p95: Bytes::from_mib(390),
        max: Bytes::from_mib(900),
        kills: 1,
        suggested: Some(Bytes::from_mib(416)),
        then: Some(Bytes::from_mib(928)),
        stated: Some(Bytes::from_mib(416)),
        would_fail: 1,
        needed_gib_h: 0.5,
        allocated_gib_h: 3.0,
        would_allocate_gib_h: 0.75,
        one_size_gib_h: 1.5,
        why: "holds 19 of 20 tasks; the others are tried again at 928 MiB".into(),
    };
    golden("suggestion", &one);
}
