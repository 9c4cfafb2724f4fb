//! Input file and value file of one attempt: the text that its program reads, and the text that it
//! returns.
//!
//! Owned by the files of the attempt. Both files lie in `tasks/` of the container's directory. Only
//! the user of the container can read the input. Where the kernel confirms that all processes of an
//! attempt have ended, the next attempt uses the same files: a file system such as ext4 takes long
//! to create files among many that were just removed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use headroom_types::Bytes;
use headroom_wire::v1::submission::MAX_VALUE_BYTES;
use headroom_wire::v1::task::TaskStart;
use rustix::fs::{Mode, OFlags};

/// Variable with the path of the input file.
pub const INPUT_FILE_VARIABLE: &str = "HEADROOM_INPUT_FILE";
/// Variable with the path of the value file.
pub const VALUE_FILE_VARIABLE: &str = "HEADROOM_VALUE_FILE";

/// The files of attempts in one directory.
#[derive(Debug)]
pub struct PayloadPool {
    dir: PathBuf,
    reuse: FileReuse,
    free: Mutex<FreePayloads>,
}

/// Whether the next attempt may use the files of an ended one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileReuse {
    /// The kernel confirms the end of all processes of an attempt.
    Allowed,
    /// A process that is not known may still have the files open.
    Never,
}

/// Numbers of files.
#[derive(Debug, Default)]
struct FreePayloads {
    /// Files that exist and that no attempt uses.
    numbers: Vec<u32>,
    /// The lowest number that was never used.
    next: u32,
}

/// The input and value files of one attempt. A drop returns them to the pool or removes them.
#[derive(Debug)]
pub struct PayloadFiles {
    pool: Arc<PayloadPool>,
    number: u32,
    reuse: FileReuse,
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

impl PayloadPool {
    /// A pool of files in `dir`, which exists when the first attempt starts.
    pub fn new(dir: PathBuf, reuse: FileReuse) -> PayloadPool {
        PayloadPool {
            dir,
            reuse,
            free: Mutex::default(),
        }
    }

    /// Writes the input of `start`, and makes its value absent. `None` for a start with neither an
    /// input nor a fork server.
    pub fn take(self: &Arc<Self>, start: &TaskStart) -> io::Result<Option<PayloadFiles>> {
        if start.input.is_none() && start.fork_server.is_empty() {
            return Ok(None);
        }
        let (number, used) = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.numbers.pop() {
                Some(number) => (number, true),
                None => {
                    free.next += 1;
                    (free.next, false)
                }
            }
        };
        let path = |ending| self.dir.join(format!("payload-{number}.{ending}"));
        let input = path("input");
        if !used {
            // Those of an earlier executor in the same directory.
            remove(&input);
            remove(&path("value"));
        }
        if let Some(text) = &start.input {
            open_empty(&input, OFlags::CREATE)?.write_all(text.as_bytes())?;
        }
        Ok(Some(PayloadFiles {
            pool: self.clone(),
            number,
            reuse: self.reuse,
            input: start.input.is_some().then_some(input),
            value: path("value"),
        }))
    }
}

impl PayloadFiles {
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

    /// Removes the files with their owner: a process of the attempt may still run.
    pub fn forbid_reuse(&mut self) {
        self.reuse = FileReuse::Never;
    }

    /// Makes the value absent. False if the files are not as an executor leaves them.
    fn clear(&self) -> bool {
        let is_plain = |path: &Path| {
            std::fs::symlink_metadata(path).map(|file| file.is_file() && file.nlink() == 1)
        };
        let input = self.input.as_deref();
        let has_plain_input = input.is_none_or(|path| is_plain(path).is_ok_and(|plain| plain));
        has_plain_input
            && match is_plain(&self.value) {
                Ok(plain) => plain && mark_absent(&self.value).is_ok(),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
    }
}

impl Drop for PayloadFiles {
    fn drop(&mut self) {
        if self.reuse == FileReuse::Allowed && self.clear() {
            let free = &self.pool.free;
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            free.numbers.push(self.number);
            return;
        }
        self.input.iter().for_each(|path| remove(path));
        remove(&self.value);
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "a file of the task cannot be removed");
        }
    }
}

/// Empties a value file. Its time of change distinguishes it from an empty value.
fn mark_absent(path: &Path) -> io::Result<()> {
    open_empty(path, OFlags::empty())?.set_modified(UNIX_EPOCH)
}

/// Opens a file for its owner only, empties it, and follows no link.
fn open_empty(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(path, flags | more, mode)?;
    // An attempt that used the file before may have changed its mode.
    rustix::fs::fchmod(&file, mode)?;
    Ok(File::from(file))
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
    if metadata.len() == 0 && metadata.modified().is_ok_and(|time| time == UNIX_EPOCH) {
        return Ok(TaskValue::Absent);
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

    fn pool(dir: &Path, reuse: FileReuse) -> Arc<PayloadPool> {
        Arc::new(PayloadPool::new(dir.to_owned(), reuse))
    }

    fn taken(pool: &Arc<PayloadPool>, start: &TaskStart) -> PayloadFiles {
        pool.take(start).expect("creates").expect("has files")
    }

    #[test]
    fn an_attempt_has_the_files_that_it_needs() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pool = pool(dir.path(), FileReuse::Allowed);
        assert!(pool.take(&start(None, &[])).expect("creates").is_none());
        let names = |start: &TaskStart| {
            let files = taken(&pool, start);
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
        // Files of an earlier executor in the same directory.
        std::fs::write(dir.path().join("payload-1.input"), "old").expect("writes");
        std::fs::write(dir.path().join("payload-1.value"), "old").expect("writes");
        let pool = pool(dir.path(), FileReuse::Never);
        let files = taken(&pool, &start(Some("ä text"), &[]));
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
    fn the_next_attempt_does_not_see_the_value_of_the_one_before() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pool = pool(dir.path(), FileReuse::Allowed);
        let first = taken(&pool, &start(Some("a long text"), &[]));
        let value = first.value.clone();
        std::fs::write(&value, "result").expect("writes");
        assert_eq!(first.value(), TaskValue::Text("result".into()));
        let (_, input) = first.variables().next().expect("an input");
        let open_to_all = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(input, open_to_all).expect("changes the mode");
        drop(first);
        let second = taken(&pool, &start(Some("short"), &[]));
        assert_eq!(second.value, value);
        assert_eq!(second.value(), TaskValue::Absent);
        let (_, input) = second.variables().next().expect("an input");
        assert_eq!(std::fs::read_to_string(input).expect("reads"), "short");
        let metadata = std::fs::metadata(input).expect("exists");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let other = taken(&pool, &start(Some("at the same time"), &[]));
        assert_ne!(other.value, value);
        std::fs::write(&value, "").expect("writes");
        assert_eq!(second.value(), TaskValue::Text(String::new()));
        // A link to the file could be written to later.
        std::fs::hard_link(&value, dir.path().join("link")).expect("links");
        drop(second);
        let third = taken(&pool, &start(Some("text"), &[]));
        assert_ne!(third.value, value);
    }

    #[test]
    fn only_a_regular_file_of_text_within_the_limit_is_a_value() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pool = pool(dir.path(), FileReuse::Allowed);
        let files = taken(&pool, &start(None, &["server"]));
        let value = files.value.clone();
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
