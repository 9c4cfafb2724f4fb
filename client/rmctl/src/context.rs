//! The context of a verb: address of the server, output format, terminal.

use std::sync::Arc;
use std::time::SystemTime;

use headroom_client::{Client, ClientCredentials, SendDecision, TaskRowScope, TokenSource};
use headroom_types::UnixMillis;
use headroom_wire::v1::apps::AppView;

use crate::args::{ColorMode, ConfirmOptions, ListOptions, OutputFormat, OutputOptions};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::ListStyle;
use crate::settings::{ClientSettings, SettingOverrides, SettingSource};
use crate::target::{self, CommandTarget};
use crate::term::TerminalOutput;

/// Address of the server, output format, and terminal.
#[derive(Clone, Debug)]
pub(crate) struct CommandContext {
    /// Address of the resource manager.
    pub(crate) addr: String,
    /// The address comes from an argument, not from the environment, a file or the default.
    #[cfg_attr(
        not(feature = "dev"),
        expect(dead_code, reason = "only the demonstration asks")
    )]
    pub(crate) addr_named: bool,
    /// Output format.
    pub(crate) format: OutputFormat,
    /// Output format with columns or template.
    pub(crate) output: OutputOptions,
    /// Terminal.
    pub(crate) term: TerminalOutput,
    /// All settings with their sources.
    pub(crate) settings: ClientSettings,
    /// The settings from arguments and environment.
    pub(crate) given: SettingOverrides,
    /// Requests are printed instead of results.
    pub(crate) curl: bool,
}

impl CommandContext {
    /// Creates the context from the settings.
    pub(crate) fn new(
        settings: ClientSettings,
        given: SettingOverrides,
        color: ColorMode,
        curl: bool,
    ) -> Self {
        let output = settings.output.value.clone();
        let addr_named = matches!(settings.addr.by, SettingSource::Argument(_));
        let term = TerminalOutput::new(color);
        let term = if curl { term.silent() } else { term };
        CommandContext {
            addr: settings.addr.value.clone(),
            addr_named,
            format: output.format,
            output,
            term,
            settings,
            given,
            curl,
        }
    }

    /// A client of the resource managers.
    pub(crate) fn client(&self) -> CommandResult<Client> {
        self.client_at(&self.addr)
    }

    /// A client of the resource manager at one address.
    pub(crate) fn client_at(&self, addr: &str) -> CommandResult<Client> {
        let client = Client::with_credentials(addr, self.settings.trust.clone())?
            .with_timeout(self.settings.timeout.value);
        if !self.curl {
            return Ok(client);
        }
        let term = self.term.aloud();
        let proofs = proofs(&self.settings.trust);
        let socket = addr
            .strip_prefix(headroom_types::UNIX_SOCKET_PREFIX)
            .map(str::to_owned);
        Ok(client.with_request_hook(Arc::new(move |request| {
            term.line(&curl(request, socket.as_deref(), &proofs));
            if request.reads {
                SendDecision::Yes
            } else {
                SendDecision::No
            }
        })))
    }

    /// The application that a text names, with its job and all tasks.
    pub(crate) async fn app(
        &self,
        client: &Client,
        text: &str,
    ) -> CommandResult<(AppView, CommandTarget)> {
        self.app_with(client, text, TaskRowScope::All).await
    }

    /// The application with the counts of its job and without tasks.
    pub(crate) async fn app_figures(
        &self,
        client: &Client,
        text: &str,
    ) -> CommandResult<(AppView, CommandTarget)> {
        self.app_with(client, text, TaskRowScope::None).await
    }

    /// The application with a selection of its tasks.
    pub(crate) async fn app_with(
        &self,
        client: &Client,
        text: &str,
        rows: TaskRowScope,
    ) -> CommandResult<(AppView, CommandTarget)> {
        let target = target::parse(text)?;
        // A complete id needs no list. An unknown id or a prefix does.
        if let Some(id) = target.job.id()
            && let Ok(app) = client.app_with(&id, rows).await
        {
            return Ok((app, target));
        }
        let list = client.apps().await?;
        let id = target::resolve(&target, &list)?;
        Ok((client.app_with(&id, rows).await?, target))
    }

    /// Asks the user at a terminal for confirmation. Returns success without a terminal, and if
    /// requests are only printed.
    pub(crate) fn confirm(&self, sure: ConfirmOptions, what: &str) -> CommandResult<()> {
        if sure.yes || self.curl || self.term.confirm(what) {
            return Ok(());
        }
        Err(CommandFailure::failed("nothing was done")
            .help("-y skips the question; --dry-run only shows the effect"))
    }

    /// The context for a list, without headers if the user omits them.
    pub(crate) fn list(&self, rows: &ListOptions) -> CommandContext {
        let mut context = self.clone();
        context.output.headers = !rows.no_headers;
        context
    }

    /// Prints a result: the text in a machine format, or else the screen for users.
    pub(crate) fn show(
        &self,
        machine: Option<String>,
        screen: impl FnOnce() -> String,
    ) -> CommandExitCode {
        self.term.print(&machine.unwrap_or_else(screen));
        CommandExitCode::Ok
    }

    /// Appearance of a screen.
    pub(crate) fn look(&self) -> ListStyle {
        ListStyle {
            wide: self.format == OutputFormat::Wide,
            headers: self.output.headers,
            paint: self.term.paint,
        }
    }
}

/// The curl options for the same certificates and token. The shell reads the token when it runs the
/// line, so the token is never printed.
fn proofs(trust: &ClientCredentials) -> Vec<String> {
    let ca = trust
        .files
        .ca
        .iter()
        .map(|path| format!("--cacert '{}'", path.display()));
    let own = trust.files.own.iter();
    let own = own.flat_map(|(cert, key)| {
        [
            format!("--cert '{}'", cert.display()),
            format!("--key '{}'", key.display()),
        ]
    });
    let token = match &trust.token {
        TokenSource::Nowhere => None,
        TokenSource::Text(_) => Some("-H \"Authorization: Bearer $HEADROOM_TOKEN\"".to_owned()),
        TokenSource::File(path) => Some(format!(
            "-H \"Authorization: Bearer $(cat '{}')\"",
            path.display()
        )),
    };
    ca.chain(own).chain(token).collect()
}

/// A request as a curl command.
fn curl(
    request: &headroom_client::PreparedRequest<'_>,
    socket: Option<&str>,
    proofs: &[String],
) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut words = vec!["curl -sS".to_owned()];
    words.extend_from_slice(proofs);
    words.extend(socket.map(|path| format!("--unix-socket {}", quoted(path))));
    if request.method != "GET" {
        words.push(format!("-X {}", request.method));
    }
    for (name, value) in &request.headers {
        words.push(format!("-H {}", quoted(&format!("{name}: {value}"))));
    }
    if let Some(body) = request.body {
        words.push(format!("-d {}", quoted(body)));
    }
    words.push(quoted(request.url));
    words.join(" ")
}

/// The present time.
pub(crate) fn now() -> UnixMillis {
    SystemTime::now().into()
}

/// The user name: `USER` in the environment, else the name of the account.
pub(crate) fn user() -> Option<String> {
    let account = || {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten()
            .map(|u| u.name)
    };
    let named = std::env::var("USER").ok().filter(|u| !u.is_empty());
    named.or_else(account).filter(|u| u.len() <= 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_client::PreparedRequest;

    #[test]
    fn a_request_is_printed_as_a_curl_command() {
        let get = PreparedRequest {
            method: "GET",
            url: "http://h:1/v1/apps?a=1&b=2",
            headers: Vec::new(),
            body: None,
            reads: true,
        };
        assert_eq!(
            curl(&get, None, &[]),
            "curl -sS 'http://h:1/v1/apps?a=1&b=2'"
        );
        let by_socket = "curl -sS --unix-socket '/run/s' 'http://h:1/v1/apps?a=1&b=2'";
        assert_eq!(curl(&get, Some("/run/s"), &[]), by_socket);
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let post = PreparedRequest {
            method: "POST",
            url: "http://h:1/x",
            headers,
            body: Some("{\"a\":\"it's\"}"),
            reads: false,
        };
        let typed = r#"curl -sS -X POST -H 'content-type: application/json' -d '{"a":"it'\''s"}' 'http://h:1/x'"#;
        assert_eq!(curl(&post, None, &[]), typed);
    }
}
