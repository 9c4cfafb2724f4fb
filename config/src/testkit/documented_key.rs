//! Keys with the form and the range of their values, in the order of the shipped files.

use super::value_range::ValueKind::{
    Address, Cores, Number, Octal, Part, Path, Percent, Size, Switch, Table, Tables, Text, Time,
    Url, Urls, Word, Words,
};
use super::value_range::ValueRange::{Any, Between, From, OneOf};
use super::value_range::{ValueKind, ValueRange};
use crate::reference::ConfigKey;

const SWITCH: ValueRange = OneOf(&["false", "true"]);
const CALLERS: ValueRange = Between("1", "1000000");
const PERCENT: ValueRange = Between("1", "100");
const ENFORCERS: ValueRange = OneOf(&["\"cgroup2\"", "\"cgroup1\"", "\"poll\""]);

/// The accepted values of a key.
#[derive(Clone, Copy, Debug)]
pub struct DocumentedKey {
    /// Full name with its table: `history.apps`.
    pub name: &'static str,
    /// Form of its value.
    pub kind: ValueKind,
    /// Accepted values.
    pub range: ValueRange,
    /// A rejected value, as written in the file.
    pub wrong: &'static str,
    /// Other lines that the key requires.
    pub beside: &'static str,
}

impl DocumentedKey {
    const fn beside(mut self, lines: &'static str) -> Self {
        self.beside = lines;
        self
    }
}

const fn key(
    name: &'static str,
    kind: ValueKind,
    range: ValueRange,
    wrong: &'static str,
) -> DocumentedKey {
    DocumentedKey {
        name,
        kind,
        range,
        wrong,
        beside: "",
    }
}

/// Each key with its documentation. Panics unless both tables list the same keys in one order.
pub fn documented<C>(
    keys: &'static [ConfigKey<C>],
    documentation: &'static [DocumentedKey],
) -> Vec<(&'static ConfigKey<C>, &'static DocumentedKey)> {
    assert!(
        keys.iter()
            .map(|key| key.name)
            .eq(documentation.iter().map(|key| key.name)),
        "each key is documented once, in the order of the file"
    );
    keys.iter().zip(documentation).collect()
}

/// Keys of `resourcemanager.toml`, without those of queues.
pub const MANAGER_DOCUMENTATION: &[DocumentedKey] = &[
    key("listen", Address, Any("\"127.0.0.1:7171\""), "7070"),
    key(
        "advertise",
        Url,
        Any("\"https://rm1.example:7070\""),
        "\"rm1\"",
    ),
    key("socket", Path, Any("\"/run/rm.sock\""), "\"rm.sock\""),
    key(
        "anonymous",
        Word,
        OneOf(&["\"all\"", "\"read\"", "\"nothing\""]),
        "\"some\"",
    ),
    key("tls", Path, Any("\"/etc/headroom/tls\""), "\"tls\""),
    key(
        "authority",
        Path,
        Any("\"/etc/headroom/authority\""),
        "true",
    ),
    key("state", Path, Any("\"/srv/headroom\""), "\"relative\""),
    key(
        "store",
        Word,
        OneOf(&["\"sled\"", "\"redb\""]),
        "\"rocksdb\"",
    ),
    key(
        "log",
        Word,
        OneOf(&[
            "\"error\"",
            "\"warn\"",
            "\"info\"",
            "\"debug\"",
            "\"trace\"",
        ]),
        "\"loud\"",
    ),
    key("traces", Url, Any("\"http://10.0.0.1:4318\""), "\"4318\""),
    key("heartbeat", Time, Any("\"2s\""), "\"50ms\""),
    key("suspect", Time, Any("\"1s\""), "\"0s\""),
    key("unreachable", Time, Any("\"5s\""), "\"5\""),
    key("lost", Time, Any("\"1m\""), "30"),
    key("master_silence", Time, Any("\"1m\""), "\"1 week\""),
    key(
        "scheduling.reserve_after",
        Time,
        Any("\"500ms\""),
        "\"-1s\"",
    ),
    key("scheduling.preempt_warning", Time, Any("\"1m\""), "true"),
    key("scheduling.preempt_every", Time, Any("\"10s\""), "\"\""),
    key(
        "scheduling.preempt_part",
        Part,
        Between("\"0%\"", "\"100%\""),
        "\"100.1%\"",
    ),
    key("limits.calls_per_second", Number, CALLERS, "0"),
    key("limits.calls_at_once", Number, CALLERS, "1000001"),
    key("limits.connections_per_peer", Number, CALLERS, "-1"),
    key("limits.streams", Number, CALLERS, "1.5"),
    key("limits.loopback", Switch, SWITCH, "1"),
    key(
        "telemetry.cardinality",
        Word,
        OneOf(&["\"profile\"", "\"job\"", "\"task\""]),
        "\"all\"",
    ),
    key("events.segment", Size, From("\"64KiB\""), "65535"),
    key("events.segments", Number, Between("2", "10000"), "1"),
    key("audit.segment", Size, From("\"64KiB\""), "65535"),
    key("audit.segments", Number, Between("2", "10000"), "10001"),
    key("history.apps", Number, Between("1", "100000"), "0"),
    key("history.containers", Number, Between("1", "1000000"), "0"),
    key("history.age", Time, Any("\"24h\""), "720"),
    key("uploads.max_file", Size, From("1"), "0"),
    key("uploads.max_total", Size, Any("\"100GiB\""), "\"all\""),
    key("uploads.keep", Time, Any("\"72h\""), "24"),
    key("journals.max_journal", Size, Any("\"4MiB\""), "\"all\""),
    key("journals.max_total", Size, Any("\"256MiB\""), "\"all\""),
    key(
        "etcd.endpoints",
        Urls,
        Any("[\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\"]"),
        "\"http://10.0.0.1:2379\"",
    ),
    key(
        "etcd.prefix",
        Text,
        Any("\"/headroom/prod\""),
        "\"headroom\"",
    ),
    key(
        "etcd.lease",
        Time,
        Between("\"500ms\"", "\"1m\""),
        "\"100ms\"",
    ),
    key("etcd.tls", Path, Any("\"/etc/headroom/etcd\""), "\"etcd\""),
    key("etcd.login", Path, Any("\"/etc/headroom/etcd-login\""), "7"),
    key("etcd.compact", Time, Any("\"never\""), "\"0s\""),
];

/// Keys of `nodeagent.toml`.
pub const AGENT_DOCUMENTATION: &[DocumentedKey] = &[
    key(
        "rm",
        Url,
        Any("\"https://10.0.0.1:7070\""),
        "\"ftp://10.0.0.1\"",
    ),
    key("name", Text, Any("\"worker-07\""), "\"two words\""),
    key("state", Path, Any("\"/srv/headroom\""), "\"relative\""),
    key("listen", Address, Any("\"127.0.0.1:7373\""), "\"here\""),
    key("tls", Path, Any("\"/etc/headroom/tls\""), "\"tls\""),
    key(
        "advertise",
        Text,
        Any("\"worker-07.example\""),
        "\"http://w7\"",
    ),
    key("memory", Size, Any("\"14GiB\""), "0"),
    key("cpus", Cores, Any("4"), "0"),
    key("reserve", Size, Any("\"1GiB\""), "\"1 cup\""),
    key("enforcer", Word, ENFORCERS, "\"trust\""),
    key("cgroup_root", Path, Any("\"/sys/fs/cgroup/x\""), "\"x\""),
    key("bin_dir", Path, Any("\"/opt/headroom\""), "\"bin\""),
    key("self_fence", Time, Any("\"never\""), "\"0s\""),
    key("rack", Text, Any("\"r12\""), "\"no spaces\""),
    key("labels", Words, Any("[\"gpu\", \"ssd\"]"), "\"ssd\""),
    key("exclusive", Switch, SWITCH, "\"yes\"").beside("labels = [\"ssd\"]\n"),
    key(
        "attributes",
        Table,
        Any("{ kernel = \"6.1\" }"),
        "{ kernel = 6.1 }",
    ),
    key(
        "aux_services",
        Tables,
        Any("{ cache = { command = [\"/opt/cache\", \"-v\"], memory = \"64MiB\", port = 7337 } }"),
        "{ cache = { command = [], memory = \"64MiB\" } }",
    ),
    key(
        "isolation.run_as",
        Text,
        OneOf(&["\"submitter\"", "\"agent\"", "\"jobs\""]),
        "\"no such\"",
    ),
    key(
        "isolation.users",
        Table,
        Any("{ ci = \"builder\" }"),
        "{ ci = 1 }",
    ),
    key(
        "isolation.min_uid",
        Number,
        Between("0", "4294967294"),
        "4294967295",
    ),
    key("isolation.allow_root", Switch, SWITCH, "0"),
    key("isolation.private_tmp", Switch, SWITCH, "\"no\""),
    key("isolation.tmp_size", Size, From("1"), "0"),
    key(
        "isolation.ipc",
        Word,
        OneOf(&["\"task\"", "\"container\"", "\"host\""]),
        "\"all\"",
    ),
    key("isolation.shm_size", Size, From("1"), "0"),
    key(
        "isolation.umask",
        Octal,
        Between("\"000\"", "\"077\""),
        "\"100\"",
    ),
    key(
        "isolation.open_files",
        Number,
        Between("64", "1073741824"),
        "63",
    ),
    key(
        "isolation.cpu",
        Word,
        OneOf(&["\"share\"", "\"limit\""]),
        "\"all\"",
    ),
    key("logs.size", Size, From("\"64KiB\""), "65535"),
    key("logs.count", Number, Between("2", "10000"), "1"),
    key("logs.container", Size, From("\"64KiB\""), "65535"),
    key("logs.keep", Time, Any("\"1h\""), "3"),
    key("health.disk_full", Percent, PERCENT, "101"),
    key("health.inodes_full", Percent, PERCENT, "0"),
    key(
        "health.max_unattributed",
        Part,
        Between("\"0.1%\"", "\"100%\""),
        "\"0%\"",
    ),
    key("health.every", Time, Any("\"1m\""), "10"),
    key(
        "health.script",
        Path,
        Any("\"/etc/headroom/health\""),
        "\"health\"",
    ),
    key("health.script_every", Time, Any("\"2m\""), "\"often\""),
    key("health.script_timeout", Time, Any("\"5s\""), "false"),
    key("cache.size", Size, Any("\"1GiB\""), "\"10 gallons\""),
    key("cache.file", Size, From("1"), "0"),
    key("cache.unpacked", Size, From("1"), "0"),
    key("cache.entries", Number, Between("1", "10000000"), "0"),
    key("cache.deadline", Time, Any("\"5s\""), "600"),
    key(
        "cache.ca_file",
        Path,
        Any("\"/etc/headroom/authorities.pem\""),
        "\"x.pem\"",
    ),
    key(
        "masters.journals",
        Text,
        Any("\"/shared/headroom/journals\""),
        "\"journals\"",
    ),
    key("masters.file_system", Text, Any("\"nfs4\""), "\"a b\""),
    key(
        "masters.object_store",
        Path,
        Any("\"/etc/headroom/object-store.env\""),
        "\"store.env\"",
    ),
    key(
        "telemetry.cardinality",
        Word,
        OneOf(&["\"profile\"", "\"job\"", "\"task\""]),
        "\"all\"",
    ),
];
