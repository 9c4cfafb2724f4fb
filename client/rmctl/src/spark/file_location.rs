//! Files that a Spark application names: paths become absolute, addresses stay. Pure.

use std::path::{Path, PathBuf};

/// A file as passed to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileLocation {
    /// Absolute path or address, with a fragment if it has one.
    pub(crate) text: String,
    /// The path, if the file must exist on this host and on the nodes. `None` for an address, for
    /// `local:`, and for a pattern such as `*.jar`.
    pub(crate) path: Option<PathBuf>,
}

impl FileLocation {
    /// Resolves one file from the directory `base`.
    pub(crate) fn of(text: &str, base: &Path) -> FileLocation {
        let text = text.trim();
        match scheme(text) {
            Some("file") => FileLocation {
                text: text.to_owned(),
                path: plain_path(without_authority(&text["file:".len()..])),
            },
            Some(_) => FileLocation {
                text: text.to_owned(),
                path: None,
            },
            None => {
                let text = base.join(text).display().to_string();
                FileLocation {
                    path: plain_path(&text),
                    text,
                }
            }
        }
    }

    /// Resolves a list that is separated by commas.
    pub(crate) fn list(text: &str, base: &Path) -> Vec<FileLocation> {
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        items.map(|item| FileLocation::of(item, base)).collect()
    }
}

/// The scheme of an address.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme.then_some(scheme)
}

/// The path in `///path` or `/path`.
fn without_authority(text: &str) -> &str {
    match text.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => text,
    }
}

/// The path without its fragment, unless it is a pattern.
fn plain_path(text: &str) -> Option<PathBuf> {
    let path = text.split('#').next().unwrap_or_default();
    let is_pattern = path.contains(['*', '?', '[', '{']);
    (!is_pattern && !path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_addresses_stay() {
        for (given, text, path) in [
            ("app.jar", "/shared/app.jar", Some("/shared/app.jar")),
            ("/srv/a.jar", "/srv/a.jar", Some("/srv/a.jar")),
            ("file:/srv/a", "file:/srv/a", Some("/srv/a")),
            ("file:///srv/a", "file:///srv/a", Some("/srv/a")),
            (
                "env.zip#env",
                "/shared/env.zip#env",
                Some("/shared/env.zip"),
            ),
            ("lib/*.jar", "/shared/lib/*.jar", None),
            ("local:/opt/a.jar", "local:/opt/a.jar", None),
            ("s3a://bucket/a.jar", "s3a://bucket/a.jar", None),
            ("https://h/a.py", "https://h/a.py", None),
        ] {
            let found = FileLocation::of(given, Path::new("/shared"));
            assert_eq!(found.text, text);
            assert_eq!(found.path.as_deref(), path.map(Path::new), "{given}");
        }
        let list = FileLocation::list("a.jar,, hdfs:/b.jar", Path::new("/w"));
        let texts: Vec<_> = list.into_iter().map(|file| file.text).collect();
        assert_eq!(texts, ["/w/a.jar", "hdfs:/b.jar"]);
    }
}
