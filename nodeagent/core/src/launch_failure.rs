//! Launch failures: why a container's program was not started, and the next step for its user.

/// A container that could not be prepared or started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// The kind, which determines the next step for the user.
    pub kind: LaunchFailureKind,
    /// The reason in one sentence.
    pub why: String,
}

impl LaunchFailure {
    /// A failure of this kind.
    pub fn new(kind: LaunchFailureKind, why: impl Into<String>) -> LaunchFailure {
        LaunchFailure {
            kind,
            why: why.into(),
        }
    }
    /// The next step for the user.
    pub fn fix(&self) -> &'static str {
        self.kind.fix()
    }
}

/// Declares the kinds of launch failures, each with the next step for the user whose container
/// could not be started.
macro_rules! launch_failure_kinds {
    ($($(#[$doc:meta])* $kind:ident => $fix:literal;)+) => {
        /// The kind of a launch failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LaunchFailureKind {
            $($(#[$doc])* $kind,)+
        }

        impl LaunchFailureKind {
            /// All kinds.
            pub const ALL: &[LaunchFailureKind] = &[$(LaunchFailureKind::$kind),+];
            /// The next step for the user whose container could not be started.
            pub fn fix(self) -> &'static str {
                match self {
                    $(LaunchFailureKind::$kind => $fix,)+
                }
            }
        }
    };
}
launch_failure_kinds! {
    /// The program does not exist.
    ProgramNotFound =>
        "check the program's name: an absolute path, a file of the launch as ./NAME, or a name \
         on the node's PATH";
    /// The user may not execute the program.
    ProgramNotExecutable => "make the program executable for the user of the node agent";
    /// The kernel cannot execute this format.
    ProgramFormat =>
        "use a program for this machine's architecture; a script needs a first line such as \
         #!/bin/sh";
    /// The SHA-256 of a file differs from the requested one.
    DigestMismatch => "write the SHA-256 of the file, as `sha256sum` prints it";
    /// An archive was refused.
    ArchiveRefused =>
        "pack it again: no absolute names, no `..`, no devices, within [cache] of the node's \
         configuration";
    /// A file was not fetched before the deadline.
    FetchTimeout =>
        "check the load of the server, or raise deadline under [cache] in the node's configuration";
    /// The certificate of the server is not trusted.
    ServerNotTrusted =>
        "name the authority that signed it in ca_file under [cache] in the node's configuration";
    /// The file of additional authorities is unusable.
    CaFileInvalid => "write a file of certificates in PEM there, or leave ca_file out";
    /// The resource manager does not have an uploaded file.
    UploadMissing =>
        "submit again, which uploads the file; keep under [uploads] in the resource manager's \
         configuration is how long an unused file stays";
    /// A file could not be fetched for another reason.
    FetchFailed => "check that the URL or path is correct and readable from the node";
    /// The host does not know the user.
    UserUnknown =>
        "create the user on the node, or map the submitter under [isolation] users in the node's \
         configuration";
    /// The program would run as root.
    RootNotAllowed =>
        "submit as another user, or set allow_root under [isolation] in the node's configuration";
    /// The uid of the user is below the minimum of the node.
    UidTooLow =>
        "submit as another user, or map the submitter under [isolation] users in the node's \
         configuration";
    /// The launch has no submitter.
    SubmitterMissing =>
        "submit with a user, or set run_as under [isolation] in the node's configuration";
    /// The private `/tmp` cannot be mounted.
    PrivateTmp =>
        "the agent may not mount: give it CAP_SYS_ADMIN, or set private_tmp = false under \
         [isolation]";
    /// The namespaces cannot be created.
    Namespaces =>
        "allow more namespaces (sysctl user.max_ipc_namespaces, user.max_mnt_namespaces, \
         user.max_user_namespaces), or set ipc = \"host\" under [isolation] in the node's \
         configuration";
    /// The disk of the node's state directory is full.
    DiskFull => "free space on the disk of the node's state directory";
    /// The container was already started.
    AlreadyStarted => "no action: a container never runs twice";
    /// A cgroup cannot be created or entered.
    Cgroup => "see the findings of its enforcer in `GET /v1/doctor` of the node";
    /// The node does not have an auxiliary service of the launch.
    AuxServiceMissing =>
        "configure the service under [aux_services] on every node that may run the container, or \
         request a label that only nodes with the service have";
    /// An auxiliary service could not be started, or was not ready in time.
    AuxServiceFailed =>
        "see aux/NAME/stderr in the state directory of the node, or raise start_timeout of the \
         service";
    /// The shared directory of the journals of masters cannot be used on this node.
    JournalsUnusable =>
        "mount the shared file system of journals under [masters] in the node's configuration; \
         the finding journals of `GET /v1/doctor` of the node has the cause";
    /// An internal failure; the log of the agent has its details.
    Internal => "see the log of the node agent at that time";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_fix() {
        let word = |kind| match kind {
            LaunchFailureKind::ProgramNotFound => "check the program's name",
            LaunchFailureKind::ProgramNotExecutable => "make the program executable",
            LaunchFailureKind::ProgramFormat => "architecture",
            LaunchFailureKind::DigestMismatch => "sha256sum",
            LaunchFailureKind::ArchiveRefused => "pack it again",
            LaunchFailureKind::FetchTimeout => "raise deadline under [cache]",
            LaunchFailureKind::ServerNotTrusted => "the authority that signed it in ca_file",
            LaunchFailureKind::CaFileInvalid => "leave ca_file out",
            LaunchFailureKind::UploadMissing => "submit again, which uploads the file",
            LaunchFailureKind::FetchFailed => "URL or path is correct",
            LaunchFailureKind::UserUnknown => "create the user",
            LaunchFailureKind::RootNotAllowed => "allow_root",
            LaunchFailureKind::UidTooLow => "submit as another user, or map the submitter",
            LaunchFailureKind::SubmitterMissing => "set run_as",
            LaunchFailureKind::PrivateTmp => "private_tmp = false",
            LaunchFailureKind::Namespaces => "max_ipc_namespaces, user.max_mnt_namespaces, user",
            LaunchFailureKind::DiskFull => "free space on the disk",
            LaunchFailureKind::AlreadyStarted => "no action",
            LaunchFailureKind::Cgroup => "/v1/doctor",
            LaunchFailureKind::AuxServiceMissing => "under [aux_services]",
            LaunchFailureKind::AuxServiceFailed => "aux/NAME/stderr",
            LaunchFailureKind::JournalsUnusable => "journals under [masters]",
            LaunchFailureKind::Internal => "log of the node agent",
        };
        for kind in LaunchFailureKind::ALL.iter().copied() {
            let fix = kind.fix();
            let also = LaunchFailureKind::ALL
                .iter()
                .filter(|other| **other != kind && other.fix() == fix);
            assert!(fix.contains(word(kind)), "{kind:?}: {fix}");
            assert_eq!(also.count(), 0, "{kind:?} has its own fix");
            assert_eq!(LaunchFailure::new(kind, "no").fix(), fix);
        }
    }
}
