//! Chart of a container's memory over time, for the verbs that show one container.

use headroom_types::{Bytes, ExitCharge};
use headroom_wire::v1::apps::ContainerTimeline;

use crate::render::timeline::{self, TimelineEnd};
use crate::render::{TextPainter, figures::short};

/// Maximum width of a chart. Columns.
pub(super) const CHART: usize = 72;

/// Width of the axis at the left of a chart. Columns.
pub(super) const MARGIN: usize = 10;

/// The chart of a container with a heading. The peak of the kernel overrides the samples, which
/// miss short peaks.
pub(super) fn container_chart(
    found: &ContainerTimeline,
    peak: Option<Bytes>,
    width: usize,
    paint: TextPainter,
) -> String {
    let killed = found
        .reason
        .is_some_and(|reason| reason.charge() == ExitCharge::Memory);
    let end = if killed {
        TimelineEnd::Killed
    } else {
        TimelineEnd::Other
    };
    let state = found
        .reason
        .map_or_else(|| "runs".to_owned(), |reason| format!("ended: {reason}"));
    let seen = found.samples.iter().map(|s| s.current).max();
    let most = match (peak, seen) {
        (Some(peak), seen) => format!(", peak {}", short(peak.max(seen.unwrap_or_default()))),
        (None, Some(seen)) => format!(", {} at most in the samples", short(seen)),
        (None, None) => String::new(),
    };
    let mut lines = vec![format!(
        "{} on {}  {state}{most}",
        found.container, found.node
    )];
    let chart = timeline::chart(&found.samples, end, width, paint);
    if chart.is_empty() {
        lines
            .push("fewer than two samples so far; the default is four samples a second".to_owned());
    }
    lines.extend(chart);
    lines.extend(timeline::shape(&found.samples));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::ExitReason;

    #[test]
    fn a_timeline_is_drawn_with_a_heading() {
        let samples = fixture::killed().timeline;
        let container = fixture::containers().remove(1).id;
        let mut found = ContainerTimeline {
            container,
            node: "n1".parse().expect("name"),
            reason: None,
            samples,
        };
        let text = container_chart(&found, None, 40, TextPainter::PLAIN);
        assert!(
            text.starts_with("wordcount.7.e1.c2 on n1  runs, 4.4G at most in the samples\n"),
            "{text}"
        );
        assert!(text.contains('█') && text.contains('└'), "{text}");
        found.samples.truncate(1);
        assert!(
            container_chart(&found, None, 40, TextPainter::PLAIN)
                .contains("fewer than two samples"),
            "one point makes no chart"
        );
    }

    #[test]
    fn the_kernels_peak_overrides_the_samples() {
        let mut samples = fixture::killed().timeline;
        samples.truncate(1);
        let container = fixture::containers().remove(1).id;
        let found = ContainerTimeline {
            container,
            node: "n1".parse().expect("name"),
            reason: Some(ExitReason::TaskOom),
            samples,
        };
        let first = |peak| {
            container_chart(&found, peak, 40, TextPainter::PLAIN)
                .lines()
                .next()
                .map(str::to_owned)
                .unwrap_or_default()
        };
        assert_eq!(
            first(Some(Bytes::from_mib(64))),
            "wordcount.7.e1.c2 on n1  ended: task_oom, peak 410M",
            "a sample is larger"
        );
        assert!(first(Some(Bytes::from_gib(4))).ends_with(", peak 4G"));
    }
}
