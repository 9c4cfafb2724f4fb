//! The certificate authority of a cluster: signs certificates of resource managers, nodes and
//! users. Without clock and files.

use std::net::IpAddr;
use std::time::Duration;

use headroom_types::{UnixMillis, millis};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;

use crate::certificate::CertificateError;
use crate::role::CertificateRole;
use crate::token::{NoRandomness, random};
use crate::{Certificate, certificate};

/// Tolerance for clocks of other hosts that are slow.
const CLOCK_SKEW_TOLERANCE: Duration = Duration::from_secs(300);
/// Maximum number of names and addresses in one certificate.
const MAX_NAMES: usize = 64;

/// The error of an authority operation.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A key, a certificate or a request cannot be parsed or created.
    #[error("{what}: {source}")]
    Rcgen {
        /// The failed operation.
        what: &'static str,
        /// The underlying error.
        source: rcgen::Error,
    },
    /// The certificate of the authority is invalid.
    #[error("the authority's certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// The certificate is not a certificate authority.
    #[error("this certificate is not that of an authority: it may not sign others")]
    NoAuthority,
    /// A name that is not valid in a certificate.
    #[error("{0:?} is neither a host name nor an address")]
    Name(String),
    /// Too many names.
    #[error("{0} names; a certificate has at most {MAX_NAMES}")]
    Names(usize),
    /// Random numbers are unavailable.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
}

/// The contents of a certificate to be issued.
#[derive(Clone, Debug)]
pub struct CertificateRequest<'a> {
    /// Role of its holder.
    pub role: CertificateRole,
    /// Host names and addresses of the holder; empty for a user.
    pub names: &'a [String],
    /// Current time.
    pub now: UnixMillis,
    /// Validity period from `now`.
    pub lifetime: Duration,
}

/// A certificate with its private key, both as PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate; not secret.
    pub certificate: String,
    /// The private key; secret.
    pub key: String,
}

headroom_types::debug_fields!(IssuedCertificate { certificate });

/// An authority with its private key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    until: UnixMillis,
}

headroom_types::debug_fields!(Authority { until });

fn failed(what: &'static str) -> impl FnOnce(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError::Rcgen { what, source }
}

/// Creates an authority with the name `name`.
///
/// # Errors
/// The name is invalid, or random numbers are unavailable.
pub fn create(
    name: &str,
    now: UnixMillis,
    lifetime: Duration,
) -> Result<IssuedCertificate, AuthorityError> {
    let key = KeyPair::generate().map_err(failed("a key"))?;
    let mut params = params(now, lifetime)?;
    params.distinguished_name = called(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params
        .self_signed(&key)
        .map_err(failed("the authority's certificate"))?;
    Ok(IssuedCertificate {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Creates a certificate signing request and its private key. The key stays with the caller.
///
/// # Errors
/// Random numbers are unavailable.
pub fn request() -> Result<(String, PrivateKeyPem), AuthorityError> {
    let key = KeyPair::generate().map_err(failed("a key"))?;
    let request = CertificateParams::default()
        .serialize_request(&key)
        .map_err(failed("a request"))?;
    let text = request.pem().map_err(failed("a request"))?;
    Ok((text, PrivateKeyPem(key.serialize_pem())))
}

/// A private key as PEM, which `Debug` does not print.
#[derive(Clone)]
pub struct PrivateKeyPem(pub String);

impl std::fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyText(…)")
    }
}

impl Authority {
    /// Opens an existing authority.
    ///
    /// # Errors
    /// The certificate or the key is invalid, or the certificate is not an authority.
    pub fn open(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let facts = Certificate::from_pem(certificate)?;
        if !facts.authority {
            return Err(AuthorityError::NoAuthority);
        }
        let key = KeyPair::from_pem(key).map_err(failed("the authority's key"))?;
        let first = certificate::certificates(certificate)?
            .into_iter()
            .next()
            .ok_or(CertificateError::Nothing)?;
        let issuer =
            Issuer::from_ca_cert_der(&first, key).map_err(failed("the authority's certificate"))?;
        Ok(Authority {
            issuer,
            until: facts.until,
        })
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    /// A name is invalid, or random numbers are unavailable.
    pub fn issue(
        &self,
        wanted: &CertificateRequest<'_>,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = KeyPair::generate().map_err(failed("a key"))?;
        let certificate = self
            .params(wanted)?
            .signed_by(&key, &self.issuer)
            .map_err(failed("a certificate"))?;
        Ok(IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Issues a certificate for an existing key.
    ///
    /// # Errors
    /// The key or a name is invalid.
    pub fn certify(
        &self,
        key: &str,
        wanted: &CertificateRequest<'_>,
    ) -> Result<String, AuthorityError> {
        let key = KeyPair::from_pem(key).map_err(failed("the key"))?;
        Ok(self
            .params(wanted)?
            .signed_by(&key, &self.issuer)
            .map_err(failed("a certificate"))?
            .pem())
    }

    /// Issues a certificate for the key of a request. Only the public key of the request is used;
    /// its other contents are not trusted.
    ///
    /// # Errors
    /// The request is invalid or not signed with its own key, or a name is invalid.
    pub fn sign(
        &self,
        request: &str,
        wanted: &CertificateRequest<'_>,
    ) -> Result<String, AuthorityError> {
        let mut request =
            CertificateSigningRequestParams::from_pem(request).map_err(failed("the request"))?;
        request.params = self.params(wanted)?;
        Ok(request
            .signed_by(&self.issuer)
            .map_err(failed("a certificate"))?
            .pem())
    }

    fn params(&self, wanted: &CertificateRequest<'_>) -> Result<CertificateParams, AuthorityError> {
        // A certificate must not outlive its authority.
        let left = Duration::from_millis(self.until.0.saturating_sub(wanted.now.0));
        let mut params = params(wanted.now, wanted.lifetime.min(left))?;
        params.distinguished_name = called(&wanted.role.to_string());
        let uri = wanted.role.uri();
        params.subject_alt_names = vec![SanType::URI(
            uri.as_str()
                .try_into()
                .map_err(|_| AuthorityError::Name(uri.clone()))?,
        )];
        if wanted.names.len() > MAX_NAMES {
            return Err(AuthorityError::Names(wanted.names.len()));
        }
        for name in wanted.names {
            params.subject_alt_names.push(parse_san(name)?);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match wanted.role {
            CertificateRole::Manager | CertificateRole::Node(_) => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
            CertificateRole::User(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// Parses a host name or an address.
fn parse_san(name: &str) -> Result<SanType, AuthorityError> {
    let wrong = || AuthorityError::Name(name.chars().take(80).collect());
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(wrong());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| wrong())?))
}

fn params(now: UnixMillis, lifetime: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    let at = |millis: u64| {
        OffsetDateTime::from_unix_timestamp(i64::try_from(millis / 1000).unwrap_or(i64::MAX))
    };
    // Out-of-range times become the first or the last representable time.
    params.not_before = at(now.0.saturating_sub(millis(CLOCK_SKEW_TOLERANCE)))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_after = at(now.0.saturating_add(millis(lifetime)))
        .unwrap_or_else(|_| rcgen::date_time_ymd(9999, 12, 31));
    let mut serial = random::<16>()?;
    serial[0] &= 0x7f; // a serial number must be positive
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::OrganizationName, "Headroom");
    called.push(DnType::CommonName, name);
    called
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_790_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    fn wanted<'a>(role: &str, names: &'a [String]) -> CertificateRequest<'a> {
        CertificateRequest {
            role: role.parse().expect("a role"),
            names,
            now: NOW,
            lifetime: 30 * DAY,
        }
    }

    fn authority() -> Authority {
        let made = create("test", NOW, 365 * DAY).expect("an authority");
        Authority::open(&made.certificate, &made.key).expect("opens")
    }

    #[test]
    fn a_certificate_contains_its_role_and_lifetime() {
        let names = [
            "n1.example".to_owned(),
            "10.0.0.7".to_owned(),
            "::1".to_owned(),
        ];
        let issued = authority()
            .issue(&wanted("node/n1", &names))
            .expect("issued");
        let read = Certificate::from_pem(&issued.certificate).expect("reads");
        assert_eq!(read.role, Some("node/n1".parse().expect("a role")));
        assert_eq!(read.names, names);
        assert!(!read.authority && read.issuer.contains("test"), "{read:?}");
        assert_eq!(read.until.0, NOW.0 + 30 * 86_400_000);
        assert!(read.from < NOW, "clocks differ");
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let names = [];
        let long = CertificateRequest {
            lifetime: 9999 * DAY,
            ..wanted("user/alice", &names)
        };
        let read = Certificate::from_pem(&authority().issue(&long).expect("issued").certificate)
            .expect("reads");
        assert_eq!(read.until.0, NOW.0 + 365 * 86_400_000);
    }

    #[test]
    fn only_the_key_of_a_signing_request_is_used() {
        let authority = authority();
        let key = KeyPair::generate().expect("a key");
        let mut greedy = CertificateParams::new(vec!["manager.example".to_owned()]).expect("names");
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        greedy.subject_alt_names.push(SanType::URI(
            "headroom://manager".try_into().expect("an address"),
        ));
        let request = greedy
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("text");
        let names = ["n1".to_owned()];
        let signed = authority
            .sign(&request, &wanted("node/n1", &names))
            .expect("signed");
        let read = Certificate::from_pem(&signed).expect("reads");
        assert_eq!(
            (read.role, read.names, read.authority),
            (
                Some("node/n1".parse().expect("a role")),
                vec!["n1".into()],
                false
            )
        );
        assert!(
            authority
                .sign("no request", &wanted("node/n1", &names))
                .is_err()
        );
    }

    #[test]
    fn a_key_can_be_certified_again() {
        let (authority, names) = (authority(), []);
        let issued = authority
            .issue(&wanted("user/alice", &names))
            .expect("issued");
        let later = CertificateRequest {
            now: UnixMillis(NOW.0 + 86_400_000),
            ..wanted("user/alice", &names)
        };
        let (old, new) = (
            &issued.certificate,
            &authority.certify(&issued.key, &later).expect("certified"),
        );
        let (old, new) = (
            Certificate::from_pem(old).expect("reads"),
            Certificate::from_pem(new).expect("reads"),
        );
        assert!(new.until > old.until && new.serial != old.serial && new.role == old.role);
    }

    #[test]
    fn a_certificate_that_is_no_authority_cannot_sign() {
        let names = [];
        let issued = authority()
            .issue(&wanted("user/alice", &names))
            .expect("issued");
        assert!(matches!(
            Authority::open(&issued.certificate, &issued.key),
            Err(AuthorityError::NoAuthority)
        ));
        assert!(Authority::open("", "").is_err());
    }

    #[test]
    fn invalid_host_names_are_refused() {
        for name in ["", "a b", "a..b", "*", "x/y", &"a".repeat(254)] {
            let names = [name.to_owned()];
            assert!(
                matches!(
                    authority().issue(&wanted("node/n1", &names)),
                    Err(AuthorityError::Name(_))
                ),
                "{name}"
            );
        }
    }

    #[test]
    fn keys_are_not_in_debug_output() {
        let made = create("test", NOW, DAY).expect("an authority");
        assert!(!format!("{made:?}").contains("PRIVATE"));
        assert_eq!(format!("{:?}", PrivateKeyPem(made.key)), "KeyText(…)");
    }
}
