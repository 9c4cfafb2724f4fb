//! `rmctl context` and `rmctl config`: the user's file, and the effective settings.

use std::path::PathBuf;

use headroom_client::Client;

use crate::args::{ConfigSubcommand, ContextSubcommand};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;
use crate::render::settings as screens;
use crate::settings::file::{self, DurationSetting, OutputSetting, UserSettingsFile};
use crate::settings::{self, SettingSource};

/// Runs a `context` verb.
pub(crate) fn contexts(context: &CommandContext, what: ContextSubcommand) -> CommandResult {
    let place = file::user_place();
    let mut user = file::user(&place)?;
    match what {
        ContextSubcommand::List => {
            let found = MachineOutput::one(&user);
            let names = || {
                user.contexts
                    .keys()
                    .map(|name| format!("{name}\n"))
                    .collect::<String>()
            };
            let text = match found.text(&context.output, |_| names().trim_end().to_owned()) {
                Some(text) => text,
                None => screens::contexts(&user, context.term.paint),
            };
            context.term.print(&text);
            return Ok(CommandExitCode::Ok);
        }
        ContextSubcommand::Use { name } => take(&mut user, &name)?,
        ContextSubcommand::Set { name } => set(context, &mut user, &name)?,
        ContextSubcommand::Rm { name } => forget(&mut user, &name)?,
    }
    file::write(&place, &user)?;
    context
        .term
        .print(&screens::contexts(&user, context.term.paint));
    Ok(CommandExitCode::Ok)
}

fn take(user: &mut UserSettingsFile, name: &str) -> CommandResult<()> {
    if name == "-" {
        user.current = None;
        return Ok(());
    }
    known(user, name)?;
    user.current = Some(name.to_owned());
    Ok(())
}

fn known(user: &UserSettingsFile, name: &str) -> CommandResult<()> {
    if user.contexts.contains_key(name) {
        return Ok(());
    }
    let failure = CommandFailure::not_found(format!("there is no context {name}"));
    Err(failure
        .near(name, user.contexts.keys().map(String::as_str))
        .help("rmctl context list"))
}

fn set(context: &CommandContext, user: &mut UserSettingsFile, name: &str) -> CommandResult<()> {
    let said = &context.settings;
    let typed = |by: &SettingSource| matches!(by, SettingSource::Argument(_));
    let saved = user.contexts.entry(name.to_owned()).or_default();
    if typed(&said.addr.by) {
        // Settings that no client can use are refused here, and not at every later call.
        Client::with_credentials(&said.addr.value, said.trust.clone())?;
        saved.addr = Some(said.addr.value.clone());
    }
    if typed(&said.output.by) {
        saved.output = Some(OutputSetting::of(said.output.value.clone()));
    }
    if typed(&said.timeout.by) {
        saved.timeout = Some(DurationSetting(said.timeout.value));
    }
    let proofs = &context.given.proofs;
    let absolute = |path: &Option<PathBuf>| {
        path.as_ref()
            .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
    };
    saved.ca = absolute(&proofs.ca).or(saved.ca.take());
    saved.cert = absolute(&proofs.cert).or(saved.cert.take());
    saved.key = absolute(&proofs.key).or(saved.key.take());
    saved.token_file = absolute(&proofs.token_file).or(saved.token_file.take());
    if saved.addr.is_none() {
        return Err(
            CommandFailure::usage(format!("context {name} has no address"))
                .help(format!("rmctl context set {name} --addr http://HOST:7070")),
        );
    }
    user.current.get_or_insert_with(|| name.to_owned());
    Ok(())
}

fn forget(user: &mut UserSettingsFile, name: &str) -> CommandResult<()> {
    known(user, name)?;
    user.contexts.remove(name);
    if user.current.as_deref() == Some(name) {
        user.current = None;
    }
    Ok(())
}

/// Runs a `config` verb.
pub(crate) fn config(context: &CommandContext, what: ConfigSubcommand) -> CommandResult {
    let places = [file::user_place(), file::machine_place()];
    match what {
        ConfigSubcommand::Show => {
            let settings = settings::load(context.given.clone())?;
            let files = places.map(|p| (p.display().to_string(), p.exists()));
            let doc = settings.json();
            let text =
                MachineOutput::one(&doc).text(&context.output, |_| settings.addr.value.clone());
            context.show(text, || {
                screens::settings(&settings, &files, context.term.paint)
            });
        }
        ConfigSubcommand::Validate => {
            settings::load(context.given.clone())?;
            for place in places {
                let found = if place.exists() {
                    "✓"
                } else {
                    "– does not exist:"
                };
                context.term.line(&format!("{found} {}", place.display()));
            }
        }
    }
    Ok(CommandExitCode::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_selected_and_removed() {
        let text = "[contexts.lab]\naddr = \"http://lab:1\"\n";
        let mut user = file::read_user(text, "c").expect("reads");
        assert!(
            take(&mut user, "lba")
                .expect_err("none")
                .to_string()
                .contains("did you mean \"lab\"?")
        );
        take(&mut user, "lab").expect("there");
        assert_eq!(user.current.as_deref(), Some("lab"));
        forget(&mut user, "lab").expect("there");
        assert_eq!((user.current, user.contexts.len()), (None, 0));
    }
}
