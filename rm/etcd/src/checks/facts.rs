//! The answers of an etcd that the checks judge.

use std::time::Duration;

use crate::error::EtcdError;
use crate::message::AlarmKind;

/// The answers that the checks judge.
#[derive(Debug)]
pub(super) struct EtcdFacts {
    pub(super) members: Vec<MemberFacts>,
    /// Durations of commits, or the reason why there was none.
    pub(super) commits: Result<Vec<Duration>, EtcdError>,
    /// The shortest lease that etcd grants.
    pub(super) shortest_lease: Option<Duration>,
    pub(super) alarms: Result<Vec<AlarmKind>, EtcdError>,
    /// Whether the login, if any, may read and write the prefix.
    pub(super) access: Result<(), EtcdError>,
}

/// One endpoint of the configuration.
#[derive(Debug)]
pub(super) struct MemberFacts {
    pub(super) endpoint: String,
    pub(super) status: Result<MemberStatus, EtcdError>,
}

/// The answer of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberStatus {
    pub(super) version: String,
    /// Whether it leads etcd.
    pub(super) leads: bool,
    /// Whether it knows a leader of etcd.
    pub(super) has_leader: bool,
    /// Time until the answer.
    pub(super) latency: Duration,
    /// Size of the database. Bytes.
    pub(super) size: u64,
    /// The part of it that holds data. Bytes.
    pub(super) in_use: u64,
    /// Size at which it refuses writes. Bytes.
    pub(super) quota: Option<u64>,
    /// Difference between its clock and the one of this host, to a second.
    pub(super) skew: Option<Duration>,
}
