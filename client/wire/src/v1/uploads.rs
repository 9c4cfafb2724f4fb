//! Files that users upload for their applications.

use headroom_types::{Bytes, Sha256};
use serde::{Deserialize, Serialize};

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadedFile {
    /// Its SHA-256, by which launches name it: `upload:SHA256`.
    pub sha256: Sha256,
    /// Its size. Bytes.
    pub size: Bytes,
}
