//! Finds the line of output in which a runtime reports full memory. This module opens no files.
//!
//! [`crate::classify::marked_memory`] decides which memory such a line names: heap, or memory
//! outside the heap.

use headroom_types::Bytes;

/// Maximum length of a stored line. In bytes.
const MAX_LINE: usize = 300;

/// Words of a line with which a runtime gives up for lack of memory. A `throw` by the program
/// itself matches on purpose: the JVM throws errors of direct buffers in the same way.
const WORDS: [&str; 14] = [
    "java.lang.OutOfMemoryError", // also "Terminating due to …" and "Aborting due to …" of the JVM's own flags
    "JavaScript heap out of memory",
    "GC overhead limit exceeded",
    "fatal error: runtime: out of memory", // Go: it could not get reserved memory
    "runtime: out of memory: cannot allocate", // Go: it could not reserve more
    "terminate called after throwing an instance of 'std::bad_alloc'", // C++
    "failed to allocate memory (NoMemoryError)", // Ruby
    "Unhandled exception. System.OutOfMemoryException", // .NET
    "DefaultCPUAllocator: can't allocate memory", // PyTorch
    "DefaultCPUAllocator: not enough memory", // PyTorch
    "Could not reserve enough space for",  // the JVM at its start
    "Native memory allocation (mmap) failed", // the JVM later
    "Failed to reserve virtual memory",    // V8 at its start
    "Out of space in CodeCache",           // the JVM throws it when not even a stub fits
];

/// The first line of `text` that reports full memory, trimmed and cut to 300 bytes.
pub fn find(text: &str) -> Option<&str> {
    text.lines()
        .find(|line| names_memory(line))
        .map(|line| shortened(line.trim()))
}

/// The size of a refused allocation, in the words of numpy, PyTorch, Go, Rust and the JVM; `None`
/// where the line has no size.
pub fn requested_bytes(line: &str) -> Option<Bytes> {
    const BEFORE: [&str; 7] = [
        "Unable to allocate ",
        "you tried to allocate ",
        "cannot allocate ",
        "memory allocation of ",
        "Cannot reserve ",
        "failed to map ",
        "failed to allocate ",
    ];
    let rest = BEFORE
        .iter()
        .find_map(|words| line.split_once(words))
        .map(|(_, rest)| rest)?;
    let (number, unit) = rest.split_once([' ', '-'])?;
    let factor: u64 = match unit.split(|c: char| !c.is_ascii_alphabetic()).next()? {
        "bytes" | "byte" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "PiB" => 1 << 50,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let hundredths: u64 = format!("{part:0<2}").get(..2)?.parse().ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    Some(Bytes::new(whole.checked_add(factor / 100 * hundredths)?))
}

/// The size of the program's cache, from the file that `HEADROOM_CACHED_BYTES` names: one number,
/// in bytes.
pub fn cached(text: &str) -> Option<Bytes> {
    text.trim().parse().ok().map(Bytes::new)
}

fn names_memory(line: &str) -> bool {
    WORDS.iter().any(|words| line.contains(words)) || is_python(line) || is_rust(line)
}

/// The last line of a traceback: the exception class at column 0, alone or followed by a colon and
/// words. Packages have their own classes
/// (`numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB`).
fn is_python(line: &str) -> bool {
    let class = line.trim_end().split(": ").next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    class.ends_with("MemoryError") && class.chars().all(plain) && !class.ends_with("NoMemoryError")
}

/// `memory allocation of 1048576 bytes failed`.
fn is_rust(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    matches!(words[..], ["memory", "allocation", "of", n, "bytes", "failed"] if n.parse::<u64>().is_ok())
}

fn shortened(line: &str) -> &str {
    line.get(..line.floor_char_boundary(MAX_LINE))
        .unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_runtimes_are_found() {
        let cases = [
            "Terminating due to java.lang.OutOfMemoryError: Java heap space",
            "Exception in thread \"main\" java.lang.OutOfMemoryError: Cannot reserve 1048576 bytes of direct buffer memory",
            "Caused by: java.lang.OutOfMemoryError: Metaspace",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            "fatal error: runtime: out of memory",
            "runtime: out of memory: cannot allocate 4194304-byte block (62914560 in use)",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "memory allocation of 1048576 bytes failed",
        ];
        for line in cases {
            let text = format!("starting\n  {line}\r\n\tat Hog.main(Hog.java:7)\n");
            assert_eq!(find(&text), Some(line));
        }
    }

    #[test]
    fn the_last_line_of_a_traceback_is_the_marker() {
        let numpy =
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array";
        for line in ["MemoryError", "MemoryError: out of room", numpy] {
            let text = format!(
                "Traceback (most recent call last):\n  File \"x.py\", line 5, in <module>\n    raise MemoryError\n{line}\n"
            );
            assert_eq!(find(&text), Some(line));
        }
        for line in [
            "  except MemoryError:",
            "caught a MemoryError",
            "class MyMemoryError(Exception):",
            "memory allocation of many bytes failed",
        ] {
            assert_eq!(find(line), None, "{line:?}");
        }
    }

    #[test]
    fn other_errors_are_not_markers() {
        for text in [
            "",
            "java.lang.IllegalStateException: out of memory cards",
            "OutOfMemory",
            "exit code 137",
        ] {
            assert_eq!(find(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_requested_bytes_are_parsed_from_the_message() {
        let cases = [
            (
                "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 200. GiB for an array",
                Some(200 << 30),
            ),
            (
                "_ArrayMemoryError: Unable to allocate 1.50 KiB for an array with shape (3,)",
                Some(1024 + 500),
            ),
            (
                "runtime: out of memory: cannot allocate 4194304-byte block (62914560 in use)",
                Some(4_194_304),
            ),
            ("memory allocation of 1048576 bytes failed", Some(1_048_576)),
            (
                "java.lang.OutOfMemoryError: Cannot reserve 99 bytes of direct buffer memory (allocated: 1, limit: 2)",
                Some(99),
            ),
            (
                "# Native memory allocation (mmap) failed to map 65536 bytes for committing",
                Some(65_536),
            ),
            ("MemoryError", None),
            ("Unable to allocate many things", None),
            ("Unable to allocate 99999999999999999999 bytes", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(requested_bytes(line), wanted.map(Bytes::new), "{line}");
        }
    }

    #[test]
    fn a_cache_size_is_one_number() {
        assert_eq!(cached("52428800\n"), Some(Bytes::from_mib(50)));
        for text in ["", "50MiB", "-1", "1\n2"] {
            assert_eq!(cached(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = format!("java.lang.OutOfMemoryError: {}", "ä".repeat(400));
        let line = find(&text).expect("found");
        assert!(line.len() <= MAX_LINE && text.starts_with(line));
    }
}
