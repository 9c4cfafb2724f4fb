//! Runs the same scenarios with every backend.

/// Makes each function with a backend parameter a test for each backend: `sled::NAME` and
/// `redb::NAME`.
macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {
        mod sled {
            $(#[test] fn $name() { super::$name(headroom_types::StoreBackend::Sled) })+
        }
        mod redb {
            $(#[test] fn $name() { super::$name(headroom_types::StoreBackend::Redb) })+
        }
    };
}

pub(crate) use on_every_backend;
