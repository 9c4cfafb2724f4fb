//! The user of a container: who it is, and the files and groups that it owns.
//!
//! Only the files that belong to the user are handed over. The directory around them, with the
//! shim's records, stays the agent's.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use headroom_config::{Isolation, RunAsUser};
use headroom_node_cgroup::EnforcedGroup;
use headroom_node_core::LaunchFailureKind;
use headroom_node_exec::ProcessUser;

use crate::disk::file;
use crate::launch_failure::LaunchError;

/// The user of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerUser {
    /// `None` means the agent's own user.
    pub(crate) user: Option<ProcessUser>,
    /// User name, for the environment.
    pub(crate) name: Option<String>,
}

/// The user, if the agent is root.
pub(crate) fn choose(
    policy: &Isolation,
    submitter: Option<&str>,
    look_up: impl Fn(&str) -> io::Result<Option<ProcessUser>>,
) -> anyhow::Result<ContainerUser> {
    let (name, named) = match (&policy.run_as, submitter) {
        (RunAsUser::Agent, _) => ("root", false),
        (RunAsUser::User(name), _) => (name.as_str(), true),
        (RunAsUser::Submitter, Some(who)) => match policy.users.get(who) {
            Some(name) => (name.as_str(), true),
            None => (who, false),
        },
        (RunAsUser::Submitter, None) => {
            bail!(LaunchError::new(
                LaunchFailureKind::SubmitterMissing,
                "the launch has no submitter, and this node runs programs as their submitter",
            ))
        }
    };
    let found = look_up(name).with_context(|| format!("the user {name:?} cannot be looked up"))?;
    let Some(user) = found else {
        bail!(LaunchError::new(
            LaunchFailureKind::UserUnknown,
            format!("the user {name:?} is not known on this node"),
        ))
    };
    if user.uid == 0 && !policy.allow_root {
        bail!(LaunchError::new(
            LaunchFailureKind::RootNotAllowed,
            "root may not run programs on this node",
        ));
    }
    if user.uid != 0 && user.uid < policy.min_uid && !named {
        bail!(LaunchError::new(
            LaunchFailureKind::UidTooLow,
            format!(
                "the uid of {name:?}, {}, is below the min_uid of this node, {}",
                user.uid, policy.min_uid
            ),
        ));
    }
    let user = if policy.run_as == RunAsUser::Agent {
        None
    } else {
        Some(user)
    };
    Ok(ContainerUser {
        user,
        name: Some(name.to_owned()),
    })
}

/// Creates a secret file that only its user can read and remove.
pub(crate) fn give_secret(identity: &ContainerUser, path: &Path, text: &str) -> anyhow::Result<()> {
    let file = write_new(path, 0o600, text.as_bytes())?;
    if let Some(user) = &identity.user {
        std::os::unix::fs::fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// Creates a file. An existing file or link at this path is an error.
pub(crate) fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<fs::File> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Gives the container's user its own files: the working directory with its contents, its task
/// logs, its `/tmp`, and the directory of its application. `reader` is the group of an auxiliary
/// service that may read the last.
pub(crate) fn hand_over(
    identity: &ContainerUser,
    dir: &Path,
    app: &Path,
    reader: Option<u32>,
) -> anyhow::Result<()> {
    let Some(user) = &identity.user else {
        let own = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        return give_app_dir(own, app, reader);
    };
    let give = |path: &Path| {
        chown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give {} to its user", path.display()))
    };
    let work = dir.join(file::WORK);
    for own in [&work, &dir.join(file::TASKS), &dir.join(file::TMP)] {
        give(own)?;
    }
    // Fetched files are shared with other containers and stay the agent's. Files that were written
    // for this container belong to its user.
    for entry in fs::read_dir(&work).with_context(|| format!("cannot list {}", work.display()))? {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_file() && facts.nlink() == 1 {
            give(&entry.path())?;
        }
    }
    give_app_dir((user.uid, user.gid), app, reader)
}

/// Gives the directory of an application to its user, and closes it for others. With a reader, that
/// group may read it, and new files and directories in it get the group (setgid).
fn give_app_dir((user, group): (u32, u32), app: &Path, reader: Option<u32>) -> anyhow::Result<()> {
    let about = || format!("cannot give {} to its user", app.display());
    let facts = fs::metadata(app).with_context(about)?;
    let (gid, mode) = match reader {
        Some(gid) if gid != group => (gid, 0o2750),
        // An earlier launch of the application has given it, perhaps with a reader.
        Some(_) | None if facts.uid() == user && facts.mode() & 0o007 == 0 => return Ok(()),
        Some(_) | None => (group, 0o700),
    };
    chown(app, Some(user), Some(gid)).with_context(about)?;
    fs::set_permissions(app, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot close {}", app.display()))
}

/// Lets the container's user create groups for tasks below its own group. The limits of the
/// container itself stay the agent's.
pub(crate) fn delegate(identity: &ContainerUser, group: &EnforcedGroup) -> anyhow::Result<()> {
    let Some(user) = &identity.user else {
        return Ok(());
    };
    let mut dirs: Vec<PathBuf> = group.path().map(Path::to_owned).into_iter().collect();
    dirs.extend(
        group
            .procs_files()
            .iter()
            .filter_map(|f| f.parent())
            .map(Path::to_owned),
    );
    // `procs_files` are those of `main` on v2 and of every hierarchy on v1: the container's own
    // directory is above or among them.
    for dir in dirs {
        for path in [dir.clone()].into_iter().chain(
            [
                "cgroup.procs",
                "cgroup.threads",
                "cgroup.subtree_control",
                "tasks",
            ]
            .map(|f| dir.join(f)),
        ) {
            match chown(&path, Some(user.uid), Some(user.gid)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => {
                    let text = || format!("cannot give {} to its user", path.display());
                    done.with_context(|| LaunchError::new(LaunchFailureKind::Cgroup, text()))?
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headroom_node_core::LaunchFailure;

    use super::*;
    use crate::launch_failure;

    fn known(name: &str) -> io::Result<Option<ProcessUser>> {
        let uid = match name {
            "root" => 0,
            "daemon" => 1,
            "ann" => 1001,
            _ => return Ok(None),
        };
        Ok(Some(ProcessUser {
            uid,
            gid: uid,
            groups: vec![uid],
        }))
    }

    fn decide(policy: &Isolation, submitter: Option<&str>) -> Result<Option<u32>, LaunchFailure> {
        choose(policy, submitter, known)
            .map(|i| i.user.map(|u| u.uid))
            .map_err(|e| launch_failure::from_error(&e))
    }

    #[test]
    fn by_default_a_program_runs_as_its_submitter_and_never_as_root() {
        let usual = Isolation::default();
        assert_eq!(decide(&usual, Some("ann")), Ok(Some(1001)));
        for (who, word, kind) in [
            (Some("root"), "root", LaunchFailureKind::RootNotAllowed),
            (Some("daemon"), "min_uid", LaunchFailureKind::UidTooLow),
            (Some("eve"), "known", LaunchFailureKind::UserUnknown),
            (None, "no submitter", LaunchFailureKind::SubmitterMissing),
        ] {
            let failure = decide(&usual, who).expect_err("refused");
            assert!(failure.why.contains(word), "{who:?}: {failure:?}");
            assert_eq!(failure.kind, kind, "{who:?}");
        }
    }

    /// A launch without a service does not take the directory from the group of one.
    #[test]
    fn the_group_of_a_service_keeps_access_to_the_directory_of_an_application() {
        let dir = tempfile::tempdir().expect("dir");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("opens");
        let own = rustix::process::getgid().as_raw();
        let user = rustix::process::getuid().as_raw();
        let after = |reader| {
            give_app_dir((user, own), dir.path(), reader).expect("gives");
            let facts = fs::metadata(dir.path()).expect("facts");
            (facts.gid(), facts.mode() & 0o7777)
        };
        assert_eq!(after(None), (own, 0o700));
        assert_eq!(
            after(Some(own)),
            (own, 0o700),
            "the same user needs no more"
        );
        // Only root can give a file to a group of others.
        if user == 0 {
            assert_eq!(after(Some(1)), (1, 0o2750));
            assert_eq!(after(None), (1, 0o2750));
        }
    }

    #[test]
    fn an_agent_that_keeps_its_user_closes_the_directory_of_an_application() {
        let dir = tempfile::tempdir().expect("dir");
        let app = dir.path().join("app");
        fs::create_dir(&app).expect("makes");
        fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).expect("opens");
        let identity = ContainerUser {
            user: None,
            name: None,
        };
        hand_over(&identity, dir.path(), &app, None).expect("closes");
        assert_eq!(fs::metadata(&app).expect("facts").mode() & 0o7777, 0o700);
    }

    /// A link could lead to any file, and the agent is root.
    #[test]
    fn a_new_file_does_not_follow_a_link() {
        let dir = tempfile::tempdir().expect("dir");
        let (other, link) = (dir.path().join("other"), dir.path().join("ca.pem"));
        std::os::unix::fs::symlink(&other, &link).expect("links");
        let refused = write_new(&link, 0o644, b"text").expect_err("a link is there");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(!other.exists());
        let path = dir.path().join("new");
        write_new(&path, 0o600, b"text").expect("writes");
        let mode = fs::metadata(&path).expect("facts").mode();
        assert_eq!(
            (fs::read(&path).expect("reads"), mode & 0o777),
            (b"text".to_vec(), 0o600)
        );
    }

    #[test]
    fn users_of_the_configuration_are_applied() {
        let users = [
            ("eve".to_owned(), "daemon".to_owned()),
            ("op".to_owned(), "root".to_owned()),
        ]
        .into();
        let mut policy = Isolation {
            users,
            ..Isolation::default()
        };
        assert_eq!(decide(&policy, Some("eve")), Ok(Some(1)));
        assert_eq!(
            decide(&policy, Some("op")).expect_err("refused").kind,
            LaunchFailureKind::RootNotAllowed,
            "an entry of the map does not allow root"
        );
        policy.allow_root = true;
        assert_eq!(decide(&policy, Some("op")), Ok(Some(0)));
        policy.run_as = RunAsUser::User("daemon".into());
        assert_eq!(decide(&policy, Some("ann")), Ok(Some(1)));
        policy.run_as = RunAsUser::Agent;
        assert_eq!(decide(&policy, None), Ok(None));
        policy.allow_root = false;
        assert!(
            decide(&policy, None).is_err(),
            "an agent that is root requires allow_root"
        );
    }
}
