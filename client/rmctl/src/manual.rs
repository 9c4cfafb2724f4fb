//! The text of `docs/cli.md`: every verb with its arguments, from the declarations. Pure.

use clap::{Arg, Command};

/// The whole document.
pub(crate) fn document(mut root: Command) -> String {
    root.build();
    let mut text = String::from(HEAD);
    let after = root
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    text.push_str(&format!(
        "## Targets and exit codes\n\n```text\n{after}\n```\n\n"
    ));
    text.push_str("## For every verb\n\n");
    text.push_str(&arguments(
        root.get_arguments().filter(|a| a.is_global_set()),
    ));
    text.push_str("\n## Verbs\n");
    let mut verbs: Vec<&Command> = root
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
        .collect();
    verbs.sort_by_key(|c| c.get_name());
    verbs
        .into_iter()
        .for_each(|verb| section(verb, "rmctl", &mut text));
    text
}

const HEAD: &str = "# rmctl\n\nThis page is generated from the program. It lists every verb with its arguments. \
`rmctl man DIR` writes the same text as manual pages. `source <(rmctl completion bash)` completes verbs, options, and ids of the \
cluster in a shell.\n\n\
Settings come from arguments, then from the environment, then from a context of `~/.config/rmctl/config.toml` \
(`HEADROOM_CONFIG` names another file), then from `/etc/headroom/client.toml`; `rmctl config show` prints each setting \
with its source.\n\n\
Data goes to standard output, messages go to standard error. `-o json` prints the response of the API. `-o cols=` and \
`-o tmpl=` take its keys with dots between levels, and the columns of the table by their headers. A template is in the \
language of Jinja, with the filters `size`, `time` and `json`. Conditions compare the \
same names: `--filter 'state==running && limit>4GiB'`.\n\n";

fn section(verb: &Command, before: &str, text: &mut String) {
    let name = format!("{before} {}", verb.get_name());
    let about = verb
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let below: Vec<&Command> = verb
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
        .collect();
    text.push_str(&format!("\n### `{name}`\n\n{}\n", sentence(&about)));
    let aliases: Vec<&str> = verb.get_visible_aliases().collect();
    if !aliases.is_empty() {
        text.push_str(&format!("\nAlso `{}`.\n", aliases.join("`, `")));
    }
    let own = arguments(
        verb.get_arguments()
            .filter(|a| !a.is_global_set() && !a.is_hide_set() && a.get_id() != "help"),
    );
    if !own.is_empty() {
        text.push_str(&format!("\n{own}"));
    }
    below.into_iter().for_each(|c| section(c, &name, text));
}

fn arguments<'a>(all: impl Iterator<Item = &'a Arg>) -> String {
    all.map(|a| format!("- {}: {}\n", written(a), sentence(&help(a))))
        .collect()
}

fn help(a: &Arg) -> String {
    let text = a.get_help().map(ToString::to_string).unwrap_or_default();
    let default: Vec<String> = a
        .get_default_values()
        .iter()
        .map(|v| v.to_string_lossy().into_owned())
        .collect();
    let shown = !default.is_empty() && a.get_action().takes_values();
    let default = if shown {
        format!(" (`{}` when left out)", default.join(" "))
    } else {
        String::new()
    };
    let variable = a
        .get_env()
        .map(|v| format!(" Or `{}`.", v.to_string_lossy()))
        .unwrap_or_default();
    format!("{text}{default}{variable}")
}

fn written(a: &Arg) -> String {
    let values: Vec<String> = a
        .get_value_names()
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let value = if a.get_action().takes_values() {
        values.join(" ")
    } else {
        String::new()
    };
    let names: Vec<String> = a
        .get_short()
        .map(|c| format!("-{c}"))
        .into_iter()
        .chain(a.get_long().map(|l| format!("--{l}")))
        .collect();
    let whole = if names.is_empty() {
        value
    } else {
        format!("{} {value}", names.join(", "))
            .trim_end()
            .to_owned()
    };
    format!("`{whole}`")
}

/// The text with a full stop at its end.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RmctlArguments;
    use clap::CommandFactory as _;

    #[test]
    fn docs_cli_md_matches_the_program() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let now = document(RmctlArguments::command());
        if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &now).expect("writes");
        }
        let kept = std::fs::read_to_string(&path).expect("docs/cli.md");
        assert!(
            kept == now,
            "docs/cli.md differs from the program; HEADROOM_UPDATE_GOLDEN=1 rewrites it"
        );
    }

    #[test]
    fn the_commands_of_docs_screens_md_parse() {
        use clap::Parser as _;
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens.md");
        let text = std::fs::read_to_string(path).expect("docs/screens.md");
        let screens: Vec<&str> = text
            .split("```text\n")
            .skip(1)
            .filter_map(|rest| rest.split("\n```").next())
            .collect();
        assert_eq!(screens.len(), 10);
        for screen in screens {
            let (typed, shown) = screen.split_once('\n').expect("a command and its output");
            let words: Vec<&str> = typed
                .strip_prefix("$ ")
                .expect("a prompt")
                .split_whitespace()
                .collect();
            assert!(RmctlArguments::try_parse_from(&words).is_ok(), "{typed}");
            assert!(
                shown.lines().all(|line| line.chars().count() <= 100),
                "{typed}: more than 100 columns"
            );
            let last = shown.lines().last().unwrap_or_default();
            let next = ["next: rmctl ", "SEE       rmctl "]
                .iter()
                .any(|word| last.starts_with(word));
            // The output of `logs` ends with the output of the tasks.
            assert!(next || words[1] == "logs", "{typed} ends with {last:?}");
        }
    }

    #[test]
    fn every_verb_and_argument_has_a_help_text() {
        fn silent(c: &Command, found: &mut Vec<String>) {
            let args = c
                .get_arguments()
                .filter(|a| !a.is_hide_set() && a.get_help().is_none());
            found.extend(args.map(|a| format!("{} {}", c.get_name(), a.get_id())));
            found.extend(c.get_about().is_none().then(|| c.get_name().to_owned()));
            c.get_subcommands().for_each(|below| silent(below, found));
        }
        let mut found = Vec::new();
        silent(&RmctlArguments::command(), &mut found);
        assert_eq!(found, [""; 0]);
    }
}
