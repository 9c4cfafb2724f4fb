//! Exit codes of a call, a closed set, and failures with one sentence and advice.

use std::fmt;
use std::process::ExitCode;

use headroom_client::ClientError;
use headroom_config::FileProblem;
use headroom_types::{ExitCharge, spelling};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::TaskState;

/// Exit codes. A number must never get a second meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommandExitCode {
    /// Success.
    Ok = 0,
    /// A job or a call failed.
    Failed = 1,
    /// The arguments or a file are invalid.
    Usage = 2,
    /// No such job, task, node or container.
    NotFound = 3,
    /// The state of the object does not allow the call.
    Conflict = 4,
    /// Authentication or permission is missing.
    Auth = 5,
    /// No resource manager answers.
    Unreachable = 6,
    /// No node can ever satisfy the request.
    Never = 7,
    /// The timeout of `wait` or of another wait has expired.
    WaitTimeout = 8,
    /// The job failed for memory at the largest size.
    OomExhausted = 9,
    /// Works with restrictions: `doctor` has warnings, or a planned job would wait.
    NotNow = 10,
}

impl From<CommandExitCode> for ExitCode {
    fn from(exit: CommandExitCode) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl CommandExitCode {
    /// The meaning, for users.
    pub(crate) fn means(self) -> &'static str {
        match self {
            CommandExitCode::Ok => "Done.",
            CommandExitCode::Failed => "A job or a call failed.",
            CommandExitCode::Usage => "The arguments or a file are wrong; nothing was sent.",
            CommandExitCode::NotFound => "There is no such job, task, node, queue or container.",
            CommandExitCode::Conflict => {
                "The state of the object does not allow it, or another caller was first."
            }
            CommandExitCode::Auth => "Not allowed.",
            CommandExitCode::Unreachable => "No resource manager answers, or it is overloaded.",
            CommandExitCode::Never => "No node can ever satisfy the request.",
            CommandExitCode::WaitTimeout => {
                "`wait` has reached its timeout; the job keeps running."
            }
            CommandExitCode::OomExhausted => "Failed for memory, with no larger size left to try.",
            CommandExitCode::NotNow => {
                "It works, but `doctor` has findings, or a planned job would have to wait."
            }
        }
    }
    /// The exit code for a call that waited for this application.
    pub(crate) fn of_app(app: &AppView) -> CommandExitCode {
        match app.state {
            AppState::Finished => CommandExitCode::Ok,
            AppState::Failed if exhausted(app) => CommandExitCode::OomExhausted,
            AppState::Failed | AppState::Killed => CommandExitCode::Failed,
            AppState::Accepted | AppState::Running | AppState::Finishing => {
                CommandExitCode::WaitTimeout
            }
        }
    }
}

/// True if a task, or the master, failed for good after a memory failure of its own.
fn exhausted(app: &AppView) -> bool {
    let master = app.attempts.last().and_then(|run| run.reason);
    if master.is_some_and(|reason| reason.charge() == ExitCharge::Memory) {
        return true;
    }
    let given_up = app
        .job
        .iter()
        .flat_map(|job| &job.tasks)
        .filter(|t| t.state == TaskState::Failed);
    let mut last = given_up.filter_map(|t| t.attempts.last()?.reason);
    last.any(|reason| reason.charge() == ExitCharge::Memory)
}

/// A failed call: one sentence, and lines of help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandFailure {
    exit: CommandExitCode,
    code: Option<ErrorCode>,
    sentence: String,
    help: Vec<String>,
    plain: bool,
}

/// Outcome of a verb, or of a part of it: its exit code, or a value; or a failure to report.
pub(crate) type CommandResult<T = CommandExitCode> = Result<T, CommandFailure>;

impl CommandFailure {
    /// True if no node can ever satisfy a request.
    pub(crate) fn is_infeasible(&self) -> bool {
        self.exit == CommandExitCode::Never
    }

    /// A failure with a sentence that names the object.
    pub(crate) fn new(exit: CommandExitCode, sentence: impl Into<String>) -> Self {
        CommandFailure {
            exit,
            code: None,
            sentence: sentence.into(),
            help: Vec::new(),
            plain: false,
        }
    }
    /// A failure of a job or a call.
    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        CommandFailure::new(CommandExitCode::Failed, sentence)
    }
    /// Invalid arguments, or an invalid file.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        CommandFailure::new(CommandExitCode::Usage, sentence)
    }
    /// An object that does not exist.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        CommandFailure::new(CommandExitCode::NotFound, sentence)
    }
    /// A failure with an error code, which determines the exit code.
    pub(crate) fn coded(code: ErrorCode, sentence: impl Into<String>) -> Self {
        CommandFailure {
            code: Some(code),
            ..CommandFailure::new(exit_of(code), sentence)
        }
    }
    /// Adds a line of help.
    #[must_use]
    pub(crate) fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }
    /// Puts the argument in front of the sentence that the failure is about.
    #[must_use]
    pub(crate) fn about(self, argument: &str) -> Self {
        CommandFailure {
            sentence: format!("{argument}: {}", self.sentence),
            ..self
        }
    }
    /// Adds the most similar of the names, if one is similar enough.
    #[must_use]
    pub(crate) fn near<'a>(self, typed: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match spelling::did_you_mean(typed, names) {
            Some(question) => self.help(question),
            None => self,
        }
    }
    /// True if nothing went wrong and nothing must be printed.
    pub(crate) fn is_silent(&self) -> bool {
        self.exit == CommandExitCode::Ok
    }
    /// A text that is already formatted for users, such as the mistakes of a job file.
    pub(crate) fn laid_out(exit: CommandExitCode, text: String) -> Self {
        CommandFailure {
            plain: true,
            ..CommandFailure::new(exit, text)
        }
    }
    /// The exit code.
    pub(crate) fn exit(&self) -> CommandExitCode {
        self.exit
    }
    /// The sentence alone.
    pub(crate) fn sentence(&self) -> &str {
        &self.sentence
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.plain {
            return f.write_str(self.sentence.trim_end());
        }
        match self.code {
            Some(code) => write!(f, "error[{code}]: {}", self.sentence)?,
            None => write!(f, "error: {}", self.sentence)?,
        }
        self.help
            .iter()
            .try_for_each(|line| write!(f, "\nhelp: {line}"))
    }
}
impl std::error::Error for CommandFailure {}

/// A usage error with all problems of a file.
impl From<Vec<FileProblem>> for CommandFailure {
    fn from(problems: Vec<FileProblem>) -> CommandFailure {
        CommandFailure::laid_out(CommandExitCode::Usage, headroom_config::render(&problems))
    }
}

impl From<ClientError> for CommandFailure {
    fn from(e: ClientError) -> CommandFailure {
        if let ClientError::NoLeader { .. } = e {
            return CommandFailure::new(CommandExitCode::Unreachable, e.to_string())
                .help("rmctl operator leader shows all resource managers; a new leader takes over within seconds")
                .help("name others with --addr URL,URL or HEADROOM_ADDR");
        }
        if e.unreachable() {
            let cause = e.root_cause();
            return CommandFailure::new(CommandExitCode::Unreachable, format!("{e}: {cause}"))
                .help("is it running? `rmctl dev` starts a cluster on this machine")
                .help("name another one with --addr URL or HEADROOM_ADDR");
        }
        match &e {
            ClientError::Problem(problem) => {
                let failure = CommandFailure::new(exit_of(problem.code), problem.detail.clone());
                let each = problem.problems.iter().map(|p| format!("{} {}: {}; {}", p.queue, p.key, p.what, p.fix));
                let help = if problem.problems.is_empty() { problem.hints.clone() } else { each.collect() };
                CommandFailure { code: Some(problem.code), help, ..failure }
            }
            ClientError::Address { .. } => CommandFailure::usage(e.to_string()),
            ClientError::Trust { .. } => CommandFailure::new(CommandExitCode::Auth, e.to_string())
                .help("rmctl config show lists the files; --cacert, --client-cert, --client-key and --token-file name others"),
            ClientError::NotSent => CommandFailure::new(CommandExitCode::Ok, e.to_string()),
            ClientError::Answer { .. } if e.denied() => CommandFailure::new(CommandExitCode::Auth, e.to_string()),
            ClientError::Answer { .. } | ClientError::Unreachable { .. } | ClientError::NoLeader { .. } => {
                CommandFailure::failed(e.to_string()).help("is this the address of a resource manager of the same version?")
            }
        }
    }
}

pub(crate) fn exit_of(code: ErrorCode) -> CommandExitCode {
    match code {
        ErrorCode::HR0400 | ErrorCode::HR0413 | ErrorCode::HR0416 | ErrorCode::HR0426 => {
            CommandExitCode::Usage
        }
        ErrorCode::HR0401 | ErrorCode::HR0403 => CommandExitCode::Auth,
        ErrorCode::HR0404 => CommandExitCode::NotFound,
        ErrorCode::HR0409
        | ErrorCode::HR0410
        | ErrorCode::HR0411
        | ErrorCode::HR0418
        | ErrorCode::HR0419 => CommandExitCode::Conflict,
        ErrorCode::HR0422 => CommandExitCode::Never,
        ErrorCode::HR0421 | ErrorCode::HR0429 | ErrorCode::HR0503 => CommandExitCode::Unreachable,
        ErrorCode::HR0500 | ErrorCode::HR0507 => CommandExitCode::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headroom_client::{AnswerDefect, StatusCode};

    use super::*;
    use crate::render::fixture;
    use headroom_wire::v1::error::ProblemDetails;

    #[test]
    fn every_code_has_its_exit() {
        let cases = [
            (ErrorCode::HR0400, 2),
            (ErrorCode::HR0401, 5),
            (ErrorCode::HR0403, 5),
            (ErrorCode::HR0404, 3),
            (ErrorCode::HR0409, 4),
            (ErrorCode::HR0410, 4),
            (ErrorCode::HR0411, 4),
            (ErrorCode::HR0413, 2),
            (ErrorCode::HR0416, 2),
            (ErrorCode::HR0418, 4),
            (ErrorCode::HR0419, 4),
            (ErrorCode::HR0421, 6),
            (ErrorCode::HR0422, 7),
            (ErrorCode::HR0426, 2),
            (ErrorCode::HR0429, 6),
            (ErrorCode::HR0500, 1),
            (ErrorCode::HR0503, 6),
            (ErrorCode::HR0507, 1),
        ];
        for (code, exit) in cases {
            let failure = CommandFailure::from(ClientError::Problem(Box::new(
                ProblemDetails::new(code, "x"),
            )));
            assert_eq!(failure.exit() as u8, exit, "{code}");
        }
    }

    #[test]
    fn a_problem_is_printed_with_its_code_and_hints() {
        let problem = ProblemDetails::new(ErrorCode::HR0404, "there is no job sort.9")
            .hint("rmctl ps lists them");
        let text = CommandFailure::from(ClientError::Problem(Box::new(problem))).to_string();
        assert_eq!(
            text,
            "error[HR0404]: there is no job sort.9\nhelp: rmctl ps lists them"
        );
    }

    #[test]
    fn a_silent_stream_counts_as_unreachable() {
        let silent = ClientError::Answer {
            url: "http://rm".into(),
            defect: AnswerDefect::Silent(Duration::from_secs(20)),
        };
        assert_eq!(
            CommandFailure::from(silent).exit(),
            CommandExitCode::Unreachable
        );
        let denied = ClientError::Answer {
            url: "http://rm".into(),
            defect: AnswerDefect::Status(StatusCode::FORBIDDEN),
        };
        assert_eq!(CommandFailure::from(denied).exit(), CommandExitCode::Auth);
        let strange = ClientError::Answer {
            url: "http://rm".into(),
            defect: AnswerDefect::Malformed("line 403 column 401".into()),
        };
        assert_eq!(
            CommandFailure::from(strange).exit(),
            CommandExitCode::Failed
        );
    }

    #[test]
    fn a_job_that_ran_out_of_sizes_ends_with_nine() {
        let mut app = fixture::app();
        app.state = AppState::Failed;
        assert_eq!(
            CommandExitCode::of_app(&app),
            CommandExitCode::Failed,
            "no task was given up"
        );
        let row = fixture::task_given_up();
        app.job.as_mut().expect("has a job").tasks.push(row);
        assert_eq!(CommandExitCode::of_app(&app) as u8, 9);
        app.state = AppState::Finished;
        assert_eq!(CommandExitCode::of_app(&app), CommandExitCode::Ok);
        app.state = AppState::Killed;
        assert_eq!(CommandExitCode::of_app(&app), CommandExitCode::Failed);
        app.state = AppState::Running;
        assert_eq!(CommandExitCode::of_app(&app) as u8, 8);
    }
}
