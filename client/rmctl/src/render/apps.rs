//! Table of jobs.

use headroom_types::UnixMillis;
use headroom_wire::v1::apps::{AppState, AppView};

use super::figures::{or_dash, short, span};
use super::table::{Column, list};
use super::{ListStyle, TextPainter};

/// Maximum number of jobs unless the screen is wide.
const MOST: usize = 30;

/// The whole screen, in the given order of jobs.
pub(crate) fn screen(apps: &[AppView], now: UnixMillis, look: ListStyle) -> String {
    if apps.is_empty() {
        return look.advice("no jobs\nnext: rmctl submit FILE · rmctl demo\n".to_owned());
    }
    let most = if look.wide { usize::MAX } else { MOST };
    let master = |a: &AppView| {
        let attempt = a.managed.then(|| format!("managed, attempt {}", a.attempt));
        attempt.unwrap_or_else(|| "unmanaged".to_owned())
    };
    let took = |a: &AppView| a.ended.map(|end| span(end.since(a.submitted)));
    let columns: &[Column<'_, &AppView>] = &[
        ("JOB", &|a| a.id.to_string()),
        ("STATE", &|a| state(a.state, look.paint)),
        (">CTR", &|a| a.containers.to_string()),
        (">MEMORY", &|a| short(a.memory)),
        (">PENDING", &|a| a.pending.to_string()),
        ("USER", &|a| a.user.clone()),
        (">AGE", &|a| span(now.since(a.submitted))),
        (">TOOK", &|a| or_dash(took(a))),
        ("+QUEUE", &|a| a.queue.short().to_owned()),
        ("+>PRIORITY", &|a| a.priority.to_string()),
        ("+MASTER", &master),
        ("NOTE", &|a| look.cut(&a.diagnostics, 60)),
    ];
    let rows = list(apps.iter().take(most), look, columns);
    let more = apps.len().saturating_sub(most);
    let more = if more > 0 {
        format!("… {more} older ones: rmctl ps -o wide\n")
    } else {
        String::new()
    };
    let newest = apps
        .iter()
        .map(|a| &a.id)
        .max()
        .map(ToString::to_string)
        .unwrap_or_default();
    rows + &look.advice(more + &look.paint.next(format!("rmctl ps {newest}")))
}

/// A state with its glyph.
pub(crate) fn state(state: AppState, paint: TextPainter) -> String {
    match state {
        AppState::Accepted => paint.dim("… accepted"),
        AppState::Running => paint.live("▶ running"),
        AppState::Finishing => paint.live("▶ finishing"),
        AppState::Finished => paint.good("✓ finished"),
        AppState::Failed => paint.bad("✗ failed"),
        AppState::Killed => paint.bad("✗ killed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn jobs_in_every_state() {
        let states = [
            AppState::Accepted,
            AppState::Running,
            AppState::Finished,
            AppState::Failed,
            AppState::Killed,
        ];
        let mut apps: Vec<AppView> = (1u32..)
            .zip(states)
            .map(|(seq, state)| in_state(seq, state))
            .collect();
        apps.reverse();
        insta::assert_snapshot!(screen(&apps, fixture::NOW, ListStyle::USUAL));
        insta::assert_snapshot!("wide", screen(&apps, fixture::NOW, ListStyle::WIDE));
    }

    fn in_state(seq: u32, state: AppState) -> AppView {
        let mut app = fixture::app();
        app.id = headroom_types::AppId::new("sort".parse().expect("name"), seq);
        app.state = state;
        if state.is_final() {
            app.ended = Some(UnixMillis(fixture::START + 61_000));
            (app.containers, app.pending, app.memory) = (0, 0, headroom_types::Bytes::ZERO);
        }
        if state == AppState::Failed {
            app.diagnostics =
                "group/4 was killed 4 times at 32 MiB; mode fixed does not try a larger size"
                    .into();
        }
        app
    }

    #[test]
    fn an_empty_list_shows_how_to_submit_a_job() {
        let bare = ListStyle {
            headers: false,
            ..ListStyle::USUAL
        };
        assert_eq!(screen(&[], fixture::NOW, bare), "");
        assert!(screen(&[], fixture::NOW, ListStyle::USUAL).contains("rmctl submit"));
    }
}
