//! Reads the tables of `nodeagent.toml`: isolation, logs, health and the cache of files.

use toml::de::DeValue;

use crate::checked::NodeAgentConfig;
use crate::node_settings::{FileCacheLimits, HealthChecks, Isolation, LogRetention, user_name};
use crate::telemetry::segment;
use crate::toml_reader::{
    self, TomlSection, absolute_path, boolean, count, duration, hint, nonzero_size, parsed,
    thousandths,
};

pub(crate) fn isolation(root: &mut TomlSection<'_>) -> Isolation {
    let usual = Isolation::default();
    let whole = hint(
        "it sets the rights of programs",
        "write a table: [isolation]",
    );
    root.read_table("isolation", whole, |t| {
        let switch = hint("it is a switch", "write true or false");
        let ipc = hint(
            "programs share IPC and /dev/shm within this scope only",
            "write \"task\", \"container\" or \"host\"",
        );
        let tmpfs = hint(
            "it limits the size of a tmpfs",
            "write a size such as \"256MiB\", or leave it out",
        );
        let mask = hint(
            "these mode bits are removed from new files",
            "write them in octal, in quotes: umask = \"027\"",
        );
        let number = hint(
            "it limits the open files of one process",
            "write a whole number from 64",
        );
        let cpu = hint(
            "it sets whether programs may use idle processors",
            "write \"share\" or \"limit\"",
        );
        let users = users(t);
        Isolation {
            private_tmp: t.read_or("private_tmp", switch, usual.private_tmp, boolean),
            tmp_size: t.read_value("tmp_size", tmpfs, nonzero_size),
            ipc: t.read_or("ipc", ipc, usual.ipc, parsed),
            shm_size: t.read_value("shm_size", tmpfs, nonzero_size),
            umask: t.read_or("umask", mask, usual.umask, octal),
            open_files: t.read_or("open_files", number, usual.open_files, count(64, 1 << 30)),
            cpu: t.read_or("cpu", cpu, usual.cpu, parsed),
            ..users
        }
    })
}

/// Reads the users of programs; all other values are defaults.
fn users(t: &mut TomlSection<'_>) -> Isolation {
    let usual = Isolation::default();
    let who = hint(
        "programs run as this user",
        "write \"submitter\", \"agent\" or the name of a user",
    );
    let names = hint(
        "a submitter of that name runs as this user",
        "write users = { \"ann@example\" = \"ann\" }",
    );
    let uid = hint(
        "system accounts must not run jobs",
        "write the number of the first user, such as 1000",
    );
    let switch = hint("it is a switch", "write true or false");
    Isolation {
        run_as: t.read_or("run_as", who, usual.run_as, parsed),
        users: t.named_values("users", names, pair).into_iter().collect(),
        min_uid: t.read_or("min_uid", uid, usual.min_uid, count(0, u32::MAX - 1)),
        allow_root: t.read_or("allow_root", switch, usual.allow_root, boolean),
        ..usual
    }
}

pub(crate) fn logs(root: &mut TomlSection<'_>) -> LogRetention {
    let usual = LogRetention::default();
    let whole = hint(
        "it sets how much of the logs of programs is kept",
        "write a table: [logs]",
    );
    root.read_table("logs", whole, |t| {
        let size = hint(
            "it limits the size of logs",
            "write a size such as \"16MiB\", at least 64KiB",
        );
        let number = hint(
            "this number of the newest segments is kept",
            "write a whole number from 2",
        );
        let keep = hint(
            "logs are removed after this time",
            "write a time such as \"3d\"",
        );
        LogRetention {
            size: t.read_or("size", size, usual.size, segment),
            count: t.read_or("count", number, usual.count, count(2, 10_000)),
            container: t.read_or("container", size, usual.container, segment),
            keep: t.read_or("keep", keep, usual.keep, duration),
        }
    })
}

pub(crate) fn health(root: &mut TomlSection<'_>) -> HealthChecks {
    let usual = HealthChecks::default();
    let whole = hint(
        "it sets when the node is unhealthy",
        "write a table: [health]",
    );
    root.read_table("health", whole, |t| {
        let percent = hint(
            "a node with a fuller disk is unhealthy",
            "write percent, from 1 to 100",
        );
        let part = hint(
            "a node with more unattributed memory is unhealthy",
            "write a part from \"0.1%\" to \"100%\", such as \"25%\"",
        );
        let time = hint(
            "the check is repeated at this interval",
            "write a time such as \"10s\"",
        );
        let path = hint(
            "the agent runs this program",
            "write an absolute path in quotes, or leave it out",
        );
        HealthChecks {
            disk_full: t.read_or("disk_full", percent, usual.disk_full, count(1, 100)),
            inodes_full: t.read_or("inodes_full", percent, usual.inodes_full, count(1, 100)),
            max_unattributed: t.read_or(
                "max_unattributed",
                part,
                usual.max_unattributed,
                some_part,
            ),
            every: t.read_or("every", time, usual.every, duration),
            script: t.read_value("script", path, absolute_path),
            script_every: t.read_or("script_every", time, usual.script_every, duration),
            script_timeout: t.read_or("script_timeout", time, usual.script_timeout, duration),
        }
    })
}

pub(crate) fn cache(root: &mut TomlSection<'_>) -> FileCacheLimits {
    let usual = FileCacheLimits::default();
    let whole = hint(
        "it sets how files of jobs are fetched and kept",
        "write a table: [cache]",
    );
    root.read_table("cache", whole, |t| {
        let size = hint(
            "containers need the disk too",
            "write a size such as \"10GiB\"",
        );
        let number = hint(
            "an archive must not use all inodes of the disk",
            "write a whole number from 1",
        );
        let time = hint(
            "a container that waits for its files holds its memory",
            "write a time such as \"10m\"",
        );
        let trust = hint(
            "servers whose certificates it has signed are trusted",
            "write an absolute path in quotes, or leave it out",
        );
        FileCacheLimits {
            size: t.read_or("size", size, usual.size, toml_reader::size),
            file: t.read_or("file", size, usual.file, nonzero_size),
            unpacked: t.read_or("unpacked", size, usual.unpacked, nonzero_size),
            entries: t.read_or("entries", number, usual.entries, count(1, 10_000_000)),
            deadline: t.read_or("deadline", time, usual.deadline, duration),
            ca_file: t.read_value("ca_file", trust, absolute_path),
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
    use crate::node_settings::{IdleCpuBound, IpcScope, RunAsUser};

    #[test]
    fn every_key_of_the_tables_can_be_set() {
        let text = "[isolation]\nrun_as = 'jobs'\nusers = { 'ann@x' = 'ann' }\nmin_uid = 500\nallow_root = true\nprivate_tmp = false\n\
                    tmp_size = '64MiB'\nipc = 'container'\nshm_size = '32MiB'\n\
                    umask = '077'\nopen_files = 1024\ncpu = 'limit'\n[logs]\nsize = '1MiB'\ncount = 3\ncontainer = '8MiB'\nkeep = '1h'\n\
                    [health]\ndisk_full = 80\ninodes_full = 70\nmax_unattributed = '12.5%'\nevery = '1s'\nscript = '/bin/true'\nscript_every = '2s'\n\
                    script_timeout = '3s'\n[cache]\nsize = '1GiB'\nfile = '2MiB'\nunpacked = '3MiB'\nentries = 4\ndeadline = '5s'\n";
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
    }

    #[test]
    fn every_mistake_in_the_tables_has_its_position() {
        let text = "[isolation]\nrun_as = 'no such'\numask = '027x'\ncpu = 'all'\nuser = 1\n[logs]\nsize = '1KiB'\ncount = 1\n\
                    [health]\ndisk_full = 101\nscript = 'relative'\n[cache]\nentries = 0\n";
        let problems = nodeagent(text, "f").expect_err("nine mistakes");
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
        ];
        assert_eq!(keys, wanted, "{problems:#?}");
    }
}
