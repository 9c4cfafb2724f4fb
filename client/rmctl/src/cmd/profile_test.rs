//! `rmctl profile test`: runs one command once at the size of a profile and compares its memory use
//! with the size.

use headroom_types::{Bytes, Charge, Cpus, Name, Profile};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::AttemptRow;

use super::run;
use crate::args::{Run, TestProfile};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::figures::{percent, short};
use crate::render::{Paint, json::MachineOutput};

/// Runs the command and prints its memory use.
pub(crate) async fn test(context: &Context, args: TestProfile) -> Result<Exit, Failure> {
    let TestProfile {
        name,
        nodes,
        env,
        timeout,
        queue,
        command,
    } = args;
    let wanted = Run {
        profile: Some(name.clone()),
        nodes,
        env,
        timeout,
        queue,
        command,
        memory: Bytes::ZERO,
        cap: None,
        no_escalate: true,
        cpus: Cpus::from_cores(1),
        name: Some(format!("test-{name}")),
        detach: false,
    };
    // Standard output is for the result.
    let beside = Context {
        term: context.term.aside(),
        ..context.clone()
    };
    let app = run::to_its_end(&beside, &wanted).await?;
    let Some(attempt) = run::last_attempt(&app) else {
        return Err(Failure::new(
            Exit::Failed,
            format!("the task never ran: {}", app.diagnostics),
        )
        .help(format!("rmctl why {}", app.id)));
    };
    let machine = MachineOutput {
        items: std::slice::from_ref(attempt),
        list: false,
    }
    .text(&context.output, |a| a.attempt.to_string());
    context
        .term
        .print(&machine.unwrap_or_else(|| people(&name, &app, attempt, context.term.paint)));
    Ok(exit(attempt))
}

fn exit(attempt: &AttemptRow) -> Exit {
    match attempt.reason.map(|reason| reason.charge()) {
        Some(Charge::Success) => Exit::Ok,
        Some(Charge::Memory) => Exit::OomExhausted,
        Some(Charge::Plain | Charge::Free) | None => Exit::Failed,
    }
}

fn people(name: &Name, app: &AppView, a: &AttemptRow, paint: Paint) -> String {
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
        Some(Charge::Success) => (paint.good("✓ enough"), format!("rmctl profile show {name}")),
        Some(Charge::Memory) => (
            paint.bad("✗ too small"),
            format!("rmctl diagnose {}", app.id),
        ),
        Some(Charge::Plain | Charge::Free) | None => (
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
        let text = people(&name, &app, &attempt, Paint::PLAIN);
        assert!(
            text.contains("✗ too small") && text.contains("all of 4.4G"),
            "{text}"
        );
        assert_eq!(exit(&attempt), Exit::OomExhausted);
        attempt.reason = Some(ExitReason::Exit { code: 0 });
        attempt.peak = Some(Bytes::from_mib(1126));
        let text = people(&name, &app, &attempt, Paint::PLAIN);
        assert!(
            text.contains("✓ enough") && text.contains("75% to spare"),
            "{text}"
        );
        assert_eq!(exit(&attempt), Exit::Ok);
        attempt.reason = Some(ExitReason::Exit { code: 3 });
        assert_eq!(exit(&attempt), Exit::Failed);
    }
}
