//! What the daemon is started with, from the command line and its configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use headroom_config::{
    Anonymous, HistoryBounds, Kept, Limits, LogLevel, Problem, ResourceManagerConfig, Scheduling, Telemetry, load,
    load_resourcemanager,
};
use headroom_rm_core::queue::spec::Tree;
use headroom_types::StoreBackend;
use headroom_wire::v1::queues::QueueProblem;

use crate::http::BODY_TIME;
use crate::http::listen::HEADERS;
use crate::queues;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "resourcemanager", version, about = "Keeps the state of a Headroom cluster and places its containers")]
pub struct Args {
    /// Configuration file. Without one, the defaults of the shipped sample hold
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where it answers; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// A socket of this host at which it answers too, and knows who calls
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Directory for what must survive a restart
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Database the state is kept in: sled or redb
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreBackend>,
    /// Checks the configuration and ends
    #[arg(long)]
    pub check_config: bool,
    /// Report the start as one line of JSON, and end when standard input ends: for a program that starts this one
    #[arg(long, hide = true)]
    pub attached: bool,
}

/// What [`crate::start`] takes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it answers.
    pub listen: SocketAddr,
    /// A socket of the host at which it answers too.
    pub socket: Option<PathBuf>,
    /// What those may who do not say who they are.
    pub anonymous: Anonymous,
    /// Directory of its certificate; it speaks plain HTTP without.
    pub tls: Option<PathBuf>,
    /// Directory of an authority that signs for hosts which join by a token.
    pub authority: Option<PathBuf>,
    /// Where it keeps what must survive.
    pub state: PathBuf,
    /// The database it keeps it in.
    pub store: StoreBackend,
    /// How much it says.
    pub log: LogLevel,
    /// Silence after which a node gets no more work.
    pub suspect: Duration,
    /// Silence after which a node is shown as unreachable.
    pub unreachable: Duration,
    /// Silence after which a node is given up.
    pub lost: Duration,
    /// Silence after which a master's attempt has failed.
    pub master_silence: Duration,
    /// After a restart: how long grants wait for nodes to come back.
    pub recovery_wait: Duration,
    /// When nodes are kept for those who wait, and containers taken back for them.
    pub scheduling: Scheduling,
    /// How much one caller may have.
    pub limits: Limits,
    /// What it tells of itself.
    pub telemetry: Telemetry,
    /// Where masters send the traces of their jobs.
    pub traces: Option<String>,
    /// How much of the event log is kept on the disk.
    pub events: Kept,
    /// How much is kept of who changed what.
    pub audit: Kept,
    /// How much is kept of what is over.
    pub history: HistoryBounds,
    /// The headers of a request have to be there by then.
    pub header_time: Duration,
    /// Its body has to be there by then.
    pub body_time: Duration,
    /// The configured tree of queues; one that was set at run time goes before it.
    pub queues: Tree,
}

impl Options {
    /// The defaults, at this place.
    pub fn new(listen: SocketAddr, state: PathBuf) -> Self {
        Options::of(ResourceManagerConfig { listen, state, ..ResourceManagerConfig::default() }, Tree::default())
    }

    /// What the file that the command line names says, with what the command line says instead.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn read(args: &Args) -> Result<Self, Vec<Problem>> {
        let config = args.config.as_deref().map(load_resourcemanager).transpose()?.unwrap_or_default();
        Options::with(config, args).map_err(|problems| {
            let path = args.config.clone().unwrap_or_default();
            let text = load::read(&path).unwrap_or_default();
            headroom_config::queues::at_their_places(&text, &path.display().to_string(), &problems)
        })
    }

    /// A configuration with what the command line says instead.
    ///
    /// # Errors
    /// Everything that is wrong with its tree of queues as a whole.
    pub fn with(mut config: ResourceManagerConfig, args: &Args) -> Result<Self, Vec<QueueProblem>> {
        config.listen = args.listen.unwrap_or(config.listen);
        config.socket = args.socket.clone().or(config.socket);
        if let Some(state) = &args.state {
            config.state.clone_from(state);
        }
        config.store = args.store.unwrap_or(config.store);
        let tree = config.queues.take().map_or_else(|| Ok(Tree::default()), |spec| Tree::new(queues::tree(spec)));
        let tree = tree.map_err(|problems| problems.iter().map(queues::found).collect::<Vec<_>>())?;
        Ok(Options::of(config, tree))
    }

    fn of(config: ResourceManagerConfig, queues: Tree) -> Self {
        let ResourceManagerConfig {
            listen,
            socket,
            anonymous,
            tls,
            authority,
            state,
            store,
            log,
            suspect,
            unreachable,
            lost,
            master_silence,
            ..
        } = config;
        let ResourceManagerConfig { scheduling, limits, telemetry, traces, events, audit, history, .. } = config;
        Options {
            listen,
            socket,
            anonymous,
            tls,
            authority,
            state,
            store,
            log,
            suspect,
            unreachable,
            lost,
            master_silence,
            recovery_wait: headroom_rm_core::Settings::default().recovery_wait,
            scheduling,
            limits,
            telemetry,
            traces,
            events,
            audit,
            history,
            header_time: HEADERS,
            body_time: BODY_TIME,
            queues,
        }
    }

    /// The configuration these come from, without the tree of queues.
    pub(crate) fn config(&self) -> ResourceManagerConfig {
        ResourceManagerConfig {
            listen: self.listen,
            socket: self.socket.clone(),
            anonymous: self.anonymous,
            tls: self.tls.clone(),
            authority: self.authority.clone(),
            state: self.state.clone(),
            store: self.store,
            log: self.log,
            suspect: self.suspect,
            unreachable: self.unreachable,
            lost: self.lost,
            master_silence: self.master_silence,
            scheduling: self.scheduling,
            limits: self.limits,
            telemetry: self.telemetry,
            traces: self.traces.clone(),
            events: self.events,
            audit: self.audit,
            history: self.history,
            queues: None,
        }
    }

    /// Beyond loopback nobody may come in who does not say who they are, and nobody may listen.
    ///
    /// # Errors
    /// What is missing, and what to write.
    pub fn refuse_what_is_open(&self, listen: SocketAddr) -> anyhow::Result<()> {
        if listen.ip().is_loopback() {
            return Ok(());
        }
        anyhow::ensure!(
            self.tls.is_some(),
            "listen = \"{listen}\" can be reached from other hosts, and nothing would be encrypted; make a certificate with rmctl ca \
             issue manager and name its directory: tls = \"/etc/headroom/tls\", or listen on 127.0.0.1"
        );
        anyhow::ensure!(
            self.anonymous == Anonymous::Nothing,
            "listen = \"{listen}\" can be reached from other hosts, and anonymous = \"{}\" lets those in who do not say who they are; \
             write anonymous = \"nothing\", or listen on 127.0.0.1",
            self.anonymous.as_str()
        );
        Ok(())
    }

    /// Takes over what a daemon that runs can take over.
    pub(crate) fn take(&mut self, new: Options) {
        let Options { log, suspect, unreachable, lost, master_silence, scheduling, events, audit, history, queues, .. } = new;
        (self.log, self.suspect, self.unreachable, self.lost) = (log, suspect, unreachable, lost);
        (self.master_silence, self.scheduling, self.history) = (master_silence, scheduling, history);
        (self.events, self.audit, self.queues) = (events, audit, queues);
    }

    pub(crate) fn settings(&self, clock: crate::clock::Clock) -> headroom_rm_core::Settings {
        let Scheduling { reserve_after, preempt_warning, preempt_every, preempt_part } = self.scheduling;
        headroom_rm_core::Settings {
            suspect: self.suspect,
            unreachable: self.unreachable,
            lost: self.lost,
            master_silence: self.master_silence,
            recovery_wait: self.recovery_wait,
            unix_at_zero: clock.unix_at_zero(),
            queues: self.queues.clone(),
            reserve_after,
            preempt_warning,
            preempt_every,
            preempt_part,
            keep_apps: usize::try_from(self.history.apps).unwrap_or(usize::MAX),
            keep_age: self.history.age,
            keep_containers: usize::try_from(self.history.containers).unwrap_or(usize::MAX),
            ..headroom_rm_core::Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_config::reference::{self, Takes};

    #[test]
    fn the_command_line_goes_before_the_file() {
        let args = Args::parse_from(["resourcemanager", "--listen", "127.0.0.1:0", "--store", "redb"]);
        let options = Options::with(ResourceManagerConfig::default(), &args).expect("right");
        assert_eq!((options.listen.port(), options.store), (0, StoreBackend::Redb));
        assert_eq!(options.state, ResourceManagerConfig::default().state);
    }

    #[test]
    fn an_empty_file_means_what_the_core_does_by_itself() {
        let args = Args::parse_from(["resourcemanager"]);
        let options = Options::with(ResourceManagerConfig::default(), &args).expect("right");
        let (told, usual) = (options.settings(crate::clock::Clock::start()), headroom_rm_core::Settings::default());
        let all = |s: &headroom_rm_core::Settings| (s.suspect, s.unreachable, s.lost, s.master_silence, s.recovery_wait);
        let scheduling = |s: &headroom_rm_core::Settings| (s.reserve_after, s.preempt_warning, s.preempt_every, s.preempt_part);
        assert_eq!((all(&told), scheduling(&told)), (all(&usual), scheduling(&usual)));
    }

    #[test]
    fn what_is_taken_over_while_it_runs_are_the_keys_that_the_reference_says() {
        let usual = || Options::with(ResourceManagerConfig::default(), &Args::parse_from(["resourcemanager"])).expect("right");
        for key in reference::MANAGER {
            for example in key.range.examples() {
                let (table, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
                let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
                let config =
                    headroom_config::compile::resourcemanager(&format!("{header}{name} = {example}\n"), "f").expect("right");
                let new = Options::of(config, Tree::default());
                assert_eq!((key.value)(&new.config()).as_deref(), Some(example), "{} gets lost", key.name);
                let mut options = usual();
                options.take(new);
                let taken = (key.value)(&options.config()).as_deref() == Some(example);
                let same = (key.value)(&usual().config()).as_deref() == Some(example);
                assert_eq!(taken, same || key.takes == Takes::Reload, "{} = {example}", key.name);
            }
        }
    }

    #[test]
    fn queues_that_promise_more_than_there_is_are_refused() {
        let args = Args::parse_from(["resourcemanager"]);
        let spec = |text: &str| serde_json::from_str(text).expect("reads");
        let greedy = spec(r#"{"queues": {"a": {"guaranteed": "60%"}, "b": {"guaranteed": "60%"}}}"#);
        let config = ResourceManagerConfig { queues: Some(greedy), ..ResourceManagerConfig::default() };
        let problems = Options::with(config, &args).expect_err("120%");
        assert!(problems.iter().any(|p| p.key.contains("guaranteed")), "{problems:?}");
        let fair = spec(r#"{"queues": {"a": {"guaranteed": "60%"}, "default": {}}}"#);
        let config = ResourceManagerConfig { queues: Some(fair), ..ResourceManagerConfig::default() };
        let options = Options::with(config, &args).expect("right");
        assert_eq!(options.queues.root().children.len(), 2);
    }
}
