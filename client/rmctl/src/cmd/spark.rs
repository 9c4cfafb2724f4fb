//! `rmctl spark`: submits Spark applications in cluster mode, and prints the options for client
//! mode.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headroom_client::{Client, TokenSource, UploadSource};
use headroom_wire::v1::apps::{AppState, AppView, SubmitApplicationRequest};
use serde::Serialize;

use super::log_source::WINDOW;
use super::submission::{new_key, send};
use super::submit::{print_submitted, print_view, stay};
use super::upload;
use crate::args::{SparkInstallation, SparkSubcommand, SparkSubmitArgs};
use crate::context::{CommandContext, user};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;
use crate::render::logs::tail;
use crate::spark::arguments::{SparkArguments, usage};
use crate::spark::file_location::FileLocation;
use crate::spark::master_url::{check_deploy_mode, check_master, master_url};
use crate::spark::path_pattern::expand;
use crate::spark::plugin::{self, SparkPlugin};
use crate::spark::properties::{PropertiesFile, setting};
use crate::spark::staged_files::{StagedFiles, named_files};
use crate::spark::submission::SparkJob;

/// Lines of the driver's log after its end.
const LOG_LINES: usize = 40;
/// Variables that a driver takes over from the environment of the caller.
const VARIABLES: [&str; 3] = ["JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"];

/// Runs a `spark` verb.
pub(crate) async fn run(context: &CommandContext, what: SparkSubcommand) -> CommandResult {
    match what {
        SparkSubcommand::Submit(args) => submit(context, &args).await,
        SparkSubcommand::Conf(installation) => print_options(context, &installation),
    }
}

async fn submit(context: &CommandContext, args: &SparkSubmitArgs) -> CommandResult {
    let (request, sources) = request(context, args)?;
    if args.dry_run {
        let text = serde_json::to_string_pretty(&request)
            .map_err(|e| CommandFailure::new(CommandExitCode::Failed, e.to_string()))?;
        context.term.line(&text);
        return Ok(CommandExitCode::Ok);
    }
    let client = context.client()?;
    upload::upload(context, &client, &sources).await?;
    let submitted = send(&client, request).await?;
    let (id, people) = (&submitted.app, context.format.is_screen());
    if !args.follow {
        print_submitted(context, &submitted, people);
        return Ok(CommandExitCode::Ok);
    }
    if people {
        let name = context.term.paint.strong(&id.to_string());
        context.term.line(&format!(
            "job   {name} accepted   (Ctrl-C detaches; rmctl attach {id})"
        ));
    }
    let app = tokio::select! {
        app = stay(context, &client, id, people) => app?,
        _ = tokio::signal::ctrl_c() => {
            context.term.say(&format!("detached; {id} keeps running: rmctl attach {id}"));
            return Ok(CommandExitCode::Ok);
        }
    };
    print_driver_log(context, &client, &app, people).await;
    print_view(context, &app, people);
    Ok(CommandExitCode::of_app(&app))
}

/// The submission, from the arguments, the properties file and the environment, with the files to
/// upload.
fn request(
    context: &CommandContext,
    args: &SparkSubmitArgs,
) -> CommandResult<(SubmitApplicationRequest, Vec<UploadSource>)> {
    let arguments = SparkArguments::parse(&args.arguments)?;
    for master in [
        arguments.option("--master"),
        arguments.setting("spark.master"),
    ] {
        check_master(master, &context.addr)?;
    }
    let mode_setting = arguments.setting("spark.submit.deployMode");
    for mode in [arguments.option("--deploy-mode"), mode_setting] {
        check_deploy_mode(mode)?;
    }
    let spark_home = args.installation.spark_home.as_deref().ok_or_else(|| {
        usage("the directory of Spark on the nodes is not known")
            .help("name it with --spark-home DIR or SPARK_HOME")
    })?;
    let properties = arguments
        .option("--properties-file")
        .map(read)
        .transpose()?;
    let (plugin, variables) = (find_plugin(&args.installation)?, variables());
    let file = PropertiesFile::parse(properties.as_deref().unwrap_or_default());
    let (files, sources) = stage(&arguments, &file, &plugin, &variables)?;
    let job = SparkJob {
        properties,
        spark_home,
        files,
        variables,
        max_memory: args.driver_max_memory,
        max_attempts: args.max_attempts,
        queue: args.queue.clone(),
        priority: args.priority,
        arguments,
    };
    Ok((job.request(user(), new_key()?)?, sources))
}

fn read(path: &str) -> CommandResult<String> {
    std::fs::read_to_string(path).map_err(|e| usage(format!("--properties-file {path}: {e}")))
}

/// Reads the files of this host. Returns them once for each content, and their names for Spark.
fn stage(
    arguments: &SparkArguments,
    file: &PropertiesFile,
    plugin: &SparkPlugin,
    variables: &BTreeMap<String, String>,
) -> CommandResult<(StagedFiles, Vec<UploadSource>)> {
    let base = std::env::current_dir()
        .map_err(|e| CommandFailure::failed(format!("no working directory: {e}")))?;
    let mut named = Vec::new();
    for (argument, location) in named_files(arguments, file, plugin, &base) {
        match location {
            FileLocation::Host { path, alias: None } => {
                let paths = expand(&path).map_err(|failure| failure.about(argument.name()))?;
                let host = |path| FileLocation::Host { path, alias: None };
                named.extend(paths.into_iter().map(|path| (argument, host(path))));
            }
            other @ (FileLocation::Host { .. } | FileLocation::Elsewhere(_)) => {
                named.push((argument, other));
            }
        }
    }
    let settings = ["spark.pyspark.python", "spark.pyspark.driver.python"];
    let interpreters: Vec<&str> = settings
        .into_iter()
        .filter_map(|key| setting(arguments, file, key))
        .chain(variables.values().map(String::as_str))
        .collect();
    let mut sources: Vec<UploadSource> = Vec::new();
    let staged = StagedFiles::new(named, &interpreters, |argument, path| {
        let source = upload::open(argument.name(), path).map_err(|failure| {
            let path = path.display();
            failure.help(format!(
                "write local:{path} for a file that only the nodes have"
            ))
        })?;
        let sum = source.sha256();
        if sources.iter().all(|known| known.sha256() != sum) {
            sources.push(source);
        }
        Ok(sum)
    })?;
    Ok((staged, sources))
}

fn find_plugin(installation: &SparkInstallation) -> CommandResult<SparkPlugin> {
    let program = std::env::current_exe().ok();
    plugin::find(
        installation.plugin.as_deref(),
        installation.spark_home.as_deref(),
        program.as_deref(),
    )
}

fn variables() -> BTreeMap<String, String> {
    let set = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    VARIABLES.into_iter().filter_map(set).collect()
}

/// Prints the end of the driver's output, and of its messages if it failed. A log that cannot be
/// read is only a message: the result of the application is known.
async fn print_driver_log(context: &CommandContext, client: &Client, app: &AppView, people: bool) {
    let driver = app
        .attempts
        .iter()
        .rev()
        .find_map(|run| run.container.clone());
    let Some(driver) = driver else { return };
    let term = if people {
        context.term
    } else {
        context.term.aside()
    };
    let files: &[&str] = match app.state {
        AppState::Finished => &["stdout"],
        AppState::Accepted
        | AppState::Running
        | AppState::Finishing
        | AppState::Failed
        | AppState::Killed => &["stdout", "stderr"],
    };
    for file in files {
        match client.log(&driver, file, WINDOW).await {
            Ok(text) if text.is_empty() => {}
            Ok(text) => {
                term.line(
                    &term
                        .paint
                        .dim(&format!("── {file} of the driver {driver} ──")),
                );
                term.print(tail(&text, Some(LOG_LINES)));
            }
            Err(e) => context.term.complain(&e.into()),
        }
    }
}

/// Options of spark-submit for client mode.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ClientModeOptions {
    /// Master URL.
    master: String,
    /// The plugin; `None` if Spark loads it by itself.
    jars: Option<PathBuf>,
    /// Settings of `--conf`.
    conf: BTreeMap<&'static str, PathBuf>,
}

impl ClientModeOptions {
    /// One option in each line, for a shell.
    fn lines(&self) -> String {
        let jars = self
            .jars
            .iter()
            .map(|jar| format!("--jars {}\n", jar.display()));
        let conf = self.conf.iter();
        let conf = conf.map(|(key, path)| format!("--conf {key}={}\n", path.display()));
        format!("--master {}\n", self.master) + &jars.chain(conf).collect::<String>()
    }
}

fn print_options(context: &CommandContext, installation: &SparkInstallation) -> CommandResult {
    let trust = &context.settings.trust;
    let jars = match find_plugin(installation)? {
        SparkPlugin::Installed => None,
        SparkPlugin::Jar(path) => Some(path),
    };
    let options = options(&context.addr, jars, trust.files.ca.as_deref(), &trust.token)?;
    if trust.files.own.is_some() && trust.token == TokenSource::Nowhere {
        context.term.say(
            "note: the plugin authenticates with a token and not with a certificate: \
             rmctl acl token create",
        );
    }
    let machine = MachineOutput {
        items: std::slice::from_ref(&options),
        list: false,
    };
    let text = machine.text(&context.output, |options| options.master.clone());
    context.term.print(&text.unwrap_or_else(|| options.lines()));
    Ok(CommandExitCode::Ok)
}

/// The options for one cluster. A token in `HEADROOM_TOKEN` needs no option: the plugin reads the
/// same variable.
fn options(
    address: &str,
    jars: Option<PathBuf>,
    ca: Option<&Path>,
    token: &TokenSource,
) -> CommandResult<ClientModeOptions> {
    let token_file = match token {
        TokenSource::File(path) => Some(("spark.headroom.tokenFile", path.clone())),
        TokenSource::Nowhere | TokenSource::Text(_) => None,
    };
    let ca_file = ca.map(|path| ("spark.headroom.caFile", path.to_path_buf()));
    Ok(ClientModeOptions {
        master: master_url(address)?,
        jars,
        conf: token_file.into_iter().chain(ca_file).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_mode_has_its_options() {
        let token = TokenSource::File("/etc/t".into());
        let jar = Some(PathBuf::from("/opt/p.jar"));
        let found = options(
            "https://rm:7070",
            jar,
            Some(Path::new("/etc/ca.pem")),
            &token,
        );
        assert_eq!(
            found.expect("options").lines(),
            "--master spark-headroom+https://rm:7070\n--jars /opt/p.jar\n\
             --conf spark.headroom.caFile=/etc/ca.pem\n\
             --conf spark.headroom.tokenFile=/etc/t\n"
        );
        let plain = options("http://rm:7070", None, None, &TokenSource::Nowhere);
        assert_eq!(
            plain.expect("options").lines(),
            "--master spark-headroom://rm:7070\n"
        );
    }
}
