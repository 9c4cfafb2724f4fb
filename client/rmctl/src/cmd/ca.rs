//! `rmctl ca`: an authority for one cluster, without openssl. Works on files only and sends
//! nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_identity::authority::{self, AuthorityError, CertificateRequest};
use headroom_identity::files::{self, FileError, FileReaders, OverwritePolicy};
use headroom_identity::{Authority, Certificate, CertificateRole, IssuedCertificate};

use crate::args::{AuthorityDirectory, CaIssueArgs, CaSubcommand};
use crate::certificate::TemplateFieldFormat;
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::ca as screen;
use crate::render::json::MachineOutput;

const DAY: Duration = Duration::from_secs(86_400);

impl From<FileError> for CommandFailure {
    fn from(error: FileError) -> Self {
        let exit = match &error {
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                CommandExitCode::NotFound
            }
            FileError::There { .. } => CommandExitCode::Conflict,
            FileError::Io { .. } => CommandExitCode::Failed,
            FileError::Open { .. } | FileError::Long { .. } => CommandExitCode::Usage,
        };
        CommandFailure::new(exit, error.to_string())
    }
}

impl From<AuthorityError> for CommandFailure {
    fn from(error: AuthorityError) -> Self {
        let exit = match error {
            AuthorityError::Randomness(_) => CommandExitCode::Failed,
            AuthorityError::Rcgen { .. }
            | AuthorityError::Certificate(_)
            | AuthorityError::NoAuthority
            | AuthorityError::Name(_)
            | AuthorityError::Names(_) => CommandExitCode::Usage,
        };
        CommandFailure::new(exit, error.to_string())
    }
}

/// Runs a `ca` verb.
pub(crate) fn run(context: &CommandContext, what: CaSubcommand) -> CommandResult {
    match what {
        CaSubcommand::Init { place, name, days } => init(context, &place, &name, days),
        CaSubcommand::Issue(args) => issue(context, &args),
        CaSubcommand::Renew { file, place, days } => renew(context, &file, &place, days),
        CaSubcommand::Show { files } => {
            let files = if files.is_empty() {
                vec![PathBuf::from("ca.pem")]
            } else {
                files
            };
            show(context, &files)
        }
    }
}

fn init(
    context: &CommandContext,
    place: &AuthorityDirectory,
    name: &str,
    days: u32,
) -> CommandResult {
    folder(&place.dir)?;
    let made = authority::create(name, now(), days * DAY)?;
    let written = put(&made, &place.dir, "ca")?;
    context.term.say("Anyone with ca.key can sign certificates: keep it off the nodes. Next: rmctl ca issue manager --at HOST");
    show(context, &[written])
}

fn issue(context: &CommandContext, args: &CaIssueArgs) -> CommandResult {
    let authority = open(&args.place)?;
    if args.names.is_empty() && !matches!(args.role, CertificateRole::User(_)) {
        return Err(CommandFailure::usage(format!(
            "a certificate of {} needs a host name or an address",
            args.role
        ))
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
    context: &CommandContext,
    place: &AuthorityDirectory,
    issued: &IssuedCertificate,
    dir: &Path,
) -> CommandResult {
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

fn renew(
    context: &CommandContext,
    file: &Path,
    place: &AuthorityDirectory,
    days: u32,
) -> CommandResult {
    let authority = open(place)?;
    let old = read(file)?;
    let Some(role) = old.role else {
        return Err(CommandFailure::usage(format!(
            "{} names no role of Headroom: another authority issued it",
            file.display()
        ))
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

fn show(context: &CommandContext, files: &[PathBuf]) -> CommandResult {
    let all: CommandResult<Vec<TemplateFieldFormat>> = files
        .iter()
        .map(|file| Ok(TemplateFieldFormat::of(file, &read(file)?)))
        .collect();
    let all = all?;
    let text = MachineOutput::list(&all).text(&context.output, |one| one.fingerprint.clone());
    Ok(context.show(text, || screen::certificates(&all, now())))
}

fn read(file: &Path) -> CommandResult<Certificate> {
    let text = files::read(file)?;
    Certificate::from_pem(&text)
        .map_err(|error| CommandFailure::usage(format!("{}: {error}", file.display())))
}

fn open(place: &AuthorityDirectory) -> CommandResult<Authority> {
    let (certificate, key) = (place.dir.join("ca.pem"), place.dir.join("ca.key"));
    let missing = |failure: CommandFailure| {
        if failure.exit() != CommandExitCode::NotFound {
            return failure;
        }
        failure.help("rmctl ca init creates an authority; --dir names its directory")
    };
    let certificate = files::read(&certificate).map_err(|e| missing(e.into()))?;
    let key = files::read_secret(&key).map_err(|e| missing(e.into()))?;
    Ok(Authority::open(&certificate, &key)?)
}

/// Writes the key before the certificate, so that no certificate exists without its key.
fn put(made: &IssuedCertificate, folder: &Path, name: &str) -> CommandResult<PathBuf> {
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

fn folder(path: &Path) -> CommandResult<()> {
    std::fs::create_dir_all(path).map_err(|source| {
        FileError::Io {
            path: path.to_owned(),
            source,
        }
        .into()
    })
}
