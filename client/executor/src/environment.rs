//! The executor's environment variables, checked: pure.
//!
//! The node agent sets the variables of the container; the master sets its address, the secret and
//! the slots.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use headroom_transport::MasterAddress;
use headroom_types::{AppId, Bytes, ContainerId, EnforcerKind};

/// Maximum number of slots of an executor.
pub const MAX_SLOTS: u32 = 1024;

/// Variables of the executor that tasks do not inherit: the secret, and values that do not apply to
/// a task.
const EXECUTOR_VARIABLES: [&str; 15] = [
    "HEADROOM_TASK_SHM_BYTES",
    "HEADROOM_TOKEN_FILE",
    "HEADROOM_CA_FILE",
    "HEADROOM_LISTEN",
    "HEADROOM_ADVERTISE",
    "HEADROOM_APP_TOKEN",
    "HEADROOM_MASTER_URL",
    "HEADROOM_SLOTS",
    "HEADROOM_CGROUP",
    "HEADROOM_OOM_MARKER",
    "HEADROOM_CACHED_BYTES",
    "HEADROOM_INPUT_FILE",
    "HEADROOM_VALUE_FILE",
    "HEADROOM_LOG",
    "HEADROOM_HEAP_BYTES",
];

/// The checked environment.
#[derive(Clone)]
pub struct ExecutorSettings {
    /// Address of the master; `None` for an executor that starts along with the first master.
    pub master: Option<MasterAddress>,
    /// Secret for the first line of a connection.
    pub token: String,
    /// Number of slots.
    pub slots: u32,
    /// Application of the tasks.
    pub app: AppId,
    /// Container of the executor.
    pub container: ContainerId,
    /// URL of the resource manager, which knows the address of a restarted master.
    pub rm: Option<String>,
    /// Certificate authority that signs the certificate of the resource manager.
    pub ca: Option<PathBuf>,
    /// Token file for calls to the resource manager.
    pub token_file: Option<PathBuf>,
    /// Directory of the container; logs of tasks are in `tasks/`.
    pub dir: PathBuf,
    /// The mechanism that enforces the limits.
    pub enforcer: EnforcerKind,
    /// Memory cgroup of the container; `None` for the fallback enforcer.
    pub cgroup: Option<PathBuf>,
    /// Limit of the container, if known. Bytes.
    pub memory: Option<Bytes>,
    /// Size limit of each task's own `/dev/shm`, in an IPC namespace of its own; `None` if tasks
    /// share that of the container. Bytes.
    pub task_shm: Option<u64>,
    /// Variables for every task.
    pub for_tasks: Vec<(OsString, OsString)>,
}

// Omits the secret.
headroom_types::debug_fields!(ExecutorSettings {
    master,
    container,
    slots,
    enforcer
});

/// The error of a missing or invalid variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {what}")]
pub struct EnvironmentError {
    /// The variable.
    pub variable: &'static str,
    /// The error and the correction.
    pub what: String,
}

fn wrong(variable: &'static str, what: impl Into<String>) -> EnvironmentError {
    EnvironmentError {
        variable,
        what: what.into(),
    }
}

impl ExecutorSettings {
    /// Parses `vars`; reports all errors at once.
    pub fn read(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<ExecutorSettings, Vec<EnvironmentError>> {
        let vars: Vec<(OsString, OsString)> = vars.into_iter().collect();
        let mut problems = Vec::new();
        let found = Self::checked(&vars, &mut problems);
        match found {
            Some(environment) if problems.is_empty() => Ok(environment),
            Some(_) | None => Err(problems),
        }
    }

    fn checked(
        vars: &[(OsString, OsString)],
        problems: &mut Vec<EnvironmentError>,
    ) -> Option<ExecutorSettings> {
        let mut vars_of = EnvironmentReader { vars, problems };
        // Without the address of the master, that of the resource manager must be there.
        let addresses = ["HEADROOM_MASTER_URL", "HEADROOM_RM"].map(|name| get(vars, name));
        let master = match addresses {
            [None, Some(_)] => Some(None),
            [Some(_), _] | [None, None] => vars_of
                .parsed(
                    "HEADROOM_MASTER_URL",
                    "an address such as tcp://127.0.0.1:4711",
                    |t| t.parse().ok(),
                )
                .map(Some),
        };
        let token = vars_of.parsed("HEADROOM_APP_TOKEN", "the secret of the application", |t| {
            Some(t.to_owned())
        });
        let slots = vars_of.parsed("HEADROOM_SLOTS", "a number from 1 to 1024", |t| {
            t.parse().ok().filter(|n| (1..=MAX_SLOTS).contains(n))
        });
        let app = vars_of.parsed(
            "HEADROOM_APP",
            "an application id such as word-count.7",
            |t| t.parse().ok(),
        );
        let container = vars_of.parsed(
            "HEADROOM_CONTAINER",
            "a container id such as word-count.7.e3.c12",
            |t| t.parse().ok(),
        );
        let dir = vars_of.parsed(
            "HEADROOM_CONTAINER_DIR",
            "the absolute path of a directory",
            absolute,
        );
        let enforcer = vars_of.parsed("HEADROOM_ENFORCER", "cgroup2, cgroup1 or poll", |text| {
            text.parse().ok()
        });
        let cgroup = match enforcer {
            Some(EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2) => vars_of
                .parsed(
                    "HEADROOM_CGROUP",
                    "the absolute path of the container's cgroup",
                    absolute,
                )
                .map(Some),
            Some(EnforcerKind::Poll) | None => Some(None),
        };
        let rm = get(vars, "HEADROOM_RM")
            .and_then(OsStr::to_str)
            .map(str::to_owned);
        let path = |name| get(vars, name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let (ca, token_file) = (path("HEADROOM_CA_FILE"), path("HEADROOM_TOKEN_FILE"));
        let task_shm = get(vars, "HEADROOM_TASK_SHM_BYTES")
            .and_then(OsStr::to_str)
            .and_then(|t| t.parse().ok());
        let memory = get(vars, "HEADROOM_MEMORY_BYTES")
            .and_then(OsStr::to_str)
            .and_then(|t| t.parse().ok())
            .map(Bytes::new);
        let own = |key: &OsStr| EXECUTOR_VARIABLES.iter().any(|own| key == *own);
        let for_tasks = vars.iter().filter(|(key, _)| !own(key)).cloned().collect();
        Some(ExecutorSettings {
            master: master?,
            token: token?,
            slots: slots?,
            app: app?,
            container: container?,
            rm,
            ca,
            token_file,
            dir: dir?,
            enforcer: enforcer?,
            cgroup: cgroup?,
            memory,
            task_shm,
            for_tasks,
        })
    }
}

fn absolute(text: &str) -> Option<PathBuf> {
    text.starts_with('/').then(|| PathBuf::from(text))
}

fn get<'a>(vars: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    vars.iter()
        .rev()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_os_str())
}

/// Variables, with the errors found in them.
struct EnvironmentReader<'a> {
    vars: &'a [(OsString, OsString)],
    problems: &'a mut Vec<EnvironmentError>,
}

impl EnvironmentReader<'_> {
    fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let problem = match get(self.vars, name) {
            None => format!("not set; expected {expected}"),
            Some(value) => match value.to_str().and_then(parse) {
                Some(found) => return Some(found),
                None if name == "HEADROOM_APP_TOKEN" => "not UTF-8 text".to_owned(),
                None => format!("{:?} is not {expected}", value.to_string_lossy()),
            },
        };
        self.problems.push(wrong(name, problem));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(change: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let base = [
            ("HEADROOM_MASTER_URL", "tcp://127.0.0.1:4711"),
            ("HEADROOM_APP_TOKEN", "secret"),
            ("HEADROOM_SLOTS", "4"),
            ("HEADROOM_APP", "job.1"),
            ("HEADROOM_CONTAINER", "job.1.e1.c2"),
            ("HEADROOM_CONTAINER_DIR", "/var/c"),
            ("HEADROOM_ENFORCER", "cgroup2"),
            ("HEADROOM_CGROUP", "/sys/fs/cgroup/x"),
            ("PATH", "/bin"),
        ];
        base.iter()
            .chain(change)
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn tasks_get_neither_the_secret_nor_variables_of_the_executor() {
        let environment = ExecutorSettings::read(vars(&[])).expect("good");
        assert_eq!(
            (environment.master.clone(), environment.slots),
            ("tcp://127.0.0.1:4711".parse().ok(), 4)
        );
        let keys: Vec<_> = environment
            .for_tasks
            .iter()
            .map(|(k, _)| k.to_string_lossy().into_owned())
            .collect();
        assert!(keys.contains(&"PATH".to_owned()) && keys.contains(&"HEADROOM_APP".to_owned()));
        assert!(
            keys.iter()
                .all(|k| !EXECUTOR_VARIABLES.contains(&k.as_str())),
            "{keys:?}"
        );
        assert!(!format!("{environment:?}").contains("secret"));
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let wrong = vars(&[
            ("HEADROOM_SLOTS", "0"),
            ("HEADROOM_MASTER_URL", "http://x"),
            ("HEADROOM_ENFORCER", "hope"),
        ]);
        let problems = ExecutorSettings::read(wrong).expect_err("wrong");
        let named: Vec<_> = problems.iter().map(|p| p.variable).collect();
        assert_eq!(
            named,
            ["HEADROOM_MASTER_URL", "HEADROOM_SLOTS", "HEADROOM_ENFORCER"]
        );
    }

    #[test]
    fn a_master_without_an_address_requires_a_resource_manager() {
        let mut known = vars(&[]);
        known.retain(|(key, _)| key != "HEADROOM_MASTER_URL");
        let problems = ExecutorSettings::read(known.clone()).expect_err("no way to a master");
        assert_eq!(problems[0].variable, "HEADROOM_MASTER_URL");
        known.push(("HEADROOM_RM".into(), "http://127.0.0.1:7070".into()));
        let environment = ExecutorSettings::read(known).expect("good");
        assert_eq!(environment.master, None);
    }

    #[test]
    fn only_the_poll_enforcer_needs_no_cgroup() {
        let without = |kind: &str| vars(&[("HEADROOM_ENFORCER", kind), ("HEADROOM_CGROUP", "")]);
        assert!(ExecutorSettings::read(without("cgroup1")).is_err());
        assert_eq!(
            ExecutorSettings::read(without("poll"))
                .expect("good")
                .cgroup,
            None
        );
    }
}
