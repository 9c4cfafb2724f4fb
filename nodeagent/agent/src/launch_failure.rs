//! The kind of a launch failure: from the errors of the preparation, and from the report of the
//! shim.

use std::io;

use headroom_container_shim::LaunchStep;
use headroom_node_core::{LaunchFailure, LaunchFailureKind};
use nix::libc;

/// An error whose kind determines the next step of the user. The kind stays with it below any
/// number of contexts.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct LaunchError {
    kind: LaunchFailureKind,
    sentence: String,
}

impl LaunchError {
    /// An error, or a context, of this kind.
    pub(crate) fn new(kind: LaunchFailureKind, sentence: impl Into<String>) -> LaunchError {
        LaunchError {
            kind,
            sentence: sentence.into(),
        }
    }
    /// Adds a sentence. An error that has a kind keeps it; all others get `kind`.
    pub(crate) fn around(
        error: anyhow::Error,
        kind: LaunchFailureKind,
        sentence: impl Into<String>,
    ) -> anyhow::Error {
        let kind = kind_in(&error).unwrap_or(kind);
        error.context(LaunchError::new(kind, sentence))
    }
}

/// The kind that an error has, from its outermost [`LaunchError`].
fn kind_in(error: &anyhow::Error) -> Option<LaunchFailureKind> {
    error.downcast_ref::<LaunchError>().map(|typed| typed.kind)
}

fn is_disk_full(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::StorageFull)
}

/// The failure of a container whose preparation or shim ended with `error`.
pub(crate) fn from_error(error: &anyhow::Error) -> LaunchFailure {
    let kind = kind_in(error).unwrap_or(LaunchFailureKind::Internal);
    let general = matches!(
        kind,
        LaunchFailureKind::Internal
            | LaunchFailureKind::FetchFailed
            | LaunchFailureKind::ArchiveRefused
    );
    let kind = if general && is_disk_full(error) {
        LaunchFailureKind::DiskFull
    } else {
        kind
    };
    LaunchFailure::new(kind, format!("{error:#}"))
}

/// The failure that a shim reported about a program that did not start.
pub(crate) fn from_step(step: LaunchStep, errno: i32, detail: &str) -> LaunchFailure {
    let why = io::Error::from_raw_os_error(errno);
    let about = if detail.is_empty() {
        String::new()
    } else {
        format!(" {detail}")
    };
    LaunchFailure::new(kind_of_step(step, errno), format!("{step}{about}: {why}"))
}

fn kind_of_step(step: LaunchStep, errno: i32) -> LaunchFailureKind {
    match step {
        LaunchStep::Exec => match errno {
            libc::ENOENT => LaunchFailureKind::ProgramNotFound,
            libc::EACCES => LaunchFailureKind::ProgramNotExecutable,
            libc::ENOEXEC => LaunchFailureKind::ProgramFormat,
            _ => LaunchFailureKind::Internal,
        },
        LaunchStep::Cgroup => LaunchFailureKind::Cgroup,
        LaunchStep::Namespaces => LaunchFailureKind::Namespaces,
        LaunchStep::PrivateTmp => LaunchFailureKind::PrivateTmp,
        LaunchStep::Identity | LaunchStep::Stdio if errno == libc::ENOSPC => {
            LaunchFailureKind::DiskFull
        }
        LaunchStep::Identity
        | LaunchStep::Spec
        | LaunchStep::Pipe
        | LaunchStep::Clone
        | LaunchStep::Session
        | LaunchStep::OomScore
        | LaunchStep::Stdio
        | LaunchStep::Limit
        | LaunchStep::Privileges
        | LaunchStep::User
        | LaunchStep::Chdir
        | LaunchStep::Wait => LaunchFailureKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_kind_stays_with_its_error_below_contexts() {
        let inner = anyhow::Error::new(LaunchError::new(
            LaunchFailureKind::DigestMismatch,
            "its SHA-256 is 1, not 2",
        ));
        let fetching = LaunchError::around(
            inner.context("the cache"),
            LaunchFailureKind::FetchFailed,
            "fetching a from b",
        );
        let failure = from_error(&fetching.context("the container"));
        assert_eq!(failure.kind, LaunchFailureKind::DigestMismatch);
        assert_eq!(
            failure.why,
            "the container: fetching a from b: the cache: its SHA-256 is 1, not 2"
        );
        let other = LaunchError::around(
            anyhow::anyhow!("the server answers 404"),
            LaunchFailureKind::FetchFailed,
            "fetching a from b",
        );
        assert_eq!(from_error(&other).kind, LaunchFailureKind::FetchFailed);
    }

    #[test]
    fn an_error_without_a_kind_is_internal_whatever_its_text() {
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let error = anyhow::Error::new(missing).context("cannot read the min_uid of ca_file");
        assert_eq!(from_error(&error).kind, LaunchFailureKind::Internal);
    }

    #[test]
    fn a_full_disk_explains_a_general_failure_only() {
        let full = || io::Result::<()>::Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let written = full().context("cannot write order").expect_err("full");
        assert_eq!(from_error(&written).kind, LaunchFailureKind::DiskFull);
        let fetched = LaunchError::around(written, LaunchFailureKind::FetchFailed, "fetching a");
        assert_eq!(from_error(&fetched).kind, LaunchFailureKind::DiskFull);
        let group = full()
            .with_context(|| LaunchError::new(LaunchFailureKind::Cgroup, "cannot create it"))
            .expect_err("full");
        assert_eq!(from_error(&group).kind, LaunchFailureKind::Cgroup);
    }

    #[test]
    fn a_failed_step_of_the_shim_has_a_kind_by_its_errno() {
        let table = [
            (
                LaunchStep::Exec,
                libc::ENOENT,
                LaunchFailureKind::ProgramNotFound,
            ),
            (
                LaunchStep::Exec,
                libc::EACCES,
                LaunchFailureKind::ProgramNotExecutable,
            ),
            (
                LaunchStep::Exec,
                libc::ENOEXEC,
                LaunchFailureKind::ProgramFormat,
            ),
            (LaunchStep::Exec, libc::EIO, LaunchFailureKind::Internal),
            (
                LaunchStep::Namespaces,
                libc::ENOSPC,
                LaunchFailureKind::Namespaces,
            ),
            (
                LaunchStep::PrivateTmp,
                libc::EPERM,
                LaunchFailureKind::PrivateTmp,
            ),
            (LaunchStep::Cgroup, libc::ENOENT, LaunchFailureKind::Cgroup),
            (LaunchStep::Stdio, libc::ENOSPC, LaunchFailureKind::DiskFull),
            (LaunchStep::Stdio, libc::ENOENT, LaunchFailureKind::Internal),
            (LaunchStep::Chdir, libc::ENOENT, LaunchFailureKind::Internal),
        ];
        for (step, errno, kind) in table {
            assert_eq!(from_step(step, errno, "x").kind, kind, "{step} {errno}");
        }
        assert_eq!(
            from_step(LaunchStep::Exec, libc::EACCES, "/bin/it").why,
            "exec /bin/it: Permission denied (os error 13)"
        );
        assert_eq!(
            from_step(LaunchStep::Session, libc::EPERM, "").why,
            "session: Operation not permitted (os error 1)"
        );
    }
}
