//! The listener: plain HTTP on loopback, TLS with client certificates for other hosts. Every
//! connection has time and number limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headroom_identity::CertificateRole;
use headroom_telemetry::names::{NODE_CALLS_REFUSED, NODE_CONNECTIONS_REFUSED};
use headroom_telemetry::{MetricsPage, RejectedConnections, RejectionReason};
use headroom_transport::{
    ConnectionLimiter, ConnectionPermit, LoopbackPolicy, PeerIdentity, ReloadingKeys,
    accept_handshake,
};
use headroom_wire::v1::error::ErrorCode;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use super::refusal::refuse;

/// Maximum number of connections.
const CONNECTIONS: usize = 1024;
/// Maximum number of connections from one remote address.
const MAX_CONNECTIONS_PER_IP: u32 = 256;
/// Maximum number of connections without a client certificate where one is required. Such callers
/// may only query liveness.
const MAX_UNAUTHENTICATED: usize = 64;
/// Time limit for the headers of a request, and for an idle connection between two requests. It is
/// longer than the resource manager keeps its connections, so that the resource manager closes
/// first.
const HEADER_TIMEOUT: Duration = Duration::from_secs(100);
/// The same for callers without a client certificate.
const UNAUTHENTICATED_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait after a failed accept, such as one without free file descriptors.
const RECOVER: Duration = Duration::from_millis(200);

/// A listener that authenticates its callers.
#[derive(Debug)]
pub(crate) struct NodeListener {
    listener: TcpListener,
    keys: Option<Arc<ReloadingKeys>>,
    /// Time limit for headers.
    headers: Duration,
    peers: Arc<ConnectionLimiter>,
    refusals: Arc<RefusalCounts>,
}

/// Counts of rejected connections and refused calls.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    connections: RejectedConnections,
    /// Calls without authentication.
    unknown: AtomicU64,
    /// Calls without permission.
    forbidden: AtomicU64,
}

impl RefusalCounts {
    /// Adds the counts to a metrics page.
    pub(crate) fn put(&self, page: &mut MetricsPage) {
        self.connections.put(page, &NODE_CONNECTIONS_REFUSED);
        for (code, count) in [
            (ErrorCode::HR0401, &self.unknown),
            (ErrorCode::HR0403, &self.forbidden),
        ] {
            page.count(
                &NODE_CALLS_REFUSED,
                &[&code.to_string()],
                count.load(Ordering::Relaxed),
            );
        }
    }
}

/// The caller of a connection, and its address.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedCaller {
    caller: PeerIdentity,
    peer: SocketAddr,
}

/// The permits of one accepted connection, released when it ends.
struct ConnectionPermits {
    strangers: Arc<Semaphore>,
    _present: ConnectionPermit,
    _place: OwnedSemaphorePermit,
}

impl NodeListener {
    pub(crate) fn new(listener: TcpListener, keys: Option<Arc<ReloadingKeys>>) -> Self {
        NodeListener {
            listener,
            keys,
            headers: HEADER_TIMEOUT,
            peers: ConnectionLimiter::new(MAX_CONNECTIONS_PER_IP, LoopbackPolicy::Free),
            refusals: Arc::default(),
        }
    }

    /// The counts of rejected connections and calls.
    pub(crate) fn refusals(&self) -> &Arc<RefusalCounts> {
        &self.refusals
    }

    /// Accepts connections until the future is dropped. Each handshake runs in a task of its own.
    pub(crate) async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let strangers = Arc::new(Semaphore::new(MAX_UNAUTHENTICATED));
        while let Ok(place) = places.clone().acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(present) = self.peers.acquire(peer.ip()) else {
                        let open = format_args!("{} connections are open", self.peers.most());
                        self.refusals.connections.record_rejection(
                            peer.ip(),
                            RejectionReason::PerIpLimit,
                            &open,
                        );
                        continue;
                    };
                    let inside = ConnectionPermits {
                        strangers: strangers.clone(),
                        _present: present,
                        _place: place,
                    };
                    let visit = NodeConnection {
                        inside,
                        peer,
                        keys: self.keys.clone(),
                        headers: self.headers,
                        refusals: self.refusals.clone(),
                    };
                    let router = router.clone();
                    tokio::spawn(async move {
                        if let Err(error) = visit.serve_http(stream, router).await {
                            debug!(%peer, %error, "a connection ended with an error");
                        }
                    });
                }
                Err(error) => {
                    warn!(%error, "a connection could not be accepted; the listener continues");
                    tokio::time::sleep(RECOVER).await;
                }
            }
        }
    }
}

/// One connection from its first byte to its last.
struct NodeConnection {
    inside: ConnectionPermits,
    peer: SocketAddr,
    keys: Option<Arc<ReloadingKeys>>,
    headers: Duration,
    refusals: Arc<RefusalCounts>,
}

impl NodeConnection {
    async fn serve_http(self, stream: TcpStream, router: Router) -> io::Result<()> {
        let _ = stream.set_nodelay(true); // on failure only latency suffers
        let away = |why, error: io::Error| {
            self.refusals
                .connections
                .record_rejection(self.peer.ip(), why, &error);
            error
        };
        let greeted = accept_handshake(stream, self.keys.as_ref().map(|keys| keys.server())).await;
        let (stream, caller) =
            greeted.map_err(|error| away(RejectionReason::HandshakeFailed, error))?;
        let stranger = match caller {
            PeerIdentity::Nobody => {
                let strangers = self.inside.strangers.clone().try_acquire_owned();
                let full = || {
                    io::Error::other(format!(
                        "{MAX_UNAUTHENTICATED} callers without a certificate are connected"
                    ))
                };
                Some(strangers.map_err(|_| away(RejectionReason::UnauthenticatedLimit, full()))?)
            }
            PeerIdentity::Unasked | PeerIdentity::Known(_) => None,
        };
        let headers = if stranger.is_some() {
            self.headers.min(UNAUTHENTICATED_HEADER_TIMEOUT)
        } else {
            self.headers
        };
        let guest = ConnectInfo(ConnectedCaller {
            caller,
            peer: self.peer,
        });
        let routes = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(guest.clone());
            routes.call(request)
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(headers);
        http.serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(io::Error::other)
    }
}

/// Checks permissions: the resource manager may call all routes, users only the routes about the
/// node itself. Without authentication all callers may call all routes.
pub(crate) async fn guard(
    ConnectInfo(guest): ConnectInfo<ConnectedCaller>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let of_the_node = matches!(path, "/livez" | "/metrics" | "/v1/doctor");
    let (code, why) = match &guest.caller {
        PeerIdentity::Unasked | PeerIdentity::Known(CertificateRole::Manager) => {
            return next.run(request).await;
        }
        PeerIdentity::Known(CertificateRole::User(_)) if of_the_node => {
            return next.run(request).await;
        }
        PeerIdentity::Known(CertificateRole::Node(_)) | PeerIdentity::Nobody
            if path == "/livez" =>
        {
            return next.run(request).await;
        }
        PeerIdentity::Known(role) => (
            ErrorCode::HR0403,
            format!("{role} may not make this call; call the resource manager"),
        ),
        PeerIdentity::Nobody => (
            ErrorCode::HR0401,
            "this call requires a client certificate".to_owned(),
        ),
    };
    warn!(peer = %guest.peer, path, why, "a call was refused");
    refuse(code, why).into_response()
}

/// Counts calls that were refused with 401 or 403, by any layer.
pub(crate) async fn count(
    State(refusals): State<Arc<RefusalCounts>>,
    request: Request,
    next: Next,
) -> Response {
    let answer = next.run(request).await;
    match answer.status() {
        StatusCode::UNAUTHORIZED => refusals.unknown.fetch_add(1, Ordering::Relaxed),
        StatusCode::FORBIDDEN => refusals.forbidden.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use headroom_identity::authority::{self, Authority, CertificateRequest};
    use headroom_identity::files::{self, FileReaders, OverwritePolicy};
    use headroom_identity::tls::PeerExpectation;
    use headroom_transport::CertificateFiles;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::{Instant, timeout};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    const SOON: Duration = Duration::from_secs(30);

    /// A listener with a short header timeout, and its address.
    async fn node_listener(headers: Duration) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let node_listener = NodeListener {
            headers,
            ..NodeListener::new(listener, None)
        };
        let router = Router::new().route("/", get(|| async { "well" }));
        (address, tokio::spawn(node_listener.serve(router)))
    }

    async fn asked(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
            .await
            .expect("writes");
        let mut text = String::new();
        timeout(SOON, stream.read_to_string(&mut text))
            .await
            .expect("an answer")
            .expect("reads");
        text
    }

    /// Each client sends one header byte at a time, without end.
    #[tokio::test]
    async fn slow_headers_time_out_without_blocking_others() {
        let (address, serving) = node_listener(Duration::from_millis(500)).await;
        let mut dripping = Vec::new();
        for _ in 0..50 {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            dripping.push(tokio::spawn(async move {
                let from = Instant::now();
                for byte in b"GET / HTTP/1.1\r\nx: "
                    .iter()
                    .chain(std::iter::repeat(&b'a'))
                {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                from.elapsed()
            }));
        }
        assert!(asked(address).await.ends_with("well"));
        for drip in dripping {
            timeout(SOON, drip)
                .await
                .expect("the connection is closed")
                .expect("ends");
        }
        assert!(asked(address).await.ends_with("well"));
        serving.abort();
    }

    /// Connections that send nothing occupy permits and release them.
    #[tokio::test]
    async fn silent_connections_are_closed_in_time() {
        let (address, serving) = node_listener(Duration::from_millis(500)).await;
        let mut silent = TcpStream::connect(address).await.expect("connects");
        let mut text = Vec::new();
        timeout(SOON, silent.read_to_end(&mut text))
            .await
            .expect("the connection is closed")
            .expect("reads");
        assert!(asked(address).await.ends_with("well"));
        serving.abort();
    }

    /// Certificates of one authority for a resource manager and a node, each in its own directory.
    fn papers(dir: &std::path::Path) {
        let since = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("a clock");
        let now = headroom_types::UnixMillis(u64::try_from(since.as_millis()).expect("a time"));
        let lifetime = Duration::from_secs(86_400);
        let made = authority::create("test", now, lifetime).expect("an authority");
        let ca = Authority::open(&made.certificate, &made.key).expect("opens");
        for role in ["manager", "node/n1"] {
            let names = ["127.0.0.1".to_owned()];
            let wanted = CertificateRequest {
                role: role.parse().expect("a role"),
                names: &names,
                now,
                lifetime,
            };
            let issued = ca.issue(&wanted).expect("issued");
            let at = dir.join(role.replace('/', "-"));
            std::fs::create_dir_all(&at).expect("a directory");
            let all = [
                ("ca.pem", &made.certificate),
                ("cert.pem", &issued.certificate),
                ("key.pem", &issued.key),
            ];
            for (name, text) in all {
                files::write(
                    &at.join(name),
                    text,
                    FileReaders::Owner,
                    OverwritePolicy::Keep,
                )
                .expect("writes");
            }
        }
    }

    async fn shake(address: SocketAddr, files: &CertificateFiles) -> TlsStream<TcpStream> {
        let config = Arc::new(
            files
                .client(PeerExpectation::Node)
                .expect("the caller's files"),
        );
        let stream = TcpStream::connect(address).await.expect("connects");
        let name = "127.0.0.1".try_into().expect("a name");
        TlsConnector::from(config)
            .connect(name, stream)
            .await
            .expect("a handshake")
    }

    /// Callers without a certificate use no permits of authenticated callers, and have a short time
    /// limit.
    #[tokio::test]
    async fn unauthenticated_connections_have_low_limits() {
        let dir = tempfile::tempdir().expect("a directory");
        papers(dir.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let keys = ReloadingKeys::open(&dir.path().join("node-n1")).expect("opens");
        let node_listener = NodeListener::new(listener, Some(Arc::new(keys)));
        let refusals = node_listener.refusals().clone();
        let serving =
            tokio::spawn(node_listener.serve(Router::new().route("/", get(|| async { "well" }))));
        let manager = CertificateFiles::of(&dir.path().join("manager"));
        let no_keys = CertificateFiles {
            own: None,
            ..manager.clone()
        };
        let mut silent = Vec::new();
        for _ in 0..=MAX_UNAUTHENTICATED {
            silent.push(shake(address, &no_keys).await);
        }
        let mut known = shake(address, &manager).await;
        known
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
            .await
            .expect("writes");
        let mut text = String::new();
        timeout(SOON, known.read_to_string(&mut text))
            .await
            .expect("an answer")
            .expect("reads");
        assert!(text.ends_with("well"), "{text}");
        for mut one in silent {
            let mut said = Vec::new();
            // Closed with or without a response, such as 408.
            let _ = timeout(SOON, one.read_to_end(&mut said))
                .await
                .expect("the connection is closed");
            assert!(!String::from_utf8_lossy(&said).contains("well"));
        }
        let mut page = MetricsPage::new();
        refusals.put(&mut page);
        let page = page.write(headroom_telemetry::ExpositionFormat::Text);
        assert!(
            page.contains(
                "headroom_node_connections_refused_total{reason=\"unauthenticated_limit\"} 1.0\n"
            ),
            "{page}"
        );
        serving.abort();
    }

    /// An address at its limit is disconnected. Its permits are free again after its connections
    /// close.
    #[tokio::test]
    async fn connections_of_one_address_are_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let peers = ConnectionLimiter::new(2, LoopbackPolicy::Counted);
        let node_listener = NodeListener {
            peers: peers.clone(),
            ..NodeListener::new(listener, None)
        };
        let refusals = node_listener.refusals().clone();
        let serving =
            tokio::spawn(node_listener.serve(Router::new().route("/", get(|| async { "well" }))));
        let mut inside = Vec::new();
        for _ in 0..2 {
            inside.push(TcpStream::connect(address).await.expect("connects"));
        }
        let mut third = TcpStream::connect(address).await.expect("connects");
        let mut said = Vec::new();
        let _ = timeout(SOON, third.read_to_end(&mut said))
            .await
            .expect("the connection is closed"); // a reset counts as closed
        assert!(said.is_empty());
        let mut page = MetricsPage::new();
        refusals.put(&mut page);
        let page = page.write(headroom_telemetry::ExpositionFormat::Text);
        assert!(
            page.contains("headroom_node_connections_refused_total{reason=\"per_ip_limit\"} 1.0\n"),
            "{page}"
        );
        drop(inside);
        let gone = async {
            while peers.addresses() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, gone).await.expect("the permits are free");
        assert!(asked(address).await.ends_with("well"));
        serving.abort();
    }
}
