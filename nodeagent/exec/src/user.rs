//! The user of a child.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

/// A user with all groups, as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

/// Maximum number of supplementary groups in Linux.
const MOST_GROUPS: usize = 65_536;

impl ProcessUser {
    /// The user of that name in the system's user database; `None` when there is none.
    pub fn by_name(name: &str) -> io::Result<Option<ProcessUser>> {
        let name = CString::new(name)?;
        let Some((uid, gid)) = look_up(&name)? else {
            return Ok(None);
        };
        Ok(Some(ProcessUser {
            uid,
            gid,
            groups: groups_of(&name, gid)?,
        }))
    }
}

fn look_up(name: &CStr) -> io::Result<Option<(u32, u32)>> {
    let mut room = vec![0; 16 * 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        // SAFETY: `name` ends in NUL; `entry` and `found` are valid for writes; `room` has the
        // given length; all outlive the call.
        let answer = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                room.as_mut_ptr(),
                room.len(),
                &mut found,
            )
        };
        match answer {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: a result of 0 with `found` set means that `entry` was filled.
                let entry = unsafe { entry.assume_init() };
                return Ok(Some((entry.pw_uid, entry.pw_gid)));
            }
            libc::ERANGE if room.len() < 1 << 20 => room.resize(room.len() * 4, 0),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn groups_of(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).map_err(io::Error::other)?;
        // SAFETY: `name` ends in NUL; `groups` has space for `count` numbers; both outlive the
        // call.
        let answer =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let needed = usize::try_from(count).unwrap_or(0);
        if answer >= 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(io::Error::other(
                "the user has more groups than the kernel allows",
            ));
        }
        groups.resize(needed.max(groups.len() * 2).min(MOST_GROUPS), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_and_an_unknown_user_is_not() {
        let root = ProcessUser::by_name("root").expect("asks").expect("there");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(
            ProcessUser::by_name("no-such-user-here").expect("asks"),
            None
        );
        assert!(ProcessUser::by_name("a\0b").is_err());
    }
}
