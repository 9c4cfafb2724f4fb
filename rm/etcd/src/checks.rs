//! Checks of an etcd for an operator, each with its fix. They change no key; a lease is granted and
//! ended to measure a commit.

mod check;
mod facts;
mod judge;

use std::time::{Duration, Instant, SystemTime};

use headroom_config::etcd::EtcdConfig;

pub use self::check::{CheckState, EtcdCheck};
use self::facts::{EtcdFacts, MemberFacts, MemberStatus};
use crate::client::EtcdClient;
use crate::error::EtcdError;
use crate::keys::EtcdKeys;
use crate::message::{Compare, RequestOp, TxnRequest};

/// Commits that are measured.
const COMMITS: usize = 5;
/// Longest lease that etcd is asked for; it answers with its minimum.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Checks the etcd of these settings with a client of it.
///
/// A failed call is the result of a check.
pub async fn examine(client: &EtcdClient, settings: &EtcdConfig) -> Vec<EtcdCheck> {
    let keys = EtcdKeys::new(&settings.prefix);
    let mut members = Vec::new();
    for (n, endpoint) in settings.endpoints.iter().enumerate() {
        members.push(MemberFacts {
            endpoint: endpoint.clone(),
            status: member(client, n).await,
        });
    }
    let shortest_lease = shortest_lease(client).await;
    let facts = EtcdFacts {
        members,
        commits: commits(client, settings.lease).await,
        shortest_lease,
        alarms: client.alarms().await,
        access: access(client, &keys).await,
    };
    judge::all(&facts, settings)
}

async fn member(client: &EtcdClient, n: usize) -> Result<MemberStatus, EtcdError> {
    let began = Instant::now();
    let (status, date) = client.member_status(n).await?;
    let latency = began.elapsed();
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let here = SystemTime::now();
    let skew = date.map(|there| {
        here.duration_since(there)
            .unwrap_or_else(|behind| behind.duration())
    });
    Ok(MemberStatus {
        leads: status.leader.0 != 0 && status.leader == status.header.member_id,
        has_leader: status.leader.0 != 0,
        latency,
        size: number(status.db_size.0),
        in_use: number(status.db_size_in_use.0),
        quota: client.member_quota(n).await,
        skew,
        version: status.version,
    })
}

/// Grants and ends a lease several times. Each grant is a commit of a majority.
async fn commits(client: &EtcdClient, lease: Duration) -> Result<Vec<Duration>, EtcdError> {
    let mut all = Vec::new();
    for _ in 0..COMMITS {
        let began = Instant::now();
        let granted = client.grant_lease(lease).await?;
        all.push(began.elapsed());
        client.revoke_lease(granted.id.0).await?;
    }
    Ok(all)
}

/// Reads a key, and sends a write whose condition is never true. etcd checks its permission too.
async fn access(client: &EtcdClient, keys: &EtcdKeys) -> Result<(), EtcdError> {
    client.value(keys.leader()).await?;
    let write = TxnRequest {
        compare: vec![Compare::created(keys.leader(), i64::MAX)],
        success: vec![RequestOp::put(keys.leader(), Vec::new())],
        failure: Vec::new(),
    };
    client.transaction(&write).await.map(drop)
}

async fn shortest_lease(client: &EtcdClient) -> Option<Duration> {
    let granted = client.grant_lease(SHORTEST_LEASE).await.ok()?;
    // Otherwise it expires.
    let _ = client.revoke_lease(granted.id.0).await;
    Some(Duration::from_secs(u64::try_from(granted.ttl.0).ok()?))
}
