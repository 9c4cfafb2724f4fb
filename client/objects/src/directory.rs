//! A directory of objects and its operations.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use headroom_config::ObjectUrl;
use headroom_identity::tls;
use headroom_transport::keys;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreExt as _, PutMode,
    PutPayload, RetryConfig,
};

use crate::error::ObjectError;
use crate::variables::StoreVariables;

/// Timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a failed request is repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of repetitions of a failed request.
const MAX_RETRIES: usize = 2;

/// Result of [`ObjectDirectory::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateResult {
    /// The object was created. It is durable.
    Created,
    /// There is an object with this name. It may be that of an earlier request of this process
    /// whose answer was lost.
    Exists,
}

/// A directory of objects. Names of objects have no `/`.
#[derive(Clone, Debug)]
pub struct ObjectDirectory {
    store: Arc<dyn ObjectStore>,
    path: Path,
    url: String,
}

impl ObjectDirectory {
    /// The directory with this URL. No request is sent.
    ///
    /// # Errors
    /// The variables have no valid address, or the certificates cannot be read.
    pub fn open(url: &ObjectUrl, variables: &StoreVariables) -> Result<Self, ObjectError> {
        let failed = |source| ObjectError::new(url.to_string(), "opened", source);
        let connector = client(variables).map_err(|source| {
            failed(StoreError::Generic {
                store: "S3",
                source,
            })
        })?;
        let mut builder = AmazonS3Builder::new().with_bucket_name(url.bucket());
        for (name, value) in variables.iter() {
            // The library knows no other names, such as those of profiles.
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_http_connector(connector)
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: MAX_RETRIES,
                retry_timeout: RETRY_TIMEOUT,
            })
            .build()
            .map_err(failed)?;
        Ok(ObjectDirectory {
            store: Arc::new(store),
            path: Path::from(url.prefix()),
            url: url.to_string(),
        })
    }

    /// A directory in the memory of this process.
    #[cfg(feature = "testkit")]
    pub fn in_memory() -> Self {
        ObjectDirectory {
            store: Arc::new(object_store::memory::InMemory::new()),
            path: Path::default(),
            url: "memory:".to_owned(),
        }
    }

    /// The directory with this name in this one.
    pub fn directory(&self, name: &str) -> Self {
        ObjectDirectory {
            store: Arc::clone(&self.store),
            path: self.path.clone().join(name),
            url: format!("{}/{name}", self.url),
        }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn failed(&self, name: &str, doing: &'static str) -> impl FnOnce(StoreError) -> ObjectError {
        let name = match name {
            "" => self.url.clone(),
            name => format!("{}/{name}", self.url),
        };
        move |source| ObjectError::new(name, doing, source)
    }

    fn at(&self, name: &str) -> Path {
        self.path.clone().join(name)
    }

    /// Creates an object, unless there is one with this name.
    ///
    /// # Errors
    /// Errors of the store. The object may have been created.
    pub async fn create(&self, name: &str, data: Bytes) -> Result<CreateResult, ObjectError> {
        let payload = PutPayload::from_bytes(data);
        let options = PutMode::Create.into();
        match self.store.put_opts(&self.at(name), payload, options).await {
            Ok(_) => Ok(CreateResult::Created),
            // The second one is the answer while another writer creates the same object.
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                Ok(CreateResult::Exists)
            }
            Err(error) => Err(self.failed(name, "created")(error)),
        }
    }

    /// Creates an object, or replaces one with this name.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn replace(&self, name: &str, data: Bytes) -> Result<(), ObjectError> {
        let payload = PutPayload::from_bytes(data);
        let put = self.store.put(&self.at(name), payload).await;
        put.map(drop).map_err(self.failed(name, "written"))
    }

    /// Reads an object; `None` if there is none with this name.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn read(&self, name: &str) -> Result<Option<Bytes>, ObjectError> {
        let read = async { self.store.get(&self.at(name)).await?.bytes().await };
        match read.await {
            Ok(data) => Ok(Some(data)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, "read")(error)),
        }
    }

    /// The names of all objects, in ascending order.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(&self) -> Result<Vec<String>, ObjectError> {
        let listed = self.store.list(Some(&self.path));
        let names = listed.map_ok(|object| object.location.filename().map(str::to_owned));
        let names: Vec<_> = names
            .try_collect()
            .await
            .map_err(self.failed("", "listed"))?;
        let mut names: Vec<String> = names.into_iter().flatten().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes these objects. Missing ones are skipped.
    ///
    /// # Errors
    /// Errors of the store; some objects may have been removed.
    pub async fn remove(&self, names: Vec<String>) -> Result<(), ObjectError> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.at(name))).collect();
        let removed = self
            .store
            .delete_stream(futures_util::stream::iter(paths).boxed());
        let ended = removed.try_for_each(|path| {
            drop(path);
            std::future::ready(Ok(()))
        });
        match ended.await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("", "removed")(error)),
        }
    }

    /// Removes all objects.
    ///
    /// # Errors
    /// As [`ObjectDirectory::remove`].
    pub async fn remove_all(&self) -> Result<(), ObjectError> {
        let names = self.list().await?;
        self.remove(names).await
    }
}

/// A client of the store with the TLS of this project.
#[derive(Clone, Debug)]
struct StoreClient(reqwest::Client);

impl HttpConnector for StoreClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

fn client(
    variables: &StoreVariables,
) -> Result<StoreClient, Box<dyn std::error::Error + Send + Sync>> {
    let tls = match variables.certificates() {
        Some(path) => tls::foreign_client(Some(&std::fs::read_to_string(path)?), None)?,
        // A store without TLS needs no authorities.
        None => keys::host_authorities_config().or_else(|_| keys::trust_none_config())?,
    };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .build()?;
    Ok(StoreClient(client))
}
