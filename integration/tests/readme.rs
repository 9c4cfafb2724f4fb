//! The commands in the README, run as written, from top to bottom.
//!
//! Commands that build or install for a long time are not repeated. They are compared with those of
//! continuous integration, which must be equal.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{doc_commands, programs};

/// Timeout of one block, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(540);

/// Two terminals in a separate network namespace, in which the default address is free. The first
/// block runs in one terminal until the second block, in the other terminal, has ended.
const TERMINALS: &str = r#"
    ip link set lo up
    bash -euo pipefail -c "$FIRST" &
    first=$!
    trap 'kill -INT $first; wait $first' EXIT
    until (: </dev/tcp/127.0.0.1/7070) 2>/dev/null; do kill -0 $first; sleep 0.1; done
    bash -euo pipefail -c "$SECOND"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn readme() -> Result<String> {
    fs::read_to_string(root().join("README.md")).context("README.md")
}

/// The blocks: build and demonstration, tests, a cluster, and the commands for that cluster.
fn typed_in() -> Result<[String; 4]> {
    let blocks = doc_commands::blocks(&readme()?, "sh");
    let n = blocks.len();
    blocks
        .try_into()
        .ok()
        .with_context(|| format!("README.md has {n} shell blocks, but this test expects four"))
}

#[test]
fn the_test_command_is_that_of_continuous_integration() -> Result<()> {
    let [_, test, ..] = typed_in()?;
    let ci = fs::read_to_string(root().join(".ci/run"))?;
    ensure!(
        ci.lines().any(|line| line == test.trim_end()),
        ".ci/run does not call {test}"
    );
    Ok(())
}

#[test]
fn the_first_command_builds_and_runs_the_demo() -> Result<()> {
    let [first, ..] = typed_in()?;
    let (build, demo) = first
        .trim_end()
        .split_once(" && ")
        .context("a build and a command after it")?;
    let builds = fs::read_to_string(root().join("integration/programs"))?;
    ensure!(
        builds
            .lines()
            .any(|line| line.trim() == format!("{build} --locked --quiet")),
        "no test calls {build}"
    );
    let typed = demo
        .strip_prefix("./target/release/")
        .context("a program of that build")?;
    let place = tempfile::tempdir()?;
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", typed])
        .current_dir(place.path())
        .env_remove("HEADROOM_ADDR");
    shell.env(programs::DIR_VARIABLE, programs::dir()?);
    let said = doc_commands::run(&mut shell, &place.path().join(".said"), TIMEOUT)?;
    ensure!(
        said.contains("out of memory") || said.contains("killed"),
        "no kill was shown:\n{said}"
    );
    Ok(())
}

#[test]
#[allow(clippy::print_stdout)] // the runner counts these lines
fn a_local_cluster_runs_in_two_terminals() -> Result<()> {
    let alone = Command::new("unshare")
        .args(["--net", "ip", "link", "set", "lo", "up"])
        .output();
    if !alone.is_ok_and(|ran| ran.status.success()) {
        println!("SKIPPED: this user may not have a network of its own");
        return Ok(());
    }
    let [_, _, first, second] = typed_in()?;
    let place = tempfile::tempdir()?;
    let mut shell = Command::new("unshare");
    shell
        .args(["--net", "bash", "-euo", "pipefail", "-c", TERMINALS])
        .current_dir(root());
    shell
        .env("FIRST", first)
        .env("SECOND", second)
        .env_remove("HEADROOM_ADDR");
    let said = doc_commands::run(&mut shell, &place.path().join("said"), TIMEOUT)?;
    for word in ["hello.1", "http://127.0.0.1:7070", "finished"] {
        ensure!(said.contains(word), "{word} was not printed:\n{said}");
    }
    Ok(())
}

#[test]
fn the_job_file_compiles() -> Result<()> {
    let jobs = doc_commands::blocks(&readme()?, "toml");
    ensure!(jobs.len() == 1, "README.md shows one job");
    let job = headroom_config::job::compile(&jobs[0], "README.md");
    job.map_err(|problems| anyhow::anyhow!("{}", headroom_config::render(&problems)))?;
    Ok(())
}

/// All files and directories to which the README links exist.
#[test]
fn all_linked_files_exist() -> Result<()> {
    let text = readme()?;
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|t| !t.contains("://"));
    let mut seen = 0;
    for target in targets {
        seen += 1;
        let path = root().join(target.split('#').next().unwrap_or_default());
        ensure!(path.exists(), "README.md links to a missing {target}");
    }
    ensure!(seen > 10, "only {seen} links were found");
    Ok(())
}
