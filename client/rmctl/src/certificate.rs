//! A certificate with its file, as `rmctl ca` prints it.
//!
//! It contains no secret, and reads and verifies nothing.

use std::path::Path;

use headroom_identity::{Certificate, CertificateRole};
use serde::Serialize;

/// A certificate and its file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TemplateFieldFormat {
    /// The file.
    pub(crate) file: String,
    /// manager, node/NAME or user/NAME; none for an authority.
    pub(crate) role: Option<String>,
    /// Host names and addresses of the holder.
    pub(crate) names: Vec<String>,
    /// Whether it may sign other certificates.
    pub(crate) authority: bool,
    /// The authority that signed it.
    pub(crate) issuer: String,
    /// Serial number.
    pub(crate) serial: String,
    /// Begin of validity. Milliseconds since 1970.
    pub(crate) from_ms: u64,
    /// End of validity. Milliseconds since 1970.
    pub(crate) until_ms: u64,
    /// SHA-256 of the certificate.
    pub(crate) fingerprint: String,
}

impl TemplateFieldFormat {
    /// The fields of a parsed certificate.
    pub(crate) fn of(file: &Path, read: &Certificate) -> Self {
        TemplateFieldFormat {
            file: file.display().to_string(),
            role: read.role.as_ref().map(CertificateRole::to_string),
            names: read.names.clone(),
            authority: read.authority,
            issuer: read.issuer.clone(),
            serial: read.serial.clone(),
            from_ms: read.from.0,
            until_ms: read.until.0,
            fingerprint: read.fingerprint.to_string(),
        }
    }
}
