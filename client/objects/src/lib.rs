//! Directories of small objects in an object store: S3, or a service with its interface such as MinIO.
//!
//! All writes that matter are conditional: [`ObjectDirectory::create`] succeeds for one writer only.
//! The journals of application masters are built on this, and the node agent checks it.

#![forbid(unsafe_code)]

mod directory;
mod error;
mod probe;
mod variables;

pub use directory::{CreateResult, ObjectDirectory};
pub use error::ObjectError;
pub use probe::ProbeError;
pub use variables::{StoreVariables, VariablesError};
