//! Errors of an object store, with the fix for each.

use std::error::Error;

use object_store::Error as StoreError;

/// The fix of a store that does not answer, or answers with something else.
const CHECK_ADDRESS: &str = "check the address and the authorities (SSL_CERT_FILE) of the object store in \
                             the file masters.object_store, and the network";
/// The fix of a refusal.
const CHECK_CREDENTIALS: &str = "check the credentials in the file masters.object_store, and their permissions to list, read, write \
     and delete objects there";
/// Fixes by the codes of S3.
const FIXES: [(&str, &str); 8] = [
    (
        "NoSuchBucket",
        "create the bucket, or correct masters.journals",
    ),
    ("AccessDenied", CHECK_CREDENTIALS),
    ("InvalidAccessKeyId", CHECK_CREDENTIALS),
    ("SignatureDoesNotMatch", CHECK_CREDENTIALS),
    ("ExpiredToken", CHECK_CREDENTIALS),
    ("InvalidToken", CHECK_CREDENTIALS),
    ("RequestTimeTooSkewed", "set the clock of this host"),
    (
        "PermanentRedirect",
        "correct AWS_REGION in the file masters.object_store: the bucket is in another region",
    ),
];

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.found(), self.fix())]
pub struct ObjectError {
    /// URL of the directory or the object.
    pub name: String,
    /// The operation, as a participle.
    pub doing: &'static str,
    /// The error of the library, whose text contains the whole request and the answer. Its part that an
    /// operator needs is [`ObjectError::cause`].
    error: Box<StoreError>,
}

/// The answer of a store to a request that it refuses.
struct Refusal {
    code: String,
    message: String,
}

impl Refusal {
    /// Finds the answer in the text of an error.
    fn find(text: &str) -> Option<Refusal> {
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        Some(Refusal {
            code: element("Code")?,
            message: element("Message").unwrap_or_default(),
        })
    }
}

impl ObjectError {
    pub(crate) fn new(name: String, doing: &'static str, error: StoreError) -> ObjectError {
        ObjectError {
            name,
            doing,
            error: Box::new(error),
        }
    }

    fn refusal(&self) -> Option<Refusal> {
        Refusal::find(&self.error.to_string())
    }

    /// The problem, without the fix.
    pub fn found(&self) -> String {
        format!("{} cannot be {}: {}", self.name, self.doing, self.cause())
    }

    /// The answer of the store, or the first cause if it gave none. The same problem has the same text.
    pub fn cause(&self) -> String {
        match self.refusal() {
            Some(Refusal { code, message }) if message.is_empty() => code,
            Some(Refusal { code, message }) => format!("{code}: {}", message.trim_end_matches('.')),
            None => first_cause(&*self.error),
        }
    }

    /// The next step of the operator.
    pub fn fix(&self) -> &'static str {
        let code = self.refusal().map(|refusal| refusal.code);
        let fix = FIXES
            .iter()
            .find(|(known, _)| Some(*known) == code.as_deref());
        match fix {
            Some((_, fix)) => fix,
            None if is_refusal(&self.error) => CHECK_CREDENTIALS,
            None => CHECK_ADDRESS,
        }
    }
}

fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }
    )
}

fn first_cause(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => first_cause(cause),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ObjectError {
        let source = std::io::Error::other(text.to_owned()).into();
        let error = StoreError::Generic {
            store: "S3",
            source,
        };
        ObjectError::new("s3://b/x".to_owned(), "listed", error)
    }

    #[test]
    fn an_answer_is_shown_by_its_code_with_the_fix() {
        let answer = "Server returned 404: <?xml?>\n<Error><Code>NoSuchBucket</Code>\
                      <Message>No such bucket.</Message><RequestId>7</RequestId></Error>";
        assert_eq!(
            error(answer).to_string(),
            "s3://b/x cannot be listed: NoSuchBucket: No such bucket; create the bucket, or correct \
             masters.journals"
        );
        let other = error("<Code>InternalError</Code>");
        assert_eq!(
            (other.cause(), other.fix()),
            ("InternalError".into(), CHECK_ADDRESS)
        );
    }

    #[test]
    fn without_an_answer_the_first_cause_is_shown() {
        let closed = error("Connection refused");
        assert_eq!(closed.cause(), "Connection refused");
        assert_eq!(closed.fix(), CHECK_ADDRESS);
    }
}
