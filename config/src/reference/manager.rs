//! Keys of `resourcemanager.toml`, in the order of the shipped file.

use std::time::Duration;

use super::key::{
    ConfigKey, config_keys, if_set, list, part, path, plain, quoted, size, some, time,
};
use crate::checked::ResourceManagerConfig;

pub(super) const KEYS: &[ConfigKey<ResourceManagerConfig>] = config_keys! {
    ResourceManagerConfig;
    Restart listen: some(quoted);
    Restart advertise: if_set(quoted);
    Restart socket: if_set(path);
    Restart anonymous: some(quoted);
    Restart tls: if_set(path);
    Restart authority: if_set(path);
    Restart state: some(path);
    Restart store: some(quoted);
    Reload log: some(quoted);
    Restart traces: if_set(quoted);
    Reload heartbeat: some(time);
    Reload suspect: some(time);
    Reload unreachable: some(time);
    Reload lost: some(time);
    Reload master_silence: some(time);
    Reload scheduling.reserve_after: some(time);
    Reload scheduling.preempt_warning: some(time);
    Reload scheduling.preempt_every: some(time);
    Reload scheduling.preempt_part: some(part);
    Restart limits.calls_per_second: some(plain);
    Restart limits.calls_at_once: some(plain);
    Restart limits.connections_per_peer: some(plain);
    Restart limits.streams: some(plain);
    Restart limits.loopback: some(plain);
    Restart telemetry.cardinality: some(quoted);
    Reload events.segment: some(size);
    Reload events.segments: some(plain);
    Reload audit.segment: some(size);
    Reload audit.segments: some(plain);
    Reload history.apps: some(plain);
    Reload history.containers: some(plain);
    Reload history.age: some(time);
    Restart uploads.max_file: some(size);
    Restart uploads.max_total: some(size);
    Restart uploads.keep: some(time);
    Restart journals.max_journal: some(size);
    Restart journals.max_total: some(size);
    Restart etcd.endpoints: endpoints;
    Restart etcd.prefix: some(quoted);
    Restart etcd.lease: some(time);
    Restart etcd.tls: if_set(path);
    Restart etcd.login: if_set(path);
    Restart etcd.compact: compact;
};

/// The endpoints; absent if etcd is not used.
fn endpoints(endpoints: &[String]) -> Option<String> {
    (!endpoints.is_empty()).then(|| list(endpoints))
}

/// The interval of compactions.
fn compact(interval: &Option<Duration>) -> Option<String> {
    Some(interval.as_ref().map_or_else(|| quoted("never"), time))
}
