//! Who may come in.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use headroom_types::NodeId;

use super::{Rows, duration};

/// How a call proves who makes it, and whom it believes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrustArgs {
    /// Who vouches for the resource manager, PEM [default: of the context, else the authorities of this host]
    #[arg(long, global = true, env = "HEADROOM_CACERT", value_name = "FILE", hide_short_help = true)]
    pub(crate) cacert: Option<PathBuf>,
    /// One's own certificate, PEM
    #[arg(long, global = true, env = "HEADROOM_CLIENT_CERT", value_name = "FILE", hide_short_help = true)]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key to it, PEM
    #[arg(long, global = true, env = "HEADROOM_CLIENT_KEY", value_name = "FILE", hide_short_help = true)]
    pub(crate) client_key: Option<PathBuf>,
    /// The file of a token; HEADROOM_TOKEN can hold the token itself
    #[arg(long, global = true, env = "HEADROOM_TOKEN_FILE", value_name = "FILE", hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,
}

/// About tokens and policies.
#[derive(Debug, Subcommand)]
pub(crate) enum AclVerb {
    /// Take the first token of the cluster, with every right; once, on the manager's own host
    Bootstrap,
    /// Tokens of users
    Token {
        #[command(subcommand)]
        what: TokenVerb,
    },
    /// What accounts and groups may, where it is not the usual
    Policy {
        #[command(subcommand)]
        what: PolicyVerb,
    },
    /// Tokens by which hosts become nodes
    JoinToken {
        #[command(subcommand)]
        what: JoinTokenVerb,
    },
}

/// About tokens of users.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make one; its secret is printed this once
    Create(CreateToken),
    /// Those that hold, without their secrets
    List(Rows),
    /// Take one back; it holds no more from the next call on
    Revoke {
        /// How it is named: `rmctl acl token list` shows it
        accessor: String,
    },
    /// Who calls, and what they may
    #[command(name = "self")]
    Own,
}

/// `rmctl acl token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateToken {
    /// In whose name it acts [default: one's own]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// What it may: admin, cluster:read, job:read, job:submit, job:kill, node:write, operator:read, operator:write, queue:NAME; may be
    /// given more than once
    #[arg(long = "right", required = true, value_name = "RIGHT", value_delimiter = ',')]
    pub(crate) rights: Vec<String>,
    /// How long it holds, such as 90d or 12h [default: until it is revoked]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lifetime: Option<Duration>,
    /// What it is for
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) about: String,
    /// Write the secret to this file, which only its owner can read, and do not print it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// About policies.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// All of them
    List(Rows),
    /// This account, or @group of the manager's host, may this from now on and nothing else
    Set {
        /// alice, or @etl for a group
        subject: String,
        /// Rights, as of tokens
        #[arg(long = "right", required = true, value_name = "RIGHT", value_delimiter = ',')]
        rights: Vec<String>,
    },
    /// This account or group may the usual again
    Unset {
        /// alice, or @etl for a group
        subject: String,
    },
}

/// About tokens for joining.
#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenVerb {
    /// Make one; it lets one host in, once
    Create(CreateJoinToken),
}

/// `rmctl acl join-token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateJoinToken {
    /// The node it is for [default: any]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<NodeId>,
    /// A host name or address that may stand in its certificate; may be given more than once [default: the address it calls from]
    #[arg(long = "at", value_name = "HOST")]
    pub(crate) names: Vec<String>,
    /// How long it can be used [default: 1d]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lifetime: Option<Duration>,
    /// Write the secret to this file, which only its owner can read, and do not print it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `rmctl node join`.
#[derive(Debug, Args)]
pub(crate) struct JoinNode {
    /// SHA-256 of the cluster's authority, which `rmctl acl join-token create` prints
    #[arg(long, value_name = "HEX")]
    pub(crate) pin: String,
    /// The name of this node [default: this host's]
    #[arg(long, value_name = "NODE")]
    pub(crate) name: Option<NodeId>,
    /// A host name or address this host is reached at; may be given more than once
    #[arg(long = "at", value_name = "HOST", required = true)]
    pub(crate) names: Vec<String>,
    /// Where ca.pem, cert.pem and key.pem go; `tls` of nodeagent.toml names it
    #[arg(long, value_name = "DIR", default_value = "/etc/headroom/tls")]
    pub(crate) out: PathBuf,
}
