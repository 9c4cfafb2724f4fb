//! Measures what the house promises to be quick at. Run by a person, on a machine that does nothing else; never by a test.
//!
//! `cargo run --release -p integration --bin measure -- NAME [-o json]`

#![forbid(unsafe_code)]

mod adopt;
mod again;
mod agent_cost;
mod ask_to_running;
mod cli_start;
mod diagnosis;
mod growth;
mod house;
mod kill_to_retry;
mod launch;
mod leftovers;
mod master_restart;
mod modes;
mod noisy_neighbour;
mod page;
mod progress;
mod quantiles;
mod rm_core;
mod rm_http;
mod rm_restart;
mod sim;
mod store;
mod submissions;
mod tasks;
mod treatments;
mod upgrades;
mod verdicts;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};

/// The allocator of the daemon, whose core is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure one thing and print figures.
#[derive(Parser)]
struct Cli {
    /// What to measure
    name: Measurement,
    /// kill-to-retry: how many tasks
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// kill-to-retry: while tasks of the same job keep every processor, and four more kinds of load; `--rounds` of eleven jobs of a hundred tasks
    #[arg(long)]
    loaded: bool,
    /// rm-http, rm-restart, page: how many nodes are played
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(16..=50_000))]
    agents: u32,
    /// rm-restart: how often the resource manager is killed; adopt: how often the agent is; master-restart: in how many jobs the master is; upgrades: how often a daemon is restarted, killed or upgraded; ask-to-running, launch, agent-cost: how many containers; cli-start: how many calls
    /// verdicts: how often each case is played, rare ones less often; diagnosis: how often each program runs; growth: how many tasks
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    #[command(flatten)]
    verdicts: verdicts::Args,
    /// noisy-neighbour: how long hostile jobs run
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// leftovers: `[isolation] ipc` of the node
    #[arg(long, default_value = "task", value_parser = ["task", "container", "host"])]
    ipc: String,
    /// tasks: how many
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: u32,
    /// sim: how many runs
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// sim: the first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// adopt, master-restart: what the rounds are drawn from; another one each time when left out
    #[arg(long)]
    seed: Option<u64>,
    /// How to print
    #[arg(short = 'o', default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Measurement {
    /// From the end of a killed task's process in the kernel to the first instruction of its next attempt
    KillToRetry,
    /// Containers that the resource manager's core grants, without any interface
    RmCore,
    /// The resource manager through its interface, with all agents connected
    RmHttp,
    /// From an ask to the word that the container runs, on an idle cluster with one real agent
    AskToRunning,
    /// Kills of the resource manager under load
    RmRestart,
    /// Commits of the store with either database, beside the bare sync of the same disk
    Store,
    /// From an order to a running program and from a kill to a report, and containers carried in a second, beside the kernel's own pace
    Launch,
    /// Memory and processor time of an agent that looks at its containers
    AgentCost,
    /// Kills of the node agent at every step of a container's life
    Adopt,
    /// Kills of the application master while tasks escalate
    MasterRestart,
    /// Restarts, kills and upgrades of installed daemons under load, on three guests with systemd
    Upgrades,
    /// Every way to die of memory, on the real node stack, and whether the verdict is right
    Verdicts,
    /// Programs that run out of one kind of memory each, and whether the diagnosis names it
    Diagnosis,
    /// The same programs as jobs on a real cluster: which treatment each got, how many attempts it took, how it ended
    Treatments,
    /// More memory for tasks that run: kills with it and without, and how long a task waits
    Growth,
    /// Programs that leave memory behind, and whether the next job on their node is harmed
    Leftovers,
    /// Five hundred tasks of one user beside another one's jobs that leak, fork, fill `/dev/shm` and flood their logs
    NoisyNeighbour,
    /// Skewed stages under every mode: kills, lost tasks, memory, time
    Modes,
    /// From the start of `rmctl status` to its last byte, on an idle cluster
    CliStart,
    /// Tasks that do nothing, a second, beside what others start
    Tasks,
    /// The page beside a large cluster: the first view, its bytes, frames, and what the resource manager takes for it
    Page,
    /// Simulated clusters, and in how many of them something did not hold
    Sim,
    /// The source text: odd words, names of types, import cycles, lines
    House,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
}

fn main() -> Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(submissions::ECHO) {
        submissions::echo()?;
        return Ok(ExitCode::SUCCESS);
    }
    let cli = Cli::parse();
    let diagnosed = || match cli.verdicts.guest {
        true => diagnosis::in_a_guest(cli.rounds.unwrap_or(1), &cli.verdicts.only),
        false => diagnosis::measure(cli.rounds.unwrap_or(1), &cli.verdicts.only),
    };
    if let (Measurement::Diagnosis, Format::Table) = (cli.name, cli.format) {
        tell(&diagnosis::table(&diagnosed()?));
        return Ok(ExitCode::SUCCESS);
    }
    let left = || {
        let (enforcer, only, ipc) = (cli.verdicts.enforcer, cli.verdicts.only.clone(), cli.ipc.clone());
        let plan = leftovers::Plan { enforcer, only, ipc };
        if cli.verdicts.guest { leftovers::in_a_guest(&plan) } else { leftovers::measure(&plan) }
    };
    if let (Measurement::Leftovers, Format::Table) = (cli.name, cli.format) {
        tell(&leftovers::table(&left()?));
        return Ok(ExitCode::SUCCESS);
    }
    if let (Measurement::Treatments, Format::Table) = (cli.name, cli.format) {
        tell(&treatments::table(&treatments::of(&cli.verdicts)?));
        return Ok(ExitCode::SUCCESS);
    }
    let figures = match cli.name {
        Measurement::KillToRetry if cli.verdicts.guest => kill_to_retry::in_a_guest(cli.count)?,
        Measurement::KillToRetry if cli.loaded => figures(&kill_to_retry::loaded::measure(cli.rounds.unwrap_or(4))?)?,
        Measurement::KillToRetry => figures(&kill_to_retry::measure(usize::from(cli.count))?)?,
        Measurement::RmCore => figures(&rm_core::measure()?)?,
        Measurement::RmHttp => figures(&rm_http::measure(usize::try_from(cli.agents)?)?)?,
        Measurement::AskToRunning => figures(&ask_to_running::measure(cli.rounds.unwrap_or(200))?)?,
        Measurement::RmRestart => figures(&rm_restart::measure(cli.rounds.unwrap_or(100), usize::try_from(cli.agents)?)?)?,
        Measurement::Store => figures(&store::measure()?)?,
        Measurement::Launch if cli.verdicts.guest => launch::in_a_guest(cli.rounds.unwrap_or(100))?,
        Measurement::Launch => figures(&launch::measure(cli.rounds.unwrap_or(300))?)?,
        Measurement::AgentCost => figures(&agent_cost::measure(u64::from(cli.rounds.unwrap_or(200)))?)?,
        Measurement::Adopt if cli.verdicts.guest => adopt::in_a_guest(cli.rounds.unwrap_or(30), cli.seed)?,
        Measurement::Adopt => figures(&adopt::measure(cli.rounds.unwrap_or(100), cli.seed)?)?,
        Measurement::MasterRestart => figures(&master_restart::measure(cli.rounds.unwrap_or(100), cli.seed)?)?,
        Measurement::Upgrades => figures(&upgrades::measure(cli.rounds.unwrap_or(50))?)?,
        Measurement::Verdicts => return verdicts::measure(cli.rounds.unwrap_or(10), &cli.verdicts, cli.format),
        Measurement::Diagnosis => figures(&diagnosed()?)?,
        Measurement::Treatments => figures(&treatments::of(&cli.verdicts)?)?,
        Measurement::Growth if cli.verdicts.guest => growth::in_a_guest(cli.rounds.unwrap_or(40))?,
        Measurement::Growth => figures(&growth::measure(cli.rounds.unwrap_or(40))?)?,
        Measurement::Leftovers => figures(&left()?)?,
        Measurement::Modes => figures(&modes::measure(&cli.verdicts.only)?)?,
        Measurement::NoisyNeighbour if cli.verdicts.guest => noisy_neighbour::in_a_guest(cli.seconds)?,
        Measurement::NoisyNeighbour => figures(&noisy_neighbour::measure(cli.seconds)?)?,
        Measurement::CliStart => figures(&cli_start::measure(cli.rounds.unwrap_or(200))?)?,
        Measurement::Tasks => figures(&tasks::measure(cli.n)?)?,
        Measurement::Page => figures(&page::measure(usize::try_from(cli.agents)?)?)?,
        Measurement::Sim => figures(&sim::measure(cli.from, cli.seeds))?,
        Measurement::House => figures(&house::measure()?)?,
    };
    print(&figures, cli.format);
    Ok(ExitCode::SUCCESS)
}

/// Every measurement gives one object, name by name.
fn figures<T: Serialize>(measured: &T) -> Result<Map<String, Value>> {
    let Value::Object(figures) = serde_json::to_value(measured)? else { bail!("a measurement gave no object") };
    Ok(figures)
}

#[allow(clippy::print_stdout)] // the table is what was asked for
fn tell(text: &str) {
    print!("{text}");
}

#[allow(clippy::print_stdout)] // the figures are what this program is for
fn print(figures: &Map<String, Value>, format: Format) {
    match format {
        Format::Json => println!("{}", Value::Object(figures.clone())),
        Format::Table => figures.iter().for_each(|(name, figure)| println!("{name:24} {figure}")),
    }
}
