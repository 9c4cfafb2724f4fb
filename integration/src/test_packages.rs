//! Debian packages of the programs that the tests start, of this release and of a simulated later
//! release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::ran;
use crate::programs;

/// Version of the later release.
pub const LATER: &str = "9.9.9-1";
/// The same, as its programs report it.
pub const LATER_PROGRAM: &str = "9.9.9";

/// Builds all three packages in `dir/now`, and those of the daemons in `dir/later`. The latter
/// differ only in their version.
pub fn packages(dir: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = programs::dir()?;
    let profile = if built.ends_with("release") {
        "release"
    } else {
        "dev"
    };
    let mut pack = Command::new(root.join("integration/packages"));
    pack.args(["--profile", profile, "--no-build", "--quick", "--to"])
        .arg(dir.join("now"));
    pack.env(
        "CARGO_TARGET_DIR",
        built.parent().context("the target directory")?,
    );
    let output = ran(pack)?;
    ensure!(
        output.code == 0,
        "integration/packages: {}{}",
        output.stdout,
        output.stderr
    );
    fs::create_dir(dir.join("later"))?;
    let daemons = |e: &fs::DirEntry| {
        !e.file_name()
            .to_string_lossy()
            .starts_with("headroom-client")
    };
    fs::read_dir(dir.join("now"))?
        .flatten()
        .filter(daemons)
        .try_for_each(|deb| later(&deb.path(), &dir.join("later"), ""))
}

/// Builds the package of the resource manager in `dir/upgrade` from the one in `dir/now`, with a
/// program that reports the later version.
pub fn upgrade(dir: &Path) -> Result<()> {
    let (now, to) = (env!("CARGO_PKG_VERSION"), dir.join("upgrade"));
    ensure!(
        now.len() == LATER_PROGRAM.len(),
        "version {now} is not as long as {LATER_PROGRAM}"
    );
    fs::create_dir(&to)?;
    // The version is a constant of the program, also where another text contains it.
    let pattern = now.replace('.', "[.]");
    let program = "\"$2/in/usr/bin/resourcemanager\"";
    let change = format!(
        "LC_ALL=C sed -i 's/{pattern}/{LATER_PROGRAM}/g' {program} && \
         {program} --version | grep -qw {LATER_PROGRAM} &&"
    );
    let manager = |e: &fs::DirEntry| {
        let name = e.file_name();
        name.to_string_lossy().starts_with("headroom-manager")
    };
    fs::read_dir(dir.join("now"))?
        .flatten()
        .filter(manager)
        .try_for_each(|deb| later(&deb.path(), &to, &change))
}

/// Builds a package again with the later version, after the commands `change`.
fn later(deb: &Path, to: &Path, change: &str) -> Result<()> {
    let inside = tempfile::tempdir()?;
    let name = deb
        .file_name()
        .context("a name")?
        .to_string_lossy()
        .replace(env!("CARGO_PKG_VERSION"), LATER_PROGRAM);
    let script = format!(
        "dpkg-deb -R \"$1\" \"$2/in\" && sed -i \"s/^Version: .*/Version: $4/\" \"$2/in/DEBIAN/control\" && {change} \
         dpkg-deb --root-owner-group -Znone --build \"$2/in\" \"$3\" >/dev/null"
    );
    let mut command = Command::new("sh");
    command
        .args(["-ec", &script, "sh"])
        .args([deb, inside.path(), &to.join(name)])
        .arg(LATER);
    let output = ran(command)?;
    ensure!(output.code == 0, "{}: {}", deb.display(), output.stderr);
    Ok(())
}
