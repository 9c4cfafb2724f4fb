//! Keys of `nodeagent.toml`, in the order of the shipped file.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::key::{
    ConfigKey, config_keys, fence, if_set, list, part, path, plain, quoted, size, some, time,
};
use crate::aux_services::{AuxServiceConfig, START_TIMEOUT, STOP_GRACE};
use crate::checked::NodeAgentConfig;
use crate::node_settings::RunAsUser;

pub(super) const KEYS: &[ConfigKey<NodeAgentConfig>] = config_keys! {
    NodeAgentConfig;
    Restart rm: some(quoted);
    Restart name: if_set(quoted);
    Restart state: some(path);
    Restart listen: some(quoted);
    Restart tls: if_set(path);
    Restart advertise: if_set(quoted);
    Restart memory: if_set(size);
    Restart cpus: if_set(plain);
    Restart reserve: some(size);
    Restart enforcer: if_set(quoted);
    Restart cgroup_root: if_set(path);
    Restart bin_dir: if_set(path);
    Restart self_fence: some(fence);
    Restart rack: if_set(quoted);
    Restart labels: (|words| Some(list(words)));
    Restart exclusive: some(plain);
    Restart attributes: table;
    Restart aux_services: services;
    Restart isolation.run_as: some(run_as);
    Restart isolation.users: table;
    Restart isolation.min_uid: some(plain);
    Restart isolation.allow_root: some(plain);
    Restart isolation.private_tmp: some(plain);
    Restart isolation.tmp_size: if_set(size);
    Restart isolation.ipc: some(quoted);
    Restart isolation.shm_size: if_set(size);
    Restart isolation.umask: some(octal);
    Restart isolation.open_files: some(plain);
    Restart isolation.cpu: some(quoted);
    Reload logs.size: some(size);
    Reload logs.count: some(plain);
    Reload logs.container: some(size);
    Reload logs.keep: some(time);
    Reload health.disk_full: some(plain);
    Reload health.inodes_full: some(plain);
    Reload health.max_unattributed: some(part);
    Reload health.every: some(time);
    Reload health.script: if_set(path);
    Reload health.script_every: some(time);
    Reload health.script_timeout: some(time);
    Restart cache.size: some(size);
    Restart cache.file: some(size);
    Restart cache.unpacked: some(size);
    Restart cache.entries: some(plain);
    Restart cache.deadline: some(time);
    Restart cache.ca_file: if_set(path);
    Restart masters.journals: if_set(quoted);
    Restart masters.file_system: if_set(quoted);
    Restart masters.object_store: if_set(path);
    Restart telemetry.cardinality: some(quoted);
};

fn run_as(user: &RunAsUser) -> String {
    match user {
        RunAsUser::Submitter => quoted("submitter"),
        RunAsUser::Agent => quoted("agent"),
        RunAsUser::User(name) => quoted(name),
    }
}

fn octal(mode: &u32) -> String {
    quoted(&format!("{mode:03o}"))
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
        keys.push(format!("memory = {}", size(&service.memory)));
        keys.extend(service.port.map(|port| format!("port = {port}")));
        if service.start_timeout != START_TIMEOUT {
            keys.push(format!("start_timeout = {}", time(&service.start_timeout)));
        }
        keys.extend(
            service
                .user
                .as_ref()
                .map(|user| format!("user = {}", quoted(user))),
        );
        if service.stop_grace != STOP_GRACE {
            keys.push(format!("stop_grace = {}", time(&service.stop_grace)));
        }
        keys.join(", ")
    };
    let tables: Vec<String> = named
        .iter()
        .map(|(name, service)| format!("{name} = {{ {} }}", one(service)))
        .collect();
    (!tables.is_empty()).then(|| format!("{{ {} }}", tables.join(", ")))
}
