//! Files of a launch that are named by their location instead of their contents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Prefix of the address of a file that was uploaded to the resource manager; its SHA-256 follows.
pub const UPLOAD_SCHEME: &str = "upload:";

/// A file or an archive that the node puts into the working directory before the program starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchedFile {
    /// Name in the working directory: one plain path component. An archive becomes a directory with
    /// this name.
    pub name: String,
    /// `http://…`, `https://…`, `upload:SHA256` for a file that was uploaded to the resource
    /// manager, or an absolute path on the node, which is read with the rights of the container's
    /// user.
    pub from: String,
    /// Expected SHA-256. Required for a URL, because nothing else verifies the contents. An address
    /// `upload:SHA256` already contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// Use of the file.
    #[serde(default)]
    pub kind: FetchedFileKind,
    /// Maximum size; a larger file is rejected. The default is the limit of the node. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<Bytes>,
}

impl FetchedFile {
    /// The file `name` with the uploaded content `sha256`.
    pub fn uploaded(name: impl Into<String>, sha256: Sha256, kind: FetchedFileKind) -> Self {
        FetchedFile {
            name: name.into(),
            from: format!("{UPLOAD_SCHEME}{sha256}"),
            sha256: None,
            kind,
            most: None,
        }
    }
    /// Digest of the uploaded file that `from` names. `None` for another source.
    pub fn upload(&self) -> Option<Sha256> {
        self.from.strip_prefix(UPLOAD_SCHEME)?.parse().ok()
    }
    /// The digest that the contents must have, if the launch names it.
    pub fn expected_digest(&self) -> Option<Sha256> {
        self.upload().or(self.sha256)
    }
}

word_enum! {
    /// The use of a fetched file.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
        ToSchema,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum FetchedFileKind: "is not a kind of file; use" {
        /// A plain file.
        #[default]
        File = "file",
        /// An executable file.
        Program = "program",
        /// An archive that is unpacked: tar, tar.gz or zip, detected by its first bytes.
        Archive = "archive",
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// A digest of these 32 bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Sha256(bytes)
    }
}
impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for Sha256 {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a SHA-256: it has 64 hexadecimal digits, as `sha256sum` prints them"
            )
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            let digits = text
                .get(at..at + 2)
                .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Sha256(bytes))
    }
}
crate::textual!(Sha256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_round_trips_as_text() {
        let text = "00ff".repeat(16);
        let sum: Sha256 = text.parse().expect("a sum");
        assert_eq!(
            (sum.to_string(), text.to_uppercase().parse()),
            (text.clone(), Ok(sum))
        );
        let short = &text[1..];
        for wrong in [
            "",
            short,
            &text.replace('f', "g"),
            &format!("+1{}", &text[2..]),
            &"é".repeat(32),
        ] {
            assert!(wrong.parse::<Sha256>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_fetched_file_is_a_plain_file_by_default() {
        let file: FetchedFile =
            serde_json::from_str(r#"{"name":"a.jar","from":"/srv/a.jar"}"#).expect("reads");
        assert_eq!(
            (file.kind, file.sha256, file.most),
            (FetchedFileKind::File, None, None)
        );
        assert!(
            serde_json::from_str::<FetchedFile>(r#"{"name":"a","from":"/b","sha256":"12"}"#)
                .is_err()
        );
    }

    #[test]
    fn the_address_of_an_upload_contains_its_digest() {
        let sum = Sha256::new([7; 32]);
        let file = FetchedFile::uploaded("a.jar", sum, FetchedFileKind::Archive);
        assert_eq!(file.from, format!("upload:{sum}"));
        assert_eq!(
            (file.upload(), file.expected_digest()),
            (Some(sum), Some(sum))
        );
        let from = |from: &str| FetchedFile {
            from: from.to_owned(),
            sha256: Some(sum),
            ..file.clone()
        };
        for other in ["upload:", "upload:a.jar", "/srv/a.jar", "https://h/a.jar"] {
            assert_eq!(from(other).upload(), None, "{other}");
            assert_eq!(from(other).expected_digest(), Some(sum), "{other}");
        }
    }
}
