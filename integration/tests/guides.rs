//! The commands in the guides, run exactly as written.
//!
//! Each `sh` block of a page runs in one shell, in its own directory, on a cluster of two nodes.
//! The shell stops at the first command that fails, which fails the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::cluster::{Cluster, NodeShape};
use integration::doc_commands;

/// Timeout of a page, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(300);

fn docs(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/guides")
        .join(page)
}

/// Starts bash with the script `$1`. root gets an empty `/var/lib` for this process only, so that
/// `rmctl doctor` does not judge how full the disk of the test machine is.
const START: &str = "\
    if [ \"$(id -u)\" -eq 0 ]; then \
        exec unshare --mount bash -euo pipefail -c 'mount -t tmpfs tmpfs /var/lib; exec bash -euo pipefail -c \"$1\"' bash \"$1\"; \
    fi; \
    exec bash -euo pipefail -c \"$1\"";

/// Runs a page. A failure contains its output.
fn follow(page: &str) -> Result<()> {
    let text = fs::read_to_string(docs(page)).with_context(|| page.to_owned())?;
    let script = doc_commands::blocks(&text, "sh").concat();
    ensure!(!script.is_empty(), "{page} has no commands");
    let cluster = Cluster::start(&[NodeShape::default(); 2])?;
    let place = tempfile::tempdir()?;
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", START, "bash", &script])
        .current_dir(place.path())
        .env("HEADROOM_ADDR", cluster.url());
    doc_commands::run(&mut shell, &place.path().join(".said"), TIMEOUT)
        .with_context(|| page.to_owned())?;
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
            // The tests of the Python packages cover these.
            let python = ["dask.md", "python.md", "snakemake.md", "submitit.md"];
            let followed = ["README.md", "spark-cluster-mode.md", $($page),*];
            for entry in fs::read_dir(docs(""))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let name = name.as_str();
                let is_followed = followed.contains(&name) || python.contains(&name);
                ensure!(is_followed, "no test runs the commands of docs/guides/{name}");
            }
            Ok(())
        }
    };
}

pages! {
    first_job: "first-job.md",
    jvm_job: "jvm-job.md",
    spark: "spark.md",
    array_job: "array-job.md",
    live_jobs: "live-jobs.md",
    containers_with_curl: "containers-with-curl.md",
    installing: "installing.md",
    adding_a_node: "adding-a-node.md",
    reading_a_verdict: "reading-a-verdict.md",
    sizing: "sizing.md",
    draining: "draining.md",
    labels_and_taints: "labels-and-taints.md",
    upgrading: "upgrading.md",
}
