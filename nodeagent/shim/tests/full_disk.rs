//! The exit record on a full disk: a tmpfs of this test, which other programs fill.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headroom_container_shim::record::{ExitRecord, ProgramEnd, ProgramSpec, StartResult};

/// Number of containers that end while other programs take each free block.
const ENDS: usize = 40;

/// A small disk.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Disk {
        let dir = tempfile::tempdir().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "headroom-test"])
            .arg(dir.path())
            .status();
        assert!(mounted.expect("mount runs").success(), "needs root");
        Disk(dir)
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Takes all free blocks. Returns when none is left.
    fn fill(&self) {
        let mut file = filler_file(&self.filler());
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).expect("removes");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

fn filler_file(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("opens")
}

/// A container whose program runs until it is killed.
struct Container {
    dir: PathBuf,
    shim: Child,
    pid: i32,
}

impl Container {
    fn start(disk: &Disk, name: &str, counters: Vec<PathBuf>) -> Container {
        let dir = disk.0.path().join(name);
        std::fs::create_dir(&dir).expect("makes");
        let spec = ProgramSpec {
            argv: ["/bin/sleep", "600"].map(OsString::from).into(),
            cwd: "/".into(),
            counters,
            ..ProgramSpec::default()
        };
        std::fs::write(dir.join("spec"), spec.encode()).expect("writes");
        let mut shim = Command::new(env!("CARGO_BIN_EXE_container-shim"))
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        let mut line = String::new();
        BufReader::new(shim.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        match StartResult::decode(&line) {
            Some(StartResult::Started { pid }) => Container { dir, shim, pid },
            other => panic!("{other:?}"),
        }
    }

    fn kill(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kills");
    }

    fn record(&mut self) -> ExitRecord {
        let ended = self.shim.wait().expect("the shim ends");
        assert!(ended.success(), "the record could not be written");
        let text = std::fs::read(self.dir.join("exit")).expect("a record");
        ExitRecord::decode(&text).expect("whole")
    }
}

const KILLED: ProgramEnd = ProgramEnd::Signal {
    signal: 9,
    core: false,
};

#[test]
fn an_end_is_recorded_while_others_take_each_free_block() {
    let disk = Disk::mount();
    for n in 0..ENDS {
        let mut container = Container::start(&disk, &n.to_string(), Vec::new());
        disk.fill();
        let is_over = AtomicBool::new(false);
        let record = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = filler_file(&disk.filler());
                while !is_over.load(Ordering::Relaxed) {
                    let _ = file.write_all(&[0; 4096]);
                }
            });
            container.kill();
            let ended = container.shim.wait();
            is_over.store(true, Ordering::Relaxed);
            ended.map(|_| container.record().how)
        });
        assert_eq!(record.expect("ends"), KILLED);
        disk.free();
        std::fs::remove_dir_all(&container.dir).expect("removes");
    }
}

/// A record with counters is longer than the specification.
#[test]
fn a_record_that_does_not_fit_waits_for_space() {
    let disk = Disk::mount();
    let counters = vec![PathBuf::from("/proc/vmstat"); 4];
    let mut container = Container::start(&disk, "long", counters);
    disk.fill();
    container.kill();
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_tried = || {
        std::fs::read(container.dir.join("spec"))
            .is_ok_and(|text| text.starts_with(b"headroom-exit"))
    };
    while !is_tried() {
        assert!(Instant::now() < deadline, "the shim has not tried to write");
        std::thread::yield_now();
    }
    assert_eq!(container.shim.try_wait().expect("asks"), None);
    disk.free();
    let record = container.record();
    assert_eq!(record.how, KILLED);
    assert_eq!(record.counters.len(), 4);
    assert!(!container.dir.join("spec").exists());
}
