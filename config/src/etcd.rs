//! The table `[etcd]`: where the state of several resource managers is.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::toml_reader::{
    TomlSection, absolute_path, duration_within, hint, parse_duration, read_keys, server_urls,
    some, text,
};

/// Shortest lease. A leader renews it four times in that time, each time durably in etcd.
const MIN_LEASE: Duration = Duration::from_millis(500);
/// Longest lease. The cluster waits for it when a host fails.
const MAX_LEASE: Duration = Duration::from_secs(60);

/// The state in etcd. Without endpoints, the state is in a database on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs of the members.
    pub endpoints: Vec<String>,
    /// Prefix of all keys of the cluster.
    pub prefix: String,
    /// Time without a renewal after which another resource manager leads.
    pub lease: Duration,
    /// Directory of certificates: `ca.pem`, and `cert.pem` with `key.pem` if members verify clients.
    pub tls: Option<PathBuf>,
    /// File with `USER:PASSWORD`.
    pub login: Option<PathBuf>,
    /// Interval at which the leader removes the history of etcd; `None` for never.
    pub compact: Option<Duration>,
}

impl Default for EtcdConfig {
    fn default() -> Self {
        EtcdConfig {
            endpoints: Vec::new(),
            prefix: "/headroom".to_owned(),
            lease: Duration::from_secs(1),
            tls: None,
            login: None,
            compact: Some(Duration::from_secs(300)),
        }
    }
}

impl EtcdConfig {
    /// Whether the state is in etcd.
    pub fn is_used(&self) -> bool {
        !self.endpoints.is_empty()
    }
}

/// Reads the table `[etcd]`.
pub(crate) fn read(root: &mut TomlSection<'_>) -> EtcdConfig {
    let whole = hint(
        "several resource managers keep their state there",
        "write a table: [etcd]",
    );
    root.read_table("etcd", whole, |table| {
        let config = read_keys!(table, EtcdConfig::default(), {
            endpoints: server_urls =>
                "the resource manager calls these members of etcd",
                "write a list of URLs: [\"http://10.0.0.1:2379\"]";
            prefix: key_prefix =>
                "all keys of the cluster begin with it",
                "write a path such as \"/headroom/prod\"";
            lease: lease_time =>
                "another resource manager leads after this time without a renewal",
                "write a time from \"500ms\" to \"60s\"";
            tls | login: some(absolute_path) =>
                "the resource manager reads it",
                "write an absolute path in quotes, or leave it out";
            compact: interval =>
                "the leader removes the history of etcd at this interval",
                "write a time with its unit, such as \"5m\", or \"never\"";
        });
        let encrypted = |url: &String| url.starts_with("https://");
        if config.endpoints.iter().any(encrypted) && config.tls.is_none() {
            table.reject(
                "endpoints",
                "etcd.endpoints has an https endpoint, and etcd.tls is missing",
                "the certificate of the member is verified with ca.pem in it",
                "add tls = \"/etc/headroom/etcd\"",
            );
        }
        config
    })
}

fn key_prefix(value: &DeValue<'_>) -> Result<String, String> {
    let prefix = text(value)?.trim_end_matches('/').to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if prefix.starts_with('/') && prefix.len() > 1 && prefix.chars().all(plain) {
        Ok(prefix)
    } else {
        Err(format!(
            "{prefix:?} does not have the form /NAME with letters, digits and /-_."
        ))
    }
}

fn lease_time(value: &DeValue<'_>) -> Result<Duration, String> {
    duration_within(value, MIN_LEASE..=MAX_LEASE)
}

fn interval(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    match text(value)?.trim() {
        "never" => Ok(None),
        text => parse_duration(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::resourcemanager;

    fn keys(text: &str) -> Vec<String> {
        let problems = resourcemanager(text, "f").expect_err("wrong");
        problems.into_iter().map(|p| p.key).collect()
    }

    #[test]
    fn a_state_in_etcd_is_described_completely() {
        let text = "advertise='https://rm1:7070/'\n[etcd]\nendpoints=['https://a:2379/','https://b:2379']\ntls='/t'\nlogin='/l'\nprefix='/h/x/'\nlease='5s'\ncompact='never'\n";
        let config = resourcemanager(text, "f").expect("right");
        assert_eq!(config.advertise.as_deref(), Some("https://rm1:7070"));
        assert_eq!(config.etcd.endpoints, ["https://a:2379", "https://b:2379"]);
        assert_eq!(
            (config.etcd.prefix.as_str(), config.etcd.compact),
            ("/h/x", None)
        );
        assert!(config.etcd.is_used() && config.etcd.tls.is_some());
        assert!(!resourcemanager("", "f").expect("right").etcd.is_used());
    }

    #[test]
    fn wrong_values_are_refused() {
        for (text, key) in [
            ("lease='100ms'", "etcd.lease"),
            ("prefix='a b'", "etcd.prefix"),
            ("compact='0s'", "etcd.compact"),
            ("endpoints=['https://a:2379']", "etcd.endpoints"),
            ("endpoints=[]", "etcd.endpoints"),
            ("endpoints=['a:2379']", "etcd.endpoints"),
        ] {
            assert_eq!(keys(&format!("[etcd]\n{text}\n")), [key]);
        }
    }
}
