//! Reads the tables of `nodeagent.toml`: isolation, logs, health and the cache of files.

use toml::de::DeValue;

use crate::checked::NodeAgentConfig;
use crate::node_settings::{
    FileCacheLimits, HealthChecks, IpcScope, Isolation, JournalPlace, LogRetention, MasterJournals,
    file_system_type, user_name,
};
use crate::telemetry::segment;
use crate::toml_reader::{
    self, TomlSection, absolute_path, boolean, count, duration, hint, nonzero_size, parsed,
    read_keys, read_table, some, thousandths,
};

pub(crate) fn isolation(root: &mut TomlSection<'_>) -> Isolation {
    let whole = hint(
        "it sets the rights of programs",
        "write a table: [isolation]",
    );
    root.read_table("isolation", whole, |t| {
        let names = hint(
            "a submitter of that name runs as this user",
            "write users = { \"ann@example\" = \"ann\" }",
        );
        let users = t.named_values("users", names, pair).into_iter().collect();
        read_keys!(t, Isolation { users, ..Isolation::default() }, {
            run_as: parsed =>
                "programs run as this user",
                "write \"submitter\", \"agent\" or the name of a user";
            min_uid: count(0, u32::MAX - 1) =>
                "system accounts must not run jobs",
                "write the number of the first user, such as 1000";
            allow_root | private_tmp: boolean => "it is a switch", "write true or false";
            tmp_size | shm_size: some(nonzero_size) =>
                "it limits the size of a tmpfs",
                "write a size such as \"256MiB\", or leave it out";
            ipc: parsed =>
                "programs share IPC and /dev/shm within this scope only",
                "write \"task\", \"container\" or \"host\"";
            umask: octal =>
                "these mode bits are removed from new files",
                "write them in octal, in quotes: umask = \"027\"";
            open_files: count(64, 1 << 30) =>
                "it limits the open files of one process",
                "write a whole number from 64";
            cpu: parsed =>
                "it sets whether programs may use idle processors",
                "write \"share\" or \"limit\"";
        })
    })
}

pub(crate) fn logs(root: &mut TomlSection<'_>) -> LogRetention {
    read_table!(root, "logs" => LogRetention:
        "it sets how much of the logs of programs is kept",
        "write a table: [logs]";
    {
        size | container: segment =>
            "it limits the size of logs",
            "write a size such as \"16MiB\", at least 64KiB";
        count: count(2, 10_000) =>
            "this number of the newest segments is kept",
            "write a whole number from 2";
        keep: duration => "logs are removed after this time", "write a time such as \"3d\"";
    })
}

pub(crate) fn health(root: &mut TomlSection<'_>) -> HealthChecks {
    read_table!(root, "health" => HealthChecks:
        "it sets when the node is unhealthy",
        "write a table: [health]";
    {
        disk_full | inodes_full: count(1, 100) =>
            "a node with a fuller disk is unhealthy",
            "write percent, from 1 to 100";
        max_unattributed: some_part =>
            "a node with more unattributed memory is unhealthy",
            "write a part from \"0.1%\" to \"100%\", such as \"25%\"";
        every | script_every | script_timeout: duration =>
            "the check is repeated at this interval",
            "write a time such as \"10s\"";
        script: some(absolute_path) =>
            "the agent runs this program",
            "write an absolute path in quotes, or leave it out";
    })
}

pub(crate) fn cache(root: &mut TomlSection<'_>) -> FileCacheLimits {
    let whole = hint(
        "it sets how files of jobs are fetched and kept",
        "write a table: [cache]",
    );
    root.read_table("cache", whole, |t| {
        let (why, fix) = (
            "containers need the disk too",
            "write a size such as \"10GiB\"",
        );
        read_keys!(t, FileCacheLimits::default(), {
            size: toml_reader::size => why, fix;
            file | unpacked: nonzero_size => why, fix;
            entries: count(1, 10_000_000) =>
                "an archive must not use all inodes of the disk",
                "write a whole number from 1";
            deadline: duration =>
                "a container that waits for its files holds its memory",
                "write a time such as \"10m\"";
            ca_file: some(absolute_path) =>
                "servers whose certificates it has signed are trusted",
                "write an absolute path in quotes, or leave it out";
        })
    })
}

pub(crate) fn masters(root: &mut TomlSection<'_>) -> MasterJournals {
    let whole = hint(
        "it sets where masters keep their journals",
        "write a table: [masters]",
    );
    root.read_table("masters", whole, |t| {
        let place = hint(
            "a master on another node reads the journal there",
            "write the absolute path of a directory that every node can read, a URL such as \"s3://bucket/path\", \
             or \"resourcemanager\", or leave it out",
        );
        let kind = hint(
            "a directory whose file system is not mounted is refused",
            "write the type from /proc/mounts, such as \"nfs4\", and the directory in `journals`",
        );
        let journals = t.read_value("journals", place, parsed);
        let file_system = t.read_value("file_system", kind, |v| {
            file_system_type(&toml_reader::text(v)?)
        });
        let variables = hint(
            "masters and this node find the object store of `journals` by it",
            "write the absolute path of a file of variables such as AWS_REGION=eu-central-1, and an s3:// URL in `journals`",
        );
        let object_store = t.read_value("object_store", variables, absolute_path);
        let is_directory = matches!(journals, None | Some(JournalPlace::Directory(_)));
        if !is_directory && file_system.is_some() {
            t.reject(
                "file_system",
                "file_system without a directory in `journals`",
                "it is the type of a directory's file system",
                "leave it out, or name a directory in `journals`",
            );
        }
        let is_store = matches!(journals, None | Some(JournalPlace::Objects(_)));
        if !is_store && object_store.is_some() {
            t.reject(
                "object_store",
                "object_store without an s3:// URL in `journals`",
                "it has the address and the credentials of that object store",
                "leave it out, or write an s3:// URL in `journals`",
            );
        }
        MasterJournals {
            journals,
            file_system,
            object_store,
        }
    })
}

/// Rejects a tmpfs that is larger than the node's memory, because no container can be that large.
pub(crate) fn check_tmpfs_sizes(root: &TomlSection<'_>, config: &NodeAgentConfig) {
    let Some(memory) = config.memory else { return };
    for (key, size) in [
        ("shm_size", config.isolation.shm_size),
        ("tmp_size", config.isolation.tmp_size),
    ] {
        if let Some(size) = size.filter(|size| *size > memory) {
            let what = format!("{size} is more than the memory of this node, {memory}");
            let fix = format!("write at most the size in `memory`, or leave {key} out");
            root.problems().add(
                root.place("isolation"),
                &format!("isolation.{key}"),
                &what,
                "its pages are charged to the container",
                &fix,
            );
        }
    }
}

/// Rejects a state directory that programs cannot see, because they have a `/dev/shm` of their own.
pub(crate) fn check_state_place(root: &TomlSection<'_>, config: &NodeAgentConfig) {
    let is_hidden = config.isolation.ipc != IpcScope::Host && config.state.starts_with("/dev/shm");
    if is_hidden {
        root.problems().add(
            root.place("state"),
            "state",
            format!(
                "{} is below /dev/shm, of which each program has its own",
                config.state.display()
            ),
            "the working directories of programs are in it",
            "write a directory on a disk or on another tmpfs, or set isolation.ipc = \"host\"",
        );
    }
}

fn pair(submitter: &str, value: &DeValue<'_>) -> Result<(String, String), String> {
    Ok((submitter.to_owned(), user_name(&toml_reader::text(value)?)?))
}

fn octal(value: &DeValue<'_>) -> Result<u32, String> {
    let text = toml_reader::text(value)?;
    let bits =
        u32::from_str_radix(&text, 8).map_err(|_| format!("{text:?} is not a number in octal"))?;
    // Without owner rights a program could not read its own files.
    if bits > 0o777 || bits & 0o700 != 0 {
        Err(format!("{text:?} is not between 000 and 077"))
    } else {
        Ok(bits)
    }
}

/// Parses a share above zero.
fn some_part(value: &DeValue<'_>) -> Result<u32, String> {
    match thousandths(value)? {
        0 => Err("0% would make every node unhealthy".to_owned()),
        part => Ok(part),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headroom_types::Bytes;

    use crate::compile::nodeagent;
    use crate::node_settings::{IdleCpuBound, IpcScope, JournalPlace, RunAsUser};

    #[test]
    fn every_key_of_the_tables_can_be_set() {
        let text = "[isolation]\nrun_as = 'jobs'\nusers = { 'ann@x' = 'ann' }\nmin_uid = 500\nallow_root = true\nprivate_tmp = false\n\
                    tmp_size = '64MiB'\nipc = 'container'\nshm_size = '32MiB'\n\
                    umask = '077'\nopen_files = 1024\ncpu = 'limit'\n[logs]\nsize = '1MiB'\ncount = 3\ncontainer = '8MiB'\nkeep = '1h'\n\
                    [health]\ndisk_full = 80\ninodes_full = 70\nmax_unattributed = '12.5%'\nevery = '1s'\nscript = '/bin/true'\nscript_every = '2s'\n\
                    script_timeout = '3s'\n[cache]\nsize = '1GiB'\nfile = '2MiB'\nunpacked = '3MiB'\nentries = 4\ndeadline = '5s'\n\
                    [masters]\njournals = '/shared/journals'\nfile_system = 'nfs4'\n";
        let c = nodeagent(text, "f").expect("right");
        assert_eq!(
            (c.isolation.run_as, c.isolation.umask, c.isolation.cpu),
            (RunAsUser::User("jobs".into()), 0o77, IdleCpuBound::Limit)
        );
        assert_eq!(
            (c.isolation.users["ann@x"].as_str(), c.isolation.min_uid),
            ("ann", 500)
        );
        assert!(
            c.isolation.allow_root && !c.isolation.private_tmp && c.isolation.open_files == 1024
        );
        assert_eq!(
            (c.isolation.ipc, c.isolation.tmp_size),
            (IpcScope::Container, Some(Bytes::from_mib(64)))
        );
        assert_eq!(c.isolation.shm_size, Some(Bytes::from_mib(32)));
        assert_eq!(
            (c.logs.size, c.logs.count, c.logs.keep),
            (Bytes::from_mib(1), 3, Duration::from_secs(3600))
        );
        assert_eq!(
            (
                c.health.script,
                c.health.disk_full,
                c.health.max_unattributed
            ),
            (Some("/bin/true".into()), 80, 125)
        );
        assert_eq!(
            (c.cache.entries, c.cache.deadline),
            (4, Duration::from_secs(5))
        );
        assert_eq!(
            (c.masters.journals, c.masters.file_system.as_deref()),
            (
                Some(JournalPlace::Directory("/shared/journals".into())),
                Some("nfs4")
            )
        );
    }

    #[test]
    fn every_mistake_in_the_tables_has_its_position() {
        let text = "[isolation]\nrun_as = 'no such'\numask = '027x'\ncpu = 'all'\nuser = 1\n[logs]\nsize = '1KiB'\ncount = 1\n\
                    [health]\ndisk_full = 101\nscript = 'relative'\n[cache]\nentries = 0\n\
                    [masters]\njournals = 'here'\nfile_system = 'a b'\n";
        let problems = nodeagent(text, "f").expect_err("eleven mistakes");
        let mut keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        keys.sort_unstable();
        let wanted = [
            "cache.entries",
            "health.disk_full",
            "health.script",
            "isolation.cpu",
            "isolation.run_as",
            "isolation.umask",
            "isolation.user",
            "logs.count",
            "logs.size",
            "masters.file_system",
            "masters.journals",
        ];
        assert_eq!(keys, wanted, "{problems:#?}");
    }

    #[test]
    fn the_state_is_where_programs_can_see_it() {
        let below = "state = '/dev/shm/headroom'\n";
        let problems = nodeagent(below, "f").expect_err("programs do not see it");
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(keys, ["state"]);
        nodeagent(&format!("{below}[isolation]\nipc = 'host'\n"), "f").expect("seen by all");
        nodeagent("state = '/dev/shmem'\n", "f").expect("another directory");
    }

    #[test]
    fn journals_are_in_a_directory_an_object_store_or_the_resource_manager() {
        let masters = |keys: &str| nodeagent(&format!("[masters]\n{keys}"), "f");
        let config = masters("journals = 'resourcemanager'\n").expect("right");
        assert_eq!(config.masters.journals, Some(JournalPlace::ResourceManager));
        let problems = masters("journals = 'resourcemanager'\nfile_system = 'nfs4'\n")
            .expect_err("there is no file system");
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(keys, ["masters.file_system"]);
        let stored = "journals = 's3://b.1-x/prod/a'\nobject_store = '/etc/headroom/s3.env'\n";
        let config = masters(stored).expect("right").masters;
        let place = config.journals.expect("a place");
        assert_eq!(place.to_string(), "s3://b.1-x/prod/a");
        let JournalPlace::Objects(url) = place else {
            panic!("{place}");
        };
        assert_eq!((url.bucket(), url.prefix()), ("b.1-x", "prod/a"));
        assert_eq!(config.object_store, Some("/etc/headroom/s3.env".into()));
        for wrong in [
            "journals = 's3://b/x'\n",
            "journals = 's3://bucket/a//b'\n",
            "journals = 's3://bucket/../b'\n",
            "journals = 's3:bucket'\n",
            "journals = '/shared'\nobject_store = '/etc/x'\n",
            "journals = 's3://bucket'\nfile_system = 'nfs4'\n",
        ] {
            assert_eq!(masters(wrong).expect_err(wrong).len(), 1, "{wrong}");
        }
    }
}
