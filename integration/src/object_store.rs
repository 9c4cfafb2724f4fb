//! An object store with the interface of S3 for tests: the server of moto, from PyPI. It keeps objects in
//! its memory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use headroom_config::ObjectUrl;
use headroom_objects::{ObjectDirectory, StoreVariables};
use tempfile::TempDir;

use crate::background::BackgroundProgram;
use crate::cluster::{SOON, free_port, until};
use crate::python::PythonEnvironment;

const BUCKET: &str = "journals";
/// The directory of journals.
const URL: &str = "s3://journals/cluster";

/// A running object store with one empty bucket.
#[derive(Debug)]
pub struct ObjectStoreServer {
    dir: TempDir,
    port: u16,
    runtime: tokio::runtime::Runtime,
    /// `None` after its end.
    server: Option<BackgroundProgram>,
}

impl ObjectStoreServer {
    /// Starts the server, creates the bucket, and writes the file of variables.
    pub fn start() -> Result<ObjectStoreServer> {
        let (environment, port) = (PythonEnvironment::find()?, free_port()?);
        let mut command = Command::new(environment.interpreter().with_file_name("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = ObjectStoreServer {
            dir: tempfile::Builder::new()
                .prefix("headroom-store-")
                .tempdir()?,
            port,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            server: Some(BackgroundProgram::start(command)?),
        };
        let variables = format!(
            "# The server accepts every key.\nAWS_ENDPOINT_URL=http://127.0.0.1:{port}\nAWS_ALLOW_HTTP=true\n\
             AWS_REGION=us-east-1\nAWS_ACCESS_KEY_ID=test\nAWS_SECRET_ACCESS_KEY=test\n"
        );
        fs::write(server.variables(), variables)?;
        until("the object store to answer", SOON, || {
            Ok(server.create_bucket().is_ok().then_some(()))
        })?;
        Ok(server)
    }

    fn create_bucket(&self) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let request = format!("PUT /{BUCKET} HTTP/1.0\r\nHost: s3\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.contains(" 200 "), "{answer}");
        Ok(())
    }

    /// The file with the variables of the store.
    pub fn variables(&self) -> PathBuf {
        self.dir.path().join("object-store.env")
    }

    /// The configuration of node agents whose masters have their journals here.
    pub fn agent_keys(&self) -> String {
        let file = self.variables();
        format!("[masters]\njournals = {URL:?}\nobject_store = {file:?}\n")
    }

    /// The directory of journals.
    pub fn directory(&self) -> Result<ObjectDirectory> {
        let url: ObjectUrl = URL.parse().map_err(anyhow::Error::msg)?;
        let variables = StoreVariables::read(&self.variables())?;
        ObjectDirectory::open(&url, &variables).context("the directory of journals")
    }

    /// Names of the objects of all journals.
    pub fn objects(&self) -> Result<Vec<String>> {
        let directory = self.directory()?;
        Ok(self.runtime.block_on(directory.list())?)
    }

    /// Checks the directory of journals as a node agent does.
    pub fn probe(&self) -> Result<()> {
        let directory = self.directory()?;
        Ok(self.runtime.block_on(directory.probe("test"))?)
    }

    /// Ends the server. Its objects are lost; the file of variables stays.
    pub fn stop(&mut self) {
        self.server = None;
    }
}
