//! Log text: last lines and prefixes.

use super::TextPainter;

/// Adds a prefix to each line, for logs of several tasks.
pub(crate) fn prefixed(prefix: &str, text: &str, stderr: bool, paint: TextPainter) -> String {
    let bar = if stderr {
        paint.bad("▌")
    } else {
        "│".to_owned()
    };
    text.lines()
        .map(|l| format!("{prefix} {bar} {l}\n"))
        .collect()
}

/// The last `n` lines.
pub(crate) fn tail(text: &str, n: Option<usize>) -> &str {
    let Some(n) = n else { return text };
    let body = text.strip_suffix('\n').unwrap_or(text);
    let cut = body
        .rmatch_indices('\n')
        .nth(n.saturating_sub(1))
        .map_or(0, |(at, _)| at + 1);
    if n == 0 { "" } else { &text[cut..] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines() {
        assert_eq!(tail("a\nb\nc\n", Some(2)), "b\nc\n");
        assert_eq!(tail("a\nb", Some(1)), "b");
        assert_eq!(tail("a\n", Some(9)), "a\n");
        assert_eq!(tail("a\n", Some(0)), "");
        assert_eq!(tail("a\nb\n", None), "a\nb\n");
    }

    #[test]
    fn each_line_is_marked() {
        assert_eq!(
            prefixed("map/7@2", "x\ny\n", true, TextPainter::PLAIN),
            "map/7@2 ▌ x\nmap/7@2 ▌ y\n"
        );
        assert_eq!(
            prefixed("map/7@2", "x", false, TextPainter::PLAIN),
            "map/7@2 │ x\n"
        );
    }
}
