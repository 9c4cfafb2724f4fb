//! What can go wrong between a caller and the resource manager.

use headroom_wire::v1::error::{Code, Problem};

/// How an answer that never came is described.
pub(crate) const SILENT: &str = "nothing for";

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not a URL.
    #[error("{address:?} is not an address; write for example http://127.0.0.1:7070 or https://rm.example:7070")]
    Address {
        /// What was given.
        address: String,
    },
    /// A certificate, a key or a token that cannot be used.
    #[error("{why}")]
    Trust {
        /// Which, and why.
        why: String,
    },
    /// No answer: refused, unreachable, or too late.
    #[error("no answer from {url}")]
    Unreachable {
        /// What was called.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The answer was an error with a code.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Whoever is told of requests kept this one back.
    #[error("the request was not sent")]
    NotSent,
    /// The answer was not what this version understands.
    #[error("{url} answered something else than expected: {what}")]
    Answer {
        /// What was called.
        url: String,
        /// What was wrong with it.
        what: String,
    },
}

/// Where a caller stands with the resource manager after a call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another life of the resource manager than the one that was spoken to: register again.
    Stale,
    /// The cursor is older than what is kept: begin from a snapshot.
    TooOld,
    /// The caller, or what it spoke of, is not known any more, or is somebody else's.
    Gone,
    /// It answered, and did not take this.
    Refused,
    /// No answer, or none that is understood.
    Silent,
}

impl ClientError {
    /// Where the caller stands after it.
    pub fn standing(&self) -> Standing {
        let Some(code) = self.code() else { return Standing::Silent };
        match code {
            Code::HR0410 => Standing::Stale,
            Code::HR0411 => Standing::TooOld,
            Code::HR0404 | Code::HR0409 => Standing::Gone,
            Code::HR0400
            | Code::HR0401
            | Code::HR0403
            | Code::HR0413
            | Code::HR0416
            | Code::HR0422
            | Code::HR0429
            | Code::HR0500
            | Code::HR0503 => Standing::Refused,
        }
    }
    /// The stable code, when the other side gave one.
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Problem(p) => Some(p.code),
            ClientError::Address { .. }
            | ClientError::Trust { .. }
            | ClientError::Unreachable { .. }
            | ClientError::NotSent
            | ClientError::Answer { .. } => None,
        }
    }
    /// Whether nobody answered: refused, unreachable, too late, or the stream fell silent.
    pub fn unreachable(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Answer { what, .. } => what.starts_with(SILENT),
            ClientError::Address { .. } | ClientError::Trust { .. } | ClientError::NotSent | ClientError::Problem(_) => false,
        }
    }
    /// The innermost cause in a few words: `connection refused`.
    pub fn root_cause(&self) -> String {
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
            ClientError::Unreachable { .. } => true,
            ClientError::Address { .. } | ClientError::Trust { .. } | ClientError::NotSent | ClientError::Answer { .. } => false,
        }
    }
}

/// Certificates go by the wall clock, and that of this host may be the one that is wrong.
fn of_time(cause: String) -> String {
    let words = ["certificate not valid yet", "certificate expired"];
    if words.iter().any(|w| cause.contains(w)) {
        return format!("{cause}; if the certificate is a good one, the clock of this host is wrong");
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_another_time_makes_somebody_look_at_the_clock() {
        assert!(of_time("invalid peer certificate: certificate not valid yet: verification time 1".into()).contains("clock"));
        assert_eq!(of_time("connection refused".into()), "connection refused");
    }

    #[test]
    fn every_code_has_its_standing_and_no_answer_is_silence() {
        let of = |code| ClientError::Problem(Box::new(Problem::new(code, "no"))).standing();
        assert_eq!((of(Code::HR0410), of(Code::HR0411)), (Standing::Stale, Standing::TooOld));
        assert_eq!((of(Code::HR0404), of(Code::HR0409)), (Standing::Gone, Standing::Gone));
        let refused = [
            Code::HR0400,
            Code::HR0401,
            Code::HR0403,
            Code::HR0413,
            Code::HR0416,
            Code::HR0422,
            Code::HR0429,
            Code::HR0500,
            Code::HR0503,
        ];
        assert!(refused.into_iter().all(|code| of(code) == Standing::Refused));
        let strange = ClientError::Answer { url: "u".into(), what: "HTML".into() };
        assert_eq!(strange.standing(), Standing::Silent);
    }
}
