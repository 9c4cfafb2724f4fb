//! Dispatch to the kind of an enforcer or of a group.

/// Evaluates one expression for both cgroup versions, and another one for poll; without the second
/// one, the first is used for poll as well.
macro_rules! by_kind {
    ($kinds:ident, $value:expr, $inner:ident => $call:expr) => {
        by_kind!($kinds, $value, $inner => $call, $inner => $call)
    };
    ($kinds:ident, $value:expr, $inner:ident => $cgroup:expr, $poll:pat => $other:expr) => {
        match $value {
            $kinds::Cgroup2($inner) => $cgroup,
            $kinds::Cgroup1($inner) => $cgroup,
            $kinds::Poll($poll) => $other,
        }
    };
}
