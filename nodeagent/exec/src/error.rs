//! Errors of a program's start, with the failed step.

use std::fmt;
use std::io;

/// The steps from the command to the first instruction of the program, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnStep {
    /// Checking the command: a NUL byte in a text, no program name.
    Prepare,
    /// Creating the process.
    Clone,
    /// Creating a session.
    Session,
    /// Entering a cgroup.
    Cgroup,
    /// Setting the score for the host's out-of-memory killer.
    OomScore,
    /// Creating namespaces and their mounts.
    Namespaces,
    /// Setting standard input, output and error.
    Stdio,
    /// Setting a resource limit.
    Limit,
    /// Setting the signal at the parent's death.
    ParentDeath,
    /// Setting user and groups.
    User,
    /// Dropping capabilities.
    Privileges,
    /// Changing the working directory.
    Chdir,
    /// Executing the program.
    Exec,
    /// Reading the start time of the new process.
    Identify,
}

impl SpawnStep {
    /// One word, as in the protocol of the shim and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SpawnStep::Prepare => "prepare",
            SpawnStep::Clone => "clone",
            SpawnStep::Session => "session",
            SpawnStep::Cgroup => "cgroup",
            SpawnStep::OomScore => "oom-score",
            SpawnStep::Namespaces => "namespaces",
            SpawnStep::Stdio => "stdio",
            SpawnStep::Limit => "limit",
            SpawnStep::ParentDeath => "parent-death",
            SpawnStep::User => "user",
            SpawnStep::Privileges => "privileges",
            SpawnStep::Chdir => "chdir",
            SpawnStep::Exec => "exec",
            SpawnStep::Identify => "identify",
        }
    }
}
impl fmt::Display for SpawnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A failed start. A created child has been reaped.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}: step {step} failed on {what}")]
pub struct SpawnError {
    /// The failed step.
    pub step: SpawnStep,
    /// The program.
    pub program: String,
    /// The path or value of the step.
    pub what: String,
    /// The error of the kernel. `Interrupted` when the child was killed before it executed the
    /// program.
    pub source: io::Error,
}
