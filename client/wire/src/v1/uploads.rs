//! Files that users upload for their applications.

use headroom_types::{Bytes, Sha256};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedFile {
    /// Its SHA-256, by which launches name it: `upload:SHA256`.
    pub sha256: Sha256,
    /// Its size. Bytes.
    pub size: Bytes,
}

/// The uploaded files of the leader. It sends them to a standby, which compares them with its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadInventory {
    /// SHA-256 of each file.
    pub files: Vec<Sha256>,
}

/// Differences between an inventory and the files of the manager that received it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadDifferences {
    /// Files of the inventory that the receiver does not have.
    pub missing: Vec<Sha256>,
    /// Files of the receiver that the inventory does not have.
    pub extra: Vec<Sha256>,
}
