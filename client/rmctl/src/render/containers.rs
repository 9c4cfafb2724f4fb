//! Screens of containers: a table, and one container in detail.

use headroom_types::{Bytes, UnixMillis};
use headroom_wire::v1::apps::ContainerView;

use super::figures::{or_dash, percent, short, short_or_dash, span};
use super::table::{Column, list};
use super::{ListStyle, TextPainter};

/// The whole screen, in the given order of containers.
pub(crate) fn screen(all: &[ContainerView], now: UnixMillis, look: ListStyle) -> String {
    let paint = look.paint;
    if all.is_empty() {
        return look.advice("no containers\nnext: rmctl ps\n".to_owned());
    }
    let rows: Vec<&ContainerView> = all.iter().collect();
    let first = rows.first().map(|c| c.id.to_string()).unwrap_or_default();
    let next = paint.next(format!("rmctl container show {first} · rmctl top"));
    table(&rows, now, look) + &look.advice(next)
}

/// The table alone.
pub(crate) fn table(rows: &[&ContainerView], now: UnixMillis, look: ListStyle) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let most = |c: &ContainerView| c.peak.or(c.used);
    let columns: &[Column<'_, &ContainerView>] = &[
        ("CONTAINER", &|c| c.id.to_string()),
        ("STATE", &|c| state(c, look.paint)),
        (">LIMIT", &|c| short(c.resource.memory)),
        (">USED", &|c| short_or_dash(c.used)),
        (">PEAK", &|c| short_or_dash(c.peak)),
        (">%LIM", &|c| {
            or_dash(most(c).map(|most| percent(most, c.resource.memory)))
        }),
        ("NODE", &|c| c.node.to_string()),
        (">AGE", &|c| span(c.ended.unwrap_or(now).since(c.granted))),
        ("+>CPUS", &|c| c.resource.cpus.to_string()),
        ("+>VERSION", &|c| c.version.to_string()),
        ("+>EXIT", &|c| or_dash(c.exit_code)),
        ("FOR", &purpose),
    ];
    list(rows.iter().copied(), look, columns)
}

fn purpose(c: &ContainerView) -> String {
    let whose = c
        .request
        .as_ref()
        .map_or_else(|| "application master".to_owned(), ToString::to_string);
    let reason = c
        .reason
        .map(|r| format!(": {}", r.sentence()))
        .unwrap_or_default();
    format!("{whose}{reason}")
}

/// A container's state with its glyph.
fn state(c: &ContainerView, paint: TextPainter) -> String {
    use headroom_types::ExitCharge::{Free, Memory, Plain, Success};
    match (c.state.as_str(), c.reason.map(|r| r.charge())) {
        ("running", _) => paint.live("▶ running"),
        (_, Some(Success)) => paint.good("✓ ended"),
        (_, Some(Memory | Plain)) => paint.bad("✗ ended"),
        (_, Some(Free)) => paint.warn("↻ ended"),
        (state, None) => paint.dim(&format!("… {state}")),
    }
}

/// One container.
pub(crate) fn one(c: &ContainerView, now: UnixMillis, paint: TextPainter) -> String {
    let mut text = format!("{}  {}\n", paint.strong(&c.id.to_string()), state(c, paint));
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<9}{value}\n"));
    let whose = c.request.as_ref().map_or_else(
        || "application master".to_owned(),
        |r| format!("request {r}"),
    );
    line(
        "for",
        format!("{} of {}, attempt {}", whose, c.id.app, c.attempt),
    );
    line("node", c.node.to_string());
    let on_its_way = c
        .wanted
        .as_ref()
        .map(|w| format!(", {} is pending (version {})", w.resource, w.version));
    line(
        "size",
        format!(
            "{} (version {}){}",
            c.resource,
            c.version,
            on_its_way.unwrap_or_default()
        ),
    );
    let part = |b: Bytes| format!("{} ({})", short(b), percent(b, c.resource.memory));
    let used = c.used.map_or_else(|| "not known".to_owned(), part);
    let peak = c
        .peak
        .map(|p| format!(", at most {}", part(p)))
        .unwrap_or_default();
    line("memory", format!("{used}{peak}"));
    match c.ended {
        None => line("age", span(now.since(c.granted))),
        Some(end) => line(
            "lived",
            format!(
                "{}, ended {} ago",
                span(end.since(c.granted)),
                span(now.since(end))
            ),
        ),
    }
    if let Some(reason) = c.reason {
        // An exit code alone does not show that the kernel killed the program for memory.
        let code = c
            .exit_code
            .map(|code| format!(" (exit code {code})"))
            .unwrap_or_default();
        line("ended", format!("{reason}: {}{code}", reason.sentence()));
    }
    let see = if c.ended.is_some() {
        format!("rmctl diagnose {}", c.id)
    } else {
        format!("rmctl container stats {}", c.id)
    };
    text + &paint.next(format!("{see} · rmctl logs {}", c.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn containers_in_every_state() {
        let mut all = fixture::containers();
        all[2].peak = Some(all[2].resource.memory);
        all[2].ended = Some(fixture::NOW);
        all[2].exit_code = Some(137);
        insta::assert_snapshot!("containers", screen(&all, fixture::NOW, ListStyle::USUAL));
        insta::assert_snapshot!(
            "containers_wide",
            screen(&all, fixture::NOW, ListStyle::WIDE)
        );
        let texts: Vec<String> = all
            .iter()
            .map(|c| one(c, fixture::NOW, TextPainter::PLAIN))
            .collect();
        insta::assert_snapshot!("one_container", texts.join("---\n"));
    }
}
