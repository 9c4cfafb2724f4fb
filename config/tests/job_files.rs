//! Job files: a complete file, and one with many errors whose messages are compared with golden
//! text. `job_mistakes.rs` has the single errors.

use std::time::Duration;

use headroom_config::job::{
    self, GrowthRefusal, GrowthSetting, Idempotent, InputSizes, SizingMode, TaskGroups, TaskLimit,
    TaskRuntime,
};
use headroom_config::{InputLocality, Placeholder, render};
use headroom_types::{Bytes, Cpus, FetchedFileKind, Profile, Resource};
use headroom_wire::v1::job::MemoryFailureMode;

const WHOLE: &str = include_str!("golden/whole.toml");

#[test]
fn every_key_of_a_complete_file_is_read() {
    let job = job::compile(WHOLE, "whole.toml")
        .map_err(|p| render(&p))
        .expect("right");
    assert_eq!(
        (job.name.as_str(), job.priority, job.mode, job.tasks()),
        ("group-by", 5, MemoryFailureMode::Uber, 21)
    );
    assert_eq!(
        (
            job.retry.max_attempts,
            job.retry.memory_attempts,
            job.retry.transient
        ),
        (5, 7, 2)
    );
    assert_eq!(job.retry.cap, Some(Bytes::from_gib(4)));
    assert_eq!(
        (job.access.view.as_slice(), job.access.change.as_slice()),
        (["bob", "@etl"].map(str::to_owned).as_slice(), &[][..])
    );
    assert_eq!(job.executors[0].slot_memory(), Bytes::from_mib(64));
    let place = &job.executors[0].place;
    let name = |text: &str| text.parse().expect("a name");
    assert_eq!(place.labels, [name("ssd")].into());
    assert_eq!(
        place.attributes[&name("zone")],
        ["b".to_owned(), "c".to_owned()].into()
    );
    assert_eq!(place.attributes[&name("kernel")], ["6.1".to_owned()].into());
    assert_eq!(
        place.tolerate,
        [(name("spot"), None), (name("team"), Some("etl".to_owned()))].into()
    );
    let group = &job.stages[0];
    assert_eq!(
        group.profile,
        Profile {
            heap: Bytes::from_mib(128),
            overhead: Bytes::ZERO,
            cpus: Cpus::from_cores(2)
        }
    );
    assert_eq!(
        (group.timeout, group.idempotent, group.enforce),
        (
            Some(Duration::from_secs(1800)),
            Idempotent::No,
            TaskLimit::Executor
        )
    );
    let words: Vec<String> = group
        .command
        .iter()
        .map(|w| w.fill(|p| format!("<{}>", p.as_str())))
        .collect();
    assert_eq!(words, ["prog", "--part=<index>", "{}"]);
    assert_eq!(
        group.env["OPTS"].fill(|p| if p == Placeholder::Heap {
            "64m".into()
        } else {
            String::new()
        }),
        "-Xmx64m"
    );
    let reduce = &job.stages[1];
    assert_eq!(
        (
            reduce.runtime,
            reduce.heap_exit_codes.as_slice(),
            reduce.count
        ),
        (TaskRuntime::Jvm, [3].as_slice(), 1)
    );
    assert_eq!(reduce.profile.memory(), Bytes::from_mib(96));
}

#[test]
fn every_example_compiles() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder)
        .expect("reads")
        .map(|entry| entry.expect("reads").path());
    let jobs: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    for path in &jobs {
        let job = headroom_config::load_job(path, &job::ClusterProfiles::new())
            .map_err(|p| render(&p))
            .expect("right");
        assert!(job.tasks() > 0, "{}", path.display());
    }
    assert!(jobs.len() >= 5, "{jobs:?}");
}

#[test]
fn ten_mistakes_are_reported_at_once() {
    let problems = job::compile(
        include_str!("golden/ten-mistakes.toml"),
        "ten-mistakes.toml",
    )
    .expect_err("mistakes");
    assert!(problems.len() >= 10);
    assert!(
        problems.iter().all(|p| p.line.is_some()
            && !p.key.is_empty()
            && !p.why.is_empty()
            && !p.fix.is_empty())
    );
    insta::assert_snapshot!(render(&problems));
}

#[test]
fn learning_is_configured_by_a_few_keys() {
    let read = |text: &str| {
        job::compile(text, "f")
            .map_err(|p| render(&p))
            .expect("right")
    };
    let job = read(WHOLE);
    assert_eq!(
        (
            job.sizes(),
            job.retry.breaker,
            job.stages[0].kind().as_str()
        ),
        (SizingMode::Stated, None, "group")
    );
    assert_eq!(job.stages[0].input, None);
    let learned = WHOLE.replace(
        "mode = \"uber\"",
        "mode = \"headroom\"\nsizes = \"learned\"",
    );
    let learned = learned
        .replace("transient = 2", "breaker = 50")
        .replace("timeout = \"30m\"", "kind = \"sort\"");
    let job = read(&learned.replace("after = [", "input = [\"5MiB\"]\nafter = ["));
    assert_eq!(
        (
            job.sizes(),
            job.retry.breaker,
            job.stages[0].kind().as_str()
        ),
        (SizingMode::Learned, Some(50), "sort")
    );
    assert_eq!(
        job.stages[1].input,
        Some(InputSizes::Listed(vec![Bytes::from_mib(5)]))
    );
    let job = read(&WHOLE.replace("timeout = \"30m\"", "input = \"in/{stage}-{index}.csv\""));
    let Some(InputSizes::File(file)) = &job.stages[0].input else {
        panic!("a file")
    };
    assert_eq!(
        file.fill(|p| p.as_str().to_uppercase()),
        "in/STAGE-INDEX.csv"
    );
}

#[test]
fn input_hosts_are_given_for_all_tasks_or_for_each() {
    let read = |text: &str| {
        job::compile(&WHOLE.replace("timeout = \"30m\"", text), "f")
            .map_err(|p| render(&p))
            .expect("right")
    };
    let hosts = |job: &headroom_config::JobSpec, index: u32, nth: usize| {
        let hosts = job.stages[0]
            .input_hosts
            .as_ref()
            .expect("hosts")
            .of(index, nth);
        hosts
            .into_iter()
            .map(|host| host.to_string())
            .collect::<Vec<_>>()
    };
    let job = read("input_hosts = [\"w{index}\", \"spare\"]");
    assert_eq!(
        (job.stages[0].input_locality, hosts(&job, 7, 0)),
        (
            Some(InputLocality::Local),
            vec!["w7".into(), "spare".into()]
        )
    );
    let count = usize::try_from(job.stages[0].count).expect("few");
    let each: Vec<String> = (0..count).map(|n| format!("[\"x{n}\"]")).collect();
    let job = read(&format!("input_hosts = [{}]", each.join(", ")));
    assert_eq!(hosts(&job, 99, 1), ["x1"]);
    let job = read("input_locality = \"remote\"");
    assert_eq!(
        (job.stages[0].input_locality, &job.stages[0].input_hosts),
        (Some(InputLocality::Remote), &None)
    );
    assert_eq!(read("").stages[0].input_locality, None);
}

#[test]
fn only_headroom_and_tovar_use_learned_sizes_and_tovar_always_does() {
    let sizes = |mode: MemoryFailureMode, sizes: Option<SizingMode>| {
        let mut job = job::compile(WHOLE, "f").expect("right");
        (job.mode, job.sizes) = (mode, sizes);
        job.sizes()
    };
    for mode in MemoryFailureMode::ALL {
        let usual = if mode == MemoryFailureMode::Tovar {
            SizingMode::Learned
        } else {
            SizingMode::Stated
        };
        let learns = [MemoryFailureMode::Headroom, MemoryFailureMode::Tovar].contains(&mode);
        assert_eq!(sizes(mode, None), usual, "{mode:?}");
        assert_eq!(
            sizes(mode, Some(SizingMode::Stated)),
            SizingMode::Stated,
            "{mode:?}"
        );
        assert_eq!(
            sizes(mode, Some(SizingMode::Shadow)),
            SizingMode::Shadow,
            "{mode:?}"
        );
        assert_eq!(
            sizes(mode, Some(SizingMode::Learned)),
            if learns {
                SizingMode::Learned
            } else {
                SizingMode::Stated
            },
            "{mode:?}"
        );
    }
}

#[test]
fn a_stage_may_let_its_tasks_grow() {
    let grow = |more: &str| {
        let text = WHOLE
            .replace("enforce = \"executor\"", more)
            .replace("mode = \"uber\"", "");
        job::compile(&text, "f")
            .map_err(|p| render(&p))
            .expect("right")
            .stages[0]
            .grow
    };
    let (usual, short) = (Duration::from_secs(30), Duration::from_millis(500));
    assert_eq!(grow(""), GrowthSetting::Usual(usual));
    assert_eq!(grow("grow_hold = \"500ms\""), GrowthSetting::Usual(short));
    assert_eq!(grow("grow = true"), GrowthSetting::Stated(usual));
    assert_eq!(
        grow("grow = true\ngrow_hold = \"500ms\""),
        GrowthSetting::Stated(short)
    );
    assert_eq!(grow("grow = false"), GrowthSetting::Off);
    assert_eq!(
        grow("enforce = \"executor\""),
        GrowthSetting::Off,
        "only the executor has a limit"
    );
}

#[test]
fn growth_is_the_default_in_mode_headroom_and_an_error_in_others() {
    let text = WHOLE.replace("enforce = \"executor\"", "");
    for mode in MemoryFailureMode::ALL {
        let text = text.replace("mode = \"uber\"", &format!("mode = \"{}\"", mode.as_str()));
        let job = job::compile(&text, "f")
            .map_err(|p| render(&p))
            .expect("right");
        let served = job.freeze_timeout(&job.stages[0]).is_some();
        assert_eq!(served, mode == MemoryFailureMode::Headroom, "{mode:?}");
        let stated = job::compile(&text.replace("timeout = \"30m\"", "grow = true"), "f");
        assert_eq!(stated.is_ok(), served, "{mode:?}");
        if let Err(problems) = stated {
            assert_eq!(problems[0].key, "stage.group.grow");
            assert!(problems[0].what.contains(mode.as_str()), "{problems:?}");
        }
    }
}

#[test]
fn growth_without_a_capable_node_is_reported_with_its_position() {
    let text = WHOLE
        .replace("enforce = \"executor\"", "grow = true")
        .replace("mode = \"uber\"", "");
    let job = job::compile(&text, "f")
        .map_err(|p| render(&p))
        .expect("right");
    let problems = job::growth_problems(
        &text,
        "f.toml",
        &[(&job.stages[0], GrowthRefusal::PollOnly)],
    );
    let line = text
        .lines()
        .position(|line| line == "grow = true")
        .expect("the key is in the file")
        + 1;
    let shown = render(&problems);
    assert_eq!(problems.len(), 1, "{shown}");
    assert!(
        shown.contains(&format!("f.toml:{line}:")) && shown.contains("remove grow"),
        "{shown}"
    );
}

#[test]
fn a_fenced_stage_names_its_output_directory() {
    let stage = |more: &str| {
        let text = WHOLE
            .replace("idempotent = \"no\"", more)
            .replace("--part={index}", "--part={index} --out={output}");
        job::compile(&text, "f")
            .map_err(|p| render(&p))
            .expect("right")
            .stages
            .remove(0)
    };
    for more in [
        "idempotent = \"fenced\"\noutput = \"/data/out/\"",
        "output = \"/data//out\"",
    ] {
        let stage = stage(more);
        assert_eq!(
            (stage.idempotent, stage.output.as_deref()),
            (Idempotent::Fenced, Some("/data/out"))
        );
        assert!(
            stage.command[1].contains(Placeholder::Output)
                && !stage.command[1].contains(Placeholder::Job)
        );
    }
}

#[test]
fn executors_may_be_kept_without_tasks() {
    let with = |keys: &str| {
        job::compile(
            &WHOLE.replace("slots = 4", &format!("slots = 4\n{keys}")),
            "f",
        )
    };
    let kept = |keys: &str| {
        with(keys)
            .map(|job| (job.executors[0].min, job.executors[0].idle))
            .expect("right")
    };
    assert_eq!(kept(""), (0, Duration::ZERO));
    assert_eq!(
        kept("min = 2\nidle = \"30s\""),
        (2, Duration::from_secs(30))
    );
    assert_eq!(kept("idle = \"0s\""), (0, Duration::ZERO));
    for (keys, at) in [
        ("min = 3", "executors.main.min"),
        ("idle = 30", "executors.main.idle"),
    ] {
        assert_eq!(with(keys).expect_err(keys)[0].key, at);
    }
}

#[test]
fn executors_may_be_drained_at_once() {
    let read = |key: &str| job::compile(&WHOLE.replace("[retry]", &format!("[retry]\n{key}")), "f");
    let delay = |key: &str| read(key).map(|job| job.retry.drain_after).expect("right");
    assert_eq!(delay("drain_after = \"0s\""), Duration::ZERO);
    assert_eq!(delay("drain_after = \"2s\""), Duration::from_secs(2));
    let problems = read("drain_after = \"0\"").expect_err("no unit");
    assert_eq!(problems[0].key, "retry.drain_after");
}

#[test]
fn executors_may_be_another_program() {
    let program = |more: &str| {
        let text = WHOLE.replace("slots = 4", &format!("slots = 4\n{more}"));
        job::compile(&text, "f")
            .map_err(|p| render(&p))
            .expect("right")
            .executors
            .remove(0)
            .program
    };
    assert_eq!(program(""), None);
    let python = program("program = [\"python3\", \"./executor.py\", \"\"]").expect("a program");
    assert_eq!(
        (python.command, python.task_groups),
        (
            vec!["python3".into(), "./executor.py".into(), String::new()],
            TaskGroups::No
        )
    );
    let own_groups = program("program = [\"/opt/x\"]\ntask_groups = true").expect("a program");
    assert_eq!(own_groups.task_groups, TaskGroups::Yes);
}

#[test]
fn stages_on_the_same_executors_must_agree_about_files() {
    let sum = "0a".repeat(32);
    let files = format!(
        "files = [{{ name = \"tool\", from = \"https://x/tool\", sha256 = \"{sum}\", kind = \"program\", most = \"1MiB\" }},\n\
         {{ name = \"data\", from = \"/srv/data.tar\", kind = \"archive\" }}]"
    );
    let both = |second: &str| {
        let text = WHOLE.replace("timeout = \"30m\"", &files).replace(
            "command = [\"java\"]",
            &format!("command = [\"java\"]\n{second}"),
        );
        job::compile(&text, "f")
    };
    let job = both("files = [{ name = \"data\", from = \"/srv/data.tar\", kind = \"archive\" }]")
        .map_err(|p| render(&p))
        .expect("right");
    let found = job.files_for(&job.executors[0].name);
    let named: Vec<(&str, FetchedFileKind, Option<Bytes>)> = found
        .iter()
        .map(|f| (f.name.as_str(), f.kind, f.most))
        .collect();
    assert_eq!(
        named,
        [
            ("tool", FetchedFileKind::Program, Some(Bytes::from_mib(1))),
            ("data", FetchedFileKind::Archive, None)
        ]
    );
    assert_eq!(found[0].sha256.map(|s| s.to_string()), Some(sum));
    let problems =
        both("files = [{ name = \"data\", from = \"/srv/other.tar\" }]").expect_err("two meanings");
    assert_eq!(problems.len(), 1, "{}", render(&problems));
    assert!(
        problems[0].key == "stage.reduce.files" && problems[0].what.contains("group"),
        "{}",
        render(&problems)
    );
}

#[test]
fn tasks_that_can_never_run_are_named_with_the_largest_container() {
    let job = job::compile(WHOLE, "f").expect("right");
    let enough = Resource::new(Bytes::from_mib(288), Cpus::from_cores(4));
    assert!(job::infeasible_stages(&job, &enough).is_empty());
    let little = Resource::new(Bytes::from_mib(200), Cpus::from_cores(4));
    let never = job::infeasible_stages(&job, &little);
    assert_eq!(never.len(), 2);
    assert!(
        never[0].sentence.contains("288 MiB") && never[0].sentence.contains("200 MiB"),
        "{}",
        never[0].sentence
    );
}
