//! Keys of `resourcemanager.toml`, in the order of the shipped file.

use super::key::{ConfigKey, key, list, live_key, part, path, quoted, size, time};
use crate::checked::ResourceManagerConfig;

pub(super) const KEYS: &[ConfigKey<ResourceManagerConfig>] = &[
    key("listen", |c| Some(quoted(c.listen))),
    key("advertise", |c| c.advertise.as_ref().map(quoted)),
    key("socket", |c| path(&c.socket)),
    key("anonymous", |c| Some(quoted(c.anonymous.as_str()))),
    key("tls", |c| path(&c.tls)),
    key("authority", |c| path(&c.authority)),
    key("state", |c| Some(quoted(c.state.display()))),
    key("store", |c| Some(quoted(c.store))),
    live_key("log", |c| Some(quoted(c.log.as_str()))),
    key("traces", |c| c.traces.as_ref().map(quoted)),
    live_key("suspect", |c| Some(time(c.suspect))),
    live_key("unreachable", |c| Some(time(c.unreachable))),
    live_key("lost", |c| Some(time(c.lost))),
    live_key("master_silence", |c| Some(time(c.master_silence))),
    live_key("scheduling.reserve_after", |c| {
        Some(time(c.scheduling.reserve_after))
    }),
    live_key("scheduling.preempt_warning", |c| {
        Some(time(c.scheduling.preempt_warning))
    }),
    live_key("scheduling.preempt_every", |c| {
        Some(time(c.scheduling.preempt_every))
    }),
    live_key("scheduling.preempt_part", |c| {
        Some(part(c.scheduling.preempt_part))
    }),
    key("limits.calls_per_second", |c| {
        Some(c.limits.calls_per_second.to_string())
    }),
    key("limits.calls_at_once", |c| {
        Some(c.limits.calls_at_once.to_string())
    }),
    key("limits.connections_per_peer", |c| {
        Some(c.limits.connections_per_peer.to_string())
    }),
    key("limits.streams", |c| Some(c.limits.streams.to_string())),
    key("limits.loopback", |c| Some(c.limits.loopback.to_string())),
    key("telemetry.cardinality", |c| {
        Some(quoted(c.telemetry.cardinality.as_str()))
    }),
    live_key("events.segment", |c| Some(size(c.events.segment))),
    live_key("events.segments", |c| Some(c.events.segments.to_string())),
    live_key("audit.segment", |c| Some(size(c.audit.segment))),
    live_key("audit.segments", |c| Some(c.audit.segments.to_string())),
    live_key("history.apps", |c| Some(c.history.apps.to_string())),
    live_key("history.containers", |c| {
        Some(c.history.containers.to_string())
    }),
    live_key("history.age", |c| Some(time(c.history.age))),
    key("uploads.max_file", |c| Some(size(c.uploads.max_file))),
    key("uploads.max_total", |c| Some(size(c.uploads.max_total))),
    key("uploads.keep", |c| Some(time(c.uploads.keep))),
    key("etcd.endpoints", |c| {
        c.etcd.is_used().then(|| list(&c.etcd.endpoints))
    }),
    key("etcd.prefix", |c| Some(quoted(&c.etcd.prefix))),
    key("etcd.lease", |c| Some(time(c.etcd.lease))),
    key("etcd.tls", |c| path(&c.etcd.tls)),
    key("etcd.login", |c| path(&c.etcd.login)),
    key("etcd.compact", |c| {
        Some(c.etcd.compact.map_or_else(|| quoted("never"), time))
    }),
];
