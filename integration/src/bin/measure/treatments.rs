//! Each sub-cause as a job on a real cluster: its treatment, number of attempts, and end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::SubCause;
use integration::treatments::{TreatmentBench, TreatmentCase, TreatmentRow, all};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{guest_run, progress, verdicts};

/// Timeout of a round in a guest on a busy machine.
const ROUND: Duration = Duration::from_secs(2400);

/// Results.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TreatmentResults {
    /// Number of programs; several share a sub-cause.
    causes: usize,
    /// Programs with the expected sub-cause, treatment and end.
    right: usize,
    /// Attempts in excess of those that the treatments imply.
    wasted_attempts: usize,
    /// Sub-causes without a program in this run.
    not_provoked: Vec<SubCause>,
    /// Programs whose tools are not on this machine.
    skipped: Vec<String>,
    rows: Vec<TreatmentRow>,
}

/// Runs on this host, or in a guest.
pub(crate) fn of(args: &verdicts::Args) -> Result<TreatmentResults> {
    if args.guest {
        in_a_guest(&args.only)
    } else {
        measure(&args.only)
    }
}

/// Runs all programs with `only` in their name.
fn measure(only: &str) -> Result<TreatmentResults> {
    let native = std::env::current_exe()?.with_file_name("provoke");
    anyhow::ensure!(
        native.is_file(),
        "{} is not built: cargo build -p integration --bins",
        native.display()
    );
    let ward = TreatmentBench::new(&native)?;
    let chosen = all(&ward.programs)
        .into_iter()
        .filter(|case| case.program.contains(only));
    let (wanted, missing): (Vec<TreatmentCase>, Vec<TreatmentCase>) =
        chosen.partition(|case| case.missing().is_none());
    let skipped = missing.iter().map(|case| {
        format!(
            "{}: no {}",
            case.program,
            case.missing().unwrap_or_default()
        )
    });
    let mut rows = Vec::new();
    for (n, case) in wanted.iter().enumerate() {
        let (row, end) = ward.run(case).with_context(|| case.program.clone())?;
        let verdict = if row.right { "right" } else { "WRONG" };
        progress::print_line(&format!(
            "{} of {}: {} is {} → {}: {verdict}",
            n + 1,
            wanted.len(),
            row.program,
            row.named,
            row.treatment
        ));
        if !row.right {
            // A developer needs the whole job to correct the rules.
            progress::print_line(&serde_json::to_string(&end).context("the job")?);
        }
        rows.push(row);
    }
    let seen: BTreeSet<SubCause> = rows.iter().map(|row| row.cause).collect();
    Ok(TreatmentResults {
        causes: rows.len(),
        right: rows.iter().filter(|row| row.right).count(),
        wasted_attempts: rows.iter().map(TreatmentRow::wasted).sum(),
        not_provoked: SubCause::ALL
            .iter()
            .copied()
            .filter(|cause| !seen.contains(cause))
            .collect(),
        skipped: skipped.collect(),
        rows,
    })
}

/// As `measure`, in a guest with cgroup v2.
fn in_a_guest(only: &str) -> Result<TreatmentResults> {
    let figures = guest_run::in_a_guest(&["treatments", "--only", only], ROUND)?;
    serde_json::from_value(Value::Object(figures)).context("the report of the guest")
}

/// The table as text, with one row for each program.
pub(crate) fn table(figures: &TreatmentResults) -> String {
    let TreatmentResults {
        causes,
        right,
        wasted_attempts,
        ..
    } = figures;
    let mut text =
        format!("{right} of {causes} treated right, {wasted_attempts} attempts wasted\n");
    text.push_str(&format!(
        "{:22} {:18} {:18} {:24} {:>5} {:>5} {:5} END\n",
        "PROGRAM", "CAUSE", "NAMED", "TREATMENT", "TRIES", "LEAST", "RIGHT"
    ));
    for r in &figures.rows {
        let right = if r.right { "yes" } else { "NO" };
        text.push_str(&format!(
            "{:22} {:18} {:18} {:24} {:>5} {:>5} {right:5} {}\n",
            r.program, r.cause, r.named, r.treatment, r.attempts, r.least, r.outcome
        ));
    }
    text.push_str(
        &figures
            .skipped
            .iter()
            .map(|why| format!("skipped {why}\n"))
            .collect::<String>(),
    );
    let names: Vec<&str> = figures
        .not_provoked
        .iter()
        .map(|cause| cause.as_str())
        .collect();
    text + &format!("not provoked: {}\n", names.join(", "))
}
