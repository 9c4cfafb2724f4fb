//! Apache Spark for tests: pyspark from PyPI with the plugin in `client/spark`.
//!
//! `integration/spark/install` installs the versions and builds the plugin. The runner calls it
//! before the tests and passes the directory in the environment.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_wire::v1::apps::AppView;

use crate::cluster::{Cluster, ProgramOutput, until};

/// The versions that the tests install.
pub const VERSIONS: [&str; 2] = ["3.5.9", "4.1.4"];
/// Environment variable with the directory of the installed versions.
const DIR_VARIABLE: &str = "HEADROOM_SPARK_DIR";
/// Timeout for one application: starts of several JVMs on a loaded machine.
pub const APPLICATION: Duration = Duration::from_secs(240);

/// An installed Spark with the plugin for it.
#[derive(Clone, Debug)]
pub struct SparkInstallation {
    dir: PathBuf,
    plugin: PathBuf,
}

/// The driver of a running application.
#[derive(Debug)]
pub struct SparkDriver {
    child: Child,
    out: tempfile::TempDir,
}

impl SparkInstallation {
    /// The installation of this version. Installs it if the runner did not.
    pub fn of(version: &str) -> Result<SparkInstallation> {
        let root = match std::env::var_os(DIR_VARIABLE) {
            Some(dir) => PathBuf::from(dir),
            None => install(&[version])?,
        };
        let dir = root.join(version);
        let plugin = dir.join("plugin.jar");
        ensure!(
            plugin.exists(),
            "Spark {version} is not installed in {}; run integration/spark/install {version}",
            root.display()
        );
        Ok(SparkInstallation { dir, plugin })
    }

    /// The same Spark with another jar of the plugin.
    pub fn with_plugin(&self, plugin: PathBuf) -> SparkInstallation {
        SparkInstallation {
            dir: self.dir.clone(),
            plugin,
        }
    }

    /// The directory that contains `jars` and `bin`.
    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }
    /// The jar of the plugin.
    pub fn plugin(&self) -> PathBuf {
        self.plugin.clone()
    }
    /// The Python interpreter with pyspark.
    pub fn python(&self) -> PathBuf {
        self.dir.join("bin/python")
    }

    /// Starts `spark-submit` with this master, these settings, and a file of
    /// `integration/spark/jobs` with its arguments.
    pub fn start(
        &self,
        master: &str,
        settings: &[&str],
        job: &str,
        arguments: &[&str],
    ) -> Result<SparkDriver> {
        let out = tempfile::Builder::new()
            .prefix("headroom-spark-")
            .tempdir()?;
        let mut command = Command::new(self.home().join("bin/spark-submit"));
        command
            .arg("--master")
            .arg(master)
            .arg("--jars")
            .arg(self.plugin());
        for setting in [
            "spark.driver.host=127.0.0.1",
            "spark.ui.enabled=false",
            "spark.executor.memory=512m",
            "spark.executor.cores=2",
            "spark.executor.instances=2",
        ]
        .iter()
        .chain(settings)
        {
            command.args(["--conf", setting]);
        }
        let child = command
            .arg(job_file(job))
            .args(arguments)
            .current_dir(out.path())
            .env("SPARK_HOME", self.home())
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("PYSPARK_PYTHON", self.python())
            .env_remove("HEADROOM_ADDR")
            .stdin(Stdio::null())
            .stdout(File::create(out.path().join("stdout"))?)
            .stderr(File::create(out.path().join("stderr"))?)
            .spawn()
            .context("starting spark-submit")?;
        Ok(SparkDriver { child, out })
    }

    /// Starts Spark's history server over the event logs in `events`. It ends when it is dropped.
    pub fn history_server(&self, events: &Path, port: u16) -> Result<SparkDriver> {
        let out = tempfile::Builder::new()
            .prefix("headroom-spark-")
            .tempdir()?;
        let child = Command::new("java")
            .arg("-Xmx256m")
            .arg(format!(
                "-Dspark.history.fs.logDirectory=file://{}",
                events.display()
            ))
            .arg("-Dspark.history.fs.update.interval=1s")
            .arg(format!("-Dspark.history.ui.port={port}"))
            .arg("-cp")
            .arg(format!("{}/jars/*", self.home().display()))
            .arg("org.apache.spark.deploy.history.HistoryServer")
            .current_dir(out.path())
            .env("SPARK_HOME", self.home())
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .stdin(Stdio::null())
            .stdout(File::create(out.path().join("stdout"))?)
            .stderr(File::create(out.path().join("stderr"))?)
            .spawn()
            .context("starting the history server")?;
        Ok(SparkDriver { child, out })
    }

    /// Runs an application to its end.
    pub fn submit(
        &self,
        master: &str,
        settings: &[&str],
        job: &str,
        arguments: &[&str],
    ) -> Result<ProgramOutput> {
        self.start(master, settings, job, arguments)?
            .wait(APPLICATION)
    }
}

impl SparkDriver {
    /// Process id of the driver.
    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Waits for the end of the driver and returns its output. Ends it after the timeout.
    pub fn wait(mut self, timeout: Duration) -> Result<ProgramOutput> {
        let child = &mut self.child;
        let ended = until("the end of the driver", timeout, || Ok(child.try_wait()?));
        let code = match ended {
            Ok(status) => status.code().unwrap_or(-1),
            Err(error) => {
                let log = last_lines(&self.read("stderr"), 40);
                return Err(error.context(format!("the log of the driver ends with:\n{log}")));
            }
        };
        Ok(ProgramOutput {
            code,
            stdout: self.read("stdout"),
            stderr: self.read("stderr"),
        })
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.out.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for SparkDriver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The master URL of a cluster.
pub fn master_url(cluster: &Cluster) -> String {
    let (scheme, address) = match cluster.url().split_once("://") {
        Some(("https", address)) => ("spark-headroom+https", address.to_owned()),
        Some((_, address)) => ("spark-headroom", address.to_owned()),
        None => ("spark-headroom", cluster.url()),
    };
    format!("{scheme}://{address}")
}

/// The only application of a cluster.
pub fn only_app(cluster: &Cluster) -> Result<AppView> {
    let apps = cluster.call(cluster.client().apps())?;
    let [app] = apps.as_slice() else {
        bail!("{} applications", apps.len())
    };
    cluster.app(&app.id)
}

/// The path of a program in `integration/spark/jobs`.
pub fn job_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("spark/jobs")
        .join(name)
}

/// The lines of the output that begin with `word`, without it.
pub fn lines_of<'a>(output: &'a ProgramOutput, word: &str) -> Vec<&'a str> {
    output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix(word))
        .map(str::trim)
        .collect()
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn install(versions: &[&str]) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("spark/install");
    let output = Command::new(&script)
        .args(versions)
        .env_remove("NEXTEST_ENV")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(output.status.success(), "{} failed", script.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("HEADROOM_SPARK_DIR="))
        .context("no HEADROOM_SPARK_DIR in the output of the installer")?;
    Ok(PathBuf::from(line))
}
