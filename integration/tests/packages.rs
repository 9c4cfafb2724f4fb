//! The Debian packages as described in the crates, without building them; `packages_guest.rs`
//! installs them.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The package description of a crate.
#[derive(Debug)]
struct Package {
    /// The directory of its `Cargo.toml`.
    home: PathBuf,
    version: String,
    deb: Value,
}

impl Package {
    /// Source and destination of each asset.
    fn assets(&self) -> Vec<(String, String)> {
        let word = |asset: &Value, n: usize| {
            asset[n]
                .as_str()
                .expect("assets are lists of texts")
                .to_owned()
        };
        self.deb["assets"]
            .as_array()
            .expect("assets")
            .iter()
            .map(|a| (word(a, 0), word(a, 1)))
            .collect()
    }

    /// Names of its files from `systemd/`, without the Debian files in folders below.
    fn of_systemd(&self) -> BTreeSet<String> {
        let ours = self
            .assets()
            .into_iter()
            .filter_map(|(from, _)| Some(from.strip_prefix("../../systemd/")?.to_owned()));
        ours.filter(|file| !file.contains('/')).collect()
    }

    fn scripts(&self) -> BTreeMap<String, String> {
        let Some(dir) = self.deb["maintainer-scripts"].as_str() else {
            return BTreeMap::new();
        };
        let entries = fs::read_dir(self.home.join(dir)).expect("a directory of scripts");
        let name = |path: &Path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        };
        entries
            .flatten()
            .map(|e| {
                (
                    name(&e.path()),
                    fs::read_to_string(e.path()).expect("reads"),
                )
            })
            .collect()
    }
}

fn packages() -> BTreeMap<String, Package> {
    let words = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
        "--offline",
    ];
    let output = Command::new(env!("CARGO"))
        .args(words)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let every: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packed = every["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .filter(|p| p["metadata"]["deb"].is_object());
    packed
        .map(|p| {
            let text = |key: &str| p[key].as_str().expect("a text").to_owned();
            let home = Path::new(&text("manifest_path"))
                .parent()
                .expect("a folder")
                .to_owned();
            let deb = p["metadata"]["deb"].clone();
            (
                deb["name"].as_str().expect("a name").to_owned(),
                Package {
                    home,
                    version: text("version"),
                    deb,
                },
            )
        })
        .collect()
}

#[test]
fn the_workspace_has_three_packages() {
    let names: Vec<String> = packages().into_keys().collect();
    assert_eq!(
        names,
        ["headroom-client", "headroom-manager", "headroom-node"]
    );
}

#[test]
fn every_systemd_file_is_in_a_package() {
    // The message catalog is needed on every host with a daemon.
    let both = "headroom.catalog";
    assert_eq!(
        packages()
            .values()
            .filter(|p| p.of_systemd().contains(both))
            .count(),
        2,
        "{both}"
    );
    let packed: BTreeSet<String> = packages().values().flat_map(Package::of_systemd).collect();
    let files = fs::read_dir(root().join("systemd"))
        .expect("reads")
        .flatten()
        .filter(|e| e.path().is_file());
    let mut there: Vec<String> = files
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    there.sort();
    assert_eq!(
        packed.into_iter().collect::<Vec<_>>(),
        there,
        "packed, and in systemd/"
    );
    let all: usize = packages().values().map(|p| p.of_systemd().len()).sum();
    assert_eq!(all, there.len() + 1, "no other file is in two packages");
}

#[test]
fn the_program_of_a_unit_is_in_the_same_package() {
    let mut seen = 0;
    for (name, package) in packages() {
        let programs: BTreeSet<String> = package
            .assets()
            .into_iter()
            .filter(|(_, to)| to == "usr/bin/")
            .map(|(from, _)| format!("/usr/bin/{}", from.trim_start_matches("target/release/")))
            .collect();
        for unit in package
            .of_systemd()
            .iter()
            .filter(|f| f.ends_with(".service"))
        {
            for line in read(&format!("systemd/{unit}"))
                .lines()
                .filter_map(|l| l.strip_prefix("ExecStart="))
            {
                let program = line.split_whitespace().next().expect("a program");
                assert!(
                    programs.contains(program),
                    "{unit} starts {program}, which {name} does not contain"
                );
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 3, "checked units");
}

#[test]
fn scripts_name_exactly_the_units_that_can_be_enabled() {
    for (name, package) in packages() {
        let units: BTreeSet<String> = package
            .of_systemd()
            .into_iter()
            .filter(|f| f.ends_with(".service") || f.ends_with(".socket"))
            .filter(|f| read(&format!("systemd/{f}")).contains("\n[Install]\n"))
            .collect();
        let scripts = package.scripts();
        assert_eq!(scripts.is_empty(), units.is_empty(), "{name}");
        for (script, text) in &scripts {
            let line = text.lines().find_map(|l| l.strip_prefix("UNITS=\""));
            let known: Option<BTreeSet<String>> = line.map(|l| {
                l.trim_end_matches('"')
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect()
            });
            assert_eq!(known.is_some(), script != "prerm", "{name}: {script}");
            assert!(
                known.is_none_or(|known| known == units),
                "{name}: {script} knows other units than {units:?}"
            );
        }
        if let Some(prerm) = scripts.get("prerm") {
            units.iter().for_each(|unit| {
                assert!(
                    prerm.contains(unit.as_str()),
                    "{name}: a removal leaves {unit} running"
                )
            });
        }
    }
}

#[test]
fn an_upgrade_never_ends_containers() {
    let scripts = packages().remove("headroom-node").expect("there").scripts();
    let restarted = scripts["postinst"]
        .lines()
        .filter(|l| l.contains("try-restart") || l.contains("systemctl restart"));
    let restarted: Vec<&str> = restarted.collect();
    assert_eq!(restarted.len(), 1, "{restarted:?}");
    assert!(
        !restarted[0].contains("headroom-containers"),
        "{restarted:?}"
    );
    assert!(
        scripts["prerm"].contains("[ \"$1\" = remove ]"),
        "only a removal stops running units"
    );
}

#[test]
fn scripts_are_valid_shell() {
    for (name, package) in packages() {
        for (script, text) in package.scripts() {
            let checked = Command::new("sh")
                .args(["-n", "-c", &text])
                .output()
                .expect("sh runs");
            assert!(
                checked.status.success(),
                "{name}: {script}: {}",
                String::from_utf8_lossy(&checked.stderr)
            );
            assert!(
                text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"),
                "{name}: {script}"
            );
        }
    }
}

#[test]
fn the_changelog_is_of_this_version() {
    let first = read("systemd/debian/changelog");
    let first = first.lines().next().expect("a line");
    for (name, package) in packages() {
        assert!(
            first.contains(&format!(" ({}-1) ", package.version)),
            "{name} {}: {first}",
            package.version
        );
    }
}
