//! Screen of the container requests of a master.

use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::PendingExplanation;

use super::ListStyle;
use super::figures::{short, span};
use super::table::{Column, list};

/// The whole screen. `waits` are the waiting requests with their reasons.
pub(crate) fn screen(
    app: &str,
    asks: &[PlacementRequest],
    waits: &[PendingExplanation],
    look: ListStyle,
) -> String {
    let paint = look.paint;
    if asks.is_empty() {
        return look.advice(format!("{app} has no open request\nnext: rmctl ps {app}\n"));
    }
    let wait = |ask: &PlacementRequest| waits.iter().find(|w| w.request == ask.request);
    let why = |ask: &PlacementRequest| {
        let wait = wait(ask)?;
        let waited = span(std::time::Duration::from_millis(wait.waiting_ms));
        Some(format!("{waited} · {}", wait.sentence))
    };
    let first = waits.first().map_or_else(
        || format!("rmctl ps {app}"),
        |w| format!("rmctl request why {app} {}", w.request),
    );
    let columns: &[Column<'_, &PlacementRequest>] = &[
        ("REQUEST", &|ask| ask.request.to_string()),
        ("STATE", &|ask| {
            wait(ask).map_or_else(|| paint.good("✓ granted"), |_| paint.dim("… waits"))
        }),
        (">MEMORY", &|ask| short(ask.resource.memory)),
        (">CPUS", &|ask| ask.resource.cpus.to_string()),
        (">COUNT", &|ask| ask.count.to_string()),
        (">ENDED", &|ask| ask.ended.to_string()),
        (">PRIORITY", &|ask| ask.priority.to_string()),
        ("+COMMAND", &|ask| ask.launch.command.join(" ")),
        ("WHY", &|ask| look.cut(&why(ask).unwrap_or_default(), 36)),
    ];
    list(asks, look, columns) + &look.advice(paint.next(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn ask(request: &str, gib: u64) -> PlacementRequest {
        let text = include_str!("../../../wire/golden/v1/ask.json");
        let ask: PlacementRequest = serde_json::from_str(text).expect("an ask");
        let mut resource = ask.resource.clone();
        resource.memory = headroom_types::Bytes::from_gib(gib);
        PlacementRequest {
            request: request.parse().expect("request"),
            resource,
            ..ask
        }
    }

    #[test]
    fn a_waiting_request_shows_its_reason() {
        let asks = [ask("executor-main", 4), ask("own-map-9-r2", 10)];
        insta::assert_snapshot!(
            "requests",
            screen("wordcount.7", &asks, &fixture::why(), ListStyle::USUAL)
        );
        assert!(screen("a.1", &[], &[], ListStyle::USUAL).contains("no open request"));
    }
}
