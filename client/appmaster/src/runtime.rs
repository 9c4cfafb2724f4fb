//! Flags and environment that set the memory budget of each runtime. Pure functions.
//!
//! Values in the job file override the values made here, and flags of the command line override
//! both: HotSpot and Node use the last of two values, and those of the command come last. A runtime
//! ignores variables that it does not know.

use std::collections::BTreeMap;

use headroom_config::{GcLogSetting, RuntimeFlags, StageSpec, TaskRuntime};
use headroom_types::{Bytes, Profile, Remedy};

use crate::policy::AttemptSize;

/// Minimum overhead for caps; below it, they would prevent the start of a JVM.
const MIN_OVERHEAD_FOR_CAPS: Bytes = Bytes::from_mib(96);
/// Shares of the overhead, per cent. The rest is for stacks, the collector's own memory and native
/// libraries.
const METASPACE: u64 = 30;
const DIRECT: u64 = 25;
const CODE: u64 = 15;
/// Minimum that HotSpot accepts.
const LEAST_CODE: Bytes = Bytes::from_mib(8);
/// Share of a Go program's memory that is set as its collector's limit. Per cent.
const GO: u64 = 90;

/// Adds the memory budget of the stage's runtime to the environment of a task of this size.
pub(crate) fn set_memory_budget(
    stage: &StageSpec,
    size: &AttemptSize,
    env: &mut BTreeMap<String, String>,
) {
    let profile = &size.profile;
    if stage.flags == RuntimeFlags::None {
        return;
    }
    let arenas = size.slots.saturating_mul(2).max(2).to_string();
    match stage.runtime {
        TaskRuntime::Native => set_if_absent(env, "MALLOC_ARENA_MAX", arenas),
        TaskRuntime::Jvm => {
            before(env, "JDK_JAVA_OPTIONS", &jvm(stage, profile).join(" "));
            set_if_absent(env, "MALLOC_ARENA_MAX", arenas);
        }
        TaskRuntime::Node => before(
            env,
            "NODE_OPTIONS",
            &format!("--max-old-space-size={}", profile.heap.whole_mib().max(1)),
        ),
        TaskRuntime::Python => set_if_absent(env, "MALLOC_ARENA_MAX", "2".to_owned()),
        TaskRuntime::Go => {
            set_if_absent(
                env,
                "GOMEMLIMIT",
                format!("{}KiB", profile.memory().mul_ratio(GO, 100).get() >> 10),
            );
            set_if_absent(env, "GOMAXPROCS", size.slots.max(1).to_string());
        }
    }
}

/// The flags of a JVM.
fn jvm(stage: &StageSpec, profile: &Profile) -> Vec<String> {
    let mut flags = vec![
        format!("-Xmx{}k", profile.heap.get() >> 10),
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
    ];
    if stage.flags == RuntimeFlags::Caps && profile.overhead >= MIN_OVERHEAD_FOR_CAPS {
        let share = |percent| profile.overhead.mul_ratio(percent, 100);
        let kib = |bytes: Bytes| bytes.get() >> 10;
        flags.push(format!("-XX:MaxMetaspaceSize={}k", kib(share(METASPACE))));
        flags.push(format!("-XX:MaxDirectMemorySize={}k", kib(share(DIRECT))));
        flags.push(format!(
            "-XX:ReservedCodeCacheSize={}k",
            kib(share(CODE).max(LEAST_CODE))
        ));
        flags.push("-Xss512k".to_owned());
    }
    if stage.gc_log == GcLogSetting::On {
        flags.push("-Xlog:gc*".to_owned());
    }
    flags
}

/// Variables that set the number of threads of libraries.
const THREADS: [&str; 6] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "GOMAXPROCS",
    "UV_THREADPOOL_SIZE",
];

/// Changes the environment by the remedies for earlier failures. A remedy overrides the job file,
/// because otherwise the attempt would fail in the same way; `[treatments]` of the job file can
/// select another treatment.
pub(crate) fn remedy(
    runtime: TaskRuntime,
    size: &AttemptSize,
    remedies: &[Remedy],
    env: &mut BTreeMap<String, String>,
) {
    if remedies.is_empty() {
        return;
    }
    for remedy in remedies {
        match remedy {
            Remedy::OneArena => {
                env.insert("MALLOC_ARENA_MAX".to_owned(), "1".to_owned());
            }
            Remedy::FewerThreads => {
                let threads = size.profile.cpus.milli().div_ceil(1000).max(1);
                env.extend(THREADS.map(|name| (name.to_owned(), threads.to_string())));
                if runtime == TaskRuntime::Jvm {
                    append_java_options(
                        env,
                        &format!("-XX:ActiveProcessorCount={threads} -Xss256k"),
                    );
                }
            }
            Remedy::SmallCodeCache => {
                let code = size.profile.overhead.mul_ratio(CODE, 100).max(LEAST_CODE);
                append_java_options(
                    env,
                    &format!("-XX:ReservedCodeCacheSize={}k", code.get() >> 10),
                );
            }
            // The executor sets the directory.
            Remedy::TmpOnDisk | Remedy::Unknown => {}
        }
    }
    let names: Vec<&str> = remedies.iter().map(|remedy| remedy.as_str()).collect();
    env.insert("HEADROOM_REMEDIES".to_owned(), names.join(","));
}

/// Adds JVM flags that override those of the command.
fn append_java_options(env: &mut BTreeMap<String, String>, flags: &str) {
    let said = env
        .remove("_JAVA_OPTIONS")
        .map(|said| format!("{said} "))
        .unwrap_or_default();
    env.insert("_JAVA_OPTIONS".to_owned(), format!("{said}{flags}"));
}

fn set_if_absent(env: &mut BTreeMap<String, String>, name: &str, value: String) {
    env.entry(name.to_owned()).or_insert(value);
}

/// Existing flags come after the new ones and therefore override them.
fn before(env: &mut BTreeMap<String, String>, name: &str, flags: &str) {
    let said = env
        .remove(name)
        .map(|said| format!(" {said}"))
        .unwrap_or_default();
    env.insert(name.to_owned(), format!("{flags}{said}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::AttemptPlace;
    use headroom_config::job::compile;

    fn environment_of(keys: &str, overhead: u64, slots: u32) -> BTreeMap<String, String> {
        let text = format!(
            "version = 1\nname = \"j\"\n[profiles.exec]\nheap = \"1GiB\"\noverhead = \"256MiB\"\ncpus = 4\n\
             [profiles.p]\nheap = \"256MiB\"\noverhead = \"{overhead}MiB\"\ncpus = 1\n\
             [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 4\n\
             [[stage]]\nname = \"s\"\nprofile = \"p\"\ncommand = [\"x\"]\n{keys}\n"
        );
        let job = compile(&text, "job.toml").unwrap_or_else(|p| panic!("{p:?}"));
        let stage = &job.stages[0];
        let mut env: BTreeMap<String, String> = stage
            .env
            .iter()
            .map(|(k, v)| (k.clone(), v.fill(|_| String::new())))
            .collect();
        let size = AttemptSize {
            profile: stage.profile.clone(),
            slots,
            rung: 1,
            place: AttemptPlace::Shared,
        };
        set_memory_budget(stage, &size, &mut env);
        env
    }

    fn pairs(env: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
        env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }

    #[test]
    fn each_runtime_gets_its_budget_in_its_own_variables() {
        let of = |runtime: &str| environment_of(&format!("runtime = {runtime:?}"), 64, 2);
        assert_eq!(
            pairs(&of("jvm")),
            [
                (
                    "JDK_JAVA_OPTIONS",
                    "-Xmx262144k -XX:+ExitOnOutOfMemoryError"
                ),
                ("MALLOC_ARENA_MAX", "4")
            ]
        );
        assert_eq!(
            pairs(&of("node")),
            [("NODE_OPTIONS", "--max-old-space-size=256")]
        );
        assert_eq!(pairs(&of("python")), [("MALLOC_ARENA_MAX", "2")]);
        assert_eq!(
            pairs(&of("go")),
            [("GOMAXPROCS", "2"), ("GOMEMLIMIT", "294912KiB")]
        );
        assert_eq!(pairs(&of("native")), [("MALLOC_ARENA_MAX", "4")]);
    }

    #[test]
    fn caps_divide_an_overhead_that_is_large_enough() {
        let caps = |overhead| {
            environment_of(
                "runtime = \"jvm\"\nruntime_flags = \"caps\"\ngc_log = \"yes\"",
                overhead,
                1,
            )
        };
        let flags = &caps(200)["JDK_JAVA_OPTIONS"];
        for wanted in [
            "MaxMetaspaceSize=61440k",
            "MaxDirectMemorySize=51200k",
            "ReservedCodeCacheSize=30720k",
            "-Xss512k",
            "-Xlog:gc*",
        ] {
            assert!(flags.contains(wanted), "{wanted}: {flags}");
        }
        assert!(!caps(95)["JDK_JAVA_OPTIONS"].contains("Metaspace"));
    }

    #[test]
    fn a_remedy_overrides_the_job_file() {
        let cpus = headroom_types::Cpus::from_milli(1500);
        let profile = Profile {
            heap: Bytes::from_mib(64),
            overhead: Bytes::from_mib(200),
            cpus,
        };
        let size = AttemptSize {
            profile,
            slots: 1,
            rung: 1,
            place: AttemptPlace::Shared,
        };
        let environment_of = |remedies: &[Remedy], runtime| {
            let mut env = BTreeMap::from([("MALLOC_ARENA_MAX".to_owned(), "64".to_owned())]);
            remedy(runtime, &size, remedies, &mut env);
            env
        };
        assert_eq!(
            pairs(&environment_of(&[], TaskRuntime::Native)),
            [("MALLOC_ARENA_MAX", "64")]
        );
        let arena = environment_of(&[Remedy::OneArena, Remedy::TmpOnDisk], TaskRuntime::Native);
        assert_eq!(
            pairs(&arena),
            [
                ("HEADROOM_REMEDIES", "one_arena,tmp_on_disk"),
                ("MALLOC_ARENA_MAX", "1")
            ]
        );
        let jvm = environment_of(
            &[Remedy::FewerThreads, Remedy::SmallCodeCache],
            TaskRuntime::Jvm,
        );
        assert_eq!(jvm["OMP_NUM_THREADS"], "2");
        assert_eq!(
            jvm["_JAVA_OPTIONS"],
            "-XX:ActiveProcessorCount=2 -Xss256k -XX:ReservedCodeCacheSize=30720k"
        );
    }

    #[test]
    fn values_of_the_job_file_take_precedence() {
        let env = environment_of(
            "runtime = \"jvm\"\nenv = { JDK_JAVA_OPTIONS = \"-Xmx1g\", MALLOC_ARENA_MAX = \"1\" }",
            64,
            1,
        );
        assert_eq!(
            pairs(&env),
            [
                (
                    "JDK_JAVA_OPTIONS",
                    "-Xmx262144k -XX:+ExitOnOutOfMemoryError -Xmx1g"
                ),
                ("MALLOC_ARENA_MAX", "1")
            ]
        );
        assert!(environment_of("runtime = \"jvm\"\nruntime_flags = \"none\"", 64, 1).is_empty());
    }
}
