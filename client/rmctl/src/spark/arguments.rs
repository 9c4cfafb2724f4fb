//! Parses the arguments of spark-submit with its own rules. Pure.
//!
//! An option that occurs twice has its last value. `--option=value` is `--option value`. The first
//! word that is no option is the application; all later words are its arguments.

use std::collections::BTreeMap;

use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// Options with a value that are passed on unchanged.
const PASSED_ON: [&str; 11] = [
    "--class",
    "--name",
    "--packages",
    "--exclude-packages",
    "--repositories",
    "--driver-java-options",
    "--driver-class-path",
    "--driver-library-path",
    "--executor-memory",
    "--executor-cores",
    "--total-executor-cores",
];

/// Options with a value that the submission replaces or completes.
const REPLACED: [&str; 11] = [
    "--master",
    "--deploy-mode",
    "--properties-file",
    "--jars",
    "--py-files",
    "--files",
    "--archives",
    "--driver-memory",
    "--driver-cores",
    "--num-executors",
    "--queue",
];

/// Options of spark-submit that do not exist here, with the replacement.
const UNSUPPORTED: [(&str, &str); 9] = [
    (
        "--supervise",
        "the driver is run again anyway: rmctl spark submit --max-attempts N",
    ),
    ("--kill", "rmctl kill JOB"),
    ("--status", "rmctl ps JOB"),
    (
        "--remote",
        "a client of Spark Connect needs no driver on a node: use spark-submit itself",
    ),
    ("--proxy-user", "submit as that user"),
    ("--principal", "Kerberos is not supported in cluster mode"),
    ("--keytab", "Kerberos is not supported in cluster mode"),
    ("--version", "run spark-submit --version"),
    ("--usage-error", "rmctl spark submit --help"),
];

/// Applications that are interactive shells.
const SHELLS: [&str; 3] = ["spark-shell", "pyspark-shell", "sparkr-shell"];

/// The word that spark-submit accepts instead of an application file, for a class of Spark itself.
pub(crate) const NO_FILE: &str = "spark-internal";

/// A parsed command line of spark-submit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SparkArguments {
    /// Options with a value, without `--conf`.
    options: BTreeMap<String, String>,
    /// Settings of `--conf`, in order.
    pub(crate) conf: Vec<(String, String)>,
    /// Options without a value.
    pub(crate) switches: Vec<String>,
    /// The jar or script; `spark-internal` for a class of Spark itself.
    pub(crate) application: String,
    /// Arguments of the application.
    pub(crate) application_arguments: Vec<String>,
}

impl SparkArguments {
    /// Parses all words after the options of rmctl.
    pub(crate) fn parse(words: &[String]) -> CommandResult<SparkArguments> {
        let mut parsed = SparkArguments::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let (name, attached) = split(word);
            let name = if name == "-c" { "--conf" } else { name };
            if matches!(name, "--verbose" | "-v" | "--load-spark-defaults") {
                parsed.switches.push(word.clone());
                continue;
            }
            let takes_value =
                name == "--conf" || PASSED_ON.contains(&name) || REPLACED.contains(&name);
            if !takes_value {
                if word.starts_with('-') {
                    return Err(unknown(name));
                }
                parsed.application = application(word)?;
                parsed.application_arguments = rest.cloned().collect();
                return Ok(parsed);
            }
            let value = match attached {
                Some(value) => value.to_owned(),
                None => rest
                    .next()
                    .cloned()
                    .ok_or_else(|| usage(format!("{name} needs a value")))?,
            };
            parsed.set(name, value)?;
        }
        Err(usage("the application is missing").help(
            "name the jar or the .py file after the options: rmctl spark submit --class C app.jar",
        ))
    }

    fn set(&mut self, name: &str, value: String) -> CommandResult<()> {
        if name == "--conf" {
            let (key, value) = value
                .split_once('=')
                .ok_or_else(|| usage(format!("--conf {value}: write --conf key=value")))?;
            self.conf.push((key.to_owned(), value.to_owned()));
        } else {
            self.options.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// Value of an option.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Value of a setting of `--conf`.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        let found = self.conf.iter().rev().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The options with a value that are passed on unchanged.
    pub(crate) fn passed_on(&self) -> impl Iterator<Item = (&str, &str)> {
        let of = |name: &'static str| self.option(name).map(|value| (name, value));
        PASSED_ON.into_iter().filter_map(of)
    }
}

/// Splits `--option=value`. Other words have no attached value.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) if name.len() > 2 && name.starts_with("--") && !value.is_empty() => {
            (name, Some(value))
        }
        Some(_) | None => (word, None),
    }
}

fn application(word: &str) -> CommandResult<String> {
    if SHELLS.contains(&word) {
        return Err(usage(format!(
            "{word} is interactive, and cluster mode has no terminal"
        ))
        .help("run it in client mode: spark-shell $(rmctl spark conf)"));
    }
    Ok(word.to_owned())
}

fn unknown(name: &str) -> CommandFailure {
    if let Some((_, fix)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
        return usage(format!("{name} is not supported in cluster mode")).help(*fix);
    }
    let names = PASSED_ON
        .into_iter()
        .chain(REPLACED)
        .chain(["--conf", "--verbose"]);
    usage(format!("{name} is not an option of spark-submit"))
        .near(name, names)
        .help("options of rmctl come before those of spark-submit: rmctl spark submit --help")
}

/// A mistake in the arguments.
pub(crate) fn usage(sentence: impl Into<String>) -> CommandFailure {
    CommandFailure::new(CommandExitCode::Usage, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CommandResult<SparkArguments> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        SparkArguments::parse(&words)
    }

    #[test]
    fn options_are_read_as_spark_submit_reads_them() {
        let line = parse(
            "--class A --driver-memory=2g --conf a=1 --conf=b=x=y -c a=2 --verbose \
             --name one --name two app.jar --class in -c d",
        )
        .expect("parses");
        assert_eq!(line.option("--class"), Some("A"));
        assert_eq!(line.option("--driver-memory"), Some("2g"));
        assert_eq!(line.option("--name"), Some("two"));
        assert_eq!(line.setting("a"), Some("2"));
        assert_eq!(line.setting("b"), Some("x=y"));
        assert_eq!(line.setting("c"), None);
        assert_eq!(line.switches, ["--verbose"]);
        assert_eq!(line.application, "app.jar");
        assert_eq!(line.application_arguments, ["--class", "in", "-c", "d"]);
        let passed: Vec<_> = line.passed_on().collect();
        assert_eq!(passed, [("--class", "A"), ("--name", "two")]);
    }

    #[test]
    fn mistakes_name_the_word_and_the_fix() {
        for (text, named) in [
            ("", "the application is missing"),
            ("--class A", "the application is missing"),
            ("--class", "--class needs a value"),
            ("--conf ab app.py", "--conf ab: write --conf key=value"),
            (
                "--drivr-memory 1g app.py",
                "--drivr-memory is not an option",
            ),
            ("--drivr-memory 1g app.py", "--driver-memory"),
            ("--supervise app.jar", "--max-attempts"),
            ("--kill driver-1", "rmctl kill"),
            ("-x app.jar", "-x is not an option"),
            ("pyspark-shell", "rmctl spark conf"),
        ] {
            let failure = parse(text).expect_err(text);
            assert_eq!(failure.exit(), CommandExitCode::Usage);
            assert!(failure.to_string().contains(named), "{text}: {failure}");
        }
    }
}
