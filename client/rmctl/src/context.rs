//! What every verb is given: where to ask, how to print.

use std::time::{SystemTime, UNIX_EPOCH};

use headroom_client::Client;
use headroom_types::UnixMillis;
use headroom_wire::v1::apps::AppView;

use crate::args::{Format, Global};
use crate::exit::Failure;
use crate::target::{self, Target};
use crate::term::Term;

/// Where to ask and how to print.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Address of the resource manager.
    pub(crate) addr: String,
    /// The address was given as an argument, not by the environment or by default.
    #[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "only the demonstration asks"))]
    pub(crate) addr_named: bool,
    /// How to print.
    pub(crate) format: Format,
    /// Where to print.
    pub(crate) term: Term,
}

impl Context {
    /// From the arguments that every verb takes.
    pub(crate) fn new(global: Global, addr_named: bool) -> Self {
        Context { addr: global.addr, addr_named, format: global.format, term: Term::new(global.color) }
    }

    /// A client of the resource manager.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.addr)?)
    }

    /// The application a text names, with its job.
    pub(crate) async fn app(&self, client: &Client, text: &str) -> Result<(AppView, Target), Failure> {
        let target = target::parse(text)?;
        let list = client.apps().await?;
        let id = target::resolve(&target, &list)?;
        Ok((client.app(&id).await?, target))
    }
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
