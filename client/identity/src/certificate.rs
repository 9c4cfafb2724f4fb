//! Parser of certificates.

use headroom_types::UnixMillis;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::role::CertificateRole;
use crate::token::{HexDigits, Sha256Digest};

/// The parsed contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Role of the holder, if the certificate contains a Headroom role.
    pub role: Option<CertificateRole>,
    /// Host names and addresses of the holder.
    pub names: Vec<String>,
    /// Subject, in readable form.
    pub subject: String,
    /// Issuer, in readable form.
    pub issuer: String,
    /// True for a certificate authority.
    pub authority: bool,
    /// Serial number, in hexadecimal digits.
    pub serial: String,
    /// Start of the validity period.
    pub from: UnixMillis,
    /// End of the validity period.
    pub until: UnixMillis,
    /// SHA-256 of the DER form.
    pub fingerprint: Sha256Digest,
}

/// The error of a certificate that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The text contains no certificate.
    #[error("it contains no certificate (-----BEGIN CERTIFICATE----- …)")]
    Nothing,
    /// A certificate is malformed.
    #[error("the certificate is damaged: {0}")]
    Damaged(String),
}

/// Parses all certificates of a PEM text, in order.
///
/// # Errors
/// The text contains no certificate, or a malformed one.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| CertificateError::Damaged(error.to_string()))?;
    if all.is_empty() {
        Err(CertificateError::Nothing)
    } else {
        Ok(all)
    }
}

impl Certificate {
    /// Parses the first certificate of a PEM text.
    ///
    /// # Errors
    /// There is no certificate, or it is malformed.
    pub fn from_pem(pem: &str) -> Result<Self, CertificateError> {
        certificates(pem)?
            .first()
            .ok_or(CertificateError::Nothing)
            .and_then(|der| Certificate::from_der(der))
    }

    /// Parses a certificate in DER form.
    ///
    /// # Errors
    /// It is malformed.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let (_, read) = parse_x509_certificate(der)
            .map_err(|error| CertificateError::Damaged(error.to_string()))?;
        let mut names = Vec::new();
        let mut role = None;
        let damaged =
            |error: x509_parser::error::X509Error| CertificateError::Damaged(error.to_string());
        let said = read.subject_alternative_name().map_err(damaged)?;
        for name in said
            .iter()
            .flat_map(|extension| &extension.value.general_names)
        {
            // Names of other types are ignored; they do not identify a host.
            if let GeneralName::URI(uri) = name {
                role = role.or_else(|| CertificateRole::from_uri(uri).ok());
            } else if let GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            } else if let GeneralName::IPAddress(bytes) = name {
                names.extend(address(bytes));
            }
        }
        let time =
            |seconds: i64| UnixMillis(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
        Ok(Certificate {
            role,
            names,
            subject: read.subject().to_string(),
            issuer: read.issuer().to_string(),
            authority: read.is_ca(),
            serial: HexDigits(read.raw_serial()).to_string(),
            from: time(read.validity().not_before.timestamp()),
            until: time(read.validity().not_after.timestamp()),
            fingerprint: Sha256Digest::of(der),
        })
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string());
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_without_a_certificate_is_refused() {
        assert_eq!(
            Certificate::from_pem("hello"),
            Err(CertificateError::Nothing)
        );
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(
            Certificate::from_pem(damaged),
            Err(CertificateError::Damaged(_))
        ));
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Certificate::from_der(&bytes);
        }
    }
}
