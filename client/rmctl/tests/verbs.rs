//! The program as a process with a fake resource manager: output and exit codes.

#![allow(missing_docs)] // tests are read, not imported

mod fake_manager;

use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use fake_manager::{
    EVENT, Fake, JOB, NODES, Ran, STATUS, all_failed, job_file, rmctl, unused, usual,
};

#[test]
fn data_goes_to_stdout_and_messages_to_stderr() {
    let fake = Fake::new(usual);
    for verb in [
        &["status"][..],
        &["ps"],
        &["ps", "last"],
        &["node", "list"],
        &["why", "word"],
        &["events"],
        &["version"],
    ] {
        let ran = fake.rmctl(verb);
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (0, ""),
            "{verb:?}: {}",
            ran.out
        );
        assert!(
            !ran.out.is_empty() && !ran.out.contains('\u{1b}'),
            "{verb:?}: {}",
            ran.out
        );
    }
}

#[test]
fn json_output_is_the_response_of_the_api() {
    let fake = Fake::new(usual);
    let json = |text: &str| {
        serde_json::from_str::<serde_json::Value>(text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    assert_eq!(
        json(&fake.rmctl(&["status", "-o", "json"]).out),
        json(STATUS)
    );
    assert_eq!(
        json(&fake.rmctl(&["node", "list", "-o", "json"]).out),
        json(NODES)
    );
    assert_eq!(
        json(&fake.rmctl(&["ps", "last", "-o", "json"]).out)["id"],
        "word-count.7"
    );
    assert_eq!(fake.rmctl(&["ps", "-o", "name"]).out, "word-count.7\n");
    assert_eq!(
        fake.rmctl(&["ps", "last", "-o", "jsonl"])
            .out
            .lines()
            .count(),
        1
    );
    assert_eq!(
        json(&fake.rmctl(&["events", "-o", "json"]).out)[0],
        json(EVENT)
    );
}

#[test]
fn missing_objects_exit_with_three() {
    let fake = Fake::new(usual);
    for (arguments, named) in [
        (&["ps", "sort.1"][..], "sort.1"),
        (&["why", "word-count.7/map/99"], "map/99"),
        (&["diagnose", "word-count.7/map/7@9"], "map/7@9"),
        (&["logs", "word-count.7/map/7@2", "--stderr"], "map-7-2.err"),
    ] {
        let ran = fake.rmctl(arguments);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (3, ""),
            "{arguments:?}: {}",
            ran.err
        );
        assert!(
            ran.err.starts_with("error") && ran.err.contains(named) && ran.err.contains("\nhelp: "),
            "{}",
            ran.err
        );
    }
}

#[test]
fn invalid_arguments_exit_with_two() {
    let fake = Fake::new(usual);
    for arguments in [
        &["ps", "a/b/c/d"][..],
        &["nonsense"],
        &["ps", "-o", "xml"],
        &["submit", "/nonexistent.toml"],
        &["wait"],
    ] {
        let ran = fake.rmctl(arguments);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            ran.err
        );
        assert!(!ran.err.is_empty());
    }
    assert_eq!(rmctl(&["--addr", "not a url", "ps"]).code, 2);
    assert_eq!(rmctl(&["--help"]).code, 0);
}

#[test]
fn an_unreachable_manager_exits_with_six_and_a_hint() {
    let address = unused();
    let ran = rmctl(&["--addr", &address, "status"]);
    assert_eq!(ran.code, 6);
    assert!(
        ran.err.contains(&address) && ran.err.contains("rmctl dev"),
        "{}",
        ran.err
    );
}

#[test]
fn a_job_is_submitted_or_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let fake = Fake::new(usual);
    let good = job_file(dir.path(), JOB);
    let ran = fake.rmctl(&["submit", &good]);
    assert!(
        ran.code == 0 && ran.out.contains("demo.8 accepted") && ran.out.contains("plan  "),
        "{}{}",
        ran.out,
        ran.err
    );
    assert_eq!(fake.rmctl(&["submit", &good, "-o", "name"]).out, "demo.8\n");
    let large = job_file(dir.path(), &JOB.replace("256MiB", "64GiB"));
    let ran = fake.rmctl(&["submit", &large]);
    assert!(
        ran.code == 7 && ran.err.contains("worker-01"),
        "{}: {}",
        ran.code,
        ran.err
    );
    let wrong = job_file(
        dir.path(),
        &JOB.replace("slots = 2", "slots = 0")
            .replace("256MiB", "much"),
    );
    let ran = fake.rmctl(&["submit", &wrong]);
    assert!(
        ran.code == 2 && ran.err.contains("slots") && ran.err.contains("much"),
        "{}: {}",
        ran.code,
        ran.err
    );
}

#[test]
fn a_job_file_names_profiles_of_the_cluster() {
    let dir = tempfile::tempdir().expect("directory");
    let fake = Fake::new(usual);
    let named = JOB
        .replace("[profiles.exec]\nheap = \"256MiB\"\ncpus = 1\n", "")
        .replace("\"exec\"", "\"jvm-medium\"");
    let ran = fake.rmctl(&["job", "validate", &job_file(dir.path(), &named)]);
    assert!(
        ran.code == 0 && ran.out.contains("profile jvm-medium: 4.5"),
        "{}{}",
        ran.out,
        ran.err
    );
    let ran = fake.rmctl(&["job", "plan", &job_file(dir.path(), &named)]);
    assert!(
        ran.code == 7 && ran.err.contains("4.5"),
        "the node has one GiB: {}{}",
        ran.out,
        ran.err
    );
    let slip = job_file(dir.path(), &named.replace("jvm-medium", "jvm-medum"));
    let ran = fake.rmctl(&["submit", &slip]);
    assert!(
        ran.code == 2 && ran.err.contains("did you mean \"jvm-medium\"?"),
        "{}: {}",
        ran.code,
        ran.err
    );
    let unreachable = rmctl(&["--addr", "http://127.0.0.1:1", "job", "validate", &slip]);
    assert!(
        unreachable.code == 6
            && unreachable
                .err
                .contains("names jvm-medum, which only the cluster"),
        "{}: {}",
        unreachable.code,
        unreachable.err
    );
    let wrong = job_file(dir.path(), &named.replace("slots = 2", "slots = 0"));
    let invalid = rmctl(&["--addr", "http://127.0.0.1:1", "job", "validate", &wrong]);
    assert!(
        invalid.code == 2 && invalid.err.contains("slots") && invalid.err.contains("1 mistake"),
        "{}: {}",
        invalid.code,
        invalid.err
    );
    let whole = rmctl(&[
        "--addr",
        "http://127.0.0.1:1",
        "job",
        "validate",
        &job_file(dir.path(), JOB),
    ]);
    assert_eq!(
        whole.code, 0,
        "a file without cluster profiles needs no call: {}",
        whole.err
    );
}

/// Calls about profiles that succeed, and a text that each prints.
const PROFILE_CALLS: [(&[&str], &str); 9] = [
    (&["profile", "suggest"], "word-count/map"),
    (
        &["profile", "suggest", "word-count"],
        "holds 19 of 20 tasks",
    ),
    (&["profile", "suggest", "jvm-medium", "-o", "name"], ""),
    (&["profile", "list"], "jvm-medium"),
    (
        &["profile", "list", "--filter", "memory > 4GiB", "-o", "name"],
        "jvm-medium",
    ),
    (&["profile", "show", "jvm-medium"], "heap 4"),
    (
        &[
            "profile",
            "set",
            "jvm-medium",
            "--heap",
            "4GiB",
            "--overhead",
            "512MiB",
        ],
        "revision 3",
    ),
    (
        &[
            "profile",
            "set",
            "jvm-medium",
            "--memory",
            "1GiB",
            "--dry-run",
        ],
        "would be",
    ),
    (&["profile", "unset", "jvm-medium"], "is removed"),
];

#[test]
fn profiles_are_listed_set_and_imported() {
    let dir = tempfile::tempdir().expect("directory");
    let fake = Fake::new(usual);
    let file = job_file(
        dir.path(),
        &JOB.replace("[profiles.exec]", "[profiles.jvm-medium]"),
    );
    let import = ["profile", "import", &file, "--dry-run"];
    for (verb, word) in PROFILE_CALLS
        .into_iter()
        .chain([(&import[..], "unchanged")])
    {
        let ran = fake.rmctl(verb);
        assert!(
            ran.code == 0 && ran.out.contains(word),
            "{verb:?}: {}{}",
            ran.out,
            ran.err
        );
    }
    assert_eq!(fake.rmctl(&["profile", "show", "other"]).code, 3);
    let slip = fake.rmctl(&["profile", "suggest", "word-cout"]);
    assert!(
        slip.code == 3 && slip.err.contains("did you mean \"word-count\"?"),
        "{}: {}",
        slip.code,
        slip.err
    );
    let slip = fake.rmctl(&["profile", "suggest", "jvm-medum"]);
    assert!(
        slip.code == 3 && slip.err.contains("did you mean \"jvm-medium\"?"),
        "{}: {}",
        slip.code,
        slip.err
    );
    assert_eq!(
        fake.rmctl(&["profile", "set", "jvm-medium"]).code,
        2,
        "neither a file nor a size"
    );
    assert_eq!(
        fake.rmctl(&[
            "profile",
            "set",
            "x",
            "--memory",
            "1GiB",
            "--overhead",
            "1MiB"
        ])
        .code,
        2
    );
}

#[test]
fn kill_lists_the_containers_that_end() {
    let fake = Fake::new(usual);
    let dry = fake.rmctl(&["kill", "word-count.7", "--dry-run"]);
    assert!(
        dry.code == 0 && dry.out.contains("would end: 3 containers"),
        "{}",
        dry.out
    );
    let real = fake.rmctl(&["kill", "last"]);
    assert!(
        real.code == 0 && real.out.contains("✗ failed"),
        "{}{}",
        real.out,
        real.err
    );
    let again = Fake::new(all_failed).rmctl(&["kill", "last"]);
    assert_eq!(again.code, 4, "{}", again.err);
}

#[test]
fn wait_returns_the_result_of_the_job_as_its_exit_code() {
    let exhausted = Fake::new(all_failed).rmctl(&["wait", "last"]);
    assert_eq!(exhausted.code, 9, "{}{}", exhausted.out, exhausted.err);
    let late = Fake::new(usual).rmctl(&["wait", "last", "--timeout", "1s"]);
    assert_eq!(late.code, 8, "{}{}", late.out, late.err);
}

#[test]
fn wait_gives_a_restarting_manager_time() {
    let ran = rmctl(&["--addr", &unused(), "wait", "last", "--timeout", "1s"]);
    assert_eq!(ran.code, 6, "{}{}", ran.out, ran.err);
    let reports = ran.err.matches("waiting for it, at most 1s").count();
    assert_eq!(reports, 1, "{}", ran.err);
}

#[test]
fn wait_gives_up_at_its_timeout_if_the_manager_accepts_connections_and_answers_none() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let ran = rmctl(&["--addr", &address, "wait", "last", "--timeout", "1s"]);
    assert_eq!(ran.code, 6, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("no answer within 1s"), "{}", ran.err);
}

#[test]
fn a_sample_names_the_invalid_line() {
    let dir = tempfile::tempdir().expect("directory");
    let (input, output) = (dir.path().join("in.csv"), dir.path().join("out.csv"));
    std::fs::write(&input, "key,value\na,1\nb,none\n").expect("writes");
    let arguments = [
        "sample",
        "group-by",
        "--input",
        &input.display().to_string(),
        "--output",
        &output.display().to_string(),
    ];
    let ran = rmctl(&arguments);
    assert!(
        ran.code == 1 && ran.err.contains("in.csv:3:") && !output.exists(),
        "{}",
        ran.err
    );
    std::fs::write(&input, "key,value\na,1\nb,2\na,3\n").expect("writes");
    let ran = rmctl(&arguments);
    assert!(
        ran.code == 0 && ran.out.contains("\"rows\":3,\"keys\":2"),
        "{}",
        ran.out
    );
    assert_eq!(
        std::fs::read_to_string(&output).expect("reads"),
        "key,count,sum,median\na,2,4,2\nb,1,2,2\n"
    );
}

#[test]
fn every_format_has_its_form() {
    let fake = Fake::new(usual);
    let out = |arguments: &[&str]| {
        let ran = fake.rmctl(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
        ran.out
    };
    assert!(out(&["node", "list", "-o", "yaml"]).starts_with("- allocated:\n    cpus: 1"));
    assert!(
        out(&["node", "list", "-o", "csv"])
            .lines()
            .next()
            .is_some_and(|head| head.contains("offers.memory"))
    );
    assert_eq!(
        out(&["node", "list", "-o", "cols=node,free", "--no-headers"]),
        "worker-01  536870912\n"
    );
    assert_eq!(
        out(&["node", "list", "-o", "tmpl={{.id}} {{size|size}}"]),
        "worker-01 1G\n"
    );
    assert_eq!(out(&["node", "list", "-q"]), "worker-01\n");
    assert_eq!(
        out(&["node", "list", "--filter", "free > 1GiB", "-o", "name"]),
        ""
    );
    let table = out(&["node", "list", "--no-headers"]);
    assert!(
        table.starts_with("worker-01") && !table.contains("next:"),
        "{table}"
    );
}

#[test]
fn an_invalid_condition_is_a_usage_error() {
    let fake = Fake::new(usual);
    let wrong = fake.rmctl(&["node", "list", "--filter", "state =="]);
    assert!(
        wrong.code == 2 && wrong.err.contains("a value is missing"),
        "{}",
        wrong.err
    );
    let unknown = fake.rmctl(&["node", "list", "--sort-by", "memry"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("no row has a field"),
        "{}",
        unknown.err
    );
}

#[test]
fn curl_mode_prints_requests_and_sends_no_changes() {
    let fake = Fake::new(|method, path| {
        assert_eq!(method, "GET", "{path} was sent");
        usual(method, path)
    });
    let ran = fake.rmctl(&["kill", "word-count.7", "--reason", "it's late", "--curl"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.out);
    assert!(
        lines[0].ends_with("/v1/apps/word-count.7?tasks=none'"),
        "{}",
        ran.out
    );
    assert!(
        lines[1].contains("-X POST") && lines[1].contains(r#"{"reason":"it'\''s late"}"#),
        "{}",
        ran.out
    );
}

#[test]
fn contexts_are_created_and_used() {
    let fake = Fake::new(usual);
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("config.toml");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
        let output = command
            .args(arguments)
            .env_clear()
            .env("HEADROOM_CONFIG", &file)
            .output()
            .expect("runs");
        let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
        Ran {
            code: output.status.code().expect("a code"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    };
    assert_eq!(
        run(&["context", "set", "here", "--addr", &fake.url, "-o", "name"]).code,
        0
    );
    assert_eq!(
        run(&["node", "list"]).out,
        "worker-01\n",
        "address and format are those of the context"
    );
    let shown = run(&["config", "show", "-o", "json"]).out;
    assert!(
        shown.contains("context here") && shown.contains(&fake.url),
        "{shown}"
    );
    std::fs::write(
        &file,
        "current = \"here\"\n[contexts.here]\nadress = \"x\"\n",
    )
    .expect("writes");
    let broken = run(&["node", "list"]);
    assert!(
        broken.code == 2 && broken.err.contains("config.toml:3:1") && broken.err.contains("^^^^^^"),
        "{}",
        broken.err
    );
    assert_eq!(run(&["config", "validate"]).code, 2);
    assert_eq!(
        run(&["explain", "HR0422"]).code,
        0,
        "an offline verb needs no settings"
    );
}

#[test]
fn terms_are_explained() {
    let ran = rmctl(&["explain", "overhead_oom"]);
    assert!(
        ran.code == 0 && ran.out.contains("off-heap memory passed the limit"),
        "{}",
        ran.out
    );
    let ran = rmctl(&["explain", "ovrhead_oom"]);
    assert!(
        ran.code == 3 && ran.err.contains("did you mean \"overhead_oom\"?"),
        "{}",
        ran.err
    );
}

#[test]
fn a_shell_completes_ids_of_the_cluster() {
    let fake = Fake::new(usual);
    let script = rmctl(&["completion", "bash"]);
    assert!(
        script.code == 0 && script.out.contains("RMCTL_COMPLETE"),
        "{}",
        script.out
    );
    let complete = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
        command
            .env_clear()
            .env("RMCTL_COMPLETE", "bash")
            .env("HEADROOM_ADDR", &fake.url);
        command
            .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
            .env("_CLAP_IFS", "\n");
        command.arg("--").args(words);
        String::from_utf8(command.output().expect("runs").stdout).expect("UTF-8")
    };
    assert_eq!(complete(&["rmctl", "diagnose", "wo"]), "word-count.7");
    assert_eq!(complete(&["rmctl", "node", "drain", "work"]), "worker-01");
    assert!(complete(&["rmctl", "diag"]).contains("diagnose"));
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().expect("directory");
    let ran = rmctl(&["man", &dir.path().display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = std::fs::read_to_string(dir.path().join("rmctl-node-drain.1"))
        .expect("a page for each verb");
    assert!(page.contains("deadline"), "{page}");
}

#[test]
fn packages_ship_completions_and_manual_pages() {
    let help = rmctl(&["--help"]).out;
    let listed = help
        .lines()
        .skip_while(|l| *l != "Commands:")
        .skip(1)
        .take_while(|l| !l.is_empty());
    let verbs: Vec<&str> = listed
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert!(
        verbs.len() > 25 && verbs.contains(&"diagnose") && !verbs.contains(&"sample"),
        "{verbs:?}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = rmctl(&["completion", shell, "--static"]);
        assert_eq!((script.code, script.err.as_str()), (0, ""));
        assert!(
            !script.out.contains("RMCTL_COMPLETE"),
            "{shell}: it makes no call"
        );
        for verb in verbs.iter().copied().chain(["undrain", "dry-run"]) {
            assert!(script.out.contains(verb), "{shell} does not know {verb}");
        }
    }
    let dir = tempfile::tempdir().expect("directory");
    let ran = rmctl(&["man", "--to", &dir.path().display().to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for verb in verbs.iter().filter(|verb| **verb != "help") {
        assert!(
            dir.path().join(format!("rmctl-{verb}.1")).is_file(),
            "no page of {verb}"
        );
    }
    assert_eq!(rmctl(&["man"]).code, 2, "the directory is required");
}

#[test]
fn the_audit_log_is_listed_and_filtered() {
    let fake = Fake::new(usual);
    let audit = fake.rmctl(&["audit", "list"]);
    assert!(
        audit.code == 0
            && audit.out.contains("POST kill")
            && audit.out.contains("by ada from 127.0.0.1"),
        "{}{}",
        audit.out,
        audit.err
    );
    assert_eq!(fake.rmctl(&["audit", "list", "-q"]).out, "4\n");
    assert_eq!(
        fake.rmctl(&["audit", "list", "--filter", "outcome > 399", "-o", "jsonl"])
            .out,
        ""
    );
    let asked = fake.rmctl(&[
        "events",
        "--topic",
        "task",
        "--type",
        "warning",
        "--for",
        "word-count.7/map/7",
        "--curl",
    ]);
    assert!(
        asked
            .out
            .contains("app=word-count.7&topic=task&type=warning&object=map%2F7"),
        "{}{}",
        asked.out,
        asked.err
    );
    assert_eq!(fake.rmctl(&["events", "--topic", "unknown"]).code, 2);
    let one = fake.rmctl(&["operator", "metrics", "--filter", "nodes"]);
    assert_eq!(one.out.lines().count(), 3, "{}", one.out);
    assert_eq!(
        fake.rmctl(&[
            "operator",
            "metrics",
            "-o",
            "cols=name,value",
            "--filter",
            "apps"
        ])
        .out,
        "NAME              VALUE\nheadroom_rm_apps  2.0\n"
    );
    assert_eq!(
        fake.rmctl(&["operator", "metrics", "--filter", "nodez"])
            .code,
        3
    );
}

#[test]
fn a_bundle_has_no_secrets_and_lists_missing_files() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("debug.tgz");
    let fake = Fake::new(usual);
    let arguments = [
        "operator",
        "debug",
        "--to",
        path.to_str().expect("text"),
        "-o",
        "json",
    ];
    let ran = fake.rmctl(&arguments);
    let said: serde_json::Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    assert_eq!(
        (ran.code, said["missing"].as_array().map(Vec::len)),
        (0, Some(0)),
        "{}",
        ran.err
    );
    let files = opened(&path);
    for name in [
        "README.txt",
        "versions.json",
        "status.json",
        "nodes.json",
        "queues.json",
        "apps.json",
        "events.jsonl",
        "audit.json",
        "metrics.txt",
        "doctor.json",
    ] {
        assert!(
            files
                .iter()
                .any(|(file, text)| file.ends_with(name) && !text.is_empty()),
            "{name} in {:?}",
            files.iter().map(|f| &f.0).collect::<Vec<_>>()
        );
    }
    assert!(
        ran.err.contains("✓ nodes.json"),
        "progress is printed: {}",
        ran.err
    );
    assert!(
        files.iter().all(|(_, text)| !text.contains("hunter2")),
        "a secret is in it"
    );
    assert_eq!(fake.rmctl(&arguments).code, 4, "an existing file is kept");
    let path = dir.path().join("alone.tgz");
    let alone = rmctl(&[
        "--addr",
        &unused(),
        "operator",
        "debug",
        "--to",
        path.to_str().expect("text"),
    ]);
    assert_eq!(alone.code, 6);
    let files = opened(&path);
    let readme = files
        .iter()
        .find(|(name, _)| name.ends_with("README.txt"))
        .expect("a README");
    assert!(
        readme.1.contains("Not collected") && readme.1.contains("status.json"),
        "{}",
        readme.1
    );
}

fn opened(path: &Path) -> Vec<(String, String)> {
    let file = std::fs::File::open(path).expect("the bundle");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.expect("an entry");
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("a text");
        (entry.path().expect("a path").display().to_string(), text)
    };
    archive.entries().expect("entries").map(read).collect()
}
