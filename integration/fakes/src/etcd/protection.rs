//! Certificates and users of an etcd.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// The user with all permissions.
const ROOT: &str = "root:root";

/// The certificates in a directory, and whether clients must log in.
#[derive(Debug)]
pub(super) struct EtcdProtection {
    dir: PathBuf,
    logins: bool,
}

impl EtcdProtection {
    /// Creates an authority, a certificate of all members, and one of a client.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut authority = params(&[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca = authority.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority, key);
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        // A member is a client of itself too: its gateway calls it.
        for (holder, names) in [("member", names.as_slice()), ("client", &[])] {
            let key = KeyPair::generate()?;
            let certificate = params(names)?.signed_by(&key, &issuer)?;
            let dir = dir.join(holder);
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("ca.pem"), &ca)?;
            fs::write(dir.join("cert.pem"), certificate.pem())?;
            write_secret(&dir.join("key.pem"), &key.serialize_pem())?;
        }
        Ok(EtcdProtection {
            dir: dir.to_owned(),
            logins: false,
        })
    }

    /// From now on, `etcdctl` logs in.
    pub(super) fn require_logins(&mut self) {
        self.logins = true;
    }

    /// Directory of the client's certificate.
    pub(super) fn client(&self) -> PathBuf {
        self.dir.join("client")
    }

    /// A file with a login.
    pub(super) fn login(&self, user: &str, password: &str) -> Result<PathBuf> {
        let file = self.dir.join(format!("{user}-{password}"));
        write_secret(&file, &format!("{user}:{password}\n"))?;
        Ok(file)
    }

    /// Arguments of a member.
    pub(super) fn member_arguments(&self) -> Vec<String> {
        let file = |name: &str| self.dir.join("member").join(name).display().to_string();
        vec![
            "--client-cert-auth".into(),
            format!("--trusted-ca-file={}", file("ca.pem")),
            format!("--cert-file={}", file("cert.pem")),
            format!("--key-file={}", file("key.pem")),
        ]
    }

    /// Arguments of `etcdctl`.
    pub(super) fn client_arguments(&self) -> Vec<String> {
        let file = |name: &str| self.client().join(name).display().to_string();
        let mut arguments = vec![
            format!("--cacert={}", file("ca.pem")),
            format!("--cert={}", file("cert.pem")),
            format!("--key={}", file("key.pem")),
        ];
        if self.logins {
            arguments.push(format!("--user={ROOT}"));
        }
        arguments
    }
}

/// Arguments of `etcdctl` that create the users, of which `manager` may change the keys with this
/// prefix and `reader` may read them, and that require logins from then on.
pub(super) fn commands(prefix: &str) -> Vec<Vec<String>> {
    let below = format!("{prefix}/");
    let text = format!(
        "user add {ROOT}\nuser grant-role root root\n\
         role add writer\nrole grant-permission writer --prefix=true readwrite {below}\n\
         role add viewer\nrole grant-permission viewer --prefix=true read {below}\n\
         user add manager:manager\nuser grant-role manager writer\n\
         user add reader:reader\nuser grant-role reader viewer\nauth enable"
    );
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text.lines().map(words).collect()
}

/// A certificate without a common name, because the gateway of an etcd with users refuses clients
/// that have one.
fn params(names: &[String]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    let organization = DnType::OrganizationName;
    params.distinguished_name.push(organization, "Headroom");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

/// Writes a file that only its owner can read.
fn write_secret(file: &Path, text: &str) -> Result<()> {
    let mut options = fs::File::options();
    let opened = options.create(true).truncate(true).write(true).mode(0o600);
    let mut opened = opened
        .open(file)
        .with_context(|| file.display().to_string())?;
    Ok(opened.write_all(text.as_bytes())?)
}
