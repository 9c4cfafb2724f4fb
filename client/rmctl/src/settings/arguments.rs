//! Settings from the parsed arguments of the command line and their environment variables.

use std::path::PathBuf;

use super::file::CredentialFiles;
use super::{SettingOverrides, SettingSource};
use crate::args::{GlobalOptions, OutputFormat, OutputOptions, TrustArgs};

/// Collects parsed arguments. `typed` returns whether an argument was typed or comes from the
/// environment.
pub(crate) fn given(global: &GlobalOptions, typed: impl Fn(&str) -> bool) -> SettingOverrides {
    let by = |id: &str, argument, variable| {
        if typed(id) {
            SettingSource::Argument(argument)
        } else {
            SettingSource::Variable(variable)
        }
    };
    let named = |value: &Option<String>, by: SettingSource| {
        value.clone().filter(|v| !v.is_empty()).map(|v| (v, by))
    };
    let output = global
        .output
        .clone()
        .map(|o| (o, by("format", "-o", "HEADROOM_OUTPUT")));
    let quiet = global.quiet.then(|| {
        (
            OutputOptions::plain(OutputFormat::Name),
            SettingSource::Argument("-q"),
        )
    });
    SettingOverrides {
        addr: named(&global.addr, by("addr", "--addr", "HEADROOM_ADDR")),
        context: named(
            &global.context,
            by("context", "--context", "HEADROOM_CONTEXT"),
        ),
        output: quiet.or(output),
        timeout: global
            .call_timeout
            .map(|t| (t, by("call_timeout", "--call-timeout", "HEADROOM_TIMEOUT"))),
        proofs: proofs(&global.trust),
        token: std::env::var("HEADROOM_TOKEN")
            .ok()
            .filter(|token| !token.is_empty()),
        socket: None,
    }
}

/// An empty variable is ignored.
fn proofs(args: &TrustArgs) -> CredentialFiles {
    let said = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
    CredentialFiles {
        ca: said(&args.cacert),
        cert: said(&args.client_cert),
        key: said(&args.client_key),
        token_file: said(&args.token_file),
    }
}
