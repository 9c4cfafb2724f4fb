//! `rmctl ca`: an authority for one cluster, without openssl. Works on files only and sends
//! nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_identity::authority::{self, AuthorityError, CertificateRequest};
use headroom_identity::files::{self, FileError, FileReaders, OverwritePolicy};
use headroom_identity::{Authority, Certificate, IssuedCertificate, Role};

use crate::args::{CaIssue, CaPlace, CaVerb};
use crate::certificate::Shown;
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::ca as screen;
use crate::render::json::MachineOutput;

const DAY: Duration = Duration::from_secs(86_400);

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let exit = match &error {
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Exit::NotFound
            }
            FileError::There { .. } => Exit::Conflict,
            FileError::Io { .. } => Exit::Failed,
            FileError::Open { .. } | FileError::Long { .. } => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<AuthorityError> for Failure {
    fn from(error: AuthorityError) -> Self {
        let exit = match error {
            AuthorityError::Randomness(_) => Exit::Failed,
            AuthorityError::Rcgen { .. }
            | AuthorityError::Certificate(_)
            | AuthorityError::NoAuthority
            | AuthorityError::Name(_)
            | AuthorityError::Names(_) => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

/// Runs a `ca` verb.
pub(crate) fn run(context: &Context, what: CaVerb) -> Result<Exit, Failure> {
    match what {
        CaVerb::Init { place, name, days } => init(context, &place, &name, days),
        CaVerb::Issue(args) => issue(context, &args),
        CaVerb::Renew { file, place, days } => renew(context, &file, &place, days),
        CaVerb::Show { files } => {
            let files = if files.is_empty() {
                vec![PathBuf::from("ca.pem")]
            } else {
                files
            };
            show(context, &files)
        }
    }
}

fn init(context: &Context, place: &CaPlace, name: &str, days: u32) -> Result<Exit, Failure> {
    folder(&place.dir)?;
    let made = authority::create(name, now(), days * DAY)?;
    let written = put(&made, &place.dir, "ca")?;
    context.term.say("Anyone with ca.key can sign certificates: keep it off the nodes. Next: rmctl ca issue manager --at HOST");
    show(context, &[written])
}

fn issue(context: &Context, args: &CaIssue) -> Result<Exit, Failure> {
    let authority = open(&args.place)?;
    if args.names.is_empty() && !matches!(args.role, Role::User(_)) {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "a certificate of {} needs a host name or an address",
                args.role
            ),
        )
        .help(format!(
            "rmctl ca issue {} --at HOSTNAME --at ADDRESS",
            args.role
        )));
    }
    let wanted = CertificateRequest {
        role: args.role.clone(),
        names: &args.names,
        now: now(),
        lifetime: args.days * DAY,
    };
    let issued = authority.issue(&wanted)?;
    if let Some(dir) = &args.tls {
        return lay_out(context, &args.place, &issued, dir);
    }
    let out = args.out.as_ref().unwrap_or(&args.place.dir);
    folder(out)?;
    let written = put(&issued, out, &args.role.to_string().replace('/', "-"))?;
    show(context, &[written])
}

/// Writes the three files of a daemon's directory. Other users must be able to read ca.pem, because
/// masters and executors use it to verify their peers.
fn lay_out(
    context: &Context,
    place: &CaPlace,
    issued: &IssuedCertificate,
    dir: &Path,
) -> Result<Exit, Failure> {
    folder(dir)?;
    let (ca, key, cert) = (
        dir.join("ca.pem"),
        dir.join("key.pem"),
        dir.join("cert.pem"),
    );
    if let Some(path) = [&ca, &key, &cert].into_iter().find(|path| path.exists()) {
        return Err(FileError::There { path: path.clone() }.into());
    }
    files::write(
        &ca,
        &files::read(&place.dir.join("ca.pem"))?,
        FileReaders::All,
        OverwritePolicy::Keep,
    )?;
    files::write(&key, &issued.key, FileReaders::Owner, OverwritePolicy::Keep)?;
    files::write(
        &cert,
        &issued.certificate,
        FileReaders::All,
        OverwritePolicy::Keep,
    )?;
    show(context, &[cert])
}

/// The key file of a certificate, in the same directory.
fn key_of(certificate: &Path) -> PathBuf {
    if certificate
        .file_name()
        .is_some_and(|name| name == "cert.pem")
    {
        return certificate.with_file_name("key.pem");
    }
    certificate.with_extension("key")
}

fn renew(context: &Context, file: &Path, place: &CaPlace, days: u32) -> Result<Exit, Failure> {
    let authority = open(place)?;
    let old = read(file)?;
    let Some(role) = old.role else {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{} names no role of Headroom: another authority issued it",
                file.display()
            ),
        )
        .help("rmctl ca issue ROLE creates a certificate"));
    };
    let key = files::read_secret(&key_of(file))?;
    let wanted = CertificateRequest {
        role,
        names: &old.names,
        now: now(),
        lifetime: days * DAY,
    };
    files::write(
        file,
        &authority.certify(&key, &wanted)?,
        FileReaders::All,
        OverwritePolicy::Replace,
    )?;
    show(context, &[file.to_owned()])
}

fn show(context: &Context, files: &[PathBuf]) -> Result<Exit, Failure> {
    let all: Result<Vec<Shown>, Failure> = files
        .iter()
        .map(|file| Ok(Shown::of(file, &read(file)?)))
        .collect();
    let all = all?;
    let found = MachineOutput {
        items: &all,
        list: true,
    };
    let text = found.text(&context.output, |one| one.fingerprint.clone());
    context
        .term
        .print(&text.unwrap_or_else(|| screen::certificates(&all, now())));
    Ok(Exit::Ok)
}

fn read(file: &Path) -> Result<Certificate, Failure> {
    let text = files::read(file)?;
    Certificate::from_pem(&text)
        .map_err(|error| Failure::new(Exit::Usage, format!("{}: {error}", file.display())))
}

fn open(place: &CaPlace) -> Result<Authority, Failure> {
    let (certificate, key) = (place.dir.join("ca.pem"), place.dir.join("ca.key"));
    let missing = |failure: Failure| {
        if failure.exit() != Exit::NotFound {
            return failure;
        }
        failure.help("rmctl ca init creates an authority; --dir names its directory")
    };
    let certificate = files::read(&certificate).map_err(|e| missing(e.into()))?;
    let key = files::read_secret(&key).map_err(|e| missing(e.into()))?;
    Ok(Authority::open(&certificate, &key)?)
}

/// Writes the key before the certificate, so that no certificate exists without its key.
fn put(made: &IssuedCertificate, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let (certificate, key) = (
        folder.join(format!("{name}.pem")),
        folder.join(format!("{name}.key")),
    );
    if certificate.exists() {
        return Err(FileError::There { path: certificate }.into());
    }
    files::write(&key, &made.key, FileReaders::Owner, OverwritePolicy::Keep)?;
    files::write(
        &certificate,
        &made.certificate,
        FileReaders::All,
        OverwritePolicy::Keep,
    )?;
    Ok(certificate)
}

fn folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|source| {
        FileError::Io {
            path: path.to_owned(),
            source,
        }
        .into()
    })
}
