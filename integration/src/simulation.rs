//! The simulation of a whole cluster in one thread and in virtual time. It runs the real cores of
//! the resource manager, the node agents and the masters, with simulated drivers around them. The
//! simulated network delays, loses, repeats and breaks messages.
//!
//! One queue holds all future events, ordered by time and then by insertion. All random choices
//! come from the seed, so a seed determines a run exactly, line by line. After each step the
//! invariant checker runs.

mod call_result;
mod commit;
mod disk;
mod election;
mod etcd;
mod etcd_link;
mod event_words;
mod executor;
mod fault_injection;
mod host;
mod leader_search;
mod leadership_checker;
mod manager;
mod manager_counts;
mod manager_end;
mod manager_faults;
mod master;
mod master_effects;
mod master_journal;
mod master_link;
mod network;
mod node_link;
mod operator;
pub mod random_source;
mod run_trace;
mod shares;
mod task_evidence;
mod tenant;
mod tenant_program;
mod views;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use headroom_rm_core::Cluster;
use headroom_types::{AppId, ContainerId, NodeId, UnixMillis};

use crate::fault::Fault;
use crate::invariant_checker::InvariantChecker;
use crate::scenario::{PlantedBug, Scenario};
use etcd_link::EtcdService;
use executor::Executor;
use host::Host;
use leader_search::LeaderSearch;
use leadership_checker::LeadershipChecker;
use manager::SimManager;
pub use manager_counts::ManagerCounts;
pub(crate) use master::Client;
use master::Process;
use network::Wires;
use operator::Operator;
use random_source::RandomSource;
use run_trace::RunTrace;
use tenant::SimTenant;
use tenant_program::TenantProgram;

/// Wall clock at virtual time 0. Milliseconds since 1970.
pub(crate) const UNIX_AT_ZERO: u64 = 1_700_000_000_000;
/// A run that takes longer after the last fault counts as endless. Milliseconds.
const LONGEST: u64 = 3_600_000;
/// A run with more events counts as endless.
const MOST_EVENTS: u64 = 100_000;
/// Time after the end of the last application for the remaining messages. Milliseconds.
const AFTERMATH: u64 = 180_000;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first violated invariant; `None` if all held.
    pub violation: Option<String>,
    /// Hash over all events.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// Virtual duration. Milliseconds.
    pub virtual_ms: u64,
    /// Masters that ended because a later attempt had taken over their journal.
    pub deposed: u32,
    /// Faults and elections of several managers.
    pub managers: ManagerCounts,
    /// The last events as text.
    pub tail: Vec<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.tail {
            writeln!(f, "{line}")?;
        }
        let verdict = self.violation.as_deref().unwrap_or("no violation");
        write!(
            f,
            "seed {}, {} events, {} ms, hash {:016x}: {verdict}",
            self.seed, self.events, self.virtual_ms, self.hash
        )
    }
}

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, PlantedBug::Nothing)
}

/// Runs a seed with a deliberate bug in the environment.
pub fn run_with(seed: u64, plant: PlantedBug) -> Outcome {
    run_scenario(seed, Scenario::of(seed), plant)
}

/// Runs a scenario. `seed` decides the choices that the scenario leaves open.
pub fn run_scenario(seed: u64, scenario: Scenario, plant: PlantedBug) -> Outcome {
    let diary = Rc::new(RefCell::new(RunTrace::new()));
    let mut world = Simulation::new(seed, scenario, plant, Rc::clone(&diary));
    let went = catch_unwind(AssertUnwindSafe(|| {
        world.go();
        world.violation()
    }));
    let violation = went.unwrap_or_else(|panic| Some(words_of(panic.as_ref())));
    let diary = diary.borrow();
    Outcome {
        seed,
        violation,
        hash: diary.hash(),
        events: diary.count(),
        virtual_ms: world.now,
        deposed: world.deposed,
        managers: world.counts,
        tail: diary.tail(),
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// A future event.
#[derive(Debug)]
enum SimulationEvent {
    Client(usize, master::SimClientEvent),
    Manager(usize, manager::SimManagerEvent),
    Etcd(etcd_link::SimEtcdEvent),
    Call(u64, leader_search::SimCallEvent),
    Host(NodeId, host::SimHostEvent),
    Process(u64, master::SimMasterEvent),
    Executor(ContainerId, executor::SimExecutorEvent),
    Tenant(usize, tenant::SimTenantEvent),
    Sitter(NodeId, ContainerId),
    Operator(operator::SimOperatorEvent),
    Views(views::ConsistencyCheck),
    Strike(Fault),
    Mended(NodeId),
    ManagerConnects(usize, manager_faults::ManagerLink),
}

/// The complete state of the simulation.
struct Simulation {
    now: u64,
    numbers: u64,
    queue: BTreeMap<(u64, u64), SimulationEvent>,
    chance: RandomSource,
    scenario: Scenario,
    plant: PlantedBug,
    managers: Vec<SimManager>,
    etcd: EtcdService,
    search: LeaderSearch,
    leadership: LeadershipChecker,
    counts: ManagerCounts,
    hosts: BTreeMap<NodeId, Host>,
    clients: Vec<Client>,
    /// Running masters by process number.
    processes: BTreeMap<u64, Process>,
    executors: BTreeMap<ContainerId, Executor>,
    tenants: Vec<SimTenant>,
    sitters: BTreeMap<ContainerId, TenantProgram>,
    operator: Operator,
    /// Queues that were below their guarantee with waiting requests at the last check.
    starving: std::collections::BTreeSet<String>,
    wires: Wires,
    /// Masters that ended because a later attempt had taken over their journal.
    deposed: u32,
    oracle: InvariantChecker,
    diary: Rc<RefCell<RunTrace>>,
}

impl Simulation {
    fn new(seed: u64, scenario: Scenario, plant: PlantedBug, diary: Rc<RefCell<RunTrace>>) -> Self {
        let named = |n: usize| {
            format!("n{n}")
                .parse::<NodeId>()
                .unwrap_or_else(|e| unreachable!("{e}"))
        };
        let hosts = scenario.nodes.iter().enumerate().map(|(n, offers)| {
            (
                named(n),
                Host::new(named(n), offers.clone(), &scenario.estate, n),
            )
        });
        let hosts = hosts.collect();
        let clients = scenario
            .jobs
            .iter()
            .map(|job| Client::new(job.clone()))
            .collect();
        let mut world = Simulation {
            now: 0,
            numbers: 0,
            queue: BTreeMap::new(),
            chance: RandomSource::new(seed.wrapping_add(0x5151)),
            oracle: InvariantChecker::new(&scenario),
            managers: (0..scenario.managers.count())
                .map(|_| SimManager::default())
                .collect(),
            etcd: EtcdService::default(),
            search: LeaderSearch::default(),
            leadership: LeadershipChecker::default(),
            counts: ManagerCounts::of(scenario.managers.count()),
            hosts,
            deposed: 0,
            clients,
            processes: BTreeMap::new(),
            executors: BTreeMap::new(),
            tenants: scenario
                .estate
                .tenants
                .iter()
                .cloned()
                .map(SimTenant::new)
                .collect(),
            sitters: BTreeMap::new(),
            operator: Operator::default(),
            starving: std::collections::BTreeSet::new(),
            wires: Wires::default(),
            diary,
            plant,
            scenario,
        };
        world.managers_start();
        for node in world.hosts.keys().cloned().collect::<Vec<_>>() {
            let at = world.chance.below(3_000);
            world.later(at, SimulationEvent::Host(node, host::SimHostEvent::Start));
        }
        for (n, job) in world.scenario.jobs.clone().iter().enumerate() {
            world.later(
                job.at_ms,
                SimulationEvent::Client(n, master::SimClientEvent::Submit),
            );
        }
        for (n, tenant) in world.scenario.estate.tenants.clone().iter().enumerate() {
            world.later(
                tenant.at_ms,
                SimulationEvent::Tenant(n, tenant::SimTenantEvent::Tick),
            );
        }
        world.operators_plan();
        world.views_plan();
        for (at, fault) in world.scenario.faults.clone() {
            world.later(at, SimulationEvent::Strike(fault));
        }
        world
    }

    fn managers_start(&mut self) {
        self.later(
            0,
            SimulationEvent::Manager(0, manager::SimManagerEvent::Start),
        );
        for m in 1..self.managers.len() {
            let at = self.chance.below(2_000);
            self.later(
                at,
                SimulationEvent::Manager(m, manager::SimManagerEvent::Start),
            );
        }
    }

    /// The cluster as its leader sees it.
    fn leading_cluster(&self) -> Option<&Cluster> {
        if let [only] = self.managers.as_slice() {
            return only.cluster.as_ref();
        }
        let leader = self.etcd.store.leader()?;
        self.managers.get(leader.manager)?.cluster.as_ref()
    }

    fn is_ended(&self, app: &AppId) -> bool {
        self.leading_cluster()
            .and_then(|cluster| cluster.app(app))
            .is_some_and(|app| app.state.is_over())
    }

    fn later(&mut self, after: u64, thing: SimulationEvent) {
        self.at(self.now + after, thing);
    }
    fn at(&mut self, at: u64, thing: SimulationEvent) {
        let number = self.number();
        self.queue.insert((at.max(self.now), number), thing);
    }
    /// A unique number.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
    fn wall(&self) -> UnixMillis {
        UnixMillis(UNIX_AT_ZERO + self.now)
    }
    fn is_calm(&self) -> bool {
        self.now >= self.scenario.calm_ms
    }
    fn note(&self, what: impl FnOnce() -> String) {
        self.diary.borrow_mut().note(self.now, &what());
    }
    fn violation(&self) -> Option<String> {
        self.oracle.violation().map(str::to_owned)
    }

    fn go(&mut self) {
        let mut over_since = None;
        while self.oracle.violation().is_none() {
            let Some(((at, _), thing)) = self.queue.pop_first() else {
                return self
                    .oracle
                    .fail("the event queue is empty, but jobs are open");
            };
            self.now = at;
            self.happen(thing);
            self.check_standstill();
            if self.everything_is_over() {
                let since = *over_since.get_or_insert(self.now);
                if self.now >= since + AFTERMATH {
                    return self.judge();
                }
            } else {
                over_since = None;
            }
            let stuck = self.now > self.scenario.calm_ms + LONGEST
                || self.diary.borrow().count() > MOST_EVENTS;
            if stuck {
                let who = self.who_is_not_over();
                self.oracle.fail(format!("the run does not end: {who}"));
            }
        }
    }

    fn check_standstill(&mut self) {
        let Some(within) = self.scenario.standstill_within else {
            return;
        };
        let still = self
            .standstills()
            .into_iter()
            .find(|(_, since)| u128::from(self.now - since) > within.as_millis());
        if let Some((node, since)) = still {
            let waited = self.now - since;
            self.oracle.fail(format!("{node} has a deadlock: for {waited} ms its tasks have waited for each other's memory"));
        }
    }

    fn happen(&mut self, thing: SimulationEvent) {
        match thing {
            SimulationEvent::Client(job, thing) => self.client_thing(job, thing),
            SimulationEvent::Manager(m, thing) => self.manager_thing(m, thing),
            SimulationEvent::Etcd(thing) => self.etcd_thing(thing),
            SimulationEvent::Call(number, thing) => self.search_thing(number, thing),
            SimulationEvent::Host(node, thing) => self.host_thing(&node, thing),
            SimulationEvent::Process(pid, thing) => self.process_thing(pid, thing),
            SimulationEvent::Executor(container, thing) => self.executor_thing(&container, thing),
            SimulationEvent::Tenant(n, thing) => self.tenant_thing(n, thing),
            SimulationEvent::Sitter(node, container) => self.sitter_done(&node, &container),
            SimulationEvent::Operator(thing) => self.operator_thing(thing),
            SimulationEvent::Views(thing) => self.views_thing(thing),
            SimulationEvent::Strike(fault) => self.strike(fault),
            SimulationEvent::Mended(node) => self.mended(&node),
            SimulationEvent::ManagerConnects(m, link) => self.manager_connects(m, link),
        }
    }

    fn everything_is_over(&self) -> bool {
        let apps = self
            .clients
            .iter()
            .all(|c| c.app.as_ref().is_some_and(|app| self.is_ended(app)));
        let tenants = self
            .tenants
            .iter()
            .all(|t| t.is_over() && t.app.as_ref().is_some_and(|app| self.is_ended(app)));
        apps && tenants && self.processes.is_empty() && self.is_calm()
    }

    fn who_is_not_over(&self) -> String {
        let apps = self
            .clients
            .iter()
            .filter(|c| !c.app.as_ref().is_some_and(|app| self.is_ended(app)));
        let apps: Vec<String> = apps.map(|c| self.describe_app(c)).collect();
        let over =
            |t: &&SimTenant| t.is_over() && t.app.as_ref().is_some_and(|app| self.is_ended(app));
        let tenants: Vec<String> = self
            .tenants
            .iter()
            .filter(|t| !over(t))
            .map(|t| self.describe_tenant(t))
            .collect();
        format!(
            "{apps:?}, {tenants:?}, {} masters run",
            self.processes.len()
        )
    }

    fn describe_tenant(&self, tenant: &SimTenant) -> String {
        let now = headroom_types::Tick(self.now);
        let why = tenant
            .app
            .as_ref()
            .and_then(|app| self.leading_cluster()?.why(app, now));
        format!("{}; {why:?}", tenant.describe())
    }

    fn describe_app(&self, client: &Client) -> String {
        let Some(app) = client.app.as_ref() else {
            return format!("{} was never accepted", client.job.spec.name);
        };
        let Some(cluster) = self.leading_cluster() else {
            return format!("{app} without a resource manager");
        };
        let Some(known) = cluster.app(app) else {
            return format!("{app} is not known");
        };
        let asks: Vec<String> = known
            .requests
            .iter()
            .map(|(id, r)| {
                format!(
                    "{id} count {} ended {} {:?}",
                    r.ask.count,
                    r.ask.ended,
                    known.tallies.get(id)
                )
            })
            .collect();
        let totals: Vec<String> = self
            .processes
            .values()
            .filter(|p| p.app == *app)
            .map(|p| format!("{:?}", p.core.totals()))
            .collect();
        format!(
            "{app} is {:?}, attempt {} {:?}, asks {asks:?}, {totals:?}",
            known.state, known.attempt, known.run
        )
    }

    /// Checks the final state: no object is left, and each job got its result.
    fn judge(&mut self) {
        for client in &self.clients {
            self.oracle.judge_job(client);
        }
        if self.managers.len() > 1
            && let Err(broken) = self.leadership.on_end(&self.etcd.store.state)
        {
            self.oracle.fail(broken);
        }
        let Some(cluster) = self.leading_cluster() else {
            return self.oracle.fail("the resource manager does not run");
        };
        let left: Vec<String> = cluster
            .containers()
            .map(|c| format!("{} {}", c.id, c.state.as_str()))
            .collect();
        let nodes = cluster.ledger().nodes();
        let booked = nodes.filter(|(_, account)| !account.allocated.memory.is_zero());
        let booked: Vec<String> = booked
            .map(|(id, account)| format!("{} on {id}", account.allocated))
            .collect();
        self.oracle.none_left("the resource manager", &left);
        self.oracle.none_left("the ledger", &booked);
        for (id, host) in &self.hosts {
            let has: Vec<String> = host
                .agent
                .containers()
                .map(|(c, s)| format!("{c} {}", s.state.name()))
                .collect();
            self.oracle.none_left(id.as_str(), &has);
            let lives: Vec<String> = host
                .cells
                .iter()
                .filter(|(_, c)| c.alive)
                .map(|(c, _)| c.to_string())
                .collect();
            self.oracle.none_left(&format!("the host {id}"), &lives);
        }
        let programs: Vec<String> = self
            .executors
            .keys()
            .chain(self.sitters.keys())
            .map(ToString::to_string)
            .collect();
        self.oracle.none_left("the set of programs", &programs);
    }
}
