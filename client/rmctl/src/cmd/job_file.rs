//! A job file, compiled with the profiles of the cluster that it names.
//!
//! All mistakes of a file are reported together. Nothing here submits a job.

use std::path::{Path, PathBuf};

use headroom_client::{Client, ClientError, UploadSource};
use headroom_config::job::uploads::{upload_paths, with_digests};
use headroom_config::job::{ClusterProfiles, profiles};
use headroom_config::{FileProblemKind, JobSpec};
use headroom_wire::v1::job::MemoryFailureMode;

use super::upload;
use crate::context::CommandContext;
use crate::exit::{CommandFailure, CommandResult};

/// A compiled job file.
#[derive(Debug)]
pub(crate) struct CompiledJob {
    /// The compiled job.
    pub(crate) spec: JobSpec,
    /// The text of the file, which is part of the submission.
    pub(crate) text: String,
    /// Profiles of the cluster that the file names; they are written into the text.
    pub(crate) named: ClusterProfiles,
    /// Base directory of relative file names.
    pub(crate) base: PathBuf,
    /// The sizing mode.
    pub(crate) mode: MemoryFailureMode,
    /// Files of this host that the stages name. They must be uploaded before the submission.
    pub(crate) uploads: Vec<UploadSource>,
}

/// Reads and compiles a job file. All its mistakes are reported together, and nothing is submitted.
/// Profiles that it names but does not define come from the cluster and are written into its text.
/// Paths of files to be uploaded are replaced by digests.
pub(crate) async fn load(
    context: &CommandContext,
    file: &Path,
    mode: Option<MemoryFailureMode>,
) -> CommandResult<CompiledJob> {
    let text = headroom_config::load::read(file)?;
    let (text, uploads) = with_uploads(file, &text)?;
    match named_in(context, &text).await {
        Ok(cluster) => Ok(CompiledJob {
            uploads,
            ..compiled(file, text, mode, &cluster)?
        }),
        Err(unasked) => Err(without_the_cluster(file, &text, unasked)),
    }
}

/// The text with digests for the files of this host that stages name as `upload:PATH`, and these
/// files. A relative path begins at the directory of the job file.
fn with_uploads(file: &Path, text: &str) -> Result<(String, Vec<UploadSource>), CommandFailure> {
    let base = file.parent().unwrap_or(Path::new(""));
    let (mut digests, mut sources) = (Vec::new(), Vec::new());
    for named in upload_paths(text) {
        let argument = format!("{}: from = \"upload:{}\"", file.display(), named.path);
        let source = upload::open(&argument, &base.join(&named.path))?;
        digests.push((named, source.sha256()));
        sources.push(source);
    }
    Ok((with_digests(text, &digests), sources))
}

/// The error for a file whose cluster profiles are not available: the file's own mistakes, if it
/// has any.
fn without_the_cluster(file: &Path, text: &str, unasked: CommandFailure) -> CommandFailure {
    let foreign = profiles::cluster_profile_names(text);
    let names: Vec<&str> = foreign.iter().map(headroom_types::Name::as_str).collect();
    let what = format!(
        "{} names {}, which only the cluster can define",
        file.display(),
        names.join(", ")
    );
    let mut own = headroom_config::job::compile(text, &file.display().to_string())
        .err()
        .unwrap_or_default();
    own.retain(|problem| match &problem.kind {
        FileProblemKind::UnknownProfile(name) => !foreign.contains(name),
        FileProblemKind::General => true,
    });
    if own.is_empty() {
        unasked.help(what)
    } else {
        CommandFailure::from(own)
            .help(what)
            .help(unasked.to_string())
    }
}

/// Compiles the text of a job file that may name profiles of the cluster. The submitted text
/// defines all of them.
pub(crate) fn compiled(
    file: &Path,
    text: String,
    mode: Option<MemoryFailureMode>,
    cluster: &ClusterProfiles,
) -> CommandResult<CompiledJob> {
    let name = file.display().to_string();
    headroom_config::job::compile_with(&text, &name, cluster)?;
    let mut named = cluster.clone();
    named.retain(|name, _| profiles::cluster_profile_names(&text).contains(name));
    let text = profiles::inline_cluster_profiles(&text, &named);
    let advice =
        "cluster profiles can be combined with [profiles.NAME] tables, not with profiles = { ... }";
    let spec = headroom_config::job::compile(&text, &name)
        .map_err(|found| CommandFailure::from(found).help(advice))?;
    let parent = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let base = parent
        .canonicalize()
        .map_err(|e| CommandFailure::usage(format!("{}: {e}", parent.display())))?;
    let mode = mode.unwrap_or(spec.mode);
    Ok(CompiledJob {
        spec,
        text,
        named,
        base,
        mode,
        uploads: Vec::new(),
    })
}

/// The cluster's profiles, if a job file names profiles that it does not define. Otherwise no
/// profiles, and no call.
async fn named_in(context: &CommandContext, text: &str) -> CommandResult<ClusterProfiles> {
    let foreign = profiles::cluster_profile_names(text);
    if foreign.is_empty() {
        return Ok(ClusterProfiles::new());
    }
    Ok(all(&context.client()?).await?)
}

async fn all(client: &Client) -> Result<ClusterProfiles, ClientError> {
    Ok(client
        .profiles()
        .await?
        .into_iter()
        .map(|p| (p.name.clone(), p.size()))
        .collect())
}

/// A job with one stage whose container has this heap.
#[cfg(test)]
pub(super) fn sample_job(memory: &str) -> CompiledJob {
    let text = format!(
        "version = 1\nname = \"big\"\n[profiles.exec]\nheap = \"{memory}\"\ncpus = 1\n[executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 2\n[[stage]]\nname = \"map\"\ncommand = [\"true\"]\n"
    );
    let spec = headroom_config::job::compile(&text, "job.toml").expect("compiles");
    CompiledJob {
        spec,
        text,
        named: ClusterProfiles::new(),
        base: PathBuf::from("/work"),
        mode: MemoryFailureMode::Uber,
        uploads: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExitCode;

    #[test]
    fn a_missing_or_wrong_file_is_a_usage_error() {
        let missing = CommandFailure::from(
            headroom_config::load::read(Path::new("/nonexistent/job.toml")).expect_err("missing"),
        );
        assert_eq!(missing.exit(), CommandExitCode::Usage);
        assert!(
            missing.to_string().contains("/nonexistent/job.toml"),
            "{missing}"
        );
        let text = "version = 1\nname = \"a b\"\nmode = \"hope\"\n".to_owned();
        let wrong = compiled(Path::new("/job.toml"), text, None, &ClusterProfiles::new())
            .expect_err("wrong")
            .to_string();
        assert!(
            wrong.contains(":2:") && wrong.contains(":3:"),
            "both mistakes at once: {wrong}"
        );
    }

    #[test]
    fn files_of_this_host_are_named_by_their_digests() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("job.toml");
        std::fs::write(dir.path().join("data"), "abc").expect("writes");
        let job = |from: &str| {
            format!(
                "version = 1\nname = \"a\"\n[executors.main]\nheap = \"64MiB\"\nslots = 1\n\
                 [[stage]]\nname = \"map\"\ncommand = [\"true\"]\n\
                 files = [{{ name = \"data\", from = \"{from}\" }}]\n"
            )
        };
        let (text, sources) = with_uploads(&file, &job("upload:data")).expect("reads");
        assert_eq!(sources.len(), 1);
        assert!(text.contains("\"upload:ba7816bf"), "{text}");
        let missing = with_uploads(&file, &job("upload:none")).expect_err("missing");
        let sentence = missing.to_string();
        assert!(
            sentence.contains("job.toml: from = \"upload:none\": ") && sentence.contains("No such"),
            "{sentence}"
        );
        let unread = compiled(&file, job("upload:data"), None, &ClusterProfiles::new());
        let sentence = unread.expect_err("a path").to_string();
        assert!(
            sentence.contains("does not name an uploaded file"),
            "{sentence}"
        );
    }

    #[test]
    fn without_the_cluster_only_the_own_mistakes_of_a_file_are_reported() {
        let unasked = || CommandFailure::new(CommandExitCode::Unreachable, "no answer");
        let rest = "[executors.main]\nprofile = \"cluster-one\"\nslots = 2\n\
                    [[stage]]\nname = \"map\"\nprofile = \"cluster-two\"\ncommand = [\"true\"]\n";
        let text = format!("version = 1\nname = \"a\"\n{rest}");
        let foreign = without_the_cluster(Path::new("/job.toml"), &text, unasked());
        assert_eq!(foreign.exit(), CommandExitCode::Unreachable, "{foreign}");
        let text = foreign.to_string();
        assert!(text.contains("names cluster-one, cluster-two"), "{text}");
        let text = format!("version = 1\nname = \"a b\"\n{rest}");
        let own = without_the_cluster(Path::new("/job.toml"), &text, unasked());
        assert_eq!(own.exit(), CommandExitCode::Usage, "{own}");
        assert!(!own.to_string().contains("there is no profile"), "{own}");
    }
}
