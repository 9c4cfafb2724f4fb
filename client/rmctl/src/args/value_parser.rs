//! Parsers of argument values that are no types of their own: variables, durations.
//!
//! Each returns a sentence that names the accepted form; clap adds the argument and the value.

use std::time::Duration;

/// Parses an environment variable to its name and value.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
    };
    text.split_once('=')
        .filter(|(name, _)| is_name(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "write NAME=VALUE".to_owned())
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
