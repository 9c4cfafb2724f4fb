//! Keys of `nodeagent.toml`, in the order of the shipped file.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::key::{ConfigKey, fence, key, list, live_key, part, path, quoted, size, time};
use crate::aux_services::AuxServiceConfig;
use crate::checked::NodeAgentConfig;
use crate::node_settings::RunAsUser;

pub(super) const KEYS: &[ConfigKey<NodeAgentConfig>] = &[
    key("rm", |c| Some(quoted(&c.rm))),
    key("name", |c| c.name.as_ref().map(quoted)),
    key("state", |c| Some(quoted(c.state.display()))),
    key("listen", |c| Some(quoted(c.listen))),
    key("tls", |c| path(&c.tls)),
    key("advertise", |c| c.advertise.as_ref().map(quoted)),
    key("memory", |c| c.memory.map(size)),
    key("cpus", |c| c.cpus.map(|cpus| cpus.to_string())),
    key("reserve", |c| Some(size(c.reserve))),
    key("enforcer", |c| c.enforcer.map(|e| quoted(e.as_str()))),
    key("cgroup_root", |c| path(&c.cgroup_root)),
    key("bin_dir", |c| path(&c.bin_dir)),
    key("self_fence", |c| Some(fence(c.self_fence))),
    key("rack", |c| c.rack.as_ref().map(quoted)),
    key("labels", |c| Some(list(&c.labels))),
    key("exclusive", |c| Some(c.exclusive.to_string())),
    key("attributes", |c| table(&c.attributes)),
    key("aux_services", |c| services(&c.aux_services)),
    key("isolation.run_as", |c| {
        Some(match &c.isolation.run_as {
            RunAsUser::Submitter => quoted("submitter"),
            RunAsUser::Agent => quoted("agent"),
            RunAsUser::User(name) => quoted(name),
        })
    }),
    key("isolation.users", |c| table(&c.isolation.users)),
    key("isolation.min_uid", |c| {
        Some(c.isolation.min_uid.to_string())
    }),
    key("isolation.allow_root", |c| {
        Some(c.isolation.allow_root.to_string())
    }),
    key("isolation.private_tmp", |c| {
        Some(c.isolation.private_tmp.to_string())
    }),
    key("isolation.tmp_size", |c| c.isolation.tmp_size.map(size)),
    key("isolation.ipc", |c| Some(quoted(c.isolation.ipc.as_str()))),
    key("isolation.shm_size", |c| c.isolation.shm_size.map(size)),
    key("isolation.umask", |c| {
        Some(quoted(format!("{:03o}", c.isolation.umask)))
    }),
    key("isolation.open_files", |c| {
        Some(c.isolation.open_files.to_string())
    }),
    key("isolation.cpu", |c| Some(quoted(c.isolation.cpu.as_str()))),
    live_key("logs.size", |c| Some(size(c.logs.size))),
    live_key("logs.count", |c| Some(c.logs.count.to_string())),
    live_key("logs.container", |c| Some(size(c.logs.container))),
    live_key("logs.keep", |c| Some(time(c.logs.keep))),
    live_key("health.disk_full", |c| Some(c.health.disk_full.to_string())),
    live_key("health.inodes_full", |c| {
        Some(c.health.inodes_full.to_string())
    }),
    live_key("health.max_unattributed", |c| {
        Some(part(c.health.max_unattributed))
    }),
    live_key("health.every", |c| Some(time(c.health.every))),
    live_key("health.script", |c| path(&c.health.script)),
    live_key("health.script_every", |c| Some(time(c.health.script_every))),
    live_key("health.script_timeout", |c| {
        Some(time(c.health.script_timeout))
    }),
    key("cache.size", |c| Some(size(c.cache.size))),
    key("cache.file", |c| Some(size(c.cache.file))),
    key("cache.unpacked", |c| Some(size(c.cache.unpacked))),
    key("cache.entries", |c| Some(c.cache.entries.to_string())),
    key("cache.deadline", |c| Some(time(c.cache.deadline))),
    key("cache.ca_file", |c| path(&c.cache.ca_file)),
    key("masters.journals", |c| path(&c.masters.journals)),
    key("masters.file_system", |c| {
        c.masters.file_system.as_ref().map(quoted)
    }),
    key("telemetry.cardinality", |c| {
        Some(quoted(c.telemetry.cardinality.as_str()))
    }),
];

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
