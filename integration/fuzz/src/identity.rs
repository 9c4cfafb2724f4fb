//! Identities: tokens, roles, rights, certificates, and the ids in addresses and file names.

use std::str::from_utf8;

use headroom_identity::token::{AppTokenKey, Sha256Digest};
use headroom_identity::{
    AccessRight, Certificate, CertificateRole, SecretToken, certificates, tls,
};
use headroom_types::{
    AppId, AttemptId, ContainerId, Name, NodeId, QueuePath, RequestId, TaskAttemptId, TaskId,
};
use headroom_wire::yarn::ids::{YarnApplicationId, YarnAttemptId, YarnContainerId};
use headroom_wire::yarn::{accept, time};

use super::text_again;

/// Only tokens that were made with the key are accepted, and each parsed value displays as a text
/// that parses as the same.
pub fn check(data: &[u8]) {
    if let Ok(certificate) = Certificate::from_der(data) {
        assert_eq!(certificate.fingerprint, Sha256Digest::of(data));
    }
    let Ok(text) = from_utf8(data) else { return };
    let _ = (
        certificates(text),
        Certificate::from_pem(text),
        tls::roots(text),
    );
    tokens(text);
    ids(text);
    let _ = (
        accept::accepts_json(text.lines()),
        time::parse_timestamp(text).map(time::format_timestamp),
    );
}

fn tokens(text: &str) {
    if let Ok(token) = text.parse::<SecretToken>() {
        assert!(token.reveal().eq_ignore_ascii_case(text));
        assert!(!format!("{token:?}").contains(text.rsplit('_').next().unwrap_or_default()));
    }
    let key = AppTokenKey::new(&[7; 32]);
    // A fuzzer cannot find 32 bytes by chance; an accepted token was in the seeds.
    if let Ok((app, attempt)) = key.check(text) {
        assert!(key.token(&attempt).eq_ignore_ascii_case(text) && attempt.app == app);
    }
    if let Ok(app) = key.check_executor_token(text) {
        assert!(key.executor_token(&app).eq_ignore_ascii_case(text));
    }
    assert!(
        AppTokenKey::new(&[8; 32]).check(text).is_err()
            && AppTokenKey::new(&[8; 32])
                .check_executor_token(text)
                .is_err()
    );
    if let Some(role) = text_again::<CertificateRole>(text) {
        assert_eq!(CertificateRole::from_uri(&role.uri()), Ok(role));
    }
    let _ = (
        text_again::<AccessRight>(text),
        CertificateRole::from_uri(text),
    );
}

/// No id leaves a directory if it is used as a file name.
fn ids(text: &str) {
    let names = [
        text_again::<Name>(text).map(|id| id.to_string()),
        text_again::<NodeId>(text).map(|id| id.to_string()),
        text_again::<RequestId>(text).map(|id| id.to_string()),
        text_again::<AppId>(text).map(|id| id.to_string()),
        text_again::<ContainerId>(text).map(|id| id.to_string()),
        text_again::<QueuePath>(text).map(|id| id.to_string()),
        text_again::<TaskAttemptId>(text).map(|id| id.file_name()),
    ];
    for name in names.iter().flatten() {
        assert!(
            !name.contains(['/', '\0']) && !name.starts_with('.') && !name.is_empty(),
            "{name:?}"
        );
    }
    let _ = (text_again::<AttemptId>(text), text_again::<TaskId>(text));
    let _ = (
        text_again::<YarnApplicationId>(text),
        text_again::<YarnAttemptId>(text),
        text_again::<YarnContainerId>(text),
    );
}
