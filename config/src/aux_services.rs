//! Auxiliary services of `nodeagent.toml`: `[aux_services.NAME]`, programs that the containers of a
//! node share.
//!
//! This module reads and checks the tables. The node agent starts the programs.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{Bytes, Name};
use toml::de::DeValue;

use crate::node_settings::user_name;
use crate::toml_reader::{self, TomlSection, duration, hint, integer, texts};

/// Minimum memory of a service; less does not hold a program and its libraries. Bytes.
const MIN_MEMORY: Bytes = Bytes::from_mib(4);
/// Default time between SIGTERM and SIGKILL.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(10);
/// Default time until a service is ready.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// One auxiliary service of a node: a program that the agent starts on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxServiceConfig {
    /// Program and arguments; never empty. A program without a slash is searched in the directory
    /// of the agent, then on its PATH.
    pub command: Vec<String>,
    /// Environment variables, added to a minimal environment.
    pub env: BTreeMap<String, String>,
    /// Memory limit of its cgroup. Bytes.
    pub memory: Bytes,
    /// TCP port on 127.0.0.1 that accepts connections when the service is ready. `None`: it is
    /// ready as soon as its program runs.
    pub port: Option<u16>,
    /// Maximum time from its start until it is ready.
    pub start_timeout: Duration,
    /// User of the program; the user of the agent if absent. Applies if the agent is root.
    pub user: Option<String>,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
}

/// Reads `[aux_services.NAME]`.
pub(crate) fn read(root: &mut TomlSection<'_>) -> BTreeMap<Name, AuxServiceConfig> {
    let whole = hint(
        "containers of this node share these programs",
        "write a table for each service: [aux_services.NAME]",
    );
    let mut services = BTreeMap::new();
    for (name, mut table) in root.named_tables("aux_services", whole) {
        let service = one(&mut table);
        table.reject_unknown_keys();
        match name.get_ref().parse::<Name>() {
            Ok(name) => services.extend(service.map(|service| (name, service))),
            Err(error) => root.problems().add(
                name.span(),
                &format!("aux_services.{}", name.get_ref()),
                format!("aux_services: {error}"),
                "launches refer to the service by this name",
                "write letters, digits, - and _",
            ),
        }
    }
    check_ports(root, &services);
    services
}

/// Reads one table. `None` if a required key is absent or wrong; the error is recorded.
fn one(t: &mut TomlSection<'_>) -> Option<AuxServiceConfig> {
    let command = hint(
        "the agent runs this program",
        "write a list of texts: command = [\"/usr/bin/java\", \"-version\"]",
    );
    let env = hint(
        "the program gets these variables",
        "write env = { NAME = \"value\" }",
    );
    let memory = hint(
        "the cgroup of the service has this limit, and the node offers less by it",
        "write a size such as memory = \"512MiB\", at least 4MiB",
    );
    let port = hint(
        "the service is ready when 127.0.0.1 accepts connections at it",
        "write a number from 1 to 65535, or leave it out",
    );
    let time = hint(
        "a launch waits no longer for the service",
        "write a time such as \"30s\"",
    );
    let user = hint(
        "the program runs as this user",
        "write the name of a user, or leave it out",
    );
    let grace = hint(
        "the program gets this time to end",
        "write a time such as \"10s\"",
    );
    let command = t.read_required("command", command, words);
    let variables = t.named_values("env", env, variable).into_iter().collect();
    let memory = t.read_required("memory", memory, enough_memory);
    let port = t.read_value("port", port, tcp_port);
    let start_timeout = t.read_or("start_timeout", time, START_TIMEOUT, duration);
    let user = t.read_value("user", user, |v| user_name(&toml_reader::text(v)?));
    let stop_grace = t.read_or("stop_grace", grace, STOP_GRACE, duration);
    Some(AuxServiceConfig {
        command: command?.into_inner(),
        env: variables,
        memory: memory?.into_inner(),
        port,
        start_timeout,
        user,
        stop_grace,
    })
}

/// Rejects two services with one port: the second could never listen.
fn check_ports(root: &TomlSection<'_>, services: &BTreeMap<Name, AuxServiceConfig>) {
    let mut ports: BTreeMap<u16, &Name> = BTreeMap::new();
    for (name, service) in services {
        let Some(port) = service.port else { continue };
        if let Some(first) = ports.insert(port, name) {
            root.add(
                root.place("aux_services"),
                &format!("aux_services.{name}.port"),
                format!("{name} and {first} both have the port {port}"),
                "only one program can listen at a port",
                "give each service its own port",
            );
        }
    }
}

/// Rejects services that take all memory of the node.
pub(crate) fn check_memory(
    root: &TomlSection<'_>,
    memory: Option<Bytes>,
    services: &BTreeMap<Name, AuxServiceConfig>,
) {
    let Some(memory) = memory else { return };
    let all = total_memory(services);
    if !services.is_empty() && all >= memory {
        root.reject(
            "aux_services",
            format!("the services need {all}, and this node has {memory}"),
            "the node offers to containers what the services leave",
            "write a larger `memory`, or less memory for the services",
        );
    }
}

/// Memory of all services together. Bytes.
pub fn total_memory(services: &BTreeMap<Name, AuxServiceConfig>) -> Bytes {
    let sum = services
        .values()
        .fold(0, |sum: u64, s| sum.saturating_add(s.memory.get()));
    Bytes::new(sum)
}

fn words(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let words = texts(value)?;
    if words.first().is_none_or(String::is_empty) {
        return Err("it names no program".to_owned());
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err("it contains a NUL character".to_owned());
    }
    Ok(words)
}

fn variable(name: &str, value: &DeValue<'_>) -> Result<(String, String), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{name:?} is not the name of a variable"));
    }
    let value = toml_reader::text(value)?;
    if value.contains('\0') {
        return Err("it contains a NUL character".to_owned());
    }
    Ok((name.to_owned(), value))
}

fn enough_memory(value: &DeValue<'_>) -> Result<Bytes, String> {
    let size = toml_reader::size(value)?;
    if size < MIN_MEMORY {
        Err(format!("{size} is less than {MIN_MEMORY}"))
    } else {
        Ok(size)
    }
}

fn tcp_port(value: &DeValue<'_>) -> Result<u16, String> {
    let n = integer(value, 1, i64::from(u16::MAX))?;
    u16::try_from(n).map_err(|_| format!("{n} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::nodeagent;

    #[test]
    fn every_key_of_a_service_can_be_set() {
        let text = "[aux_services.shuffle]\ncommand = ['/opt/ess', '-v']\nenv = { A = 'b' }\n\
                    memory = '512MiB'\nport = 7337\nstart_timeout = '5s'\nuser = 'spark'\nstop_grace = '1s'\n\
                    [aux_services.plain]\ncommand = ['cache']\nmemory = '8MiB'\n";
        let services = nodeagent(text, "f").expect("right").aux_services;
        let wanted = AuxServiceConfig {
            command: vec!["/opt/ess".into(), "-v".into()],
            env: [("A".into(), "b".into())].into(),
            memory: Bytes::from_mib(512),
            port: Some(7337),
            start_timeout: Duration::from_secs(5),
            user: Some("spark".into()),
            stop_grace: Duration::from_secs(1),
        };
        let named = |name: &str| services.get(&name.parse::<Name>().expect("a name"));
        assert_eq!(named("shuffle"), Some(&wanted));
        let plain = named("plain").expect("there");
        assert_eq!(
            (plain.port, plain.start_timeout, plain.stop_grace),
            (None, START_TIMEOUT, STOP_GRACE)
        );
        assert_eq!(total_memory(&services), Bytes::from_mib(520));
    }

    #[test]
    fn every_mistake_in_a_service_is_reported() {
        let text = "memory = '16MiB'\n[aux_services.a]\ncommand = []\nmemory = '1MiB'\nport = 0\nprot = 1\n\
                    [aux_services.b]\nenv = { 'A=' = 'x' }\nuser = 'no such'\nmemory = '32MiB'\n\
                    [aux_services.'two words']\ncommand = ['x']\nmemory = '8MiB'\n\
                    [aux_services.c]\ncommand = ['x']\nmemory = '8MiB'\nport = 7\n\
                    [aux_services.d]\ncommand = ['x']\nmemory = '8MiB'\nport = 7\n";
        let problems = nodeagent(text, "f").expect_err("ten mistakes");
        let mut keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        keys.sort_unstable();
        let wanted = [
            "aux_services",
            "aux_services.a.command",
            "aux_services.a.memory",
            "aux_services.a.port",
            "aux_services.a.prot",
            "aux_services.b.command",
            "aux_services.b.env.A=",
            "aux_services.b.user",
            "aux_services.d.port",
            "aux_services.two words",
        ];
        assert_eq!(keys, wanted, "{problems:#?}");
    }
}
