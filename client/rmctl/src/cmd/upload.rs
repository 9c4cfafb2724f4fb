//! Uploads files of this host, with a progress line for large ones.

use std::path::Path;
use std::sync::Arc;

use headroom_client::{Client, ClientError, FileUploadError, UploadSource};
use headroom_types::Bytes;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure};
use crate::progress::ProgressLine;

/// Smallest file with a progress line.
const LARGE: Bytes = Bytes::from_mib(4);

/// Opens a file of this host and computes its digest. `argument` names it in errors.
pub(crate) fn open(argument: &str, path: &Path) -> Result<UploadSource, CommandFailure> {
    UploadSource::open(path, |_| ()).map_err(|error| failure(error).about(argument))
}

/// Uploads the files that the resource manager does not have.
pub(crate) async fn upload(
    context: &CommandContext,
    client: &Client,
    sources: &[UploadSource],
) -> Result<(), CommandFailure> {
    for source in sources {
        let (path, size) = (source.path().display(), source.size());
        let line = (size >= LARGE).then(|| {
            let name = source.path().file_name().unwrap_or_default();
            Arc::new(ProgressLine::bytes(&context.term, &name.to_string_lossy()))
        });
        let shown = line.clone();
        let sent = move |position| {
            if let Some(line) = &shown {
                line.at(position, size.get());
            }
        };
        let done = client.upload(source, sent).await;
        drop(line);
        match done {
            Ok(true) => context.term.say(&format!("uploaded {path} ({size})")),
            // With --curl nothing is sent, and the submission is shown too.
            Ok(false) | Err(FileUploadError::Call(ClientError::NotSent)) => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(())
}

fn failure(error: FileUploadError) -> CommandFailure {
    let sentence = error.to_string();
    match error {
        FileUploadError::Unreadable { .. } => CommandFailure::usage(sentence),
        FileUploadError::NotAFile { .. } => {
            CommandFailure::usage(sentence).help("pack a directory into an archive")
        }
        FileUploadError::Changed { .. } => {
            CommandFailure::failed(sentence).help("submit again when no program writes it")
        }
        FileUploadError::Unsupported { .. } => {
            CommandFailure::new(CommandExitCode::Failed, sentence).help(
                "upgrade the resource manager, or name files that the nodes have with local:/PATH",
            )
        }
        FileUploadError::Call(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_names_its_option() {
        let path = Path::new("/nonexistent/a.jar");
        let failure = open("--jars", path).expect_err("missing").to_string();
        assert!(
            failure.contains("--jars: /nonexistent/a.jar: No such file"),
            "{failure}"
        );
    }

    #[test]
    fn a_directory_is_to_be_packed() {
        let dir = tempfile::tempdir().expect("a directory");
        let failure = open("--py-files", dir.path()).expect_err("a directory");
        assert_eq!(failure.exit(), CommandExitCode::Usage);
        let text = failure.to_string();
        assert!(
            text.contains("is not a file") && text.contains("pack"),
            "{text}"
        );
    }

    #[test]
    fn an_older_resource_manager_is_named() {
        let address = "http://rm:7070".to_owned();
        let text = failure(FileUploadError::Unsupported { address }).to_string();
        assert!(text.contains("http://rm:7070 accepts no uploads"), "{text}");
        assert!(text.contains("upgrade the resource manager"), "{text}");
    }
}
