//! Job files with profiles of the cluster: compilation, submitted text, and errors of unknown
//! names.

use headroom_config::job::{ClusterProfiles, JobSpec, compile, compile_with, profiles};
use headroom_config::{FileProblem, FileProblemKind, render};
use headroom_types::{Bytes, Cpus, Profile};

/// Uses two profiles of the cluster, one of them as the base of its own profile.
const JOB: &str = r#"
version = 1
name = "etl"
[profiles.wide]
from = "small"
cpus = 4
[executors.main]
profile = "jvm-medium"
slots = 2
[[stage]]
name = "map"
profile = "wide"
command = ["true"]
"#;

fn size(heap_mib: u64, overhead_mib: u64, cpus: u32) -> Profile {
    Profile {
        heap: Bytes::from_mib(heap_mib),
        overhead: Bytes::from_mib(overhead_mib),
        cpus: Cpus::from_cores(cpus),
    }
}

fn cluster() -> ClusterProfiles {
    let known = [
        ("jvm-medium", size(4096, 512, 2)),
        ("small", size(512, 64, 1)),
        ("unused", size(1, 0, 1)),
    ];
    known
        .into_iter()
        .map(|(name, size)| (name.parse().expect("a name"), size))
        .collect()
}

fn right(found: Result<JobSpec, Vec<FileProblem>>) -> JobSpec {
    found.map_err(|p| render(&p)).expect("right")
}

#[test]
fn a_profile_of_the_cluster_can_be_used_by_name() {
    let job = right(compile_with(JOB, "job.toml", &cluster()));
    assert_eq!(job.executors[0].profile, size(4096, 512, 2));
    assert_eq!(
        job.stages[0].profile,
        size(512, 64, 4),
        "omitted values are taken from the base profile"
    );
}

#[test]
fn an_inlined_job_does_not_change_with_the_cluster() {
    let text = profiles::inline_cluster_profiles(JOB, &cluster());
    assert!(text.starts_with(JOB) && !text.contains("unused"), "{text}");
    assert_eq!(
        right(compile(&text, "job.toml")),
        right(compile_with(JOB, "job.toml", &cluster()))
    );
    let other: ClusterProfiles = cluster()
        .into_keys()
        .map(|name| (name, size(9999, 0, 9)))
        .collect();
    assert_eq!(
        right(compile_with(&text, "job.toml", &other)),
        right(compile(&text, "job.toml")),
        "the file takes precedence"
    );
    assert!(profiles::cluster_profile_names(&text).is_empty());
    assert_eq!(profiles::inline_cluster_profiles(&text, &other), text);
}

#[test]
fn a_profile_of_the_file_takes_precedence_over_the_cluster() {
    let text = JOB.replace(
        "[executors.main]",
        "[profiles.jvm-medium]\nmemory = \"1GiB\"\n[executors.main]",
    );
    assert_eq!(
        right(compile_with(&text, "job.toml", &cluster())).executors[0].profile,
        size(1024, 0, 1)
    );
    assert_eq!(
        profiles::cluster_profile_names(&text)
            .iter()
            .map(|n| n.as_str())
            .collect::<Vec<_>>(),
        ["small"]
    );
}

/// The single error of a text.
fn mistake(text: &str, cluster: &ClusterProfiles) -> FileProblem {
    let mut found = compile_with(text, "job.toml", cluster).expect_err("wrong");
    assert_eq!(found.len(), 1, "{}", render(&found));
    found.remove(0)
}

#[test]
fn an_unknown_profile_is_reported_with_the_closest_name() {
    let slip = mistake(&JOB.replace("\"jvm-medium\"", "\"jvm-medum\""), &cluster());
    assert_eq!(
        (slip.what.as_str(), slip.fix.as_str()),
        (
            "there is no profile \"jvm-medum\"",
            "did you mean \"jvm-medium\"?"
        )
    );
    assert_eq!(
        (slip.line, slip.key.as_str()),
        (Some(8), "executors.main.profile")
    );
    assert_eq!(
        slip.kind,
        FileProblemKind::UnknownProfile("jvm-medum".parse().expect("a name"))
    );
    let slip = mistake(&JOB.replace("\"small\"", "\"smal\""), &cluster());
    assert_eq!(
        (slip.key.as_str(), slip.fix.as_str()),
        ("profiles.wide.from", "did you mean \"small\"?")
    );
    let alone = JOB
        .replace("profile = \"wide\"\n", "")
        .replace("[profiles.wide]\nfrom = \"small\"\ncpus = 4\n", "");
    let fix = mistake(&alone, &ClusterProfiles::new()).fix;
    assert!(
        fix.contains("[profiles.jvm-medium]") && fix.contains("rmctl profile list"),
        "{fix}"
    );
}

#[test]
fn a_base_profile_must_be_complete() {
    let itself = mistake(
        &JOB.replace("from = \"small\"", "from = \"wide\""),
        &cluster(),
    );
    assert_eq!(itself.what, "there is no profile \"wide\"");
    let shadow = mistake(
        &JOB.replace(
            "[profiles.wide]\nfrom = \"small\"",
            "[profiles.small]\nfrom = \"small\"",
        )
        .replace("\"wide\"", "\"small\""),
        &cluster(),
    );
    assert_eq!(
        shadow.key, "profiles.small.from",
        "a profile of the file hides the profile of the cluster"
    );
    let smaller = JOB.replace("cpus = 4", "memory = \"256MiB\"");
    assert_eq!(
        right(compile_with(&smaller, "job.toml", &cluster())).stages[0].profile,
        size(256, 0, 1)
    );
}

#[test]
fn profiles_are_read_from_any_file_with_profiles() {
    let sizes = profiles::defined_profiles(JOB, "job.toml", &cluster())
        .map_err(|p| render(&p))
        .expect("right");
    assert_eq!(
        sizes
            .into_iter()
            .map(|(name, size)| (name.to_string(), size))
            .collect::<Vec<_>>(),
        [("wide".to_owned(), size(512, 64, 4))]
    );
    let none =
        profiles::defined_profiles("name = \"x\"\n", "x.toml", &cluster()).expect_err("has none");
    assert_eq!(none[0].what, "the file has no profiles");
    let single = profiles::parse_profile(
        "heap = \"1GiB\"\noverhead = { factor = 0.1, min = \"384MiB\" }\n",
        "p.toml",
    );
    assert_eq!(
        single.map_err(|p| render(&p)).expect("right"),
        size(1024, 384, 1)
    );
    assert!(profiles::parse_profile("heap = 1\nheep = 2\n", "p.toml").is_err());
}
