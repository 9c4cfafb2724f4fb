//! Tests with real processes: the environment of a started program, and the names of failures.

// Only raw system calls show inherited and leftover items.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use headroom_node_exec::{
    ExecArguments, Namespaces, Privilege, ProcessEnd, ProcessUser, RlimitKind, RlimitSetting,
    SpawnCommand, SpawnStep, WatchedProcess, probe_namespaces, spawn, starttime_of,
};
use rustix::fs::inotify;

/// A program with its arguments, and an empty environment; kept until the test ends.
fn program(argv: &[&str]) -> &'static ExecArguments {
    with_env(argv, &[])
}

fn with_env(argv: &[&str], env: &[(OsString, OsString)]) -> &'static ExecArguments {
    Box::leak(Box::new(
        ExecArguments::new(argv, env).expect("texts without NUL"),
    ))
}

fn command(argv: &[&str]) -> SpawnCommand<'static> {
    SpawnCommand::new(program(argv), Path::new("/"))
}

fn sh() -> SpawnCommand<'static> {
    command(&["/bin/sh"])
}

/// Runs a shell script to its end. Returns its end and its output.
fn shell(script: &str, base: SpawnCommand<'_>) -> (ProcessEnd, String) {
    let mut out = tempfile::tempfile().expect("a file");
    let command = SpawnCommand {
        arguments: program(&["/bin/sh", "-c", script]),
        stdout: Some(&out),
        stderr: Some(&out),
        ..base
    };
    let ended = spawn(&command).expect("starts").wait().expect("ends");
    let mut text = String::new();
    out.rewind()
        .and_then(|()| out.read_to_string(&mut text))
        .expect("reads");
    (ended, text)
}

#[test]
fn exit_codes_are_returned() {
    assert_eq!(shell("exit 0", sh()).0, ProcessEnd::Code(0));
    assert_eq!(
        shell("exit 137", sh()).0,
        ProcessEnd::Code(137),
        "an exit code of 137 is no signal"
    );
}

#[test]
fn signals_are_returned() {
    assert_eq!(shell("kill -9 $$", sh()).0, ProcessEnd::Signal(9));
    assert_eq!(shell("kill -TERM $$", sh()).0, ProcessEnd::Signal(15));
}

/// Covers both ways to create namespaces, as far as this host supports them.
#[test]
fn namespaces_contain_shared_memory_and_drop_all_capabilities() {
    for privilege in [Privilege::SysAdmin, Privilege::UserNamespace] {
        if let Err(why) = probe_namespaces(privilege) {
            println!("{privilege:?} skipped: {why}");
            assert!(
                privilege != Privilege::SysAdmin || Privilege::own() != privilege,
                "{why}"
            );
            continue;
        }
        let namespaces = Some(Namespaces {
            privilege,
            shm: 3 << 20,
        });
        let script = "echo x > /dev/shm/headroom-test-left && ipcmk -M 4096 >/dev/null; df -B1 --output=size /dev/shm | tail -1; \
                      grep CapEff /proc/self/status; id -u; readlink /proc/self/ns/ipc";
        let (ended, text) = shell(script, SpawnCommand { namespaces, ..sh() });
        assert_eq!(ended, ProcessEnd::Code(0), "{privilege:?}: {text}");
        let uid = rustix::process::geteuid().as_raw().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let own = std::fs::read_link("/proc/self/ns/ipc").expect("a link");
        assert_eq!(
            &lines[..3],
            ["3145728", "CapEff:\t0000000000000000", uid.as_str()],
            "{privilege:?}"
        );
        assert_ne!(
            lines.last().copied(),
            own.to_str(),
            "{privilege:?}: the caller's IPC namespace"
        );
        assert!(
            !Path::new("/dev/shm/headroom-test-left").exists(),
            "{privilege:?}: the file is on the host"
        );
    }
}

#[test]
fn a_missing_program_is_named() {
    let error = spawn(&command(&["/no/such/program"])).expect_err("must fail");
    assert_eq!(
        (error.step, error.source.raw_os_error()),
        (SpawnStep::Exec, Some(libc::ENOENT))
    );
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn a_missing_directory_is_named() {
    let error = spawn(&SpawnCommand::new(
        program(&["/bin/true"]),
        Path::new("/no/such/dir"),
    ))
    .expect_err("must fail");
    assert_eq!(
        (error.step, error.source.raw_os_error()),
        (SpawnStep::Chdir, Some(libc::ENOENT))
    );
    assert!(error.what.contains("/no/such/dir"));
}

#[test]
fn a_cgroup_that_cannot_be_joined_is_named_and_no_program_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let procs = [PathBuf::from("/no/such/cgroup/cgroup.procs")];
    let witness = dir.path().join("ran");
    let mut command = command(&["/bin/sh", "-c", &format!("touch {}", witness.display())]);
    command.procs_files = &procs;
    let error = spawn(&command).expect_err("must fail");
    assert_eq!(
        (error.step, error.source.raw_os_error()),
        (SpawnStep::Cgroup, Some(libc::ENOENT))
    );
    assert!(error.what.contains("/no/such/cgroup"));
    assert!(!witness.exists());
}

/// Needs a separate process, as nextest gives each test, because it waits for any child.
#[test]
fn a_failed_start_leaves_no_zombie() {
    spawn(&command(&["/no/such/program"])).expect_err("must fail");
    // SAFETY: queries any ended child without reaping it; the buffer for the result is valid.
    let answer = unsafe {
        let mut info = std::mem::zeroed::<libc::siginfo_t>();
        libc::waitid(
            libc::P_ALL,
            0,
            &mut info,
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        )
    };
    assert_eq!(
        (answer, std::io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::ECHILD)),
        "the failed start left a child"
    );
}

#[test]
fn a_directory_is_not_executed_and_a_nul_in_an_argument_is_refused() {
    let dir = spawn(&command(&["/tmp"])).expect_err("must fail");
    assert_eq!(
        (dir.step, dir.source.raw_os_error()),
        (SpawnStep::Exec, Some(libc::EACCES))
    );
    assert_eq!(
        ExecArguments::new(["/bin/true", "a\0b"], &[])
            .expect_err("must fail")
            .step,
        SpawnStep::Prepare
    );
}

#[test]
fn a_bare_name_is_searched_in_the_path_of_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let tool = dir.path().join("only-here");
    std::fs::write(&tool, "#!/bin/sh\nexit 7\n").expect("writes");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    let mut path = OsString::from("/no/such:/tmp:");
    path.push(dir.path());
    let env = [(OsString::from("PATH"), path)];
    let mut command = SpawnCommand::new(with_env(&["only-here"], &env), Path::new("/"));
    assert_eq!(
        spawn(&command).expect("found").wait().expect("ends"),
        ProcessEnd::Code(7)
    );
    command.arguments = program(&["only-here"]);
    assert_eq!(
        spawn(&command).expect_err("not on the default path").step,
        SpawnStep::Exec
    );
}

#[test]
fn the_child_gets_exactly_the_given_environment() {
    let env = [
        (OsString::from("A"), OsString::from("x=y")),
        (OsString::from("B"), OsString::from("")),
    ];
    let mut out = tempfile::tempfile().expect("a file");
    let mut command = SpawnCommand::new(with_env(&["/usr/bin/env"], &env), Path::new("/"));
    command.stdout = Some(&out);
    assert_eq!(
        spawn(&command).expect("starts").wait().expect("ends"),
        ProcessEnd::Code(0)
    );
    let mut text = String::new();
    out.rewind()
        .and_then(|()| out.read_to_string(&mut text))
        .expect("reads");
    assert_eq!(text, "A=x=y\nB=\n");
}

#[test]
fn a_child_inherits_only_three_descriptors() {
    let leak = File::open("/dev/zero").expect("opens");
    // SAFETY: clears close-on-exec of a descriptor that this test owns.
    let cleared = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&leak), libc::F_SETFD, 0) };
    assert_eq!(cleared, 0);
    let (ended, text) = shell("ls /proc/$$/fd; cat", sh());
    assert_eq!(
        (ended, text.split_whitespace().collect::<Vec<_>>()),
        (ProcessEnd::Code(0), vec!["0", "1", "2"]),
        "standard input is empty"
    );
}

#[test]
fn a_child_inherits_named_descriptors_under_their_numbers() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
    let inherited = [std::os::fd::AsFd::as_fd(&writer)];
    let base = SpawnCommand {
        inherited: &inherited,
        ..sh()
    };
    let (ended, text) = shell(&format!("ls /proc/$$/fd; echo through >&{number}"), base);
    assert_eq!(ended, ProcessEnd::Code(0), "{text}");
    let open: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(open.len(), 4, "{text}");
    assert!(open.contains(&number.to_string().as_str()), "{text}");
    drop(writer);
    let through = std::io::read_to_string(reader).expect("reads");
    assert_eq!(through, "through\n");
}

#[test]
fn ignored_and_blocked_signals_of_the_parent_are_reset() {
    // Rust ignores SIGPIPE in every program; a child must not inherit that. The script uses exec,
    // because a shell that waits for a command may block signals meanwhile.
    let (_, text) = shell("exec grep -E 'SigBlk|SigIgn' /proc/self/status", sh());
    assert!(
        text.contains("SigBlk:\t0000000000000000") && text.contains("SigIgn:\t0000000000000000"),
        "{text}"
    );
}

#[test]
fn a_start_restores_the_signal_mask_of_the_parent() {
    let mask = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("reads");
        status
            .lines()
            .find(|l| l.starts_with("SigBlk"))
            .map(str::to_owned)
    };
    let before = mask();
    shell("true", sh());
    assert_eq!(mask(), before);
}

#[test]
fn the_child_leads_its_new_session() {
    let script = "cut -d' ' -f6 /proc/$$/stat; echo $$";
    let (_, text) = shell(
        script,
        SpawnCommand {
            new_session: true,
            ..sh()
        },
    );
    let numbers: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "session and process number");
    let (_, text) = shell(script, sh());
    let numbers: Vec<&str> = text.split_whitespace().collect();
    assert_ne!(numbers[0], numbers[1]);
}

#[test]
fn resource_limits_apply_to_the_child_only() {
    let limits = [
        RlimitSetting {
            limit: RlimitKind::OpenFiles,
            soft: 77,
            hard: 78,
        },
        RlimitSetting {
            limit: RlimitKind::Core,
            soft: 0,
            hard: 0,
        },
    ];
    let (_, text) = shell(
        "ulimit -Sn; ulimit -Hn; ulimit -c",
        SpawnCommand {
            limits: &limits,
            ..sh()
        },
    );
    assert_eq!(text, "77\n78\n0\n");
    assert_ne!(shell("ulimit -Sn", sh()).1, "77\n");
}

#[test]
fn the_oom_score_applies_to_the_child_only() {
    let before = std::fs::read_to_string("/proc/self/oom_score_adj").expect("reads");
    let (_, text) = shell(
        "cat /proc/$$/oom_score_adj",
        SpawnCommand {
            oom_score_adj: Some(500),
            ..sh()
        },
    );
    assert_eq!(text, "500\n");
    assert_eq!(
        std::fs::read_to_string("/proc/self/oom_score_adj").expect("reads"),
        before,
        "the parent's score has changed"
    );
}

#[test]
fn a_child_runs_as_another_user_with_all_its_groups() {
    let user = ProcessUser {
        uid: 65534,
        gid: 65534,
        groups: vec![65534, 12],
    };
    let (_, text) = shell(
        "id -u; id -g; id -G",
        SpawnCommand {
            user: Some(&user),
            ..sh()
        },
    );
    assert_eq!(text, "65534\n65534\n65534 12\n");
    // SAFETY: reads one number.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    assert_eq!(dumpable, 1, "the parent is still dumpable");
}

#[test]
fn the_child_dies_with_its_parents_thread() {
    let pid = std::thread::spawn(|| {
        let mut command = command(&["/bin/sleep", "600"]);
        command.parent_death = Some(libc::SIGKILL);
        spawn(&command).expect("starts")
    })
    .join()
    .expect("joins");
    assert_eq!(pid.wait().expect("ends"), ProcessEnd::Signal(9));
}

#[test]
fn a_child_can_be_watched_signalled_and_polled() {
    let child = spawn(&command(&["/bin/sleep", "600"])).expect("starts");
    assert_eq!(child.try_wait().expect("asks"), None);
    assert_eq!(
        starttime_of(child.pid).expect("asks"),
        Some(child.starttime)
    );
    let watched = WatchedProcess::open(child.pid, child.starttime)
        .expect("asks")
        .expect("is there");
    assert!(watched.is_alive());
    assert!(
        WatchedProcess::open(child.pid, child.starttime + 1)
            .expect("asks")
            .is_none(),
        "another start time, another process"
    );
    watched.signal(libc::SIGTERM).expect("sends");
    assert_eq!(child.wait().expect("ends"), ProcessEnd::Signal(15));
    assert!(!watched.is_alive());
    watched
        .signal(libc::SIGTERM)
        .expect("a signal to an ended process is ignored");
    assert!(
        WatchedProcess::open(child.pid, child.starttime)
            .expect("asks")
            .is_none()
    );
}

#[test]
fn the_pidfd_becomes_readable_when_the_child_ends() {
    let child = spawn(&command(&["/bin/true"])).expect("starts");
    let mut set = [rustix::event::PollFd::from_borrowed_fd(
        child.as_fd(),
        rustix::event::PollFlags::IN,
    )];
    assert_eq!(rustix::event::poll(&mut set, None).expect("polls"), 1);
    assert_eq!(child.try_wait().expect("asks"), Some(ProcessEnd::Code(0)));
}

#[test]
fn a_large_parent_starts_children_without_a_copy_of_its_memory() {
    // fork() would copy the page tables of this memory at each start; with shared memory they are
    // never touched. The small peak of the child proves that it never owned a copy.
    let ballast = vec![7u8; 64 << 20];
    let (ended, text) = shell("grep VmHWM /proc/$$/status", sh());
    assert_eq!(ended, ProcessEnd::Code(0));
    let kib: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!(kib < 16 << 10, "{text}");
    assert_eq!(
        ballast.iter().map(|b| u64::from(*b)).sum::<u64>(),
        7 * (64 << 20),
        "the memory of the parent has changed"
    );
}

#[test]
fn many_threads_start_at_once() {
    let starters: Vec<_> = (0..8)
        .map(|n| {
            std::thread::spawn(move || {
                (0..20)
                    .map(|_| shell(&format!("exit {n}"), sh()).0)
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    for (n, starter) in starters.into_iter().enumerate() {
        let code = ProcessEnd::Code(i32::try_from(n).expect("small"));
        assert!(
            starter
                .join()
                .expect("joins")
                .into_iter()
                .all(|e| e == code)
        );
    }
}

/// A cgroup of this host to join: v1's memory hierarchy or v2's root.
fn scratch_group(name: &str) -> Option<PathBuf> {
    let unique = format!("headroom-test-{}-{name}", std::process::id());
    let bases = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    let base = bases
        .iter()
        .map(Path::new)
        .find(|b| b.join("cgroup.procs").exists())?;
    let dir = base.join(unique);
    std::fs::create_dir(&dir).ok().map(|()| dir)
}

#[test]
fn the_group_is_joined_before_the_program_runs() {
    let dir = scratch_group("exec").expect("this test needs root and a cgroup hierarchy");
    let procs = [dir.join("cgroup.procs")];
    let (ended, text) = shell(
        "cat /proc/self/cgroup",
        SpawnCommand {
            procs_files: &procs,
            ..sh()
        },
    );
    std::fs::remove_dir(&dir).expect("empty again");
    assert_eq!(ended, ProcessEnd::Code(0));
    let last = dir
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    assert!(text.lines().any(|line| line.ends_with(&last)), "{text}");
    let mine = std::fs::read_to_string("/proc/self/cgroup").expect("reads");
    assert!(!mine.contains(&last), "the parent joined the group");
}

/// A group of cgroup v2, next to other hierarchies or alone, with a watch of the writes to its
/// `cgroup.procs`. A host without v2 has none; there these tests pass without a check, and guests
/// run them again.
struct Group2 {
    dir: PathBuf,
    procs: [PathBuf; 1],
    witness: std::os::fd::OwnedFd,
}

impl Group2 {
    fn new(name: &str) -> Option<Group2> {
        let bases = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let base = bases
            .iter()
            .map(Path::new)
            .find(|b| b.join("cgroup.controllers").exists())?;
        let dir = base.join(format!("headroom-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).expect("this test needs root");
        let procs = [dir.join("cgroup.procs")];
        let witness = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
            .expect("a witness");
        inotify::add_watch(&witness, &procs[0], inotify::WatchFlags::MODIFY).expect("watches");
        Some(Group2 {
            dir,
            procs,
            witness,
        })
    }

    /// Whether a process was moved into it since the last call: its file was written.
    fn moved(&self) -> bool {
        let mut room = [0u8; 512];
        match rustix::io::read(&self.witness, &mut room) {
            Ok(length) => length > 0,
            Err(rustix::io::Errno::AGAIN) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a program in it. Returns whether the program is in the group, and whether it was
    /// moved.
    fn start(&self) -> (bool, bool) {
        let (ended, text) = shell(
            "cat /proc/self/cgroup",
            SpawnCommand {
                procs_files: &self.procs,
                ..sh()
            },
        );
        assert_eq!(ended, ProcessEnd::Code(0));
        let last = self
            .dir
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (
            text.lines()
                .any(|line| line.starts_with("0::") && line.ends_with(&last)),
            self.moved(),
        )
    }
}

impl Drop for Group2 {
    fn drop(&mut self) {
        // The group is also removed after a failure; the tests check that it is empty.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

#[test]
fn on_cgroup_v2_the_child_is_cloned_into_the_group_without_a_move() {
    let Some(group) = Group2::new("cloned") else {
        return;
    };
    assert_eq!(group.start(), (true, false));
    // This checks that the watch detects moves.
    std::process::Command::new("/bin/sh")
        .args(["-c", &format!("echo 0 > {}", group.procs[0].display())])
        .status()
        .expect("runs");
    assert!(group.moved());
    std::fs::remove_dir(&group.dir).expect("empty again");
}

#[test]
fn a_missing_program_leaves_its_group_empty() {
    let Some(group) = Group2::new("nothing") else {
        return;
    };
    let command = SpawnCommand {
        procs_files: &group.procs,
        ..command(&["/no/such/program"])
    };
    assert_eq!(
        spawn(&command).expect_err("must fail").step,
        SpawnStep::Exec
    );
    std::fs::remove_dir(&group.dir).expect("empty");
}

#[test]
fn a_group_that_accepts_no_process_is_named() {
    let Some(group) = Group2::new("refusing") else {
        return;
    };
    // A threaded group cannot have sibling groups with processes.
    let (threads, beside) = (group.dir.join("threads"), group.dir.join("beside"));
    std::fs::create_dir(&threads)
        .and_then(|()| std::fs::create_dir(&beside))
        .expect("makes");
    std::fs::write(threads.join("cgroup.type"), "threaded").expect("a group of threads");
    let procs = [beside.join("cgroup.procs")];
    let error = spawn(&SpawnCommand {
        procs_files: &procs,
        ..sh()
    })
    .expect_err("takes no process");
    std::fs::remove_dir(&threads)
        .and_then(|()| std::fs::remove_dir(&beside))
        .expect("empty");
    assert_eq!(
        (error.step, error.source.raw_os_error()),
        (SpawnStep::Cgroup, Some(libc::EOPNOTSUPP)),
        "{error}"
    );
    assert!(error.what.ends_with("beside/cgroup.procs"), "{error}");
}

/// Makes `clone3` fail with ENOSYS in this thread from now on. False where the kernel has no
/// filters.
fn forbid_clone3() -> bool {
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("small"),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(libc::SYS_clone3).expect("small");
    let errno = u32::try_from(libc::ENOSYS).expect("small");
    let mut filter = [
        // The number of the call is the first word of the filter's input.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("small"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes numbers and a filter that lives through the call. Both apply to this thread and
    // its children only.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const program,
            ) == 0
    }
}

#[test]
fn without_clone3_the_child_moves_into_the_group() {
    let Some(group) = Group2::new("forbidden") else {
        return;
    };
    std::thread::spawn(move || {
        if forbid_clone3() {
            assert_eq!(group.start(), (true, true));
        } else {
            println!("SKIPPED: this kernel has no seccomp filters");
        }
    })
    .join()
    .expect("joins");
}
