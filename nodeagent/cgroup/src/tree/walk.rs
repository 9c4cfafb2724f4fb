//! Visits and removal of a whole tree of groups.
//!
//! A user with a delegated group decides how deep and how wide the tree below it is. A walk therefore
//! holds one descriptor and the names on the way to it: a deep tree costs no stack, and no path
//! becomes too long for the kernel. The kernel moves no group to another parent, so `..` leads back.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{CgroupDir, DIRECTORY, open_error};
use crate::error::{CgroupError, Result};

/// Maximum wait for the end of the processes in one group.
const CHANGE_TIMEOUT: Duration = Duration::from_millis(2);

/// The time limit of a removal.
#[derive(Clone, Copy)]
struct RemovalLimit {
    within: Duration,
    deadline: Instant,
}

impl RemovalLimit {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

impl CgroupDir {
    /// Calls `visit` for this directory and all directories below it.
    pub fn each<F: FnMut(&CgroupDir) -> Result<()>>(&self, visit: &mut F) -> Result<()> {
        visit(self)?;
        let mut at = self.cursor()?;
        // The children of each directory on the way that are still to visit.
        let mut left = vec![at.remaining_subdirectories()?];
        while let Some(names) = left.last_mut() {
            match names.pop() {
                Some(name) => {
                    if at.enter(&name)? {
                        visit(&at)?;
                        left.push(at.remaining_subdirectories()?);
                    }
                }
                None => {
                    left.pop();
                    if !left.is_empty() {
                        at.leave()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes this directory and all directories below it. Retries while processes exit, until the
    /// deadline.
    pub fn remove(&self, within: Duration) -> Result<()> {
        let limit = RemovalLimit {
            within,
            deadline: Instant::now() + within,
        };
        loop {
            // A user can create groups as fast as they are removed.
            let is_last = limit.is_over();
            let errno = match unlinkat(AT_FDCWD, &self.path, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(errno) => errno,
            };
            let had_children = self.remove_below(limit)?;
            if !is_busy(errno) || is_last {
                return Err(self.remove_error(self.path.clone(), errno, limit));
            }
            if !had_children {
                self.await_change(CHANGE_TIMEOUT);
            }
        }
    }

    /// Removes all directories below this one. True if there were any.
    fn remove_below(&self, limit: RemovalLimit) -> Result<bool> {
        let mut at = self.cursor()?;
        // The children of each directory on the way that still exist. The last one of each is the
        // next on the way.
        let mut left = vec![at.remaining_subdirectories()?];
        let had_children = left.iter().any(|names| !names.is_empty());
        while let Some(names) = left.last_mut() {
            let Some(name) = names.last() else {
                left.pop();
                if !left.is_empty() {
                    at.leave()?;
                }
                continue;
            };
            let errno = match unlinkat(&at.fd, name.as_c_str(), UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT | Errno::ENODEV) => {
                    names.pop();
                    continue;
                }
                Err(errno) => errno,
            };
            if !is_busy(errno) || limit.is_over() {
                let path = at.path.join(OsStr::from_bytes(name.to_bytes()));
                return Err(at.remove_error(path, errno, limit));
            }
            if !at.enter(name)? {
                names.pop();
                continue;
            }
            let below = at.remaining_subdirectories()?;
            if below.is_empty() {
                at.await_change(CHANGE_TIMEOUT);
                at.leave()?;
            } else {
                left.push(below);
            }
        }
        Ok(had_children)
    }

    fn remove_error(&self, path: PathBuf, errno: Errno, limit: RemovalLimit) -> CgroupError {
        CgroupError::Remove {
            path,
            within: limit.within,
            left: self.pids().unwrap_or_default(),
            source: errno.into(),
        }
    }

    /// The same directory with its own descriptor, to move it through the tree.
    fn cursor(&self) -> Result<CgroupDir> {
        let fd = self.fd.try_clone().map_err(|source| CgroupError::Open {
            path: self.path.clone(),
            hint: "",
            source,
        })?;
        Ok(CgroupDir::new(fd, self.path.clone()))
    }

    /// Becomes its subdirectory. False if that does not exist any more.
    fn enter(&mut self, name: &CStr) -> Result<bool> {
        let fd = match openat(&self.fd, name, DIRECTORY, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT | Errno::ENODEV) => return Ok(false),
            Err(errno) => return Err(open_error(&self.path, errno)),
        };
        self.fd = fd;
        self.path.push(OsStr::from_bytes(name.to_bytes()));
        Ok(true)
    }

    /// Becomes its parent.
    fn leave(&mut self) -> Result<()> {
        self.fd = openat(&self.fd, "..", DIRECTORY, Mode::empty())
            .map_err(|errno| open_error(&self.path, errno))?;
        self.path.pop();
        Ok(())
    }

    /// Its subdirectories; none if it was removed meanwhile.
    fn remaining_subdirectories(&self) -> Result<Vec<CString>> {
        match self.subdirectories() {
            Err(error) if error.is_gone() => Ok(Vec::new()),
            names => names,
        }
    }
}

/// EBUSY: the group has processes or children (ENOTEMPTY on some kernels).
fn is_busy(errno: Errno) -> bool {
    matches!(errno, Errno::EBUSY | Errno::ENOTEMPTY)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::mkdirat;

    use super::*;

    /// Creates a chain of directories of that depth below `dir`.
    fn nest(dir: &CgroupDir, depth: usize, name: &CStr) {
        let mut at = dir.cursor().expect("a descriptor");
        for _ in 0..depth {
            mkdirat(&at.fd, name, Mode::S_IRWXU).expect("makes");
            assert!(at.enter(name).expect("opens"));
        }
    }

    /// Deeper than a path can name, and than the stack of a thread allows for a recursion.
    #[test]
    fn a_deep_tree_is_visited_and_removed() {
        const DEPTH: usize = 5_000;
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("top")).expect("makes");
        let top = CgroupDir::open(&place.path().join("top")).expect("opens");
        nest(&top, DEPTH, c"a-group-in-another");
        let walk = || {
            let mut visited = 0;
            top.each(&mut |_| {
                visited += 1;
                Ok(())
            })
            .expect("visits");
            let removed = top.remove(Duration::from_secs(60));
            (visited, removed)
        };
        let (visited, removed) = std::thread::scope(|scope| {
            let small_stack = std::thread::Builder::new().stack_size(256 * 1024);
            let thread = small_stack.spawn_scoped(scope, walk);
            thread.expect("starts").join().expect("no overflow")
        });
        removed.expect("removes");
        assert_eq!(visited, DEPTH + 1);
        assert!(!top.path().exists());
    }

    #[test]
    fn a_wide_tree_with_names_that_are_no_text_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("top")).expect("makes");
        let top = CgroupDir::open(&place.path().join("top")).expect("opens");
        for name in [c"one", c"\xff\xfe", c"two"] {
            nest(&top, 3, name);
        }
        assert_eq!(top.children().expect("lists"), ["one", "two"]);
        top.remove(Duration::from_secs(60)).expect("removes");
        assert!(!top.path().exists());
    }
}
