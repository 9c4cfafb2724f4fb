//! API schema of the types with a custom JSON form.
//!
//! *Architecture Invariant*: a schema never decides which input is valid; `FromStr` and
//! `Deserialize` do.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, Epoch, Name, NodeId, QueuePath, RequestId, Sha256,
    Signal, TaskAttemptId, TaskId, UnixMillis,
};

/// Implements the schema of an id that is a text.
macro_rules! text_schema {
    ($($id:ty, $name:literal, $pattern:literal, $example:literal, $what:literal;)*) => {$(
        impl PartialSchema for $id {
            fn schema() -> RefOr<Schema> {
                let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some($pattern));
                text.description(Some($what)).examples([$example]).build().into()
            }
        }
        impl ToSchema for $id {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    )*};
}
text_schema! {
    Name, "Name", "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", "word-count", "A name that users choose.";
    NodeId, "NodeId", "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", "worker-01", "A node, by its host name.";
    RequestId, "RequestId", "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", "executor-main",
        "A container request, named by the application that makes it.";
    QueuePath, "QueuePath", "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$", "root.etl.nightly",
        "A queue by its place in the tree; read without `root.` too.";
    AppId, "AppId", "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\\.(0|[1-9][0-9]*)$", "word-count.7", "An application.";
    AttemptId, "AttemptId", "^.+@(0|[1-9][0-9]*)$", "word-count.7@1", "One run of an application's master.";
    ContainerId, "ContainerId", "^.+\\.e(0|[1-9][0-9]*)\\.c(0|[1-9][0-9]*)$", "word-count.7.e3.c12", "A container.";
    TaskId, "TaskId", "^.+/(0|[1-9][0-9]*)$", "map/7", "A task of a job.";
    Sha256, "Sha256", "^[0-9A-Fa-f]{64}$", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "The SHA-256 of the content of a file.";
    Signal, "Signal", "^([A-Za-z0-9]+|signal [0-9]+)$", "SIGTERM", "A signal: its name, with SIG or without, or its number.";
    TaskAttemptId, "TaskAttemptId", "^.+/(0|[1-9][0-9]*)@(0|[1-9][0-9]*)$", "map/7@2", "One attempt at a task.";
}

impl PartialSchema for Bytes {
    fn schema() -> RefOr<Schema> {
        let size =
            ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Integer, Type::String]));
        let what = "A whole number of bytes. Requests may also contain a text such as `2GiB`; answers always contain the number.";
        size.description(Some(what))
            .examples([4_294_967_296_u64])
            .build()
            .into()
    }
}
impl ToSchema for Bytes {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Bytes")
    }
}

impl PartialSchema for Cpus {
    fn schema() -> RefOr<Schema> {
        let cores = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0));
        cores
            .description(Some("Processors: cores, to three places."))
            .examples([0.5])
            .build()
            .into()
    }
}
impl ToSchema for Cpus {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Cpus")
    }
}

/// Implements the schema of an integer.
macro_rules! number_schema {
    ($($id:ty, $name:literal, $format:expr, $what:literal;)*) => {$(
        impl PartialSchema for $id {
            fn schema() -> RefOr<Schema> {
                let number = ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat($format)));
                number.minimum(Some(0)).description(Some($what)).build().into()
            }
        }
        impl ToSchema for $id {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    )*};
}
number_schema! {
    Epoch, "Epoch", KnownFormat::Int32, "One incarnation of the resource manager; increases with every start.";
    UnixMillis, "UnixMillis", KnownFormat::Int64, "Milliseconds since 1970-01-01 UTC.";
}
