//! Arguments of `rmctl spark`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Bytes, QueuePath};

use crate::complete;

/// Help of `rmctl spark submit` below its options.
const SUBMIT_HELP: &str = "\
Options of rmctl come first, then those of spark-submit:
  rmctl spark submit --follow --class org.example.Main --driver-memory 2g app.jar 10

The driver runs on a node. The application, --jars, --py-files, --files, --archives and the plugin
are uploaded to the resource manager if it does not have them, and are in the driver's working
directory under their own names. local:/PATH names a file that the nodes have at that path, such as
one in a shared directory; addresses such as hdfs:// or s3a:// are read by Spark. The file of
--properties-file is sent with the submission.";

/// Verbs about Apache Spark.
#[derive(Debug, Subcommand)]
pub(crate) enum SparkSubcommand {
    /// Run a Spark application in cluster mode: its driver is a container that gets more memory
    /// after a memory failure
    #[command(after_help = SUBMIT_HELP)]
    Submit(SparkSubmitArgs),
    /// Print the options of spark-submit for client mode on this cluster: spark-submit $(rmctl
    /// spark conf) app.py
    Conf(SparkInstallation),
}

/// Spark on the nodes, and the plugin for it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SparkInstallation {
    /// Directory of Spark on the nodes
    #[arg(long, env = "SPARK_HOME", value_name = "DIR")]
    pub(crate) spark_home: Option<PathBuf>,
    /// Jar of the plugin [default: headroom-spark-*.jar in SPARK_HOME/jars, or in ../share/headroom
    /// beside rmctl]
    #[arg(long, env = "HEADROOM_SPARK_PLUGIN", value_name = "FILE")]
    pub(crate) plugin: Option<PathBuf>,
}

/// Arguments of `rmctl spark submit`.
#[derive(Debug, Args)]
pub(crate) struct SparkSubmitArgs {
    #[command(flatten)]
    pub(crate) installation: SparkInstallation,
    /// Largest memory of the driver's container after memory failures [default: four times its
    /// first memory]
    #[arg(long, value_name = "SIZE")]
    pub(crate) driver_max_memory: Option<Bytes>,
    /// Maximum number of runs of the driver; memory failures with a larger next size do not count
    #[arg(
        long,
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=20),
        value_name = "N"
    )]
    pub(crate) max_attempts: u32,
    /// Queue of the application
    #[arg(long, value_name = "QUEUE", add = Completer::new(complete::queues))]
    pub(crate) queue: Option<QueuePath>,
    /// Priority within its queue; higher first
    #[arg(
        long,
        default_value_t = 0,
        allow_negative_numbers = true,
        value_name = "N"
    )]
    pub(crate) priority: i32,
    /// Follow the application and print the end of the driver's log; the exit code is its result
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only print the submission, as JSON
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Arguments of spark-submit: options, the application, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub(crate) arguments: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{RmctlArguments, RootSubcommand};

    fn submit(words: &[&str]) -> SparkSubmitArgs {
        let all = ["rmctl", "spark", "submit"]
            .into_iter()
            .chain(words.iter().copied());
        let parsed = RmctlArguments::try_parse_from(all).expect("parses");
        let RootSubcommand::Spark(SparkSubcommand::Submit(args)) = parsed.verb else {
            panic!("{:?}", parsed.verb)
        };
        args
    }

    #[test]
    fn options_of_rmctl_come_before_those_of_spark_submit() {
        let spark = ["--class", "A", "-c", "a=b", "--queue", "x", "app.jar", "-f"];
        let direct = [&["-f", "--max-attempts", "3"][..], &spark[..]].concat();
        let separated = [&["-f", "--max-attempts", "3", "--"][..], &spark[..]].concat();
        for words in [direct, separated] {
            let args = submit(&words);
            assert!(args.follow && args.max_attempts == 3 && args.queue.is_none());
            assert_eq!(args.arguments, spark);
        }
        assert!(!submit(&spark).follow);
    }
}
