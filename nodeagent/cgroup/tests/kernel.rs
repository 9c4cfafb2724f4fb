//! Tests of groups on the real kernel, with the cgroup version of this host. The assertions hold
//! for both.

mod support;

use std::os::fd::AsFd as _;
use std::time::Duration;

use headroom_node_cgroup::plan::v2_nesting;
use headroom_node_cgroup::tree::CgroupDir;
use headroom_node_cgroup::{
    CgroupError, EnforcedGroup, EnforcerRequest, GroupLimits, MemoryEventWatch, OomGroup, detect,
};
use headroom_types::exit::CgroupStats;
use headroom_types::{Bytes, EnforcerKind};
use support::{HOG, Host, TIMEOUT, holder, memory, run_in, run_with, signal_of, until};

fn near_limit(facts: &CgroupStats) -> bool {
    let peak = facts.peak.expect("a peak");
    peak.saturating_add(Bytes::from_kib(384)) >= facts.limit.expect("a limit")
}

#[test]
fn a_kill_at_the_own_limit_is_in_the_own_counters() {
    let host = Host::new("own");
    let before = host.enforcer.host_oom_kills().expect("a host counter");
    let group = host.container("job.1.e1.c1", 32);
    let mut hog = run_in(&group, HOG);
    assert_eq!(signal_of(&mut hog), Some(9));
    let facts = group.facts().expect("facts");
    assert_eq!(facts.limit, Some(Bytes::from_mib(32)));
    assert!(
        facts.events.oom_kill >= 1 && facts.local.oom >= 1 && facts.local.max >= 1,
        "{facts:?}"
    );
    assert!(near_limit(&facts), "{facts:?}");
    let fence = host.enforcer.fence_facts().expect("facts");
    assert_eq!(
        fence.local.oom, 0,
        "the limit of the fence was not reached: {fence:?}"
    );
    assert!(host.enforcer.host_oom_kills().expect("a host counter") > before);
}

#[test]
fn a_kill_at_the_outer_limit_is_not_in_the_counters_of_the_victim() {
    let host = Host::new("outer");
    host.enforcer
        .set_fence(Bytes::from_mib(24))
        .expect("a fence");
    let group = host.container("job.1.e1.c1", 64);
    let mut hog = run_in(&group, HOG);
    assert_eq!(signal_of(&mut hog), Some(9));
    let (own, fence) = (
        group.facts().expect("facts"),
        host.enforcer.fence_facts().expect("facts"),
    );
    assert!(
        own.events.oom_kill >= 1,
        "the victim was in this group: {own:?}"
    );
    assert_eq!(
        own.local.oom, 0,
        "the limit of the group was never reached: {own:?}"
    );
    assert!(
        fence.local.oom >= 1 && fence.limit == Some(Bytes::from_mib(24)),
        "{fence:?}"
    );
}

#[test]
fn kills_of_removed_containers_still_count_at_the_fence() {
    let host = Host::new("retired");
    host.enforcer
        .set_fence(Bytes::from_mib(24))
        .expect("a fence");
    for (n, name) in (1u64..).zip(["job.1.e1.c1", "job.1.e1.c2"]) {
        let before = host.enforcer.fence_facts().expect("facts");
        let group = host.container(name, 64);
        assert_eq!(signal_of(&mut run_in(&group, HOG)), Some(9));
        let after = host.enforcer.fence_facts().expect("facts");
        assert!(
            after.local.since(&before.local).oom >= 1,
            "kill {n} must move the counter: {before:?} {after:?}"
        );
        group
            .kill()
            .and_then(|()| group.remove(TIMEOUT))
            .expect("goes");
    }
}

#[test]
fn a_kill_at_the_limit_of_a_task_spares_its_container() {
    let host = Host::new("task");
    let group = host.container("job.1.e1.c1", 96);
    let mut main = run_in(&group, "exec sleep 600");
    let task = group
        .create_task("map-7-2", &memory(16))
        .expect("a task group");
    assert_eq!(signal_of(&mut run_in(&task, HOG)), Some(9));
    let (own, outer) = (task.facts().expect("facts"), group.facts().expect("facts"));
    assert!(
        own.local.oom >= 1 && own.events.oom_kill >= 1 && near_limit(&own),
        "{own:?}"
    );
    assert_eq!(
        outer.local.oom, 0,
        "the container's limit was not reached: {outer:?}"
    );
    assert!(
        outer.events.oom_kill >= 1,
        "the counter includes the kills of its task: {outer:?}"
    );
    assert_eq!(
        main.try_wait().expect("asks"),
        None,
        "the executor still runs"
    );
    group.kill().expect("kills");
    assert_eq!(signal_of(&mut main), Some(9));
}

#[test]
fn a_task_killed_at_the_containers_limit_has_no_own_limit_kill() {
    let host = Host::new("task-outer");
    let group = host.container("job.1.e1.c1", 24);
    let task = group
        .create_task("map-7-1", &memory(64))
        .expect("a task group");
    assert_eq!(signal_of(&mut run_in(&task, HOG)), Some(9));
    let (own, outer) = (task.facts().expect("facts"), group.facts().expect("facts"));
    assert!(own.events.oom_kill >= 1 && own.local.oom == 0, "{own:?}");
    assert!(outer.local.oom >= 1, "{outer:?}");
}

#[test]
fn a_group_dies_as_a_whole_by_the_kernel_or_by_kill() {
    let host = Host::new("whole");
    let group = host.container("job.1.e1.c1", 32);
    let mut bystander = run_in(&group, "exec sleep 600");
    until("the bystander is in the group", || {
        !group.pids().expect("pids").is_empty()
    });
    assert_eq!(signal_of(&mut run_in(&group, HOG)), Some(9));
    if host.is_v1() {
        assert_eq!(
            bystander.try_wait().expect("asks"),
            None,
            "v1 ends one process only"
        );
        group.kill().expect("kills");
    }
    assert_eq!(signal_of(&mut bystander), Some(9));
    if !host.is_v1() {
        assert!(group.facts().expect("facts").events.oom_group_kill >= 1);
    }
}

#[test]
fn kill_reaches_daemons_and_children_of_children() {
    let host = Host::new("daemons");
    let group = host.container("job.1.e1.c1", 64);
    let task = group
        .create_task("map-1-1", &GroupLimits::default())
        .expect("a task group");
    let mut shell = run_in(
        &group,
        "setsid sh -c 'sleep 600 & sleep 600 & wait' & setsid sleep 600 & exit 0",
    );
    shell.wait().expect("the shell ends at once");
    let mut inner = run_in(&task, "exec sleep 600");
    until("all five processes run", || {
        group.pids().expect("pids").len() >= 5
    });
    assert!(group.populated().expect("asks"));
    group.kill().expect("kills");
    assert!(group.pids().expect("pids").is_empty() && !group.populated().expect("asks"));
    assert_eq!(signal_of(&mut inner), Some(9));
    group.remove(TIMEOUT).expect("removes");
    assert!(host.enforcer.list().expect("lists").is_empty());
}

/// The process may end later: it can hang in the kernel.
#[test]
fn a_sent_kill_waits_for_no_end() {
    let host = Host::new("sent");
    let group = host.container("job.1.e1.c1", 64);
    let mut main = run_in(&group, "sleep 600 & exec sleep 600");
    until("both processes run", || {
        group.pids().expect("pids").len() == 2
    });
    group.send_kill().expect("sends");
    assert_eq!(signal_of(&mut main), Some(9));
    until("no process is left", || !group.populated().expect("asks"));
    group.send_kill().expect("none is left");
}

/// Makes groups in each other until the kernel refuses one. Returns their number.
fn nest(top: &std::path::Path) -> (usize, Option<i32>) {
    let mut dir = top.to_owned();
    for depth in 0..200 {
        dir.push("deeper");
        if let Err(error) = std::fs::create_dir(&dir) {
            return (depth, error.raw_os_error());
        }
    }
    (200, None)
}

#[test]
fn groups_below_a_container_nest_only_so_deep() {
    let host = Host::new("nest");
    let group = host.container("job.1.e1.c1", 64);
    let eagain = Some(nix::libc::EAGAIN);
    if host.is_v1() {
        // v1 has no such limit, but all of them can be removed. On a hybrid host, the kernel shows
        // how v2 limits them.
        assert_eq!(nest(group.path().expect("a path")), (200, None));
        let hybrid = CgroupDir::open(std::path::Path::new("/sys/fs/cgroup/unified"));
        if let Ok(hybrid) = hybrid {
            let name = format!("headroom-test-{}-nest", std::process::id());
            let dir = hybrid.make(&name).expect("makes");
            let set = dir.set_all(&v2_nesting());
            let nested = nest(dir.path());
            dir.remove(TIMEOUT).expect("removes");
            set.expect("sets");
            assert_eq!(nested, (16, eagain));
        }
    } else {
        let main = group.procs_files()[0].with_file_name("");
        assert_eq!(nest(&main), (15, eagain));
    }
    group.remove(TIMEOUT).expect("removes");
}

#[test]
fn remove_deletes_all_groups_and_may_be_repeated() {
    let host = Host::new("remove");
    let limits = GroupLimits {
        processes: Some(50),
        ..memory(64)
    };
    let group = host
        .enforcer
        .create("job.1.e1.c1", &limits)
        .expect("a group");
    let task = group
        .create_task(
            "map-1-1",
            &GroupLimits {
                processes: Some(5),
                ..memory(16)
            },
        )
        .expect("a task");
    let dirs: Vec<_> = group
        .procs_files()
        .iter()
        .chain(&task.procs_files())
        .filter_map(|p| p.parent().map(|d| d.to_owned()))
        .collect();
    assert!(dirs.iter().all(|d| d.exists()));
    group.remove(TIMEOUT).expect("removes");
    assert!(dirs.iter().all(|d| !d.exists()), "{dirs:?}");
    group.remove(TIMEOUT).expect("again");
    assert!(host.enforcer.open("job.1.e1.c1").expect("asks").is_none());
    assert!(group.facts().expect_err("gone").is_gone());
}

#[test]
fn a_populated_group_is_not_removed_and_the_error_names_its_processes() {
    let host = Host::new("busy");
    let group = host.container("job.1.e1.c1", 64);
    let mut main = run_in(&group, "exec sleep 600");
    until("the process is in the group", || {
        !group.pids().expect("pids").is_empty()
    });
    match group.remove(Duration::from_millis(20)) {
        Err(CgroupError::Remove { left, .. }) => {
            assert_eq!(left, [i32::try_from(main.id()).expect("a pid")])
        }
        other => panic!("{other:?}"),
    }
    group.kill().expect("kills");
    assert_eq!(signal_of(&mut main), Some(9));
}

#[test]
fn a_group_is_never_made_twice() {
    let host = Host::new("twice");
    let group = host.container("job.1.e1.c1", 64);
    let error = host
        .enforcer
        .create("job.1.e1.c1", &memory(32))
        .expect_err("must fail");
    assert!(
        matches!(&error, CgroupError::Make { path, .. } if path.ends_with("job.1.e1.c1")),
        "{error}"
    );
    assert_eq!(
        group.facts().expect("facts").limit,
        Some(Bytes::from_mib(64)),
        "the first group is unchanged"
    );
    for name in ["../x", "a/b", ""] {
        assert!(
            matches!(
                host.enforcer.create(name, &memory(32)),
                Err(CgroupError::Name(_))
            ),
            "{name:?}"
        );
    }
}

#[test]
fn a_limit_is_raised_but_never_lowered_below_the_memory_in_use() {
    let host = Host::new("resize");
    let group = host.container("job.1.e1.c1", 64);
    let mut main = run_in(&group, &holder(20));
    until("20 MiB are held", || {
        group.sample().expect("samples").1.anon >= Some(Bytes::from_mib(20))
    });
    assert!(matches!(
        group.set_memory(Bytes::from_mib(8)),
        Err(CgroupError::BelowDemand { .. })
    ));
    assert_eq!(
        group.facts().expect("facts").limit,
        Some(Bytes::from_mib(64))
    );
    for mib in [128, 40] {
        group.set_memory(Bytes::from_mib(mib)).expect("fits");
        assert_eq!(
            group.facts().expect("facts").limit,
            Some(Bytes::from_mib(mib))
        );
    }
    group
        .set_cpu_weight(250)
        .expect("a share where there is one");
    let weight = group
        .path()
        .map(|dir| dir.join("cpu.weight"))
        .and_then(|file| std::fs::read_to_string(file).ok());
    assert!(weight.is_none_or(|w| w.trim() == "250"));
    let shares = group
        .procs_files()
        .into_iter()
        .filter_map(|file| std::fs::read_to_string(file.with_file_name("cpu.shares")).ok());
    assert!(shares.into_iter().all(|shares| shares.trim() == "2560"));
    assert_eq!(
        main.try_wait().expect("asks"),
        None,
        "the process still runs"
    );
    group.kill().expect("kills");
    main.wait().expect("reaps");
}

#[test]
fn samples_contain_kinds_and_the_largest_process_is_found() {
    let host = Host::new("sample");
    let group = host.container("job.1.e1.c1", 64);
    let mut main = run_in(&group, &holder(24));
    until("24 MiB are held", || {
        group.sample().expect("samples").1.anon >= Some(Bytes::from_mib(24))
    });
    let (current, stat) = group.sample().expect("samples");
    assert!(
        current >= Bytes::from_mib(24) && current <= Bytes::from_mib(64),
        "{current}"
    );
    assert!(
        stat.demand() >= Some(Bytes::from_mib(24)) && stat.file.is_some(),
        "{stat:?}"
    );
    let largest = group.largest(1);
    assert!(
        largest[0].name == "dd" && largest[0].rss >= Bytes::from_mib(24),
        "{largest:?}"
    );
    group.kill().expect("kills");
    main.wait().expect("reaps");
}

#[test]
fn the_number_of_processes_is_limited() {
    let host = Host::new("pids");
    if host
        .notes
        .iter()
        .any(|n| n.contains("number of processes is not limited"))
    {
        panic!("this host cannot limit processes: {:?}", host.notes);
    }
    let limits = GroupLimits {
        processes: Some(3),
        ..memory(64)
    };
    let group = host
        .enforcer
        .create("job.1.e1.c1", &limits)
        .expect("a group");
    let mut shell = run_in(
        &group,
        "sleep 600 & sleep 600 & sleep 600 & sleep 600 & wait",
    );
    shell.wait().expect("the shell gives up");
    assert!(group.pids().expect("pids").len() <= 3);
    group.kill().expect("kills");
    assert!(group.pids().expect("pids").is_empty());
}

/// Processor time of the processes of a group. In clock ticks.
fn ticks(group: &EnforcedGroup) -> u64 {
    let of = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split(' ')
            .map(|n| n.parse().unwrap_or(0))
            .collect();
        fields
            .get(12)
            .zip(fields.get(13))
            .map_or(0, |(user, system)| user + system)
    };
    group.pids().expect("pids").into_iter().map(of).sum()
}

#[test]
fn many_processes_get_no_more_of_a_processor_than_their_share() {
    let host = Host::new("weights");
    if host
        .notes
        .iter()
        .any(|n| n.contains("processor shares are not weighted"))
    {
        assert!(
            !host.is_v1() || !std::path::Path::new("/sys/fs/cgroup/cpu").is_dir(),
            "{:?}",
            host.notes
        );
        return;
    }
    let limits = GroupLimits {
        cpu_weight: Some(100),
        ..memory(64)
    };
    let [one, many] = ["job.1.e1.c1", "job.1.e1.c2"]
        .map(|name| host.enforcer.create(name, &limits).expect("a group"));
    let spin = "taskset -c 0 sh -c 'while :; do :; done' &";
    let mut mains = [
        run_in(&many, &format!("{} wait", spin.repeat(8))),
        run_in(&one, &format!("{spin} wait")),
    ];
    until("all of them run", || ticks(&many) > 20 && ticks(&one) > 0);
    let before = (ticks(&one), ticks(&many));
    until("both groups together have used two seconds", || {
        ticks(&one) + ticks(&many) > before.0 + before.1 + 200
    });
    let had = (ticks(&one) - before.0, ticks(&many) - before.1);
    assert!(
        had.1 < 3 * had.0,
        "one process has used {} ticks, and eight have used {}; their shares are equal",
        had.0,
        had.1
    );
    for (group, main) in [&many, &one].into_iter().zip(&mut mains) {
        group.kill().expect("kills");
        main.wait().expect("reaps");
    }
}

#[test]
fn an_executor_attaches_to_its_own_container() {
    let host = Host::new("attach");
    let made = host
        .enforcer
        .create(
            "job.1.e1.c1",
            &GroupLimits {
                processes: Some(40),
                ..memory(64)
            },
        )
        .expect("a group");
    let path = made.path().expect("a path").to_owned();
    let group = EnforcedGroup::attach(host.enforcer.kind(), &path).expect("attaches");
    assert_eq!(
        (group.name(), group.procs_files()),
        ("job.1.e1.c1", made.procs_files())
    );
    let task = group
        .create_task(
            "map-1-1",
            &GroupLimits {
                processes: Some(4),
                ..memory(16)
            },
        )
        .expect("a task");
    let tasks = made.tasks().expect("tasks");
    assert_eq!(
        tasks
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["map-1-1"]
    );
    assert_eq!(tasks[0].1.procs_files(), task.procs_files());
    assert_eq!(
        tasks[0].1.facts().expect("facts").limit,
        Some(Bytes::from_mib(16))
    );
    task.remove(TIMEOUT).expect("removes");
    assert!(made.tasks().expect("tasks").is_empty());
}

#[test]
fn containers_are_found_again_after_a_restart() {
    let host = Host::new("adopt");
    host.container("job.1.e1.c1", 64);
    host.container("job.1.e1.c2", 32);
    let root = host.enforcer.root().expect("a root");
    let wanted = EnforcerRequest {
        kind: Some(host.enforcer.kind()),
        root: Some(root),
        name: "unused".into(),
        attached: false,
    };
    let again = detect(&wanted)
        .expect("detects the same root again")
        .enforcer;
    assert_eq!(again.list().expect("lists"), ["job.1.e1.c1", "job.1.e1.c2"]);
    let group = again.open("job.1.e1.c2").expect("opens").expect("is there");
    assert_eq!(
        group.facts().expect("facts").limit,
        Some(Bytes::from_mib(32))
    );
    assert!(again.open("job.1.e1.c3").expect("asks").is_none());
}

#[test]
fn facts_from_texts_equal_the_facts_of_the_group() {
    let host = Host::new("texts");
    let group = host.container("job.1.e1.c1", 32);
    assert_eq!(signal_of(&mut run_in(&group, HOG)), Some(9));
    group.kill().expect("kills");
    let read = |p: std::path::PathBuf| std::fs::read_to_string(&p).ok().map(|text| (p, text));
    let texts: Vec<_> = group.counter_files().into_iter().filter_map(read).collect();
    let facts = EnforcedGroup::facts_from_texts(host.enforcer.kind(), &texts).expect("facts");
    let own = group.facts().expect("facts");
    assert_eq!(
        (facts.limit, facts.peak, facts.events, facts.local),
        (own.limit, own.peak, own.events, own.local)
    );
    assert!(EnforcedGroup::facts_from_texts(host.enforcer.kind(), &[]).is_none());
}

#[test]
fn a_watch_reports_memory_events_and_can_be_cleared() {
    let host = Host::new("watch");
    let group = host.container("job.1.e1.c1", 32);
    let watch = MemoryEventWatch::open(&group)
        .expect("watches")
        .expect("a kernel group has one");
    let ready = |timeout: u16| {
        let mut set = [nix::poll::PollFd::new(
            watch.as_fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut set, timeout).expect("polls") == 1
    };
    assert!(!ready(0), "nothing has happened yet");
    let mut hog = run_in(&group, HOG);
    assert!(ready(20_000), "the event arrives");
    assert_eq!(signal_of(&mut hog), Some(9));
    // v2 events arrive up to 10 ms late; this clears pending ones too.
    until("the watch reports no more events", || {
        watch.clear().expect("clears");
        !ready(30)
    });
}

#[test]
fn shims_are_outside_of_the_fence() {
    let host = Host::new("shims");
    let mut shim = run_with(&host.enforcer.shim_procs_files(), "exec sleep 600");
    let root = host.enforcer.root().expect("a root");
    let pid = shim.id().to_string();
    let listed = |dir: &str| {
        std::fs::read_to_string(root.join(dir).join("cgroup.procs"))
            .expect("reads")
            .lines()
            .any(|l| l == pid)
    };
    until("the shim is in its group", || listed("shims"));
    assert!(!listed("containers"));
    shim.kill().expect("kills");
    shim.wait().expect("reaps");
}

#[test]
fn an_unavailable_enforcer_is_refused_with_reasons() {
    let host = Host::new("refuse");
    let other = if host.is_v1() {
        EnforcerKind::Cgroup2
    } else {
        EnforcerKind::Cgroup1
    };
    let name = format!("headroom-test-{}-refused", std::process::id());
    match detect(&EnforcerRequest {
        kind: Some(other),
        root: None,
        name: name.clone(),
        attached: false,
    }) {
        Err(CgroupError::Unavailable { kind, why }) => {
            assert_eq!(kind, other);
            assert!(why.iter().any(|w| w.contains("memory")), "{why:?}");
        }
        other => panic!("{other:?}"),
    }
    for hierarchy in [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/memory",
    ] {
        assert!(
            !std::path::Path::new(hierarchy).join(&name).exists(),
            "a group is left in {hierarchy}"
        );
    }
    let poll = detect(&EnforcerRequest {
        kind: Some(EnforcerKind::Poll),
        root: None,
        name: "x".into(),
        attached: false,
    })
    .expect("always");
    assert!(
        poll.notes
            .iter()
            .any(|n| n.contains("not enforced by the kernel"))
    );
}

#[test]
fn without_oom_group_the_kernel_kills_a_single_process() {
    let host = Host::new("single");
    let limits = GroupLimits {
        oom_group: OomGroup::No,
        ..memory(32)
    };
    let group = host
        .enforcer
        .create("job.1.e1.c1", &limits)
        .expect("a group");
    let mut bystander = run_in(&group, "exec sleep 600");
    until("the bystander is in the group", || {
        !group.pids().expect("pids").is_empty()
    });
    assert_eq!(signal_of(&mut run_in(&group, HOG)), Some(9));
    assert_eq!(bystander.try_wait().expect("asks"), None);
    assert_eq!(group.facts().expect("facts").events.oom_group_kill, 0);
    group.kill().expect("kills");
    assert_eq!(signal_of(&mut bystander), Some(9));
}

/// Runs in the process that `a_process_in_its_own_cgroup_moves_to_an_inner_group` starts: detects
/// its enforcer and writes the root to a file.
#[test]
fn inner_detect() {
    let Ok(how) = std::env::var("HEADROOM_TEST_INNER") else {
        return;
    };
    let root = (how != "found").then(|| std::path::PathBuf::from(&how));
    let found = detect(&EnforcerRequest {
        kind: Some(EnforcerKind::Cgroup2),
        root,
        name: "mine".into(),
        attached: false,
    })
    .expect("an enforcer");
    let group = found
        .enforcer
        .create("job.1.e1.c1", &memory(32))
        .expect("a container");
    assert_eq!(signal_of(&mut run_in(&group, HOG)), Some(9));
    assert!(group.facts().expect("facts").local.oom >= 1);
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("reads");
    assert!(own.trim().ends_with("/agent"), "{own}");
    std::fs::write(
        std::env::var("HEADROOM_TEST_SAYS").expect("a file"),
        found.enforcer.root().expect("a root").display().to_string(),
    )
    .expect("writes");
}

#[test]
fn a_process_in_its_own_cgroup_moves_to_an_inner_group() {
    let host = Host::new("own-unit");
    if host.is_v1() {
        return; // v1 allows processes in any group
    }
    let says = tempfile::tempdir().expect("a directory");
    for (how, below) in [("found", "mine"), ("given", "")] {
        // Like systemd, it creates a leaf for this service only, with all controllers available.
        let unit = host
            .enforcer
            .root()
            .expect("a root")
            .join("containers")
            .join(how);
        std::fs::create_dir(&unit).expect("makes");
        let file = says.path().join(how);
        let exe = std::env::current_exe().expect("this program");
        let status = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                &format!(
                    "echo 0 > {}/cgroup.procs && exec {} --exact inner_detect",
                    unit.display(),
                    exe.display()
                ),
            ])
            .env(
                "HEADROOM_TEST_INNER",
                if how == "found" {
                    how.to_owned()
                } else {
                    unit.display().to_string()
                },
            )
            .env("HEADROOM_TEST_SAYS", &file)
            .stdout(std::process::Stdio::null())
            .status()
            .expect("starts");
        assert!(status.success());
        let root = std::fs::read_to_string(&file).expect("the inner process wrote its root");
        assert_eq!(
            std::path::Path::new(&root),
            unit.join(below).components().as_path()
        );
    }
}
