//! `rmctl ca` as a process: written files, their modes, and refused calls.

#![allow(missing_docs)] // tests are read, not imported

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use headroom_identity::tls::CertificatePaths;
use serde_json::Value;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn ca(dir: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
    command
        .current_dir(dir)
        .arg("ca")
        .args(args)
        .env_remove("HEADROOM_OUTPUT");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("runs");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
    Ran {
        code: status.code().expect("an exit code"),
        out: text(stdout),
        err: text(stderr),
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err))
}

#[test]
fn an_authority_issues_certificates_of_a_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = ca(dir.path(), &["init", "--name", "prod"]);
    assert!(
        made.code == 0
            && made.out.contains("role         authority")
            && made.err.contains("ca.key"),
        "{}{}",
        made.out,
        made.err
    );
    let mode = std::fs::metadata(dir.path().join("ca.key"))
        .expect("the key file exists")
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let manager = ca(
        dir.path(),
        &[
            "issue",
            "manager",
            "--at",
            "localhost",
            "--at",
            "127.0.0.1",
            "--out",
            "rm",
            "-o",
            "json",
        ],
    );
    assert_eq!(manager.code, 0, "{}", manager.err);
    let manager = &json(&manager)[0];
    assert_eq!(
        (manager["role"].as_str(), manager["names"][1].as_str()),
        (Some("manager"), Some("127.0.0.1"))
    );
    let at = |name: &str| dir.path().join(name);
    let files = CertificatePaths {
        ca: at("ca.pem"),
        cert: at("rm/manager.pem"),
        key: at("rm/manager.key"),
    };
    files
        .read()
        .expect("reads")
        .server()
        .expect("the files make a listener");

    let renewed = ca(
        dir.path(),
        &["renew", "rm/manager.pem", "--days", "700", "-o", "json"],
    );
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    let renewed = &json(&renewed)[0];
    assert!(
        renewed["until_ms"].as_u64() > manager["until_ms"].as_u64()
            && renewed["role"] == manager["role"]
    );
    files
        .read()
        .expect("reads")
        .server()
        .expect("the renewed certificate fits the key");

    let shown = ca(dir.path(), &["show", "ca.pem", "rm/manager.pem"]);
    assert!(
        shown.out.contains("CN=prod") && shown.out.contains("at           localhost, 127.0.0.1"),
        "{}",
        shown.out
    );
}

#[test]
fn existing_files_are_kept_and_errors_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let early = ca(dir.path(), &["issue", "user/alice"]);
    assert!(
        early.code == 3 && early.err.contains("rmctl ca init"),
        "{}",
        early.err
    );
    assert_eq!(ca(dir.path(), &["init"]).code, 0);
    let before = std::fs::read(dir.path().join("ca.key")).expect("reads");
    let again = ca(dir.path(), &["init"]);
    assert!(
        again.code == 4 && again.err.contains("ca.pem already exists"),
        "{}",
        again.err
    );
    assert_eq!(
        std::fs::read(dir.path().join("ca.key")).expect("reads"),
        before
    );

    let nowhere = ca(dir.path(), &["issue", "node/n1"]);
    assert!(
        nowhere.code == 2 && nowhere.err.contains("--at HOSTNAME"),
        "{}",
        nowhere.err
    );
    let refused = ca(dir.path(), &["issue", "root"]);
    assert!(
        refused.code == 2 && refused.err.contains("node/NAME"),
        "{}",
        refused.err
    );
    let odd = ca(dir.path(), &["issue", "node/n1", "--at", "a b"]);
    assert!(
        odd.code == 2 && odd.err.contains("neither a host name nor an address"),
        "{}",
        odd.err
    );
    let none = ca(dir.path(), &["show", "ca.key"]);
    assert!(
        none.code == 2 && none.err.contains("contains no certificate"),
        "{}",
        none.err
    );

    std::fs::set_permissions(
        dir.path().join("ca.key"),
        std::fs::Permissions::from_mode(0o644),
    )
    .expect("sets");
    let open = ca(dir.path(), &["issue", "user/alice"]);
    assert!(
        open.code == 2 && open.err.contains("chmod o-rwx"),
        "{}",
        open.err
    );
}
