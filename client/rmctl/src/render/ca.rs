//! Screen of certificates.

use std::time::Duration;

use headroom_types::UnixMillis;

use super::figures::{rfc3339, span};
use crate::certificate::TemplateFieldFormat;

/// One paragraph per certificate, with the remaining validity at `now`.
pub(crate) fn certificates(all: &[TemplateFieldFormat], now: UnixMillis) -> String {
    let one = |c: &TemplateFieldFormat| {
        let role = match (&c.role, c.authority) {
            (Some(role), _) => role.as_str(),
            (None, true) => "authority",
            (None, false) => "no role of Headroom",
        };
        let names = if c.names.is_empty() {
            String::new()
        } else {
            format!("\nat           {}", c.names.join(", "))
        };
        format!(
            "{}\nrole         {role}{names}\nsigned by    {}\nvalid        {}\nserial       {}\nfingerprint  {}\n",
            c.file,
            c.issuer,
            validity(c, now),
            c.serial,
            c.fingerprint,
        )
    };
    all.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn validity(c: &TemplateFieldFormat, now: UnixMillis) -> String {
    let until = rfc3339(UnixMillis(c.until_ms));
    if now.0 >= c.until_ms {
        return format!("EXPIRED at {until}: rmctl ca renew {}", c.file);
    }
    if now.0 < c.from_ms {
        return format!(
            "not yet, from {}: check the clock of this host",
            rfc3339(UnixMillis(c.from_ms))
        );
    }
    format!(
        "for {} more, until {until}",
        span(Duration::from_millis(c.until_ms - now.0))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_shown_with_its_validity() {
        let shown = TemplateFieldFormat {
            file: "node-n1.pem".into(),
            role: Some("node/n1".into()),
            names: vec!["n1.example".into(), "10.0.0.7".into()],
            authority: false,
            issuer: "O=Headroom, CN=prod".into(),
            serial: "0b1c".into(),
            from_ms: 1_790_000_000_000,
            until_ms: 1_790_000_000_000 + 30 * 86_400_000,
            fingerprint: "ab".repeat(32),
        };
        let ca = TemplateFieldFormat {
            file: "ca.pem".into(),
            role: None,
            names: Vec::new(),
            authority: true,
            ..shown.clone()
        };
        insta::assert_snapshot!(certificates(
            &[shown.clone(), ca],
            UnixMillis(1_790_000_000_000 + 86_400_000)
        ));
        assert!(
            certificates(std::slice::from_ref(&shown), UnixMillis(1_900_000_000_000))
                .contains("rmctl ca renew node-n1.pem")
        );
        assert!(certificates(&[shown], UnixMillis(1_700_000_000_000)).contains("not yet"));
    }
}
