//! `rmctl profile test`: runs one command once at the size of a profile and compares its memory use
//! with the size.

use headroom_types::{Bytes, Cpus, ExitCharge, Name, Profile};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::AttemptRow;

use super::run;
use crate::args::{ProfileTestArgs, RunArgs};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::figures::{percent, short};
use crate::render::{TextPainter, json::MachineOutput};

/// Runs the command and prints its memory use.
pub(crate) async fn test(context: &CommandContext, args: ProfileTestArgs) -> CommandResult {
    let ProfileTestArgs {
        name,
        nodes,
        launch,
        timeout,
        queue,
    } = args;
    let wanted = RunArgs {
        profile: Some(name.clone()),
        nodes,
        launch,
        timeout,
        queue,
        memory: Bytes::ZERO,
        cap: None,
        no_escalate: true,
        cpus: Cpus::from_cores(1),
        name: Some(format!("test-{name}")),
        detach: false,
    };
    // Standard output is for the result.
    let beside = CommandContext {
        term: context.term.aside(),
        ..context.clone()
    };
    let app = run::to_its_end(&beside, &wanted).await?;
    let Some(attempt) = run::last_attempt(&app) else {
        return Err(
            CommandFailure::failed(format!("the task never ran: {}", app.diagnostics))
                .help(format!("rmctl why {}", app.id)),
        );
    };
    let machine = MachineOutput::one(attempt).text(&context.output, |a| a.attempt.to_string());
    context.show(machine, || people(&name, &app, attempt, context.term.paint));
    Ok(exit(attempt))
}

fn exit(attempt: &AttemptRow) -> CommandExitCode {
    match attempt.reason.map(|reason| reason.charge()) {
        Some(ExitCharge::Success) => CommandExitCode::Ok,
        Some(ExitCharge::Memory) => CommandExitCode::OomExhausted,
        Some(ExitCharge::Plain | ExitCharge::Free) | None => CommandExitCode::Failed,
    }
}

fn people(name: &Name, app: &AppView, a: &AttemptRow, paint: TextPainter) -> String {
    let Profile { heap, overhead, .. } = &a.profile;
    let parts = if overhead.is_zero() {
        String::new()
    } else {
        format!(" (heap {} + overhead {})", short(*heap), short(*overhead))
    };
    let limit = a.profile.memory();
    let needed = match a.peak {
        Some(peak) if peak < limit => {
            format!(
                "{} at most of {}, {} to spare",
                short(peak),
                short(limit),
                percent(limit.saturating_sub(peak), limit)
            )
        }
        Some(_) => format!("all of {}", short(limit)),
        None => format!("too short to measure its use of {}", short(limit)),
    };
    let (fate, next) = match a.reason.map(|reason| reason.charge()) {
        Some(ExitCharge::Success) => (paint.good("✓ enough"), format!("rmctl profile show {name}")),
        Some(ExitCharge::Memory) => (
            paint.bad("✗ too small"),
            format!("rmctl diagnose {}", app.id),
        ),
        Some(ExitCharge::Plain | ExitCharge::Free) | None => (
            paint.warn("! it failed"),
            format!("rmctl diagnose {}", app.id),
        ),
    };
    let how = a.reason.map(|reason| reason.sentence()).unwrap_or_default();
    let next = paint.dim(&format!("next: {next}"));
    format!(
        "{}  {fate}{parts} on {}: {needed}; {how}\n{next}\n",
        paint.strong(name.as_str()),
        a.node
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::ExitReason;

    #[test]
    fn the_result_shows_spare_and_missing_memory() {
        let (name, app) = ("etl".parse().expect("a name"), fixture::app());
        let mut attempt = fixture::killed();
        let text = people(&name, &app, &attempt, TextPainter::PLAIN);
        assert!(
            text.contains("✗ too small") && text.contains("all of 4.4G"),
            "{text}"
        );
        assert_eq!(exit(&attempt), CommandExitCode::OomExhausted);
        attempt.reason = Some(ExitReason::Exit { code: 0 });
        attempt.peak = Some(Bytes::from_mib(1126));
        let text = people(&name, &app, &attempt, TextPainter::PLAIN);
        assert!(
            text.contains("✓ enough") && text.contains("75% to spare"),
            "{text}"
        );
        assert_eq!(exit(&attempt), CommandExitCode::Ok);
        attempt.reason = Some(ExitReason::Exit { code: 3 });
        assert_eq!(exit(&attempt), CommandExitCode::Failed);
    }
}
