//! Keys of `resourcemanager.toml`, in the order of the shipped file.

use super::key::ValueRange::{Any, Between, From, OneOf};
use super::key::{self, ConfigKey, ValueKind, ValueRange, part, quoted, size, time};
use crate::checked::ResourceManagerConfig as Config;

const SWITCH: ValueRange = OneOf(&["false", "true"]);
const CALLERS: ValueRange = Between("1", "1000000");

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
        "listen",
        ValueKind::Address,
        Any("\"127.0.0.1:7171\""),
        "7070",
        |c| Some(quoted(c.listen)),
    ),
    key(
        "socket",
        ValueKind::Path,
        Any("\"/run/rm.sock\""),
        "\"rm.sock\"",
        |c| c.socket.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "anonymous",
        ValueKind::Word,
        OneOf(&["\"all\"", "\"read\"", "\"nothing\""]),
        "\"some\"",
        |c| Some(quoted(c.anonymous.as_str())),
    ),
    key(
        "tls",
        ValueKind::Path,
        Any("\"/etc/headroom/tls\""),
        "\"tls\"",
        |c| c.tls.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "authority",
        ValueKind::Path,
        Any("\"/etc/headroom/authority\""),
        "true",
        |c| c.authority.as_ref().map(|p| quoted(p.display())),
    ),
    key(
        "state",
        ValueKind::Path,
        Any("\"/srv/headroom\""),
        "\"relative\"",
        |c| Some(quoted(c.state.display())),
    ),
    key(
        "store",
        ValueKind::Word,
        OneOf(&["\"sled\"", "\"redb\""]),
        "\"rocksdb\"",
        |c| Some(quoted(c.store)),
    ),
    key(
        "log",
        ValueKind::Word,
        OneOf(&[
            "\"error\"",
            "\"warn\"",
            "\"info\"",
            "\"debug\"",
            "\"trace\"",
        ]),
        "\"loud\"",
        |c| Some(quoted(c.log.as_str())),
    )
    .live(),
    key(
        "traces",
        ValueKind::Url,
        Any("\"http://10.0.0.1:4318\""),
        "\"4318\"",
        |c| c.traces.as_ref().map(quoted),
    ),
    key("suspect", ValueKind::Time, Any("\"1s\""), "\"0s\"", |c| {
        Some(time(c.suspect))
    })
    .live(),
    key(
        "unreachable",
        ValueKind::Time,
        Any("\"5s\""),
        "\"5\"",
        |c| Some(time(c.unreachable)),
    )
    .live(),
    key("lost", ValueKind::Time, Any("\"1m\""), "30", |c| {
        Some(time(c.lost))
    })
    .live(),
    key(
        "master_silence",
        ValueKind::Time,
        Any("\"1m\""),
        "\"1 week\"",
        |c| Some(time(c.master_silence)),
    )
    .live(),
    key(
        "scheduling.reserve_after",
        ValueKind::Time,
        Any("\"500ms\""),
        "\"-1s\"",
        |c| Some(time(c.scheduling.reserve_after)),
    )
    .live(),
    key(
        "scheduling.preempt_warning",
        ValueKind::Time,
        Any("\"1m\""),
        "true",
        |c| Some(time(c.scheduling.preempt_warning)),
    )
    .live(),
    key(
        "scheduling.preempt_every",
        ValueKind::Time,
        Any("\"10s\""),
        "\"\"",
        |c| Some(time(c.scheduling.preempt_every)),
    )
    .live(),
    key(
        "scheduling.preempt_part",
        ValueKind::Part,
        Between("\"0%\"", "\"100%\""),
        "\"100.1%\"",
        |c| Some(part(c.scheduling.preempt_part)),
    )
    .live(),
    key(
        "limits.calls_per_second",
        ValueKind::Number,
        CALLERS,
        "0",
        |c| Some(c.limits.calls_per_second.to_string()),
    ),
    key(
        "limits.calls_at_once",
        ValueKind::Number,
        CALLERS,
        "1000001",
        |c| Some(c.limits.calls_at_once.to_string()),
    ),
    key(
        "limits.connections_per_peer",
        ValueKind::Number,
        CALLERS,
        "-1",
        |c| Some(c.limits.connections_per_peer.to_string()),
    ),
    key("limits.streams", ValueKind::Number, CALLERS, "1.5", |c| {
        Some(c.limits.streams.to_string())
    }),
    key("limits.loopback", ValueKind::Switch, SWITCH, "1", |c| {
        Some(c.limits.loopback.to_string())
    }),
    key(
        "telemetry.cardinality",
        ValueKind::Word,
        OneOf(&["\"profile\"", "\"job\"", "\"task\""]),
        "\"all\"",
        |c| Some(quoted(c.telemetry.cardinality.as_str())),
    ),
    key(
        "events.segment",
        ValueKind::Size,
        From("\"64KiB\""),
        "65535",
        |c| Some(size(c.events.segment)),
    )
    .live(),
    key(
        "events.segments",
        ValueKind::Number,
        Between("2", "10000"),
        "1",
        |c| Some(c.events.segments.to_string()),
    )
    .live(),
    key(
        "audit.segment",
        ValueKind::Size,
        From("\"64KiB\""),
        "65535",
        |c| Some(size(c.audit.segment)),
    )
    .live(),
    key(
        "audit.segments",
        ValueKind::Number,
        Between("2", "10000"),
        "10001",
        |c| Some(c.audit.segments.to_string()),
    )
    .live(),
    key(
        "history.apps",
        ValueKind::Number,
        Between("1", "100000"),
        "0",
        |c| Some(c.history.apps.to_string()),
    )
    .live(),
    key(
        "history.containers",
        ValueKind::Number,
        Between("1", "1000000"),
        "0",
        |c| Some(c.history.containers.to_string()),
    )
    .live(),
    key("history.age", ValueKind::Time, Any("\"24h\""), "720", |c| {
        Some(time(c.history.age))
    })
    .live(),
];
