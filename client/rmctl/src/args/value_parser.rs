//! Parsers of argument values that are no types of their own: enforcers, variables, durations.
//!
//! Each returns a sentence that names the accepted form; clap adds the argument and the value.

use std::time::Duration;

#[cfg(feature = "dev")]
use headroom_types::EnforcerKind;

/// Parses the kind of an enforcer.
#[cfg(feature = "dev")]
pub(super) fn enforcer(text: &str) -> Result<EnforcerKind, String> {
    let all = [
        EnforcerKind::Cgroup2,
        EnforcerKind::Cgroup1,
        EnforcerKind::Poll,
    ];
    all.into_iter()
        .find(|k| k.as_str() == text)
        .ok_or_else(|| "use cgroup2, cgroup1 or poll".to_owned())
}

/// Parses an environment variable; its text stays as it is.
pub(super) fn variable(text: &str) -> Result<String, String> {
    let named = text.split_once('=').is_some_and(|(name, _)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
    });
    if named {
        Ok(text.to_owned())
    } else {
        Err("write NAME=VALUE".to_owned())
    }
}

/// Parses `500ms`, `90s`, `10m`, `2h`, `1d`; a bare number counts seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 10m or 2h".to_owned();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[split..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert!(
            duration("soon").is_err()
                && duration("5w").is_err()
                && duration("99999999999999999999h").is_err()
        );
    }
}
