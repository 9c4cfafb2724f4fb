//! Measures what the house promises to be quick at. Run by a person, on a machine that does nothing else; never by a test.
//!
//! `cargo run --release -p integration --bin measure -- NAME [-o json]`

#![forbid(unsafe_code)]

mod kill_to_retry;
mod quantiles;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Measure one thing and print figures.
#[derive(Parser)]
struct Cli {
    /// What to measure
    name: Measurement,
    /// How often
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// How to print
    #[arg(short = 'o', default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Measurement {
    /// From the end of a killed task's process in the kernel to the first instruction of its next attempt
    KillToRetry,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
}

/// What every measurement gives.
#[derive(Debug, Serialize)]
struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    n: usize,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let figures = match cli.name {
        Measurement::KillToRetry => kill_to_retry::measure(usize::from(cli.count))?,
    };
    print(&figures, cli.format)?;
    Ok(ExitCode::SUCCESS)
}

#[allow(clippy::print_stdout)] // the figures are what this program is for
fn print(figures: &Figures, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string(figures)?),
        Format::Table => println!("p50 {:.1} ms, p99 {:.1} ms, n {}", figures.p50_ms, figures.p99_ms, figures.n),
    }
    Ok(())
}
