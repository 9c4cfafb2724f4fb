//! Measures what the house promises to be quick at. Run by a person, on a machine that does nothing else; never by a test.
//!
//! `cargo run --release -p integration --bin measure -- NAME [-o json]`

#![forbid(unsafe_code)]

mod kill_to_retry;
mod quantiles;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use integration::scenario;
use serde::Serialize;
use serde_json::{Map, Value};

/// Measure one thing and print figures.
#[derive(Parser)]
struct Cli {
    /// What to measure
    name: Measurement,
    /// kill-to-retry: how many tasks
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// sim: how many runs
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// How to print
    #[arg(short = 'o', default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Measurement {
    /// From the end of a killed task's process in the kernel to the first instruction of its next attempt
    KillToRetry,
    /// Simulated clusters, and in how many of them something did not hold
    Sim,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let figures = match cli.name {
        Measurement::KillToRetry => figures(&kill_to_retry::measure(usize::from(cli.count))?)?,
        Measurement::Sim => figures(&scenario::measure_sim(cli.seeds))?,
    };
    print(&figures, cli.format);
    Ok(ExitCode::SUCCESS)
}

/// Every measurement gives one object, name by name.
fn figures<T: Serialize>(measured: &T) -> Result<Map<String, Value>> {
    match serde_json::to_value(measured)? {
        Value::Object(figures) => Ok(figures),
        other => bail!("a measurement gave {other}, which is no object"),
    }
}

#[allow(clippy::print_stdout)] // the figures are what this program is for
fn print(figures: &Map<String, Value>, format: Format) {
    match format {
        Format::Json => println!("{}", Value::Object(figures.clone())),
        Format::Table => figures.iter().for_each(|(name, figure)| println!("{name:24} {figure}")),
    }
}
