//! The files of a support bundle. Possible secrets are removed before anything is written.
//!
//! The interface does not return secrets itself. But programs may print them, commands and
//! environments belong to users, and an address may contain a password. The bundle omits all of
//! these.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use headroom_types::UnixMillis;
use serde_json::Value;

/// Replacement for a removed value.
pub(crate) const LEFT_OUT: &str = "(left out)";
/// Substrings of keys whose values are secrets, or arguments or output of programs.
const SECRET: [&str; 10] = [
    "token",
    "secret",
    "passw",
    "credential",
    "authorization",
    "cookie",
    "private_key",
    "log_tail",
    "environment",
    "command",
];
/// Keys of the same kind that are too short for a substring match.
const SECRET_WHOLE: [&str; 4] = ["env", "args", "files", "fetch"];

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BundleFile {
    /// File name in the bundle.
    pub(crate) name: String,
    /// Contents.
    pub(crate) text: String,
}

/// Replaces possible secrets in a document.
pub(crate) fn clean(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = |(key, value): (String, Value)| {
                let value = if is_secret(&key) && !value.is_null() {
                    Value::from(LEFT_OUT)
                } else {
                    clean(value)
                };
                (key, value)
            };
            Value::Object(map.into_iter().map(kept).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(clean).collect()),
        Value::String(text) => Value::String(clean_text(&text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET.iter().any(|part| key.contains(part)) || SECRET_WHOLE.contains(&key.as_str())
}

/// Replaces passwords in addresses, bearer tokens, and values that follow a secret key.
pub(crate) fn clean_text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut after_bearer = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let space = &word[bare.len()..];
        let shown = if after_bearer && !bare.is_empty() {
            LEFT_OUT.to_owned()
        } else {
            clean_word(bare)
        };
        after_bearer = bare.eq_ignore_ascii_case("bearer");
        clean.push_str(&shown);
        clean.push_str(space);
    }
    clean
}

fn clean_word(word: &str) -> String {
    // scheme://user:password@host
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((who, host)) = rest
            .split('/')
            .next()
            .and_then(|authority| authority.rsplit_once('@'))
    {
        return format!(
            "{scheme}://{LEFT_OUT}@{}",
            rest.get(who.len() + 1..).unwrap_or(host)
        );
    }
    match word.split_once(['=', ':']) {
        Some((name, value))
            if !value.is_empty() && is_secret(name.trim_matches(['"', '\'', '-', '{', ','])) =>
        {
            format!("{}{LEFT_OUT}", &word[..=name.len()])
        }
        Some(_) | None => word.to_owned(),
    }
}

/// Writes the files as `tar.gz` below one folder, readable by their owner only.
pub(crate) fn pack(
    out: impl Write,
    folder: &str,
    pieces: &[BundleFile],
    now: UnixMillis,
) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for BundleFile { name, text } in pieces {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(text.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(now.0 / 1000);
        archive.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read as _;

    #[test]
    fn possible_secrets_are_left_out() {
        let value = json!({
            "id": "sort.1", "auth_token": "abc", "log_tail": "password is hunter2", "env": {"A": "b"}, "nothing_secret": null,
            "list": [{"command": ["x", "--key=1"]}, "see http://ada:hunter2@host:7070/x"], "mode": 3,
        });
        let clean = clean(value);
        assert_eq!(clean["list"][1], "see http://(left out)@host:7070/x");
        assert_eq!(
            (clean["id"].as_str(), clean["mode"].as_u64()),
            (Some("sort.1"), Some(3))
        );
        assert!(clean["nothing_secret"].is_null(), "nothing is nothing");
        let text = clean.to_string();
        for secret in ["abc", "hunter2", "--key", "\"b\""] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }

    #[test]
    fn texts_lose_only_the_secret() {
        assert_eq!(
            clean_text("Authorization: Bearer abc.def\nnext line"),
            "Authorization: Bearer (left out)\nnext line"
        );
        assert_eq!(
            clean_text("DB_PASSWORD=x token:y  plain=1 a://b/c@d"),
            "DB_PASSWORD=(left out) token:(left out)  plain=1 a://b/c@d"
        );
        assert_eq!(clean_text(""), "");
    }

    #[test]
    fn a_written_bundle_can_be_read() {
        let pieces = [
            BundleFile {
                name: "a.json".into(),
                text: "{}\n".into(),
            },
            BundleFile {
                name: "b/c.txt".into(),
                text: "c".into(),
            },
        ];
        let mut out = Vec::new();
        pack(&mut out, "headroom-debug", &pieces, UnixMillis(5000)).expect("packs");
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(out.as_slice()));
        let mut seen = Vec::new();
        for entry in archive.entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("a text");
            seen.push((
                entry.path().expect("a path").display().to_string(),
                entry.header().mode().expect("a mode"),
                text,
            ));
        }
        assert_eq!(
            seen,
            [
                ("headroom-debug/a.json".to_owned(), 0o600, "{}\n".to_owned()),
                ("headroom-debug/b/c.txt".into(), 0o600, "c".into())
            ]
        );
    }
}
