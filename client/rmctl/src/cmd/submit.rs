//! `rmctl submit`: compiles a job file, compares it with the largest node, submits it, and follows
//! the job on request.

use headroom_client::Client;
use headroom_types::{AppId, UnixMillis};
use headroom_wire::v1::apps::{AppView, SubmissionResult};

use super::feasibility::{polls, refuse_growth, refuse_infeasible};
use super::job_file::{CompiledJob, load};
use super::submission::submit;
use super::upload;
use crate::args::SubmitArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::follow::{JobObservation, follow};
use crate::progress::ProgressLine;
use crate::render::figures::{byte_time, clock};
use crate::render::{TextPainter, count, events, json, plan};

/// Submits a job file.
pub(crate) async fn run(context: &CommandContext, args: SubmitArgs) -> CommandResult {
    let job = load(context, &args.file, args.mode).await?;
    let client = context.client()?;
    let groups = client.node_groups().await?;
    refuse_infeasible(&job.spec, &groups)?;
    refuse_growth(&job, &args.file.display().to_string(), &groups)?;
    let people = context.format.is_screen();
    if people {
        let largest = groups.iter().map(|group| group.offers.memory).max();
        context
            .term
            .print(&plan::plan(&job.spec, job.mode, largest, |stage| {
                polls(&job.spec, stage, &groups)
            }));
        context.term.print(&plan::named(&job.named));
        if largest.is_none() {
            context
                .term
                .say("note: no node is ready; the job waits for one");
        }
    }
    if args.dry_run {
        return Ok(CommandExitCode::Ok);
    }
    if args.unmanaged && !job.uploads.is_empty() {
        let file = args.file.display();
        return Err(CommandFailure::usage(format!(
            "{file} names files as upload:PATH, which the master of --unmanaged does not upload"
        ))
        .help("omit --unmanaged"));
    }
    if args.unmanaged {
        return unmanaged(context, &args, &job).await;
    }
    upload::upload(context, &client, &job.uploads).await?;
    let submitted = submit(&client, &job).await?;
    if !args.follow {
        print_submitted(context, &submitted, people);
        return Ok(CommandExitCode::Ok);
    }
    if people {
        let id = &submitted.app;
        context.term.line(&format!(
            "job   {} accepted   (Ctrl-C detaches; rmctl attach {id})",
            context.term.paint.strong(&id.to_string())
        ));
    }
    let app = tokio::select! {
        app = stay(context, &client, &submitted.app, people) => app?,
        _ = tokio::signal::ctrl_c() => {
            context.term.say(&format!("detached; {} keeps running: rmctl attach {}", submitted.app, submitted.app));
            return Ok(CommandExitCode::Ok);
        }
    };
    print_view(context, &app, people);
    Ok(CommandExitCode::of_app(&app))
}

/// Prints the last view in a machine format.
pub(crate) fn print_view(context: &CommandContext, app: &AppView, people: bool) {
    if !people {
        let text = json::MachineOutput::one(app).text(&context.output, |a| a.id.to_string());
        context.show(text, String::new);
    }
}

/// Prints events until the job has ended: to standard output for users, to standard error if
/// standard output is data.
pub(crate) async fn stay(
    context: &CommandContext,
    client: &Client,
    id: &AppId,
    people: bool,
) -> CommandResult<AppView> {
    let term = &context.term;
    let paint = if people { term.paint } else { term.talk };
    let progress = ProgressLine::tasks(term);
    let mut tasks = 0;
    let mut submitted: Option<UnixMillis> = None;
    let show = |line: String| {
        progress.above(|| {
            if people {
                term.line(&line)
            } else {
                term.say(&line)
            }
        })
    };
    let app = follow(client, id, |sight| match sight {
        JobObservation::View(view) => {
            submitted = Some(view.submitted);
            if let Some(job) = &view.job {
                tasks = job.totals.tasks;
                progress.show(&job.totals);
            }
        }
        JobObservation::Event(event) => {
            let from = *submitted.get_or_insert(event.time);
            if events::worth_following(event, tasks) {
                show(events::followed(event, from, paint));
            }
        }
        JobObservation::Waits(why) => show(events::waits(why, paint)),
    })
    .await?;
    show(summary(&app, paint));
    if people {
        show(paint.dim(&format!("next: {}", next(&app))));
    }
    Ok(app)
}

/// The command to type after a job has ended.
fn next(app: &AppView) -> String {
    let escalated = app.job.as_ref().is_some_and(|job| job.totals.escalated > 0);
    match CommandExitCode::of_app(app) == CommandExitCode::Ok {
        true if escalated => format!("rmctl job suggest {} · rmctl ps {}", app.id.name(), app.id),
        true => format!("rmctl ps {}", app.id),
        false => format!("rmctl diagnose {}", app.id),
    }
}

/// The last line: the result and the cost of the job.
fn summary(app: &AppView, paint: TextPainter) -> String {
    let took = clock(app.ended.unwrap_or(app.submitted).since(app.submitted));
    let state = crate::render::apps::state(app.state, paint);
    let why = if app.diagnostics.is_empty() {
        String::new()
    } else {
        format!("\n       {}", app.diagnostics)
    };
    let figures = app.job.as_ref().map(|j| &j.totals).map(|t| {
        let (kills, escalated) = (count(t.memory_kills, "kill"), count(t.escalated, "task"));
        let collateral = match t.collateral_reruns {
            0 => String::new(),
            n => format!(", {}", count(n, "collateral re-run")),
        };
        let rerun = byte_time(t.rerun_byte_ms);
        format!(
            " · {} ok, {} failed · {kills}, {escalated} escalated{collateral}, {rerun} re-run",
            t.done, t.failed
        )
    });
    format!("{took:>5}  {state}{}{why}", figures.unwrap_or_default())
}

/// Prints the id of a submitted application.
pub(super) fn print_submitted(
    context: &CommandContext,
    submitted: &SubmissionResult,
    people: bool,
) {
    let id = &submitted.app;
    if people {
        let name = context.term.paint.strong(&id.to_string());
        context.term.line(&format!(
            "job   {name} accepted\nnext: rmctl ps {id} · rmctl wait {id}"
        ));
        return;
    }
    let text = json::MachineOutput::one(submitted).text(&context.output, |s| s.app.to_string());
    context.show(text, String::new);
}

#[cfg(not(feature = "dev"))]
async fn unmanaged(
    _context: &CommandContext,
    args: &SubmitArgs,
    _job: &CompiledJob,
) -> CommandResult {
    let file = args.file.display();
    Err(
        CommandFailure::usage("this rmctl was built without an application master").help(format!(
            "start the master separately: appmaster --job {file}, or omit --unmanaged"
        )),
    )
}

/// Runs the master in this process. The master cannot outlive the process, so this waits until the
/// job has ended. Ctrl-C ends the job.
#[cfg(feature = "dev")]
async fn unmanaged(
    context: &CommandContext,
    args: &SubmitArgs,
    job: &CompiledJob,
) -> CommandResult {
    use headroom_appmaster::run::{self, StopRequest};
    let (stop, leave) = tokio::sync::watch::channel(StopRequest::GoOn);
    let mut options = run::MasterOptions {
        job: args.file.clone(),
        app: None,
        attempt: 1,
        rm: context.addr.clone(),
        trust: context.settings.trust.clone(),
        state: None,
        journals: None,
        base_dir: Some(job.base.clone()),
        listen: ([127, 0, 0, 1], 0).into(),
        profiles: job.named.clone(),
        mode: args.mode,
        master_memory: headroom_types::Bytes::ZERO,
        leave,
    };
    let spec = run::load(&options).map_err(|e| master_failed(&e))?;
    let id = run::submit(&mut options, &spec)
        .await
        .map_err(|e| master_failed(&e))?;
    let people = context.format.is_screen();
    if people {
        let name = context.term.paint.strong(&id.to_string());
        context.term.line(&format!(
            "job   {name} accepted, its master runs in this process (Ctrl-C ends the job)"
        ));
    }
    let client = context.client()?;
    let master = tokio::spawn(run::run(options, id.clone(), spec));
    let stay = stay(context, &client, &id, people);
    tokio::pin!(stay);
    let app = tokio::select! {
        app = &mut stay => app?,
        _ = tokio::signal::ctrl_c() => {
            stop.send_replace(StopRequest::Stop);
            stay.await?
        }
    };
    match master.await {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => return Err(master_failed(&e)),
        Err(e) => {
            return Err(CommandFailure::failed(format!(
                "the master of {id} was lost: {e}"
            )));
        }
    }
    print_view(context, &app, people);
    Ok(CommandExitCode::of_app(&app))
}

#[cfg(feature = "dev")]
fn master_failed(e: &headroom_appmaster::run::MasterRunError) -> CommandFailure {
    let exit = match e.exit_code() {
        2 => CommandExitCode::Usage,
        6 => CommandExitCode::Unreachable,
        _ => CommandExitCode::Failed,
    };
    let mut text = e.to_string();
    let mut cause = std::error::Error::source(e);
    while let Some(deeper) = cause {
        text.push_str(&format!(": {deeper}"));
        cause = deeper.source();
    }
    CommandFailure::new(exit, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn the_summary_shows_the_result_of_the_job() {
        let mut app = fixture::app();
        app.state = headroom_wire::v1::apps::AppState::Finished;
        app.ended = Some(UnixMillis(fixture::START + 280_000));
        insta::assert_snapshot!(summary(&app, TextPainter::PLAIN));
        assert!(next(&app).ends_with("rmctl ps wordcount.7"));
        app.job.as_mut().expect("job").totals.collateral_reruns = 1;
        assert!(
            summary(&app, TextPainter::PLAIN).contains("1 task escalated, 1 collateral re-run, ")
        );
        app.state = headroom_wire::v1::apps::AppState::Failed;
        assert_eq!(next(&app), "rmctl diagnose wordcount.7");
    }
}
