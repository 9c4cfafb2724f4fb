//! Screens of settings with their sources, and of contexts.

use std::path::PathBuf;

use super::figures::{fine_span, or_dash};
use super::table::{Column, Table, list};
use super::{ListStyle, TextPainter};
use crate::settings::file::{ContextSettings, UserSettingsFile};
use crate::settings::{ClientSettings, token_words};

/// All effective settings with their sources.
pub(crate) fn settings(s: &ClientSettings, files: &[(String, bool)], paint: TextPainter) -> String {
    let mut table = Table::new(&["SETTING", "VALUE", "BY"]);
    let context = s.context.as_ref();
    let by = context.map_or_else(String::new, |c| c.by.to_string());
    let mut line = |name: &str, value: Option<String>, by: String| {
        if let Some(value) = value {
            table.row([name.to_owned(), value, by]);
        }
    };
    let path = |path: &PathBuf| path.display().to_string();
    let (files_of, own) = (&s.trust.files, s.trust.files.own.as_ref());
    line("addr", Some(s.addr.value.clone()), s.addr.by.to_string());
    line("ca", files_of.ca.as_ref().map(path), String::new());
    line("cert", own.map(|(cert, _)| path(cert)), String::new());
    line("key", own.map(|(_, key)| path(key)), String::new());
    line("token", token_words(&s.trust.token), String::new());
    line(
        "output",
        Some(s.output.value.to_string()),
        s.output.by.to_string(),
    );
    line(
        "timeout",
        Some(fine_span(s.timeout.value)),
        s.timeout.by.to_string(),
    );
    line("context", Some(or_dash(context.map(|c| &c.value))), by);
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
    table.text() + &files + &paint.next("rmctl config validate · rmctl context list")
}

/// All contexts; the current one is marked.
pub(crate) fn contexts(file: &UserSettingsFile, paint: TextPainter) -> String {
    if file.contexts.is_empty() {
        return "no contexts\nnext: rmctl context set NAME --addr URL\n".to_owned();
    }
    let mark = |name: &String| {
        let is_current = file.current.as_ref() == Some(name);
        paint.good(if is_current { "✓" } else { "" })
    };
    let columns: &[Column<'_, (&String, &ContextSettings)>] = &[
        ("", &|(name, _)| mark(name)),
        ("CONTEXT", &|(name, _)| name.clone()),
        ("ADDR", &|(_, c)| or_dash(c.addr.as_ref())),
        ("OUTPUT", &|(_, c)| or_dash(c.output.as_ref())),
        ("TIMEOUT", &|(_, c)| {
            or_dash(c.timeout.map(|t| fine_span(t.0)))
        }),
    ];
    list(&file.contexts, ListStyle::whole(paint), columns)
        + &paint.next("rmctl context use NAME · rmctl config show")
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
