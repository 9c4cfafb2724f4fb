//! Arguments of `rmctl context` and `rmctl config`.

use clap::Subcommand;

/// Verbs about contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextSubcommand {
    /// List all contexts
    #[command(visible_alias = "ls")]
    List,
    /// Set the current context
    Use {
        /// Name of the context; `-` for none
        name: String,
    },
    /// Create or change a context from --addr, -o, --call-timeout, --cacert, --client-cert,
    /// --client-key and --token-file; the first context becomes the current one
    Set {
        /// Name of the context
        name: String,
    },
    /// Delete a context
    Rm {
        /// Name of the context
        name: String,
    },
}

/// Verbs about settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigSubcommand {
    /// Show every setting with its source
    Show,
    /// Check the settings files
    Validate,
}
