//! Errors of calls to the resource manager.

use std::io;
use std::time::Duration;

use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use reqwest::StatusCode;

use crate::addresses::AddressError;

/// The result of a call.
pub type ClientResult<T> = Result<T, ClientError>;

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The text is not an address, nor a list of addresses.
    #[error("{0}")]
    Address(AddressError),
    /// A certificate, a key or a token is unusable.
    #[error("{why}")]
    Trust {
        /// The file or value, and the reason.
        why: String,
    },
    /// No answer: refused, unreachable, or too late.
    #[error("no answer from {url}")]
    Unreachable {
        /// The URL of the call.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// None of several resource managers answered as the leader.
    #[error("no resource manager answers as leader: {}", in_words(attempts))]
    NoLeader {
        /// All addresses to which the call was sent, in this order; at least two.
        attempts: Vec<FailedAttempt>,
    },
    /// The answer was an error with a code.
    #[error("{0}")]
    Problem(Box<ProblemDetails>),
    /// The request hook withheld the request.
    #[error("the request was not sent")]
    NotSent,
    /// The answer is incomplete, or this version cannot parse it.
    #[error("unexpected answer from {url}: {defect}")]
    Answer {
        /// The URL of the call.
        url: String,
        /// The defect of the answer.
        defect: AnswerDefect,
    },
}

/// A call that one of several resource managers did not carry out.
#[derive(Debug)]
pub struct FailedAttempt {
    /// Its address.
    pub address: String,
    /// The cause: not connected, a standby, or interrupted.
    pub error: ClientError,
}

/// `http://a:7070: connection refused; http://b:7070: a standby, which knows no leader`.
fn in_words(attempts: &[FailedAttempt]) -> String {
    let words = attempts.iter().map(|attempt| {
        let FailedAttempt { address, error } = attempt;
        let cause = match error {
            ClientError::Answer { defect, .. } => defect.to_string(),
            ClientError::Problem(problem) => problem.detail.clone(),
            ClientError::Address(_)
            | ClientError::Trust { .. }
            | ClientError::Unreachable { .. }
            | ClientError::NoLeader { .. }
            | ClientError::NotSent => error.root_cause(),
        };
        format!("{address}: {cause}")
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The defect of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerDefect {
    /// The answer, or its next piece, did not arrive within this time.
    #[error("no data for {} s", .0.as_secs())]
    Silent(Duration),
    /// No answer came before another resource manager led. The call may have been executed.
    #[error("no answer yet, and {0} leads now")]
    Replaced(String),
    /// An error status without a problem document, for example from a proxy.
    #[error("status {0}")]
    Status(StatusCode),
    /// The content has another form than this version expects. The text describes the difference.
    #[error("{0}")]
    Malformed(String),
}

impl AnswerDefect {
    /// True if no answer came.
    fn is_silence(&self) -> bool {
        match self {
            AnswerDefect::Silent(_) | AnswerDefect::Replaced(_) => true,
            AnswerDefect::Status(_) | AnswerDefect::Malformed(_) => false,
        }
    }
}

/// The reaction that a failed call requires of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailureKind {
    /// The resource manager has a new incarnation: register again.
    Stale,
    /// The cursor is older than the oldest stored entry: begin from a snapshot.
    TooOld,
    /// The caller or the object is unknown, or belongs to another user.
    Gone,
    /// The resource manager refused the call.
    Refused,
    /// No answer of a leader, or an answer that this version cannot parse: the same call may succeed
    /// later.
    Silent,
}

impl ClientError {
    /// The reaction that this error requires.
    pub fn failure_kind(&self) -> CallFailureKind {
        let Some(code) = self.code() else {
            return CallFailureKind::Silent;
        };
        match code {
            // A standby, or a resource manager that is starting, shutting down or overloaded. Neither
            // judged the call.
            ErrorCode::HR0421 | ErrorCode::HR0503 => CallFailureKind::Silent,
            ErrorCode::HR0410 => CallFailureKind::Stale,
            ErrorCode::HR0411 => CallFailureKind::TooOld,
            ErrorCode::HR0404 | ErrorCode::HR0409 | ErrorCode::HR0419 => CallFailureKind::Gone,
            ErrorCode::HR0400
            | ErrorCode::HR0401
            | ErrorCode::HR0403
            | ErrorCode::HR0413
            | ErrorCode::HR0416
            | ErrorCode::HR0418
            | ErrorCode::HR0422
            | ErrorCode::HR0426
            | ErrorCode::HR0429
            | ErrorCode::HR0500
            | ErrorCode::HR0507 => CallFailureKind::Refused,
        }
    }
    /// The problem document, if a server sent one. Of several servers, the last one.
    pub fn problem(&self) -> Option<&ProblemDetails> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            ClientError::NoLeader { attempts } => {
                let mut problems = attempts.iter().rev().filter_map(|one| one.error.problem());
                problems.next()
            }
            ClientError::Address { .. }
            | ClientError::Trust { .. }
            | ClientError::Unreachable { .. }
            | ClientError::NotSent
            | ClientError::Answer { .. } => None,
        }
    }
    /// The stable error code, if a server sent one. Of several servers, the last one.
    pub fn code(&self) -> Option<ErrorCode> {
        self.problem().map(|problem| problem.code)
    }
    /// True if no answer came: refused, unreachable, too late, or a silent stream. Of several
    /// resource managers, no answer of a leader.
    pub fn unreachable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::NoLeader { .. } => true,
            ClientError::Answer { defect, .. } => defect.is_silence(),
            ClientError::Address { .. }
            | ClientError::Trust { .. }
            | ClientError::NotSent
            | ClientError::Problem(_) => false,
        }
    }
    /// True if no leader answered: nothing did, or only a standby or a resource manager that starts
    /// or shuts down.
    pub fn lacks_leader(&self) -> bool {
        self.unreachable() || matches!(self.code(), Some(ErrorCode::HR0421 | ErrorCode::HR0503))
    }
    /// True if the server, or a proxy before it, denied access: with or without a problem document.
    pub fn denied(&self) -> bool {
        match self {
            ClientError::Problem(p) => matches!(p.code, ErrorCode::HR0401 | ErrorCode::HR0403),
            ClientError::Answer {
                defect: AnswerDefect::Status(status),
                ..
            } => *status == StatusCode::UNAUTHORIZED || *status == StatusCode::FORBIDDEN,
            ClientError::Address { .. }
            | ClientError::Trust { .. }
            | ClientError::Unreachable { .. }
            | ClientError::NoLeader { .. }
            | ClientError::NotSent
            | ClientError::Answer {
                defect:
                    AnswerDefect::Silent(_) | AnswerDefect::Replaced(_) | AnswerDefect::Malformed(_),
                ..
            } => false,
        }
    }
    /// True if the host answered that no program listens at the address. Of several addresses, at
    /// none of them.
    pub fn connection_refused(&self) -> bool {
        if let ClientError::NoLeader { attempts } = self {
            return attempts.iter().all(|one| one.error.connection_refused());
        }
        let mut cause: Option<&dyn std::error::Error> = Some(self);
        while let Some(error) = cause {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if kind == Some(io::ErrorKind::ConnectionRefused) {
                return true;
            }
            cause = error.source();
        }
        false
    }
    /// The innermost cause in a few words: `connection refused`. Of several addresses, that of the
    /// last one.
    pub fn root_cause(&self) -> String {
        if let ClientError::NoLeader { attempts } = self
            && let Some(last) = attempts.last()
        {
            return last.error.root_cause();
        }
        let mut cause: &dyn std::error::Error = self;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        of_time(cause.to_string())
    }
    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            ClientError::Problem(p) => p.retryable,
            ClientError::Unreachable { .. } | ClientError::NoLeader { .. } => true,
            ClientError::Answer { defect, .. } => defect.is_silence(),
            ClientError::Address { .. } | ClientError::Trust { .. } | ClientError::NotSent => false,
        }
    }
}

/// Appends a hint about the clock to certificate errors: certificates depend on the wall clock, and
/// the clock of this host may be wrong.
fn of_time(cause: String) -> String {
    let words = ["certificate not valid yet", "certificate expired"];
    if words.iter().any(|w| cause.contains(w)) {
        return format!("{cause}; if the certificate is valid, the clock of this host is wrong");
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_time_errors_mention_the_clock() {
        assert!(
            of_time(
                "invalid peer certificate: certificate not valid yet: verification time 1".into()
            )
            .contains("clock")
        );
        assert_eq!(of_time("connection refused".into()), "connection refused");
    }

    #[test]
    fn every_code_has_a_failure_kind_and_a_wrong_answer_is_silent() {
        let of =
            |code| ClientError::Problem(Box::new(ProblemDetails::new(code, "no"))).failure_kind();
        assert_eq!(
            (of(ErrorCode::HR0410), of(ErrorCode::HR0411)),
            (CallFailureKind::Stale, CallFailureKind::TooOld)
        );
        assert_eq!(
            (of(ErrorCode::HR0404), of(ErrorCode::HR0409)),
            (CallFailureKind::Gone, CallFailureKind::Gone)
        );
        let refused = [
            ErrorCode::HR0400,
            ErrorCode::HR0401,
            ErrorCode::HR0403,
            ErrorCode::HR0413,
            ErrorCode::HR0416,
            ErrorCode::HR0418,
            ErrorCode::HR0422,
            ErrorCode::HR0426,
            ErrorCode::HR0429,
            ErrorCode::HR0500,
            ErrorCode::HR0507,
        ];
        assert!(
            refused
                .into_iter()
                .all(|code| of(code) == CallFailureKind::Refused)
        );
        // A standby and a starting resource manager end no session.
        for code in [ErrorCode::HR0421, ErrorCode::HR0503] {
            assert_eq!(of(code), CallFailureKind::Silent, "{code}");
        }
        let strange = ClientError::Answer {
            url: "u".into(),
            defect: AnswerDefect::Malformed("HTML".into()),
        };
        assert_eq!(strange.failure_kind(), CallFailureKind::Silent);
    }

    #[test]
    fn the_defect_of_an_answer_decides_and_not_its_text() {
        let of = |defect| ClientError::Answer {
            url: "http://rm".into(),
            defect,
        };
        let table = [
            (
                AnswerDefect::Silent(Duration::from_secs(20)),
                "no data for 20 s",
                (true, false),
            ),
            (
                AnswerDefect::Status(StatusCode::FORBIDDEN),
                "status 403 Forbidden",
                (false, true),
            ),
            (
                AnswerDefect::Status(StatusCode::UNAUTHORIZED),
                "status 401 Unauthorized",
                (false, true),
            ),
            (
                AnswerDefect::Status(StatusCode::BAD_GATEWAY),
                "status 502 Bad Gateway",
                (false, false),
            ),
            (
                AnswerDefect::Malformed("no data for 403".into()),
                "no data for 403",
                (false, false),
            ),
        ];
        for (defect, text, wanted) in table {
            let error = of(defect);
            assert_eq!(
                error.to_string(),
                format!("unexpected answer from http://rm: {text}")
            );
            assert_eq!((error.unreachable(), error.denied()), wanted, "{text}");
            assert_eq!(error.retryable(), wanted.0, "{text}");
            assert!(!error.connection_refused(), "{text}");
        }
        let problem = |code| ClientError::Problem(Box::new(ProblemDetails::new(code, "no")));
        assert!(problem(ErrorCode::HR0401).denied() && problem(ErrorCode::HR0403).denied());
        assert!(!problem(ErrorCode::HR0404).denied());
    }

    #[test]
    fn all_attempts_are_named_and_none_of_them_ends_a_session() {
        let attempt = |address: &str, error| FailedAttempt {
            address: address.to_owned(),
            error,
        };
        let silent = ClientError::Answer {
            url: "http://a:1/v1/status".into(),
            defect: AnswerDefect::Silent(Duration::from_secs(10)),
        };
        let standby = ProblemDetails::new(ErrorCode::HR0503, "a standby, which knows no leader");
        let error = ClientError::NoLeader {
            attempts: vec![
                attempt("http://a:1", silent),
                attempt("http://b:1", ClientError::Problem(Box::new(standby))),
            ],
        };
        assert_eq!(
            error.to_string(),
            "no resource manager answers as leader: http://a:1: no data for 10 s; \
             http://b:1: a standby, which knows no leader"
        );
        assert!(error.unreachable() && error.retryable());
        assert!(!error.denied() && !error.connection_refused());
        assert_eq!(error.code(), Some(ErrorCode::HR0503));
        assert_eq!(error.failure_kind(), CallFailureKind::Silent);
        assert!(error.lacks_leader());
        let of = |code| ClientError::Problem(Box::new(ProblemDetails::new(code, "no")));
        assert!(of(ErrorCode::HR0421).lacks_leader() && of(ErrorCode::HR0503).lacks_leader());
        assert!(!of(ErrorCode::HR0429).lacks_leader() && !of(ErrorCode::HR0404).lacks_leader());
    }

    #[tokio::test]
    async fn a_port_without_a_listener_refuses_the_connection() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
            listener.local_addr().expect("an address").port()
        };
        let client = crate::Client::new(&format!("http://127.0.0.1:{port}")).expect("a client");
        let error = client.status().await.expect_err("nothing listens");
        assert!(
            error.connection_refused() && error.unreachable(),
            "{error:?}"
        );
    }
}
