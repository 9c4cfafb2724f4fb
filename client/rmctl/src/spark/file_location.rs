//! Files that a Spark application names: files of this host, which are uploaded, and others. Pure.

use std::path::{Path, PathBuf};

/// The location of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileLocation {
    /// A file of this host.
    Host {
        /// Absolute path, or a pattern such as `/lib/*.jar`.
        path: PathBuf,
        /// Text after `#`.
        alias: Option<String>,
    },
    /// An address that Spark reads by itself, such as `https://`, `hdfs://` or `local:` for a file
    /// that the nodes have.
    Elsewhere(String),
}

impl FileLocation {
    /// Resolves one file from the directory `base`.
    pub(crate) fn of(text: &str, base: &Path) -> FileLocation {
        let text = text.trim();
        match scheme(text) {
            Some("file") => host(without_authority(&text["file:".len()..]), base),
            Some(_) => FileLocation::Elsewhere(text.to_owned()),
            None => host(text, base),
        }
    }

    /// Resolves a list that is separated by commas.
    pub(crate) fn list(text: &str, base: &Path) -> Vec<FileLocation> {
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        items.map(|item| FileLocation::of(item, base)).collect()
    }
}

fn host(text: &str, base: &Path) -> FileLocation {
    let (path, alias) = match text.split_once('#') {
        Some((path, alias)) => (path, Some(alias.to_owned())),
        None => (text, None),
    };
    FileLocation::Host {
        path: base.join(path),
        alias,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_this_host_and_addresses_stay() {
        for (given, path, alias) in [
            ("app.jar", "/srv/job/app.jar", None),
            ("/srv/a.jar", "/srv/a.jar", None),
            ("file:/srv/a", "/srv/a", None),
            ("file:///srv/a", "/srv/a", None),
            ("env.zip#env", "/srv/job/env.zip", Some("env")),
            ("lib/*.jar", "/srv/job/lib/*.jar", None),
        ] {
            let expected = FileLocation::Host {
                path: path.into(),
                alias: alias.map(str::to_owned),
            };
            assert_eq!(FileLocation::of(given, Path::new("/srv/job")), expected);
        }
        for given in ["local:/opt/a.jar#b", "s3a://bucket/a.jar", "https://h/a.py"] {
            let expected = FileLocation::Elsewhere(given.to_owned());
            assert_eq!(FileLocation::of(given, Path::new("/srv/job")), expected);
        }
        let list = FileLocation::list("a.jar,, hdfs:/b.jar", Path::new("/w"));
        assert_eq!(list.len(), 2);
    }
}
