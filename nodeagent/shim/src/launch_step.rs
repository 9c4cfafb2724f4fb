//! The steps of a shim at which the start of a program can fail.

use std::fmt;
use std::str::FromStr;

/// Declares the steps with their names in records, answers and messages.
macro_rules! launch_steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal;)+) => {
        /// A step of the start of a program, as records and answers name it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LaunchStep {
            $($(#[$doc])* $step,)+
        }

        impl LaunchStep {
            /// All steps, in their order.
            pub const ALL: &[LaunchStep] = &[$(LaunchStep::$step),+];
            /// Its name in records, answers and messages.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(LaunchStep::$step => $name,)+
                }
            }
        }
    };
}
launch_steps! {
    /// Write the identity of the shim.
    Identity = "identity";
    /// Read the specification.
    Spec = "spec";
    /// Make the pipe for the report of the child, in shims of earlier versions.
    Pipe = "pipe";
    /// Fork the child.
    Clone = "clone";
    /// Begin a session.
    Session = "session";
    /// Enter the cgroups.
    Cgroup = "cgroup";
    /// Set `oom_score_adj`.
    OomScore = "oom-score";
    /// Enter the namespaces.
    Namespaces = "namespaces";
    /// Mount the private `/tmp`.
    PrivateTmp = "private-tmp";
    /// Open standard input, output and error.
    Stdio = "stdio";
    /// Set the resource limits.
    Limit = "limit";
    /// Drop the privileges.
    Privileges = "privileges";
    /// Become the user of the container.
    User = "user";
    /// Enter the working directory.
    Chdir = "chdir";
    /// Execute the program.
    Exec = "exec";
    /// Wait for the end of the program.
    Wait = "wait";
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
        let mut steps = LaunchStep::ALL.iter().copied();
        steps
            .find(|step| step.as_str() == text)
            .ok_or(UnknownLaunchStep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_name() {
        for step in LaunchStep::ALL.iter().copied() {
            assert_eq!(step.as_str().parse(), Ok(step));
        }
        assert_eq!("dance".parse::<LaunchStep>(), Err(UnknownLaunchStep));
    }
}
