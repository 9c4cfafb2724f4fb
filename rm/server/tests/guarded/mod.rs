//! A resource manager that authenticates callers, with clients over TCP and over its Unix socket, and
//! calls of another user of the host.

#![allow(dead_code)] // each test file uses only a part

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_client::{Client, ClientError};
use headroom_config::AnonymousAccess;
use headroom_rm_server::{ManagerOptions, RunningManager, start};
use headroom_wire::v1::error::ErrorCode;

/// User id of the unprivileged user on Debian, without rights of its own.
const NOBODY: u32 = 65_534;

pub(crate) struct Guarded {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) port: Client,
    pub(crate) by_socket: Client,
    pub(crate) running: RunningManager,
}

pub(crate) async fn guarded(anonymous: AnonymousAccess) -> Guarded {
    let dir = tempfile::tempdir().expect("a directory");
    // Other users must be able to reach the socket.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("sets");
    let socket = dir.path().join("run/rm.sock");
    let mut options = ManagerOptions::new(
        "127.0.0.1:0".parse().expect("address"),
        dir.path().join("state"),
    );
    (options.config.socket, options.config.anonymous) = (Some(socket.clone()), anonymous);
    let running = start(options).await.expect("starts");
    let port = Client::new(&running.url).expect("address");
    let by_socket = Client::new(&format!("unix:{}", socket.display())).expect("address");
    Guarded {
        dir,
        socket,
        port,
        by_socket,
        running,
    }
}

pub(crate) fn code(error: &ClientError) -> Option<ErrorCode> {
    error.code()
}

/// One call over the socket as another user of this host. Returns the status and the body.
pub(crate) fn as_nobody(socket: &Path, method: &str, path: &str, body: &str) -> (u16, String) {
    let script = r#"
import http.client, socket, sys
place, method, path, body = sys.argv[1:5]
class Host(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(place)
call = Host("localhost")
call.request(method, path, body or None, {"content-type": "application/json"})
answer = call.getresponse()
print(answer.status, answer.read().decode(), sep="\n")
"#;
    let mut python = Command::new("python3");
    python
        .args(["-c", script])
        .arg(socket)
        .args([method, path, body])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let ran = python.output().expect("python3 runs");
    let text = String::from_utf8(ran.stdout).expect("text");
    let (status, body) = text
        .split_once('\n')
        .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ran.stderr)));
    (status.parse().expect("a status"), body.to_owned())
}
