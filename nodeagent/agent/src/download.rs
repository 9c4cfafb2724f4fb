//! Downloads a URL into a file: HTTP or HTTPS, with redirects, limited in bytes and in time without
//! data.
//!
//! The whole agent uses one client. It is created for the first download: an agent without
//! downloads loads no certificates. A server is trusted if an authority of the host, or one in the
//! configuration, has signed its certificate.

use std::error::Error as StdError;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use axum::http::{Response, StatusCode, Uri, header};
use headroom_node_core::LaunchFailureKind;
use headroom_types::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

use crate::launch_failure::LaunchError;

/// Time without data after which a server is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum number of redirects.
const HOPS: usize = 10;

type DownloadClient = Client<HttpsConnector<HttpConnector>, Empty<axum::body::Bytes>>;

/// Downloads URLs.
#[derive(Debug)]
pub(crate) struct FileDownloader {
    ca_file: Option<PathBuf>,
    caller: OnceLock<DownloadClient>,
}

/// The cause of a failed download.
#[derive(Debug)]
pub(crate) enum DownloadError {
    /// A network error; a retry may help.
    Net(anyhow::Error),
    /// An error that a retry cannot fix.
    Final(anyhow::Error),
}

impl FileDownloader {
    /// A downloader that also trusts the authorities in `ca_file`.
    pub(crate) fn new(ca_file: Option<PathBuf>) -> FileDownloader {
        FileDownloader {
            ca_file,
            caller: OnceLock::new(),
        }
    }

    /// Appends the content of `from` to `file`, at most `most` bytes.
    pub(crate) async fn fetch(
        &self,
        from: &str,
        most: Bytes,
        file: &mut File,
    ) -> Result<(), DownloadError> {
        let mut body = self.find(from).await?.into_body();
        let mut here = 0u64;
        while let Some(frame) = in_time(body.frame()).await? {
            let Ok(piece) = frame.map_err(|e| failed(&e))?.into_data() else {
                continue;
            };
            here += piece.len() as u64;
            if here > most.get() {
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

    /// The successful response, after all redirects.
    async fn find(&self, from: &str) -> Result<Response<hyper::body::Incoming>, DownloadError> {
        let caller = self.caller().map_err(DownloadError::Final)?;
        let mut place: Url = from
            .parse()
            .context("the URL is invalid")
            .map_err(DownloadError::Final)?;
        for _ in 0..=HOPS {
            let uri: Uri = place
                .as_str()
                .parse()
                .context("the URL is invalid")
                .map_err(DownloadError::Final)?;
            let answer = in_time(caller.get(uri)).await?.map_err(|e| failed(&e))?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let next = answer
                .headers()
                .get(header::LOCATION)
                .filter(|_| answer.status().is_redirection());
            let Some(next) = next else {
                return Err(refused(answer.status()));
            };
            let next = next
                .to_str()
                .context("the redirect has no valid URL")
                .map_err(DownloadError::Final)?;
            place = led(&place, next).map_err(DownloadError::Final)?;
        }
        Err(DownloadError::Final(anyhow!(
            "the server redirects more than {HOPS} times"
        )))
    }

    fn caller(&self) -> anyhow::Result<&DownloadClient> {
        if let Some(made) = self.caller.get() {
            return Ok(made);
        }
        let made = caller(self.ca_file.as_deref())?;
        Ok(self.caller.get_or_init(|| made))
    }
}

fn caller(ca_file: Option<&Path>) -> anyhow::Result<DownloadClient> {
    let mut roots = RootCertStore::empty();
    let host = rustls_native_certs::load_native_certs();
    if host.certs.is_empty() {
        tracing::warn!(errors = ?host.errors, "this host has no trusted certificate authorities; install ca-certificates");
    }
    roots.add_parsable_certificates(host.certs);
    if let Some(path) = ca_file {
        let own = || {
            LaunchError::new(
                LaunchFailureKind::CaFileInvalid,
                format!(
                    "ca_file under [cache] in the node's configuration, {}",
                    path.display()
                ),
            )
        };
        let listed = CertificateDer::pem_file_iter(path).with_context(own)?;
        for certificate in listed {
            roots
                .add(certificate.with_context(own)?)
                .with_context(own)?;
        }
    }
    let tls =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_connect_timeout(Some(SILENCE));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(plain);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

async fn in_time<F: Future>(wait: F) -> Result<F::Output, DownloadError> {
    let silent = || {
        DownloadError::Net(anyhow!(
            "the server sent no data for {} s",
            SILENCE.as_secs()
        ))
    };
    tokio::time::timeout(SILENCE, wait)
        .await
        .map_err(|_| silent())
}

fn refused(status: StatusCode) -> DownloadError {
    DownloadError::Final(anyhow!("the server answers {status}"))
}

/// The target of a redirect from `place` to `next`: a URL, or a path of the same server.
fn led(place: &Url, next: &str) -> anyhow::Result<Url> {
    let next = place
        .join(next)
        .with_context(|| format!("the redirect to {next:?} is not a valid URL"))?;
    ensure!(
        place.scheme() != "https" || next.scheme() == "https",
        "the server redirects from https to {next}"
    );
    ensure!(
        matches!(next.scheme(), "http" | "https"),
        "the redirect to {next} is neither http nor https"
    );
    Ok(next)
}

/// Classifies a client error. An untrusted certificate is final; all other errors may pass.
fn failed(error: &(dyn StdError + 'static)) -> DownloadError {
    let mut words = error.to_string();
    let mut cause = error.source();
    let mut distrust = false;
    while let Some(e) = cause {
        distrust |= distrusts(e);
        words = format!("{words}: {e}");
        cause = e.source();
    }
    if distrust {
        let sentence = format!("the certificate of the server is not trusted ({words})");
        return DownloadError::Final(anyhow!(LaunchError::new(
            LaunchFailureKind::ServerNotTrusted,
            sentence
        )));
    }
    DownloadError::Net(anyhow!("{words}"))
}

/// Whether an error is an invalid certificate. An `io::Error` does not return its inner error as
/// its source.
fn distrusts(error: &(dyn StdError + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
        .is_some_and(|inner| distrusts(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(place: &str, next: &str) -> String {
        led(&place.parse().expect("an address"), next)
            .map_or_else(|e| format!("{e:#}"), |uri| uri.to_string())
    }

    #[test]
    fn a_redirect_is_a_url_or_a_path_of_the_same_server() {
        assert_eq!(to("http://a:1/b/c", "http://d/e"), "http://d/e");
        assert_eq!(to("http://a:1/b/c", "https://d/e"), "https://d/e");
        assert_eq!(to("https://a:1/b/c", "//d/e?f=1"), "https://d/e?f=1");
        assert_eq!(to("https://a:1/b/c", "/e?f=1"), "https://a:1/e?f=1");
        assert_eq!(to("https://a:1/b/c", "e"), "https://a:1/b/e");
    }

    fn kind(error: &anyhow::Error) -> LaunchFailureKind {
        crate::launch_failure::from_error(error).kind
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn an_untrusted_server_and_a_bad_ca_file_have_kinds() {
        let issuer = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        match failed(&Wrapped(io::Error::other(issuer))) {
            DownloadError::Final(error) => {
                assert_eq!(kind(&error), LaunchFailureKind::ServerNotTrusted);
            }
            DownloadError::Net(error) => panic!("{error:#} is not final"),
        }
        match failed(&Wrapped(io::Error::other("is not trusted, ca_file"))) {
            DownloadError::Net(error) => assert_eq!(kind(&error), LaunchFailureKind::Internal),
            DownloadError::Final(error) => panic!("{error:#} may pass"),
        }
        let error = caller(Some(Path::new("/no/such/authorities.pem"))).expect_err("missing");
        assert_eq!(kind(&error), LaunchFailureKind::CaFileInvalid);
    }

    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        assert_eq!(
            to("https://a/b", "http://a/b"),
            "the server redirects from https to http://a/b"
        );
        assert!(to("https://a/b", "https://[x").contains("is not a valid URL"));
        assert_eq!(
            to("http://a/b", "file:///etc/passwd"),
            "the redirect to file:///etc/passwd is neither http nor https"
        );
    }
}
