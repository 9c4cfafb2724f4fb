//! The line of output by which a runtime says that its memory is full: found in the end of a log, never read from a file here.
//!
//! What such a line means (heap, or memory beside the heap) is decided by [`crate::classify::marked`].

/// Longest line that is kept. Bytes.
const MAX_LINE: usize = 300;

/// What a line holds when the runtime gave up for want of memory. A `throw` of the program's own looks the same on purpose: the
/// JVM's direct buffers are thrown that way.
const WORDS: [&str; 3] = [
    "java.lang.OutOfMemoryError", // also "Terminating due to …" and "Aborting due to …" of the JVM's own flags
    "JavaScript heap out of memory",
    "GC overhead limit exceeded",
];

/// The first line of `text` that names a full memory, without the spaces around it and at most 300 bytes of it.
pub fn find(text: &str) -> Option<&str> {
    text.lines().find(|line| WORDS.iter().any(|words| line.contains(words))).map(|line| shortened(line.trim()))
}

fn shortened(line: &str) -> &str {
    line.get(..line.floor_char_boundary(MAX_LINE)).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_runtimes_write() {
        let cases = [
            "Terminating due to java.lang.OutOfMemoryError: Java heap space",
            "Exception in thread \"main\" java.lang.OutOfMemoryError: Cannot reserve 1048576 bytes of direct buffer memory",
            "Caused by: java.lang.OutOfMemoryError: Metaspace",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        ];
        for line in cases {
            let text = format!("starting\n  {line}\r\n\tat Hog.main(Hog.java:7)\n");
            assert_eq!(find(&text), Some(line));
        }
    }

    #[test]
    fn other_errors_are_no_marker() {
        for text in ["", "java.lang.IllegalStateException: out of memory cards", "OutOfMemory", "exit code 137"] {
            assert_eq!(find(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = format!("java.lang.OutOfMemoryError: {}", "ä".repeat(400));
        let line = find(&text).expect("found");
        assert!(line.len() <= MAX_LINE && text.starts_with(line));
    }
}
