//! `rmctl context` and `rmctl config`.

use clap::Subcommand;

/// About contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// All contexts
    #[command(visible_alias = "ls")]
    List,
    /// Take this one from now on
    Use {
        /// Its name; `-` for none
        name: String,
    },
    /// Make a context of --addr, -o, --call-timeout, --cacert, --client-cert, --client-key and --token-file, or change what is said of one; the first one is taken from now on
    Set {
        /// Its name
        name: String,
    },
    /// Forget a context
    Rm {
        /// Its name
        name: String,
    },
}

/// About settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Every setting with who said it
    Show,
    /// Whether the files with settings can be read
    Validate,
}
