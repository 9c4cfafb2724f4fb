//! Apache Spark for tests: pyspark from PyPI with the plugin in `client/spark`.
//!
//! `integration/spark/install` installs the versions and builds the plugin. The runner calls it
//! before the tests and passes the directory in the environment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::TaskRow;

use crate::background::{BackgroundProgram, last_lines, run_installer};
use crate::cluster::{Cluster, NodeShape, ProgramOutput, SOON, free_port, until};

/// The versions that the tests install.
pub const VERSIONS: [&str; 2] = ["3.5.9", "4.1.4"];
/// Environment variable with more versions to test, separated by spaces or commas.
const MORE_VARIABLE: &str = "HEADROOM_SPARK_VERSIONS";
/// Environment variable with the directory of the installed versions.
const DIR_VARIABLE: &str = "HEADROOM_SPARK_DIR";
/// Timeout for one application: starts of several JVMs on a loaded machine.
pub const APPLICATION: Duration = Duration::from_secs(240);

/// These versions, and those that the environment adds.
pub fn versions_with(usual: &[&str]) -> Vec<String> {
    let more = std::env::var(MORE_VARIABLE).unwrap_or_default();
    let mut all: Vec<String> = usual.iter().map(|version| (*version).to_owned()).collect();
    for version in more.split([' ', ',']).filter(|version| !version.is_empty()) {
        if !all.iter().any(|known| known == version) {
            all.push(version.to_owned());
        }
    }
    all
}

/// An installed Spark with the plugin for it.
#[derive(Clone, Debug)]
pub struct SparkInstallation {
    dir: PathBuf,
    plugin: PathBuf,
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
    ) -> Result<BackgroundProgram> {
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
        command
            .arg(job_file(job))
            .args(arguments)
            .env("SPARK_HOME", self.home())
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("PYSPARK_PYTHON", self.python())
            .env_remove("HEADROOM_ADDR");
        BackgroundProgram::start(command)
    }

    /// Starts Spark's history server over the event logs in `events`. It ends when it is dropped.
    pub fn history_server(&self, events: &Path, port: u16) -> Result<BackgroundProgram> {
        let mut command = Command::new("java");
        command
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
            .env("SPARK_HOME", self.home())
            .env("SPARK_LOCAL_IP", "127.0.0.1");
        BackgroundProgram::start(command)
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

/// The master URL of a cluster.
pub fn master_url(cluster: &Cluster) -> String {
    let url = cluster.url();
    let scheme = if url.starts_with("https://") {
        "spark-headroom+https"
    } else {
        "spark-headroom"
    };
    let places = url.replace("https://", "").replace("http://", "");
    format!("{scheme}://{places}")
}

/// A job of short stages that goes on until it is ended.
#[derive(Debug)]
pub struct WaitingJob {
    /// The driver.
    pub driver: BackgroundProgram,
    dir: tempfile::TempDir,
}

impl WaitingJob {
    /// Starts the job, and waits for its first results.
    pub fn start(
        spark: &SparkInstallation,
        cluster: &Cluster,
        settings: &[&str],
    ) -> Result<WaitingJob> {
        let dir = tempfile::tempdir()?;
        let (started, end) = (dir.path().join("started"), dir.path().join("end"));
        let files = [started.display().to_string(), end.display().to_string()];
        let arguments: Vec<&str> = files.iter().map(String::as_str).collect();
        let driver = spark.start(&master_url(cluster), settings, "waiting.py", &arguments)?;
        until("the first round", APPLICATION, || {
            Ok(started.exists().then_some(()))
        })?;
        Ok(WaitingJob { driver, dir })
    }

    /// Lets the job end, and returns the output of its driver.
    pub fn end(self) -> Result<ProgramOutput> {
        fs::write(self.dir.path().join("end"), "")?;
        self.driver.wait(APPLICATION)
    }

    /// Lets the job end, and checks that its result is right and that no executor was lost.
    pub fn end_undisturbed(self, cluster: &Cluster) -> Result<()> {
        let output = self.end()?;
        ended_clean(cluster, &output)?;
        ensure!(
            lines_of(&output, "RESULT") == ["780 True"],
            "{}",
            output.stdout
        );
        ensure!(
            !output.stderr.contains("Lost executor"),
            "executors must live on:\n{}",
            last_lines(&output.stderr, 40)
        );
        Ok(())
    }
}

/// The application that was submitted last.
pub fn newest_app(cluster: &Cluster) -> Result<AppView> {
    let apps = cluster.call(cluster.client().apps())?;
    let newest = apps.iter().max_by_key(|app| app.submitted);
    cluster.app(&newest.context("no application")?.id)
}

/// The only application of a cluster.
pub fn only_app(cluster: &Cluster) -> Result<AppView> {
    let apps = cluster.call(cluster.client().apps())?;
    let [app] = apps.as_slice() else {
        bail!("{} applications", apps.len())
    };
    cluster.app(&app.id)
}

/// Checks that the application ended with success and left no container.
pub fn ended_clean(cluster: &Cluster, output: &ProgramOutput) -> Result<AppView> {
    ensure!(
        output.code == 0,
        "the driver ended with {}:\n{}\n{}",
        output.code,
        output.stdout,
        last_lines(&output.stderr, 60)
    );
    let app = until("the application to finish", SOON, || {
        let app = newest_app(cluster)?;
        Ok(app.state.is_final().then_some(app))
    })?;
    ensure!(app.state == AppState::Finished, "{app:#?}");
    without_containers(cluster, &app.id)?;
    Ok(app)
}

/// Waits until all containers of an application have ended.
pub fn without_containers(cluster: &Cluster, app: &AppId) -> Result<()> {
    until("all containers to end", SOON, || {
        let all = cluster.call(cluster.client().containers(Some(app)))?;
        Ok(all.iter().all(|c| c.state == "exited").then_some(()))
    })
}

/// Tasks that had a memory failure, with their rows.
pub fn with_memory_failures(app: &AppView) -> Vec<&TaskRow> {
    app.job
        .iter()
        .flat_map(|job| &job.tasks)
        .filter(|row| row.attempts.iter().any(|a| a.dimension.is_some()))
        .collect()
}

/// Two nodes with one address and one shuffle service each. Also returns a directory of Java that
/// gives executors the address and the port of their node, and the port of the shuffle service of
/// `node-2`.
pub fn two_nodes(spark: &SparkInstallation) -> Result<(Cluster, tempfile::TempDir, u16)> {
    let (first, second) = (free_port()?, free_port()?);
    let of_node = format!("case $HEADROOM_NODE in node-2) port={second};; *) port={first};; esac");
    let configuration = format!(
        "[isolation]\nrun_as = \"agent\"\nallow_root = true\nprivate_tmp = false\n\
         [aux_services.spark-shuffle]\nmemory = \"512MiB\"\n\
         command = [\"sh\", \"-c\", \"{of_node}; exec java -Xmx256m \
         -Dspark.shuffle.service.port=$port -cp '{}/jars/*:{}' \
         org.apache.spark.deploy.headroom.ShuffleService\"]\n",
        spark.home().display(),
        spark.plugin().display(),
    );
    let node = NodeShape {
        memory: Bytes::from_mib(1700),
        cpus: 4,
        enforcer: None,
    };
    let cluster = Cluster::start_configured(&[node, node], &configuration)?;
    let java = tempfile::tempdir()?;
    fs::create_dir(java.path().join("bin"))?;
    let program = java.path().join("bin/java");
    fs::write(
        &program,
        format!(
            "#!/bin/bash\n{of_node}\n\
             for n in $(seq 600); do\n\
             (: > /dev/tcp/127.0.0.1/$port) 2> /dev/null && break; sleep 0.2\n\
             done\n\
             [ $HEADROOM_NODE = node-2 ] && export SPARK_LOCAL_IP=127.0.0.2\n\
             exec java -Dspark.shuffle.service.port=$port \"$@\"\n"
        ),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(java.path(), fs::Permissions::from_mode(0o755))?;
    Ok((cluster, java, second))
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

fn install(versions: &[&str]) -> Result<PathBuf> {
    run_installer("spark/install", versions, DIR_VARIABLE)
}
