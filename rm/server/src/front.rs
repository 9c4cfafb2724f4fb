//! The listeners while this manager waits for its election, and afterwards.

use std::time::Duration;

use axum::Router;
use headroom_config::ResourceManagerConfig;
use headroom_rm_store::etcd::EtcdEngine;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::ManagerClock;
use crate::http::limits::ConnectionLimits;
use crate::http::listeners::{TcpServerListener, UnixSocketListener};
use crate::http::switch::RouteSwitch;
use crate::http::{listen, standby};
use crate::manager_group::{ManagerGroup, Term};
use crate::notify;

/// The listeners, and how they serve.
pub(crate) struct Front {
    pub(crate) port: TcpServerListener,
    pub(crate) socket: Option<UnixSocketListener>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) header_time: Duration,
    pub(crate) closing: CancellationToken,
}

impl Front {
    /// Accepts connections, which are served as soon as there are routes.
    fn serve(self, routes: watch::Receiver<Option<Router>>) -> JoinHandle<()> {
        let limits = (self.limits, self.header_time);
        answer(routes, self.port, self.socket, limits, &self.closing)
    }
}

/// The listeners before this manager leads.
pub(crate) struct Server {
    routes: LeaderRoutes,
    server: JoinHandle<()>,
}

/// Where the routes of the leader go.
enum LeaderRoutes {
    /// Without an election, connections wait for them.
    Awaited(watch::Sender<Option<Router>>),
    /// They replace those of the standby.
    Standby(RouteSwitch),
}

impl Server {
    /// Serves as the leader from now on.
    pub(crate) fn lead(self, routes: Router) -> JoinHandle<()> {
        match self.routes {
            LeaderRoutes::Awaited(awaited) => drop(awaited.send_replace(Some(routes))),
            LeaderRoutes::Standby(switch) => switch.set(routes),
        }
        self.server
    }
}

/// A manager that leads, with or without an election.
pub(crate) struct Elected {
    pub(crate) server: Server,
    pub(crate) group: Option<ManagerGroup>,
    pub(crate) term: Option<Term>,
    /// The state in etcd.
    pub(crate) etcd: Option<EtcdEngine>,
}

/// Waits until this manager leads, and serves as a standby meanwhile. Without an election it leads
/// at once. `copies` are its routes for
/// the other managers.
pub(crate) async fn elect(
    config: &ResourceManagerConfig,
    url: &str,
    front: Front,
    copies: Router,
) -> anyhow::Result<Elected> {
    if !config.etcd.is_used() {
        let awaited = watch::Sender::new(None);
        let server = front.serve(awaited.subscribe());
        return Ok(Elected {
            server: Server {
                routes: LeaderRoutes::Awaited(awaited),
                server,
            },
            group: None,
            term: None,
            etcd: None,
        });
    }
    let group = ManagerGroup::new(config, url, ManagerClock::start())?;
    let switch = RouteSwitch::new(standby::router(group.clone(), copies));
    let server = front.serve(watch::Sender::new(Some(switch.router())).subscribe());
    notify::ready();
    let (term, etcd) = tokio::select! {
        won = group.lead() => won,
        never = notify::keep_standby() => match never {},
    };
    Ok(Elected {
        server: Server {
            routes: LeaderRoutes::Standby(switch),
            server,
        },
        group: Some(group),
        term: Some(term),
        etcd: Some(etcd),
    })
}

/// Serves both listeners until `closing`. Each has its own connection limits; `headers` is the
/// timeout for request headers.
fn answer(
    routes: watch::Receiver<Option<Router>>,
    port: TcpServerListener,
    socket: Option<UnixSocketListener>,
    (limits, headers): (ConnectionLimits, Duration),
    closing: &CancellationToken,
) -> JoinHandle<()> {
    let by_port = listen::serve(
        port,
        routes.clone(),
        limits.another(),
        headers,
        closing.clone(),
    );
    let Some(socket) = socket else {
        return tokio::spawn(by_port);
    };
    let by_socket = listen::serve(socket, routes, limits, headers, closing.clone());
    tokio::spawn(async move {
        tokio::join!(by_port, by_socket);
    })
}
