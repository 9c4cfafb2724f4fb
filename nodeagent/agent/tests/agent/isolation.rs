//! The environment that a program sees: its user, its rights, and its files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use headroom_types::{ExitReason, FetchedFile, FetchedFileKind};

use crate::fake_rm::FakeRm;
use crate::node::{Node, on_any_disk, sh};

/// Other users, mounts and capabilities need root.
fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {test}: only root can start programs as another user");
    }
    root
}

/// A node whose state directory other users can traverse.
fn node(rm: &FakeRm, extra: &[&str]) -> Node {
    let node = Node::start(rm.url(), 256, extra);
    fs::set_permissions(node.state(), fs::Permissions::from_mode(0o711)).expect("mode");
    node
}

/// The value of a line `name: value` or `name=value`.
fn field<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix([':', '=']));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim()
}

/// Prints the user, rights and limits of its own process.
const INSPECT: &str = "cat /proc/self/status; echo umask=$(umask); echo files=$(ulimit -n) ; echo core=$(ulimit -c); \
     echo fds=$(ls /proc/self/fd | tr '\\n' ' '); echo oom=$(cat /proc/self/oom_score_adj); \
     set -- $(cat /proc/$$/stat); echo pid=$1 session=$6; echo session_of=$6; echo own=$$; echo stdin=$(readlink /proc/$$/fd/0); \
     env | sort | sed 's/^/env /'; \
     (echo x > $HEADROOM_CONTAINER_DIR/exit) 2>/dev/null && echo records=open || echo records=closed; \
     (cat $HEADROOM_CONTAINER_DIR/order.json) >/dev/null 2>&1 && echo order=open || echo order=closed; \
     echo mine > made && ls -ln made | cut -c1-10 | sed 's/^/made=/'; exit 0";

/// Checks that a program has no variable of the agent.
fn check_environment(text: &str) {
    let names: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("env ")?.split('=').next())
        .collect();
    let foreign: Vec<&&str> = names
        .iter()
        .filter(|n| !n.starts_with("HEADROOM_"))
        .filter(|n| {
            ![
                "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "TMPDIR", "USER", "_",
            ]
            .contains(*n)
        })
        .collect();
    assert!(
        foreign.is_empty() && !names.contains(&"HEADROOM_LOG"),
        "variables of the agent were inherited: {foreign:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_only_the_rights_of_its_user() {
    if !is_root("a_program_has_only_the_rights_of_its_user") {
        return;
    }
    let rm = FakeRm::start();
    // The agent's own rights must not be inherited.
    let node = node(&rm, &["--run-as=nobody"]);
    let id = rm.run(1, 64, sh(INSPECT));
    let report = rm.exit(&id).await;
    let text = node.text(&id, "stdout");
    assert_eq!(
        (report.reason, report.evidence.exit_code),
        (ExitReason::Exit { code: 0 }, Some(0)),
        "{report:#?}\n{text}"
    );
    let nobody = nix::unistd::User::from_name("nobody")
        .expect("asks")
        .expect("there");
    let four = |n: u32| format!("{n}\t{n}\t{n}\t{n}");
    assert_eq!(
        (field(&text, "Uid"), field(&text, "Gid")),
        (
            four(nobody.uid.as_raw()).as_str(),
            four(nobody.gid.as_raw()).as_str()
        )
    );
    assert_eq!(
        field(&text, "Groups"),
        nobody.gid.as_raw().to_string(),
        "the program has no group of root"
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&text, set), "0000000000000000", "{set}");
    }
    assert_eq!(
        (field(&text, "NoNewPrivs"), field(&text, "umask")),
        ("1", "0027")
    );
    // Root without CAP_SYS_RESOURCE cannot grant more than its own limit.
    let own = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .expect("a limit")
        .1;
    let files = field(&text, "files").parse::<u64>().expect("a number");
    assert!(
        files == 65_536 || files == own && own < 65_536,
        "{files} of {own}"
    );
    assert_eq!((field(&text, "core"), field(&text, "oom")), ("0", "200"));
    assert_eq!(
        field(&text, "fds"),
        "0 1 2 3",
        "3 is the directory that ls reads"
    );
    assert_eq!(field(&text, "stdin"), "/dev/null");
    assert_eq!(
        field(&text, "session_of"),
        field(&text, "own"),
        "the program leads its session"
    );
    assert_eq!(
        (field(&text, "records"), field(&text, "order")),
        ("closed", "closed"),
        "the shim's records are accessible"
    );
    assert_eq!(field(&text, "made"), "-rw-r-----");
    check_environment(&text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_root_has_no_capabilities() {
    if !is_root("a_program_of_root_has_no_capabilities") {
        return;
    }
    let rm = FakeRm::start();
    let node = node(&rm, &[]);
    let script = "cat /proc/self/status; mount -t tmpfs none /mnt 2>/dev/null && echo mounted=yes || echo mounted=no; exit 0";
    let id = rm.run(1, 64, sh(script));
    rm.exit(&id).await;
    let text = node.text(&id, "stdout");
    assert_eq!(
        (
            field(&text, "CapEff"),
            field(&text, "CapBnd"),
            field(&text, "NoNewPrivs")
        ),
        ("0000000000000000", "0000000000000000", "1")
    );
    assert_eq!(
        (field(&text, "Uid"), field(&text, "mounted")),
        ("0\t0\t0\t0", "no")
    );
}

/// Shared memory of a program is freed at its end, for any user.
#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_is_freed_with_its_container() {
    if !is_root("shared_memory_is_freed_with_its_container") {
        return;
    }
    let rm = FakeRm::start();
    for (n, extra) in [(1, &[][..]), (2, &["--run-as=nobody"][..])] {
        let node = node(&rm, extra);
        let name = format!("headroom-shared-{}-{n}", std::process::id());
        let script = format!(
            "echo x > /dev/shm/{name} && ipcmk -M 4096 >/dev/null; ls /dev/shm; df -B1 --output=size /dev/shm | tail -1; \
             tail -n +2 /proc/sysvipc/shm | wc -l; readlink /proc/self/ns/ipc; exit 0"
        );
        let id = rm.run(n, 64, sh(&script));
        let report = rm.exit(&id).await;
        let text = node.text(&id, "stdout");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            &lines[..3],
            [name.as_str(), "67108864", "1"],
            "{text}{report:#?}"
        );
        let own = fs::read_link("/proc/self/ns/ipc").expect("a link");
        assert_ne!(
            lines.get(3).copied(),
            own.to_str(),
            "the container uses the IPC namespace of the host"
        );
        assert!(
            !std::path::Path::new("/dev/shm").join(&name).exists(),
            "the file is on the host"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_has_its_own_tmp() {
    if !is_root("each_container_has_its_own_tmp") {
        return;
    }
    let rm = FakeRm::start();
    let node = node(&rm, &["--run-as=nobody"]);
    let name = format!("headroom-private-{}", std::process::id());
    let script = |own: u32| {
        format!(
            "ls /tmp /var/tmp > before; echo {own} > /tmp/{name} && echo {own} >> /var/tmp/{name}; cat /tmp/{name}; \
             echo tmpdir=$TMPDIR; test -d $HEADROOM_CONTAINER_DIR/work && test -d $HEADROOM_APP_DIR && echo own=there; exit 0"
        )
    };
    for n in 1..=2 {
        let id = rm.run(u64::from(n), 64, sh(&script(n)));
        let report = rm.exit(&id).await;
        let (text, words) = (node.text(&id, "stdout"), node.text(&id, "stderr"));
        assert_eq!(report.evidence.exit_code, Some(0), "{report:#?}\n{words}");
        // Both names are the same directory, which was empty before.
        assert_eq!(
            text,
            format!("{n}\n{n}\ntmpdir=/tmp\nown=there\n"),
            "{words}"
        );
        assert!(
            !node.text(&id, "work/before").contains(&name),
            "a container sees the files of another"
        );
        assert!(
            node.file(&id, "tmp").join(&name).exists(),
            "the file is in the directory of the container"
        );
    }
    assert!(
        !std::path::Path::new("/tmp").join(&name).exists(),
        "the file is in the /tmp of the host"
    );
}

/// Lists and reads the files of the container that it gets in place of `OTHER`.
const SPY: &str = "for dir in OTHER OTHER/work OTHER/tasks OTHER/tmp; do ls $dir >/dev/null && echo listed $dir; done; \
     for file in stdout stderr work/given work/made work/fetched tasks/made tmp/made; do cat OTHER/$file && echo read $file; done; \
     echo looked; exit 0";

#[tokio::test(flavor = "multi_thread")]
async fn other_users_cannot_open_the_files_of_a_container() {
    if !is_root("other_users_cannot_open_the_files_of_a_container") {
        return;
    }
    let rm = FakeRm::start();
    let dir = tempfile::tempdir().expect("dir");
    let config = dir.path().join("nodeagent.toml");
    // Without a private /tmp, programs see the directories of all containers.
    let text = "[isolation]\nprivate_tmp = false\numask = '000'\nusers = { ann = 'daemon' }\n";
    fs::write(&config, on_any_disk(text)).expect("writes");
    let node = node(&rm, &[&format!("--config={}", config.display())]);
    let data = dir.path().join("data");
    fs::write(&data, "secret").expect("writes");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("mode");
    let mut launch = sh(
        "for at in work tasks tmp; do echo secret > ../$at/made || exit 1; done; \
         cat given fetched; echo secret >&2; exit 0",
    );
    launch.files = [("given".to_owned(), "secret ".to_owned())].into();
    launch.fetch = vec![FetchedFile {
        name: "fetched".into(),
        from: data.to_str().expect("text").to_owned(),
        sha256: None,
        kind: FetchedFileKind::File,
        most: None,
    }];
    let id = rm.run_by(1, Some("nobody"), launch);
    let report = rm.exit(&id).await;
    assert_eq!(report.evidence.exit_code, Some(0), "{report:#?}");
    assert_eq!(report.log_tail, "secret\n", "the agent reads the log");
    assert_eq!(node.text(&id, "stdout"), "secret secret");
    let mode = |name: &str| {
        let facts = fs::metadata(node.file(&id, name)).expect("facts");
        facts.permissions().mode() & 0o7777
    };
    assert_eq!(
        ["", "work", "tasks", "tmp", "stdout", "stderr"].map(mode),
        [0o711, 0o700, 0o700, 0o700, 0o600, 0o600]
    );
    let script = SPY.replace("OTHER", node.file(&id, "").to_str().expect("text"));
    let spy = rm.run_by(2, Some("ann"), sh(&script));
    rm.exit(&spy).await;
    assert_eq!(node.text(&spy, "stdout"), "looked\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_user_gets_a_cause_and_a_fix() {
    if !is_root("a_refused_user_gets_a_cause_and_a_fix") {
        return;
    }
    let rm = FakeRm::start();
    let _node = node(&rm, &["--run-as=submitter"]);
    for (n, user, why) in [
        (1, Some("root"), "root may not"),
        (2, Some("no-such-user"), "not known"),
        (3, Some("daemon"), "min_uid"),
        (4, None, "no submitter"),
    ] {
        let id = rm.run_by(n, user, sh("exit 0"));
        let report = rm.exit(&id).await;
        assert_eq!(report.reason, ExitReason::LaunchFailed, "{report:#?}");
        let diagnosis = &report.diagnosis[0];
        assert!(
            diagnosis.cause.contains(why) && diagnosis.fix.contains("submit"),
            "{user:?}: {diagnosis:?}"
        );
    }
    let id = rm.run_by(5, Some("nobody"), sh("id -un"));
    assert_eq!(rm.exit(&id).await.evidence.exit_code, Some(0));
}
