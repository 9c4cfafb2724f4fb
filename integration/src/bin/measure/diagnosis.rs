//! Diagnoses of programs that each run out of one kind of memory, on this host's kernel or in a
//! guest.

use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_types::EnforcerKind;
use integration::provoke::{DiagnosisBench, DiagnosisCase, DiagnosisRow, cases};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{guest_run, progress};

/// Timeout of a round in a guest on a busy machine.
const ROUND: Duration = Duration::from_secs(1200);

/// Results.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DiagnosisResults {
    enforcer: EnforcerKind,
    rounds: u32,
    /// Runs of programs.
    programs: usize,
    /// Runs with the expected first sub-cause.
    right: usize,
    /// Programs whose tools are not on this machine.
    skipped: Vec<String>,
    rows: Vec<DiagnosisRow>,
}

/// Runs all programs with `only` in their name, for this number of rounds.
pub(crate) fn measure(rounds: u32, only: &str) -> Result<DiagnosisResults> {
    let native = std::env::current_exe()?.with_file_name("provoke");
    anyhow::ensure!(
        native.is_file(),
        "{} is not built: cargo build -p integration --bins",
        native.display()
    );
    let bench = DiagnosisBench::new("diagnosis", &native)?;
    let (wanted, missing): (Vec<DiagnosisCase>, Vec<DiagnosisCase>) = cases()
        .into_iter()
        .filter(|case| case.program.contains(only))
        .partition(|case| case.needs.missing().is_none());
    let skipped = missing.iter().map(|case| {
        format!(
            "{}: no {}",
            case.program,
            case.needs.missing().unwrap_or_default()
        )
    });
    let mut rows = Vec::new();
    for round in 0..rounds {
        for case in &wanted {
            rows.push(one(&bench, case, round).with_context(|| case.program)?);
        }
    }
    let right = rows.iter().filter(|row| row.right).count();
    Ok(DiagnosisResults {
        enforcer: bench.kind(),
        rounds,
        programs: rows.len(),
        right,
        skipped: skipped.collect(),
        rows,
    })
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(rounds: u32, only: &str) -> Result<DiagnosisResults> {
    let words = ["diagnosis", "--rounds", &rounds.to_string(), "--only", only];
    let figures = guest_run::in_a_guest(&words, ROUND * rounds)?;
    serde_json::from_value(Value::Object(figures)).context("the report of the guest")
}

fn one(bench: &DiagnosisBench, case: &DiagnosisCase, round: u32) -> Result<DiagnosisRow> {
    let report = bench.run(case)?;
    let row = DiagnosisRow::of(case, &report);
    progress::print_line(&format!(
        "round {round}: {} is {} ({})",
        row.program,
        row.named,
        if row.right { "right" } else { "WRONG" }
    ));
    if !row.right {
        // A developer needs the whole report to correct the rules.
        progress::print_line(&serde_json::to_string(&report).context("the report")?);
    }
    Ok(row)
}

/// The table as text, with one row for each run.
pub(crate) fn table(figures: &DiagnosisResults) -> String {
    let mut text = format!(
        "{} of {} named right on {}\n",
        figures.right, figures.programs, figures.enforcer
    );
    text.push_str(&format!(
        "{:22} {:8} {:18} {:18} {:9} {:6} FIX\n",
        "PROGRAM", "RUNTIME", "NAMED", "EXPECTED", "CERTAINTY", "RIGHT"
    ));
    for r in &figures.rows {
        let sure = r.certainty.map(|c| c.to_string()).unwrap_or_default();
        let right = if r.right { "yes" } else { "NO" };
        text.push_str(&format!(
            "{:22} {:8} {:18} {:18} {sure:9} {right:6} {}\n",
            r.program, r.runtime, r.named, r.expected, r.fix
        ));
    }
    text + &figures
        .skipped
        .iter()
        .map(|why| format!("skipped {why}\n"))
        .collect::<String>()
}
