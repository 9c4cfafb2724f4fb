//! `rmctl submit`: compiles a job file, compares it with the largest node, submits it, and follows
//! the job on request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headroom_client::Client;
use headroom_client::retry::Backoff;
use headroom_config::job::{
    ClusterProfiles, GrowSpec, GrowthRefusal, InfeasibleStage, growth, growth_problems, profiles,
};
use headroom_config::{FileProblemKind, JobSpec, StageSpec};
use headroom_types::{AppId, Bytes, Cpus, LaunchSpec, Resource, UnixMillis};
use headroom_wire::v1::apps::{AppView, ApplicationMaster, SubmissionResult, SubmitApp};
use headroom_wire::v1::job::MemoryFailureMode;
use headroom_wire::v1::nodes::NodeView;

use crate::args::Submit;
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::follow::{JobObservation, follow};
use crate::progress::Progress;
use crate::render::figures::{byte_time, clock};
use crate::render::{Paint, count, events, json, plan};

/// A compiled job file.
#[derive(Debug)]
pub(crate) struct Job {
    /// The compiled job.
    pub(crate) spec: JobSpec,
    /// The text of the file, which is part of the submission.
    pub(crate) text: String,
    /// Profiles of the cluster that the file names; they are written into the text.
    pub(crate) named: ClusterProfiles,
    /// Base directory of relative file names.
    pub(crate) base: PathBuf,
    /// The sizing mode.
    pub(crate) mode: MemoryFailureMode,
}

/// Submits a job file.
pub(crate) async fn run(context: &Context, args: Submit) -> Result<Exit, Failure> {
    let job = load(context, &args.file, args.mode).await?;
    let client = context.client()?;
    let nodes = client.nodes().await?;
    refuse_infeasible(&job.spec, &nodes)?;
    refuse_growth(&job, &args.file.display().to_string(), &nodes)?;
    let people = context.format.is_screen();
    if people {
        let largest = candidates(&nodes).map(|n| n.offers.memory).max();
        context
            .term
            .print(&plan::plan(&job.spec, job.mode, largest, |stage| {
                polls(&job.spec, stage, &nodes)
            }));
        context.term.print(&plan::named(&job.named));
        if largest.is_none() {
            context
                .term
                .say("note: no node is ready; the job waits for one");
        }
    }
    if args.dry_run {
        return Ok(Exit::Ok);
    }
    if args.unmanaged {
        return unmanaged(context, &args, &job).await;
    }
    let submitted = submit(&client, &job).await?;
    if !args.follow {
        print_submitted(context, &submitted, people);
        return Ok(Exit::Ok);
    }
    if people {
        let id = &submitted.app;
        context.term.line(&format!(
            "job   {} accepted   (Ctrl-C detaches; rmctl attach {id})",
            context.term.paint.strong(&id.to_string())
        ));
    }
    let app = tokio::select! {
        app = stay(context, &client, &submitted.app, people) => app?,
        _ = tokio::signal::ctrl_c() => {
            context.term.say(&format!("detached; {} keeps running: rmctl attach {}", submitted.app, submitted.app));
            return Ok(Exit::Ok);
        }
    };
    print_view(context, &app, people);
    Ok(Exit::of_app(&app))
}

/// Prints the last view in a machine format.
pub(crate) fn print_view(context: &Context, app: &AppView, people: bool) {
    if !people {
        let found = json::MachineOutput {
            items: std::slice::from_ref(app),
            list: false,
        };
        context.term.print(
            &found
                .text(&context.output, |a| a.id.to_string())
                .unwrap_or_default(),
        );
    }
}

/// Reads and compiles a job file. All its mistakes are reported together, and nothing is submitted.
/// Profiles that it names but does not define come from the cluster and are written into its text.
pub(crate) async fn load(
    context: &Context,
    file: &Path,
    mode: Option<MemoryFailureMode>,
) -> Result<Job, Failure> {
    let text = headroom_config::load::read(file).map_err(mistakes)?;
    match super::profile::named_in(context, &text).await {
        Ok(cluster) => compiled(file, text, mode, &cluster),
        Err(unasked) => Err(without_the_cluster(file, &text, unasked)),
    }
}

/// The error for a file whose cluster profiles are not available: the file's own mistakes, if it
/// has any.
fn without_the_cluster(file: &Path, text: &str, unasked: Failure) -> Failure {
    let foreign = profiles::cluster_profile_names(text);
    let names: Vec<&str> = foreign.iter().map(headroom_types::Name::as_str).collect();
    let what = format!(
        "{} names {}, which only the cluster can define",
        file.display(),
        names.join(", ")
    );
    let mut own = headroom_config::job::compile(text, &file.display().to_string())
        .err()
        .unwrap_or_default();
    own.retain(|problem| match &problem.kind {
        FileProblemKind::UnknownProfile(name) => !foreign.contains(name),
        FileProblemKind::General => true,
    });
    if own.is_empty() {
        unasked.help(what)
    } else {
        mistakes(own).help(what).help(unasked.to_string())
    }
}

fn mistakes(problems: Vec<headroom_config::FileProblem>) -> Failure {
    Failure::laid_out(Exit::Usage, headroom_config::render(&problems))
}

/// Compiles the text of a job file that may name profiles of the cluster. The submitted text
/// defines all of them.
pub(crate) fn compiled(
    file: &Path,
    text: String,
    mode: Option<MemoryFailureMode>,
    cluster: &ClusterProfiles,
) -> Result<Job, Failure> {
    let name = file.display().to_string();
    headroom_config::job::compile_with(&text, &name, cluster).map_err(mistakes)?;
    let mut named = cluster.clone();
    named.retain(|name, _| profiles::cluster_profile_names(&text).contains(name));
    let text = profiles::inline_cluster_profiles(&text, &named);
    let advice =
        "cluster profiles can be combined with [profiles.NAME] tables, not with profiles = { ... }";
    let spec = headroom_config::job::compile(&text, &name)
        .map_err(|found| mistakes(found).help(advice))?;
    let parent = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let base = parent
        .canonicalize()
        .map_err(|e| Failure::new(Exit::Usage, format!("{}: {e}", parent.display())))?;
    let mode = mode.unwrap_or(spec.mode);
    Ok(Job {
        spec,
        text,
        named,
        base,
        mode,
    })
}

/// Nodes that accept work now or may do so again.
fn candidates(nodes: &[NodeView]) -> impl Iterator<Item = &NodeView> {
    nodes.iter().filter(|n| n.state != "lost")
}

/// Refuses a job with a stage that fits on no node. The error names the largest node.
pub(crate) fn refuse_infeasible(job: &JobSpec, nodes: &[NodeView]) -> Result<(), Failure> {
    if candidates(nodes).next().is_none() {
        return Ok(());
    }
    if let Some(set) = job
        .executors
        .iter()
        .find(|set| !candidates(nodes).any(|n| set.place.matches_node(&n.id, &n.traits)))
    {
        let what = format!(
            "{} cannot run here: no node is {}, as [executors.{}] requires",
            job.name, set.place, set.name
        );
        return Err(
            Failure::new(Exit::Never, what).help("rmctl node list -o wide shows labels and taints")
        );
    }
    let fails = |stage: &StageSpec, n: &NodeView| {
        headroom_config::job::infeasible_stages(job, &n.offers)
            .into_iter()
            .find(|f| f.stage == stage.name)
    };
    let never = job.stages.iter().filter_map(|stage| {
        let set = job.executors_of(stage)?;
        let suits = || candidates(nodes).filter(|n| set.place.matches_node(&n.id, &n.traits));
        let largest = suits().max_by_key(|n| n.offers.memory)?;
        let nowhere = suits().all(|n| fails(stage, n).is_some());
        nowhere
            .then(|| Some((fails(stage, largest)?, largest)))
            .flatten()
    });
    let never: Vec<(InfeasibleStage, &NodeView)> = never.collect();
    let Some((first, largest)) = never.first() else {
        return Ok(());
    };
    let place = format!("the largest node is {} with {}", largest.id, largest.offers);
    let failure = Failure::new(
        Exit::Never,
        format!("{} can never run here: {}", job.name, first.sentence),
    )
    .help(place);
    Err(never
        .iter()
        .skip(1)
        .fold(failure, |f, (n, _)| f.help(format!("also {}", n.sentence))))
}

/// Refuses a stage with `grow = true` where growth is impossible. The error has the stage's place
/// in the file.
pub(crate) fn refuse_growth(job: &Job, file: &str, nodes: &[NodeView]) -> Result<(), Failure> {
    let why = |stage: &StageSpec| match stage.grow {
        GrowSpec::Stated(_) if !growth::mode_allows_growth(job.mode) => {
            Some(GrowthRefusal::Mode(job.mode))
        }
        GrowSpec::Stated(_) if polls(&job.spec, stage, nodes) => Some(GrowthRefusal::PollOnly),
        GrowSpec::Stated(_) | GrowSpec::Usual(_) | GrowSpec::Off => None,
    };
    let refused: Vec<(&StageSpec, GrowthRefusal)> = job
        .spec
        .stages
        .iter()
        .filter_map(|stage| Some((stage, why(stage)?)))
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(mistakes(growth_problems(&job.text, file, &refused)))
    }
}

/// True if nodes can run the stage and all of them limit memory by polling only.
pub(crate) fn polls(job: &JobSpec, stage: &StageSpec, nodes: &[NodeView]) -> bool {
    let Some(set) = job.executors_of(stage) else {
        return false;
    };
    let mut suits = candidates(nodes)
        .filter(|n| set.place.matches_node(&n.id, &n.traits))
        .peekable();
    suits.peek().is_some() && suits.all(|n| !n.enforcer.is_kernel())
}

/// Submits a job under a master that the resource manager launches. Safe to repeat: the idempotency
/// key prevents a second application.
pub(crate) async fn submit(client: &Client, job: &Job) -> Result<SubmissionResult, Failure> {
    let mut request = request(job, &format!("rmctl-{}-{}", std::process::id(), now().0));
    // An authenticated client needs no user name in the request.
    request.user = request.user.filter(|_| !client.is_authenticated());
    let mut backoff = Backoff::usual();
    for _ in 0..3 {
        match client.submit(&request).await {
            Err(e) if e.retryable() && !e.connection_refused() => {
                tokio::time::sleep(backoff.wait()).await
            }
            answer => return Ok(answer?),
        }
    }
    Ok(client.submit(&request).await?)
}

/// The submission of a job.
pub(crate) fn request(job: &Job, key: &str) -> SubmitApp {
    let words = [
        "appmaster",
        "--job",
        "job.toml",
        "--mode",
        job.mode.as_str(),
        "--base-dir",
    ];
    let command = words
        .into_iter()
        .map(str::to_owned)
        .chain([job.base.display().to_string()])
        .collect();
    let files = BTreeMap::from([("job.toml".to_owned(), job.text.clone())]);
    let launch = LaunchSpec {
        command,
        files,
        ..LaunchSpec::default()
    };
    let master = ApplicationMaster::Managed {
        resource: master_size(job.spec.tasks()),
        launch: Box::new(launch),
        max_attempts: 2,
    };
    SubmitApp {
        name: job.spec.name.clone(),
        queue: job.spec.queue.clone(),
        priority: job.spec.priority,
        user: crate::context::user(),
        lifetime_ms: None,
        master,
        idempotency_key: Some(key.to_owned()),
        access: job.spec.access.clone(),
    }
}

/// Size of a master. A master keeps a row for each task. It requests no processors, because it
/// mostly waits. On a host with two processors an executor that requests both could otherwise never
/// start.
fn master_size(tasks: u32) -> Resource {
    let rows = Bytes::from_kib(u64::from(tasks).saturating_mul(8));
    let memory = Bytes::from_mib(64)
        .saturating_add(rows)
        .round_up(Bytes::from_mib(8));
    Resource::new(memory, Cpus::ZERO)
}

/// Prints events until the job has ended: to standard output for users, to standard error if
/// standard output is data.
pub(crate) async fn stay(
    context: &Context,
    client: &Client,
    id: &AppId,
    people: bool,
) -> Result<AppView, Failure> {
    let term = &context.term;
    let paint = if people { term.paint } else { term.talk };
    let progress = Progress::tasks(term);
    let mut tasks = 0;
    let mut submitted: Option<UnixMillis> = None;
    let show = |line: String| {
        progress.above(|| {
            if people {
                term.line(&line)
            } else {
                term.say(&line)
            }
        })
    };
    let app = follow(client, id, |sight| match sight {
        JobObservation::View(view) => {
            submitted = Some(view.submitted);
            if let Some(job) = &view.job {
                tasks = job.totals.tasks;
                progress.show(&job.totals);
            }
        }
        JobObservation::Event(event) => {
            let from = *submitted.get_or_insert(event.time);
            if events::worth_following(event, tasks) {
                show(events::followed(event, from, paint));
            }
        }
        JobObservation::Waits(why) => show(events::waits(why, paint)),
    })
    .await?;
    show(summary(&app, paint));
    if people {
        show(paint.dim(&format!("next: {}", next(&app))));
    }
    Ok(app)
}

/// The command to type after a job has ended.
fn next(app: &AppView) -> String {
    let escalated = app.job.as_ref().is_some_and(|job| job.totals.escalated > 0);
    match Exit::of_app(app) == Exit::Ok {
        true if escalated => format!("rmctl job suggest {} · rmctl ps {}", app.id.name(), app.id),
        true => format!("rmctl ps {}", app.id),
        false => format!("rmctl diagnose {}", app.id),
    }
}

/// The last line: the result and the cost of the job.
fn summary(app: &AppView, paint: Paint) -> String {
    let took = clock(app.ended.unwrap_or(app.submitted).since(app.submitted));
    let state = crate::render::apps::state(app.state, paint);
    let why = if app.diagnostics.is_empty() {
        String::new()
    } else {
        format!("\n       {}", app.diagnostics)
    };
    let figures = app.job.as_ref().map(|j| &j.totals).map(|t| {
        let (kills, escalated) = (count(t.memory_kills, "kill"), count(t.escalated, "task"));
        let collateral = match t.collateral_reruns {
            0 => String::new(),
            n => format!(", {}", count(n, "collateral re-run")),
        };
        let rerun = byte_time(t.rerun_byte_ms);
        format!(
            " · {} ok, {} failed · {kills}, {escalated} escalated{collateral}, {rerun} re-run",
            t.done, t.failed
        )
    });
    format!("{took:>5}  {state}{}{why}", figures.unwrap_or_default())
}

fn print_submitted(context: &Context, submitted: &SubmissionResult, people: bool) {
    let id = &submitted.app;
    if people {
        let name = context.term.paint.strong(&id.to_string());
        context.term.line(&format!(
            "job   {name} accepted\nnext: rmctl ps {id} · rmctl wait {id}"
        ));
        return;
    }
    let found = json::MachineOutput {
        items: std::slice::from_ref(submitted),
        list: false,
    };
    context.term.print(
        &found
            .text(&context.output, |s| s.app.to_string())
            .unwrap_or_default(),
    );
}

#[cfg(not(feature = "dev"))]
async fn unmanaged(_context: &Context, args: &Submit, _job: &Job) -> Result<Exit, Failure> {
    let file = args.file.display();
    Err(Failure::new(
        Exit::Usage,
        "this rmctl was built without an application master",
    )
    .help(format!(
        "start the master separately: appmaster --job {file}, or omit --unmanaged"
    )))
}

/// Runs the master in this process. The master cannot outlive the process, so this waits until the
/// job has ended. Ctrl-C ends the job.
#[cfg(feature = "dev")]
async fn unmanaged(context: &Context, args: &Submit, job: &Job) -> Result<Exit, Failure> {
    use headroom_appmaster::run::{self, StopRequest};
    let (wish, leave) = tokio::sync::watch::channel(StopRequest::GoOn);
    let mut options = run::MasterOptions {
        job: args.file.clone(),
        app: None,
        attempt: 1,
        rm: context.addr.clone(),
        trust: context.settings.trust.clone(),
        state: None,
        base_dir: Some(job.base.clone()),
        listen: ([127, 0, 0, 1], 0).into(),
        profiles: job.named.clone(),
        mode: args.mode,
        master_memory: headroom_types::Bytes::ZERO,
        leave,
    };
    let id = run::submit(&mut options)
        .await
        .map_err(|e| master_failed(&e))?;
    let people = context.format.is_screen();
    if people {
        let name = context.term.paint.strong(&id.to_string());
        context.term.line(&format!(
            "job   {name} accepted, its master runs in this process (Ctrl-C ends the job)"
        ));
    }
    let client = context.client()?;
    let master = tokio::spawn(run::run(options));
    let stay = stay(context, &client, &id, people);
    tokio::pin!(stay);
    let app = tokio::select! {
        app = &mut stay => app?,
        _ = tokio::signal::ctrl_c() => {
            wish.send_replace(StopRequest::Stop);
            stay.await?
        }
    };
    match master.await {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => return Err(master_failed(&e)),
        Err(e) => {
            return Err(Failure::new(
                Exit::Failed,
                format!("the master of {id} was lost: {e}"),
            ));
        }
    }
    print_view(context, &app, people);
    Ok(Exit::of_app(&app))
}

#[cfg(feature = "dev")]
fn master_failed(e: &headroom_appmaster::run::RunError) -> Failure {
    let exit = match e.exit_code() {
        2 => Exit::Usage,
        6 => Exit::Unreachable,
        _ => Exit::Failed,
    };
    let mut text = e.to_string();
    let mut cause = std::error::Error::source(e);
    while let Some(deeper) = cause {
        text.push_str(&format!(": {deeper}"));
        cause = deeper.source();
    }
    Failure::new(exit, text)
}

#[cfg(test)]
mod tests {
    use headroom_types::exit::EnforcerKind;

    use super::*;
    use crate::render::fixture;

    fn job(memory: &str) -> Job {
        let text = format!(
            "version = 1\nname = \"big\"\n[profiles.exec]\nheap = \"{memory}\"\ncpus = 1\n[executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 2\n[[stage]]\nname = \"map\"\ncommand = [\"true\"]\n"
        );
        let spec = headroom_config::job::compile(&text, "job.toml").expect("compiles");
        Job {
            spec,
            text,
            named: ClusterProfiles::new(),
            base: PathBuf::from("/work"),
            mode: MemoryFailureMode::Uber,
        }
    }

    #[test]
    fn an_unmatched_node_constraint_is_refused_with_its_table() {
        let mut nodes = fixture::nodes();
        nodes.iter_mut().for_each(|n| {
            n.traits.taints = [("etl".parse().expect("a name"), String::new())].into()
        });
        assert_eq!(
            refuse_infeasible(&job("1GiB").spec, &nodes),
            Ok(()),
            "the job waits, because taints can be removed"
        );
        nodes.iter_mut().for_each(|n| n.traits.exclusive = true);
        let refused = refuse_infeasible(&job("1GiB").spec, &nodes)
            .expect_err("kept for others")
            .to_string();
        assert!(
            refused.contains("no node is open to all requests, as [executors.main] requires"),
            "{refused}"
        );
        nodes[0].traits.exclusive = false;
        assert_eq!(refuse_infeasible(&job("1GiB").spec, &nodes), Ok(()));
        let large = refuse_infeasible(&job("20GiB").spec, &nodes)
            .expect_err("the large one is kept for others")
            .to_string();
        assert!(large.contains("worker-01 with 15 GiB"), "{large}");
    }

    #[test]
    fn an_infeasible_job_is_refused_with_the_largest_node() {
        let refused =
            refuse_infeasible(&job("64GiB").spec, &fixture::nodes()).expect_err("too large");
        assert_eq!(refused.exit() as u8, 7);
        assert!(refused.to_string().contains("worker-03"), "{refused}");
        assert_eq!(
            refuse_infeasible(&job("20GiB").spec, &fixture::nodes()),
            Ok(())
        );
        assert_eq!(
            refuse_infeasible(&job("64GiB").spec, &[]),
            Ok(()),
            "a node may still come"
        );
    }

    #[test]
    fn impossible_growth_is_refused_with_its_place_in_the_file() {
        let asked = |mode: MemoryFailureMode| {
            let text = job("1GiB").text + "grow = true\n";
            let spec = headroom_config::job::compile(&text, "job.toml").expect("compiles");
            Job {
                spec,
                text,
                mode,
                ..job("1GiB")
            }
        };
        let kernel = fixture::nodes();
        let mut poll = fixture::nodes();
        poll.iter_mut()
            .for_each(|n| n.enforcer = EnforcerKind::Poll);
        assert_eq!(
            refuse_growth(&asked(MemoryFailureMode::Headroom), "job.toml", &kernel),
            Ok(())
        );
        assert_eq!(
            refuse_growth(&asked(MemoryFailureMode::Headroom), "job.toml", &[]),
            Ok(()),
            "a node may still come"
        );
        assert_eq!(
            refuse_growth(&job("1GiB"), "job.toml", &poll),
            Ok(()),
            "the default is off without an error"
        );
        for (mode, nodes, word) in [
            (MemoryFailureMode::Headroom, &poll, "poll"),
            (MemoryFailureMode::Uber, &kernel, "mode uber"),
        ] {
            let refused = refuse_growth(&asked(mode), "job.toml", nodes)
                .expect_err(word)
                .to_string();
            assert!(
                refused.contains("job.toml:13:")
                    && refused.contains(word)
                    && refused.contains("remove grow"),
                "{refused}"
            );
        }
        assert!(
            polls(&job("1GiB").spec, &job("1GiB").spec.stages[0], &poll),
            "the plan shows it"
        );
    }

    #[test]
    fn the_file_travels_with_the_submission() {
        let request = request(&job("1GiB"), "k");
        let ApplicationMaster::Managed {
            resource, launch, ..
        } = request.master
        else {
            panic!("managed")
        };
        assert_eq!(
            launch.command,
            [
                "appmaster",
                "--job",
                "job.toml",
                "--mode",
                "uber",
                "--base-dir",
                "/work"
            ]
        );
        assert!(launch.files["job.toml"].contains("name = \"big\""));
        assert_eq!(
            (resource.memory, resource.cpus),
            (Bytes::from_mib(72), Cpus::ZERO)
        );
    }

    #[test]
    fn a_missing_or_wrong_file_is_a_usage_error() {
        let missing = mistakes(
            headroom_config::load::read(Path::new("/nonexistent/job.toml")).expect_err("missing"),
        );
        assert_eq!(missing.exit(), Exit::Usage);
        assert!(
            missing.to_string().contains("/nonexistent/job.toml"),
            "{missing}"
        );
        let text = "version = 1\nname = \"a b\"\nmode = \"hope\"\n".to_owned();
        let wrong = compiled(Path::new("/job.toml"), text, None, &ClusterProfiles::new())
            .expect_err("wrong")
            .to_string();
        assert!(
            wrong.contains(":2:") && wrong.contains(":3:"),
            "both mistakes at once: {wrong}"
        );
    }

    #[test]
    fn without_the_cluster_only_the_own_mistakes_of_a_file_are_reported() {
        let unasked = || Failure::new(Exit::Unreachable, "no answer");
        let rest = "[executors.main]\nprofile = \"cluster-one\"\nslots = 2\n\
                    [[stage]]\nname = \"map\"\nprofile = \"cluster-two\"\ncommand = [\"true\"]\n";
        let text = format!("version = 1\nname = \"a\"\n{rest}");
        let foreign = without_the_cluster(Path::new("/job.toml"), &text, unasked());
        assert_eq!(foreign.exit(), Exit::Unreachable, "{foreign}");
        let text = foreign.to_string();
        assert!(text.contains("names cluster-one, cluster-two"), "{text}");
        let text = format!("version = 1\nname = \"a b\"\n{rest}");
        let own = without_the_cluster(Path::new("/job.toml"), &text, unasked());
        assert_eq!(own.exit(), Exit::Usage, "{own}");
        assert!(!own.to_string().contains("there is no profile"), "{own}");
    }

    #[test]
    fn the_summary_shows_the_result_of_the_job() {
        let mut app = fixture::app();
        app.state = headroom_wire::v1::apps::AppState::Finished;
        app.ended = Some(UnixMillis(fixture::START + 280_000));
        insta::assert_snapshot!(summary(&app, Paint::PLAIN));
        assert!(next(&app).ends_with("rmctl ps wordcount.7"));
        app.job.as_mut().expect("job").totals.collateral_reruns = 1;
        assert!(summary(&app, Paint::PLAIN).contains("1 task escalated, 1 collateral re-run, "));
        app.state = headroom_wire::v1::apps::AppState::Failed;
        assert_eq!(next(&app), "rmctl diagnose wordcount.7");
    }
}
