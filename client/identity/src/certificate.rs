//! What a certificate says, read from its text.

use headroom_types::UnixMillis;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::role::Role;
use crate::token::{Hash, Hex};

/// What is read from a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is, when it says so in our way.
    pub role: Option<Role>,
    /// Names and addresses it may be reached at.
    pub names: Vec<String>,
    /// Its subject and issuer, as people read them.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Whether it may sign others.
    pub authority: bool,
    /// Hexadecimal digits.
    pub serial: String,
    /// Valid from then.
    pub from: UnixMillis,
    /// Valid until then.
    pub until: UnixMillis,
    /// SHA-256 of the whole.
    pub fingerprint: Hash,
}

/// Why a certificate cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// There is none in the text.
    #[error("there is no certificate in it (-----BEGIN CERTIFICATE----- …)")]
    Nothing,
    /// One is there and not well-formed.
    #[error("the certificate is damaged: {0}")]
    Damaged(String),
}

/// All certificates of a PEM text, in its order.
///
/// # Errors
/// There is none, or one of them is damaged.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| CertificateError::Damaged(error.to_string()))?;
    if all.is_empty() { Err(CertificateError::Nothing) } else { Ok(all) }
}

impl Certificate {
    /// The first certificate of a PEM text.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        certificates(pem)?.first().ok_or(CertificateError::Nothing).and_then(|der| Certificate::from_der(der))
    }

    /// What one says.
    ///
    /// # Errors
    /// It is damaged.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let (_, read) = parse_x509_certificate(der).map_err(|error| CertificateError::Damaged(error.to_string()))?;
        let mut names = Vec::new();
        let mut role = None;
        let damaged = |error: x509_parser::error::X509Error| CertificateError::Damaged(error.to_string());
        let said = read.subject_alternative_name().map_err(damaged)?;
        for name in said.iter().flat_map(|extension| &extension.value.general_names) {
            // Nobody is reached at names of other kinds.
            if let GeneralName::URI(uri) = name {
                role = role.or_else(|| Role::from_uri(uri).ok());
            } else if let GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            } else if let GeneralName::IPAddress(bytes) = name {
                names.extend(address(bytes));
            }
        }
        let time = |seconds: i64| UnixMillis(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
        Ok(Certificate {
            role,
            names,
            subject: read.subject().to_string(),
            issuer: read.issuer().to_string(),
            authority: read.is_ca(),
            serial: Hex(read.raw_serial()).to_string(),
            from: time(read.validity().not_before.timestamp()),
            until: time(read.validity().not_after.timestamp()),
            fingerprint: Hash::of(der),
        })
    }

    /// Whether two thirds of its time are over: then it should be renewed.
    pub fn wants_renewal(&self, now: UnixMillis) -> bool {
        let third = self.until.0.saturating_sub(self.from.0) / 3;
        now.0 >= self.until.0.saturating_sub(third)
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string());
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_without_a_certificate_says_so() {
        assert_eq!(Certificate::from_pem("hello"), Err(CertificateError::Nothing));
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Certificate::from_pem(damaged), Err(CertificateError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Certificate::from_der(&bytes);
        }
    }
}
