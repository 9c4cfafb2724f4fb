//! File access of this crate; no other module reads files.

use std::path::Path;

use crate::checked::{NodeAgentConfig, ResourceManagerConfig};
use crate::compile;
use crate::job::{self, ClusterProfiles, JobSpec};
use crate::problem::FileProblem;

/// Maximum file size. Bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads and compiles the resource manager's configuration.
pub fn load_resourcemanager(path: &Path) -> Result<ResourceManagerConfig, Vec<FileProblem>> {
    compile::resourcemanager(&read(path)?, &path.display().to_string())
}

/// Reads and compiles the node agent's configuration.
pub fn load_nodeagent(path: &Path) -> Result<NodeAgentConfig, Vec<FileProblem>> {
    compile::nodeagent(&read(path)?, &path.display().to_string())
}

/// Reads and compiles a job file that may use these profiles of the cluster.
pub fn load_job(path: &Path, cluster: &ClusterProfiles) -> Result<JobSpec, Vec<FileProblem>> {
    job::compile_with(&read(path)?, &path.display().to_string(), cluster)
}

/// Reads a text file; rejects large and non-UTF-8 files.
pub fn read(path: &Path) -> Result<String, Vec<FileProblem>> {
    let name = path.display().to_string();
    let refuse = |what: String, fix: &str| {
        vec![FileProblem::of_file(
            &name,
            what,
            "the file was not read",
            fix,
        )]
    };
    let unreadable = |e: std::io::Error| {
        refuse(
            format!("{name} cannot be read: {e}"),
            "check the path and its permissions",
        )
    };
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_FILE_BYTES {
        return Err(refuse(
            format!("{name} has {length} bytes"),
            "a configuration or job file has at most 1 MiB",
        ));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes)
        .map_err(|_| refuse(format!("{name} is not UTF-8 text"), "save it as UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_a_problem_with_its_name() {
        let problems =
            load_nodeagent(Path::new("/nonexistent/nodeagent.toml")).expect_err("missing");
        assert!(problems[0].what.contains("/nonexistent/nodeagent.toml"));
        assert_eq!(problems[0].line, None);
    }

    #[test]
    fn a_binary_file_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(file.path(), [0xff, 0xfe]).expect("writes");
        assert!(
            load_job(file.path(), &ClusterProfiles::new()).expect_err("binary")[0]
                .what
                .contains("not UTF-8")
        );
    }
}
