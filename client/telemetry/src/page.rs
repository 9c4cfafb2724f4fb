//! The metrics page: values with names and labels, in both formats that scrapers request.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::names::{MetricDefinition, MetricKind};

/// Maximum number of values of one label that users choose. Further values become [`OTHER`].
pub const MOST_VALUES: usize = 200;
/// The label value that replaces values beyond [`MOST_VALUES`].
pub const OTHER: &str = "other";

/// The exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// The format that the header `Accept` requests.
    pub fn wanted(accept: Option<&str>) -> Self {
        if accept.is_some_and(|a| a.contains("application/openmetrics-text")) {
            ExpositionFormat::OpenMetrics
        } else {
            ExpositionFormat::Text
        }
    }

    /// The header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }
}

#[derive(Clone, Debug)]
enum MetricValue {
    Number(f64),
    Spread(Histogram),
}

/// Metric values at one moment. Numbers with the same name and labels are added up.
#[derive(Debug, Default)]
pub struct MetricsPage {
    figures: BTreeMap<&'static str, (MetricDefinition, BTreeMap<Vec<String>, MetricValue>)>,
}

impl MetricsPage {
    /// An empty page.
    pub fn new() -> Self {
        MetricsPage::default()
    }

    /// Adds a number. `labels` are values in the order of the metric's labels; an empty value is
    /// omitted.
    pub fn number(&mut self, metric: &MetricDefinition, labels: &[&str], value: f64) {
        match self.place(metric, labels, MetricValue::Number(0.0)) {
            MetricValue::Number(n) => *n += value,
            MetricValue::Spread(_) => debug_assert!(false, "{} is a histogram", metric.name),
        }
    }

    /// Adds an integer.
    #[expect(
        clippy::cast_precision_loss,
        reason = "scrapers read floating point numbers"
    )]
    pub fn count(&mut self, metric: &MetricDefinition, labels: &[&str], value: u64) {
        self.number(metric, labels, value as f64);
    }

    /// Adds a histogram, the only one with these labels. The page reads it when it is written.
    pub fn spread(&mut self, metric: &MetricDefinition, labels: &[&str], value: &Histogram) {
        let placed = self.place(metric, labels, MetricValue::Spread(value.clone()));
        debug_assert!(
            matches!(placed, MetricValue::Spread(_)),
            "{} is not a histogram",
            metric.name
        );
    }

    fn place(
        &mut self,
        metric: &MetricDefinition,
        labels: &[&str],
        empty: MetricValue,
    ) -> &mut MetricValue {
        debug_assert_eq!(
            labels.len(),
            metric.labels.len(),
            "labels of {}",
            metric.name
        );
        let values: Vec<String> = labels.iter().map(|l| (*l).to_owned()).collect();
        let (_, figures) = self
            .figures
            .entry(metric.name)
            .or_insert_with(|| (*metric, BTreeMap::new()));
        figures.entry(values).or_insert(empty)
    }

    /// The names on the page.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.figures.keys().copied()
    }

    /// The page as text.
    pub fn write(self, format: ExpositionFormat) -> String {
        let mut open = String::new();
        let counters: Vec<&'static str> = self
            .figures
            .values()
            .filter(|(m, _)| m.kind == MetricKind::Counter)
            .map(|(m, _)| m.family())
            .collect();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        // Writing to a `String` cannot fail.
        let _ = text::encode(&mut open, &registry);
        match format {
            ExpositionFormat::OpenMetrics => open,
            ExpositionFormat::Text => plain(&open, &counters),
        }
    }
}

/// Converts OpenMetrics to the older format, in which the family of a counter has the counter's own
/// name and no `# EOF` line ends the page.
fn plain(open: &str, counters: &[&str]) -> String {
    let mut out = String::with_capacity(open.len());
    for line in open.lines().filter(|l| *l != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(keyword), Some(name), Some(rest)) if counters.contains(&name) => {
                out.push_str(&format!("# {keyword} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

impl Collector for MetricsPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (metric, figures) in self.figures.values() {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(metric.family(), metric.help, None, kind)?;
            if let ([], Some(MetricValue::Spread(h))) = (metric.labels, figures.values().next()) {
                h.encode(family)?;
                continue;
            }
            for (values, figure) in figures {
                let named = metric
                    .labels
                    .iter()
                    .zip(values)
                    .filter(|(_, value)| !value.is_empty());
                let labels: Vec<(&str, &str)> =
                    named.map(|(name, value)| (*name, value.as_str())).collect();
                match figure {
                    MetricValue::Spread(h) => h.encode(family.encode_family(&labels)?)?,
                    MetricValue::Number(n) if labels.is_empty() => {
                        put(&mut family, metric.kind, *n)?
                    }
                    MetricValue::Number(n) => {
                        put(&mut family.encode_family(&labels)?, metric.kind, *n)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn put(encoder: &mut MetricEncoder<'_>, kind: MetricKind, n: f64) -> Result<(), fmt::Error> {
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&n, None),
        MetricKind::Gauge | MetricKind::Histogram => encoder.encode_gauge(&n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::MetricKind;

    const KILLS: MetricDefinition = MetricDefinition {
        name: "x_kills_total",
        kind: MetricKind::Counter,
        labels: &["job", "why"],
        help: "Kills.",
    };
    const SIZE: MetricDefinition = MetricDefinition {
        name: "x_size_bytes",
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Size.",
    };
    const WAIT: MetricDefinition = MetricDefinition {
        name: "x_wait_seconds",
        kind: MetricKind::Histogram,
        labels: &["queue"],
        help: "Waits.",
    };

    fn page() -> MetricsPage {
        let mut page = MetricsPage::new();
        page.count(&KILLS, &["", "a \"quoted\"\nword"], 2);
        page.count(&KILLS, &["", "a \"quoted\"\nword"], 1);
        page.number(&SIZE, &[], 1.5);
        let waits = Histogram::new([1.0]);
        waits.observe(0.5);
        waits.observe(3.0);
        page.spread(&WAIT, &["root.etl"], &waits);
        page
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let samples = "x_kills_total{why=\"a \\\"quoted\\\"\\nword\"} 3.0\n# HELP x_size_bytes Size.\n# TYPE x_size_bytes gauge\n\
            x_size_bytes 1.5\n# HELP x_wait_seconds Waits.\n# TYPE x_wait_seconds histogram\n\
            x_wait_seconds_sum{queue=\"root.etl\"} 3.5\nx_wait_seconds_count{queue=\"root.etl\"} 2\n\
            x_wait_seconds_bucket{le=\"1.0\",queue=\"root.etl\"} 1\nx_wait_seconds_bucket{le=\"+Inf\",queue=\"root.etl\"} 2\n";
        let open = page().write(ExpositionFormat::OpenMetrics);
        assert_eq!(
            open,
            format!("# HELP x_kills Kills.\n# TYPE x_kills counter\n{samples}# EOF\n")
        );
        let text = page().write(ExpositionFormat::Text);
        assert_eq!(
            text,
            format!("# HELP x_kills_total Kills.\n# TYPE x_kills_total counter\n{samples}")
        );
    }

    #[test]
    fn a_scraper_gets_the_accepted_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(
            ExpositionFormat::wanted(Some(prometheus)),
            ExpositionFormat::OpenMetrics
        );
        assert_eq!(
            (
                ExpositionFormat::wanted(Some("*/*")),
                ExpositionFormat::wanted(None)
            ),
            (ExpositionFormat::Text, ExpositionFormat::Text)
        );
    }
}
