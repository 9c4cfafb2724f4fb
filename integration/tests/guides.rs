//! What the README and the guides tell people to type, typed as it stands.
//!
//! Every block marked `sh` of one page is run in one shell, in a directory of its own, on a cluster of two nodes. A command that fails, fails the
//! page: the shell ends at the first one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::cluster::{Cluster, NodeShape, until};
use integration::programs;

/// Longest that a page may take, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn docs(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides").join(page)
}

/// The blocks of a page that people are to type, one after another.
fn blocks(text: &str) -> String {
    let mut inside = false;
    let mut script = String::new();
    for line in text.lines() {
        match (inside, line.trim_end()) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, typed) => {
                script.push_str(typed);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

/// Runs a page, and says what it printed when it fails.
fn follow(page: &str) -> Result<()> {
    let text = fs::read_to_string(docs(page)).with_context(|| page.to_owned())?;
    let script = blocks(&text);
    ensure!(!script.is_empty(), "{page} has nothing to type");
    let cluster = Cluster::start(&[NodeShape::default(); 2])?;
    let place = tempfile::tempdir()?;
    let said = place.path().join(".said");
    let file = fs::File::create(&said)?;
    let path = format!("{}:{}", programs::dir()?.display(), std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(place.path())
        .env("PATH", path)
        .env("HEADROOM_ADDR", cluster.url())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("bash")?;
    let ended = until("the end of the page", PATIENCE, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let said = || fs::read_to_string(&said).unwrap_or_default();
    let status = ended.with_context(|| format!("{page} did not end; it said:\n{}", said()))?;
    ensure!(status.success(), "{page} failed with {status}; it said:\n{}", said());
    Ok(())
}

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            follow($page)
        })*

        #[test]
        fn every_page_is_followed() -> Result<()> {
            let followed = ["README.md", $($page),*];
            for entry in fs::read_dir(docs(""))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                ensure!(followed.contains(&name.as_str()), "nobody types what docs/guides/{name} says");
            }
            Ok(())
        }
    };
}

pages! {
    first_job: "first-job.md",
    jvm_job: "jvm-job.md",
    array_job: "array-job.md",
    containers_with_curl: "containers-with-curl.md",
    adding_a_node: "adding-a-node.md",
    reading_a_verdict: "reading-a-verdict.md",
    sizing: "sizing.md",
    draining: "draining.md",
    upgrading: "upgrading.md",
}
