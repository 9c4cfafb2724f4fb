//! `rmctl request create`: creates a container request for a job, from options or from a file.

use std::io::Read as _;
use std::path::Path;

use headroom_client::{Client, DryRunMode};
use headroom_types::{LaunchSpec, Resource, millis};
use headroom_wire::v1::application_master::{
    Placement, PlacementRequest, PlacementResponse, PlacementVerdict,
};

use crate::args::RequestCreateArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{TextPainter, count, figures::short, json::MachineOutput};

/// Creates the request, or only validates it.
pub(super) async fn create(
    context: &CommandContext,
    client: &Client,
    args: RequestCreateArgs,
) -> CommandResult {
    let ask = match &args.file {
        Some(file) => read(file)?,
        None => typed(&args)?,
    };
    let how = DryRunMode::of(args.dry_run);
    let (app, _) = context.app_figures(client, &args.job).await?;
    let answer = client.create_request(&app.id, how, &ask).await?;
    let machine = MachineOutput::one(&answer).text(&context.output, |a| a.request.to_string());
    let people = || people(&app.id.to_string(), &ask, &answer, context.term.paint);
    context.show(machine, people);
    Ok(match answer.verdict {
        PlacementVerdict::Waits { .. } if args.dry_run => CommandExitCode::NotNow,
        PlacementVerdict::Fits | PlacementVerdict::Waits { .. } => CommandExitCode::Ok,
        PlacementVerdict::Never { .. } => CommandExitCode::Never,
    })
}

fn people(
    app: &str,
    ask: &PlacementRequest,
    answer: &PlacementResponse,
    paint: TextPainter,
) -> String {
    let what = format!(
        "{} of {}",
        count(ask.count, "container"),
        short(ask.resource.memory)
    );
    let (fate, see) = match &answer.verdict {
        PlacementVerdict::Fits => (
            paint.good("✓ fits now"),
            format!("rmctl container list {app}"),
        ),
        PlacementVerdict::Waits { sentence } => (
            paint.warn(&format!("… waits: {sentence}")),
            format!("rmctl request why {app} {}", ask.request),
        ),
        PlacementVerdict::Never { sentence, .. } => (
            paint.bad(&format!("✗ never: {sentence}")),
            "rmctl node list".to_owned(),
        ),
    };
    format!(
        "{}  {what}  {fate}\n{}\n",
        answer.request,
        paint.dim(&format!("next: {see}"))
    )
}

/// Reads the body of `POST /v1/apps/{app}/requests`, with or without the `ask` around it.
fn read(file: &Path) -> CommandResult<PlacementRequest> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let wrong = |what: String| CommandFailure::usage(format!("{}: {what}", file.display()));
    let text = text.map_err(|e| wrong(e.to_string()))?;
    // A JSON document begins with a brace; no TOML document does.
    let parsed: Result<serde_json::Value, String> = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|e| format!("not JSON: {e}"))
    } else {
        toml::from_str(&text).map_err(|e| format!("not TOML: {e}"))
    };
    let mut value = parsed.map_err(wrong)?;
    let inner = value
        .get_mut("ask")
        .map(serde_json::Value::take)
        .unwrap_or(value);
    let help = "rmctl request show JOB REQUEST -o json prints a valid request; rmctl explain Ask names its fields";
    serde_json::from_value(inner).map_err(|e| wrong(e.to_string()).help(help))
}

/// The request from the options.
fn typed(args: &RequestCreateArgs) -> CommandResult<PlacementRequest> {
    let (Some(request), Some(memory)) = (args.name.clone(), args.memory) else {
        return Err(CommandFailure::usage("a request needs a name and a size")
            .help("add --name NAME --memory SIZE, or --file FILE"));
    };
    let launch = LaunchSpec {
        command: args.launch.command.clone(),
        env: args.launch.env.iter().cloned().collect(),
        heap: args.heap,
        ..LaunchSpec::default()
    };
    Ok(PlacementRequest {
        count: args.count,
        priority: args.priority,
        avoid_nodes: args.avoid.clone(),
        nodes: args.nodes.clone(),
        placement: Box::new(Placement {
            labels: args.labels.iter().cloned().collect(),
            tolerate: args.tolerate.iter().cloned().collect(),
            ..Placement::default()
        }),
        deadline_ms: args.deadline.map(millis),
        ..PlacementRequest::new(request, Resource::new(memory, args.cpus), launch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{RequestSubcommand, RmctlArguments, RootSubcommand};
    use clap::Parser as _;

    fn args(words: &[&str]) -> RequestCreateArgs {
        let cli = RmctlArguments::try_parse_from(
            [&["rmctl", "request", "create", "sort.3"], words].concat(),
        )
        .expect("parses");
        let RootSubcommand::Request(RequestSubcommand::Create(args)) = cli.verb else {
            panic!("another verb")
        };
        *args
    }

    #[test]
    fn options_and_a_file_give_the_same_request() {
        let words = [
            "--name",
            "extra",
            "-m",
            "2GiB",
            "--cpus",
            "0.5",
            "--count",
            "3",
            "--avoid",
            "n1",
            "--label",
            "ssd",
            "--deadline",
            "1m",
        ];
        let ask = typed(&args(
            &[&words[..], &["-e", "A=b=c", "--", "sleep", "5"]].concat(),
        ))
        .expect("right");
        assert_eq!(
            (ask.request.as_str(), ask.count, ask.deadline_ms),
            ("extra", 3, Some(60_000))
        );
        assert_eq!(
            (ask.launch.command.as_slice(), ask.launch.env["A"].as_str()),
            (["sleep".to_owned(), "5".to_owned()].as_slice(), "b=c")
        );
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("ask.json");
        for text in [serde_json::json!(ask), serde_json::json!({ "ask": ask })] {
            std::fs::write(&file, text.to_string()).expect("writes");
            assert_eq!(read(&file), Ok(ask.clone()));
        }
        let text = "request = \"extra\"\ncount = 3\navoid_nodes = [\"n1\"]\ndeadline_ms = 60000\n\
                    [resource]\nmemory = \"2GiB\"\ncpus = 0.5\n[placement]\nlabels = [\"ssd\"]\n\
                    [launch]\ncommand = [\"sleep\", \"5\"]\n[launch.env]\nA = \"b=c\"\n";
        for text in [
            text.to_owned(),
            format!("[ask]\n{}", text.replace("\n[", "\n[ask.")),
        ] {
            std::fs::write(&file, &text).expect("writes");
            assert_eq!(read(&file), Ok(ask.clone()), "{text}");
        }
        std::fs::write(&file, "request = \"a\"\nsize = 1\n").expect("writes");
        assert!(read(&file).expect_err("wrong").to_string().contains("size"));
        std::fs::write(&file, "request = ").expect("writes");
        assert!(
            read(&file)
                .expect_err("wrong")
                .to_string()
                .contains("not TOML")
        );
        std::fs::write(&file, "{\"request\": \"a\", \"size\": 1}").expect("writes");
        let wrong = read(&file).expect_err("wrong");
        assert!(
            wrong.exit() == CommandExitCode::Usage && wrong.to_string().contains("size"),
            "{wrong}"
        );
        assert!(
            RmctlArguments::try_parse_from(["rmctl", "request", "create", "sort.3", "--name", "a"])
                .is_err(),
            "no size, no command"
        );
    }

    #[test]
    fn each_answer_shows_the_next_command() {
        let ask = typed(&args(&["--name", "extra", "-m", "2GiB", "--", "true"])).expect("right");
        let said = |verdict| {
            people(
                "sort.3",
                &ask,
                &PlacementResponse {
                    request: ask.request.clone(),
                    verdict,
                },
                TextPainter::PLAIN,
            )
        };
        assert_eq!(
            said(PlacementVerdict::Fits),
            "extra  1 container of 2G  ✓ fits now\nnext: rmctl container list sort.3\n"
        );
        let waits = said(PlacementVerdict::Waits {
            sentence: "needs 2 GiB".into(),
        });
        assert!(
            waits.contains("… waits: needs 2 GiB")
                && waits.ends_with("next: rmctl request why sort.3 extra\n"),
            "{waits}"
        );
    }
}
