//! The programs that cases start, and their scratch directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, LaunchSpec};
use headroom_wire::v1::task::TaskStart;

use super::case::{Program, Runtime};
use crate::programs;

/// A Java program with several ways to run out of memory.
const SOURCE: &str = include_str!("Deaths.java");
/// A Go program with several ways to run out of memory.
const GO_SOURCE: &str = include_str!("../../provoke/provoke.go");
/// Name of the compiled Go program, beside the classes.
const GO: &str = "deaths-go";
/// Environment variable that passes the directory of the compiled classes to a guest.
pub(super) const CLASSES: &str = "HEADROOM_MATRIX_CLASSES";
/// Placeholder for the scratch directory in arguments, and the name of its variable.
const SCRATCH: &str = "SCRATCH";

/// Drops the cached code of the JVM in `$0`, as far as no other process maps it, and then executes
/// the JVM.
const COLD: &str = r#"for f in lib/server/libjvm.so lib/modules lib/server/classes.jsa; do
dd if="$0/$f" iflag=nocache count=0 status=none; done; exec "$0/bin/java" "$@""#;

/// Copies the files of the JVM in `$0` to `$1` and flushes them to disk: only clean pages can be
/// dropped.
const COPY: &str = r#"set -e; mkdir "$1.new"; cp -rL "$0/bin" "$0/lib" "$0/conf" "$1.new"; rm -f "$1.new/lib/src.zip"
sync "$1.new/lib/server/libjvm.so" "$1.new/lib/modules" "$1.new/lib/server/classes.jsa"; mv "$1.new" "$1""#;

/// The tools on this machine.
#[derive(Debug)]
pub(super) struct Tools {
    workload: PathBuf,
    /// A directory on a disk: written data is page cache, unlike on a tmpfs.
    scratch: PathBuf,
    classes: Option<PathBuf>,
    java: Option<PathBuf>,
    go: Option<PathBuf>,
    node: Option<PathBuf>,
    python: Option<PathBuf>,
}

impl Tools {
    /// Finds all tools. `scratch` is a directory on a disk.
    pub(super) fn find(scratch: &Path) -> Result<Tools> {
        let java = on_path("java");
        let compiled = std::env::var_os(CLASSES).map(PathBuf::from);
        let go = match &compiled {
            Some(dir) => Some(dir.join(GO)).filter(|program| program.is_file()),
            None => compiled_go(scratch)?,
        };
        let classes = match (&java, compiled) {
            (None, _) => None,
            (Some(_), Some(dir)) => Some(dir),
            (Some(_), None) => compile(scratch)?,
        };
        Ok(Tools {
            workload: programs::path("workload")?,
            scratch: scratch.to_owned(),
            classes,
            java,
            go,
            node: on_path("node"),
            python: Some(PathBuf::from("/usr/bin/python3"))
                .filter(|p| p.is_file())
                .or_else(|| on_path("python3")),
        })
    }

    /// The directory of the compiled classes.
    pub(super) fn classes(&self) -> Option<&Path> {
        self.classes.as_deref()
    }

    /// The launch of a program, or the missing tool.
    pub(super) fn launch(&self, program: &Program) -> Result<LaunchSpec, String> {
        let mut launch = LaunchSpec::default();
        launch
            .env
            .insert(SCRATCH.into(), self.scratch.display().to_string());
        launch.command = match program {
            Program::Steps(steps) => self.steps(steps),
            Program::Few(most, steps) => {
                launch.max_processes = Some(*most);
                self.steps(steps)
            }
            Program::Executor(steps) => {
                launch.task_groups = true;
                self.steps(steps)
            }
            Program::Tasks(..) => {
                launch.task_groups = true;
                vec!["executor".to_owned()]
            }
            Program::Runtime(runtime, heap, codes) => {
                launch.heap = Some(Bytes::from_mib(*heap)).filter(|heap| !heap.is_zero());
                launch.heap_exit_codes = codes.to_vec();
                self.runtime(runtime)?
            }
        };
        Ok(launch)
    }

    /// One task of an executor.
    pub(super) fn task(&self, n: u32, limit: Bytes, steps: &[&str]) -> Result<TaskStart, String> {
        Ok(TaskStart {
            attempt: format!("case/{n}@1")
                .parse()
                .map_err(|e| format!("a task's name: {e}"))?,
            command: self.steps(steps),
            env: BTreeMap::new(),
            cwd: None,
            slots: 1,
            limit: Some(limit),
            heap: None,
            heap_exit_codes: Vec::new(),
            timeout_ms: None,
            freeze_timeout_ms: None,
            output: None,
            input: None,
            fork_server: Vec::new(),
        })
    }

    fn steps(&self, steps: &[&str]) -> Vec<String> {
        let scratch = self.scratch.display().to_string();
        let words = steps.iter().map(|step| step.replace(SCRATCH, &scratch));
        [self.workload.display().to_string(), "act".into()]
            .into_iter()
            .chain(words)
            .collect()
    }

    fn runtime(&self, runtime: &Runtime) -> Result<Vec<String>, String> {
        let words = |program: &Path, rest: &[&[&str]]| {
            let rest = rest
                .iter()
                .flat_map(|words| words.iter().map(|w| (*w).to_owned()));
            std::iter::once(program.display().to_string())
                .chain(rest)
                .collect()
        };
        let there = |found: &Option<PathBuf>, name| {
            found
                .clone()
                .ok_or_else(|| format!("there is no {name} on this machine"))
        };
        Ok(match runtime {
            Runtime::Java(flags, mode) => {
                let classes = self
                    .classes
                    .as_ref()
                    .ok_or("there is no javac on this machine")?
                    .display()
                    .to_string();
                words(
                    &there(&self.java, "java")?,
                    &[flags, &["-cp", &classes, "Deaths", mode]],
                )
            }
            Runtime::ColdJava(flags, mode) => {
                let classes = self
                    .classes
                    .as_ref()
                    .ok_or("there is no javac on this machine")?
                    .display()
                    .to_string();
                let home = newest_jvm(&there(&self.java, "java")?)
                    .display()
                    .to_string();
                let own = ["-c", COLD, &home, "-cp", &classes];
                words(Path::new("/bin/sh"), &[&own, flags, &["Deaths", mode]])
            }
            Runtime::OwnJava(flags, mode) => {
                let classes = self
                    .classes
                    .as_ref()
                    .ok_or("there is no javac on this machine")?
                    .display()
                    .to_string();
                let home = self
                    .own_jvm(&newest_jvm(&there(&self.java, "java")?))?
                    .display()
                    .to_string();
                let own = ["-c", COLD, &home, "-cp", &classes];
                words(Path::new("/bin/sh"), &[&own, flags, &["Deaths", mode]])
            }
            Runtime::Go(what) => match &self.go {
                Some(program) => words(program, &[&[what]]),
                None => return Err("there is no go on this machine".to_owned()),
            },
            Runtime::Node(flags, script) => {
                words(&there(&self.node, "node")?, &[flags, &["-e", script]])
            }
            Runtime::NodeInShell(script) => {
                let node = there(&self.node, "node")?.display().to_string();
                let line = r#""$0" --max-old-space-size=32 -e "$1"; exit $?"#;
                words(Path::new("/bin/sh"), &[&["-c", line, &node, script]])
            }
            Runtime::Python(script, argument) => words(
                &there(&self.python, "python3")?,
                &[&["-c", script, argument]],
            ),
        })
    }
}

impl Tools {
    /// A copy of a JVM on the scratch disk, created on first use.
    fn own_jvm(&self, home: &Path) -> Result<PathBuf, String> {
        let copy = self.scratch.join("jvm");
        if copy.is_dir() {
            return Ok(copy);
        }
        let output = Command::new("/bin/sh")
            .args(["-c", COPY])
            .arg(home)
            .arg(&copy)
            .output();
        let output = output.map_err(|e| format!("/bin/sh: {e}"))?;
        let failed = || {
            format!(
                "copying {}: {}",
                home.display(),
                String::from_utf8_lossy(&output.stderr)
            )
        };
        output.status.success().then_some(copy).ok_or_else(failed)
    }
}

/// A program on `PATH`. Symbolic links are followed.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// The directory of the newest JVM: a separate one whose code no other process maps, or the default
/// one.
fn newest_jvm(java: &Path) -> PathBuf {
    let entries = fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    let named = entries.filter(|dir| {
        dir.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("temurin"))
    });
    let usual = || {
        java.canonicalize()
            .ok()
            .and_then(|p| Some(p.parent()?.parent()?.to_owned()))
    };
    named
        .filter(|dir| dir.join("bin/java").is_file())
        .max()
        .or_else(usual)
        .unwrap_or_else(|| PathBuf::from("/usr"))
}

/// Compiles the Go program; `None` without a compiler.
fn compiled_go(scratch: &Path) -> Result<Option<PathBuf>> {
    let (source, program) = (scratch.join("deaths.go"), scratch.join(GO));
    if on_path("go").is_none() {
        return Ok(None);
    }
    fs::write(&source, GO_SOURCE)?;
    programs::compile_go(&source, &program)?;
    Ok(Some(program))
}

/// Compiles the classes; `None` without a compiler.
fn compile(scratch: &Path) -> Result<Option<PathBuf>> {
    let Some(javac) = on_path("javac") else {
        return Ok(None);
    };
    let source = scratch.join("Deaths.java");
    fs::write(&source, SOURCE)?;
    let output = Command::new(javac)
        .arg("-d")
        .arg(scratch)
        .arg(&source)
        .output()
        .context("javac")?;
    ensure!(
        output.status.success(),
        "javac: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(scratch.to_owned()))
}
