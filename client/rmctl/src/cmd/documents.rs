//! `rmctl completion` and `rmctl man`: files that are generated from the declarations of all verbs.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::args::{CompletionShell, RmctlArguments};
use crate::complete::VARIABLE;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// Prints the completion script of a shell: `source <(rmctl completion bash)`.
pub(crate) fn completion(context: &CommandContext, shell: CompletionShell) -> CommandResult {
    let completer: &dyn EnvCompleter = match shell {
        CompletionShell::Bash => &Bash,
        CompletionShell::Zsh => &Zsh,
        CompletionShell::Fish => &Fish,
    };
    let mut script = Vec::new();
    let written = completer.write_registration(VARIABLE, "rmctl", "rmctl", "rmctl", &mut script);
    written.map_err(|e| CommandFailure::failed(format!("the script cannot be made: {e}")))?;
    context.term.bytes(&script);
    Ok(CommandExitCode::Ok)
}

/// Prints a script with verbs and options only, which does not call rmctl: `rmctl completion bash
/// --static > /usr/share/bash-completion/completions/rmctl`.
pub(crate) fn fixed_completion(context: &CommandContext, shell: CompletionShell) -> CommandResult {
    use clap_complete::aot;
    let shell = match shell {
        CompletionShell::Bash => aot::Shell::Bash,
        CompletionShell::Zsh => aot::Shell::Zsh,
        CompletionShell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    aot::generate(shell, &mut RmctlArguments::command(), "rmctl", &mut script);
    context.term.bytes(&script);
    Ok(CommandExitCode::Ok)
}

/// Writes a manual page for each verb.
pub(crate) fn man(context: &CommandContext, to: &Path) -> CommandResult {
    let failed = |e: std::io::Error| CommandFailure::failed(format!("{}: {e}", to.display()));
    std::fs::create_dir_all(to).map_err(failed)?;
    clap_mangen::generate_to(RmctlArguments::command().disable_help_subcommand(true), to)
        .map_err(failed)?;
    let pages = std::fs::read_dir(to).map_err(failed)?.count();
    context.term.line(&format!(
        "{pages} pages in {}\nnext: man -l {}/rmctl.1",
        to.display(),
        to.display()
    ));
    Ok(CommandExitCode::Ok)
}
