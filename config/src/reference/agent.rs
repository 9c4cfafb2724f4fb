//! Keys of `nodeagent.toml`, in the order of the shipped file.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::key::ValueRange::{Any, Between, From, OneOf};
use super::key::{self, ConfigKey, ValueKind, ValueRange, fence, part, quoted, size, time};
use crate::aux_services::AuxServiceConfig;
use crate::checked::NodeAgentConfig as Config;
use crate::node_settings::{IdleCpuBound, RunAsUser};

const SWITCH: ValueRange = OneOf(&["false", "true"]);
const PERCENT: ValueRange = Between("1", "100");
const ENFORCERS: ValueRange = OneOf(&["\"cgroup2\"", "\"cgroup1\"", "\"poll\""]);

/// Fixes the configuration type of the generic constructor.
const fn key(
    name: &'static str,
    kind: ValueKind,
    range: ValueRange,
    wrong: &'static str,
    value: fn(&Config) -> Option<String>,
) -> ConfigKey<Config> {
    key::key(name, kind, range, wrong, value)
}

pub(super) const KEYS: &[ConfigKey<Config>] = &[
    key(
        "rm",
        ValueKind::Url,
        Any("\"https://10.0.0.1:7070\""),
        "\"ftp://10.0.0.1\"",
        |c| Some(quoted(&c.rm)),
    ),
    key(
        "name",
        ValueKind::Text,
        Any("\"worker-07\""),
        "\"two words\"",
        |c| c.name.as_ref().map(quoted),
    ),
    key(
        "state",
        ValueKind::Path,
        Any("\"/srv/headroom\""),
        "\"relative\"",
        |c| Some(quoted(c.state.display())),
    ),
    key(
        "listen",
        ValueKind::Address,
        Any("\"127.0.0.1:7373\""),
        "\"here\"",
        |c| Some(quoted(c.listen)),
    ),
    key(
        "tls",
        ValueKind::Path,
        Any("\"/etc/headroom/tls\""),
        "\"tls\"",
        |c| c.tls.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "advertise",
        ValueKind::Text,
        Any("\"worker-07.example\""),
        "\"http://w7\"",
        |c| c.advertise.as_ref().map(quoted),
    ),
    key("memory", ValueKind::Size, Any("\"14GiB\""), "0", |c| {
        c.memory.map(size)
    }),
    key("cpus", ValueKind::Cores, Any("4"), "0", |c| {
        c.cpus.map(|cpus| cpus.to_string())
    }),
    key(
        "reserve",
        ValueKind::Size,
        Any("\"1GiB\""),
        "\"1 cup\"",
        |c| Some(size(c.reserve)),
    ),
    key("enforcer", ValueKind::Word, ENFORCERS, "\"trust\"", |c| {
        c.enforcer.map(|e| quoted(e.as_str()))
    }),
    key(
        "cgroup_root",
        ValueKind::Path,
        Any("\"/sys/fs/cgroup/x\""),
        "\"x\"",
        |c| c.cgroup_root.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "bin_dir",
        ValueKind::Path,
        Any("\"/opt/headroom\""),
        "\"bin\"",
        |c| c.bin_dir.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "self_fence",
        ValueKind::Time,
        Any("\"never\""),
        "\"0s\"",
        |c| Some(fence(c.self_fence)),
    ),
    key(
        "rack",
        ValueKind::Text,
        Any("\"r12\""),
        "\"no spaces\"",
        |c| c.rack.as_ref().map(quoted),
    ),
    key(
        "labels",
        ValueKind::Words,
        Any("[\"gpu\", \"ssd\"]"),
        "\"ssd\"",
        |c| Some(list(&c.labels)),
    ),
    key("exclusive", ValueKind::Switch, SWITCH, "\"yes\"", |c| {
        Some(c.exclusive.to_string())
    })
    .beside("labels = [\"ssd\"]\n"),
    key(
        "attributes",
        ValueKind::Table,
        Any("{ kernel = \"6.1\" }"),
        "{ kernel = 6.1 }",
        |c| table(&c.attributes),
    ),
    key(
        "aux_services",
        ValueKind::Tables,
        Any("{ cache = { command = [\"/opt/cache\", \"-v\"], memory = \"64MiB\", port = 7337 } }"),
        "{ cache = { command = [], memory = \"64MiB\" } }",
        |c| services(&c.aux_services),
    ),
    key(
        "isolation.run_as",
        ValueKind::Text,
        OneOf(&["\"submitter\"", "\"agent\"", "\"jobs\""]),
        "\"no such\"",
        |c| {
            Some(match &c.isolation.run_as {
                RunAsUser::Submitter => quoted("submitter"),
                RunAsUser::Agent => quoted("agent"),
                RunAsUser::User(name) => quoted(name),
            })
        },
    ),
    key(
        "isolation.users",
        ValueKind::Table,
        Any("{ ci = \"builder\" }"),
        "{ ci = 1 }",
        |c| table(&c.isolation.users),
    ),
    key(
        "isolation.min_uid",
        ValueKind::Number,
        Between("0", "4294967294"),
        "4294967295",
        |c| Some(c.isolation.min_uid.to_string()),
    ),
    key(
        "isolation.allow_root",
        ValueKind::Switch,
        SWITCH,
        "0",
        |c| Some(c.isolation.allow_root.to_string()),
    ),
    key(
        "isolation.private_tmp",
        ValueKind::Switch,
        SWITCH,
        "\"no\"",
        |c| Some(c.isolation.private_tmp.to_string()),
    ),
    key("isolation.tmp_size", ValueKind::Size, From("1"), "0", |c| {
        c.isolation.tmp_size.map(size)
    }),
    key(
        "isolation.ipc",
        ValueKind::Word,
        OneOf(&["\"task\"", "\"container\"", "\"host\""]),
        "\"all\"",
        |c| Some(quoted(c.isolation.ipc.as_str())),
    ),
    key("isolation.shm_size", ValueKind::Size, From("1"), "0", |c| {
        c.isolation.shm_size.map(size)
    }),
    key(
        "isolation.umask",
        ValueKind::Octal,
        Between("\"000\"", "\"077\""),
        "\"100\"",
        |c| Some(quoted(format!("{:03o}", c.isolation.umask))),
    ),
    key(
        "isolation.open_files",
        ValueKind::Number,
        Between("64", "1073741824"),
        "63",
        |c| Some(c.isolation.open_files.to_string()),
    ),
    key(
        "isolation.cpu",
        ValueKind::Word,
        OneOf(&["\"share\"", "\"limit\""]),
        "\"all\"",
        |c| {
            Some(match c.isolation.cpu {
                IdleCpuBound::Share => quoted("share"),
                IdleCpuBound::Limit => quoted("limit"),
            })
        },
    ),
    key(
        "logs.size",
        ValueKind::Size,
        From("\"64KiB\""),
        "65535",
        |c| Some(size(c.logs.size)),
    )
    .live(),
    key(
        "logs.count",
        ValueKind::Number,
        Between("2", "10000"),
        "1",
        |c| Some(c.logs.count.to_string()),
    )
    .live(),
    key(
        "logs.container",
        ValueKind::Size,
        From("\"64KiB\""),
        "65535",
        |c| Some(size(c.logs.container)),
    )
    .live(),
    key("logs.keep", ValueKind::Time, Any("\"1h\""), "3", |c| {
        Some(time(c.logs.keep))
    })
    .live(),
    key(
        "health.disk_full",
        ValueKind::Percent,
        PERCENT,
        "101",
        |c| Some(c.health.disk_full.to_string()),
    )
    .live(),
    key(
        "health.inodes_full",
        ValueKind::Percent,
        PERCENT,
        "0",
        |c| Some(c.health.inodes_full.to_string()),
    )
    .live(),
    key(
        "health.max_unattributed",
        ValueKind::Part,
        Between("\"0.1%\"", "\"100%\""),
        "\"0%\"",
        |c| Some(part(c.health.max_unattributed)),
    )
    .live(),
    key("health.every", ValueKind::Time, Any("\"1m\""), "10", |c| {
        Some(time(c.health.every))
    })
    .live(),
    key(
        "health.script",
        ValueKind::Path,
        Any("\"/etc/headroom/health\""),
        "\"health\"",
        |c| c.health.script.as_ref().map(|p| quoted(p.display())),
    )
    .live(),
    key(
        "health.script_every",
        ValueKind::Time,
        Any("\"2m\""),
        "\"often\"",
        |c| Some(time(c.health.script_every)),
    )
    .live(),
    key(
        "health.script_timeout",
        ValueKind::Time,
        Any("\"5s\""),
        "false",
        |c| Some(time(c.health.script_timeout)),
    )
    .live(),
    key(
        "cache.size",
        ValueKind::Size,
        Any("\"1GiB\""),
        "\"10 gallons\"",
        |c| Some(size(c.cache.size)),
    ),
    key("cache.file", ValueKind::Size, From("1"), "0", |c| {
        Some(size(c.cache.file))
    }),
    key("cache.unpacked", ValueKind::Size, From("1"), "0", |c| {
        Some(size(c.cache.unpacked))
    }),
    key(
        "cache.entries",
        ValueKind::Number,
        Between("1", "10000000"),
        "0",
        |c| Some(c.cache.entries.to_string()),
    ),
    key(
        "cache.deadline",
        ValueKind::Time,
        Any("\"5s\""),
        "600",
        |c| Some(time(c.cache.deadline)),
    ),
    key(
        "cache.ca_file",
        ValueKind::Path,
        Any("\"/etc/headroom/authorities.pem\""),
        "\"x.pem\"",
        |c| c.cache.ca_file.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "telemetry.cardinality",
        ValueKind::Word,
        OneOf(&["\"profile\"", "\"job\"", "\"task\""]),
        "\"all\"",
        |c| Some(quoted(c.telemetry.cardinality.as_str())),
    ),
];

fn list<T: Display>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    format!("[{}]", words.join(", "))
}

fn table<K: Display + Ord>(named: &BTreeMap<K, String>) -> Option<String> {
    let pairs: Vec<String> = named
        .iter()
        .map(|(name, value)| format!("{name} = {}", quoted(value)))
        .collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
}

/// The services as one inline table. Keys with their default are left out.
fn services<K: Display + Ord>(named: &BTreeMap<K, AuxServiceConfig>) -> Option<String> {
    let one = |service: &AuxServiceConfig| {
        let mut keys = vec![format!("command = {}", list(&service.command))];
        keys.extend(table(&service.env).map(|env| format!("env = {env}")));
        keys.push(format!("memory = {}", size(service.memory)));
        keys.extend(service.port.map(|port| format!("port = {port}")));
        if service.start_timeout != AuxServiceConfig::usual_start_timeout() {
            keys.push(format!("start_timeout = {}", time(service.start_timeout)));
        }
        keys.extend(
            service
                .user
                .as_ref()
                .map(|user| format!("user = {}", quoted(user))),
        );
        if service.stop_grace != AuxServiceConfig::usual_stop_grace() {
            keys.push(format!("stop_grace = {}", time(service.stop_grace)));
        }
        keys.join(", ")
    };
    let tables: Vec<String> = named
        .iter()
        .map(|(name, service)| format!("{name} = {{ {} }}", one(service)))
        .collect();
    (!tables.is_empty()).then(|| format!("{{ {} }}", tables.join(", ")))
}
