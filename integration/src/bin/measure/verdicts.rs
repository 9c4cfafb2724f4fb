//! The verdict matrix: on this host's kernel, with the `poll` enforcer, or in guests with cgroup
//! v2.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use headroom_types::EnforcerKind;
use integration::guest::in_guest;
use integration::verdicts::case::Stage;
use integration::verdicts::{MatrixResults, Plan, here, in_guests, of_this_kernel, on_this_kernel};

use crate::Format;

/// Options of a run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// verdicts, diagnosis, growth, kill-to-retry, launch, adopt, leftovers, noisy-neighbour: run
    /// in guests with cgroup v2
    #[arg(long)]
    pub(crate) guest: bool,
    /// verdicts, leftovers: the enforcer; the best one of this kernel if absent
    #[arg(long)]
    pub(crate) enforcer: Option<EnforcerKind>,
    /// verdicts, diagnosis, modes, leftovers: only cases, programs and stages with this text in
    /// their name
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// verdicts: parts of the matrix (roomy, burst, fenced, nested, fragile, swapped, starved)
    #[arg(long, value_delimiter = ',')]
    stages: Vec<Stage>,
}

/// Runs the matrix, prints the results, and returns success if all were right.
pub(crate) fn measure(rounds: u32, args: &Args, format: Format) -> Result<ExitCode> {
    let figures = play(rounds, args)?;
    print(&figures, format)?;
    // In a guest the caller judges the results.
    let fine = figures.is_perfect() || in_guest();
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn play(rounds: u32, args: &Args) -> Result<MatrixResults> {
    if in_guest() {
        return here(rounds, args.only.clone(), args.stages.clone());
    }
    if args.guest {
        let own = std::env::current_exe().context("the path of this program")?;
        return in_guests(
            rounds,
            &args.only,
            &args.stages,
            &own,
            &["verdicts", "-o", "json"],
        );
    }
    let scratch = tempfile::Builder::new()
        .prefix("headroom-scratch-")
        .tempdir()
        .context("a directory for files")?;
    let enforcer = args.enforcer.unwrap_or_else(of_this_kernel);
    let plan = Plan {
        enforcer,
        rounds,
        only: args.only.clone(),
        stages: args.stages.clone(),
    };
    on_this_kernel(&plan, scratch.path())
}

#[allow(clippy::print_stdout)] // the results are the output of this program
fn print(figures: &MatrixResults, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string(figures)?),
        Format::Table => println!("{}", figures.table()),
    }
    Ok(())
}
