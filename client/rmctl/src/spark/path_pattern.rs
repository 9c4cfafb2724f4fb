//! Patterns in the names of files, such as `lib/*.jar`.

use std::path::{Path, PathBuf};

use super::arguments::usage;
use crate::exit::CommandFailure;

/// The files that a path denotes: the path itself, or all files that match its last component, in
/// order of their names.
pub(crate) fn expand(path: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let text = path.to_string_lossy();
    if !text.contains(['*', '?', '[', '{']) || path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let unsupported = || {
        usage(format!("{}: the pattern is not supported", path.display()))
            .help("use * and ? in the last part of a path, or name the files")
    };
    let pattern = path.file_name().and_then(|name| name.to_str());
    let (Some(directory), Some(pattern)) = (path.parent(), pattern) else {
        return Err(unsupported());
    };
    let within = directory.to_string_lossy();
    if within.contains(['*', '?']) || pattern.contains(['[', '{']) {
        return Err(unsupported());
    }
    let entries =
        std::fs::read_dir(directory).map_err(|e| usage(format!("{}: {e}", directory.display())))?;
    let is_match = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| matches(pattern, name)) && path.is_file()
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(is_match);
    found.sort();
    if found.is_empty() {
        return Err(usage(format!("no file matches {}", path.display())));
    }
    Ok(found)
}

/// Whether a name matches a pattern with `*` and `?`. A hidden name needs a dot in the pattern.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The position after the last star, and the end of the part of the name that it covers.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(c) if *c == '?' || name.get(n) == Some(c) => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match star {
                Some((after, covered)) => {
                    star = Some((after, covered + 1));
                    (p, n) = (after, covered + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_names() {
        for (pattern, name, is_match) in [
            ("*.jar", "a.jar", true),
            ("*.jar", ".jar", false),
            ("*.jar", "a.jar.old", false),
            ("a?c*", "abc", true),
            ("a?c*", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("*", "", true),
            ("?", "ü", true),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_denotes_files_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["b.jar", "a.jar", "c.txt", "[d].jar"] {
            std::fs::write(dir.path().join(name), "").expect("writes");
        }
        std::fs::create_dir(dir.path().join("e.jar")).expect("makes");
        let names = |pattern: &str| {
            expand(&dir.path().join(pattern)).map(|found| {
                let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
                found.iter().filter_map(name).collect::<Vec<_>>()
            })
        };
        assert_eq!(names("?.jar").expect("two"), ["a.jar", "b.jar"]);
        assert_eq!(names("[d].jar").expect("a name"), ["[d].jar"]);
        assert_eq!(names("none.jar").expect("a name"), ["none.jar"]);
        for (wrong, part) in [("*.zip", "no file matches"), ("*/x.jar", "not supported")] {
            let failure = names(wrong).expect_err(wrong).to_string();
            assert!(failure.contains(part), "{failure}");
        }
    }
}
