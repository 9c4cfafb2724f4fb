//! Arguments of `rmctl acl` and `rmctl node join`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use headroom_types::NodeId;

use super::output::ListOptions;
use super::value_parser::duration;

/// Verbs about tokens and policies.
#[derive(Debug, Subcommand)]
pub(crate) enum AclSubcommand {
    /// Create the first token of the cluster, with every right; works once, on the host of the
    /// resource manager
    Bootstrap,
    /// Manage tokens of users
    #[command(subcommand)]
    Token(TokenSubcommand),
    /// Manage policies: rights of users and groups that differ from the default
    #[command(subcommand)]
    Policy(PolicySubcommand),
    /// Manage tokens with which hosts join the cluster
    #[command(subcommand)]
    JoinToken(JoinTokenSubcommand),
}

/// Verbs about tokens of users.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenSubcommand {
    /// Create a token; its secret is printed only this once
    Create(TokenCreateArgs),
    /// List valid tokens, without their secrets
    List(ListOptions),
    /// Revoke a token; the next call with it fails
    Revoke {
        /// Accessor of the token; `rmctl acl token list` shows it
        accessor: String,
    },
    /// Show the caller and its rights
    #[command(name = "self")]
    Own,
}

/// Arguments of `rmctl acl token create`.
#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// User of the token [default: the caller]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Right: admin, cluster:read, job:read, job:submit, job:kill, node:write, operator:read,
    /// operator:write, queue:NAME; can be repeated
    #[arg(
        long = "right",
        required = true,
        value_name = "RIGHT",
        value_delimiter = ','
    )]
    pub(crate) rights: Vec<String>,
    /// Lifetime, such as 90d or 12h [default: until it is revoked]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lifetime: Option<Duration>,
    /// Description of its purpose
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) about: String,
    /// Write the secret to this file, readable only by its owner, and do not print it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Verbs about policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicySubcommand {
    /// List all policies
    List(ListOptions),
    /// Replace the rights of a user, or of a @group of the resource manager's host
    Set {
        /// alice, or @etl for a group
        subject: String,
        /// Right, as of tokens; can be repeated
        #[arg(
            long = "right",
            required = true,
            value_name = "RIGHT",
            value_delimiter = ','
        )]
        rights: Vec<String>,
    },
    /// Restore the default rights of a user or a group
    Unset {
        /// alice, or @etl for a group
        subject: String,
    },
}

/// Verbs about join tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenSubcommand {
    /// Create a join token; one host can use it once
    Create(JoinTokenCreateArgs),
}

/// Arguments of `rmctl acl join-token create`.
#[derive(Debug, Args)]
pub(crate) struct JoinTokenCreateArgs {
    /// Node that can use it [default: any]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<NodeId>,
    /// Host name or address allowed in the node's certificate; can be repeated [default: the
    /// address of the joining host]
    #[arg(long = "at", value_name = "HOST")]
    pub(crate) names: Vec<String>,
    /// Lifetime [default: 1d]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lifetime: Option<Duration>,
    /// Write the secret to this file, readable only by its owner, and do not print it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `rmctl node join`.
#[derive(Debug, Args)]
pub(crate) struct NodeJoinArgs {
    /// SHA-256 of the cluster's authority, as `rmctl acl join-token create` prints it
    #[arg(long, value_name = "HEX")]
    pub(crate) pin: String,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NODE")]
    pub(crate) name: Option<NodeId>,
    /// Host name or address of this host; can be repeated
    #[arg(long = "at", value_name = "HOST", required = true)]
    pub(crate) names: Vec<String>,
    /// Directory for ca.pem, cert.pem and key.pem; set it as `tls` in nodeagent.toml
    #[arg(long, value_name = "DIR", default_value = "/etc/headroom/tls")]
    pub(crate) out: PathBuf,
}
