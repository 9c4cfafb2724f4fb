//! Whom a child runs as.

use std::io;

/// A user with all groups, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl User {
    /// The user of that name in the system's user database; `None` when there is none.
    pub fn by_name(name: &str) -> io::Result<Option<User>> {
        let _ = name;
        unimplemented!()
    }
}
