//! The Python packages in `client/` for tests, in an environment with the tools that they extend.
//!
//! `integration/python/install` makes the environment. The runner calls it before the tests and
//! passes the directory in the environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::background::{BackgroundProgram, run_installer};
use crate::cluster::Cluster;
use crate::programs;

/// Environment variable with the directory of the Python environment.
const DIR_VARIABLE: &str = "HEADROOM_PYTHON_DIR";

/// A Python environment with the package `headroom`.
#[derive(Clone, Debug)]
pub struct PythonEnvironment {
    dir: PathBuf,
}

impl PythonEnvironment {
    /// The environment of the runner. Installs it if the runner did not.
    pub fn find() -> Result<PythonEnvironment> {
        let dir = match std::env::var_os(DIR_VARIABLE) {
            Some(dir) => PathBuf::from(dir),
            None => run_installer("python/install", &[], DIR_VARIABLE)?,
        };
        let environment = PythonEnvironment { dir };
        ensure!(
            environment.interpreter().exists(),
            "no Python in {}; run integration/python/install",
            environment.dir.display()
        );
        Ok(environment)
    }

    /// The interpreter.
    pub fn interpreter(&self) -> PathBuf {
        self.dir.join("bin/python")
    }

    /// Starts a script of `integration/python` that finds the cluster by its environment.
    pub fn start(
        &self,
        cluster: &Cluster,
        script: &str,
        arguments: &[&str],
    ) -> Result<BackgroundProgram> {
        let mut command = self.command(cluster)?;
        command
            .arg(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("python")
                    .join(script),
            )
            .args(arguments);
        BackgroundProgram::start(command)
    }

    /// The interpreter in an environment with the cluster's address and programs.
    pub fn command(&self, cluster: &Cluster) -> Result<Command> {
        let mut command = self.offline_command()?;
        command.env("HEADROOM_ADDR", cluster.url());
        Ok(command)
    }

    /// The interpreter in an environment with the programs, and without a cluster.
    pub fn offline_command(&self) -> Result<Command> {
        let mut command = Command::new(self.interpreter());
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = programs::dir()?;
        let tools = self.dir.join("bin");
        command
            .env_remove("HEADROOM_ADDR")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env(
                "PATH",
                format!("{}:{}:{path}", programs.display(), tools.display()),
            )
            .env("HEADROOM_BIN_DIR", programs);
        Ok(command)
    }
}
