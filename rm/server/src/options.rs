//! What the daemon is started with, from the command line and its configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use headroom_config::ResourceManagerConfig;
use headroom_types::StoreBackend;

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
    /// Directory for what must survive a restart
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Database the state is kept in: sled or redb
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreBackend>,
    /// Checks the configuration and ends
    #[arg(long)]
    pub check_config: bool,
}

/// What [`crate::start`] takes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it answers.
    pub listen: SocketAddr,
    /// Where it keeps what must survive.
    pub state: PathBuf,
    /// The database it keeps it in.
    pub store: StoreBackend,
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
}

impl Options {
    /// The defaults, at this place.
    pub fn new(listen: SocketAddr, state: PathBuf) -> Self {
        Options::from(ResourceManagerConfig { listen, state, ..ResourceManagerConfig::default() })
    }

    /// A configuration with what the command line says instead.
    pub fn with(mut config: ResourceManagerConfig, args: &Args) -> Self {
        config.listen = args.listen.unwrap_or(config.listen);
        if let Some(state) = &args.state {
            config.state.clone_from(state);
        }
        config.store = args.store.unwrap_or(config.store);
        Options::from(config)
    }

    pub(crate) fn settings(&self, clock: crate::clock::Clock) -> headroom_rm_core::Settings {
        headroom_rm_core::Settings {
            suspect: self.suspect,
            unreachable: self.unreachable,
            lost: self.lost,
            master_silence: self.master_silence,
            recovery_wait: self.recovery_wait,
            unix_at_zero: clock.unix_at_zero(),
            ..headroom_rm_core::Settings::default()
        }
    }
}

impl From<ResourceManagerConfig> for Options {
    fn from(config: ResourceManagerConfig) -> Self {
        let ResourceManagerConfig { listen, state, store, suspect, unreachable, lost, master_silence } = config;
        let recovery_wait = headroom_rm_core::Settings::default().recovery_wait;
        Options { listen, state, store, suspect, unreachable, lost, master_silence, recovery_wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_file() {
        let args = Args::parse_from(["resourcemanager", "--listen", "127.0.0.1:0", "--store", "redb"]);
        let options = Options::with(ResourceManagerConfig::default(), &args);
        assert_eq!((options.listen.port(), options.store), (0, StoreBackend::Redb));
        assert_eq!(options.state, ResourceManagerConfig::default().state);
    }
}
