//! Log text: last lines, prefixes, and what is new since it was read last.

use super::Paint;

/// What stands before each line when several tasks are shown.
pub(crate) fn prefixed(prefix: &str, text: &str, stderr: bool, paint: Paint) -> String {
    let bar = if stderr { paint.bad("▌") } else { "│".to_owned() };
    text.lines().map(|l| format!("{prefix} {bar} {l}\n")).collect()
}

/// The last `n` lines.
pub(crate) fn tail(text: &str, n: Option<usize>) -> &str {
    let Some(n) = n else { return text };
    let body = text.strip_suffix('\n').unwrap_or(text);
    let cut = body.rmatch_indices('\n').nth(n.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    if n == 0 { "" } else { &text[cut..] }
}

/// How much of the end of the former text is looked for in the new one.
const OVERLAP: usize = 512;

/// The part of `now` that `before` did not have. Both are ends of one growing file; a file that grew by more than the window
/// between two readings has a gap, and then all of `now` is new.
pub(crate) fn new_part<'a>(before: &str, now: &'a str) -> &'a str {
    if let Some(rest) = now.strip_prefix(before) {
        return rest;
    }
    let mut from = before.len().saturating_sub(OVERLAP);
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let end = &before[from..];
    now.rfind(end).map_or(now, |at| &now[at + end.len()..])
}

/// Whole lines only: a line that is still being written waits.
pub(crate) fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |at| &text[..=at])
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
    fn growth_is_found_while_the_window_moves() {
        assert_eq!(new_part("", "a\n"), "a\n");
        assert_eq!(new_part("a\n", "a\nb\n"), "b\n");
        assert_eq!(new_part("aaa\nbbb\n", "bb\nccc\n"), "bb\nccc\n", "no overlap left: all of it is new");
        let before: String = (0..400).map(|i| format!("line {i}\n")).collect();
        let now: String = (100..410).map(|i| format!("line {i}\n")).collect();
        assert_eq!(new_part(&before, &now), (400..410).map(|i| format!("line {i}\n")).collect::<String>());
        assert_eq!(new_part("ä\n", "ä\nö\n"), "ö\n");
    }

    #[test]
    fn half_a_line_waits() {
        assert_eq!(whole_lines("a\nb"), "a\n");
        assert_eq!(whole_lines("b"), "");
    }

    #[test]
    fn each_line_is_marked() {
        assert_eq!(prefixed("map/7@2", "x\ny\n", true, Paint::PLAIN), "map/7@2 ▌ x\nmap/7@2 ▌ y\n");
        assert_eq!(prefixed("map/7@2", "x", false, Paint::PLAIN), "map/7@2 │ x\n");
    }
}
