//! The steps of a shim at which the start of a program can fail.

use std::fmt;
use std::str::FromStr;

/// A step of the start of a program, as records and answers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchStep {
    /// Write the identity of the shim.
    Identity,
    /// Read the specification.
    Spec,
    /// Make the pipe for the report of the child.
    Pipe,
    /// Fork the child.
    Clone,
    /// Begin a session.
    Session,
    /// Enter the cgroups.
    Cgroup,
    /// Set `oom_score_adj`.
    OomScore,
    /// Enter the namespaces.
    Namespaces,
    /// Mount the private `/tmp`.
    PrivateTmp,
    /// Open standard input, output and error.
    Stdio,
    /// Set the resource limits.
    Limit,
    /// Drop the privileges.
    Privileges,
    /// Become the user of the container.
    User,
    /// Enter the working directory.
    Chdir,
    /// Execute the program.
    Exec,
    /// Wait for the end of the program.
    Wait,
}

impl LaunchStep {
    /// All steps, in their order.
    pub const ALL: [LaunchStep; 16] = [
        LaunchStep::Identity,
        LaunchStep::Spec,
        LaunchStep::Pipe,
        LaunchStep::Clone,
        LaunchStep::Session,
        LaunchStep::Cgroup,
        LaunchStep::OomScore,
        LaunchStep::Namespaces,
        LaunchStep::PrivateTmp,
        LaunchStep::Stdio,
        LaunchStep::Limit,
        LaunchStep::Privileges,
        LaunchStep::User,
        LaunchStep::Chdir,
        LaunchStep::Exec,
        LaunchStep::Wait,
    ];
    /// Its name in records, answers and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            LaunchStep::Identity => "identity",
            LaunchStep::Spec => "spec",
            LaunchStep::Pipe => "pipe",
            LaunchStep::Clone => "clone",
            LaunchStep::Session => "session",
            LaunchStep::Cgroup => "cgroup",
            LaunchStep::OomScore => "oom-score",
            LaunchStep::Namespaces => "namespaces",
            LaunchStep::PrivateTmp => "private-tmp",
            LaunchStep::Stdio => "stdio",
            LaunchStep::Limit => "limit",
            LaunchStep::Privileges => "privileges",
            LaunchStep::User => "user",
            LaunchStep::Chdir => "chdir",
            LaunchStep::Exec => "exec",
            LaunchStep::Wait => "wait",
        }
    }
}

impl fmt::Display for LaunchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLaunchStep;

impl FromStr for LaunchStep {
    type Err = UnknownLaunchStep;

    fn from_str(text: &str) -> Result<Self, UnknownLaunchStep> {
        LaunchStep::ALL
            .into_iter()
            .find(|step| step.as_str() == text)
            .ok_or(UnknownLaunchStep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_name() {
        for step in LaunchStep::ALL {
            assert_eq!(step.as_str().parse(), Ok(step));
        }
        assert_eq!("dance".parse::<LaunchStep>(), Err(UnknownLaunchStep));
    }
}
