//! Options of every verb: address, context, output, credentials, colour.
//!
//! They are declarations only. `settings` combines them with the environment and the files.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter as Completer;

use super::output::OutputOptions;
use super::value_parser::duration;
use crate::complete;

/// Options of every verb.
#[derive(Clone, Debug, Args)]
pub(crate) struct GlobalOptions {
    /// Address of the resource manager, or those of all, separated by commas, or unix:PATH
    /// [default: of the context, else this host's socket, else http://127.0.0.1:7070]
    #[arg(long, global = true, env = "HEADROOM_ADDR", value_name = "URL")]
    pub(crate) addr: Option<String>,
    /// Take address, format and timeout from this context; `rmctl context list` shows them
    #[arg(long, global = true, env = "HEADROOM_CONTEXT", value_name = "NAME", add = Completer::new(complete::contexts))]
    pub(crate) context: Option<String>,
    /// Output format: table, wide, json, jsonl, yaml, csv, name, cols=A,B or tmpl='{{id}}'; JSON is
    /// that of the REST interface [default: table]
    #[arg(
        short = 'o',
        long = "format",
        id = "format",
        global = true,
        env = "HEADROOM_OUTPUT",
        value_name = "FORMAT"
    )]
    pub(crate) output: Option<OutputOptions>,
    /// Print ids only
    #[arg(short = 'q', long, global = true)]
    pub(crate) quiet: bool,
    /// Timeout of one call, such as 30s [default: 10s]
    #[arg(long, global = true, env = "HEADROOM_TIMEOUT", value_parser = duration, value_name = "TIME")]
    pub(crate) call_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Print requests as curl commands instead of results; only requests that change nothing are
    /// sent
    #[arg(long, global = true)]
    pub(crate) curl: bool,
    /// When to use colour; colour never carries information of its own
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: ColorMode,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    /// On a terminal, unless NO_COLOR is set; always if CLICOLOR_FORCE is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Options for authentication and for trust in the server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrustArgs {
    /// Authority of the resource manager, PEM [default: of the context, else the authorities of
    /// this host]
    #[arg(
        long,
        global = true,
        env = "HEADROOM_CACERT",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) cacert: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(
        long,
        global = true,
        env = "HEADROOM_CLIENT_CERT",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(
        long,
        global = true,
        env = "HEADROOM_CLIENT_KEY",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) client_key: Option<PathBuf>,
    /// File with a token; HEADROOM_TOKEN can hold the token itself
    #[arg(
        long,
        global = true,
        env = "HEADROOM_TOKEN_FILE",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) token_file: Option<PathBuf>,
}
