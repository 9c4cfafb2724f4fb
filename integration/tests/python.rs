//! The Python packages: their own tests, with the programs of this build, and the tests of tools
//! that they extend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_types::Bytes;
use integration::background::{BackgroundProgram, last_lines};
use integration::cluster::{Cluster, NodeShape};
use integration::python::PythonEnvironment;
use integration::spark::lines_of;

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
fn short_calls_share_a_process_and_keep_their_own_limits() -> Result<()> {
    pytest("python", &["-m", "cluster", "tests/test_kept_processes.py"])
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

/// Two nodes behind certificates and tokens, and a user who may submit jobs.
#[test]
fn calls_of_a_user_run_on_a_secured_cluster() -> Result<()> {
    let shape = NodeShape {
        memory: Bytes::from_mib(1024),
        ..NodeShape::default()
    };
    let cluster = Cluster::start_secured(&[shape, shape])?;
    let papers = cluster.papers().context("certificates")?;
    let (token, wrong) = (cluster.dir().join("user"), cluster.dir().join("wrong"));
    let rights = "job:read,job:submit,job:kill";
    let create = ["acl", "token", "create", "--user", "ana", "--right", rights];
    let out = ["--out".to_owned(), token.display().to_string()];
    let arguments: Vec<&str> = create
        .into_iter()
        .chain(out.iter().map(String::as_str))
        .collect();
    let created = cluster.rmctl(&arguments)?;
    ensure!(created.code == 0, "{}", created.stderr);
    let forged = std::fs::read_to_string(&token)?.replace(|c: char| c.is_ascii_digit(), "7");
    std::fs::write(&wrong, forged)?;
    std::fs::set_permissions(&wrong, std::fs::metadata(&token)?.permissions())?;
    let store = cluster.dir().join("store");
    std::fs::create_dir(&store)?;
    let mut command = PythonEnvironment::find()?.command(&cluster)?;
    command
        .env("HEADROOM_CACERT", papers.ca())
        .env("HEADROOM_TOKEN_FILE", &token)
        .env("WRONG_TOKEN_FILE", &wrong)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/secured.py"))
        .arg(&store);
    let output = BackgroundProgram::start(command)?.wait(SUITE)?;
    let lines = lines_of(&output, "RESULT");
    let line = lines.first().with_context(|| output.stderr.clone())?;
    let result: serde_json::Value = serde_json::from_str(line)?;
    ensure!(result["attempts"].as_u64() >= Some(1), "{result}");
    let sentences = ["is not known", "requires authentication", "HEADROOM_CACERT"];
    for (refused, words) in result["refused"]
        .as_array()
        .context("a list")?
        .iter()
        .zip(sentences)
    {
        ensure!(
            refused.as_str().is_some_and(|text| text.contains(words)),
            "{result}"
        );
    }
    Ok(())
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
