//! The effective settings and their sources. The precedence is: argument, environment variable,
//! context of the user's file, file of this machine, default.
//!
//! The socket of a resource manager on this machine has precedence over the default address only.

pub(crate) mod arguments;
pub(crate) mod file;

use headroom_types::millis;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use headroom_client::{ClientCredentials, TokenSource};
use headroom_transport::CertificateFiles;

use crate::args::{OutputFormat, OutputOptions};
use crate::exit::{CommandFailure, CommandResult};
use file::{CredentialFiles, MachineSettings, SettingsPath, UserSettingsFile};

/// Default address of the resource manager.
pub(crate) const DEFAULT_ADDR: &str = "http://127.0.0.1:7070";

/// Socket of a resource manager on this host.
const DEFAULT_SOCKET: &str = "/run/headroom/resourcemanager.sock";

/// Default timeout of a call.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// Source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    /// An argument.
    Argument(&'static str),
    /// An environment variable.
    Variable(&'static str),
    /// A context of the user's file.
    Context(String),
    /// The file of this machine.
    Machine(PathBuf),
    /// The socket of a resource manager on this host.
    Socket,
    /// The default.
    Usual,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Argument(name) => write!(f, "argument {name}"),
            SettingSource::Variable(name) => write!(f, "environment {name}"),
            SettingSource::Context(name) => write!(f, "context {name}"),
            SettingSource::Machine(path) => write!(f, "{}", path.display()),
            SettingSource::Socket => f.write_str("socket of this host"),
            SettingSource::Usual => f.write_str("default"),
        }
    }
}

/// A value with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingValue<T> {
    /// The value.
    pub(crate) value: T,
    /// The source.
    pub(crate) by: SettingSource,
}

/// All settings of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// Address of the resource manager.
    pub(crate) addr: SettingValue<String>,
    /// Certificates and token.
    pub(crate) trust: ClientCredentials,
    /// Output format.
    pub(crate) output: SettingValue<OutputOptions>,
    /// Timeout of a call.
    pub(crate) timeout: SettingValue<Duration>,
    /// The current context.
    pub(crate) context: Option<SettingValue<String>>,
}

impl ClientSettings {
    /// All settings as a JSON document.
    pub(crate) fn json(&self) -> serde_json::Value {
        let said = |value: serde_json::Value, by: &SettingSource| serde_json::json!({ "value": value, "by": by.to_string() });
        serde_json::json!({
            "addr": said(self.addr.value.as_str().into(), &self.addr.by),
            "ca": self.trust.files.ca,
            "cert": self.trust.files.own.as_ref().map(|(cert, _)| cert),
            "token": token_words(&self.trust.token),
            "output": said(self.output.value.to_string().into(), &self.output.by),
            "timeout_ms": said(millis(self.timeout.value).into(), &self.timeout.by),
            "context": self.context.as_ref().map(|c| said(c.value.as_str().into(), &c.by)),
        })
    }
}

/// The source of a token, never the token itself.
pub(crate) fn token_words(token: &TokenSource) -> Option<String> {
    match token {
        TokenSource::Nowhere => None,
        TokenSource::Text(_) => Some("environment HEADROOM_TOKEN".to_owned()),
        TokenSource::File(path) => Some(path.display().to_string()),
    }
}

/// Takes each certificate and token from its first source. A certificate and its key come from the
/// same source.
fn trust(token: Option<String>, said: [CredentialFiles; 3]) -> CommandResult<ClientCredentials> {
    let first = |get: fn(&CredentialFiles) -> Option<PathBuf>| said.iter().find_map(get);
    let own = said
        .iter()
        .find(|proofs| proofs.cert.is_some() || proofs.key.is_some());
    let own = match own.map(|proofs| (proofs.cert.clone(), proofs.key.clone())) {
        None => None,
        Some((Some(cert), Some(key))) => Some((cert, key)),
        Some((Some(cert), None)) => return Err(half(&cert, "key")),
        Some((None, Some(key))) => return Err(half(&key, "certificate")),
        Some((None, None)) => None,
    };
    let token = match (token, first(|proofs| proofs.token_file.clone())) {
        (Some(text), _) => TokenSource::Text(text),
        (None, Some(file)) => TokenSource::File(file),
        (None, None) => TokenSource::Nowhere,
    };
    Ok(ClientCredentials {
        files: CertificateFiles {
            ca: first(|proofs| proofs.ca.clone()),
            own,
        },
        token,
        ..ClientCredentials::default()
    })
}

fn half(there: &std::path::Path, lacks: &str) -> CommandFailure {
    let failure = CommandFailure::usage(format!("{} needs its {lacks}", there.display()));
    failure.help("--client-cert FILE and --client-key FILE, or cert and key of the same context")
}

/// The first given value of one setting, else the default.
fn strongest<T>(
    given: impl IntoIterator<Item = Option<(T, SettingSource)>>,
    usual: T,
) -> SettingValue<T> {
    let (value, by) = given
        .into_iter()
        .flatten()
        .next()
        .unwrap_or((usual, SettingSource::Usual));
    SettingValue { value, by }
}

/// Settings from arguments and environment variables; an empty variable is ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingOverrides {
    pub(crate) addr: Option<(String, SettingSource)>,
    pub(crate) context: Option<(String, SettingSource)>,
    pub(crate) output: Option<(OutputOptions, SettingSource)>,
    pub(crate) timeout: Option<(Duration, SettingSource)>,
    /// Certificate and token files.
    pub(crate) proofs: CredentialFiles,
    /// The token itself.
    pub(crate) token: Option<String>,
    /// The socket of a resource manager of this host.
    pub(crate) socket: Option<(String, SettingSource)>,
}

/// Determines the effective settings.
pub(crate) fn resolve_settings(
    given: SettingOverrides,
    user: &UserSettingsFile,
    machine: Option<(SettingsPath, MachineSettings)>,
) -> CommandResult<ClientSettings> {
    let current = user
        .current
        .clone()
        .map(|name| (name, SettingSource::Usual));
    let chosen = given.context.clone().or(current);
    let context = match &chosen {
        None => None,
        Some((name, _)) => Some((
            name.clone(),
            user.contexts
                .get(name)
                .ok_or_else(|| no_such_context(name, user))?
                .clone(),
        )),
    };
    let of_context = |name: &String| SettingSource::Context(name.clone());
    let (place, machine) = machine.unwrap_or_default();
    let of_this_context = context
        .as_ref()
        .map(|(_, c)| c.trusted())
        .unwrap_or_default();
    let trust = trust(
        given.token.clone(),
        [given.proofs.clone(), of_this_context, machine.trusted()],
    )?;
    let of_machine = || SettingSource::Machine(place.clone());
    // A context argument has precedence over the address of an environment variable, as every
    // argument has.
    let typed = given
        .context
        .as_ref()
        .is_some_and(|(_, by)| matches!(by, SettingSource::Argument(_)));
    let from_context = context
        .as_ref()
        .and_then(|(name, c)| Some((c.addr.clone()?, of_context(name))));
    let variable = given
        .addr
        .as_ref()
        .is_some_and(|(_, by)| matches!(by, SettingSource::Variable(_)));
    let stronger = if typed && variable {
        from_context.clone()
    } else {
        None
    };
    let addr = [
        stronger,
        given.addr,
        from_context,
        machine.addr.map(|a| (a, of_machine())),
        given.socket,
    ];
    let output = [
        given.output,
        context
            .as_ref()
            .and_then(|(name, c)| Some((c.output.clone()?.0, of_context(name)))),
        machine.output.map(|o| (o.0, of_machine())),
    ];
    let timeout = [
        given.timeout,
        context
            .as_ref()
            .and_then(|(name, c)| Some((c.timeout?.0, of_context(name)))),
        machine.timeout.map(|t| (t.0, of_machine())),
    ];
    Ok(ClientSettings {
        addr: strongest(addr, DEFAULT_ADDR.to_owned()),
        trust,
        output: strongest(output, OutputOptions::plain(OutputFormat::Table)),
        timeout: strongest(timeout, CALL),
        context: chosen.map(|(value, by)| SettingValue { value, by }),
    })
}

fn no_such_context(name: &str, user: &UserSettingsFile) -> CommandFailure {
    let failure = CommandFailure::usage(format!("there is no context {name}"));
    let failure = failure.near(name, user.contexts.keys().map(String::as_str));
    failure.help("rmctl context list · rmctl context set NAME --addr URL")
}

/// The address of the socket of a resource manager on this host, if the socket exists.
fn socket() -> Option<(String, SettingSource)> {
    std::path::Path::new(DEFAULT_SOCKET).exists().then(|| {
        (
            format!("{}{DEFAULT_SOCKET}", headroom_types::UNIX_SOCKET_PREFIX),
            SettingSource::Socket,
        )
    })
}

/// Reads both files and determines the effective settings.
pub(crate) fn load(given: SettingOverrides) -> CommandResult<ClientSettings> {
    let user = file::user(&file::user_place())?;
    let machine = file::machine(&file::machine_place())?;
    resolve_settings(
        SettingOverrides {
            socket: socket(),
            ..given
        },
        &user,
        machine,
    )
}

/// Determines the effective settings without the files, for verbs that repair them.
pub(crate) fn without_files(given: SettingOverrides) -> CommandResult<ClientSettings> {
    resolve_settings(
        SettingOverrides {
            context: None,
            ..given
        },
        &UserSettingsFile::default(),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExitCode;

    fn user() -> UserSettingsFile {
        file::read_user(
            "current = \"prod\"\n[contexts.prod]\naddr = \"http://prod:7070\"\noutput = \"wide\"\n[contexts.lab]\naddr = \"http://lab:1\"\n",
            "c.toml",
        )
        .expect("reads")
    }
    fn machine() -> Option<(SettingsPath, MachineSettings)> {
        let text = "addr = \"http://machine:1\"\noutput = \"json\"\ntimeout = \"3s\"\n";
        Some((
            PathBuf::from("/etc/c.toml"),
            file::read_machine(text, "c.toml").expect("reads"),
        ))
    }
    fn addr(
        given: SettingOverrides,
        user: &UserSettingsFile,
        machine: Option<(SettingsPath, MachineSettings)>,
    ) -> (String, String) {
        let settings = resolve_settings(given, user, machine).expect("weighs");
        (settings.addr.value, settings.addr.by.to_string())
    }

    #[test]
    fn the_source_with_the_highest_precedence_wins() {
        let argument = |a: &str| Some((a.to_owned(), SettingSource::Argument("--addr")));
        let variable = |a: &str| Some((a.to_owned(), SettingSource::Variable("HEADROOM_ADDR")));
        let context = |name: &str, by| Some((name.to_owned(), by));
        let none = UserSettingsFile::default();
        assert_eq!(
            addr(SettingOverrides::default(), &none, None),
            (DEFAULT_ADDR.into(), "default".into())
        );
        assert_eq!(
            addr(SettingOverrides::default(), &none, machine()).0,
            "http://machine:1"
        );
        assert_eq!(
            addr(SettingOverrides::default(), &user(), machine()),
            ("http://prod:7070".into(), "context prod".into())
        );
        let given = SettingOverrides {
            addr: variable("http://env:1"),
            ..SettingOverrides::default()
        };
        assert_eq!(addr(given.clone(), &user(), machine()).0, "http://env:1");
        let typed = SettingOverrides {
            context: context("lab", SettingSource::Argument("--context")),
            ..given.clone()
        };
        assert_eq!(
            addr(typed.clone(), &user(), machine()).0,
            "http://lab:1",
            "an argument overrides the environment"
        );
        let both = SettingOverrides {
            addr: argument("http://arg:1"),
            ..typed
        };
        assert_eq!(addr(both, &user(), machine()).0, "http://arg:1");
        let quietly = SettingOverrides {
            context: context("lab", SettingSource::Variable("HEADROOM_CONTEXT")),
            ..given
        };
        assert_eq!(addr(quietly, &user(), machine()).0, "http://env:1");
    }

    #[test]
    fn the_socket_overrides_only_the_default_address() {
        let socket = Some(("unix:/run/x".to_owned(), SettingSource::Socket));
        let given = SettingOverrides {
            socket,
            ..SettingOverrides::default()
        };
        assert_eq!(
            addr(given.clone(), &UserSettingsFile::default(), None),
            ("unix:/run/x".into(), "socket of this host".into())
        );
        assert_eq!(
            addr(given, &UserSettingsFile::default(), machine()).0,
            "http://machine:1"
        );
    }

    #[test]
    fn each_setting_is_resolved_separately() {
        let settings =
            resolve_settings(SettingOverrides::default(), &user(), machine()).expect("weighs");
        assert_eq!(
            (settings.output.value.format, settings.output.by),
            (OutputFormat::Wide, SettingSource::Context("prod".into()))
        );
        assert_eq!(settings.timeout.value, Duration::from_secs(3));
        assert_eq!(settings.context.map(|c| c.value), Some("prod".into()));
    }

    #[test]
    fn an_unknown_context_is_an_error() {
        let given = SettingOverrides {
            context: Some(("prd".into(), SettingSource::Argument("--context"))),
            ..SettingOverrides::default()
        };
        let wrong = resolve_settings(given, &user(), None).expect_err("no such context");
        assert_eq!(wrong.exit(), CommandExitCode::Usage);
        assert!(
            wrong.to_string().contains("did you mean \"prod\"?"),
            "{wrong}"
        );
    }
}
