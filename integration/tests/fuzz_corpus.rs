//! All inputs that fuzzing has kept, through the same checks, in each ordinary test run and without
//! a nightly compiler.

// A test binary has no public API; the checks are a library of the fuzz targets; a failure prints
// its input.
#![allow(missing_docs, unreachable_pub, clippy::print_stderr)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[path = "../fuzz/src/lib.rs"]
mod checks;

/// Minimum number of inputs of a target.
const FEWEST: usize = 10;
/// Timeout of one input, for a debug build on a busy machine. A slower parser does not take time in
/// proportion.
const LONGEST: Duration = Duration::from_secs(10);

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The inputs of a target with their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = fuzz().join("corpus").join(format!("{target}.tar.gz"));
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("reads");
        (name, bytes)
    });
    entries.collect()
}

/// Prints the name of the failing input when the thread panics.
struct Named<'a>(&'a str, &'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input {} of the target {}", self.1, self.0);
        }
    }
}

fn replay(target: &str) {
    let (_, check) = *checks::TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .expect("a target");
    let inputs = corpus(target);
    assert!(
        inputs.len() >= FEWEST,
        "{target} has {} inputs",
        inputs.len()
    );
    for (name, bytes) in &inputs {
        let _named = Named(target, name);
        let from = Instant::now();
        check(bytes);
        assert!(
            from.elapsed() < LONGEST,
            "{} bytes took {:?}",
            bytes.len(),
            from.elapsed()
        );
    }
}

macro_rules! each {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*
        const REPLAYED: &[&str] = &[$(stringify!($target)),*];
    };
}
each!(channel config identity jobs journal jvm kernel messages shim store);

/// Pieces whose repetition is known to be slow for some parsers.
const PIECES: [&str; 36] = [
    "[",
    "{",
    "(",
    "\"",
    "\\",
    "\n",
    " ",
    "a",
    "ä",
    "\0",
    "\u{fffd}",
    "a.",
    "a,",
    "a=",
    "a=1\n",
    "[a]\n",
    "[[stage]]\n",
    "[[stage]]\nname = \"s\"\n",
    "[executors.x]\n",
    "{index}",
    "a = [",
    "a.b = {",
    "# x\n",
    "{\"kind\":\"alive\"}\n",
    "{\"a\":",
    "[{\"a\":[",
    "\"\":0,",
    "\\u0000",
    "1",
    "1e9",
    "anon 1\n",
    "00-ff rw-p 0 0:0 0 \nRss: 1 kB\n",
    "[1.0s][gc] GC(1) Pause Young 1M->1M(2M) 1.000ms\n",
    "-----BEGIN CERTIFICATE-----\n",
    "arg a\n",
    ") S 1 ",
];

/// 64 KiB of one piece, after each byte that selects a parser, stay below the timeout.
#[test]
fn repeated_input_takes_proportional_time() {
    for (target, check) in checks::TARGETS {
        // The other targets apply the same check to the whole input.
        let choices: &[u8] = match target {
            "messages" => &[0, 1, 2, 3, 4, 5, 48, 56],
            "store" => &[0, 1, 2, 3],
            _ => &[],
        };
        for piece in PIECES {
            let body = piece.repeat((64 << 10) / piece.len());
            let openings = [
                "version = 1\nname = \"x\"\n",
                "headroom-spec 1\n",
                "headroom-exit 1\n",
                "",
            ];
            let chosen = choices.iter().map(|c| [&[*c], body.as_bytes()].concat());
            let plain = openings
                .iter()
                .filter(|_| choices.is_empty())
                .map(|o| [o.as_bytes(), body.as_bytes()].concat());
            for input in chosen.chain(plain) {
                let name = format!("{piece:?} many times");
                let _named = Named(target, &name);
                let from = Instant::now();
                check(&input);
                assert!(from.elapsed() < LONGEST, "it took {:?}", from.elapsed());
            }
        }
    }
}

/// Every target must be replayed here, built, and named in the script.
#[test]
fn every_target_is_known_everywhere() {
    let names: Vec<&str> = checks::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, REPLAYED);
    let mut files: Vec<String> = std::fs::read_dir(fuzz().join("fuzz_targets"))
        .expect("targets")
        .map(|entry| {
            entry
                .expect("an entry")
                .path()
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort();
    assert_eq!(names, files);
    let script = std::fs::read_to_string(fuzz().join("run")).expect("the script");
    assert!(
        script.contains(&format!("all=({})", names.join(" "))),
        "the script does not name them all"
    );
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).expect("the manifest");
    assert!(
        names
            .iter()
            .all(|name| manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")))
    );
}
