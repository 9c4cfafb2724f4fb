//! Tests that run themselves again in a guest.

use anyhow::{Context as _, Result, ensure};

use super::{Guest, job};

/// True inside a guest.
pub fn in_guest() -> bool {
    std::env::var_os(job::IN_GUEST).is_some()
}

/// On the host: boots `guest` and runs the test `name` of this binary in it. Fails unless exactly
/// that test passed there. In the guest: runs `body`. `name` is the test's full name, as `cargo
/// test` lists it.
pub fn rerun(name: &str, guest: Guest, body: impl FnOnce()) {
    if in_guest() {
        return body();
    }
    if let Err(error) = boot_for(name, guest) {
        panic!("{name} in the guest: {error:#}");
    }
}

fn boot_for(name: &str, guest: Guest) -> Result<()> {
    let exe = std::env::current_exe().context("the path of this test binary")?;
    let exe = exe
        .to_str()
        .context("the test binary's path is not UTF-8")?;
    let outcome = guest.run(&[exe, "--exact", name, "--nocapture", "--include-ignored"])?;
    ensure!(outcome.code == 0, "failed with exit code {}", outcome.code);
    // A name without a match would "pass" with 0 tests.
    ensure!(
        outcome
            .stdout
            .contains("test result: ok. 1 passed; 0 failed"),
        "not exactly this test ran"
    );
    Ok(())
}

/// Defines a test that runs in a guest: `guest_test!(name, Guest::new(), { body });`
#[macro_export]
macro_rules! guest_test {
    ($(#[$meta:meta])* $name:ident, $guest:expr, $body:block) => {
        $(#[$meta])*
        #[test]
        fn $name() {
            $crate::guest::rerun($crate::test_name!($name), $guest, || $body);
        }
    };
}

/// Defines a test twice from one body: `NAME::host_enforcer` with the enforcer of the host,
/// `NAME::cgroup2` in a guest.
#[macro_export]
macro_rules! on_host_and_in_guest {
    ($(#[$meta:meta])* $name:ident, $guest:expr, $body:path) => {
        $(#[$meta])*
        mod $name {
            use super::*;
            #[test]
            fn host_enforcer() {
                $body();
            }
            #[test]
            fn cgroup2() {
                $crate::guest::rerun($crate::test_name!(cgroup2), $guest, $body);
            }
        }
    };
}

/// The full name of a test in the module of the call, without the crate's name.
#[macro_export]
macro_rules! test_name {
    ($name:ident) => {{
        let path = concat!(module_path!(), "::", stringify!($name));
        path.split_once("::").map_or(path, |(_crate, rest)| rest)
    }};
}
