//! Options of the daemon, from the command line and the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use headroom_config::{
    AnonymousAccess, FileProblem, ResourceManagerConfig, load, load_resourcemanager,
};
use headroom_rm_core::queue::QueueTree;
use headroom_types::StoreBackend;
use headroom_wire::v1::queues::QueueProblem;

use crate::http::listen::{BODY_TIME, HEADERS};
use crate::queues;

/// Longest interval between heartbeats that follows from the number of nodes, if another manager may
/// lead. A node learns that the leader is paused by a heartbeat without an answer.
const REPLICATED_HEARTBEAT: Duration = Duration::from_secs(3);

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "resourcemanager",
    version,
    about = "Keeps the state of a Headroom cluster and places its containers"
)]
pub struct ManagerArguments {
    /// Configuration file; without one, the defaults of the shipped sample apply
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Unix socket to listen on as well; its callers are authenticated by the kernel
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Directory of the state that survives a restart
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Database of the state: sled or redb
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreBackend>,
    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,
    /// End the lease in etcd that an ended process of this host left, and exit; for the service
    /// manager
    #[arg(long, conflicts_with = "check_config")]
    pub end_lease: bool,
    /// Report the start as one line of JSON, and exit at the end of standard input; for a parent
    /// process
    #[arg(long, hide = true)]
    pub attached: bool,
}

/// Options for [`crate::start`].
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Configuration, without the tree of queues.
    pub config: ResourceManagerConfig,
    /// Configured tree of queues; a tree that was set at run time overrides it.
    pub queues: QueueTree,
    /// Maximum time after a restart for which grants wait until all nodes have registered.
    pub recovery_wait: Duration,
    /// Timeout for the headers of a request.
    pub header_time: Duration,
    /// Timeout for the body of a request.
    pub body_time: Duration,
}

impl ManagerOptions {
    /// Default options with this address and state directory.
    pub fn new(listen: SocketAddr, state: PathBuf) -> Self {
        ManagerOptions::of(
            ResourceManagerConfig {
                listen,
                state,
                ..ResourceManagerConfig::default()
            },
            QueueTree::default(),
        )
    }

    /// Reads the file that the command line names. Flags of the command line override it.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn read(args: &ManagerArguments) -> Result<Self, Vec<FileProblem>> {
        let config = args
            .config
            .as_deref()
            .map(load_resourcemanager)
            .transpose()?
            .unwrap_or_default();
        ManagerOptions::with(config, args).map_err(|problems| {
            let path = args.config.clone().unwrap_or_default();
            let text = load::read(&path).unwrap_or_default();
            headroom_config::queues::locate_problems(&text, &path.display().to_string(), &problems)
        })
    }

    /// Combines a configuration with the command line, whose flags override it.
    ///
    /// # Errors
    /// All problems of the tree of queues as a whole.
    pub fn with(
        mut config: ResourceManagerConfig,
        args: &ManagerArguments,
    ) -> Result<Self, Vec<QueueProblem>> {
        config.listen = args.listen.unwrap_or(config.listen);
        config.socket = args.socket.clone().or(config.socket);
        if let Some(state) = &args.state {
            config.state.clone_from(state);
        }
        config.store = args.store.unwrap_or(config.store);
        let tree = config.queues.take().map_or_else(
            || Ok(QueueTree::default()),
            |spec| QueueTree::new(queues::tree(spec)),
        );
        let tree =
            tree.map_err(|problems| problems.iter().map(queues::found).collect::<Vec<_>>())?;
        Ok(ManagerOptions::of(config, tree))
    }

    fn of(config: ResourceManagerConfig, queues: QueueTree) -> Self {
        ManagerOptions {
            config,
            queues,
            recovery_wait: headroom_rm_core::ClusterSettings::default().recovery_wait,
            header_time: HEADERS,
            body_time: BODY_TIME,
        }
    }

    /// Applies the options that can change in a running daemon.
    pub(crate) fn take(&mut self, new: ManagerOptions) {
        self.queues = new.queues;
        let (config, new) = (&mut self.config, new.config);
        (config.log, config.events, config.audit) = (new.log, new.events, new.audit);
        (config.suspect, config.unreachable, config.lost) =
            (new.suspect, new.unreachable, new.lost);
        config.heartbeat = new.heartbeat;
        (config.master_silence, config.scheduling, config.history) =
            (new.master_silence, new.scheduling, new.history);
    }

    pub(crate) fn settings(
        &self,
        clock: crate::clock::ManagerClock,
    ) -> headroom_rm_core::ClusterSettings {
        let config = &self.config;
        headroom_rm_core::ClusterSettings {
            heartbeat: config.heartbeat,
            max_scaled_heartbeat: if config.etcd.is_used() {
                REPLICATED_HEARTBEAT
            } else {
                headroom_rm_core::ClusterSettings::default().max_scaled_heartbeat
            },
            suspect: config.suspect,
            unreachable: config.unreachable,
            lost: config.lost,
            master_silence: config.master_silence,
            recovery_wait: self.recovery_wait,
            unix_at_zero: clock.unix_at_zero(),
            queues: self.queues.clone(),
            reserve_after: config.scheduling.reserve_after,
            preempt_warning: config.scheduling.preempt_warning,
            preempt_every: config.scheduling.preempt_every,
            preempt_part: config.scheduling.preempt_part,
            keep_apps: usize::try_from(config.history.apps).unwrap_or(usize::MAX),
            keep_age: config.history.age,
            keep_containers: usize::try_from(config.history.containers).unwrap_or(usize::MAX),
            ..headroom_rm_core::ClusterSettings::default()
        }
    }
}

/// Checks that a listener beyond loopback requires TLS and authentication.
///
/// # Errors
/// The missing key, and its value.
pub(crate) fn require_secure_listener(
    config: &ResourceManagerConfig,
    listen: SocketAddr,
) -> anyhow::Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    anyhow::ensure!(
        config.tls.is_some(),
        "listen = \"{listen}\" is reachable from other hosts, but tls is not set; create a certificate with rmctl ca issue \
         manager and set its directory: tls = \"/etc/headroom/tls\", or listen on 127.0.0.1"
    );
    anyhow::ensure!(
        config.anonymous == AnonymousAccess::Nothing,
        "listen = \"{listen}\" is reachable from other hosts, and anonymous = \"{}\" admits unauthenticated callers; \
         set anonymous = \"nothing\", or listen on 127.0.0.1",
        config.anonymous.as_str()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_config::reference::{MANAGER_KEYS, TakesEffect};
    use headroom_config::testkit::{MANAGER_DOCUMENTATION, documented};

    #[test]
    fn the_command_line_overrides_the_file() {
        let args = ManagerArguments::parse_from([
            "resourcemanager",
            "--listen",
            "127.0.0.1:0",
            "--store",
            "redb",
        ]);
        let options = ManagerOptions::with(ResourceManagerConfig::default(), &args)
            .expect("a valid configuration");
        assert_eq!(
            (options.config.listen.port(), options.config.store),
            (0, StoreBackend::Redb)
        );
        assert_eq!(options.config.state, ResourceManagerConfig::default().state);
    }

    #[test]
    fn an_empty_file_gives_the_defaults_of_the_core() {
        let args = ManagerArguments::parse_from(["resourcemanager"]);
        let options = ManagerOptions::with(ResourceManagerConfig::default(), &args)
            .expect("a valid configuration");
        let (given, defaults) = (
            options.settings(crate::clock::ManagerClock::start()),
            headroom_rm_core::ClusterSettings::default(),
        );
        let all = |s: &headroom_rm_core::ClusterSettings| {
            (
                s.suspect,
                s.unreachable,
                s.lost,
                s.master_silence,
                s.recovery_wait,
            )
        };
        let scheduling = |s: &headroom_rm_core::ClusterSettings| {
            (
                s.reserve_after,
                s.preempt_warning,
                s.preempt_every,
                s.preempt_part,
            )
        };
        assert_eq!(
            (all(&given), scheduling(&given)),
            (all(&defaults), scheduling(&defaults))
        );
    }

    #[test]
    fn a_reload_applies_the_keys_that_the_reference_marks() {
        let usual = || {
            ManagerOptions::with(
                ResourceManagerConfig::default(),
                &ManagerArguments::parse_from(["resourcemanager"]),
            )
            .expect("valid")
        };
        for (key, documentation) in documented(MANAGER_KEYS, MANAGER_DOCUMENTATION) {
            for example in documentation.range.examples() {
                let (table, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
                let header = if table.is_empty() {
                    String::new()
                } else {
                    format!("[{table}]\n")
                };
                let config = headroom_config::compile::resourcemanager(
                    &format!("{header}{name} = {example}\n"),
                    "f",
                )
                .expect("valid");
                let new = ManagerOptions::of(config, QueueTree::default());
                assert_eq!(
                    (key.value)(&new.config).as_deref(),
                    Some(example),
                    "the value of {} is lost",
                    key.name
                );
                let mut options = usual();
                options.take(new);
                let taken = (key.value)(&options.config).as_deref() == Some(example);
                let same = (key.value)(&usual().config).as_deref() == Some(example);
                assert_eq!(
                    taken,
                    same || key.takes == TakesEffect::Reload,
                    "{} = {example}",
                    key.name
                );
            }
        }
    }

    #[test]
    fn guarantees_of_more_than_the_cluster_are_refused() {
        let args = ManagerArguments::parse_from(["resourcemanager"]);
        let spec = |text: &str| serde_json::from_str(text).expect("reads");
        let greedy =
            spec(r#"{"queues": {"a": {"guaranteed": "60%"}, "b": {"guaranteed": "60%"}}}"#);
        let config = ResourceManagerConfig {
            queues: Some(greedy),
            ..ResourceManagerConfig::default()
        };
        let problems = ManagerOptions::with(config, &args).expect_err("the guarantees are 120%");
        assert!(
            problems.iter().any(|p| p.key.contains("guaranteed")),
            "{problems:?}"
        );
        let fair = spec(r#"{"queues": {"a": {"guaranteed": "60%"}, "default": {}}}"#);
        let config = ResourceManagerConfig {
            queues: Some(fair),
            ..ResourceManagerConfig::default()
        };
        let options = ManagerOptions::with(config, &args).expect("a valid configuration");
        assert_eq!(options.queues.root().children.len(), 2);
    }
}
