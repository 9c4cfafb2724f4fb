//! Exit codes and advice for programs that cannot be started: pure.

use std::io::ErrorKind;

use headroom_node_exec::{SpawnError, SpawnStep};

/// The exit code of a shell for the same error: 127 for a missing program, 126 for a program that
/// cannot be executed. `None` for other errors.
pub(crate) fn exec_failure_code(error: &SpawnError) -> Option<i32> {
    const ENOENT: i32 = 2;
    const ENOEXEC: i32 = 8;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    if error.step != SpawnStep::Exec {
        return None;
    }
    match error.source.raw_os_error()? {
        ENOENT | ENOTDIR => Some(127),
        EACCES | ENOEXEC => Some(126),
        _ => None,
    }
}

/// The error in one sentence, with the fix where users meet it before they have read about containers.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let is_missing_directory = error.downcast_ref::<SpawnError>().is_some_and(|error| {
        error.step == SpawnStep::Chdir && error.source.kind() == ErrorKind::NotFound
    });
    let fix = if is_missing_directory {
        "; the task starts in the directory of its submission, which the node must have, and a container \
         has its own /tmp unless its node sets private_tmp = false: submit from another directory"
    } else {
        ""
    };
    format!("{error:#}{fix}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_missing_working_directory_has_a_fix() {
        let error = |step| {
            anyhow::Error::new(SpawnError {
                step,
                program: "sort".into(),
                what: "/tmp/data".into(),
                source: io::Error::from_raw_os_error(2),
            })
        };
        let missing = sentence(&error(SpawnStep::Chdir));
        assert!(missing.starts_with("cannot start sort: step chdir failed on /tmp/data: No such"));
        assert!(
            missing.ends_with("submit from another directory"),
            "{missing}"
        );
        assert!(!sentence(&error(SpawnStep::Exec)).contains("submit"));
    }
}
