//! The simulated cluster with many seeds: those that failed once, 300 fixed ones, and new ones on
//! request.
//!
//! `HEADROOM_SIM_SEED=N` runs one seed, with its full trace if `HEADROOM_SIM_ECHO=1`.
//! `HEADROOM_SIM_SECONDS=N` runs new seeds for this time, at most `HEADROOM_SIM_COUNT`, starting at
//! `HEADROOM_SIM_FROM` or at a number from the clock.

#![allow(missing_docs)] // a test binary has no public API

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use integration::scenario::{PlantedBug, Scenario};
use integration::seed_sweep::{Seeds, SweepControl, replay, sweep_runs};
use integration::simulation::{ManagerCounts, Outcome, run, run_scenario, run_with};

fn held(outcome: &Outcome) {
    assert!(
        outcome.violation.is_none(),
        "{outcome}\nreplay: {}",
        replay(outcome.seed)
    );
}

/// Runs all seeds and fails with the first violation. Returns the number of runs, and what happened
/// to managers.
fn hold(seeds: Seeds, one: impl Fn(u64) -> Outcome + Sync) -> (u64, ManagerCounts) {
    let (mut failed, mut counts) = (None, ManagerCounts::default());
    let ran = sweep_runs(seeds, one, |outcome| {
        counts += outcome.managers;
        match &outcome.violation {
            None => SweepControl::On,
            Some(_) => {
                failed = Some(outcome.clone());
                SweepControl::Stop
            }
        }
    });
    failed.iter().for_each(held);
    (ran, counts)
}

/// Numbers in `seeds/failed.txt`. The text after a `#` describes the violation.
fn kept() -> Vec<u64> {
    let text = include_str!("../seeds/failed.txt");
    let numbers = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty());
    numbers
        .map(|n| n.parse().expect("a seed in seeds/failed.txt"))
        .collect()
}

#[test]
fn failed_seeds_pass() {
    for seed in kept() {
        held(&run(seed));
        held(&run_scenario(
            seed,
            Scenario::one_manager(seed),
            PlantedBug::Nothing,
        ));
        // Many of these seeds are older than the tenants.
        held(&run_scenario(
            seed,
            Scenario::jobs_alone(seed),
            PlantedBug::Nothing,
        ));
    }
}

#[test]
fn fixed_seeds_pass() {
    let seeds = Seeds {
        from: 0,
        count: 300,
        until: None,
    };
    hold(seeds, run);
}

/// Several managers with their state in etcd. Every kind of fault strikes. `HEADROOM_SIM_MANAGERS=N`
/// runs more seeds.
#[test]
fn several_managers_lose_nothing_and_never_lead_together() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let one = number("HEADROOM_SIM_SEED");
    let seeds = Seeds {
        from: one.unwrap_or(0),
        count: one.map_or(number("HEADROOM_SIM_MANAGERS").unwrap_or(250), |_| 1),
        until: None,
    };
    let (ran, counts) = hold(seeds, |seed| {
        run_scenario(seed, Scenario::several_managers(seed), PlantedBug::Nothing)
    });
    for (name, count) in counts.named() {
        println!("{name}: {count}");
        assert!(one.is_some() || count > 0, "{name} in none of {ran} runs");
    }
}

#[test]
fn fresh_seeds_pass() {
    if let Ok(seed) = std::env::var("HEADROOM_SIM_SEED") {
        let outcome = run(seed.parse().expect("HEADROOM_SIM_SEED is a number"));
        println!("{outcome}");
        return held(&outcome);
    }
    let Ok(seconds) = std::env::var("HEADROOM_SIM_SECONDS") else {
        return;
    };
    let until = Instant::now()
        + Duration::from_secs(seconds.parse().expect("HEADROOM_SIM_SECONDS is a number"));
    let base = match std::env::var("HEADROOM_SIM_FROM") {
        Ok(from) => from.parse().expect("HEADROOM_SIM_FROM is a number"),
        Err(_) => {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("a clock")
                .as_secs()
                * 1_000_000
        }
    };
    let count = std::env::var("HEADROOM_SIM_COUNT").map_or(u64::MAX, |n| {
        n.parse().expect("HEADROOM_SIM_COUNT is a number")
    });
    println!("fresh seeds from {base} on");
    let seeds = Seeds {
        from: base,
        count,
        until: Some(until),
    };
    let (ran, counts) = hold(seeds, run);
    println!("{ran} fresh seeds passed");
    for (name, count) in counts.named() {
        println!("{name}: {count}");
    }
}

/// Two attempts of a master run at the same time, with journals in a directory that the nodes
/// share. `HEADROOM_SIM_DOUBLED=N` runs more seeds.
#[test]
fn a_deposed_master_does_no_harm() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let count = number("HEADROOM_SIM_DOUBLED").unwrap_or(120);
    let one = number("HEADROOM_SIM_SEED");
    let mut deposed = 0;
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        let outcome = run_scenario(seed, Scenario::doubled_masters(seed), PlantedBug::Nothing);
        deposed += outcome.deposed;
        assert!(
            outcome.violation.is_none(),
            "doubled masters, seed {seed}: {outcome}"
        );
    }
    println!("{deposed} masters were deposed");
    assert!(one.is_some() || deposed > 0, "no master was deposed");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).hash, run(2).hash);
}

/// Escalated tasks of a job that fills its nodes must start within a bound that depends on the task
/// run time. `HEADROOM_SIM_FULL_NODES=N` runs more seeds.
#[test]
fn escalated_tasks_do_not_wait_behind_their_own_job() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let count = number("HEADROOM_SIM_FULL_NODES").unwrap_or(60);
    for seed in number("HEADROOM_SIM_SEED").map_or(0..count, |seed| seed..seed + 1) {
        let outcome = run_scenario(seed, Scenario::full_nodes(seed), PlantedBug::Nothing);
        assert!(
            outcome.violation.is_none(),
            "full cluster, seed {seed}: {outcome}"
        );
    }
}

#[test]
fn a_replacement_of_a_drained_executor_is_found() {
    let plant = PlantedBug::ReplacesDrained;
    let found = (0..300).find(|seed| {
        run_scenario(*seed, Scenario::full_nodes(*seed), plant)
            .violation
            .is_some()
    });
    assert!(found.is_some(), "{plant:?} was not found in 300 seeds");
}

/// Tasks that are frozen for each other's memory on full nodes. `HEADROOM_SIM_HELD=N` runs more
/// seeds.
#[test]
fn no_node_deadlocks_with_frozen_tasks() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let count = number("HEADROOM_SIM_HELD").unwrap_or(40);
    for seed in number("HEADROOM_SIM_SEED").map_or(0..count, |seed| seed..seed + 1) {
        let outcome = run_scenario(seed, Scenario::held(seed), PlantedBug::Nothing);
        assert!(
            outcome.violation.is_none(),
            "frozen tasks, seed {seed}: {outcome}"
        );
    }
}

#[test]
fn a_growth_deadlock_is_found() {
    let plant = PlantedBug::NobodyGivesWay;
    let found = (0..300).find(|seed| {
        run_scenario(*seed, Scenario::held(*seed), plant)
            .violation
            .is_some()
    });
    assert!(found.is_some(), "{plant:?} was not found in 300 seeds");
}

/// Most seeds until a planted bug is found.
const MAX_SEEDS: u64 = 1000;

/// Number of seeds until the invariant checker finds the bug.
fn found_after(plant: PlantedBug) -> u64 {
    let found = (0..MAX_SEEDS).find(|seed| run_with(*seed, plant).violation.is_some());
    found.unwrap_or_else(|| panic!("{plant:?} was not found in {MAX_SEEDS} seeds"))
}

#[test]
fn an_order_delivered_to_two_nodes_is_found() {
    found_after(PlantedBug::OrderToTwoNodes);
}
#[test]
fn an_unreported_end_is_found() {
    found_after(PlantedBug::EndForgotten);
}
#[test]
fn an_answer_before_the_write_is_found() {
    found_after(PlantedBug::AnswersBeforeWrite);
}
#[test]
fn an_outside_kill_reported_as_a_memory_kill_is_found() {
    found_after(PlantedBug::BlamesMemory);
}
#[test]
fn a_start_before_the_journal_is_found() {
    found_after(PlantedBug::StartsBeforeJournal);
}

/// Requires that the invariant checker finds a bug of several managers by a violation that contains
/// `words`. The same scenario without the bug passes. Returns the finding.
fn found_in_managers(plant: PlantedBug, words: &str) -> String {
    let several = |seed, plant| run_scenario(seed, Scenario::several_managers(seed), plant);
    let found = (0..MAX_SEEDS).find_map(|seed| {
        let what = several(seed, plant).violation?;
        what.contains(words).then_some((seed, what))
    });
    let Some((seed, what)) = found else {
        panic!("{plant:?} was not found in {MAX_SEEDS} seeds");
    };
    held(&several(seed, PlantedBug::Nothing));
    let after = seed + 1;
    format!("{plant:?}: found by seed {seed}, after {after} seeds: {what}")
}

#[test]
fn a_grant_after_the_end_of_the_lease_is_found() {
    let words = "lets effects leave, and does not lead";
    println!("{}", found_in_managers(PlantedBug::GrantsAfterLease, words));
}
#[test]
fn a_write_that_is_not_guarded_by_the_key_of_the_leader_is_found() {
    let words = "of a manager that does not lead takes effect";
    println!(
        "{}",
        found_in_managers(PlantedBug::WritesWithoutGuard, words)
    );
}
#[test]
fn a_repeated_write_that_undoes_a_later_one_is_found() {
    println!(
        "{}",
        found_in_managers(PlantedBug::RepeatsWithoutFence, "may undo it")
    );
}
#[test]
fn a_manager_that_stops_to_listen_before_its_last_write_is_found() {
    let words = "lets effects leave, and does not lead";
    println!(
        "{}",
        found_in_managers(PlantedBug::ClosesBeforeHandOver, words)
    );
}
