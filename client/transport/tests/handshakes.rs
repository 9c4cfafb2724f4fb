//! Handshakes over a real socket: accepted and rejected peers, and changes of certificate files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headroom_identity::authority::{self, CertificateRequest};
use headroom_identity::files::{self, FileReaders, OverwritePolicy};
use headroom_identity::tls::PeerExpectation;
use headroom_identity::{Authority, CertificateRole};
use headroom_transport::{
    CertificateFiles, ListenerIdentity, PeerIdentity, ReloadingKeys, accept_handshake, connect,
};
use headroom_types::UnixMillis;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn now() -> UnixMillis {
    let since = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a clock");
    UnixMillis(u64::try_from(since.as_millis()).expect("a time"))
}

struct Ca {
    certificate: String,
    authority: Authority,
}

fn ca() -> Ca {
    let made = authority::create("test", now(), YEAR).expect("an authority");
    let authority = Authority::open(&made.certificate, &made.key).expect("opens");
    Ca {
        certificate: made.certificate,
        authority,
    }
}

impl Ca {
    fn dir(&self, dir: &Path, role: &str) {
        self.dir_of(dir, role, now());
    }

    /// Writes a certificate that is valid for one year from `given`.
    fn dir_of(&self, dir: &Path, role: &str, given: UnixMillis) {
        let names = ["127.0.0.1".to_owned()];
        let wanted = CertificateRequest {
            role: role.parse().expect("a role"),
            names: &names,
            now: given,
            lifetime: YEAR,
        };
        let issued = self.authority.issue(&wanted).expect("issued");
        std::fs::create_dir_all(dir).expect("a directory");
        files::write(
            &dir.join("ca.pem"),
            &self.certificate,
            FileReaders::All,
            OverwritePolicy::Replace,
        )
        .expect("writes");
        files::write(
            &dir.join("cert.pem"),
            &issued.certificate,
            FileReaders::All,
            OverwritePolicy::Replace,
        )
        .expect("writes");
        files::write(
            &dir.join("key.pem"),
            &issued.key,
            FileReaders::Owner,
            OverwritePolicy::Replace,
        )
        .expect("writes");
    }
}

/// Makes one connection from `client` to `server`. Returns the peer as the server sees it, or the
/// error of either side.
async fn meet(
    server: &ReloadingKeys,
    client: &CertificateFiles,
    expect: PeerExpectation,
) -> Result<PeerIdentity, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let config = Arc::new(client.client(expect).expect("the caller's files"));
    let call = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        let mut said = [0; 2];
        stream.read_exact(&mut said).await?;
        Ok::<_, io::Error>(said)
    };
    let take = async {
        let (stream, _) = listener.accept().await?;
        let (mut stream, caller) = accept_handshake(stream, Some(server.server())).await?;
        stream.write_all(b"ok").await?;
        stream.shutdown().await?;
        Ok::<_, io::Error>(caller)
    };
    let (called, taken) = tokio::join!(call, take);
    let caller = taken.map_err(|e| e.to_string())?;
    called.map_err(|e| e.to_string())?;
    Ok(caller)
}

#[tokio::test]
async fn both_peers_authenticate() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, theirs, at) = (ca(), ca(), |name: &str| dir.path().join(name));
    ours.dir(&at("rm"), "manager");
    ours.dir(&at("n1"), "node/n1");
    theirs.dir(&at("evil"), "node/n1");
    let manager = ReloadingKeys::open(&at("rm")).expect("opens");
    let n1 = CertificateFiles::of(&at("n1"));
    let node: CertificateRole = "node/n1".parse().expect("a role");
    assert_eq!(
        meet(&manager, &n1, PeerExpectation::Manager).await,
        Ok(PeerIdentity::Known(node))
    );
    let no_keys = CertificateFiles {
        own: None,
        ..n1.clone()
    };
    assert_eq!(
        meet(&manager, &no_keys, PeerExpectation::Manager).await,
        Ok(PeerIdentity::Nobody)
    );
    meet(
        &manager,
        &CertificateFiles::of(&at("evil")),
        PeerExpectation::Manager,
    )
    .await
    .expect_err("signed by another authority");
    let mixed = CertificateFiles {
        ca: n1.ca.clone(),
        ..CertificateFiles::of(&at("evil"))
    };
    meet(&manager, &mixed, PeerExpectation::Manager)
        .await
        .expect_err("the own certificate is of another authority");
    let node = ReloadingKeys::open(&at("n1")).expect("opens");
    meet(
        &node,
        &CertificateFiles::of(&at("rm")),
        PeerExpectation::Manager,
    )
    .await
    .expect_err("a node instead of the manager");
    let manager = "manager".parse().expect("a role");
    assert_eq!(
        meet(
            &node,
            &CertificateFiles::of(&at("rm")),
            PeerExpectation::Node
        )
        .await,
        Ok(PeerIdentity::Known(manager))
    );
}

/// A wrong clock at the other end has the same effect as such a certificate.
#[tokio::test]
async fn an_expired_or_not_yet_valid_certificate_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, at) = (ca(), |name: &str| dir.path().join(name));
    let millis = |time: Duration| u64::try_from(time.as_millis()).expect("small");
    let (old, hour) = (
        UnixMillis(now().0 - 2 * millis(YEAR)),
        UnixMillis(now().0 + millis(Duration::from_secs(3600))),
    );
    ours.dir(&at("rm"), "manager");
    ours.dir(&at("n1"), "node/n1");
    ours.dir_of(&at("late"), "node/n1", old);
    ours.dir_of(&at("early"), "node/n1", hour);
    ours.dir_of(&at("late-rm"), "manager", old);
    ours.dir_of(&at("early-rm"), "manager", hour);
    let (good, node) = (
        ReloadingKeys::open(&at("rm")).expect("opens"),
        CertificateFiles::of(&at("n1")),
    );
    assert!(meet(&good, &node, PeerExpectation::Manager).await.is_ok());
    for (name, says) in [("late", "expired"), ("early", "not valid yet")] {
        let refused = meet(
            &good,
            &CertificateFiles::of(&at(name)),
            PeerExpectation::Manager,
        )
        .await
        .expect_err(name);
        assert!(refused.contains(says), "{refused}");
        let server = ReloadingKeys::open(&at(&format!("{name}-rm"))).expect("opens");
        assert!(
            meet(&server, &node, PeerExpectation::Manager)
                .await
                .is_err(),
            "{name}: the client refuses it too"
        );
    }
}

#[tokio::test]
async fn changed_files_apply_at_once_and_invalid_files_do_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, at) = (ca(), |name: &str| dir.path().join(name));
    ours.dir(&at("rm"), "manager");
    ours.dir(&at("n1"), "node/n1");
    let keys = ReloadingKeys::open(&at("rm")).expect("opens");
    let first = keys.facts().serial;
    std::fs::write(at("rm").join("cert.pem"), "half a certifi").expect("writes");
    keys.reread();
    assert_eq!(
        keys.facts().serial,
        first,
        "an invalid certificate is not used"
    );
    meet(
        &keys,
        &CertificateFiles::of(&at("n1")),
        PeerExpectation::Manager,
    )
    .await
    .expect("still good");
    ours.dir(&at("rm"), "manager");
    keys.reread();
    assert_ne!(keys.facts().serial, first);
    assert_eq!(keys.identity().1, 2);
    meet(
        &keys,
        &CertificateFiles::of(&at("n1")),
        PeerExpectation::Manager,
    )
    .await
    .expect("the new certificate is active");
}

#[tokio::test]
async fn a_plaintext_client_gets_an_error_message() {
    let dir = tempfile::tempdir().expect("a directory");
    ca().dir(dir.path(), "manager");
    let keys = ReloadingKeys::open(dir.path()).expect("opens");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let call = async {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .expect("sends");
        let mut answer = Vec::new();
        // The server closes the connection with unread data; its response may still arrive.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text")
    };
    let take = async {
        accept_handshake(
            listener.accept().await.expect("comes").0,
            Some(keys.server()),
        )
        .await
        .map(|_| ())
    };
    let (answer, taken) = tokio::join!(call, take);
    taken.expect_err("is disconnected");
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("write https://"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_master_is_authenticated_by_its_pin() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("channel.pem");
    let lock = ListenerIdentity::at(&path).expect("made");
    assert_eq!(
        ListenerIdentity::at(&path).expect("is there").pin,
        lock.pin,
        "a restart keeps the pin"
    );
    let stranger = ListenerIdentity::at(&dir.path().join("other.pem")).expect("made");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = lock.server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok((mut stream, _)) = accept_handshake(stream, Some(server.clone())).await else {
                continue;
            };
            let _ = stream.write_all(b"hello").await;
            let _ = stream.shutdown().await;
        }
    });
    let mut line = connect(&address, Some(lock.pin))
        .await
        .expect("the pin matches");
    let mut said = String::new();
    line.read_to_string(&mut said).await.expect("reads");
    assert_eq!(said, "hello");
    connect(&address, Some(stranger.pin))
        .await
        .map(|_| ())
        .expect_err("the pin of another master");
}
