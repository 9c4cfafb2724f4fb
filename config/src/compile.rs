//! Compiler from the text of a daemon's configuration to its checked type.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use headroom_types::ids::ParseIdError;
use headroom_types::{Name, UNIX_SOCKET_PREFIX, split_address_list};
use toml::de::DeValue;

use crate::checked::{CallerLimits, NodeAgentConfig, ResourceManagerConfig, Scheduling};
use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{
    self, TomlSection, absolute_path, boolean, count, duration, duration_within, hint,
    nonzero_size, parsed, read_keys, read_table, server_url, size, some, texts, thousandths,
};
use crate::{aux_services, etcd, node, queues, telemetry};

/// Maximum length of an attribute value, in characters.
const MAX_ATTRIBUTE_CHARS: usize = 256;
/// Limits of the interval between heartbeats.
const HEARTBEATS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
const OPTIONAL_PATH: &str = "write an absolute path in quotes, or leave it out";
const TLS_FILES: &str = "the directory has ca.pem, cert.pem and key.pem";

/// Compiles `resourcemanager.toml`; `file` is its name in messages.
pub fn resourcemanager(text: &str, file: &str) -> Result<ResourceManagerConfig, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let mut root = TomlSection::root(&table, &report);
    let config = ResourceManagerConfig {
        scheduling: scheduling(&mut root),
        limits: limits(&mut root),
        telemetry: telemetry::telemetry(&mut root),
        events: telemetry::kept(&mut root, "events"),
        audit: telemetry::kept(&mut root, "audit"),
        history: telemetry::history(&mut root),
        uploads: telemetry::uploads(&mut root),
        journals: telemetry::journals(&mut root),
        etcd: etcd::read(&mut root),
        queues: queues::read(&mut root),
        ..ResourceManagerConfig::default()
    };
    let config = read_keys!(root, config, {
        listen: parsed =>
            "the resource manager listens at this address",
            "write an address and a port: listen = \"127.0.0.1:7070\"";
        advertise: some(server_url) =>
            "callers and other resource managers use this URL",
            "write advertise = \"https://rm1.example:7070\", or leave it out";
        socket: some(absolute_path) =>
            "local callers are authenticated at this socket",
            OPTIONAL_PATH;
        anonymous: parsed =>
            "it sets the rights of unauthenticated TCP callers",
            "write \"all\", \"read\" or \"nothing\"";
        tls: some(absolute_path) => TLS_FILES, OPTIONAL_PATH;
        authority: some(absolute_path) => "it signs certificates of joining hosts", OPTIONAL_PATH;
        state: absolute_path =>
            "the durable state is kept there",
            "write an absolute path in quotes";
        store: parsed => "the durable state is kept in this database", "write \"sled\" or \"redb\"";
        log: parsed =>
            "it sets the level of the log",
            "write \"error\", \"warn\", \"info\", \"debug\" or \"trace\"";
        heartbeat: heartbeat_time =>
            "the nodes send heartbeats at this interval",
            "write a time from 100ms to 60s, such as \"1s\"";
        suspect | unreachable | lost | master_silence: duration =>
            "the time since the last heartbeat is compared with it",
            "write a time with its unit, such as \"10s\"";
        traces: some(server_url) =>
            "masters send traces to this address",
            "write traces = \"http://127.0.0.1:4318\", or leave it out";
    });
    check_ascending(
        &root,
        ("suspect", config.suspect),
        ("unreachable", config.unreachable),
    );
    check_ascending(
        &root,
        ("unreachable", config.unreachable),
        ("lost", config.lost),
    );
    root.reject_unknown_keys();
    report.finish(Some(config))
}

fn heartbeat_time(value: &DeValue<'_>) -> Result<Duration, String> {
    duration_within(value, HEARTBEATS)
}

fn scheduling(root: &mut TomlSection<'_>) -> Scheduling {
    read_table!(root, "scheduling" => Scheduling:
        "it sets how the scheduler serves waiting requests",
        "write a table: [scheduling]";
    {
        reserve_after: duration =>
            "a request that waited this long gets a reserved node",
            "write a time with its unit, such as \"2s\"";
        preempt_warning: duration =>
            "a master can save its work in this time",
            "write a time with its unit, such as \"15s\"";
        preempt_every: duration =>
            "containers are preempted in rounds",
            "write a time with its unit, such as \"3s\"";
        preempt_part: thousandths =>
            "one round preempts at most this part",
            "write a part of the cluster such as \"10%\", or \"0%\" for never";
    })
}

fn limits(root: &mut TomlSection<'_>) -> CallerLimits {
    read_table!(root, "limits" => CallerLimits:
        "it limits the load from one caller",
        "write a table: [limits]";
    {
        calls_per_second | calls_at_once | connections_per_peer | streams: count(1, 1_000_000) =>
            "it limits the load from one caller",
            "write a whole number from 1";
        loopback: boolean =>
            "it sets whether programs on this host are counted",
            "write true or false";
    })
}

/// Compiles `nodeagent.toml`; `file` is its name in messages.
pub fn nodeagent(text: &str, file: &str) -> Result<NodeAgentConfig, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let mut root = TomlSection::root(&table, &report);
    let config = NodeAgentConfig {
        aux_services: aux_services::read(&mut root),
        isolation: node::isolation(&mut root),
        logs: node::logs(&mut root),
        health: node::health(&mut root),
        cache: node::cache(&mut root),
        masters: node::masters(&mut root),
        telemetry: telemetry::telemetry(&mut root),
        ..traits(&mut root)
    };
    let (why, fix) = ("the agent opens it", "write an absolute path in quotes");
    let config = read_keys!(root, config, {
        rm: manager_addresses =>
            "the node registers at this URL",
            "write rm = \"http://127.0.0.1:7070\", or all resource managers: rm = [\"http://rm1:7070\", \"http://rm2:7070\"]";
        name: some(parsed) =>
            "it names the node",
            "write a host name such as \"worker-01\", or leave it out for this host's";
        state: absolute_path => why, fix;
        listen: parsed =>
            "logs and health are read at this address",
            "write an address and a port: listen = \"127.0.0.1:7072\"";
        tls: some(absolute_path) => TLS_FILES, OPTIONAL_PATH;
        advertise: some(host) =>
            "other hosts connect to this name",
            "write a host name or an address without a port, or leave it out";
        memory: some(nonzero_size) =>
            "the node offers this memory",
            "write a size such as memory = \"14GiB\", or leave it out";
        cpus: some(toml_reader::cpus) =>
            "the node offers these processors",
            "write a number of cores such as cpus = 4, or leave it out";
        reserve: size =>
            "this memory stays with the host",
            "write a size such as reserve = \"512MiB\"";
        enforcer: some(parsed) =>
            "it enforces the limits of containers",
            "write \"cgroup2\", \"cgroup1\" or \"poll\", or leave it out";
        cgroup_root | bin_dir: some(absolute_path) => why, fix;
        self_fence: |v| toml_reader::text(v)?.parse() =>
            "a disconnected node ends its containers after this time",
            "write a time such as \"10m\", or \"never\"";
    });
    node::check_tmpfs_sizes(&root, &config);
    node::check_state_place(&root, &config);
    aux_services::check_memory(&root, config.memory, &config.aux_services);
    root.reject_unknown_keys();
    report.finish(Some(config))
}

/// Reads rack, labels, attributes and `exclusive`; all other values are defaults.
fn traits(root: &mut TomlSection<'_>) -> NodeAgentConfig {
    let values = hint(
        "requests compare these values",
        "write a word and a short text: attributes = { kernel = \"6.1\" }",
    );
    let attributes = root.named_values("attributes", values, attribute);
    let config = NodeAgentConfig {
        attributes: attributes.into_iter().collect(),
        ..NodeAgentConfig::default()
    };
    let (why, fix) = (
        "it reserves the node for requests with one of its labels",
        "write exclusive = true and some labels",
    );
    let config = read_keys!(root, config, {
        rack: some(parsed) =>
            "nodes of one rack fail together",
            "write a word such as rack = \"r12\"";
        labels: labels =>
            "requests can require these words",
            "write words in a list: labels = [\"ssd\", \"spark\"]";
        exclusive: boolean => why, fix;
    });
    if config.exclusive && config.labels.is_empty() {
        let what = "exclusive without labels: no request could ever use the node";
        root.reject("exclusive", what, why, fix);
    }
    config
}

fn labels(value: &DeValue<'_>) -> Result<BTreeSet<Name>, String> {
    texts(value)?
        .iter()
        .map(|t| t.parse().map_err(|e: ParseIdError| e.to_string()))
        .collect()
}

/// An attribute as name and value; also for the parts of `NAME=VALUE` on a command line.
fn attribute(name: &str, value: &DeValue<'_>) -> Result<(Name, String), String> {
    checked_attribute(name, &toml_reader::text(value)?)
}

/// Checks an attribute of a node: a name, and a short text without line breaks.
pub fn checked_attribute(name: &str, value: &str) -> Result<(Name, String), String> {
    let name = name.parse().map_err(|e: ParseIdError| e.to_string())?;
    if value.len() > MAX_ATTRIBUTE_CHARS || value.chars().any(char::is_control) {
        return Err(format!(
            "a value has at most {MAX_ATTRIBUTE_CHARS} characters and one line"
        ));
    }
    Ok((name, value.to_owned()))
}

fn check_ascending(root: &TomlSection<'_>, low: (&str, Duration), high: (&str, Duration)) {
    if low.1 >= high.1 {
        let what = format!(
            "{} ({:?}) is not shorter than {} ({:?})",
            low.0, low.1, high.0, high.1
        );
        let place = if root.has(high.0) { high.0 } else { low.0 };
        root.reject(
            place,
            what,
            "a silent node goes through these states in this order",
            "make suspect < unreachable < lost",
        );
    }
}

/// Parses the addresses of all resource managers of the cluster: one text with commas, or a list.
/// Returns them separated by commas.
fn manager_addresses(value: &DeValue<'_>) -> Result<String, String> {
    let text = if value.is_array() {
        texts(value)?.join(",")
    } else {
        toml_reader::text(value)?
    };
    let list = split_address_list(&text).map_err(|error| error.to_string())?;
    list.iter().try_for_each(|address| http_url(address))?;
    Ok(list.join(","))
}

/// Checks the address of a resource manager: an HTTP URL or a Unix socket of this host.
fn http_url(url: &str) -> Result<(), String> {
    if url
        .strip_prefix(UNIX_SOCKET_PREFIX)
        .is_some_and(|path| path.starts_with('/'))
    {
        return Ok(());
    }
    match url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
    {
        Some(host) if !host.is_empty() && !host.contains(['/', ' ', '?', '#']) => Ok(()),
        Some(_) | None => Err(format!(
            "{url:?} does not have the form http://HOST:PORT, https://HOST:PORT or unix:/PATH"
        )),
    }
}

/// Parses a host name or address without a port.
fn host(value: &DeValue<'_>) -> Result<String, String> {
    let host = toml_reader::text(value)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if host.len() <= 253 && host.split('.').all(label) {
        return Ok(host.to_owned());
    }
    Err(format!("{host:?} is neither a host name nor an address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::SelfFence;
    use headroom_types::EnforcerKind;
    use headroom_types::StoreBackend;

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(
            resourcemanager("", "f"),
            Ok(ResourceManagerConfig::default())
        );
        assert_eq!(nodeagent("", "f"), Ok(NodeAgentConfig::default()));
    }

    #[test]
    fn every_key_can_be_set() {
        let text = "rm='http://10.0.0.1:7070/'\nname='w1'\nstate='/s'\nlisten='0.0.0.0:1'\nmemory='2GiB'\ncpus=1.5\nreserve=0\n\
                    enforcer='poll'\ncgroup_root='/c'\nbin_dir='/b'\nself_fence='never'\nrack='r1'\nlabels=['ssd', 'gpu']\n\
                    exclusive=true\n[attributes]\nkernel='6.1'\nzone='north side'\n";
        let config = nodeagent(text, "f").expect("right");
        assert_eq!(config.rm, "http://10.0.0.1:7070");
        assert_eq!(
            (config.cpus.map(|c| c.milli()), config.enforcer),
            (Some(1500), Some(EnforcerKind::Poll))
        );
        assert_eq!(
            (config.self_fence, config.rack.as_ref().map(Name::as_str)),
            (SelfFence::Never, Some("r1"))
        );
        assert_eq!((config.labels.len(), config.exclusive), (2, true));
        assert_eq!(
            config.attributes.values().collect::<Vec<_>>(),
            ["6.1", "north side"]
        );
    }

    #[test]
    fn the_resource_managers_are_a_text_or_a_list() {
        let rm = |value: &str| nodeagent(&format!("rm = {value}\n"), "f").map(|config| config.rm);
        let both = Ok("http://a:7070,http://b:7070".to_owned());
        assert_eq!(rm("'http://a:7070, http://b:7070/'"), both);
        assert_eq!(rm("['http://a:7070/', 'http://b:7070']"), both);
        assert_eq!(
            rm("'unix:/run/rm.sock'"),
            Ok("unix:/run/rm.sock".to_owned())
        );
        for (value, wanted) in [
            ("'http://a:7070,ftp://b'", "are in one list"),
            (
                "'http://a:7070,http://b/c'",
                "\"http://b/c\" does not have the form http://HOST:PORT",
            ),
            (
                "'http://a:7070,b:7070'",
                "\"b:7070\" does not have the form",
            ),
            (
                "['http://a:7070', '']",
                "no address at position 2; write one comma",
            ),
            ("[]", "no address at position 1"),
            (
                "['http://a:1', 'http://a:1/']",
                "http://a:1 is in the list twice",
            ),
            (
                "['unix:/run/s', 'http://a:1']",
                "unix:/run/s is in a list with other addresses",
            ),
            ("['http://a:1', 7]", "an element: this is a whole number"),
            ("7", "not a text"),
        ] {
            let problems = rm(value).expect_err(value);
            let [problem] = problems.as_slice() else {
                panic!("{value}: {problems:?}");
            };
            assert!(problem.what.contains(wanted), "{value}: {}", problem.what);
        }
    }

    #[test]
    fn every_mistake_in_the_traits_of_a_node_has_its_position() {
        let text = "self_fence = '10'\nrack = 'no spaces'\nlabels = ['ok', '../x']\nexclusive = true\n\
                    [attributes]\nkernel = 6.1\n'a b' = 'x'\nlong = \"two\\nlines\"\n";
        let problems = nodeagent(text, "f").expect_err("seven mistakes");
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        let wanted = [
            "self_fence",
            "rack",
            "labels",
            "exclusive",
            "attributes.kernel",
            "attributes.a b",
            "attributes.long",
        ];
        assert_eq!(keys, wanted, "{problems:#?}");
        assert!(nodeagent("exclusive = true\nlabels = ['ssd']\n", "f").is_ok());
    }

    #[test]
    fn the_store_is_one_of_two() {
        let store = |text: &str| resourcemanager(text, "f").map(|c| c.store);
        assert_eq!(store("store = 'redb'"), Ok(StoreBackend::Redb));
        let wrong = store("store = 'rocksdb'").expect_err("no such store");
        assert!(
            wrong[0].what.contains("rocksdb") && wrong[0].fix.contains("sled"),
            "{wrong:?}"
        );
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let text = "listen = 7070\nstate = 'relative'\nsuspect = '10s'\nlost = 30\nlsten = 'x'\n";
        let problems = resourcemanager(text, "rm.toml").expect_err("five mistakes");
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(keys, ["listen", "state", "suspect", "lost", "lsten"]);
        assert_eq!(problems[4].fix, "did you mean `listen`?");
    }
}
