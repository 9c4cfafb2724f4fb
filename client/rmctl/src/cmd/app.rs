//! `rmctl app`: an application goes on in another queue, with another priority, with another end of its time.

use headroom_types::UnixMillis;
use headroom_wire::v1::apps::{AppView, ChangeApp};

use crate::args::{AppVerb, Life};
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::{figures::span, json::Found};

/// Changes one application.
pub(crate) async fn run(context: &Context, what: AppVerb) -> Result<Exit, Failure> {
    let (job, body) = match what {
        AppVerb::Move { job, queue } => (job, ChangeApp { queue: Some(queue), ..ChangeApp::default() }),
        AppVerb::Priority { job, priority } => (job, ChangeApp { priority: Some(priority), ..ChangeApp::default() }),
        AppVerb::Lifetime { job, time } => {
            let ms = match time {
                Life::Unbounded => 0,
                Life::AtMost(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1),
            };
            (job, ChangeApp { lifetime_ms: Some(ms), ..ChangeApp::default() })
        }
    };
    let client = context.client()?;
    let (app, _) = context.app(&client, &job).await?;
    let after = client.change_app(&app.id, None, &body).await?;
    let machine = Found { items: std::slice::from_ref(&after), list: false }.text(&context.output, |a| a.id.to_string());
    context.term.print(&machine.unwrap_or_else(|| people(&after, now())));
    Ok(Exit::Ok)
}

fn people(app: &AppView, now: UnixMillis) -> String {
    let until = app.until.map_or_else(|| "as long as it likes".to_owned(), |until| format!("{} more", span(until.since(now))));
    let id = &app.id;
    format!("{id}  queue {}, priority {}, may live {until}\nnext: rmctl why {id}\n", app.queue.short(), app.priority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn what_holds_now_is_said() {
        let mut app = fixture::app();
        app.until = Some(UnixMillis(fixture::NOW.0 + 90_000));
        assert_eq!(
            people(&app, fixture::NOW),
            "wordcount.7  queue default, priority 0, may live 1m30s more\nnext: rmctl why wordcount.7\n"
        );
        app.until = None;
        assert!(people(&app, fixture::NOW).contains("as long as it likes"));
    }
}
