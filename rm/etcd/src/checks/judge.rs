//! Judges the answers of an etcd. Pure.

use std::time::Duration;

use headroom_config::etcd::EtcdConfig;

use super::check::{CheckState, EtcdCheck};
use super::facts::{EtcdFacts, MemberFacts, MemberStatus};
use crate::error::EtcdError;
use crate::lease_clock::grace_period;
use crate::message::AlarmKind;

/// Oldest version whose gateway has every call.
const OLDEST: (u64, u64) = (3, 4);
/// Longest commit on disks that are fast enough: each batch of the resource manager waits for one.
const COMMIT: Duration = Duration::from_millis(50);
/// Part of the quota above which the database is nearly full. Percent.
const NEARLY_FULL: u64 = 80;
/// Size below which fragmentation does not matter. Bytes.
const SMALL: u64 = 64 << 20;
/// Difference of two clocks above which certificates and tokens may be refused.
const SKEW: Duration = Duration::from_secs(5);

pub(super) fn all(facts: &EtcdFacts, settings: &EtcdConfig) -> Vec<EtcdCheck> {
    let answering = answers(facts).count();
    let mut checks: Vec<EtcdCheck> = facts
        .members
        .iter()
        .map(|member| endpoint(member, answering))
        .collect();
    checks.push(quorum(facts));
    if answering == 0 {
        return checks;
    }
    checks.extend([
        access(&facts.access),
        version(facts),
        commit(facts),
        lease(facts.shortest_lease, settings.lease),
        space(facts),
        alarm(&facts.alarms),
        clock(facts),
    ]);
    checks
}

fn answers(facts: &EtcdFacts) -> impl Iterator<Item = (&str, &MemberStatus)> {
    facts.members.iter().filter_map(|member| {
        let status = member.status.as_ref().ok()?;
        Some((member.endpoint.as_str(), status))
    })
}

fn fine(code: &'static str, what: &'static str, found: impl Into<String>) -> EtcdCheck {
    EtcdCheck {
        code,
        state: CheckState::Ok,
        what,
        found: found.into(),
        fix: None,
    }
}

impl EtcdCheck {
    fn warn(self, fix: impl Into<String>) -> EtcdCheck {
        let (state, fix) = (CheckState::Warn, Some(fix.into()));
        EtcdCheck { state, fix, ..self }
    }
    fn fail(self, fix: impl Into<String>) -> EtcdCheck {
        let (state, fix) = (CheckState::Fail, Some(fix.into()));
        EtcdCheck { state, fix, ..self }
    }
}

fn endpoint(member: &MemberFacts, answering: usize) -> EtcdCheck {
    let about = |found| fine("etcd-endpoint", "a member of etcd", found);
    match &member.status {
        Ok(status) => about(format!(
            "{}: version {}, {}, {} ms",
            member.endpoint,
            status.version,
            if status.leads { "leads" } else { "follows" },
            status.latency.as_millis()
        )),
        Err(error) => {
            let fix = "start it, or correct etcd.endpoints, etcd.tls or etcd.login";
            let found = about(error.to_string());
            if answering == 0 {
                found.fail(fix)
            } else {
                found.warn(fix)
            }
        }
    }
}

fn quorum(facts: &EtcdFacts) -> EtcdCheck {
    let about = |found: String| {
        fine(
            "etcd-quorum",
            "a majority of the members commits every write",
            found,
        )
    };
    let leader = answers(facts).any(|(_, status)| status.has_leader);
    match &facts.commits {
        Ok(_) => about("a majority answers".into()),
        Err(error) if leader => about(error.to_string()).fail("follow the error"),
        Err(error) => about(error.to_string()).fail("start the missing members"),
    }
}

fn access(access: &Result<(), EtcdError>) -> EtcdCheck {
    let about = |found: String| fine("etcd-access", "managers read and write the prefix", found);
    match access {
        Ok(()) => about("the prefix can be read and written".into()),
        Err(error) => about(error.to_string())
            .fail("correct etcd.login, or grant its user readwrite on the prefix"),
    }
}

fn version(facts: &EtcdFacts) -> EtcdCheck {
    let parts = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let old = |(_, status): &(&str, &MemberStatus)| parts(&status.version) < Some(OLDEST);
    let about = |found: String| fine("etcd-version", "every call that is needed exists", found);
    let found: Vec<String> = answers(facts)
        .filter(old)
        .map(|(endpoint, status)| format!("{endpoint} has {}", status.version))
        .collect();
    if found.is_empty() {
        return about("3.4 or later".into());
    }
    about(found.join(", ")).fail("upgrade these members to 3.4 or later")
}

fn commit(facts: &EtcdFacts) -> EtcdCheck {
    let what = "each change of the cluster waits for one commit";
    let Ok(commits) = &facts.commits else {
        return fine(
            "etcd-commit",
            what,
            "not measured, because etcd commits nothing",
        );
    };
    let mut sorted = commits.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let found = format!("{} ms", median.as_millis());
    let found = fine("etcd-commit", what, found);
    if median <= COMMIT {
        return found;
    }
    found.warn(format!(
        "more than {} ms: put the data of etcd on a disk that syncs in a few milliseconds, with nothing else on it",
        COMMIT.as_millis()
    ))
}

/// The shortest lease that etcd grants is 1.5 times its election timeout, and an election takes up
/// to two timeouts. A leader waits for it while it is certain, and then patiently.
fn lease(shortest: Option<Duration>, lease: Duration) -> EtcdCheck {
    let what = "the lease of a leader outlasts an election inside etcd";
    let Some(shortest) = shortest else {
        return fine(
            "etcd-lease",
            what,
            "not measured, because etcd grants no lease",
        );
    };
    let election = shortest * 4 / 3;
    let waits = |lease: Duration| lease * 9 / 10 + grace_period(lease);
    let found = format!(
        "lease {} ms; an election takes up to {} ms",
        lease.as_millis(),
        election.as_millis()
    );
    let found = fine("etcd-lease", what, found);
    if waits(lease) >= election {
        return found;
    }
    // The grace period is four leases then.
    let needed = election * 10 / 49;
    found.warn(format!(
        "set etcd.lease to at least \"{}s\" on all resource managers, or lower --election-timeout of etcd",
        needed.as_millis().div_ceil(1000)
    ))
}

fn space(facts: &EtcdFacts) -> EtcdCheck {
    let what = "etcd refuses writes when its database has reached the quota";
    let mib = |bytes: u64| bytes >> 20;
    let mut texts = Vec::new();
    let (mut full, mut fragmented) = (false, false);
    for (endpoint, status) in answers(facts) {
        let quota = status
            .quota
            .map_or_else(String::new, |quota| format!(" of {} MiB", mib(quota)));
        texts.push(format!(
            "{endpoint}: {} MiB{quota}, {} MiB in use",
            mib(status.size),
            mib(status.in_use)
        ));
        full |= status
            .quota
            .is_some_and(|quota| status.size.saturating_mul(100) > quota * NEARLY_FULL);
        fragmented |= status.size > SMALL && status.in_use < status.size / 2;
    }
    let found = fine("etcd-space", what, texts.join("; "));
    if full {
        found.warn("etcdctl defrag, one member after the other; or raise --quota-backend-bytes")
    } else if fragmented {
        found.warn("etcdctl defrag, one member after the other")
    } else {
        found
    }
}

fn alarm(alarms: &Result<Vec<AlarmKind>, EtcdError>) -> EtcdCheck {
    let about = |found: String| fine("etcd-alarm", "with an alarm, etcd refuses writes", found);
    match alarms {
        Err(error) => about(error.to_string()).warn("follow the error"),
        Ok(alarms) if alarms.contains(&AlarmKind::NoSpace) => about("NOSPACE".into())
            .fail("compact and defragment etcd, then run etcdctl alarm disarm; or raise --quota-backend-bytes"),
        Ok(alarms) if alarms.contains(&AlarmKind::Corrupt) => about("CORRUPT".into())
            .fail("replace the data of the damaged member, or restore a backup of etcd"),
        Ok(_) => about("none".into()),
    }
}

fn clock(facts: &EtcdFacts) -> EtcdCheck {
    let largest = answers(facts).filter_map(|(_, status)| status.skew).max();
    let what = "certificates and tokens have a validity period";
    let Some(largest) = largest else {
        return fine("etcd-clock", what, "no member names its time");
    };
    let found = format!("within {} s of the members", largest.as_secs() + 1);
    let found = fine("etcd-clock", what, found);
    if largest < SKEW {
        return found;
    }
    found.warn("synchronise the clocks of this host and of the members (timedatectl set-ntp true)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> EtcdFacts {
        let member = |n: u32| MemberFacts {
            endpoint: format!("https://etcd{n}:2379"),
            status: Ok(MemberStatus {
                version: "3.5.9".into(),
                leads: n == 1,
                has_leader: true,
                latency: Duration::from_millis(2),
                size: 100 << 20,
                in_use: 90 << 20,
                quota: Some(2 << 30),
                skew: Some(Duration::ZERO),
            }),
        };
        EtcdFacts {
            members: (1..=3).map(member).collect(),
            commits: Ok(vec![Duration::from_millis(4); 5]),
            shortest_lease: Some(Duration::from_secs(2)),
            alarms: Ok(Vec::new()),
            access: Ok(()),
        }
    }

    fn status(facts: &mut EtcdFacts) -> &mut MemberStatus {
        facts.members[0].status.as_mut().expect("answers")
    }

    /// Codes and results of the checks that are not fine.
    fn problems(facts: &EtcdFacts) -> Vec<(&'static str, CheckState)> {
        let checks = all(facts, &EtcdConfig::default()).into_iter();
        let problems = checks.filter(|check| check.state != CheckState::Ok);
        let problems: Vec<EtcdCheck> = problems.collect();
        assert!(problems.iter().all(|check| check.fix.is_some()));
        problems.into_iter().map(|c| (c.code, c.state)).collect()
    }

    #[test]
    fn a_healthy_etcd_has_no_problem() {
        assert_eq!(problems(&healthy()), []);
    }

    #[test]
    fn each_problem_has_its_code() {
        type Case = (fn(&mut EtcdFacts), &'static str, CheckState);
        let cases: [Case; 9] = [
            (
                |facts| facts.members[2].status = Err(EtcdError::Unreachable("refused".into())),
                "etcd-endpoint",
                CheckState::Warn,
            ),
            (
                |facts| facts.commits = Err(EtcdError::NoQuorum("no leader".into())),
                "etcd-quorum",
                CheckState::Fail,
            ),
            (
                |facts| facts.access = Err(EtcdError::Denied("permission denied".into())),
                "etcd-access",
                CheckState::Fail,
            ),
            (
                |facts| status(facts).version = "3.3.25".into(),
                "etcd-version",
                CheckState::Fail,
            ),
            (
                |facts| facts.commits = Ok(vec![Duration::from_millis(80); 5]),
                "etcd-commit",
                CheckState::Warn,
            ),
            (
                |facts| facts.shortest_lease = Some(Duration::from_secs(8)),
                "etcd-lease",
                CheckState::Warn,
            ),
            (
                |facts| status(facts).size = 1_900 << 20,
                "etcd-space",
                CheckState::Warn,
            ),
            (
                |facts| facts.alarms = Ok(vec![AlarmKind::NoSpace]),
                "etcd-alarm",
                CheckState::Fail,
            ),
            (
                |facts| status(facts).skew = Some(Duration::from_secs(40)),
                "etcd-clock",
                CheckState::Warn,
            ),
        ];
        for (change, code, state) in cases {
            let mut facts = healthy();
            change(&mut facts);
            assert_eq!(problems(&facts), [(code, state)]);
        }
    }

    #[test]
    fn without_an_answer_only_reachability_is_judged() {
        let mut facts = healthy();
        for member in &mut facts.members {
            member.status = Err(EtcdError::Unreachable("refused".into()));
        }
        facts.commits = Err(EtcdError::Unreachable("refused".into()));
        let codes: Vec<&str> = problems(&facts).into_iter().map(|(code, _)| code).collect();
        assert_eq!(
            codes,
            [
                "etcd-endpoint",
                "etcd-endpoint",
                "etcd-endpoint",
                "etcd-quorum"
            ]
        );
    }
}
