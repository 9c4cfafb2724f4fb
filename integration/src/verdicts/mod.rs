//! The verdict matrix: all known ways in which a container can end, on a real agent, and a check of
//! each verdict.
//!
//! `measure verdicts` and `tests/verdict_matrix.rs` own it. The agent is the shipped program with
//! its shim, cgroups and classification. Only the resource manager is fake, so thousands of
//! containers take seconds. Several cases run at once on purpose: a verdict must not depend on
//! other containers.

pub mod case;
mod cases;
mod guests;
mod manager;
mod master;
mod matrix_results;
mod node;
mod play;
mod tools;
mod wrong;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use headroom_types::{Bytes, EnforcerKind, LaunchSpec};
use headroom_wire::v1::task::TaskStart;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{guest, programs};
use case::{Stage, VerdictCase};
use node::Node;
use play::{CaseResult, play};
use tools::Tools;

pub use guests::{here, in_guests};
pub use matrix_results::{MatrixResults, VerdictCaseRow};
pub use wrong::WrongVerdict;

/// Number of containers in a burst.
const BURST: u32 = 100;
/// Memory of the node with memory for all. Offering it allocates nothing.
const ROOM: Bytes = Bytes::from_gib(6);
/// Memory of the node whose own limit is reached.
const FENCE: Bytes = Bytes::from_mib(64);

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The enforcer.
    pub enforcer: EnforcerKind,
    /// Rounds of a case that costs only processor time.
    pub rounds: u32,
    /// Only cases with this text in their name; all if empty.
    pub only: String,
    /// Only these stages; all if empty.
    pub stages: Vec<Stage>,
}

impl Plan {
    fn cases(&self, stage: Stage) -> Vec<VerdictCase> {
        let wanted = |case: &VerdictCase| {
            let on_stage =
                case.stage == stage && (self.stages.is_empty() || self.stages.contains(&stage));
            on_stage && case.on.contains(&self.enforcer) && case.name.contains(&self.only)
        };
        cases::all().into_iter().filter(wanted).collect()
    }

    /// Maximum number of parallel containers, apart from bursts.
    fn at_once(&self) -> usize {
        match self.enforcer {
            EnforcerKind::Cgroup1 => 12,
            EnforcerKind::Cgroup2 | EnforcerKind::Poll => 6,
        }
    }
}

/// The enforcer that this machine's kernel offers to root.
pub fn of_this_kernel() -> EnforcerKind {
    let base = Path::new("/sys/fs/cgroup");
    match (
        base.join("cgroup.controllers").exists(),
        base.join("memory").exists(),
    ) {
        (true, _) => EnforcerKind::Cgroup2,
        (false, true) => EnforcerKind::Cgroup1,
        (false, false) => EnforcerKind::Poll,
    }
}

/// Runs all cases of the plan on this kernel. `scratch` is a directory on a disk, not in memory.
pub fn on_this_kernel(plan: &Plan, scratch: &Path) -> Result<MatrixResults> {
    let tools = Tools::find(scratch)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(perform(plan, &tools))
}

async fn perform(plan: &Plan, tools: &Tools) -> Result<MatrixResults> {
    let mut run = MatrixRun {
        plan,
        tools,
        figures: MatrixResults {
            enforcer: plan.enforcer.to_string(),
            ..MatrixResults::default()
        },
    };
    run.roomy().await?;
    run.fenced().await?;
    run.nested().await?;
    run.fragile().await?;
    run.starved().await?;
    Ok(run.figures)
}

struct MatrixRun<'a> {
    plan: &'a Plan,
    tools: &'a Tools,
    figures: MatrixResults,
}

/// A case with its launch and number of runs.
struct ScheduledCase {
    case: VerdictCase,
    launch: LaunchSpec,
    /// The tasks of its executor.
    tasks: Vec<TaskStart>,
    times: u32,
}

impl ScheduledCase {
    /// Runs it once. An executor returns one result for each of its tasks.
    async fn play(&self, node: &Node, round: u32) -> Result<Vec<CaseResult>> {
        if self.tasks.is_empty() {
            return Ok(vec![play(node, &self.case, &self.launch, round).await?]);
        }
        play::play_tasks(node, &self.case, &self.launch, &self.tasks, round).await
    }
}

impl MatrixRun<'_> {
    fn booked(&mut self, stage: Stage) -> Vec<ScheduledCase> {
        let mut booked = Vec::new();
        for case in self.plan.cases(stage) {
            match case
                .launch(self.tools)
                .and_then(|launch| Ok((launch, case.tasks(self.tools)?)))
            {
                Ok((launch, tasks)) => booked.push(ScheduledCase {
                    times: case.pace.times(self.plan.rounds),
                    case,
                    launch,
                    tasks,
                }),
                Err(why) => self.figures.skipped.push(format!("{}: {why}", case.name)),
            }
        }
        booked
    }

    async fn roomy(&mut self) -> Result<()> {
        let (single, bursts) = (self.booked(Stage::Roomy), self.booked(Stage::Burst));
        // A host without swap runs that case in a guest.
        let swapped = if has_swap() {
            self.booked(Stage::Swapped)
        } else {
            Vec::new()
        };
        if single.is_empty() && bursts.is_empty() && swapped.is_empty() {
            return Ok(());
        }
        let node = Arc::new(Node::start(self.plan.enforcer, ROOM).await?);
        let mixed: Vec<ScheduledCase> = single.into_iter().chain(swapped).collect();
        self.mixed(&node, mixed).await?;
        for booked in bursts {
            self.burst(&node, booked).await?;
        }
        self.leave(&node).await;
        Ok(())
    }

    /// Runs all cases in parallel, round by round, with a bounded number of containers.
    async fn mixed(&mut self, node: &Arc<Node>, booked: Vec<ScheduledCase>) -> Result<()> {
        let most = booked.iter().map(|b| b.times).max().unwrap_or(0);
        let places = Arc::new(Semaphore::new(self.plan.at_once()));
        let booked = Arc::new(booked);
        let mut playing = JoinSet::new();
        for round in 0..most {
            for (n, due) in booked.iter().enumerate() {
                // Rare cases are spread over the whole run.
                if u64::from(round) * u64::from(due.times) % u64::from(most) >= u64::from(due.times)
                {
                    continue;
                }
                let place = Arc::clone(&places).acquire_owned().await?;
                let (node, booked) = (Arc::clone(node), Arc::clone(&booked));
                playing.spawn(async move {
                    let _place = place;
                    let due = booked.get(n).context("a case")?;
                    Ok::<_, anyhow::Error>((n, due.play(&node, round).await?))
                });
            }
        }
        let mut played: BTreeMap<usize, Vec<CaseResult>> = BTreeMap::new();
        while let Some(done) = playing.join_next().await {
            let (n, one) = done.context("a round")??;
            played.entry(n).or_default().extend(one);
        }
        for (n, all) in played {
            self.note(booked.get(n).context("a case")?, all);
        }
        Ok(())
    }

    /// Runs a hundred containers at once, all at their limits, in each round.
    async fn burst(&mut self, node: &Arc<Node>, booked: ScheduledCase) -> Result<()> {
        let (booked, mut all) = (Arc::new(booked), Vec::new());
        for round in 0..booked.times {
            let mut playing = JoinSet::new();
            for _ in 0..BURST {
                let (node, booked) = (Arc::clone(node), Arc::clone(&booked));
                playing
                    .spawn(async move { play(&node, &booked.case, &booked.launch, round).await });
            }
            while let Some(done) = playing.join_next().await {
                all.push(done.context("a container of the burst")??);
            }
        }
        self.note(&booked, all);
        Ok(())
    }

    /// Runs a container that takes too much beside one that does not: the first dies for the node's
    /// limit, the other survives.
    async fn fenced(&mut self) -> Result<()> {
        let booked = self.booked(Stage::Fenced);
        if booked.is_empty() {
            return Ok(());
        }
        let node = Node::start(self.plan.enforcer, FENCE).await?;
        for one in booked {
            let all = self.beside_a_neighbour(&node, &one).await?;
            self.note(&one, all);
        }
        self.leave(&node).await;
        Ok(())
    }

    /// As `fenced`, with a limit that the node does not know.
    async fn nested(&mut self) -> Result<()> {
        let booked = self.booked(Stage::Nested);
        if booked.is_empty() {
            return Ok(());
        }
        let node = Node::start_within(FENCE, ROOM).await?;
        for one in booked {
            let all = self.beside_a_neighbour(&node, &one).await?;
            self.note(&one, all);
        }
        self.leave(&node).await;
        Ok(())
    }

    async fn beside_a_neighbour(
        &mut self,
        node: &Node,
        booked: &ScheduledCase,
    ) -> Result<Vec<CaseResult>> {
        let neighbour = cases::unaffected_neighbour();
        let launch = neighbour.launch(self.tools).map_err(anyhow::Error::msg)?;
        let mut all = Vec::new();
        for round in 0..booked.times {
            let id = node.manager.run(neighbour.limit(), launch.clone())?;
            node.ready(&id).await?;
            all.push(play(node, &booked.case, &booked.launch, round).await?);
            node.let_continue(&id)?;
            let end = node.manager.end(&id, play::REPORT_TIMEOUT).await;
            let end = end.context("the report of the neighbour")?;
            let played = play::judge(node, &neighbour, &end, &[], round);
            if let Some(wrong) = played.wrong {
                self.figures.wrong.push(wrong);
            }
        }
        Ok(all)
    }

    async fn fragile(&mut self) -> Result<()> {
        let booked = self.booked(Stage::Fragile);
        if booked.is_empty() {
            return Ok(());
        }
        let node = Node::start(self.plan.enforcer, ROOM).await?;
        for one in booked {
            let mut all = Vec::new();
            for round in 0..one.times {
                all.push(play(&node, &one.case, &one.launch, round).await?);
            }
            self.note(&one, all);
        }
        self.leave(&node).await;
        Ok(())
    }

    /// Runs only in a guest, because the whole host is starved.
    async fn starved(&mut self) -> Result<()> {
        // A host runs other programs and must not be starved.
        let booked = if guest::in_guest() {
            self.booked(Stage::Starved)
        } else {
            Vec::new()
        };
        if booked.is_empty() {
            return Ok(());
        }
        let node = Node::start(self.plan.enforcer, ROOM).await?;
        for one in booked {
            let all = self.beside_a_neighbour(&node, &one).await?;
            self.note(&one, all);
        }
        self.leave(&node).await;
        Ok(())
    }

    fn note(&mut self, booked: &ScheduledCase, all: Vec<CaseResult>) {
        let (mut row, mut wrong) = (VerdictCaseRow::of(&booked.case), Vec::new());
        for played in all {
            row.count(&played);
            wrong.extend(played.wrong);
        }
        self.figures.add(row, wrong);
    }

    async fn leave(&mut self, node: &Node) {
        let groups = node
            .leftovers()
            .await
            .into_iter()
            .map(|g| format!("cgroup {g}"));
        let twice = node
            .manager
            .contradicted()
            .into_iter()
            .map(|id| format!("{id} was reported with two reasons"));
        self.figures.left.extend(groups.chain(twice));
    }
}

fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Directory of the shipped programs, for a caller that starts a guest.
fn bin_dir() -> Result<&'static Path> {
    programs::dir()
}
