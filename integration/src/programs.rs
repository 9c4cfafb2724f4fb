//! Paths of the built programs and test binaries.
//!
//! The runner's setup script (`integration/programs`) builds them once and passes the paths in the
//! environment. Without it, as under plain `cargo test`, this module runs the script once per
//! process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Environment variable with the directory of the programs. The daemons also use it to find each
/// other.
pub const DIR_VARIABLE: &str = "HEADROOM_BIN_DIR";
/// Environment variable with the file of cargo's messages about test binaries.
const TESTS_VARIABLE: &str = "HEADROOM_TEST_BINARIES";

/// A test binary of another package.
#[derive(Clone, Debug)]
pub struct TestBinary {
    /// The binary itself.
    pub path: PathBuf,
    /// Its package's folder, in which cargo runs it.
    pub folder: PathBuf,
}

#[derive(Debug)]
struct Built {
    dir: PathBuf,
    tests: PathBuf,
}

/// The directory of `resourcemanager`, `nodeagent`, `rmctl` and the others.
pub fn dir() -> Result<&'static Path> {
    Ok(&built()?.dir)
}

/// The path of one program.
pub fn path(name: &str) -> Result<PathBuf> {
    let path = dir()?.join(name);
    ensure!(
        path.is_file(),
        "{} is not built; run `cargo build --workspace --bins`",
        path.display()
    );
    Ok(path)
}

/// The test binaries of `package`.
pub fn tests_of(package: &str) -> Result<Vec<TestBinary>> {
    let list = &built()?.tests;
    let text =
        std::fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let found: Vec<TestBinary> = text
        .lines()
        .filter_map(|line| test_binary(line, package))
        .collect();
    ensure!(
        !found.is_empty(),
        "{} names no test binary of {package}",
        list.display()
    );
    Ok(found)
}

/// Compiles one Go file, offline.
pub fn compile_go(source: &Path, program: &Path) -> Result<()> {
    let dir = tempfile::tempdir().context("a directory for the caches of Go")?;
    let mut go = Command::new("go");
    go.args(["build", "-o"])
        .arg(program)
        .arg(source)
        .current_dir(dir.path());
    for own in ["GOCACHE", "GOPATH", "GOTMPDIR"] {
        let place = dir.path().join(own);
        std::fs::create_dir(&place)?;
        go.env(own, place);
    }
    // No modules, so no network access; no cgo, so that it links no libc, like most Go programs.
    go.envs([
        ("GO111MODULE", "off"),
        ("GOPROXY", "off"),
        ("GOTOOLCHAIN", "local"),
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", ""),
    ]);
    let output = go.output().context("go: `apt-get install -y golang-go`")?;
    ensure!(
        output.status.success(),
        "go: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The test binary in one message of cargo, if it belongs to `package`.
fn test_binary(line: &str, package: &str) -> Option<TestBinary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let id = message["package_id"].as_str()?;
    let ours = id.contains(&format!("#{package}@")) || id.contains(&format!("/{package}#"));
    if !is_test || !ours {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?)
        .parent()?
        .to_owned();
    Some(TestBinary {
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

fn built() -> Result<&'static Built> {
    static BUILT: OnceLock<Result<Built>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        match (
            std::env::var_os(DIR_VARIABLE),
            std::env::var_os(TESTS_VARIABLE),
        ) {
            (Some(dir), tests) => Ok(Built {
                dir: dir.into(),
                tests: tests.unwrap_or_default().into(),
            }),
            (None, _) => build(),
        }
    });
    built.as_ref().map_err(|e| anyhow::anyhow!("{e:#}"))
}

fn build() -> Result<Built> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    // A release build of the caller needs release builds of the programs.
    let profile = if cfg!(debug_assertions) {
        None
    } else {
        Some("--release")
    };
    let output = Command::new(&script)
        .args(profile)
        .env_remove("NEXTEST_ENV")
        .output()
        .context("integration/programs")?;
    ensure!(
        output.status.success(),
        "integration/programs: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).context("the output of integration/programs")?;
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        line.map(PathBuf::from)
            .with_context(|| format!("integration/programs did not print {name}"))
    };
    Ok(Built {
        dir: value(DIR_VARIABLE)?,
        tests: value(TESTS_VARIABLE).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_of_the_package_are_found() {
        let line = |package: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///src/nodeagent/exec#{package}@0.1.0",
                "manifest_path":"/src/nodeagent/exec/Cargo.toml","profile":{{"test":{test}}},"executable":"/t/deps/x-1"}}"#
            )
        };
        let found = test_binary(&line("headroom-node-exec", true), "headroom-node-exec")
            .expect("a test binary");
        assert_eq!(
            (found.path, found.folder),
            ("/t/deps/x-1".into(), "/src/nodeagent/exec".into())
        );
        assert!(
            test_binary(&line("headroom-node-exec", false), "headroom-node-exec").is_none(),
            "a program"
        );
        assert!(
            test_binary(&line("headroom-node-core", true), "headroom-node-exec").is_none(),
            "another package"
        );
        assert!(test_binary("warning: not JSON", "headroom-node-exec").is_none());
    }
}
