//! Forms of the address of a server.

/// Prefix of the address of a Unix socket.
pub const UNIX: &str = "unix:";
