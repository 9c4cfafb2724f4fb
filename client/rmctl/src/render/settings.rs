//! Screens of settings with their sources, and of contexts.

use super::TextPainter;
use super::figures::fine_span;
use super::table::Table;
use crate::settings::file::UserSettingsFile;
use crate::settings::{ClientSettings, token_words};

/// All effective settings with their sources.
pub(crate) fn settings(s: &ClientSettings, files: &[(String, bool)], paint: TextPainter) -> String {
    let mut table = Table::new(&["SETTING", "VALUE", "BY"]);
    let context = s
        .context
        .as_ref()
        .map_or_else(|| "–".to_owned(), |c| c.value.clone());
    let by = s
        .context
        .as_ref()
        .map_or_else(String::new, |c| c.by.to_string());
    table.row([
        "addr".to_owned(),
        s.addr.value.clone(),
        s.addr.by.to_string(),
    ]);
    let mut proof = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.row([name.to_owned(), value, String::new()]);
        }
    };
    proof(
        "ca",
        s.trust
            .files
            .ca
            .as_ref()
            .map(|path| path.display().to_string()),
    );
    proof(
        "cert",
        s.trust
            .files
            .own
            .as_ref()
            .map(|(cert, _)| cert.display().to_string()),
    );
    proof(
        "key",
        s.trust
            .files
            .own
            .as_ref()
            .map(|(_, key)| key.display().to_string()),
    );
    proof("token", token_words(&s.trust.token));
    table.row([
        "output".to_owned(),
        s.output.value.to_string(),
        s.output.by.to_string(),
    ]);
    table.row([
        "timeout".to_owned(),
        fine_span(s.timeout.value),
        s.timeout.by.to_string(),
    ]);
    table.row(["context".to_owned(), context, by]);
    let there = |(path, there): &(String, bool)| {
        format!(
            "file {path} {}\n",
            if *there { "" } else { "(does not exist)" }
        )
    };
    let files: String = files
        .iter()
        .map(there)
        .map(|l| l.trim_end().to_owned() + "\n")
        .collect();
    table.text() + &files + &paint.dim("next: rmctl config validate · rmctl context list") + "\n"
}

/// All contexts; the current one is marked.
pub(crate) fn contexts(file: &UserSettingsFile, paint: TextPainter) -> String {
    if file.contexts.is_empty() {
        return "no contexts\nnext: rmctl context set NAME --addr URL\n".to_owned();
    }
    let mut table = Table::new(&["", "CONTEXT", "ADDR", "OUTPUT", "TIMEOUT"]);
    for (name, c) in &file.contexts {
        let current = file.current.as_ref() == Some(name);
        let mark = if current {
            paint.good("✓")
        } else {
            String::new()
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let output = c.output.as_ref().map(ToString::to_string);
        table.row([
            mark,
            name.clone(),
            or_dash(c.addr.clone()),
            or_dash(output),
            or_dash(c.timeout.map(|t| fine_span(t.0))),
        ]);
    }
    table.text() + &paint.dim("next: rmctl context use NAME · rmctl config show") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::file::read_user;
    use crate::settings::{SettingOverrides, SettingSource, resolve_settings};

    #[test]
    fn contexts_and_settings() {
        let text = "current = \"prod\"\n[contexts.lab]\naddr = \"http://lab:7070\"\n[contexts.prod]\naddr = \"http://rm.example:7070\"\noutput = \"wide\"\ntimeout = \"30s\"\n";
        let file = read_user(text, "c").expect("reads");
        insta::assert_snapshot!("contexts", contexts(&file, TextPainter::PLAIN));
        let given = SettingOverrides {
            addr: Some((
                "http://h:1".into(),
                SettingSource::Variable("HEADROOM_ADDR"),
            )),
            ..SettingOverrides::default()
        };
        let weighed = resolve_settings(given, &file, None).expect("weighs");
        let files = [
            ("~/.config/rmctl/config.toml".to_owned(), true),
            ("/etc/headroom/client.toml".to_owned(), false),
        ];
        insta::assert_snapshot!("settings", settings(&weighed, &files, TextPainter::PLAIN));
        assert!(contexts(&UserSettingsFile::default(), TextPainter::PLAIN).contains("context set"));
    }
}
