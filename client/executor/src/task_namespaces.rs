//! IPC and mount namespaces of each task, if the node requests them.
//!
//! The first start with namespaces shows whether this process can create them. A trial before it
//! would delay the first task of each executor. Owned by the launch context.

use std::sync::OnceLock;

use headroom_node_exec::{
    ChildProcess, Namespaces, Privilege, SpawnCommand, SpawnError, SpawnStep, probe_namespaces,
    spawn,
};

/// The namespaces of the tasks of one executor.
#[derive(Debug)]
pub struct TaskNamespaces {
    /// `None` if tasks share those of the container.
    requested: Option<Namespaces>,
    /// Whether this process can create them, or the reason why not. Empty until it is known.
    availability: OnceLock<Result<(), String>>,
}

impl TaskNamespaces {
    /// Namespaces with a `/dev/shm` of this size in bytes; none if tasks share those of the
    /// container.
    pub fn new(shm: Option<u64>) -> TaskNamespaces {
        TaskNamespaces::with(shm.map(|shm| Namespaces {
            privilege: Privilege::own(),
            shm,
        }))
    }

    fn with(requested: Option<Namespaces>) -> TaskNamespaces {
        TaskNamespaces {
            requested,
            availability: OnceLock::new(),
        }
    }

    /// The namespaces, after a trial if it is not known yet whether this process can create them.
    /// Blocking.
    pub fn checked(&self) -> Option<Namespaces> {
        let requested = self.requested?;
        let availability = self.availability.get_or_init(|| {
            probe_namespaces(requested.privilege).inspect_err(|why| {
                tracing::warn!(why, "tasks use /dev/shm and IPC of their container")
            })
        });
        availability.is_ok().then_some(requested)
    }

    /// The isolation that tasks lack although the node requests it. `None` if there is none.
    pub fn missing(&self) -> Option<String> {
        let why = self.availability.get()?.as_ref().err()?;
        Some(format!(
            "a private IPC namespace and /dev/shm of the task; those of its container were used: {why}"
        ))
    }

    /// Starts a program in new namespaces, or in those of the container if this process cannot create
    /// any. Blocking.
    pub fn spawn(&self, command: &SpawnCommand<'_>) -> Result<ChildProcess, SpawnError> {
        let start = |namespaces| {
            spawn(&SpawnCommand {
                namespaces,
                ..command.clone()
            })
        };
        let namespaces = match self.availability.get() {
            Some(Err(_)) => None,
            Some(Ok(())) | None => self.requested,
        };
        match start(namespaces) {
            Err(e) if e.step == SpawnStep::Namespaces && self.checked().is_none() => start(None),
            Err(e) => Err(e),
            Ok(child) => {
                if namespaces.is_some() {
                    // It may be known already.
                    let _ = self.availability.set(Ok(()));
                }
                Ok(child)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headroom_node_exec::{ExecArguments, ProcessEnd};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    fn run(namespaces: &TaskNamespaces) -> Result<ProcessEnd, SpawnError> {
        let arguments = ExecArguments::new(["/bin/true"], &[]).expect("a command");
        let child = namespaces.spawn(&SpawnCommand::new(&arguments, Path::new("/")))?;
        Ok(child.wait().expect("ends"))
    }

    fn with_privileges_of_root() -> TaskNamespaces {
        TaskNamespaces::with(Some(Namespaces {
            privilege: Privilege::SysAdmin,
            shm: 1 << 20,
        }))
    }

    /// Capabilities belong to the thread.
    fn drop_admin() {
        let mut sets = capabilities(None).expect("reads");
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).expect("drops");
    }

    #[test]
    fn tasks_start_in_namespaces_of_the_container_if_others_cannot_be_created() {
        drop_admin();
        let namespaces = with_privileges_of_root();
        assert_eq!(namespaces.missing(), None);
        assert_eq!(run(&namespaces).expect("starts"), ProcessEnd::Code(0));
        let missing = namespaces.missing().expect("a reason");
        assert!(missing.contains("Operation not permitted"), "{missing}");
        assert_eq!(namespaces.checked(), None);
        assert_eq!(run(&namespaces).expect("starts"), ProcessEnd::Code(0));
    }

    #[test]
    fn a_task_is_not_started_without_namespaces_that_earlier_tasks_had() {
        let namespaces = with_privileges_of_root();
        namespaces.availability.set(Ok(())).expect("is unknown");
        drop_admin();
        let refused = run(&namespaces).expect_err("is refused");
        assert_eq!(refused.step, SpawnStep::Namespaces);
        assert_eq!(namespaces.missing(), None);
    }

    #[test]
    fn tasks_share_the_namespaces_of_the_container_if_the_node_requests_it() {
        let shared = TaskNamespaces::new(None);
        assert_eq!(run(&shared).expect("starts"), ProcessEnd::Code(0));
        assert_eq!((shared.checked(), shared.missing()), (None, None));
    }
}
