//! A TCP proxy that can hold all its traffic back, as a network partition does.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Proxies to several servers. Connections stay open while they are cut, without any byte passing.
#[derive(Debug)]
pub(super) struct CutProxy {
    urls: Vec<String>,
    cut: watch::Sender<bool>,
    _runtime: Runtime,
}

impl CutProxy {
    /// Starts one proxy for each URL of the form `http://ADDRESS:PORT`.
    pub(super) fn start(servers: &[String]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let cut = watch::Sender::new(false);
        let mut urls = Vec::new();
        for server in servers {
            let server: SocketAddr = server
                .strip_prefix("http://")
                .and_then(|address| address.parse().ok())
                .with_context(|| format!("{server} is not http://ADDRESS:PORT"))?;
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            urls.push(format!("http://{}", listener.local_addr()?));
            runtime.spawn(accept(listener, server, cut.subscribe()));
        }
        Ok(CutProxy {
            urls,
            cut,
            _runtime: runtime,
        })
    }

    /// URLs of the proxies, in the order of the servers.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Cuts all connections, or lets them continue.
    pub(super) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, cut: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connect(client, server, cut.clone()));
    }
}

async fn connect(client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::join!(
        pump(from_client, to_server, cut.clone()),
        pump(from_server, to_client, cut)
    );
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 || cut.wait_for(|cut| !cut).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
