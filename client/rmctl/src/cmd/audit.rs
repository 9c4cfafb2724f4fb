//! `rmctl audit list`: the audit log.

use std::time::Duration;

use headroom_client::AuditQuery;
use headroom_client::retry::ExponentialBackoff;
use headroom_wire::v1::audit::AuditLine;
use tokio::time::{Instant, timeout};

use crate::args::{AuditListArgs, OutputFormat};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandResult};
use crate::follow::SERVER_SILENCE_TIMEOUT;
use crate::interrupt::Interrupt;
use crate::render::audit;
use crate::render::json::MachineOutput;

/// Polling interval of `--watch`: the server does not push the audit log.
const LOOK: Duration = Duration::from_secs(1);

/// Prints the audit log, and with `watch` also new entries.
pub(crate) async fn list(context: &CommandContext, args: AuditListArgs) -> CommandResult {
    let context = &context.list(&args.rows);
    let client = context.client()?;
    let AuditListArgs {
        who,
        verb,
        about,
        refused,
        ..
    } = args;
    let of = AuditQuery {
        who,
        verb,
        object: about,
        refused: refused.then_some(true),
    };
    let which = args.rows.wanted();
    let all = client.audit(&of, 0).await?;
    let mut after = all.last().map_or(0, |line| line.index);
    let all = which.of(all, now())?;
    let skipped = args.tail.map_or(0, |n| all.len().saturating_sub(n));
    print_all(context, &all[skipped..], args.watch);
    if !args.watch {
        return Ok(CommandExitCode::Ok);
    }
    let (mut silent, mut backoff) = (None::<Instant>, ExponentialBackoff::usual());
    let (mut wait, interrupt) = (LOOK, Interrupt::ctrl_c()?);
    loop {
        if timeout(wait, interrupt.asked()).await.is_ok() {
            return Ok(CommandExitCode::Ok);
        }
        match client.audit(&of, after).await {
            Ok(more) => {
                (silent, wait) = (None, LOOK);
                backoff.reset();
                after = more.last().map_or(after, |line| line.index);
                let more: Vec<AuditLine> =
                    more.into_iter().filter(|line| which.takes(line)).collect();
                print_all(context, &more, true);
            }
            // The resource manager may be restarting.
            Err(e)
                if e.retryable()
                    && silent.get_or_insert_with(Instant::now).elapsed()
                        < SERVER_SILENCE_TIMEOUT =>
            {
                wait = backoff.wait()
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn print_all(context: &CommandContext, all: &[AuditLine], watch: bool) {
    let wide = context.format == OutputFormat::Wide;
    let output = if watch {
        context.output.endless()
    } else {
        context.output.clone()
    };
    if watch && all.is_empty() {
        return;
    }
    let people = || {
        let lines: String = all
            .iter()
            .map(|line| audit::line(line, wide, context.term.paint) + "\n")
            .collect();
        if watch {
            lines
        } else {
            lines + &context.look().advice(audit::next(all, context.term.paint))
        }
    };
    let text = MachineOutput::list(all).rows(&output);
    context.show(text, people);
}
