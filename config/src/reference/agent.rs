//! Keys of `nodeagent.toml`, in the order of the shipped file.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::Range::{Any, Between, From, OneOf};
use super::{Key, Kind, Range, fence, part, quoted, size, time};
use crate::checked::NodeAgentConfig as Config;
use crate::node::{CpuBound, RunAs};

const SWITCH: Range = OneOf(&["false", "true"]);
const PERCENT: Range = Between("1", "100");
const ENFORCERS: Range = OneOf(&["\"cgroup2\"", "\"cgroup1\"", "\"poll\""]);

/// Fixes the configuration type of the generic constructor.
const fn key(
    name: &'static str,
    kind: Kind,
    range: Range,
    wrong: &'static str,
    value: fn(&Config) -> Option<String>,
) -> Key<Config> {
    super::key(name, kind, range, wrong, value)
}

pub(super) const KEYS: &[Key<Config>] = &[
    key("rm", Kind::Url, Any("\"https://10.0.0.1:7070\""), "\"ftp://10.0.0.1\"", |c| Some(quoted(&c.rm))),
    key("name", Kind::Text, Any("\"worker-07\""), "\"two words\"", |c| c.name.as_ref().map(quoted)),
    key("state", Kind::Path, Any("\"/srv/headroom\""), "\"relative\"", |c| Some(quoted(c.state.display()))),
    key("listen", Kind::Address, Any("\"127.0.0.1:7373\""), "\"here\"", |c| Some(quoted(c.listen))),
    key("tls", Kind::Path, Any("\"/etc/headroom/tls\""), "\"tls\"", |c| c.tls.as_ref().map(|p| quoted(p.display()))),
    key("advertise", Kind::Text, Any("\"worker-07.example\""), "\"http://w7\"", |c| c.advertise.as_ref().map(quoted)),
    key("memory", Kind::Size, Any("\"14GiB\""), "0", |c| c.memory.map(size)),
    key("cpus", Kind::Cores, Any("4"), "0", |c| c.cpus.map(|cpus| cpus.to_string())),
    key("reserve", Kind::Size, Any("\"1GiB\""), "\"1 cup\"", |c| Some(size(c.reserve))),
    key("enforcer", Kind::Word, ENFORCERS, "\"trust\"", |c| c.enforcer.map(|e| quoted(e.as_str()))),
    key("cgroup_root", Kind::Path, Any("\"/sys/fs/cgroup/x\""), "\"x\"", |c| c.cgroup_root.as_ref().map(|p| quoted(p.display()))),
    key("bin_dir", Kind::Path, Any("\"/opt/headroom\""), "\"bin\"", |c| c.bin_dir.as_ref().map(|p| quoted(p.display()))),
    key("self_fence", Kind::Time, Any("\"never\""), "\"0s\"", |c| Some(fence(c.self_fence))),
    key("rack", Kind::Text, Any("\"r12\""), "\"no spaces\"", |c| c.rack.as_ref().map(quoted)),
    key("labels", Kind::Words, Any("[\"gpu\", \"ssd\"]"), "\"ssd\"", |c| Some(list(&c.labels))),
    key("exclusive", Kind::Switch, SWITCH, "\"yes\"", |c| Some(c.exclusive.to_string())).beside("labels = [\"ssd\"]\n"),
    key("attributes", Kind::Table, Any("{ kernel = \"6.1\" }"), "{ kernel = 6.1 }", |c| table(&c.attributes)),
    key("isolation.run_as", Kind::Text, OneOf(&["\"submitter\"", "\"agent\"", "\"jobs\""]), "\"no such\"", |c| {
        Some(match &c.isolation.run_as {
            RunAs::Submitter => quoted("submitter"),
            RunAs::Agent => quoted("agent"),
            RunAs::User(name) => quoted(name),
        })
    }),
    key("isolation.users", Kind::Table, Any("{ ci = \"builder\" }"), "{ ci = 1 }", |c| table(&c.isolation.users)),
    key("isolation.min_uid", Kind::Number, Between("0", "4294967294"), "4294967295", |c| Some(c.isolation.min_uid.to_string())),
    key("isolation.allow_root", Kind::Switch, SWITCH, "0", |c| Some(c.isolation.allow_root.to_string())),
    key("isolation.private_tmp", Kind::Switch, SWITCH, "\"no\"", |c| Some(c.isolation.private_tmp.to_string())),
    key("isolation.tmp_size", Kind::Size, From("1"), "0", |c| c.isolation.tmp_size.map(size)),
    key("isolation.ipc", Kind::Word, OneOf(&["\"task\"", "\"container\"", "\"host\""]), "\"all\"", |c| {
        Some(quoted(c.isolation.ipc.as_str()))
    }),
    key("isolation.shm_size", Kind::Size, From("1"), "0", |c| c.isolation.shm_size.map(size)),
    key("isolation.umask", Kind::Octal, Between("\"000\"", "\"077\""), "\"100\"", |c| {
        Some(quoted(format!("{:03o}", c.isolation.umask)))
    }),
    key("isolation.open_files", Kind::Number, Between("64", "1073741824"), "63", |c| Some(c.isolation.open_files.to_string())),
    key("isolation.cpu", Kind::Word, OneOf(&["\"share\"", "\"limit\""]), "\"all\"", |c| {
        Some(match c.isolation.cpu {
            CpuBound::Share => quoted("share"),
            CpuBound::Limit => quoted("limit"),
        })
    }),
    key("logs.size", Kind::Size, From("\"64KiB\""), "65535", |c| Some(size(c.logs.size))).live(),
    key("logs.count", Kind::Number, Between("2", "10000"), "1", |c| Some(c.logs.count.to_string())).live(),
    key("logs.container", Kind::Size, From("\"64KiB\""), "65535", |c| Some(size(c.logs.container))).live(),
    key("logs.keep", Kind::Time, Any("\"1h\""), "3", |c| Some(time(c.logs.keep))).live(),
    key("health.disk_full", Kind::Percent, PERCENT, "101", |c| Some(c.health.disk_full.to_string())).live(),
    key("health.inodes_full", Kind::Percent, PERCENT, "0", |c| Some(c.health.inodes_full.to_string())).live(),
    key("health.max_unattributed", Kind::Part, Between("\"0.1%\"", "\"100%\""), "\"0%\"", |c| {
        Some(part(c.health.max_unattributed))
    })
    .live(),
    key("health.every", Kind::Time, Any("\"1m\""), "10", |c| Some(time(c.health.every))).live(),
    key("health.script", Kind::Path, Any("\"/etc/headroom/health\""), "\"health\"", |c| {
        c.health.script.as_ref().map(|p| quoted(p.display()))
    })
    .live(),
    key("health.script_every", Kind::Time, Any("\"2m\""), "\"often\"", |c| Some(time(c.health.script_every))).live(),
    key("health.script_timeout", Kind::Time, Any("\"5s\""), "false", |c| Some(time(c.health.script_timeout))).live(),
    key("cache.size", Kind::Size, Any("\"1GiB\""), "\"10 gallons\"", |c| Some(size(c.cache.size))),
    key("cache.file", Kind::Size, From("1"), "0", |c| Some(size(c.cache.file))),
    key("cache.unpacked", Kind::Size, From("1"), "0", |c| Some(size(c.cache.unpacked))),
    key("cache.entries", Kind::Number, Between("1", "10000000"), "0", |c| Some(c.cache.entries.to_string())),
    key("cache.deadline", Kind::Time, Any("\"5s\""), "600", |c| Some(time(c.cache.deadline))),
    key("cache.ca_file", Kind::Path, Any("\"/etc/headroom/authorities.pem\""), "\"x.pem\"", |c| {
        c.cache.ca_file.as_ref().map(|p| quoted(p.display()))
    }),
    key("telemetry.cardinality", Kind::Word, OneOf(&["\"profile\"", "\"job\"", "\"task\""]), "\"all\"", |c| {
        Some(quoted(c.telemetry.cardinality.as_str()))
    }),
];

fn list<T: Display>(words: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    format!("[{}]", words.join(", "))
}

fn table<K: Display + Ord>(named: &BTreeMap<K, String>) -> Option<String> {
    let pairs: Vec<String> = named.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
}
