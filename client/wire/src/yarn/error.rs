//! The shape of every error.

use serde::{Deserialize, Serialize};

/// An error as YARN writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteError {
    /// The only field.
    #[serde(rename = "RemoteException")]
    pub exception: RemoteException,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteException {
    /// Its kind.
    pub exception: String,
    /// For people; begins with the name of a class, as clients cut it off.
    pub message: String,
    /// Its kind in full.
    #[serde(rename = "javaClassName")]
    pub java_class_name: String,
}

/// The kinds that are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call cannot be right.
    BadRequest,
    /// There is no such thing.
    NotFound,
    /// Not in the state it is in, or not for this caller.
    Forbidden,
    /// There is something, but not for this method.
    NotAllowed,
    /// There is an answer, but not in the form that is asked for.
    NotAcceptable,
    /// YARN has it, this does not.
    NotImplemented,
    /// Try again.
    Unavailable,
    /// A fault inside.
    Internal,
}

impl Kind {
    /// The HTTP status it travels with.
    pub fn status(self) -> u16 {
        match self {
            Kind::BadRequest => 400,
            Kind::NotFound => 404,
            Kind::Forbidden => 403,
            Kind::NotAllowed => 405,
            Kind::NotAcceptable => 406,
            Kind::NotImplemented => 501,
            Kind::Unavailable => 503,
            Kind::Internal => 500,
        }
    }
    /// Package and class.
    fn class(self) -> (&'static str, &'static str) {
        match self {
            Kind::BadRequest => ("org.apache.hadoop.yarn.webapp", "BadRequestException"),
            Kind::NotFound => ("org.apache.hadoop.yarn.webapp", "NotFoundException"),
            Kind::Forbidden => ("org.apache.hadoop.yarn.webapp", "ForbiddenException"),
            Kind::NotAllowed | Kind::NotAcceptable => ("javax.ws.rs", "WebApplicationException"),
            Kind::NotImplemented => ("java.lang", "UnsupportedOperationException"),
            Kind::Unavailable => ("org.apache.hadoop.ipc", "RetriableException"),
            Kind::Internal => ("java.lang", "RuntimeException"),
        }
    }
}

impl RemoteError {
    /// An error of this kind.
    pub fn new(kind: Kind, what: &str) -> Self {
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
    fn an_error_looks_as_yarn_writes_it() {
        let text = serde_json::to_string(&RemoteError::new(Kind::NotFound, "no such node")).expect("writes");
        assert_eq!(
            text,
            r#"{"RemoteException":{"exception":"NotFoundException","message":"java.lang.Exception: no such node","javaClassName":"org.apache.hadoop.yarn.webapp.NotFoundException"}}"#
        );
    }
}
