//! `rmctl request`: the container requests of an application master.

use headroom_client::Client;
use headroom_types::AppId;
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{AppView, PendingExplanation};

use super::newrequest;
use crate::args::{ConfirmOptions, ListOptions, RequestSubcommand};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{count, figures::short, json::MachineOutput, requests, why};

/// Runs a `request` verb.
pub(crate) async fn run(context: &CommandContext, what: RequestSubcommand) -> CommandResult {
    let client = context.client()?;
    match what {
        RequestSubcommand::List { job, rows } => list(context, &client, &job, &rows).await,
        RequestSubcommand::Show { job, request } => {
            let (app, _) = context.app_figures(&client, &job).await?;
            let ask = one(&client.requests(&app.id).await?, &app.id, &request)?;
            let shown = MachineOutput::one(&ask);
            // A screen also shows every field, as YAML, because the request is the master's own
            // document.
            let yaml = crate::args::OutputOptions::plain(crate::args::OutputFormat::Yaml);
            let output = if context.format.is_screen() {
                &yaml
            } else {
                &context.output
            };
            context.term.print(&shown.rows(output).unwrap_or_default());
            Ok(CommandExitCode::Ok)
        }
        RequestSubcommand::Create(args) => newrequest::create(context, &client, *args).await,
        RequestSubcommand::Cancel { job, request, sure } => {
            cancel(context, &client, &job, &request, sure).await
        }
        RequestSubcommand::Why { job, request } => {
            waits(context, &client, &job, request.as_deref()).await
        }
    }
}

async fn list(
    context: &CommandContext,
    client: &Client,
    job: &str,
    rows: &ListOptions,
) -> CommandResult {
    let context = &context.list(rows);
    let (app, _) = context.app_figures(client, job).await?;
    let asks = rows.wanted().of(client.requests(&app.id).await?, now())?;
    if let Some(text) = MachineOutput::list(&asks).rows(&context.output) {
        context.term.print(&text);
        return Ok(CommandExitCode::Ok);
    }
    let waits = if app.state.is_final() {
        Vec::new()
    } else {
        client.why(&app.id).await?
    };
    context.term.print(&requests::screen(
        &app.id.to_string(),
        &asks,
        &waits,
        context.look(),
    ));
    Ok(CommandExitCode::Ok)
}

/// The request of that name, or the only one with that prefix.
fn one(asks: &[PlacementRequest], app: &AppId, name: &str) -> CommandResult<PlacementRequest> {
    if let Some(ask) = asks.iter().find(|a| a.request.as_str() == name) {
        return Ok(ask.clone());
    }
    let begin: Vec<&PlacementRequest> = asks
        .iter()
        .filter(|a| a.request.as_str().starts_with(name))
        .collect();
    match begin.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let failure = CommandFailure::not_found(format!("{app} has no request {name}"));
            Err(failure
                .near(name, asks.iter().map(|a| a.request.as_str()))
                .help(format!("rmctl request list {app}")))
        }
        many => Err(CommandFailure::usage(format!(
            "{} requests of {app} begin with {name}",
            many.len()
        ))
        .help(format!("rmctl request list {app}"))),
    }
}

async fn cancel(
    context: &CommandContext,
    client: &Client,
    job: &str,
    name: &str,
    sure: ConfirmOptions,
) -> CommandResult {
    let (app, _) = context.app_figures(client, job).await?;
    let ask = one(&client.requests(&app.id).await?, &app.id, name)?;
    let open = ask.count.saturating_sub(ask.ended);
    let what = format!(
        "{} of {}",
        count(open, "container"),
        short(ask.resource.memory)
    );
    if sure.dry_run {
        context.term.line(&format!(
            "{} would be withdrawn: {what} still open",
            ask.request
        ));
        return Ok(CommandExitCode::Ok);
    }
    context.confirm(
        sure,
        &format!("{} is withdrawn: {what} still open", ask.request),
    )?;
    let after: AppView = client.withdraw(&app.id, &ask.request).await?;
    let text = MachineOutput::one(&after).rows(&context.output);
    let people = || {
        format!(
            "{} withdrawn: {what} still open\nnext: rmctl request list {}\n",
            ask.request, app.id
        )
    };
    Ok(context.show(text, people))
}

async fn waits(
    context: &CommandContext,
    client: &Client,
    job: &str,
    name: Option<&str>,
) -> CommandResult {
    let (app, _) = context.app_figures(client, job).await?;
    let mut waits: Vec<PendingExplanation> = client.why(&app.id).await?;
    if let Some(name) = name {
        let ask = one(&client.requests(&app.id).await?, &app.id, name)?;
        waits.retain(|w| w.request == ask.request);
    }
    let machine = MachineOutput::list(&waits).text(&context.output, |w| w.request.to_string());
    Ok(context.show(machine, || {
        why::of_requests(&app, &waits, context.term.paint)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(names: &[&str]) -> Vec<PlacementRequest> {
        let text = include_str!("../../../wire/golden/v1/ask.json");
        let ask: PlacementRequest = serde_json::from_str(text).expect("an ask");
        names
            .iter()
            .map(|n| PlacementRequest {
                request: n.parse().expect("request"),
                ..ask.clone()
            })
            .collect()
    }

    #[test]
    fn a_request_is_found_by_its_prefix() {
        let app = "sort.1".parse().expect("id");
        let all = asks(&["executor-main", "own-map-1-r1", "own-map-1-r2"]);
        let find = |name: &str| one(&all, &app, name).map(|a| a.request.to_string());
        assert_eq!(find("exec"), Ok("executor-main".into()));
        assert_eq!(find("own-map-1-r1"), Ok("own-map-1-r1".into()));
        assert_eq!(find("own").expect_err("two").exit(), CommandExitCode::Usage);
        let none = find("own-map-1-r3").expect_err("none");
        assert!(
            none.exit() == CommandExitCode::NotFound
                && none.to_string().contains("did you mean \"own-map-1-r"),
            "{none}"
        );
    }
}
