//! Tokens: random texts that prove who somebody is. What is kept of one is its accessor, which is no secret, and a hash.
//!
//! ```text
//!   hru_4f1c8a2b9d3e5f60_<64 hexadecimal digits>
//!    │        │                  │
//!    │        │                  └ 32 random bytes: the secret
//!    │        └ accessor: 8 random bytes, by which it is listed, revoked and named in the record of changes
//!    └ what it is for
//! ```
//!
//! The token of an application is not random: it is made with a key that only the resource manager has, so nothing of it is kept
//! and it ends with its attempt.

use std::fmt;
use std::str::FromStr;

use headroom_types::{AppId, AttemptId};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody works with the cluster.
    User,
    /// A host becomes a node, once.
    Join,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::User => "hru",
            Kind::Join => "hrj",
        }
    }
}

/// How a token is named: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Accessor([u8; 8]);

/// What is kept of a secret: its SHA-256. Secrets are 32 random bytes, so nothing slower is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

/// A token with its secret. Neither printed nor compared.
#[derive(Clone)]
pub struct Token {
    kind: Kind,
    accessor: Accessor,
    secret: [u8; 32],
}

/// Why a text is no token. It does not say the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token of Headroom; one looks like hru_4f1c8a2b9d3e5f60_ and 64 hexadecimal digits")]
pub struct ParseTokenError;

/// No random numbers can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// So many random bytes.
///
/// # Errors
/// The system has none.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

impl Token {
    /// One that nobody has.
    ///
    /// # Errors
    /// No random numbers.
    pub fn mint(kind: Kind) -> Result<Self, NoRandomness> {
        Ok(Token { kind, accessor: Accessor(random()?), secret: random()? })
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is named.
    pub fn accessor(&self) -> Accessor {
        self.accessor
    }

    /// What is kept of it.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.secret)
    }

    /// The whole text, for whoever it is for and for nobody else.
    pub fn reveal(&self) -> String {
        format!("{}_{}_{}", self.kind.prefix(), self.accessor, Hex(&self.secret))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_…", self.kind.prefix(), self.accessor)
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let mut parts = text.split('_');
        let (Some(prefix), Some(accessor), Some(secret), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(ParseTokenError);
        };
        let kind = [Kind::User, Kind::Join].into_iter().find(|k| k.prefix() == prefix).ok_or(ParseTokenError)?;
        let secret = bytes(secret).ok_or(ParseTokenError)?;
        Ok(Token { kind, accessor: accessor.parse()?, secret })
    }
}

impl fmt::Display for Accessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl fmt::Debug for Accessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl FromStr for Accessor {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        bytes(text).map(Accessor).ok_or(ParseTokenError)
    }
}

impl Hash {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
        Hash(hash)
    }

    /// These very bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Hash(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether both are the same, in a time that does not tell where they differ.
    pub fn is(&self, other: &Hash) -> bool {
        self.0.iter().zip(other.0).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl FromStr for Hash {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        bytes(text).map(Hash).ok_or(ParseTokenError)
    }
}

headroom_types::textual!(Accessor, Hash);

/// Makes and checks tokens of applications.
#[derive(Clone)]
pub struct AppKey(hmac::Key);

impl AppKey {
    /// With 32 bytes that nobody else has.
    pub fn new(secret: &[u8; 32]) -> Self {
        AppKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The token of one attempt at an application.
    pub fn token(&self, attempt: &AttemptId) -> String {
        let tag = hmac::sign(&self.0, attempt.to_string().as_bytes());
        format!("hra_{attempt}_{}", Hex(tag.as_ref()))
    }

    /// The token by which executors of an application ask where its master is.
    pub fn reader(&self, app: &AppId) -> String {
        let tag = hmac::sign(&self.0, format!("reader {app}").as_bytes());
        format!("hrx_{app}_{}", Hex(tag.as_ref()))
    }

    /// Whose executor has this token, if it was made with this key.
    ///
    /// # Errors
    /// It is no token of an executor, or not one of ours.
    pub fn check_reader(&self, text: &str) -> Result<AppId, ParseTokenError> {
        let (app, tag) = text.strip_prefix("hrx_").and_then(|rest| rest.rsplit_once('_')).ok_or(ParseTokenError)?;
        let (app, tag): (AppId, [u8; 32]) = (app.parse().map_err(|_| ParseTokenError)?, bytes(tag).ok_or(ParseTokenError)?);
        hmac::verify(&self.0, format!("reader {app}").as_bytes(), &tag).map_err(|_| ParseTokenError)?;
        Ok(app)
    }

    /// Whose token it is, if it was made with this key. Names may hold underscores, a tag does not.
    ///
    /// # Errors
    /// It is no token of an application, or not one of ours.
    pub fn check(&self, text: &str) -> Result<(AppId, AttemptId), ParseTokenError> {
        let (attempt, tag) = text.strip_prefix("hra_").and_then(|rest| rest.rsplit_once('_')).ok_or(ParseTokenError)?;
        let tag: [u8; 32] = bytes(tag).ok_or(ParseTokenError)?;
        let attempt: AttemptId = attempt.parse().map_err(|_| ParseTokenError)?;
        hmac::verify(&self.0, attempt.to_string().as_bytes(), &tag).map_err(|_| ParseTokenError)?;
        Ok((attempt.app.clone(), attempt))
    }
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppKey(…)")
    }
}

/// Bytes as small hexadecimal digits.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Exactly `N` bytes from small hexadecimal digits.
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
    fn a_token_is_read_as_it_is_revealed() {
        for kind in [Kind::User, Kind::Join] {
            let token = Token::mint(kind).expect("random numbers");
            let read: Token = token.reveal().parse().expect("a token");
            assert_eq!((read.kind(), read.accessor()), (kind, token.accessor()));
            assert!(read.hash().is(&token.hash()));
            assert!(!Token::mint(kind).expect("random numbers").hash().is(&token.hash()));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let token = Token::mint(Kind::User).expect("random numbers");
        let secret = token.reveal().rsplit('_').next().expect("a secret").to_owned();
        assert!(!format!("{token:?}").contains(&secret));
        let key = AppKey::new(&[7; 32]);
        assert_eq!(format!("{key:?}"), "AppKey(…)");
        assert!(!ParseTokenError.to_string().contains(&secret));
    }

    #[test]
    fn the_token_of_an_application_belongs_to_its_attempt() {
        let (key, other) = (AppKey::new(&[1; 32]), AppKey::new(&[2; 32]));
        let attempt: AttemptId = "word_count.7@2".parse().expect("an attempt");
        let token = key.token(&attempt);
        assert_eq!(key.check(&token), Ok(("word_count.7".parse().expect("an app"), attempt)));
        assert_eq!(other.check(&token), Err(ParseTokenError));
        assert_eq!(key.check(&token.replace("@2", "@3")), Err(ParseTokenError), "another attempt");
        assert_eq!(key.check(&token.replace(".7@", ".8@")), Err(ParseTokenError), "another application");
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(text in "\\PC{0,120}") {
            let _ = text.parse::<Token>();
            let _ = AppKey::new(&[0; 32]).check(&text);
            let _ = AppKey::new(&[0; 32]).check(&format!("hra_{text}"));
        }

        #[test]
        fn a_changed_token_is_another(at in 21_usize..85, digit in "[0-9a-f]") {
            let token = Token::mint(Kind::User).expect("random numbers");
            let mut text = token.reveal();
            prop_assume!(text[at..=at] != digit);
            text.replace_range(at..=at, &digit);
            let read: Token = text.parse().expect("still well-formed");
            prop_assert!(!read.hash().is(&token.hash()));
        }
    }
}
