//! Arguments of `rmctl ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headroom_identity::CertificateRole;

/// Verbs about certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CaSubcommand {
    /// Create the authority of a cluster: ca.pem for every daemon, and ca.key, which must stay in
    /// its directory
    Init {
        #[command(flatten)]
        place: AuthorityDirectory,
        /// Name of the authority
        #[arg(long, default_value = "headroom")]
        name: String,
        /// Validity in days
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Create a key and sign a certificate for it
    Issue(CaIssueArgs),
    /// Sign a certificate again, for the same key, role and names
    Renew {
        /// The certificate; its key is key.pem next to cert.pem, else the same name with .key
        file: PathBuf,
        #[command(flatten)]
        place: AuthorityDirectory,
        /// Validity in days from now
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Show certificates with their validity
    Show {
        /// The certificates [default: ca.pem]
        files: Vec<PathBuf>,
    },
}

/// Directory of an authority.
#[derive(Debug, Args)]
pub(crate) struct AuthorityDirectory {
    /// Directory with ca.pem and ca.key
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Arguments of `rmctl ca issue`.
#[derive(Debug, Args)]
pub(crate) struct CaIssueArgs {
    /// Role: manager, node/NAME or user/NAME
    pub(crate) role: CertificateRole,
    /// Host name or address of the holder; can be repeated
    #[arg(long = "at", value_name = "HOST")]
    pub(crate) names: Vec<String>,
    /// Validity in days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) place: AuthorityDirectory,
    /// Directory for the certificate and its key [default: that of the authority]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write ca.pem, cert.pem and key.pem for a daemon into this directory; set it as `tls` in its
    /// configuration
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(crate) tls: Option<PathBuf>,
}
