//! The two settings files: `~/.config/rmctl/config.toml` of the user, `/etc/headroom/client.toml`
//! of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::args::OutputOptions;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// Path of a settings file.
pub(crate) type SettingsPath = PathBuf;

/// The user's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserSettingsFile {
    /// The current context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// All contexts by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) contexts: BTreeMap<String, ContextSettings>,
}

/// The settings of a context, or of the machine's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextSettings {
    /// Address of the resource manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addr: Option<String>,
    /// Authority of the resource manager, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// File with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// Output format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<OutputSetting>,
    /// Timeout of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<DurationSetting>,
}

impl ContextSettings {
    /// The certificate and token files of these settings.
    pub(crate) fn trusted(&self) -> CredentialFiles {
        CredentialFiles {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            token_file: self.token_file.clone(),
        }
    }
}

/// Certificate and token files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
}

/// The machine's file.
pub(crate) type MachineSettings = ContextSettings;

/// An output format as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputSetting(pub(crate) OutputOptions, String);

impl OutputSetting {
    /// Creates the value from a parsed format.
    pub(crate) fn of(output: OutputOptions) -> Self {
        let text = output.to_string();
        OutputSetting(output, text)
    }
}
impl Serialize for OutputSetting {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.1)
    }
}
impl<'de> Deserialize<'de> for OutputSetting {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse()
            .map(|output| OutputSetting(output, text))
            .map_err(serde::de::Error::custom)
    }
}
impl std::fmt::Display for OutputSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}
/// A duration as written in the file: `10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationSetting(pub(crate) Duration);

impl Serialize for DurationSetting {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}
impl<'de> Deserialize<'de> for DurationSetting {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        headroom_config::toml_reader::parse_duration(&text)
            .map(DurationSetting)
            .map_err(serde::de::Error::custom)
    }
}

/// Path of the user's file: `HEADROOM_CONFIG`, else below the configuration directory.
pub(crate) fn user_place() -> SettingsPath {
    let named = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let usual = || {
        let home =
            named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")));
        home.unwrap_or_default().join("rmctl/config.toml")
    };
    named("HEADROOM_CONFIG").unwrap_or_else(usual)
}

/// Path of the machine's file.
pub(crate) fn machine_place() -> SettingsPath {
    PathBuf::from("/etc/headroom/client.toml")
}

/// Reads the user's file; a missing file has no settings.
pub(crate) fn user(place: &Path) -> CommandResult<UserSettingsFile> {
    Ok(text(place)?
        .map(|text| read_user(&text, &place.display().to_string()))
        .transpose()?
        .unwrap_or_default())
}

/// Reads the machine's file; a missing file has no settings.
pub(crate) fn machine(place: &Path) -> CommandResult<Option<(SettingsPath, MachineSettings)>> {
    let text = text(place)?;
    let read = text
        .map(|text| read_machine(&text, &place.display().to_string()))
        .transpose()?;
    Ok(read.map(|read| (place.to_owned(), read)))
}

fn text(place: &Path) -> CommandResult<Option<String>> {
    match std::fs::read_to_string(place) {
        Ok(text) => Ok(Some(text)),
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(CommandFailure::usage(format!(
            "{} cannot be read: {e}",
            place.display()
        ))),
    }
}

/// Parses the user's file.
pub(crate) fn read_user(text: &str, name: &str) -> CommandResult<UserSettingsFile> {
    toml::from_str(text).map_err(|e| mistake(&e, text, name))
}

/// Parses the machine's file.
pub(crate) fn read_machine(text: &str, name: &str) -> CommandResult<MachineSettings> {
    toml::from_str(text).map_err(|e| mistake(&e, text, name))
}

/// A parse error with its place, in the format of all other files.
fn mistake(e: &toml::de::Error, text: &str, name: &str) -> CommandFailure {
    let mut problem = headroom_config::FileProblem::of_file(name, e.message().trim(), "", "");
    if let Some(span) = e.span() {
        let before = &text[..span.start.min(text.len())];
        let start = before.rfind('\n').map_or(0, |n| n + 1);
        let line = text[start..].lines().next().unwrap_or_default();
        problem.line = Some(before.matches('\n').count() + 1);
        problem.column = Some(before[start..].chars().count() + 1);
        problem.width = text.get(span).map_or(1, |s| {
            s.lines().next().unwrap_or_default().chars().count().max(1)
        });
        problem.source = Some(line.to_owned());
    }
    problem.fix =
        "a context has the keys addr, ca, cert, key, token_file, output and timeout; rmctl config validate checks both files"
            .to_owned();
    CommandFailure::laid_out(CommandExitCode::Usage, problem.to_string())
}

/// Writes the user's file, whole or not at all.
pub(crate) fn write(place: &Path, file: &UserSettingsFile) -> CommandResult<()> {
    let failed = |e: &dyn std::fmt::Display| {
        CommandFailure::failed(format!("{} cannot be written: {e}", place.display()))
    };
    let text = toml::to_string(file).map_err(|e| failed(&e))?;
    let parent = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
    let beside = place.with_extension(format!("toml.{}", std::process::id()));
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, place))
        .map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_reported_with_their_place() {
        let wrong = read_user("[contexts.prod]\nadr = \"x\"\n", "config.toml")
            .expect_err("unknown key")
            .to_string();
        assert!(
            wrong.contains("config.toml:2:1")
                && wrong.contains("adr = \"x\"")
                && wrong.contains("^^^"),
            "{wrong}"
        );
        let wrong = read_machine("timeout = \"soon\"\n", "client.toml")
            .expect_err("no time")
            .to_string();
        assert!(wrong.contains("client.toml:1"), "{wrong}");
        assert!(read_user("[contexts.a]\noutput = \"xml\"\n", "c").is_err());
    }

    #[test]
    fn each_key_is_in_the_reference_with_its_default() {
        let file = ContextSettings {
            addr: Some("http://h:1".into()),
            ca: Some("/c.pem".into()),
            cert: Some("/m.pem".into()),
            key: Some("/k.pem".into()),
            token_file: Some("/t".into()),
            output: Some(OutputSetting::of(OutputOptions::plain(
                crate::args::OutputFormat::Table,
            ))),
            timeout: Some(DurationSetting(crate::settings::CALL)),
        };
        let written: toml::Table =
            toml::from_str(&toml::to_string(&file).expect("writes")).expect("reads");
        let mut known: Vec<&str> = headroom_config::testkit::CLIENT_KEYS
            .iter()
            .map(|key| key.name)
            .collect();
        known.sort_unstable();
        assert_eq!(
            written.keys().map(String::as_str).collect::<Vec<_>>(),
            known
        );
        let with_default = headroom_config::testkit::CLIENT_KEYS
            .iter()
            .filter(|key| key.default != "none");
        let defaults: String = with_default
            .map(|key| format!("{} = {}\n", key.name, key.default))
            .collect();
        let usual = read_machine(&defaults, "client.toml").expect("reads");
        assert_eq!(usual.addr.as_deref(), Some(crate::settings::DEFAULT_ADDR));
        assert_eq!(usual.trusted(), CredentialFiles::default());
        assert_eq!((usual.output, usual.timeout), (file.output, file.timeout));
    }

    #[test]
    fn a_written_file_is_read_back() {
        let dir = tempfile::tempdir().expect("directory");
        let place = dir.path().join("a/config.toml");
        assert_eq!(
            user(&place),
            Ok(UserSettingsFile::default()),
            "a missing file has no settings"
        );
        let text = "current = \"x\"\n[contexts.x]\naddr = \"http://h:1\"\noutput = \"cols=id,state\"\ntimeout = \"1500ms\"\n";
        let file = read_user(text, "c").expect("reads");
        write(&place, &file).expect("writes");
        assert_eq!(user(&place), Ok(file));
        assert_eq!(
            std::fs::read_dir(dir.path().join("a"))
                .expect("lists")
                .count(),
            1,
            "no temporary file is left"
        );
    }
}
