//! A TLS listener with a self-signed certificate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Listens on a free port of this host.
pub(crate) struct TlsTestListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    pub(crate) port: u16,
}

impl TlsTestListener {
    /// Binds the listener. Returns it with its certificate, in PEM, for the name `localhost`.
    pub(crate) async fn bind() -> (TlsTestListener, String) {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the certificate belongs to the key");
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = tcp.local_addr().expect("address").port();
        (
            TlsTestListener {
                tcp,
                tls: TlsAcceptor::from(Arc::new(config)),
                port,
            },
            made.cert.pem(),
        )
    }
}

impl Listener for TlsTestListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    /// The next peer that completes a TLS handshake.
    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, peer) = self.tcp.accept().await.expect("accepts");
            if let Ok(Ok(secure)) = tokio::time::timeout(HANDSHAKE, self.tls.accept(stream)).await {
                return (secure, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
