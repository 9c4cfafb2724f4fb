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

/// The lines from the first one to the last one that contains `marker`, with the continuation of
/// the last one, such as a stack trace. Empty without such a line.
pub(crate) fn between<'a>(text: &'a str, marker: &str) -> &'a str {
    let Some(first) = text.find(marker) else {
        return "";
    };
    let begin = text[..first].rfind('\n').map_or(0, |at| at + 1);
    let last = text.rfind(marker).unwrap_or(first);
    let mut end = line_end(text, last);
    // A log line begins with a date, or is one JSON object.
    while text[end..]
        .chars()
        .next()
        .is_some_and(|c| !c.is_ascii_digit() && c != '{')
    {
        end = line_end(text, end);
    }
    &text[begin..end]
}

/// The position after the line that contains `at`.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |n| at + n + 1)
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
    fn the_lines_of_a_task_in_a_shared_log() {
        let log = "26/11/26 a (TID 4)\n26/11/26 b (TID 45)\n26/11/26 c (TID 4)\n\
                   26/11/26 d (TID 45)\njava.lang.OutOfMemoryError\n\tat x\n26/11/26 e\n";
        assert_eq!(
            between(log, "(TID 45)"),
            "26/11/26 b (TID 45)\n26/11/26 c (TID 4)\n26/11/26 d (TID 45)\n\
             java.lang.OutOfMemoryError\n\tat x\n"
        );
        assert_eq!(
            between(log, "(TID 4)"),
            "26/11/26 a (TID 4)\n26/11/26 b (TID 45)\n26/11/26 c (TID 4)\n"
        );
        assert_eq!(between(log, "(TID 7)"), "");
        assert_eq!(between("only (TID 7)", "(TID 7)"), "only (TID 7)");
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
