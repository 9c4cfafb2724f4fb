//! Input file and value file of one attempt: the text that its program reads, and the text that it
//! returns.
//!
//! Owned by the files of the attempt. Both files lie in `tasks/` of the container's directory and
//! are removed with their owner. Only the user of the container can read the input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use headroom_types::Bytes;
use headroom_wire::v1::submission::MAX_VALUE_BYTES;
use headroom_wire::v1::task::TaskStart;
use rustix::fs::{Mode, OFlags};

/// Variable with the path of the input file.
pub const INPUT_FILE_VARIABLE: &str = "HEADROOM_INPUT_FILE";
/// Variable with the path of the value file.
pub const VALUE_FILE_VARIABLE: &str = "HEADROOM_VALUE_FILE";

/// The input and value files of one attempt; a drop removes them.
#[derive(Debug)]
pub struct PayloadFiles {
    /// `None` for an attempt without an input.
    input: Option<PathBuf>,
    value: PathBuf,
}

/// The content of a value file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskValue {
    /// The program wrote no value.
    #[default]
    Absent,
    /// At most [`MAX_VALUE_BYTES`] of text.
    Text(String),
    /// Size of a file that is larger. Bytes.
    TooLarge(Bytes),
    /// The file is not a value; the reason for users.
    Unreadable(String),
}

impl PayloadFiles {
    /// Writes the input of `start` to `PATH.input`, and reserves `PATH.value`. `None` for a start
    /// with neither an input nor a fork server.
    pub fn create(path: &Path, start: &TaskStart) -> io::Result<Option<PayloadFiles>> {
        if start.input.is_none() && start.fork_server.is_empty() {
            return Ok(None);
        }
        let files = PayloadFiles {
            input: start
                .input
                .is_some()
                .then(|| path.with_added_extension("input")),
            value: path.with_added_extension("value"),
        };
        files.remove();
        if let (Some(path), Some(text)) = (&files.input, &start.input) {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?
                .write_all(text.as_bytes())?;
        }
        Ok(Some(files))
    }

    /// The variables that name the files.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let input = self
            .input
            .as_deref()
            .map(|path| (INPUT_FILE_VARIABLE, path));
        input
            .into_iter()
            .chain([(VALUE_FILE_VARIABLE, self.value.as_path())])
    }

    /// Reads the value. All processes of the attempt have ended, so the file no longer changes.
    pub fn value(&self) -> TaskValue {
        match read_value(&self.value) {
            Ok(value) => value,
            Err(e) if e.kind() == io::ErrorKind::NotFound => TaskValue::Absent,
            Err(e) => TaskValue::Unreadable(e.to_string()),
        }
    }

    fn remove(&self) {
        for path in self.input.iter().chain([&self.value]) {
            match std::fs::remove_file(path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "a file of the task cannot be removed");
                }
            }
        }
    }
}

impl Drop for PayloadFiles {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Opens without following a link and without waiting for a writer of a pipe.
fn read_value(path: &Path) -> io::Result<TaskValue> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => {
            return Ok(TaskValue::Unreadable("it is a symbolic link".to_owned()));
        }
        Err(e) => return Err(e.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(TaskValue::Unreadable("it is not a regular file".to_owned()));
    }
    if metadata.len() > MAX_VALUE_BYTES as u64 {
        return Ok(TaskValue::TooLarge(Bytes::new(metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_VALUE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => TaskValue::Text(text),
        Err(_) => TaskValue::Unreadable("it is not UTF-8 text".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::samples;
    use std::os::unix::fs::PermissionsExt as _;

    fn start(input: Option<&str>, fork_server: &[&str]) -> TaskStart {
        TaskStart {
            input: input.map(str::to_owned),
            fork_server: fork_server.iter().map(|word| (*word).to_owned()).collect(),
            ..samples::start("map/7@2")
        }
    }

    #[test]
    fn an_attempt_has_the_files_that_it_needs() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("map-7-2");
        assert!(
            PayloadFiles::create(&path, &start(None, &[]))
                .expect("creates")
                .is_none()
        );
        let names = |start: &TaskStart| {
            let files = PayloadFiles::create(&path, start)
                .expect("creates")
                .expect("has files");
            files.variables().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&start(None, &["server"])), [VALUE_FILE_VARIABLE]);
        assert_eq!(
            names(&start(Some(""), &[])),
            [INPUT_FILE_VARIABLE, VALUE_FILE_VARIABLE]
        );
    }

    #[test]
    fn the_input_is_private_and_removed_with_its_owner() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("map-7-2");
        // Files of an earlier executor in the same directory.
        std::fs::write(dir.path().join("map-7-2.input"), "old").expect("writes");
        std::fs::write(dir.path().join("map-7-2.value"), "old").expect("writes");
        let files = PayloadFiles::create(&path, &start(Some("ä text"), &[]))
            .expect("creates")
            .expect("has files");
        let (_, input) = files.variables().next().expect("an input");
        assert_eq!(std::fs::read_to_string(input).expect("reads"), "ä text");
        let mode = std::fs::metadata(input)
            .expect("exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(files.value(), TaskValue::Absent);
        drop(files);
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
    }

    #[test]
    fn only_a_regular_file_of_text_within_the_limit_is_a_value() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("map-7-2");
        let files = PayloadFiles::create(&path, &start(None, &["server"]))
            .expect("creates")
            .expect("has files");
        let value = dir.path().join("map-7-2.value");
        let most = "v".repeat(MAX_VALUE_BYTES);
        std::fs::write(&value, &most).expect("writes");
        assert_eq!(files.value(), TaskValue::Text(most.clone()));
        std::fs::write(&value, most + "v").expect("writes");
        let size = Bytes::new(MAX_VALUE_BYTES as u64 + 1);
        assert_eq!(files.value(), TaskValue::TooLarge(size));
        std::fs::write(&value, [0xff, 0xfe]).expect("writes");
        assert!(matches!(files.value(), TaskValue::Unreadable(why) if why.contains("UTF-8")));
        std::fs::remove_file(&value).expect("removes");
        std::os::unix::fs::symlink("/etc/hostname", &value).expect("links");
        assert!(matches!(files.value(), TaskValue::Unreadable(why) if why.contains("link")));
        std::fs::remove_file(&value).expect("removes");
        std::fs::create_dir(&value).expect("creates");
        assert!(matches!(files.value(), TaskValue::Unreadable(why) if why.contains("regular")));
        std::fs::remove_dir(&value).expect("removes");
    }
}
