//! Evaluation of a caller's `Accept` header.

/// True unless the caller's `Accept` headers exclude JSON. `accepted` contains the values of these
/// headers.
pub fn accepts_json<'a>(accepted: impl Iterator<Item = &'a str>) -> bool {
    let mut ranges = accepted.flat_map(|value| value.split(',')).peekable();
    let fits = |range: &str| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        matches!(
            kind,
            "*/*" | "application/*" | "application/json" | "text/html" | ""
        )
    };
    ranges.peek().is_none() || ranges.any(fits)
}

#[cfg(test)]
mod tests {
    use super::accepts_json;

    #[test]
    fn only_clients_that_exclude_json_are_rejected() {
        let takes = |accept: &[&'static str]| accepts_json(accept.iter().copied());
        assert!(
            takes(&[]) && takes(&["*/*"]) && takes(&["application/json;q=0.5, application/xml"])
        );
        assert!(
            takes(&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"]),
            "a browser"
        );
        assert!(takes(&["application/xml", "application/json"]));
        assert!(!takes(&["application/xml"]) && !takes(&["text/xml, application/xml;q=0.9"]));
    }
}
