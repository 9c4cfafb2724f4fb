//! Arguments of the verbs that launch a command: the command and its environment.

use clap::Args;

use super::value_parser::variable;

/// The command of a container or task, and its environment.
#[derive(Clone, Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Environment variable, NAME=VALUE; can be repeated
    #[arg(short = 'e', long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
