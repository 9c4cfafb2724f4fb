//! The verbs of scripts and of people who wait for a job. They are parsed without the declarations of
//! all other verbs, which cost more than the rest of the start: a megabyte of memory and 350 page
//! faults.

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::{
    GlobalOptions, KillArgs, LogsArgs, RmctlArguments, RootSubcommand, RunArgs, SubmitArgs,
};

/// Arguments with a frequent verb.
#[derive(Debug, Parser)]
#[command(name = "rmctl")]
struct FrequentArguments {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    verb: FrequentSubcommand,
}

/// The frequent verbs, as in [`RootSubcommand`].
#[derive(Debug, Subcommand)]
enum FrequentSubcommand {
    Submit(SubmitArgs),
    Run(RunArgs),
    Logs(LogsArgs),
    Kill(KillArgs),
}

/// Parses the words of a command line with a frequent verb. `None` for any other line, such as a
/// mistake or a request for help: all declarations know what to answer.
pub(crate) fn parse(words: &[OsString]) -> Option<(RmctlArguments, ArgMatches)> {
    // Any other first word costs only this comparison.
    let verbs = ["submit", "run", "logs", "kill"];
    words
        .get(1)
        .filter(|word| verbs.iter().any(|verb| *word == verb))?;
    let matches = FrequentArguments::command()
        .try_get_matches_from(words)
        .ok()?;
    let FrequentArguments { global, verb } = FrequentArguments::from_arg_matches(&matches).ok()?;
    let verb = match verb {
        FrequentSubcommand::Submit(args) => RootSubcommand::Submit(args),
        FrequentSubcommand::Run(args) => RootSubcommand::Run(args),
        FrequentSubcommand::Logs(args) => RootSubcommand::Logs(args),
        FrequentSubcommand::Kill(args) => RootSubcommand::Kill(args),
    };
    Some((RmctlArguments { global, verb }, matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn frequent_verbs_are_parsed_as_by_all_declarations() {
        for line in [
            "rmctl run -- true",
            "rmctl run --memory 2G --env A=b -o json --addr http://h:1 -- sh -c exit",
            "rmctl submit job.toml --follow",
            "rmctl submit job.toml -o json",
            "rmctl logs last -f --tail 5",
            "rmctl kill last --yes",
        ] {
            let (quick, _) = parse(&words(line)).unwrap_or_else(|| panic!("{line}"));
            let all = RmctlArguments::try_parse_from(words(line)).expect("parses");
            assert_eq!(format!("{quick:?}"), format!("{all:?}"), "{line}");
        }
    }

    #[test]
    fn mistakes_and_help_are_left_to_all_declarations() {
        for line in [
            "rmctl",
            "rmctl run",
            "rmctl run --help",
            "rmctl run --memroy 1G -- true",
            "rmctl submit",
            "rmctl help run",
            "rmctl --addr http://h:1 run -- true",
            "rmctl ps",
        ] {
            assert!(parse(&words(line)).is_none(), "{line}");
        }
    }
}
