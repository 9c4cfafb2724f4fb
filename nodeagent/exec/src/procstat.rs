//! The two fields of `/proc/PID/stat` this crate needs.
