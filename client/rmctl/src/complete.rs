//! Command completion for shells: verbs and arguments from the declarations, ids from the cluster
//! within 300 ms.

use std::ffi::OsStr;
use std::future::Future;
use std::time::Duration;

use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use headroom_client::{Client, ClientError};

use crate::settings::{self, SettingOverrides, SettingSource};

/// Environment variable of a shell that requests completion.
pub(crate) const VARIABLE: &str = "RMCTL_COMPLETE";
/// Timeout of a call; completion must not delay typing.
const MOST: Duration = Duration::from_millis(300);

/// Answers a completion request for the command line that `declarations` returns, and ends the
/// process. Does nothing without the environment variable.
pub(crate) fn answer(declarations: impl Fn() -> clap::Command) {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(declarations)
            .var(VARIABLE)
            .complete();
    }
}

/// Jobs, newest first, with their states; and `last`.
pub(crate) fn jobs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    // A task follows the job, which needs the task rows.
    if let Some((job, task)) = typed.split_once('/') {
        return tasks(job, task);
    }
    let mut apps = ask(async |client| client.apps().await);
    apps.sort_by(|a, b| b.id.cmp(&a.id));
    let last = CompletionCandidate::new("last").help(Some("the newest job".into()));
    let each = apps
        .iter()
        .map(|a| (a.id.to_string(), a.state.as_str().to_owned()));
    beginning(typed, each)
        .into_iter()
        .chain("last".starts_with(typed).then_some(last))
        .collect()
}

fn tasks(job: &str, typed: &str) -> Vec<CompletionCandidate> {
    let whole = format!("{job}/{typed}");
    let rows = ask(async |client| {
        let target = crate::target::parse(job).ok();
        let apps = client.apps().await?;
        let id = target.and_then(|target| crate::target::resolve(&target, &apps).ok());
        let app = match id {
            Some(id) => Some(client.app(&id).await?),
            None => None,
        };
        Ok(app
            .and_then(|app| app.job)
            .map(|job| job.tasks)
            .unwrap_or_default())
    });
    let state = |t: &headroom_wire::v1::job::TaskRow| {
        format!("{:?}, rung {}", t.state, t.rung).to_lowercase()
    };
    beginning(
        &whole,
        rows.iter().map(|t| (format!("{job}/{}", t.task), state(t))),
    )
}

/// Nodes with their states.
pub(crate) fn nodes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let nodes = ask(async |client| client.nodes().await);
    beginning(
        typed.to_str().unwrap_or_default(),
        nodes.into_iter().map(|n| (n.id.to_string(), n.state)),
    )
}

/// Queues with their states.
pub(crate) fn queues(typed: &OsStr) -> Vec<CompletionCandidate> {
    let queues = ask(async |client| {
        let view = client.queues().await?;
        Ok(view
            .root
            .walk()
            .into_iter()
            .map(|q| (q.path.short().to_owned(), q.state.as_str().to_owned()))
            .collect())
    });
    beginning(typed.to_str().unwrap_or_default(), queues)
}

/// Profiles of the cluster with their sizes.
pub(crate) fn profiles(typed: &OsStr) -> Vec<CompletionCandidate> {
    let all = ask(async |client| client.profiles().await);
    beginning(
        typed.to_str().unwrap_or_default(),
        all.into_iter()
            .map(|p| (p.name.to_string(), p.size().to_string())),
    )
}

/// Containers that have not ended.
pub(crate) fn containers(typed: &OsStr) -> Vec<CompletionCandidate> {
    let all = ask(async |client| client.containers(None).await);
    let alive = all.into_iter().filter(|c| c.ended.is_none());
    beginning(
        typed.to_str().unwrap_or_default(),
        alive.map(|c| (c.id.to_string(), format!("{} on {}", c.state, c.node))),
    )
}

/// Contexts of the user's file.
pub(crate) fn contexts(typed: &OsStr) -> Vec<CompletionCandidate> {
    let file = settings::file::user(&settings::file::user_place()).unwrap_or_default();
    let addr = |c: &settings::file::ContextSettings| c.addr.clone().unwrap_or_default();
    beginning(
        typed.to_str().unwrap_or_default(),
        file.contexts
            .iter()
            .map(|(name, c)| (name.clone(), addr(c))),
    )
}

fn beginning(
    typed: &str,
    all: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let wanted = all.into_iter().filter(|(name, _)| name.starts_with(typed));
    wanted
        .map(|(name, help)| CompletionCandidate::new(name).help(Some(help.into())))
        .collect()
}

/// The answer of the cluster within the timeout, or an empty list: a shell cannot show an error.
fn ask<T, F>(call: impl FnOnce(Client) -> F) -> Vec<T>
where
    F: Future<Output = Result<Vec<T>, ClientError>>,
{
    let variable = |name: &'static str| {
        Some((
            std::env::var(name).ok().filter(|v| !v.is_empty())?,
            SettingSource::Variable(name),
        ))
    };
    let given = SettingOverrides {
        addr: variable("HEADROOM_ADDR"),
        context: variable("HEADROOM_CONTEXT"),
        ..SettingOverrides::default()
    };
    let Ok(settings) = settings::load(given) else {
        return Vec::new();
    };
    let Ok(client) = Client::with_credentials(&settings.addr.value, settings.trust.clone()) else {
        return Vec::new();
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return Vec::new();
    };
    runtime
        .block_on(async { tokio::time::timeout(MOST, call(client)).await })
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_offers_only_matching_prefixes() {
        let all = [
            ("worker-01".to_owned(), "ready".to_owned()),
            ("other".to_owned(), "lost".to_owned()),
        ];
        let offered = beginning("work", all);
        assert_eq!(
            offered
                .iter()
                .map(|c| c.get_value().to_owned())
                .collect::<Vec<_>>(),
            ["worker-01"]
        );
    }
}
