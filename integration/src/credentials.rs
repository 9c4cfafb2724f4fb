//! Certificates and tokens of a test cluster, created with `rmctl` as an operator does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use headroom_client::{Client, ClientCredentials, TokenSource};
use headroom_transport::CertificateFiles;

use crate::cluster::{ProgramOutput, ran};
use crate::programs;

/// The directory of a cluster's certificates and tokens.
#[derive(Clone, Debug)]
pub struct ClusterCredentials {
    dir: PathBuf,
}

impl ClusterCredentials {
    /// Creates an authority, a certificate for a manager on this host, and the manager's
    /// configuration.
    pub fn new(dir: &Path) -> Result<Self> {
        let papers = ClusterCredentials {
            dir: dir.to_owned(),
        };
        fs::create_dir_all(dir)?;
        let place = papers.authority().display().to_string();
        papers.well("", &["ca", "init", "--dir", &place, "--name", "test"])?;
        let manager = papers.manager().display().to_string();
        papers.well(
            "",
            &[
                "ca",
                "issue",
                "manager",
                "--dir",
                &place,
                "--at",
                "127.0.0.1",
                "--at",
                "localhost",
                "--tls",
                &manager,
            ],
        )?;
        let config = format!("tls = {manager:?}\nauthority = {place:?}\nanonymous = \"nothing\"\n");
        fs::write(papers.config(), config)?;
        Ok(papers)
    }

    /// Directory of the authority.
    pub fn authority(&self) -> PathBuf {
        self.dir.join("authority")
    }
    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.authority().join("ca.pem")
    }
    /// Directory of the manager's certificate.
    pub fn manager(&self) -> PathBuf {
        self.dir.join("manager")
    }
    /// Directory of a node's certificate.
    pub fn node(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
    /// The manager's configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join("resourcemanager.toml")
    }
    /// File of the administrator's token.
    pub fn token(&self) -> PathBuf {
        self.dir.join("admin.token")
    }

    /// Stores the first token of the cluster at `url`.
    pub fn bootstrap(&self, url: &str) -> Result<()> {
        let first = self.well(url, &["acl", "bootstrap", "-o", "name"])?;
        let kept = self.token();
        headroom_identity::files::write(
            &kept,
            first.stdout.trim(),
            headroom_identity::files::FileReaders::Owner,
            headroom_identity::files::OverwritePolicy::Keep,
        )
        .with_context(|| kept.display().to_string())
    }

    /// Joins this host as the node `name` to the cluster at `url`, with a join token.
    pub fn join(&self, url: &str, name: &str) -> Result<()> {
        let token = self.dir.join(format!("{name}.token"));
        let (file, out) = (
            token.display().to_string(),
            self.node(name).display().to_string(),
        );
        self.well(
            url,
            &[
                "acl",
                "join-token",
                "create",
                "--node",
                name,
                "--at",
                "127.0.0.1",
                "--out",
                &file,
            ],
        )?;
        let pin = self
            .well(
                url,
                &["ca", "show", &self.ca().display().to_string(), "-o", "name"],
            )?
            .stdout;
        let pin = pin.trim();
        let join = [
            "node",
            "join",
            "--pin",
            pin,
            "--token-file",
            &file,
            "--name",
            name,
            "--at",
            "127.0.0.1",
            "--out",
            &out,
        ];
        self.well(url, &join)?;
        Ok(())
    }

    /// Runs `rmctl` with the administrator's token.
    pub fn rmctl(&self, url: &str, arguments: &[&str]) -> Result<ProgramOutput> {
        let token = self.token();
        self.rmctl_as(url, token.exists().then_some(token.as_path()), arguments)
    }

    /// Runs `rmctl` with this token, or without a token.
    pub fn rmctl_as(
        &self,
        url: &str,
        token: Option<&Path>,
        arguments: &[&str],
    ) -> Result<ProgramOutput> {
        let mut command = std::process::Command::new(programs::path("rmctl")?);
        command
            .args(arguments)
            .env(programs::DIR_VARIABLE, programs::dir()?)
            .env("HEADROOM_CACERT", self.ca());
        if !url.is_empty() {
            command.env("HEADROOM_ADDR", url);
        }
        if let Some(token) = token {
            command.env("HEADROOM_TOKEN_FILE", token);
        }
        ran(command)
    }

    /// A client with the administrator's token.
    pub fn client(&self, url: &str) -> Result<Client> {
        let files = CertificateFiles {
            ca: Some(self.ca()),
            own: None,
        };
        Ok(Client::with_credentials(
            url,
            ClientCredentials {
                files,
                token: TokenSource::File(self.token()),
                ..ClientCredentials::default()
            },
        )?)
    }

    fn well(&self, url: &str, arguments: &[&str]) -> Result<ProgramOutput> {
        let ran = self.rmctl(url, arguments)?;
        ensure!(
            ran.code == 0,
            "rmctl {arguments:?}: exit code {}\n{}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
        Ok(ran)
    }
}
