//! Repository rules that no compiler checks: dependencies between crates, file sizes, forbidden
//! words, and links in the documentation.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use integration::source_metrics;
use serde_json::Value;

const PREFIX: &str = "headroom-";

/// All planned dependencies between the workspace's crates. A new one is a decision: record it
/// first.
const LAYERS: [(&str, &[&str]); 27] = [
    ("types", &[]),
    ("identity", &["types"]),
    ("wire", &["types"]),
    ("sizes", &["types", "wire"]),
    ("telemetry", &[]),
    ("transport", &["identity", "types"]),
    ("client", &["identity", "transport", "types", "wire"]),
    ("config", &["identity", "types", "wire"]),
    ("objects", &["config", "identity", "transport"]),
    ("rm-core", &["types"]),
    ("rm-etcd", &["config", "identity"]),
    (
        "rm-store",
        &["config", "identity", "rm-etcd", "rm-core", "types"],
    ),
    ("rm-reports", &["identity", "rm-core", "types", "wire"]),
    (
        "rm-server",
        &[
            "config",
            "identity",
            "rm-core",
            "rm-etcd",
            "rm-reports",
            "rm-store",
            "sizes",
            "telemetry",
            "transport",
            "types",
            "wire",
        ],
    ),
    (
        "rm-yarn",
        &["identity", "rm-core", "rm-reports", "types", "wire"],
    ),
    (
        "resourcemanager",
        &[
            "config",
            "rm-server",
            "rm-yarn",
            "telemetry",
            "transport",
            "wire",
        ],
    ),
    ("node-core", &["types"]),
    ("node-cgroup", &["types"]),
    ("node-process", &[]),
    ("node-exec", &["node-process"]),
    ("container-shim", &["node-process"]),
    (
        "nodeagent",
        &[
            "client",
            "config",
            "container-shim",
            "identity",
            "node-cgroup",
            "node-core",
            "node-exec",
            "node-process",
            "objects",
            "telemetry",
            "transport",
            "types",
            "wire",
        ],
    ),
    (
        "appmaster",
        &[
            "client",
            "config",
            "identity",
            "objects",
            "sizes",
            "telemetry",
            "transport",
            "types",
            "wire",
        ],
    ),
    (
        "executor",
        &[
            "client",
            "node-cgroup",
            "node-core",
            "node-exec",
            "node-process",
            "transport",
            "types",
            "wire",
        ],
    ),
    (
        "rmctl",
        &[
            "appmaster",
            "client",
            "config",
            "identity",
            "nodeagent",
            "rm-store",
            "transport",
            "types",
            "wire",
        ],
    ),
    (
        "integration",
        &[
            "appmaster",
            "client",
            "config",
            "executor",
            "identity",
            "node-cgroup",
            "node-core",
            "node-exec",
            "node-process",
            "nodeagent",
            "objects",
            "rm-core",
            "rm-etcd",
            "rm-server",
            "rm-store",
            "test-fakes",
            "transport",
            "types",
            "wire",
        ],
    ),
    ("test-fakes", &["types", "wire"]),
];

/// Packages that a crate must not depend on, even indirectly: no runtime or wire for the pure
/// cores, no runtime for the shim, no other crate of this workspace for the system calls. The server and
/// the YARN interface know only the boundary between them.
const FORBIDDEN: [(&str, &[&str]); 12] = [
    (
        "headroom-identity",
        &["tokio", "reqwest", "axum", "tracing"],
    ),
    ("headroom-types", &["tokio", "reqwest", "axum", "tracing"]),
    ("headroom-wire", &["tokio", "reqwest", "axum", "tracing"]),
    ("headroom-sizes", &["tokio", "reqwest", "axum", "tracing"]),
    (
        "headroom-rm-core",
        &[
            "tokio",
            "headroom-wire",
            "headroom-rm-store",
            "tracing",
            "rand",
        ],
    ),
    (
        "headroom-rm-reports",
        &["tokio", "axum", "reqwest", "tracing", "headroom-rm-store"],
    ),
    (
        "headroom-rm-yarn",
        &["headroom-rm-server", "headroom-rm-store", "headroom-config"],
    ),
    ("headroom-rm-server", &["headroom-rm-yarn"]),
    (
        "headroom-node-core",
        &[
            "tokio",
            "headroom-wire",
            "headroom-node-cgroup",
            "headroom-node-exec",
            "tracing",
            "rand",
        ],
    ),
    (
        "headroom-node-exec",
        &[
            "headroom-types",
            "headroom-wire",
            "headroom-node-core",
            "headroom-node-cgroup",
            "tokio",
        ],
    ),
    (
        "headroom-node-process",
        &["tokio", "headroom-types", "rustix", "serde", "thiserror"],
    ),
    (
        "headroom-container-shim",
        &[
            "tokio",
            "headroom-types",
            "headroom-wire",
            "headroom-node-exec",
            "serde",
        ],
    ),
];

/// Crates that may hold unsafe code.
const UNSAFE: [&str; 3] = [
    "headroom-node-process",
    "headroom-node-exec",
    "headroom-container-shim",
];

const TOP_LEVEL: [&str; 16] = [
    ".ci",
    ".clippy.toml",
    ".config",
    ".gitignore",
    ".rustfmt.toml",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "client",
    "config",
    "docs",
    "integration",
    "nodeagent",
];
const TOP_LEVEL_MORE: [&str; 2] = ["rm", "systemd"];

const LONGEST_FILE: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output();
    let output = output.unwrap_or_else(|e| panic!("{program} could not be started: {e}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Files of the repository: tracked, or new and not ignored.
fn files() -> Vec<PathBuf> {
    let list = output_of(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    );
    list.lines()
        .map(PathBuf::from)
        .filter(|p| root().join(p).is_file())
        .collect()
}

fn files_with(extension: &str) -> Vec<(PathBuf, String)> {
    let wanted = |p: &PathBuf| p.extension().is_some_and(|e| e == extension);
    files()
        .into_iter()
        .filter(wanted)
        .map(|p| (p.clone(), read(&p)))
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn metadata() -> Value {
    // Packages of other platforms were never fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--filter-platform",
        &platform,
    ];
    let text = output_of(env!("CARGO"), &arguments);
    serde_json::from_str(&text).expect("cargo writes JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} is not a text in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} is not a list"))
}

/// Packages of the workspace by name.
fn members(metadata: &Value) -> BTreeMap<&str, &Value> {
    let ids: BTreeSet<&str> = list(metadata, "workspace_members")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    list(metadata, "packages")
        .iter()
        .filter(|p| ids.contains(text(p, "id")))
        .map(|p| (text(p, "name"), p))
        .collect()
}

fn none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}\n{}", found.join("\n"));
}

#[test]
fn crates_depend_on_each_other_as_planned() {
    let metadata = metadata();
    let ours = members(&metadata);
    let full = |short: &str| {
        if short == "integration" {
            short.to_owned()
        } else {
            format!("{PREFIX}{short}")
        }
    };
    let planned: BTreeMap<String, BTreeSet<String>> = LAYERS
        .iter()
        .map(|(name, to)| (full(name), to.iter().map(|t| full(t)).collect()))
        .collect();
    let inside = |package: &Value| -> BTreeSet<String> {
        let normal = list(package, "dependencies")
            .iter()
            .filter(|d| d["kind"].is_null());
        normal
            .map(|d| text(d, "name").to_owned())
            .filter(|name| ours.contains_key(name.as_str()))
            .collect()
    };
    let real: BTreeMap<String, BTreeSet<String>> = ours
        .iter()
        .map(|(name, p)| ((*name).to_owned(), inside(p)))
        .collect();
    for (name, to) in &real {
        assert_eq!(
            Some(to),
            planned.get(name),
            "the dependencies of {name} (found, planned)"
        );
    }
    assert_eq!(real.len(), planned.len(), "a planned crate is missing");
}

/// All packages that `from` needs as a dependency, by name.
fn reachable(metadata: &Value, from: &str) -> BTreeSet<String> {
    let names: BTreeMap<&str, &str> = list(metadata, "packages")
        .iter()
        .map(|p| (text(p, "id"), text(p, "name")))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .iter()
        .map(|n| (text(n, "id"), n))
        .collect();
    let is_normal = |d: &&Value| list(d, "dep_kinds").iter().any(|k| k["kind"].is_null());
    let mut todo: Vec<&str> = names
        .iter()
        .filter(|(_, name)| **name == from)
        .map(|(id, _)| *id)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        for dependency in list(nodes[id], "deps").iter().filter(is_normal) {
            if seen.insert(text(dependency, "pkg")) {
                todo.push(text(dependency, "pkg"));
            }
        }
    }
    seen.into_iter().map(|id| names[id].to_owned()).collect()
}

#[test]
fn forbidden_dependencies_are_absent() {
    let metadata = metadata();
    for (name, banned) in FORBIDDEN {
        let reach = reachable(&metadata, name);
        for wrong in banned {
            assert!(
                !reach.contains(*wrong),
                "{name} reaches {wrong}; `cargo tree -p {name} -i {wrong}` shows how"
            );
        }
    }
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    let metadata = metadata();
    for (name, package) in members(&metadata) {
        let manifest = std::fs::read_to_string(text(package, "manifest_path")).expect("reads");
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} has no `[lints] workspace = true`"
        );
    }
}

/// The root file of each library and program: package name, path relative to the root, text.
fn roots_of_targets(metadata: &Value) -> Vec<(String, String, String)> {
    let shipped = |t: &&Value| list(t, "kind").iter().any(|k| k == "lib" || k == "bin");
    let mut found = Vec::new();
    for (name, package) in members(metadata) {
        for target in list(package, "targets").iter().filter(shipped) {
            let path = text(target, "src_path");
            let short = Path::new(path)
                .strip_prefix(root())
                .map_or(path.to_owned(), |p| p.display().to_string());
            found.push((
                name.to_owned(),
                short,
                std::fs::read_to_string(path).expect("reads"),
            ));
        }
    }
    found
}

#[test]
fn only_two_crates_have_unsafe_code() {
    let metadata = metadata();
    let loose = roots_of_targets(&metadata)
        .into_iter()
        .filter(|(name, _, source)| {
            !UNSAFE.contains(&name.as_str()) && !source.contains("#![forbid(unsafe_code)]")
        })
        .map(|(_, path, _)| path);
    none(
        &loose.collect::<Vec<_>>(),
        "these do not say #![forbid(unsafe_code)]:",
    );
}

#[test]
fn every_file_has_a_header_doc() {
    let silent = files_with("rs").into_iter().filter(|(path, source)| {
        // A test module beside its subject is named SUBJECT_tests and needs no header.
        let tests = path
            .file_stem()
            .is_some_and(|n| n.to_string_lossy().ends_with("tests"));
        let shipped = path.components().any(|c| c.as_os_str() == "src") && !tests;
        shipped && !source.starts_with("//!")
    });
    none(
        &silent
            .map(|(path, _)| path.display().to_string())
            .collect::<Vec<_>>(),
        "these begin without a header doc:",
    );
}

#[test]
fn no_file_is_too_long() {
    let long = files_with("rs")
        .into_iter()
        .map(|(path, source)| (path, source.lines().count()))
        .filter(|(_, n)| *n > LONGEST_FILE);
    let long: Vec<String> = long
        .map(|(path, n)| format!("{} has {n} lines", path.display()))
        .collect();
    none(&long, "more than 800 lines; split the file:");
}

#[test]
fn no_todo_marks_are_left() {
    // Split, so that this file does not find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    let mut found = Vec::new();
    for (path, source) in ["rs", "toml", "md", "sh", "service"]
        .into_iter()
        .flat_map(files_with)
    {
        for (line, text) in source
            .lines()
            .enumerate()
            .filter(|(_, t)| words.iter().any(|w| t.contains(w)))
        {
            found.push(format!("{}:{}: {}", path.display(), line + 1, text.trim()));
        }
    }
    none(&found, "finish the work or open an issue:");
}

#[test]
fn modules_have_meaningful_names() {
    let empty = [
        "util", "utils", "helper", "helpers", "common", "misc", "shared",
    ];
    let found: Vec<String> = files()
        .iter()
        .filter(|p| {
            p.with_extension("")
                .components()
                .any(|c| c.as_os_str().to_str().is_some_and(|c| empty.contains(&c)))
        })
        .map(|p| p.display().to_string())
        .collect();
    none(&found, "names without a meaning:");
}

#[test]
fn the_top_level_has_its_shape() {
    let first = |p: &PathBuf| {
        p.components()
            .next()
            .map(|c| c.as_os_str().to_string_lossy().into_owned())
    };
    let real: BTreeSet<String> = files().iter().filter_map(first).collect();
    let wanted: BTreeSet<String> = TOP_LEVEL
        .iter()
        .chain(&TOP_LEVEL_MORE)
        .map(|&s| s.to_owned())
        .collect();
    assert_eq!(real, wanted);
}

#[test]
fn no_path_of_a_single_machine_is_in_the_source() {
    let places = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
    ];
    let mut found = Vec::new();
    for path in files() {
        // Golden files and sources are checked. A binary file has no lines.
        let Ok(source) = std::fs::read_to_string(root().join(&path)) else {
            continue;
        };
        for (line, _) in source
            .lines()
            .enumerate()
            .filter(|(_, t)| places.iter().any(|p| t.contains(p)))
        {
            found.push(format!("{}:{}", path.display(), line + 1));
        }
    }
    none(&found, "paths of a single machine:");
}

/// Targets of the links in a Markdown text that point into the repository.
fn links(source: &str) -> Vec<&str> {
    let targets = source
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets
        .filter(|t| !t.contains("://") && !t.starts_with('#') && !t.starts_with("mailto:"))
        .collect()
}

/// Words in backquotes that name a file of the repository: a known first folder, and an extension.
fn named_files(source: &str) -> Vec<&str> {
    let folders = [
        "rm/",
        "client/",
        "nodeagent/",
        "config/",
        "integration/",
        "systemd/",
        "docs/",
        ".config/",
        ".ci/",
    ];
    let quoted = source.split('`').skip(1).step_by(2);
    quoted
        .filter(|w| {
            folders.iter().any(|f| w.starts_with(f))
                && !w.contains(['*', '{', '<', ' ', '…'])
                && w.contains('.')
        })
        .collect()
}

/// `FILE` exists; `FILE::NAME` exists and defines a function of that name.
fn is_there(name: &str) -> bool {
    let (file, function) = name
        .split_once("::")
        .map_or((name, None), |(file, function)| (file, Some(function)));
    let Ok(source) = std::fs::read_to_string(root().join(file)) else {
        return root().join(file).exists();
    };
    function.is_none_or(|f| {
        [format!("fn {f}("), format!("fn {f}<")]
            .iter()
            .any(|d| source.contains(d))
    })
}

#[test]
fn links_of_the_documentation_resolve() {
    let mut broken = Vec::new();
    for (path, source) in files_with("md") {
        let folder = root()
            .join(&path)
            .parent()
            .expect("has a folder")
            .to_owned();
        for link in links(&source) {
            let file = link.split('#').next().unwrap_or_default();
            if !folder.join(file).exists() {
                broken.push(format!("{}: link to {link}", path.display()));
            }
        }
        let lost = named_files(&source)
            .into_iter()
            .filter(|name| !is_there(name));
        broken.extend(lost.map(|name| format!("{}: names {name}", path.display())));
    }
    none(&broken, "links to missing targets:");
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut numbers: Vec<usize> = files()
        .iter()
        .filter(|p| p.starts_with("docs/decisions"))
        .filter_map(|p| p.file_name()?.to_str()?.get(..4)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
    assert!(numbers.len() >= 4);
}

#[test]
fn no_crate_brings_a_c_library_for_tls() {
    let lock = read(Path::new("Cargo.lock"));
    for banned in ["openssl-sys", "aws-lc-sys", "native-tls", "libsqlite3-sys"] {
        assert!(
            !lock.contains(&format!("name = \"{banned}\"")),
            "{banned} is in Cargo.lock; `cargo tree -i {banned}` shows why"
        );
    }
}

/// Licences that dependencies may have, including Headroom's own.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// True if one alternative of an SPDX expression (without nested brackets) consists of allowed
/// licences only.
fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    plain
        .split(" OR ")
        .any(|choice| choice.split(" AND ").all(|l| LICENCES.contains(&l.trim())))
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let metadata = metadata();
    let wrong: Vec<String> = list(&metadata, "packages")
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(is_allowed))
        .map(|p| format!("{}: {}", text(p, "name"), p["license"]))
        .collect();
    none(&wrong, "licences that are not on the list:");
}

/// Bounds of the figures of the source. Each bound may only get stricter.
#[test]
fn the_source_stays_plain() {
    let found = source_metrics::of_repository(&root()).expect("the sources are readable");
    assert!(
        found.odd_words_per_1000 <= 0.1,
        "odd words per 1,000: {}",
        found.odd_words_per_1000
    );
    assert!(
        found.what_per_1000 <= 0.5,
        "\"what\" per 1,000 words: {}",
        found.what_per_1000
    );
    assert!(
        found.mean_type_name >= 12.0,
        "mean length of type names: {}",
        found.mean_type_name
    );
    assert!(
        found.shared_names_percent <= 2.0,
        "types that share a name: {} %",
        found.shared_names_percent
    );
    assert_eq!(found.files_in_circles, 0, "files on import cycles");
}
