//! `rmctl ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headroom_identity::Role;

/// About certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CaVerb {
    /// Make an authority for a cluster: ca.pem, which every daemon gets, and ca.key, which stays where it is
    Init {
        #[command(flatten)]
        place: CaPlace,
        /// How it is called
        #[arg(long, default_value = "headroom")]
        name: String,
        /// Valid for so many days
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Sign a certificate with a key of its own
    Issue(CaIssue),
    /// Sign a certificate anew, for the same key, role and names
    Renew {
        /// The certificate; its key is beside it: key.pem beside cert.pem, else called .key instead of .pem
        file: PathBuf,
        #[command(flatten)]
        place: CaPlace,
        /// Valid for so many days from now
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// What certificates say, and when they end
    Show {
        /// The certificates; ca.pem when left out
        files: Vec<PathBuf>,
    },
}

/// Where an authority is.
#[derive(Debug, Args)]
pub(crate) struct CaPlace {
    /// Where ca.pem and ca.key are
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// `rmctl ca issue`.
#[derive(Debug, Args)]
pub(crate) struct CaIssue {
    /// Whose it is: manager, node/NAME or user/NAME
    pub(crate) role: Role,
    /// A host name or address it is reached at; may be given more than once
    #[arg(long = "at", value_name = "HOST")]
    pub(crate) names: Vec<String>,
    /// Valid for so many days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) place: CaPlace,
    /// Where the certificate and its key go [default: beside the authority]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write ca.pem, cert.pem and key.pem into this directory instead, as daemons read them: `tls` of their configuration names it
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(crate) tls: Option<PathBuf>,
}
