//! Tokens: random texts that authenticate callers. The resource manager stores the accessor of a
//! token, which is not secret, and a hash.
//!
//! ```text
//!   hru_4f1c8a2b9d3e5f60_<64 hexadecimal digits>
//!    │        │                  │
//!    │        │                  └ 32 random bytes: the secret
//!    │        └ accessor: 8 random bytes, used to list and revoke it, and in the audit log
//!    └ purpose
//! ```
//!
//! The token of an application is not random: it is derived with a key of the resource manager. So
//! nothing is stored, and the token expires with its attempt.

use std::fmt;
use std::str::FromStr;

use headroom_types::{AppId, AttemptId};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretTokenKind {
    /// Access of a user.
    User,
    /// One join of a host as a node.
    Join,
}

impl SecretTokenKind {
    fn prefix(self) -> &'static str {
        match self {
            SecretTokenKind::User => "hru",
            SecretTokenKind::Join => "hrj",
        }
    }
}

/// The public id of a token: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenAccessor([u8; 8]);

/// The SHA-256 of a secret. Secrets are 32 random bytes, so no slower hash is necessary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256Digest([u8; 32]);

/// A token with its secret. It implements neither `Display` nor comparison.
#[derive(Clone)]
pub struct SecretToken {
    kind: SecretTokenKind,
    accessor: TokenAccessor,
    secret: [u8; 32],
}

/// The error of a text that is not a token. It does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a token of Headroom; it looks like hru_4f1c8a2b9d3e5f60_ and 64 hexadecimal digits"
)]
pub struct ParseTokenError;

/// The error of unavailable random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system provides no random numbers")]
pub struct NoRandomness;

/// Returns `N` random bytes.
///
/// # Errors
/// Random numbers are unavailable.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// Returns `N` random bytes as hexadecimal digits.
///
/// # Errors
/// Random numbers are unavailable.
pub fn random_hex<const N: usize>() -> Result<String, NoRandomness> {
    let bytes: [u8; N] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl SecretToken {
    /// Creates a new token.
    ///
    /// # Errors
    /// Random numbers are unavailable.
    pub fn mint(kind: SecretTokenKind) -> Result<Self, NoRandomness> {
        Ok(SecretToken {
            kind,
            accessor: TokenAccessor(random()?),
            secret: random()?,
        })
    }

    /// Purpose of the token.
    pub fn kind(&self) -> SecretTokenKind {
        self.kind
    }

    /// Public id of the token.
    pub fn accessor(&self) -> TokenAccessor {
        self.accessor
    }

    /// Hash of the secret, which is stored.
    pub fn hash(&self) -> Sha256Digest {
        Sha256Digest::of(&self.secret)
    }

    /// The complete text, for its holder only.
    pub fn reveal(&self) -> String {
        format!(
            "{}_{}_{}",
            self.kind.prefix(),
            self.accessor,
            HexDigits(&self.secret)
        )
    }
}

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_…", self.kind.prefix(), self.accessor)
    }
}

impl FromStr for SecretToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let mut parts = text.split('_');
        let (Some(prefix), Some(accessor), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseTokenError);
        };
        let kind = [SecretTokenKind::User, SecretTokenKind::Join]
            .into_iter()
            .find(|k| k.prefix() == prefix)
            .ok_or(ParseTokenError)?;
        let secret = bytes(secret).ok_or(ParseTokenError)?;
        Ok(SecretToken {
            kind,
            accessor: accessor.parse()?,
            secret,
        })
    }
}

impl Sha256Digest {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
        Sha256Digest(hash)
    }

    /// A hash with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Sha256Digest(bytes)
    }

    /// The bytes of the hash.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Sha256Digest) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .fold(0, |differ, (a, b)| differ | (a ^ b))
            == 0
    }
}

/// Implements the text of a type that wraps an array of bytes: lower-case hexadecimal digits.
macro_rules! hex_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", HexDigits(&self.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = ParseTokenError;

            fn from_str(text: &str) -> Result<Self, ParseTokenError> {
                bytes(text).map($name).ok_or(ParseTokenError)
            }
        }
    )*};
}

hex_text!(TokenAccessor, Sha256Digest);
headroom_types::textual!(TokenAccessor, Sha256Digest);

/// Creates and verifies application tokens.
#[derive(Clone)]
pub struct AppTokenKey(hmac::Key);

impl AppTokenKey {
    /// A key from 32 secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        AppTokenKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The token of an application attempt.
    pub fn token(&self, attempt: &AttemptId) -> String {
        let tag = hmac::sign(&self.0, attempt.to_string().as_bytes());
        format!("hra_{attempt}_{}", HexDigits(tag.as_ref()))
    }

    /// The token with which executors of an application query the address of their master.
    pub fn executor_token(&self, app: &AppId) -> String {
        let tag = hmac::sign(&self.0, format!("reader {app}").as_bytes());
        format!("hrx_{app}_{}", HexDigits(tag.as_ref()))
    }

    /// Verifies an executor token and returns its application.
    ///
    /// # Errors
    /// The text is not an executor token, or was derived with another key.
    pub fn check_executor_token(&self, text: &str) -> Result<AppId, ParseTokenError> {
        let (app, tag) = text
            .strip_prefix("hrx_")
            .and_then(|rest| rest.rsplit_once('_'))
            .ok_or(ParseTokenError)?;
        let (app, tag): (AppId, [u8; 32]) = (
            app.parse().map_err(|_| ParseTokenError)?,
            bytes(tag).ok_or(ParseTokenError)?,
        );
        hmac::verify(&self.0, format!("reader {app}").as_bytes(), &tag)
            .map_err(|_| ParseTokenError)?;
        Ok(app)
    }

    /// Verifies an application token and returns its application and attempt. The tag
    /// is split off at the last underscore, because names may contain underscores.
    ///
    /// # Errors
    /// The text is not an application token, or was derived with another key.
    pub fn check(&self, text: &str) -> Result<(AppId, AttemptId), ParseTokenError> {
        let (attempt, tag) = text
            .strip_prefix("hra_")
            .and_then(|rest| rest.rsplit_once('_'))
            .ok_or(ParseTokenError)?;
        let tag: [u8; 32] = bytes(tag).ok_or(ParseTokenError)?;
        let attempt: AttemptId = attempt.parse().map_err(|_| ParseTokenError)?;
        hmac::verify(&self.0, attempt.to_string().as_bytes(), &tag).map_err(|_| ParseTokenError)?;
        Ok((attempt.app.clone(), attempt))
    }
}

impl fmt::Debug for AppTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppKey(…)")
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) struct HexDigits<'a>(pub(crate) &'a [u8]);

impl fmt::Display for HexDigits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Parses exactly `N` bytes from lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |d: u8| match d {
        b'0'..=b'9' => Some(d - b'0'),
        b'a'..=b'f' => Some(d - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_round_trip_as_text() {
        for kind in [SecretTokenKind::User, SecretTokenKind::Join] {
            let token = SecretToken::mint(kind).expect("random numbers");
            let read: SecretToken = token.reveal().parse().expect("a token");
            assert_eq!((read.kind(), read.accessor()), (kind, token.accessor()));
            assert!(read.hash().matches(&token.hash()));
            assert!(
                !SecretToken::mint(kind)
                    .expect("random numbers")
                    .hash()
                    .matches(&token.hash())
            );
        }
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        let token = SecretToken::mint(SecretTokenKind::User).expect("random numbers");
        let secret = token
            .reveal()
            .rsplit('_')
            .next()
            .expect("a secret")
            .to_owned();
        assert!(!format!("{token:?}").contains(&secret));
        let key = AppTokenKey::new(&[7; 32]);
        assert_eq!(format!("{key:?}"), "AppKey(…)");
        assert!(!ParseTokenError.to_string().contains(&secret));
    }

    #[test]
    fn the_token_of_an_application_belongs_to_its_attempt() {
        let (key, other) = (AppTokenKey::new(&[1; 32]), AppTokenKey::new(&[2; 32]));
        let attempt: AttemptId = "word_count.7@2".parse().expect("an attempt");
        let token = key.token(&attempt);
        assert_eq!(
            key.check(&token),
            Ok(("word_count.7".parse().expect("an app"), attempt))
        );
        assert_eq!(other.check(&token), Err(ParseTokenError));
        assert_eq!(
            key.check(&token.replace("@2", "@3")),
            Err(ParseTokenError),
            "another attempt"
        );
        assert_eq!(
            key.check(&token.replace(".7@", ".8@")),
            Err(ParseTokenError),
            "another application"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,120}") {
            let _ = text.parse::<SecretToken>();
            let _ = AppTokenKey::new(&[0; 32]).check(&text);
            let _ = AppTokenKey::new(&[0; 32]).check(&format!("hra_{text}"));
        }

        #[test]
        fn a_changed_token_is_a_different_token(at in 21_usize..85, digit in "[0-9a-f]") {
            let token = SecretToken::mint(SecretTokenKind::User).expect("random numbers");
            let mut text = token.reveal();
            prop_assume!(text[at..=at] != digit);
            text.replace_range(at..=at, &digit);
            let read: SecretToken = text.parse().expect("still well-formed");
            prop_assert!(!read.hash().matches(&token.hash()));
        }
    }
}
