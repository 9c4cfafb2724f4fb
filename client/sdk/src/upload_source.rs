//! A file of this host that is uploaded: its digest and its size, and whether it changed since.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use headroom_types::{Bytes, Sha256};
use sha2::Digest as _;

use crate::ClientError;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// A file of this host with its digest.
#[derive(Debug)]
pub struct UploadSource {
    path: PathBuf,
    file: File,
    facts: Metadata,
    sha256: Sha256,
}

/// The reason why a file was not uploaded.
#[derive(Debug, thiserror::Error)]
pub enum FileUploadError {
    /// The file does not exist, or cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, a device or a socket.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file changed between the computation of its digest and the end of the upload.
    #[error("{} changed while it was uploaded", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
    },
    /// The resource manager does not know the call.
    #[error("the resource manager at {address} accepts no uploads, because its version is older")]
    Unsupported {
        /// Address of the resource manager.
        address: String,
    },
    /// The call failed.
    #[error(transparent)]
    Call(#[from] ClientError),
}

impl UploadSource {
    /// Opens a file and computes its digest. `read` is called with the number of bytes that were
    /// read so far. Blocks.
    ///
    /// # Errors
    /// The path is not a readable file, or the file changed meanwhile.
    pub fn open(path: &Path, mut read: impl FnMut(u64)) -> Result<UploadSource, FileUploadError> {
        let unreadable = |source| FileUploadError::Unreadable {
            path: path.to_owned(),
            source,
        };
        // A named pipe would block until it has a writer.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            let path = path.to_owned();
            return Err(FileUploadError::NotAFile { path });
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        let (mut hasher, mut piece, mut size) = (sha2::Sha256::new(), vec![0; PIECE], 0);
        loop {
            let n = file.read(&mut piece).map_err(unreadable)?;
            if n == 0 {
                break;
            }
            size += n as u64;
            hasher.update(piece.get(..n).unwrap_or_default());
            read(size);
        }
        let source = UploadSource {
            path: path.to_owned(),
            file,
            facts,
            sha256: Sha256::new(hasher.finalize().into()),
        };
        if size != source.size().get() || source.changed() {
            return Err(source.changed_error());
        }
        Ok(source)
    }

    /// SHA-256 of the contents.
    pub fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// Size. Bytes.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.facts.len())
    }

    /// The path, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A handle that reads from the beginning.
    pub(crate) fn reader(&self) -> Result<File, FileUploadError> {
        let unreadable = |source| FileUploadError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let mut file = self.file.try_clone().map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        Ok(file)
    }

    /// True if the file was written since it was opened.
    pub(crate) fn changed(&self) -> bool {
        self.file.metadata().is_ok_and(|now| {
            now.len() != self.facts.len() || now.modified().ok() != self.facts.modified().ok()
        })
    }

    pub(crate) fn changed_error(&self) -> FileUploadError {
        FileUploadError::Changed {
            path: self.path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_digest_and_its_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        std::fs::write(&path, "abc").expect("writes");
        let mut seen = 0;
        let source = UploadSource::open(&path, |bytes| seen = bytes).expect("opens");
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(source.sha256().to_string(), digest);
        assert_eq!((source.size().get(), seen), (3, 3));
        assert!(!source.changed());
        std::fs::write(&path, "abcd").expect("writes");
        assert!(source.changed());
        std::fs::write(&path, "").expect("writes");
        let empty = UploadSource::open(&path, |_| ()).expect("opens");
        assert!(empty.size().is_zero() && empty.sha256().to_string().starts_with("e3b0c442"));
    }

    #[test]
    fn a_path_that_is_no_file_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = UploadSource::open(&dir.path().join("none"), |_| ()).expect_err("missing");
        assert!(
            missing.to_string().contains("none: No such file"),
            "{missing}"
        );
        let directory = UploadSource::open(dir.path(), |_| ()).expect_err("a directory");
        assert!(matches!(directory, FileUploadError::NotAFile { .. }));
    }
}
