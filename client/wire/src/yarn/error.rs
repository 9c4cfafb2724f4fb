//! The YARN form of errors.

use serde::{Deserialize, Serialize};

/// An error in the form of YARN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteError {
    /// The only field.
    #[serde(rename = "RemoteException")]
    pub exception: RemoteException,
}

/// The content of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteException {
    /// Short class name.
    pub exception: String,
    /// Message; begins with a class name, because clients cut it off.
    pub message: String,
    /// Full Java class name.
    #[serde(rename = "javaClassName")]
    pub java_class_name: String,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YarnErrorKind {
    /// The call is invalid.
    BadRequest,
    /// The object does not exist.
    NotFound,
    /// Forbidden in the object's state, or for this caller.
    Forbidden,
    /// The path exists, but not for this method.
    NotAllowed,
    /// The response is not available in the requested format.
    NotAcceptable,
    /// A YARN call that Headroom does not implement.
    NotImplemented,
    /// Temporarily unavailable; try again.
    Unavailable,
    /// Internal error.
    Internal,
}

impl YarnErrorKind {
    /// HTTP status of the kind.
    pub fn status(self) -> u16 {
        match self {
            YarnErrorKind::BadRequest => 400,
            YarnErrorKind::NotFound => 404,
            YarnErrorKind::Forbidden => 403,
            YarnErrorKind::NotAllowed => 405,
            YarnErrorKind::NotAcceptable => 406,
            YarnErrorKind::NotImplemented => 501,
            YarnErrorKind::Unavailable => 503,
            YarnErrorKind::Internal => 500,
        }
    }
    /// Package and class of the Java exception.
    fn class(self) -> (&'static str, &'static str) {
        match self {
            YarnErrorKind::BadRequest => ("org.apache.hadoop.yarn.webapp", "BadRequestException"),
            YarnErrorKind::NotFound => ("org.apache.hadoop.yarn.webapp", "NotFoundException"),
            YarnErrorKind::Forbidden => ("org.apache.hadoop.yarn.webapp", "ForbiddenException"),
            YarnErrorKind::NotAllowed | YarnErrorKind::NotAcceptable => {
                ("javax.ws.rs", "WebApplicationException")
            }
            YarnErrorKind::NotImplemented => ("java.lang", "UnsupportedOperationException"),
            YarnErrorKind::Unavailable => ("org.apache.hadoop.ipc", "RetriableException"),
            YarnErrorKind::Internal => ("java.lang", "RuntimeException"),
        }
    }
}

impl RemoteError {
    /// An error of this kind.
    pub fn new(kind: YarnErrorKind, what: &str) -> Self {
        let (package, class) = kind.class();
        RemoteError {
            exception: RemoteException {
                exception: class.to_owned(),
                message: format!("java.lang.Exception: {what}"),
                java_class_name: format!("{package}.{class}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_format_of_yarn() {
        let text =
            serde_json::to_string(&RemoteError::new(YarnErrorKind::NotFound, "no such node"))
                .expect("writes");
        assert_eq!(
            text,
            r#"{"RemoteException":{"exception":"NotFoundException","message":"java.lang.Exception: no such node","javaClassName":"org.apache.hadoop.yarn.webapp.NotFoundException"}}"#
        );
    }
}
