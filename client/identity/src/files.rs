//! Files of keys, certificates and tokens. Secrets are readable by their owner only, and a crash
//! leaves the old or the new file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file. Bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The error of a file of secrets.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// Other users of the host can read a secret.
    #[error("all users of this host can read {path} (mode {mode:o}); run: chmod o-rwx {path}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file exists and must not be overwritten.
    #[error("{path} already exists and is not overwritten; remove it first if it is no longer needed", path = path.display())]
    There {
        /// The file.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("{path} is longer than {MAX_FILE_BYTES} bytes, so it is not a key, certificate or token", path = path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
}

/// The treatment of an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// Replace it.
    Replace,
    /// Keep it and report an error.
    Keep,
}

/// The readers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileReaders {
    /// Its owner only.
    Owner,
    /// All users of the host.
    All,
}

/// Reads a file without secrets.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> Result<String, FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let length = fs::metadata(path).map_err(io)?.len();
    if length > MAX_FILE_BYTES {
        return Err(FileError::Long {
            path: path.to_owned(),
        });
    }
    fs::read_to_string(path).map_err(io)
}

/// Reads a secret; rejects a file that other users of the host can read.
///
/// # Errors
/// The file cannot be read, or other users can read it.
pub fn read_secret(path: &Path) -> Result<String, FileError> {
    let meta = fs::metadata(path).map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })?;
    if meta.mode() & 0o007 != 0 {
        return Err(FileError::Open {
            path: path.to_owned(),
            mode: meta.mode() & 0o777,
        });
    }
    read(path)
}

/// Writes a file atomically: a temporary file, a sync, then a rename or link to the final name.
///
/// # Errors
/// The file cannot be written, or it exists and must be kept.
pub fn write(
    path: &Path,
    text: &str,
    readers: FileReaders,
    over: OverwritePolicy,
) -> Result<(), FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    if over == OverwritePolicy::Keep && path.symlink_metadata().is_ok() {
        return Err(FileError::There {
            path: path.to_owned(),
        });
    }
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let mode = match readers {
        FileReaders::Owner => 0o600,
        FileReaders::All => 0o644,
    };
    let put = || -> io::Result<()> {
        // An earlier process with the same id may have left a temporary file.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match over {
            OverwritePolicy::Replace => fs::rename(&beside, path)?,
            // A hard link fails if the file was created in the meantime.
            OverwritePolicy::Keep => {
                fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside))?
            }
        }
        File::open(folder)?.sync_all()
    };
    put().map_err(|source| {
        let _ = fs::remove_file(&beside);
        io(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_the_owner_can_read_a_secret() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        write(&path, "secret", FileReaders::Owner, OverwritePolicy::Keep).expect("writes");
        assert_eq!(fs::metadata(&path).expect("is there").mode() & 0o777, 0o600);
        assert_eq!(read_secret(&path).expect("reads"), "secret");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("sets");
        let error = read_secret(&path).expect_err("open").to_string();
        assert!(error.contains("chmod o-rwx"), "{error}");
    }

    #[test]
    fn an_existing_file_is_kept_unless_replacement_is_requested() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ca.pem");
        write(&path, "one", FileReaders::All, OverwritePolicy::Keep).expect("writes");
        assert!(matches!(
            write(&path, "two", FileReaders::All, OverwritePolicy::Keep),
            Err(FileError::There { .. })
        ));
        assert_eq!(read(&path).expect("reads"), "one");
        write(&path, "two", FileReaders::All, OverwritePolicy::Replace).expect("writes");
        assert_eq!(read(&path).expect("reads"), "two");
        assert_eq!(
            fs::read_dir(dir.path()).expect("lists").count(),
            1,
            "no temporary file is left"
        );
    }
}
