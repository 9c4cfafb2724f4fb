//! The usage history of earlier jobs sets first sizes of tasks.

#[macro_use]
mod world;

use headroom_appmaster::MasterCore;
use headroom_appmaster::event::{EventTimestamp, MasterEffect, MasterEvent};
use headroom_appmaster::policy::AttemptSize;
use headroom_appmaster::record::JournalRecord;
use headroom_types::{Bytes, UnixMillis};
use headroom_wire::v1::job_history::{JobHistory, TaskKindHistory, TaskMemoryNeed};

/// Two executors of four slots with 64 MiB each.
const SLOTS: &str = concat!(
    job_head!("learning", "288MiB", 4, 2, 4, "sizes = \"learned\"\n"),
    r#"[[stage]]
grow = false
name = "map"
array = "0-39"
command = ["prog", "{index}"]
"#
);

/// The usage history of a job whose tasks of stage `map` needed this many MiB, for 20 s each.
fn family(name: &str, peaks: impl Iterator<Item = u64>) -> Box<JobHistory> {
    let first = Bytes::from_mib(64);
    let need = |mib| TaskMemoryNeed {
        peak: Bytes::from_mib(mib),
        first,
        last: first,
        kills: 0,
        runtime_ms: 20_000,
    };
    let kinds = vec![TaskKindHistory {
        name: name.into(),
        tasks: peaks.map(need).collect(),
    }];
    Box::new(JobHistory {
        user: "ann".into(),
        name: "learning".parse().expect("a name"),
        runs: 3,
        last: UnixMillis(1),
        kinds,
        enlarged: Vec::new(),
    })
}

/// A master that received a usage history before its registration, and its records.
fn informed(job: &str, family: Box<JobHistory>) -> (MasterCore, Vec<JournalRecord>) {
    let job = headroom_config::job::compile(job, "job.toml")
        .map_err(|p| headroom_config::render(&p))
        .expect("a valid job");
    let (mut core, mut out) = (
        MasterCore::new(job, headroom_appmaster::MasterSetup::default()),
        Vec::new(),
    );
    core.step(
        EventTimestamp::default(),
        MasterEvent::Known(family.clone()),
        &mut out,
    );
    // Repeated by another epoch of the resource manager.
    core.step(
        EventTimestamp::default(),
        MasterEvent::Known(family),
        &mut out,
    );
    let written = out.into_iter().filter_map(|effect| {
        if let MasterEffect::Record(record) = effect {
            Some(*record)
        } else {
            None
        }
    });
    (core, written.collect())
}

#[test]
fn job_history_sets_first_sizes_and_survives_a_restart() {
    let (mut core, records) = informed(SLOTS, family("map", 90..140));
    let sizes = core.first_sizes();
    let from_history = |(_, size, why): &(_, AttemptSize, String)| {
        size.slots > 1 && size.memory() >= Bytes::from_mib(128) && why.contains("kind map")
    };
    assert!(sizes.iter().all(from_history), "{:?}", sizes[0]);
    assert_eq!(
        records
            .iter()
            .filter(|record| matches!(record, JournalRecord::Known { .. }))
            .count(),
        1,
        "{records:?}"
    );
    let mut again = MasterCore::replay(
        core.job().clone(),
        headroom_appmaster::MasterSetup::default(),
        &records,
    );
    assert_eq!(again.first_sizes(), sizes);
}

#[test]
fn job_history_does_not_affect_other_stages_and_stated_sizes() {
    let (mut other, records) = informed(SLOTS, family("reduce", 90..140));
    assert!(
        other
            .first_sizes()
            .iter()
            .all(|(_, size, _)| size.slots == 1)
            && records.is_empty(),
        "{records:?}"
    );
    let (mut stated, records) = informed(
        &SLOTS.replace("sizes = \"learned\"\n", ""),
        family("map", 90..140),
    );
    assert!(
        stated
            .first_sizes()
            .iter()
            .all(|(_, size, _)| size.slots == 1)
            && records.is_empty(),
        "{records:?}"
    );
    let split = "[profiles.task]\nheap = \"32MiB\"\noverhead = \"32MiB\"\n[executors.main]";
    let managed = SLOTS
        .replace(
            "command = ",
            "runtime = \"jvm\"\nprofile = \"task\"\ncommand = ",
        )
        .replace("[executors.main]", split);
    let (mut managed, records) = informed(&managed, family("map", 90..140));
    assert!(
        managed
            .first_sizes()
            .iter()
            .all(|(_, size, _)| size.slots == 1)
            && records.is_empty(),
        "{records:?}"
    );
}
