//! What every verb is given: where to ask, how to print.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use headroom_client::{Client, Sending, TaskRows, TokenFrom, Trust};
use headroom_types::UnixMillis;
use headroom_wire::v1::apps::AppView;

use crate::args::{Color, Format, Output, Rows, Sure};
use crate::exit::{Exit, Failure};
use crate::render::Look;
use crate::settings::{Given, Origin, Settings};
use crate::target::{self, Target};
use crate::term::Term;

/// Where to ask and how to print.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Address of the resource manager.
    pub(crate) addr: String,
    /// The address was given as an argument, not by the environment, a file or by default.
    #[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "only the demonstration asks"))]
    pub(crate) addr_named: bool,
    /// How to print.
    pub(crate) format: Format,
    /// The same with columns or template.
    pub(crate) output: Output,
    /// Where to print.
    pub(crate) term: Term,
    /// All of it, with who said so.
    pub(crate) settings: Settings,
    /// What arguments and environment say.
    pub(crate) given: Given,
    /// Requests are printed instead of answers.
    pub(crate) curl: bool,
}

impl Context {
    /// From what was said.
    pub(crate) fn new(settings: Settings, given: Given, color: Color, curl: bool) -> Self {
        let output = settings.output.value.clone();
        let addr_named = matches!(settings.addr.by, Origin::Argument(_));
        let term = Term::new(color);
        let term = if curl { term.silent() } else { term };
        Context { addr: settings.addr.value.clone(), addr_named, format: output.format, output, term, settings, given, curl }
    }

    /// A client of the resource manager.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let client = Client::with(&self.addr, self.settings.trust.clone())?.within(self.settings.timeout.value);
        if !self.curl {
            return Ok(client);
        }
        let term = self.term.aloud();
        let proofs = proofs(&self.settings.trust);
        let socket = self.addr.strip_prefix(headroom_client::UNIX).map(str::to_owned);
        Ok(client.told(Arc::new(move |request| {
            term.line(&curl(request, socket.as_deref(), &proofs));
            if request.reads { Sending::Yes } else { Sending::No }
        })))
    }

    /// The application a text names, with its job.
    pub(crate) async fn app(&self, client: &Client, text: &str) -> Result<(AppView, Target), Failure> {
        self.app_with(client, text, TaskRows::All).await
    }

    /// The same with the figures of its job and no tasks.
    pub(crate) async fn app_figures(&self, client: &Client, text: &str) -> Result<(AppView, Target), Failure> {
        self.app_with(client, text, TaskRows::None).await
    }

    /// The same with some of its tasks.
    pub(crate) async fn app_with(&self, client: &Client, text: &str, rows: TaskRows) -> Result<(AppView, Target), Failure> {
        let target = target::parse(text)?;
        // An id that is written out needs no list; one that is not there, or only a beginning, does.
        if let Some(id) = target.job.id()
            && let Ok(app) = client.app_with(&id, rows).await
        {
            return Ok((app, target));
        }
        let list = client.apps().await?;
        let id = target::resolve(&target, &list)?;
        Ok((client.app_with(&id, rows).await?, target))
    }

    /// Asks somebody at a terminal whether it may be. Where nobody could be asked, and where requests are only printed, it may.
    pub(crate) fn agreed(&self, sure: Sure, what: &str) -> Result<(), Failure> {
        if sure.yes || self.curl || self.term.agrees(what) {
            return Ok(());
        }
        Err(Failure::new(Exit::Failed, "nothing was done")
            .help("-y does it without a question, --dry-run only tells what would end"))
    }

    /// The same for a list: without headers when that is asked for.
    pub(crate) fn list(&self, rows: &Rows) -> Context {
        let mut context = self.clone();
        context.output.headers = !rows.no_headers;
        context
    }

    /// How a screen is to look.
    pub(crate) fn look(&self) -> Look {
        Look { wide: self.format == Format::Wide, headers: self.output.headers }
    }
}

/// What curl needs to prove the same. A token is read when the line is run, and never shown.
fn proofs(trust: &Trust) -> Vec<String> {
    let ca = trust.files.ca.iter().map(|path| format!("--cacert '{}'", path.display()));
    let own = trust.files.own.iter();
    let own = own.flat_map(|(cert, key)| [format!("--cert '{}'", cert.display()), format!("--key '{}'", key.display())]);
    let token = match &trust.token {
        TokenFrom::Nowhere => None,
        TokenFrom::Text(_) => Some("-H \"Authorization: Bearer $HEADROOM_TOKEN\"".to_owned()),
        TokenFrom::File(path) => Some(format!("-H \"Authorization: Bearer $(cat '{}')\"", path.display())),
    };
    ca.chain(own).chain(token).collect()
}

/// A request as somebody would type it.
fn curl(request: &headroom_client::Request<'_>, socket: Option<&str>, proofs: &[String]) -> String {
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

/// The time of day.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Who types: the name in the environment, else that of the account.
pub(crate) fn user() -> Option<String> {
    let account = || nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|u| u.name);
    let named = std::env::var("USER").ok().filter(|u| !u.is_empty());
    named.or_else(account).filter(|u| u.len() <= 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_client::Request;

    #[test]
    fn a_request_can_be_typed_again() {
        let get = Request { method: "GET", url: "http://h:1/v1/apps?a=1&b=2", headers: Vec::new(), body: None, reads: true };
        assert_eq!(curl(&get, None, &[]), "curl -sS 'http://h:1/v1/apps?a=1&b=2'");
        let by_socket = "curl -sS --unix-socket '/run/s' 'http://h:1/v1/apps?a=1&b=2'";
        assert_eq!(curl(&get, Some("/run/s"), &[]), by_socket);
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let post = Request { method: "POST", url: "http://h:1/x", headers, body: Some("{\"a\":\"it's\"}"), reads: false };
        let typed = r#"curl -sS -X POST -H 'content-type: application/json' -d '{"a":"it'\''s"}' 'http://h:1/x'"#;
        assert_eq!(curl(&post, None, &[]), typed);
    }
}
