//! Start and end of a master: the job file, the application, the journal, the connections, then the
//! loop of `driver`.

mod outputs;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_client::{Client, ClientCredentials, ClientError, TaskRowScope};
use headroom_config::job::ClusterProfiles;
use headroom_config::{JobSpec, JournalPlace};
use headroom_identity::token::random_hex;
use headroom_objects::{ObjectDirectory, StoreVariables};
use headroom_transport::{ListenerIdentity, MasterAddress};
use headroom_types::{AppId, AttemptId, Bytes, UnixMillis};
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};
use headroom_wire::v1::job::MemoryFailureMode;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::core::{MasterCore, MasterSetup};
use crate::driver::MasterDriver;
use crate::event::{JobEndKind, JobOutcome};
use crate::executor_link::{self, ChannelCredentials};
use crate::job_journal::{JobJournal, SharedPlace};
use crate::journal::{self, JournalError, JournalReplay, MasterJournal};
use crate::manager_journal::{self, ChosenPlace, ManagerJournal, choose_place};
use crate::object_journal::ObjectJournal;
use crate::output::{self, EarlierCommit, JobStartState, OutputOwner};
use crate::record::{self, JournalHeader, JournalRecord};
use crate::rm_link::RmLink;
use crate::shared_journal;
use crate::spec::ExecutorEnvironment;
use crate::submitter_link::{SubmissionListener, SubmitterLinkEvent};
use crate::traces::JobTraceExporter;
use crate::traces::spans::TraceIdentity;
use outputs::OutputClaim;

pub use crate::run_error::MasterRunError;
pub use crate::stop_request::StopRequest;

/// Timeout for the first answer of the resource manager at the start.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages from executors that wait for the loop.
const MAX_EXECUTOR_EVENTS: usize = 4096;
/// Maximum number of messages from the resource manager that wait for the loop.
const MAX_MANAGER_EVENTS: usize = 1024;
/// Maximum number of messages from clients of a live job that wait for the loop. Each has at most
/// 1 MiB.
const MAX_SUBMITTER_EVENTS: usize = 32;

/// Parameters of a master. The documentation of the arguments is the help of the program.
#[derive(Clone, Debug, clap::Args)]
pub struct MasterOptions {
    /// The job file
    #[arg(long, value_name = "FILE")]
    pub job: PathBuf,
    /// Application to run; without it, the job is submitted and its id printed
    #[arg(long, env = "HEADROOM_APP", value_name = "ID")]
    pub app: Option<AppId>,
    /// Number of the application attempt
    #[arg(long, env = "HEADROOM_ATTEMPT", default_value_t = 1, value_name = "N")]
    pub attempt: u32,
    /// Address of the resource manager, or those of all, separated by commas
    #[arg(
        long,
        env = "HEADROOM_RM",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    pub rm: String,
    /// Directory for the journal; it must outlive this run
    // `None` selects a directory below the user's state directory.
    #[arg(long, env = "HEADROOM_APP_DIR", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Directory for the journals of all jobs that every node can read, a URL of an object store
    /// (s3://BUCKET/PATH, with the variables of the AWS tools), or "resourcemanager". Another
    /// node continues a job only with it; set by the node agent
    #[arg(long, env = "HEADROOM_JOURNALS", value_name = "PLACE")]
    pub journals: Option<JournalPlace>,
    /// Working directory of tasks; by default the directory of each container
    #[arg(long, value_name = "DIR")]
    pub base_dir: Option<PathBuf>,
    /// Address on which executors connect
    #[arg(
        long,
        env = "HEADROOM_LISTEN",
        default_value = "127.0.0.1:0",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,
    /// Mode for memory failures, overrides the job file: headroom, pinterest, uber, databricks,
    /// tovar or fixed
    #[arg(long, value_name = "MODE")]
    pub mode: Option<MemoryFailureMode>,
    /// Memory of the container of this master, bytes; set by the node agent
    // Zero for a master that the user runs outside of the cluster.
    #[arg(long, env = "HEADROOM_MEMORY_BYTES", default_value = "0", hide = true)]
    pub master_memory: Bytes,
    /// Trust in the resource manager, and the credentials for it.
    #[arg(skip)]
    pub trust: ClientCredentials,
    /// Profiles of the cluster, which the job file may name.
    #[arg(skip)]
    pub profiles: ClusterProfiles,
    /// Receives requests to end this run or the job.
    #[arg(skip = watch::channel(StopRequest::GoOn).1)]
    pub leave: watch::Receiver<StopRequest>,
}

/// The result of a master.
#[derive(Clone, Debug)]
pub struct MasterResult {
    /// The application.
    pub app: AppId,
    /// The outcome of the job; `None` if this run ended and the job continues without it.
    pub outcome: Option<JobOutcome>,
}

impl MasterResult {
    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        match self.outcome.as_ref().map(|o| o.ending) {
            None | Some(JobEndKind::Succeeded) => 0,
            Some(JobEndKind::Failed | JobEndKind::Stopped) => 1,
            Some(JobEndKind::MemoryExhausted) => 9,
        }
    }
}

/// Reads the job file and applies the requested mode.
pub fn load(options: &MasterOptions) -> Result<JobSpec, MasterRunError> {
    let mut job =
        headroom_config::load_job(&options.job, &options.profiles).map_err(MasterRunError::Job)?;
    if let Some(mode) = options.mode {
        job.mode = mode;
    }
    Ok(job)
}

/// Submits the job as an unmanaged application of this master, and sets `options.app` and
/// `options.attempt`.
pub async fn submit(options: &mut MasterOptions, job: &JobSpec) -> Result<AppId, MasterRunError> {
    let client = client(options)?;
    let body = SubmitApplicationRequest {
        name: job.name.clone(),
        queue: job.queue.clone(),
        priority: job.priority,
        user: std::env::var("USER")
            .ok()
            .filter(|u| !u.is_empty() && u.len() <= 64 && !options.trust.is_authenticated()),
        lifetime_ms: None,
        master: ApplicationMaster::Unmanaged,
        idempotency_key: Some(secret()?),
        access: job.access.clone(),
    };
    let submitted = answered(&options.rm, || client.submit(&body)).await?;
    // Another cluster may have had an application of this id.
    MasterJournal::set_aside(&state_dir(options, &submitted.app).join("journal.ndjson"))?;
    options.app = Some(submitted.app.clone());
    options.attempt = submitted.attempt.attempt;
    Ok(submitted.app)
}

/// Runs the master of an application until its job has ended.
pub async fn run(
    options: MasterOptions,
    app: AppId,
    job: JobSpec,
) -> Result<MasterResult, MasterRunError> {
    let client = client(&options)?;
    let mut journal = open_journal(&client, &options, &app, job.tasks()).await?;
    let path = journal.path();
    let mut replay = journal.replay()?;
    let (begin, listener) = begin(&options, &path, &app, &job, replay.first()).await?;
    let is_new = replay.is_empty();
    let beginning = if is_new {
        JobStartState::New
    } else {
        JobStartState::Old
    };
    let owner = output_owner(&client, &options.rm, &job, &app).await?;
    let OutputClaim { turn, refused } = match &owner {
        Some(owner) => outputs::claim(&client, &job, owner, beginning).await,
        None => OutputClaim::default(),
    };
    let shared = journal.shared_place();
    let files = shared.as_ref().and_then(SharedPlace::directory);
    let files = files.unwrap_or_else(|| state_dir(&options, &app));
    let (lock, greeting) = executor_environment(&options, &files, &listener, &begin)?;
    let setup = core_setup(&options, &app, &begin.token, turn);
    let spec = job.clone();
    let is_refused = refused.is_some();
    let core = build_core(job, setup, &mut replay, refused);
    let (records, job_started) = (replay.len(), replay.job_started());
    let first = (is_new && !is_refused).then(|| JournalRecord::Begin(begin.clone()));
    begin_records(&mut journal, replay, first).await?;
    tracing::info!(%app, attempt = options.attempt, journal = %path.display(), records, url = %greeting.master_url, "master started");

    let (to_loop, executors) = mpsc::channel(MAX_EXECUTOR_EVENTS);
    let (rm_events, rm) = mpsc::channel(MAX_MANAGER_EVENTS);
    let (gate, submitters) = channel_credentials(&begin, &app);
    let submission_token = begin.submission_token.clone();
    let server = tokio::spawn(executor_link::serve(listener, lock, gate, to_loop));
    let link = RmLink::start(client, app.clone(), rm_events);
    let attempt = AttemptId {
        app: app.clone(),
        attempt: options.attempt,
    };
    let mut traces = JobTraceExporter::new(
        TraceIdentity::new(&app.to_string(), &begin.token),
        attempt.to_string(),
    );
    traces.remember_start(job_started);
    let mut shell = MasterDriver::new(
        core,
        journal,
        link,
        (greeting, attempt),
        submission_token,
        traces,
    )?;
    let outcome = shell
        .work(
            executors,
            submitters,
            rm,
            options.leave.clone(),
            &options.rm,
        )
        .await;
    server.abort();
    if let (Ok(Some(_)), Some(owner)) = (&outcome, owner) {
        outputs::release(spec, owner).await;
    }
    let is_end_accepted = shell.is_end_accepted();
    drop(shell);
    if let Some(place) = shared.filter(|_| is_end_accepted) {
        place.remove().await;
    }
    Ok(MasterResult {
        app,
        outcome: outcome?,
    })
}

/// Opens the journal of `app`, which has this number of tasks: in the shared directory, in the object
/// store, in the resource manager, or in a directory of this host.
async fn open_journal(
    client: &Client,
    options: &MasterOptions,
    app: &AppId,
    tasks: u32,
) -> Result<JobJournal, MasterRunError> {
    let file = state_dir(options, app).join("journal.ndjson");
    match &options.journals {
        None => Ok(JobJournal::File(MasterJournal::open(&file)?)),
        Some(JournalPlace::Directory(dir)) => {
            let shared = open_shared_journal(client, options, app, dir).await?;
            Ok(JobJournal::File(shared))
        }
        Some(JournalPlace::Objects(url)) => {
            // For the certificate of the task channel, and the copy of the journal.
            journal::make_dir_of(&file)?;
            let submitted = submission_time(client, options, app).await?;
            let root = ObjectDirectory::open(url, &StoreVariables::of_process());
            let directory = root
                .map_err(JournalError::from)?
                .directory(&app.journal_directory(submitted));
            let (attempt, process) = (options.attempt, secret()?);
            let journal = ObjectJournal::take_over(directory, attempt, process, &file).await?;
            Ok(JobJournal::Objects(Box::new(journal)))
        }
        Some(JournalPlace::ResourceManager) => {
            let query = || client.master_journal(app, options.attempt);
            let stored = answered(&options.rm, query).await?;
            let has_file = manager_journal::has_file(&file);
            match choose_place(&stored, tasks, has_file) {
                ChosenPlace::Node(reason) => {
                    tracing::warn!(%app, reason, "the journal is on this node: if the node is lost, the job begins from its start");
                    Ok(JobJournal::File(MasterJournal::open(&file)?))
                }
                ChosenPlace::Manager => {
                    // For the certificate of the task channel, and the journal after a move.
                    journal::make_dir_of(&file)?;
                    let attempt = AttemptId {
                        app: app.clone(),
                        attempt: options.attempt,
                    };
                    let journal = ManagerJournal::new(client.clone(), attempt, &stored, file);
                    Ok(JobJournal::Manager(Box::new(journal)))
                }
            }
        }
    }
}

/// Ends the replay of a journal, and appends its first record if it has none.
async fn begin_records(
    journal: &mut JobJournal,
    replay: JournalReplay,
    first: Option<JournalRecord>,
) -> Result<(), MasterRunError> {
    journal.finish_replay(replay, secret()?).await?;
    if let Some(first) = first {
        journal.append(&[first]).await?;
    }
    Ok(())
}

/// Takes over the journal of `app` in the directory `journals`, which all nodes share.
async fn open_shared_journal(
    client: &Client,
    options: &MasterOptions,
    app: &AppId,
    journals: &Path,
) -> Result<MasterJournal, MasterRunError> {
    let submitted = submission_time(client, options, app).await?;
    let (dir, attempt) = (
        shared_journal::dir(journals, app, submitted),
        options.attempt,
    );
    let taken = tokio::task::spawn_blocking(move || MasterJournal::take_over(&dir, attempt)).await;
    match taken {
        Ok(journal) => Ok(journal?),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The time of submission, which distinguishes the applications of two clusters with the same id.
async fn submission_time(
    client: &Client,
    options: &MasterOptions,
    app: &AppId,
) -> Result<UnixMillis, MasterRunError> {
    let query = || client.app_with(app, TaskRowScope::None);
    Ok(answered(&options.rm, query).await?.submitted)
}

/// The identity of the listener for executors, which is kept in the directory `files`, and the
/// environment with which they find it.
fn executor_environment(
    options: &MasterOptions,
    files: &Path,
    listener: &TcpListener,
    begin: &JournalHeader,
) -> Result<(Option<ListenerIdentity>, ExecutorEnvironment), MasterRunError> {
    let address = listener
        .local_addr()
        .map_err(|source| MasterRunError::Listen {
            address: options.listen,
            source,
        })?;
    let lock = lock(files, address)?;
    let environment = ExecutorEnvironment {
        master_url: master_address(address, lock.as_ref()).to_string(),
        token: begin.token.clone(),
    };
    Ok((lock, environment))
}

/// The requirements on peers of the task channel, and the events of the clients of a live job.
fn channel_credentials(
    begin: &JournalHeader,
    app: &AppId,
) -> (ChannelCredentials, mpsc::Receiver<SubmitterLinkEvent>) {
    let (events, submitters) = mpsc::channel(MAX_SUBMITTER_EVENTS);
    let listen = |token: &String| SubmissionListener::new(token.clone(), events);
    let gate = ChannelCredentials {
        token: begin.token.clone(),
        app: app.clone(),
        submissions: begin.submission_token.as_ref().map(listen),
    };
    (gate, submitters)
}

/// The setup of the core of this run. `token` is the secret of the journal.
fn core_setup(
    options: &MasterOptions,
    app: &AppId,
    token: &str,
    turn: EarlierCommit,
) -> MasterSetup {
    MasterSetup {
        base_dir: options.base_dir.as_ref().map(|d| d.display().to_string()),
        master_memory: options.master_memory,
        writer: output::writer(&app.to_string(), token),
        turn,
        attempt: options.attempt,
    }
}

/// A new core, or one that replays the records of earlier runs. `refused` is the reason why the job
/// cannot start.
fn build_core(
    job: JobSpec,
    setup: MasterSetup,
    replay: &mut JournalReplay,
    refused: Option<String>,
) -> MasterCore {
    let mut core = if replay.is_empty() {
        MasterCore::new(job, setup)
    } else {
        MasterCore::replay(job, setup, replay)
    };
    if let Some(why) = refused {
        core.fail_before_start(why);
    }
    core
}

/// The first record of the journal, created if there is none, and a listener on the port that
/// executors know.
async fn begin(
    options: &MasterOptions,
    path: &Path,
    app: &AppId,
    job: &JobSpec,
    first: Option<&JournalRecord>,
) -> Result<(JournalHeader, TcpListener), MasterRunError> {
    let fingerprint = record::fingerprint(job);
    let known = journal::check_owner(path, first, &app.to_string(), fingerprint)?;
    let wanted = options.listen;
    // The port of the previous run lets executors find this one directly. Any other port works,
    // since executors can look it up.
    let before = match &known {
        Some(begin) if wanted.port() == 0 => {
            TcpListener::bind((wanted.ip(), begin.port)).await.ok()
        }
        Some(_) | None => None,
    };
    let listener = match before {
        Some(listener) => listener,
        None => TcpListener::bind(wanted)
            .await
            .map_err(|source| MasterRunError::Listen {
                address: wanted,
                source,
            })?,
    };
    let port = listener
        .local_addr()
        .map_err(|source| MasterRunError::Listen {
            address: wanted,
            source,
        })?
        .port();
    let begin = match known {
        Some(begin) => begin,
        None => JournalHeader {
            version: record::VERSION,
            job: fingerprint,
            app: app.to_string(),
            token: executor_secret(options.attempt)?,
            port,
            submission_token: job.live.is_some().then(secret).transpose()?,
        },
    };
    Ok((begin, listener))
}

fn client(options: &MasterOptions) -> Result<Client, MasterRunError> {
    let opened = Client::with_credentials(&options.rm, options.trust.clone());
    opened.map_err(|source| MasterRunError::Unreachable {
        url: options.rm.clone(),
        source,
    })
}

/// The owner of the job's output directories: this application. `None` for a job without outputs.
async fn output_owner(
    client: &Client,
    url: &str,
    job: &JobSpec,
    app: &AppId,
) -> Result<Option<OutputOwner>, MasterRunError> {
    if output::directories(job).is_empty() {
        return Ok(None);
    }
    let submitted = answered(url, || client.app(app)).await?.submitted;
    Ok(Some(OutputOwner {
        app: app.clone(),
        submitted,
    }))
}

/// Repeats a call until it is answered, for as long as a resource manager may take to start.
async fn answered<T, F: Future<Output = Result<T, ClientError>>>(
    url: &str,
    mut call: impl FnMut() -> F,
) -> Result<T, MasterRunError> {
    let start = tokio::time::Instant::now();
    let mut backoff = ExponentialBackoff::usual();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.code().is_some_and(|c| !c.retryable()) => {
                return Err(MasterRunError::Refused(error));
            }
            Err(source) if start.elapsed() > FIRST_ANSWER_TIMEOUT => {
                return Err(MasterRunError::Unreachable {
                    url: url.to_owned(),
                    source,
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the resource manager does not answer yet");
                tokio::time::sleep(backoff.wait()).await;
            }
        }
    }
}

/// 32 random bytes from the kernel, in hexadecimal.
fn secret() -> Result<String, MasterRunError> {
    random_hex::<32>().map_err(MasterRunError::Random)
}

/// The secret for executors: that of the executor which starts along with the first attempt, or a
/// new one. A later attempt without the journal of the first does not know the tasks of that
/// executor.
fn executor_secret(attempt: u32) -> Result<String, MasterRunError> {
    let submitted = std::env::var("HEADROOM_APP_TOKEN").ok();
    submitted
        .filter(|secret| attempt == 1 && !secret.is_empty())
        .map_or_else(secret, Ok)
}

/// Directory of an application's journal. Each application has its own.
fn state_dir(options: &MasterOptions, app: &AppId) -> PathBuf {
    if let Some(dir) = &options.state {
        return dir.join("appmaster").join(app.to_string());
    }
    let own = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    own.or(home)
        .unwrap_or_else(std::env::temp_dir)
        .join("headroom")
        .join(app.to_string())
}

/// The certificate of the task channel; `None` on loopback. Connections beyond loopback are always
/// encrypted.
fn lock(files: &Path, address: SocketAddr) -> Result<Option<ListenerIdentity>, MasterRunError> {
    if address.ip().is_loopback() {
        return Ok(None);
    }
    let made = ListenerIdentity::at(&files.join("channel.pem"));
    made.map(Some)
        .map_err(|source| MasterRunError::Listen { address, source })
}

/// The address by which executors connect to this master.
fn master_address(address: SocketAddr, lock: Option<&ListenerIdentity>) -> MasterAddress {
    MasterAddress {
        at: format!("{}:{}", host(address.ip()), address.port()),
        pin: lock.map(|lock| lock.pin),
    }
}

/// The host name by which executors on other nodes connect to this master.
fn host(ip: IpAddr) -> String {
    if !ip.is_unspecified() {
        return match ip {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
    }
    let said = ["HEADROOM_ADVERTISE", "HEADROOM_NODE"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    said.map_or_else(
        || "127.0.0.1".to_owned(),
        |name| {
            if name.contains(':') {
                format!("[{name}]")
            } else {
                name
            }
        },
    )
}
