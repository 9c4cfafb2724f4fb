//! The variables with address and credentials of an object store: those of the AWS tools, from a file
//! or from the environment of the process.

use std::path::{Path, PathBuf};

/// Beginning of the names that the tools of AWS use.
const AWS: &str = "AWS_";
/// A file of certificates in PEM that is used in place of those of the host.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// The variables of an object store, as pairs of name and value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreVariables(Vec<(String, String)>);

// Values are secrets.
impl std::fmt::Debug for StoreVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// A file of variables that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.fix())]
pub enum VariablesError {
    /// The file cannot be read.
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line is no variable of an object store.
    Line {
        /// The path.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
    },
}

impl VariablesError {
    /// The problem, without the fix.
    pub fn found(&self) -> String {
        match self {
            VariablesError::Unreadable { path, source } => {
                format!("{} cannot be read: {source}", path.display())
            }
            VariablesError::Line { path, line } => format!(
                "line {line} of {} is not NAME=VALUE with a name that begins with AWS_, or SSL_CERT_FILE",
                path.display()
            ),
        }
    }

    /// The next step of the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            VariablesError::Unreadable { .. } => {
                "write the file with the variables of the object store, or correct masters.object_store"
            }
            VariablesError::Line { .. } => "correct or remove the line",
        }
    }
}

impl StoreVariables {
    /// The variables of this process.
    pub fn of_process() -> StoreVariables {
        let variables = std::env::vars_os();
        let text = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        StoreVariables(text.filter(|(name, _)| is_name(name)).collect())
    }

    /// Reads a file with a line `NAME=VALUE` for each variable. Empty lines and lines that begin with
    /// `#` are skipped. A value may be in quotes.
    ///
    /// # Errors
    /// The file cannot be read, or has another line.
    pub fn read(path: &Path) -> Result<StoreVariables, VariablesError> {
        let text = std::fs::read_to_string(path).map_err(|source| VariablesError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let lines = text.lines().map(str::trim).enumerate();
        let used = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let pairs = used.map(|(n, line)| {
            variable(line).ok_or_else(|| VariablesError::Line {
                path: path.to_owned(),
                line: n + 1,
            })
        });
        pairs.collect::<Result<_, _>>().map(StoreVariables)
    }

    /// The value of a variable.
    pub(crate) fn certificates(&self) -> Option<&str> {
        let mut pairs = self.0.iter();
        let own = pairs.find(|(name, _)| name == CERTIFICATES);
        own.map(|(_, value)| value.as_str())
    }

    /// Pairs of name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(AWS) || name == CERTIFICATES
}

fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = inner('"').or_else(|| inner('\'')).unwrap_or(value);
    is_name(name).then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StoreVariables, VariablesError> {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("object-store.env");
        std::fs::write(&path, text).expect("writes");
        StoreVariables::read(&path)
    }

    #[test]
    fn a_file_has_names_and_values() {
        let text = "# of the tests\n\nAWS_REGION=eu-central-1\nAWS_SECRET_ACCESS_KEY=\"a=b c\"\nSSL_CERT_FILE='/x.pem'\n";
        let variables = read(text).expect("right");
        let pairs: Vec<_> = variables.iter().collect();
        let wanted = [
            ("AWS_REGION", "eu-central-1"),
            ("AWS_SECRET_ACCESS_KEY", "a=b c"),
            ("SSL_CERT_FILE", "/x.pem"),
        ];
        assert_eq!(pairs, wanted);
        assert_eq!(variables.certificates(), Some("/x.pem"));
        assert!(!format!("{variables:?}").contains("a=b"), "a secret");
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        for (text, wanted) in [
            ("AWS_REGION=x\nLD_PRELOAD=/tmp/x.so\n", "line 2"),
            ("export AWS_REGION=x\n", "line 1"),
            ("# fine\n\nAWS_REGION\n", "line 3"),
        ] {
            let error = read(text).expect_err("refused").to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
        let missing = StoreVariables::read(Path::new("/no/such")).expect_err("missing");
        assert!(missing.to_string().contains("/no/such"), "{missing}");
    }
}
