//! A TCP proxy that can hold all its traffic back, as a network partition does, or end it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// What a proxy does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyState {
    /// Bytes pass.
    Open,
    /// Connections stay open, and no byte passes.
    Silent,
    /// Connections end, and new ones end at once.
    Broken,
}

/// Proxies to several servers.
#[derive(Debug)]
pub(super) struct CutProxy {
    urls: Vec<String>,
    state: watch::Sender<ProxyState>,
    _runtime: Runtime,
}

impl CutProxy {
    /// Starts one proxy for each URL of the form `SCHEME://ADDRESS:PORT`.
    pub(super) fn start(servers: &[String]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let state = watch::Sender::new(ProxyState::Open);
        let mut urls = Vec::new();
        for server in servers {
            let (scheme, server) = server
                .split_once("://")
                .and_then(|(scheme, address)| Some((scheme, address.parse().ok()?)))
                .with_context(|| format!("{server} is not SCHEME://ADDRESS:PORT"))?;
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            urls.push(format!("{scheme}://{}", listener.local_addr()?));
            runtime.spawn(accept(listener, server, state.subscribe()));
        }
        Ok(CutProxy {
            urls,
            state,
            _runtime: runtime,
        })
    }

    /// URLs of the proxies, in the order of the servers.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Changes all connections.
    pub(super) fn set(&self, state: ProxyState) {
        self.state.send_replace(state);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<ProxyState>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connect(client, server, state.clone()));
    }
}

async fn connect(client: TcpStream, server: SocketAddr, state: watch::Receiver<ProxyState>) {
    let mut broken = state.clone();
    let transfer = async {
        if !passes(&mut state.clone()).await {
            return;
        }
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        tokio::join!(
            pump(from_client, to_server, state.clone()),
            pump(from_server, to_client, state.clone())
        );
    };
    tokio::select! {
        () = transfer => {}
        _ = broken.wait_for(|state| *state == ProxyState::Broken) => {}
    }
}

/// Waits until bytes pass. False when the proxy ends.
async fn passes(state: &mut watch::Receiver<ProxyState>) -> bool {
    let open = state.wait_for(|state| *state == ProxyState::Open);
    open.await.is_ok()
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<ProxyState>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 || !passes(&mut state).await {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
