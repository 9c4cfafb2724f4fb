//! Why a program could not be started, and at which step.

use std::fmt;
use std::io;

/// The steps between the wish and the first instruction of the program, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Looking at the wish: a NUL byte in a text, no program name.
    Prepare,
    /// Making the process.
    Clone,
    /// Own session.
    Session,
    /// Entering a cgroup.
    Cgroup,
    /// Badness against the host's out-of-memory killer.
    OomScore,
    /// Namespaces of its own, and what is mounted in them.
    Namespaces,
    /// Standard input, output and error.
    Stdio,
    /// A resource limit.
    Limit,
    /// The signal at the parent's death.
    ParentDeath,
    /// User and groups.
    User,
    /// Giving up capabilities.
    Privileges,
    /// The working directory.
    Chdir,
    /// Becoming the program.
    Exec,
    /// Reading the new process's start time.
    Identify,
}

impl Step {
    /// One word, as in the shim's protocol and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Prepare => "prepare",
            Step::Clone => "clone",
            Step::Session => "session",
            Step::Cgroup => "cgroup",
            Step::OomScore => "oom-score",
            Step::Namespaces => "namespaces",
            Step::Stdio => "stdio",
            Step::Limit => "limit",
            Step::ParentDeath => "parent-death",
            Step::User => "user",
            Step::Privileges => "privileges",
            Step::Chdir => "chdir",
            Step::Exec => "exec",
            Step::Identify => "identify",
        }
    }
}
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A program that was not started. Nothing of it is left: the child, if there was one, is reaped.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}: step {step} failed on {what}")]
pub struct SpawnError {
    /// Which step.
    pub step: Step,
    /// The program.
    pub program: String,
    /// The path or value the step was about.
    pub what: String,
    /// The kernel's answer. `Interrupted` when the child was killed before it became the program.
    pub source: io::Error,
}
