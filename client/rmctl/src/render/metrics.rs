//! A metrics page: selected lines, and each series as a row. Reads the subset of the Prometheus
//! text format that Headroom's own pages use.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::select::field::list_row;

/// One series with its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct MetricSeries {
    /// Name of the metric.
    pub(crate) name: String,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The value; `null` for values that JSON cannot represent.
    pub(crate) value: Option<f64>,
}

list_row!(MetricSeries, |row| row.name, { "metric": row.name });

/// The lines of metrics whose name contains `part`, with help and type.
pub(crate) fn only(page: &str, part: &str) -> String {
    page.lines()
        .filter(|line| name(line).contains(part))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The metric name of a line; empty for other comments.
pub(crate) fn name(line: &str) -> &str {
    let about = line
        .strip_prefix("# HELP ")
        .or_else(|| line.strip_prefix("# TYPE "));
    let text = about.unwrap_or(if line.starts_with('#') { "" } else { line });
    text.split(|c: char| c == '{' || c.is_whitespace())
        .next()
        .unwrap_or_default()
}

/// All series.
pub(crate) fn series(page: &str) -> Vec<MetricSeries> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(one)
        .collect()
}

fn one(line: &str) -> Option<MetricSeries> {
    let name = name(line).to_owned();
    let rest = line.get(name.len()..)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (BTreeMap::new(), rest),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (!name.is_empty()).then(|| MetricSeries {
        name,
        labels,
        value: Some(value).filter(|v| v.is_finite()),
    })
}

/// Parses labels up to the closing brace, and returns the rest. A backslash escapes a quote, a
/// backslash or a line break.
fn labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((found, after));
        }
        let (label, quoted) = rest.split_once("=\"")?;
        let (mut value, mut escaped, mut end) = (String::new(), false, None);
        for (at, c) in quoted.char_indices() {
            match (escaped, c) {
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at + 1);
                    break;
                }
                (true, 'n') => (value, escaped) = (value + "\n", false),
                (_, c) => {
                    value.push(c);
                    escaped = false;
                }
            }
        }
        found.insert(label.to_owned(), value);
        rest = quoted.get(end?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP headroom_rm_nodes Nodes by state.\n# TYPE headroom_rm_nodes gauge\n\
                        headroom_rm_nodes{state=\"ready\"} 2.0\nheadroom_rm_nodes{state=\"a \\\"b\\\", }\"} 1\n\
                        # HELP headroom_rm_pending Waiting.\n# TYPE headroom_rm_pending gauge\nheadroom_rm_pending 3\n\
                        headroom_rm_pass_seconds_bucket{le=\"+Inf\"} +Inf\n# EOF\n";

    #[test]
    fn filtered_metrics_keep_their_help_lines() {
        let text = only(PAGE, "pending");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.starts_with("# HELP headroom_rm_pending"));
        assert_eq!(only(PAGE, "nothing"), "");
    }

    #[test]
    fn every_series_is_a_row() {
        let all = series(PAGE);
        let states: Vec<&str> = all
            .iter()
            .filter_map(|s| s.labels.get("state"))
            .map(String::as_str)
            .collect();
        assert_eq!(states, ["ready", "a \"b\", }"]);
        let values: Vec<Option<f64>> = all.iter().map(|s| s.value).collect();
        assert_eq!(values, [Some(2.0), Some(1.0), Some(3.0), None]);
    }
}
