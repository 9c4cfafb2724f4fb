//! `rmctl completion` and `rmctl man`: files that are generated from the declarations of all verbs.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::args::{Cli, Shell};
use crate::complete::VARIABLE;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Prints the completion script of a shell: `source <(rmctl completion bash)`.
pub(crate) fn completion(context: &Context, shell: Shell) -> Result<Exit, Failure> {
    let completer: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    let written = completer.write_registration(VARIABLE, "rmctl", "rmctl", "rmctl", &mut script);
    written.map_err(|e| Failure::new(Exit::Failed, format!("the script cannot be made: {e}")))?;
    context.term.bytes(&script);
    Ok(Exit::Ok)
}

/// Prints a script with verbs and options only, which does not call rmctl: `rmctl completion bash
/// --static > /usr/share/bash-completion/completions/rmctl`.
pub(crate) fn fixed_completion(context: &Context, shell: Shell) -> Result<Exit, Failure> {
    use clap_complete::aot;
    let shell = match shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    aot::generate(shell, &mut Cli::command(), "rmctl", &mut script);
    context.term.bytes(&script);
    Ok(Exit::Ok)
}

/// Writes a manual page for each verb.
pub(crate) fn man(context: &Context, to: &Path) -> Result<Exit, Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, format!("{}: {e}", to.display()));
    std::fs::create_dir_all(to).map_err(failed)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), to).map_err(failed)?;
    let pages = std::fs::read_dir(to).map_err(failed)?.count();
    context.term.line(&format!(
        "{pages} pages in {}\nnext: man -l {}/rmctl.1",
        to.display(),
        to.display()
    ));
    Ok(Exit::Ok)
}
