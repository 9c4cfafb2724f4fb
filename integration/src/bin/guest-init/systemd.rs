//! systemd as process 1 of a guest: a copy-on-write root over the host's files, and then the host's
//! own systemd.
//!
//! The host's own units are hidden, and all units that tests do not need are masked. With them a
//! boot takes 30 s, without them 2 s.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use integration::guest::job::{self, GuestJob};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot, execv};

use crate::mounts;

/// First argument of this program as the unit of the job under systemd.
pub(crate) const UNIT_ARGUMENT: &str = "--unit";

const NEW_ROOT: &str = "/mnt/root";

/// Units that a guest does not need.
const MASKED: [&str; 36] = [
    "apparmor.service",
    "console-getty.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "keyboard-setup.service",
    "kmod-static-nodes.service",
    "ldconfig.service",
    "networking.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-boot-system-token.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-flush.service",
    "systemd-logind.service",
    "systemd-machine-id-commit.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-setup.service",
    "systemd-update-utmp.service",
];
const MASKED_TOO: [&str; 4] = [
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
];

/// The unit that runs this program with [`UNIT_ARGUMENT`], and the target that wants it. A guest
/// with a disk also starts the enabled units of its installed packages.
const TARGET: &str = "[Unit]\nWants=guest-job.service basic.target dbus.socket ENABLED\nAfter=basic.target\nAllowIsolate=yes\n";
const SERVICE: &str =
    "[Unit]\nAfter=basic.target dbus.socket\n[Service]\nType=exec\nExecStart=INIT --unit\n";

/// Sets up the root and executes systemd; returns only on failure.
pub(crate) fn become_systemd(
    dir: &Path,
    task: &GuestJob,
    files: &BTreeMap<PathBuf, String>,
    windows: &BTreeMap<PathBuf, PathBuf>,
) -> Result<()> {
    load_overlay()?;
    mounts::fresh("tmpfs", "/mnt")?;
    fs::create_dir(NEW_ROOT)?;
    let written = Path::new(if task.disk.is_some() {
        job::DISK
    } else {
        "/mnt"
    });
    let first = !written.join("upper").exists();
    for part in ["upper", "work"] {
        fs::create_dir_all(written.join(part))?;
    }
    let options = format!(
        "lowerdir=/,upperdir={0}/upper,workdir={0}/work",
        written.display()
    );
    mount(
        Some("none"),
        NEW_ROOT,
        Some("overlay"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .context("the copy-on-write root")?;
    for at in job::HIDDEN {
        mounts::fresh("tmpfs", &format!("{NEW_ROOT}{at}"))?;
    }
    mounts::window(
        dir,
        Path::new(&format!("{NEW_ROOT}{}", job::MOUNT)),
        MsFlags::empty(),
    )?;
    for (at, host) in task.keep.iter().map(|kept| (kept, kept)).chain(windows) {
        mounts::window(host, &in_root(at)?, MsFlags::MS_RDONLY)?;
    }
    // A system that was on this disk before boots unchanged.
    if first {
        lay(
            files,
            if task.disk.is_some() {
                "multi-user.target"
            } else {
                ""
            },
        )?;
    }
    chdir(NEW_ROOT)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("moving to the new root")?;
    chroot(".")?;
    chdir("/")?;
    let words = [
        "/lib/systemd/systemd",
        "--unit=guest-job.target",
        "--log-target=console",
        "--show-status=no",
    ];
    let words: Vec<CString> = words
        .iter()
        .map(|w| CString::new(*w))
        .collect::<Result<_, _>>()?;
    let never = execv(&words[0], &words)
        .context("/lib/systemd/systemd: `apt-get install -y systemd dbus`")?;
    match never {}
}

fn load_overlay() -> Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let path = format!(
        "/usr/lib/uml/modules/{}/kernel/fs/overlayfs/overlay.ko",
        release.trim()
    );
    let file = File::open(&path).with_context(|| path.clone())?;
    finit_module(&file, c"", ModuleInitFlags::empty()).with_context(|| format!("loading {path}"))
}

fn in_root(path: &Path) -> Result<PathBuf> {
    let relative = path
        .strip_prefix("/")
        .with_context(|| format!("{} is not absolute", path.display()))?;
    Ok(Path::new(NEW_ROOT).join(relative))
}

/// Removes the host's own configuration of systemd, masks units, and writes the files of the job.
fn lay(files: &BTreeMap<PathBuf, String>, enabled: &str) -> Result<()> {
    let etc = Path::new(NEW_ROOT).join("etc");
    let units = etc.join("systemd/system");
    let generators = etc.join("systemd/system-generators");
    for dir in [&units, &generators] {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
    }
    for unit in MASKED.iter().chain(&MASKED_TOO) {
        symlink("/dev/null", units.join(unit))?;
    }
    for generator in fs::read_dir(Path::new(NEW_ROOT).join("lib/systemd/system-generators"))? {
        symlink("/dev/null", generators.join(generator?.file_name()))?;
    }
    fs::write(etc.join("fstab"), "")?;
    let id = etc.join("machine-id");
    if id.exists() {
        fs::remove_file(&id)?;
    }
    fs::write(&id, "0123456789abcdef0123456789abcdef\n")?;
    let init = std::env::current_exe()?;
    fs::write(
        units.join("guest-job.target"),
        TARGET.replace("ENABLED", enabled),
    )?;
    fs::write(
        units.join("guest-job.service"),
        SERVICE.replace("INIT", init.to_str().context("UTF-8")?),
    )?;
    for (path, text) in files {
        let path = in_root(path)?;
        ensure!(
            path.components().all(|c| c.as_os_str() != ".."),
            "{} leaves the root",
            path.display()
        );
        fs::create_dir_all(path.parent().context("a file needs a directory")?)?;
        fs::write(&path, text).with_context(|| format!("laying {}", path.display()))?;
    }
    Ok(())
}
