//! Job files with one mistake: each is found once, and names its key.

use headroom_config::{FileProblem, job, render};

const WHOLE: &str = include_str!("golden/whole.toml");

/// The errors of the complete file after one edit.
fn mistakes(from: &str, to: &str) -> Vec<FileProblem> {
    assert!(WHOLE.contains(from), "{from}");
    job::compile(&WHOLE.replace(from, to), "f").expect_err(to)
}

/// Checks that the edit `from` → `to` of the complete file is an error with the key.
fn each_names_its_key(cases: &[(&str, &str, &str)]) {
    for (from, to, key) in cases {
        let problems = mistakes(from, to);
        assert!(
            problems.iter().any(|p| p.key == *key),
            "{to}: {}",
            render(&problems)
        );
    }
}

#[test]
fn each_mistake_about_the_job_is_found_and_names_its_key() {
    each_names_its_key(&[
        ("version = 1", "version = 2", "version"),
        ("version = 1\n", "", "version"),
        ("name = \"group-by\"\n", "", "name"),
        ("priority = 5", "priority = 1.5", "priority"),
        ("queue = \"default\"", "queue = \"a b\"", "queue"),
        ("cap = \"4GiB\"", "cap = \"4 lots\"", "retry.cap"),
        ("max_attempts = 5", "max_atempts = 5", "retry.max_atempts"),
    ]);
}

#[test]
fn each_mistake_about_executors_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "heap = \"256MiB\"",
            "memory = \"256MiB\"",
            "profiles.exec.memory",
        ),
        ("heap = \"256MiB\"", "heap = 0", "profiles.exec.heap"),
        ("factor = 0.10", "factor = -1", "profiles.jvm-task.overhead"),
        ("cpus = 4", "cpus = \"many\"", "profiles.exec.cpus"),
        (
            "reserve = \"32MiB\"",
            "reserve = \"1GiB\"",
            "executors.main.reserve",
        ),
        (
            "slots = 4",
            "slots = 4\nprogram = []",
            "executors.main.program",
        ),
        (
            "slots = 4",
            "slots = 4\nprogram = [\"\"]",
            "executors.main.program",
        ),
        (
            "slots = 4",
            "slots = 4\nprogram = \"python3 executor.py\"",
            "executors.main.program",
        ),
        (
            "slots = 4",
            "slots = 4\nprogram = [\"a\\u0000b\"]",
            "executors.main.program",
        ),
        (
            "slots = 4",
            "slots = 4\ntask_groups = true",
            "executors.main.task_groups",
        ),
        (
            "slots = 4",
            "slots = 4\nprogram = [\"a\"]\ntask_groups = 1",
            "executors.main.task_groups",
        ),
    ]);
}

#[test]
fn each_mistake_about_stages_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "array = \"0-19\"",
            "array = \"0-19\"\ncount = 20",
            "stage.group.count",
        ),
        ("array = \"0-19\"", "count = 0", "stage.group.count"),
        (
            "array = \"0-19\"",
            "array = \"0-999999\"",
            "stage.group.array",
        ),
        (
            "executors = \"main\"",
            "executors = \"mian\"",
            "stage.group.executors",
        ),
        (
            "cpus_per_task = 2",
            "cpus_per_task = 5",
            "stage.group.cpus_per_task",
        ),
        (
            "timeout = \"30m\"",
            "timeout = \"30\"",
            "stage.group.timeout",
        ),
        ("profile = \"jvm-task\"\n", "", "stage.reduce.profile"),
        ("after = [\"group\"]", "after = [\"reduce\"]", "stage.after"),
        ("name = \"reduce\"", "name = \"group\"", "stage.name"),
        (
            "command = [\"java\"]",
            "command = []",
            "stage.reduce.command",
        ),
    ]);
}

#[test]
fn each_mistake_about_growth_and_outputs_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "timeout = \"30m\"",
            "timeout = \"30m\"\ngrow = true",
            "stage.group.grow",
        ),
        (
            "timeout = \"30m\"",
            "grow_hold = \"5s\"",
            "stage.group.grow_hold",
        ),
        (
            "timeout = \"30m\"",
            "grow = true\ngrow_hold = \"10m\"",
            "stage.group.grow_hold",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = false",
            "stage.group.idempotent",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = \"maybe\"",
            "stage.group.idempotent",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = \"fenced\"",
            "stage.group.output",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = \"fenced\"\noutput = \"out\"",
            "stage.group.output",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = \"fenced\"\noutput = \"/data/../out\"",
            "stage.group.output",
        ),
        (
            "idempotent = \"no\"",
            "idempotent = \"no\"\noutput = \"/out\"",
            "stage.group.output",
        ),
        ("--part={index}", "--out={output}", "stage.group.output"),
        ("-Xmx{heap}", "{output}", "stage.group.output"),
        ("OPTS", "HEADROOM_TASK", "stage.group.env"),
    ]);
}

#[test]
fn each_mistake_about_files_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "timeout = \"30m\"",
            "files = \"a.jar\"",
            "stage.group.files",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\" }]",
            "stage.group.files[0].from",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ from = \"/a\" }]",
            "stage.group.files[0].name",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"a\" }]",
            "stage.group.files[0].from",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"../a\", from = \"/a\" }]",
            "stage.group.files[0].from",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"https://x/a\" }]",
            "stage.group.files[0].from",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"/a\", sha256 = \"12\" }]",
            "stage.group.files[0].sha256",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"/a\", kind = \"zip\" }]",
            "stage.group.files[0].kind",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"/a\", unpack = true }]",
            "stage.group.files[0].unpack",
        ),
        (
            "timeout = \"30m\"",
            "files = [{ name = \"a\", from = \"/a\" }, { name = \"a\", from = \"/b\" }]",
            "stage.group.files[1].name",
        ),
    ]);
}

#[test]
fn each_mistake_about_placement_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "labels = [\"ssd\"]",
            "labels = [\"a b\"]",
            "executors.main.labels",
        ),
        (
            "labels = [\"ssd\"]",
            "labels = \"ssd\"",
            "executors.main.labels",
        ),
        (
            "kernel = \"6.1\"",
            "kernel = 6",
            "executors.main.attributes",
        ),
        (
            "kernel = \"6.1\"",
            "kernel = []",
            "executors.main.attributes",
        ),
        ("\"spot\", ", "\"team\", ", "executors.main.tolerate"),
        ("\"spot\", ", "\"=x\", ", "executors.main.tolerate"),
    ]);
}

#[test]
fn each_mistake_about_sharing_is_found_and_names_its_key() {
    each_names_its_key(&[
        (
            "view = [\"bob\", \"@etl\"]",
            "view = \"bob\"",
            "access.view",
        ),
        (
            "view = [\"bob\", \"@etl\"]",
            "view = [\"no body\"]",
            "access.view",
        ),
        (
            "view = [\"bob\", \"@etl\"]",
            "change = [\"@\"]",
            "access.change",
        ),
        (
            "view = [\"bob\", \"@etl\"]",
            "see = [\"bob\"]",
            "access.see",
        ),
    ]);
}

#[test]
fn each_mistake_about_learned_sizes_is_found_and_names_its_key() {
    each_names_its_key(&[
        ("transient = 2", "breaker = 0", "retry.breaker"),
        ("transient = 2", "breaker = \"half\"", "retry.breaker"),
        ("transient = 2", "budget_gib_h = 0", "retry.budget_gib_h"),
        (
            "transient = 2",
            "budget_gib_h = \"2GiB\"",
            "retry.budget_gib_h",
        ),
        ("priority = 5", "sizes = \"clever\"", "sizes"),
        ("priority = 5", "sizes = \"learned\"", "sizes"),
        ("timeout = \"30m\"", "kind = \"a b\"", "stage.group.kind"),
        (
            "timeout = \"30m\"",
            "input = \"part-{attempt}.csv\"",
            "stage.group.input",
        ),
        ("timeout = \"30m\"", "input = \"\"", "stage.group.input"),
        ("timeout = \"30m\"", "input = 7", "stage.group.input"),
        (
            "timeout = \"30m\"",
            "input = [\"1MiB\", \"2 lots\"]",
            "stage.group.input",
        ),
        (
            "timeout = \"30m\"",
            "input = [\"1MiB\", \"2MiB\"]",
            "stage.group.input",
        ),
        (
            "timeout = \"30m\"",
            "input_locality = \"near\"",
            "stage.group.input_locality",
        ),
        (
            "timeout = \"30m\"",
            "input_locality = \"local\"",
            "stage.group.input_locality",
        ),
        (
            "timeout = \"30m\"",
            "input_locality = \"remote\"\ninput_hosts = [\"a\"]",
            "stage.group.input_hosts",
        ),
        (
            "timeout = \"30m\"",
            "input_hosts = [\"a-{attempt}\"]",
            "stage.group.input_hosts",
        ),
        (
            "timeout = \"30m\"",
            "input_hosts = [\"a b\"]",
            "stage.group.input_hosts",
        ),
        (
            "timeout = \"30m\"",
            "input_hosts = [[\"a\"]]",
            "stage.group.input_hosts",
        ),
    ]);
}

#[test]
fn one_mistake_is_reported_once() {
    for (from, to) in [
        ("heap = \"256MiB\"", "heap = true"),
        ("profile = \"exec\"", "profile = \"exek\""),
        ("slots = 4", "slots = 1"),
    ] {
        let problems = mistakes(from, to);
        assert_eq!(problems.len(), 1, "{}", render(&problems));
    }
}

#[test]
fn a_syntax_error_is_reported_with_its_position() {
    let problems =
        job::compile("version = 1\nname = \n[executors.main\n", "f").expect_err("broken");
    assert!(
        problems
            .iter()
            .any(|p| p.line == Some(2) && p.what.starts_with("not TOML")),
        "{}",
        render(&problems)
    );
    assert!(
        problems.iter().any(|p| p.line == Some(3)),
        "{}",
        render(&problems)
    );
    assert!(!job::compile("", "f").expect_err("empty").is_empty());
}
