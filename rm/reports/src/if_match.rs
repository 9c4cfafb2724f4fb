//! Header `If-Match`: the versions of an object that a change was meant for.
//!
//! Handlers and the main loop compare it with the current version. It changes nothing itself.

use headroom_wire::v1::error::{ProblemDetails, ProblemResult};

/// Content of `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// The header is absent.
    Absent,
    /// `*`: any version.
    Any,
    /// One of these versions.
    Versions(Vec<String>),
}

impl IfMatch {
    /// Parses the values of all `If-Match` headers of a call; `None` stands for a value that is not
    /// text. Returns `HR0400` for a value that is not a list of ETags.
    pub fn of<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ProblemResult<Self> {
        let mut versions = Vec::new();
        for value in values {
            let wrong = || {
                ProblemDetails::bad_request("If-Match is not a list of ETags")
                    .hint("send the ETag as it was received, or *")
            };
            for tag in value.ok_or_else(wrong)?.split(',').map(str::trim) {
                if tag == "*" {
                    return Ok(IfMatch::Any);
                }
                let quoted = tag.strip_prefix("W/").unwrap_or(tag);
                let bare = quoted
                    .strip_prefix('"')
                    .and_then(|t| t.strip_suffix('"'))
                    .ok_or_else(wrong)?;
                versions.push(bare.split('.').next().unwrap_or(bare).to_owned());
            }
        }
        Ok(if versions.is_empty() {
            IfMatch::Absent
        } else {
            IfMatch::Versions(versions)
        })
    }

    /// The one version as a number; `None` if the header is absent or `*`. Returns `HR0400` for
    /// several versions, and for one that is not a number.
    pub fn number<N: std::str::FromStr>(&self) -> ProblemResult<Option<N>> {
        let IfMatch::Versions(versions) = self else {
            return Ok(None);
        };
        let wrong = || {
            ProblemDetails::bad_request("If-Match does not name a version of this object")
                .hint("send the ETag as it was received, or *")
        };
        match versions.as_slice() {
            [one] => one.parse().map(Some).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }

    /// Returns `HR0409` for a call that was meant for another version than `current`. `what` names
    /// the object in the error.
    pub fn check(&self, what: &str, current: &str) -> ProblemResult<()> {
        match self {
            IfMatch::Absent | IfMatch::Any => Ok(()),
            IfMatch::Versions(versions) if versions.iter().any(|v| v == current) => Ok(()),
            IfMatch::Versions(_) => Err(ProblemDetails::conflict(format!(
                "{what} has changed since it was read"
            ))
            .hint("read it again, and send its current ETag")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::error::ErrorCode;

    #[test]
    fn if_match_compares_the_version_without_the_content_hash() {
        let read = |value: &'static str| IfMatch::of([Some(value)]);
        assert_eq!(IfMatch::of([]), Ok(IfMatch::Absent));
        assert!(IfMatch::of([None]).is_err());
        assert_eq!(read("*"), Ok(IfMatch::Any));
        assert_eq!(read("\"7.00ff\"").expect("reads").number(), Ok(Some(7_u64)));
        assert_eq!(read("W/\"7\"").expect("reads").number(), Ok(Some(7_u64)));
        assert!(read("\"7.00ff\"").expect("reads").check("it", "7").is_ok());
        assert_eq!(
            read("\"7.00ff\"")
                .expect("reads")
                .check("it", "8")
                .expect_err("changed")
                .code,
            ErrorCode::HR0409
        );
        assert!(read("7").is_err() && read("\"x\"").expect("reads").number::<u64>().is_err());
    }
}
