//! Downloads an uploaded file from the resource manager, with the credentials of the agent.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use headroom_client::{Client, ClientError};
use headroom_node_core::LaunchFailureKind;
use headroom_types::{Bytes, Sha256};
use headroom_wire::v1::error::ErrorCode;

use crate::download::DownloadError;
use crate::launch_failure::LaunchError;

/// Time without data after which the resource manager is given up.
const SILENCE: Duration = Duration::from_secs(30);

/// Appends the uploaded file `sum` to `file`, at most `most` bytes.
pub(crate) async fn fetch(
    client: &Client,
    sum: Sha256,
    most: Bytes,
    file: &mut File,
) -> Result<(), DownloadError> {
    let mut pieces = client.uploaded_file(sum).await.map_err(failed)?;
    let silent = |_| {
        let seconds = SILENCE.as_secs();
        DownloadError::Net(anyhow!("the resource manager sent no data for {seconds} s"))
    };
    while let Some(piece) = tokio::time::timeout(SILENCE, pieces.next())
        .await
        .map_err(silent)?
    {
        let piece = piece.map_err(failed)?;
        if pieces.position() > most.get() {
            return Err(DownloadError::Final(anyhow!(
                "the file is larger than {most}"
            )));
        }
        file.write_all(&piece)
            .context("the download cannot be written to the cache")
            .map_err(DownloadError::Final)?;
    }
    Ok(())
}

/// Classifies an error. A resource manager that restarts or is overloaded answers later.
fn failed(error: ClientError) -> DownloadError {
    if error.code() == Some(ErrorCode::HR0404) {
        return DownloadError::Final(anyhow!(LaunchError::new(
            LaunchFailureKind::UploadMissing,
            format!("the resource manager does not have it: {error}"),
        )));
    }
    if error.retryable() {
        DownloadError::Net(anyhow!("{error}: {}", error.root_cause()))
    } else {
        DownloadError::Final(anyhow!(error))
    }
}

#[cfg(test)]
mod tests {
    use headroom_wire::v1::error::ProblemDetails;

    use super::*;

    #[test]
    fn a_missing_upload_is_final_and_an_overload_passes() {
        let of = |code| {
            failed(ClientError::Problem(Box::new(ProblemDetails::new(
                code, "no",
            ))))
        };
        match of(ErrorCode::HR0404) {
            DownloadError::Final(error) => {
                let failure = crate::launch_failure::from_error(&error);
                assert_eq!(failure.kind, LaunchFailureKind::UploadMissing);
            }
            DownloadError::Net(error) => panic!("{error:#} is final"),
        }
        for code in [ErrorCode::HR0421, ErrorCode::HR0429, ErrorCode::HR0503] {
            assert!(matches!(of(code), DownloadError::Net(_)), "{code}");
        }
        assert!(matches!(of(ErrorCode::HR0403), DownloadError::Final(_)));
    }
}
