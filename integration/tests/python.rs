//! The Python packages: their own tests, with the programs of this build, and the tests of tools
//! that they extend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use integration::background::{BackgroundProgram, last_lines};
use integration::python::PythonEnvironment;

/// Timeout of one suite: it starts clusters of daemons.
const SUITE: Duration = Duration::from_secs(540);

#[test]
fn the_package_passes_its_tests_without_a_cluster() -> Result<()> {
    pytest("python", &["-m", "not cluster"])
}

#[test]
fn calls_run_on_a_real_cluster() -> Result<()> {
    pytest("python", &["-m", "cluster", "tests/test_cluster.py"])
}

#[test]
fn joblib_and_parsl_run_on_a_real_cluster() -> Result<()> {
    pytest(
        "python",
        &[
            "-m",
            "cluster",
            "tests/test_joblib.py",
            "tests/test_parsl.py",
        ],
    )
}

#[test]
fn the_wheels_work_without_the_source_tree() -> Result<()> {
    pytest("python", &["-m", "cluster", "tests/test_wheel.py"])
}

#[test]
fn dask_tasks_that_need_more_memory_run_on_larger_workers() -> Result<()> {
    pytest("python", &["-m", "cluster", "tests/test_dask_cluster.py"])
}

#[test]
fn submitit_jobs_run_on_a_real_cluster() -> Result<()> {
    pytest("python", &["-m", "cluster", "tests/test_submitit.py"])
}

#[test]
fn the_snakemake_plugin_passes_its_tests() -> Result<()> {
    pytest("python-snakemake", &[])
}

#[test]
fn the_packages_pass_ruff_and_mypy() -> Result<()> {
    let scripts = "../../integration/python";
    run(
        "python",
        &["-m", "ruff", "check", scripts, "--config", "pyproject.toml"],
    )?;
    for package in ["python", "python-snakemake"] {
        run(package, &["-m", "ruff", "check", "."])?;
        run(package, &["-m", "mypy"])?;
    }
    Ok(())
}

/// Reason of the only tests that may be skipped: those of the standard library, which not every
/// distribution of Python contains.
const ALLOWED_SKIP: &str = "this Python has no package `test`";

/// Runs pytest in a package of `client`; at least one test must run, and only those of the standard
/// library may be skipped.
fn pytest(package: &str, arguments: &[&str]) -> Result<()> {
    let quiet = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-x"];
    let arguments: Vec<&str> = quiet.iter().chain(arguments).copied().collect();
    let output = run(package, &arguments)?;
    let summary = last_lines(&output, 1);
    let mut skipped = output.lines().filter(|line| line.starts_with("SKIPPED"));
    ensure!(
        summary.contains(" passed") && skipped.all(|line| line.ends_with(ALLOWED_SKIP)),
        "{package}: {output}"
    );
    Ok(())
}

/// Runs the interpreter in a package of `client` and returns its output.
fn run(package: &str, arguments: &[&str]) -> Result<String> {
    let folder = client().join(package);
    let mut command = PythonEnvironment::find()?.offline_command()?;
    command.args(arguments);
    let output = BackgroundProgram::start_in(command, &folder)?.wait(SUITE)?;
    ensure!(
        output.code == 0,
        "{arguments:?} in {}: {}\n{}\n{}",
        folder.display(),
        output.code,
        last_lines(&output.stdout, 80),
        last_lines(&output.stderr, 20)
    );
    Ok(output.stdout)
}

/// The folder of the clients.
fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("client")
}
