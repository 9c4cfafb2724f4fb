//! Screen of the container requests of a master.

use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::PendingExplanation;

use super::ListStyle;
use super::figures::{short, span};
use super::table::{Table, cut};

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
    let mut headers = vec![
        "REQUEST",
        "STATE",
        ">MEMORY",
        ">CPUS",
        ">COUNT",
        ">ENDED",
        ">PRIORITY",
    ];
    if look.wide {
        headers.push("COMMAND");
    }
    headers.push("WHY");
    let mut table = Table::new(&headers);
    for ask in asks {
        let wait = waits.iter().find(|w| w.request == ask.request);
        let state = wait.map_or_else(|| paint.good("✓ granted"), |_| paint.dim("… waits"));
        let mut cells = vec![
            ask.request.to_string(),
            state,
            short(ask.resource.memory),
            ask.resource.cpus.to_string(),
        ];
        cells.extend([
            ask.count.to_string(),
            ask.ended.to_string(),
            ask.priority.to_string(),
        ]);
        if look.wide {
            cells.push(ask.launch.command.join(" "));
        }
        let waited = |w: &PendingExplanation| span(std::time::Duration::from_millis(w.waiting_ms));
        let why = wait
            .map(|w| format!("{} · {}", waited(w), w.sentence))
            .unwrap_or_default();
        cells.push(if look.wide { why } else { cut(&why, 36) });
        table.row(cells);
    }
    let first = waits.first().map_or_else(
        || format!("rmctl ps {app}"),
        |w| format!("rmctl request why {app} {}", w.request),
    );
    table.of(look.headers) + &look.advice(paint.dim(&format!("next: {first}")) + "\n")
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
