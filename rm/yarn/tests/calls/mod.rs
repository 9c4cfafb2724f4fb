//! Calls as a program for YARN makes them.

#![allow(dead_code)] // each test file uses only a part

use std::path::Path;

use headroom_client::Client;
use headroom_rm_server::{ManagerOptions, RunningManager, start_for};
use reqwest::Method;
use serde_json::Value;

use crate::fakes::soon;

/// Starts a resource manager with the YARN interface.
pub(crate) async fn yarn_resource_manager(state: &Path) -> (RunningManager, Client) {
    let listen = "127.0.0.1:0".parse().expect("address");
    let options = ManagerOptions::new(listen, state.to_owned());
    let running = start_for(options, None, &[headroom_rm_yarn::routes])
        .await
        .expect("starts");
    let client = Client::new(&running.url).expect("address");
    (running, client)
}

/// The YARN interface of one resource manager.
#[derive(Clone, Debug)]
pub(crate) struct Yarn {
    http: reqwest::Client,
    url: String,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) text: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {:?}", self.text))
    }
    /// Exception of an error response, whose format must be that of YARN.
    pub(crate) fn exception(&self) -> String {
        let body = self.json();
        let of = |key: &str| {
            body["RemoteException"][key]
                .as_str()
                .unwrap_or_else(|| panic!("no {key} in {body}"))
                .to_owned()
        };
        assert!(
            of("javaClassName").ends_with(&format!(".{}", of("exception"))),
            "{body}"
        );
        assert!(of("message").starts_with("java.lang.Exception: "), "{body}");
        of("exception")
    }
}

impl Yarn {
    pub(crate) fn new(url: &str) -> Self {
        Yarn {
            http: reqwest::Client::new(),
            url: url.to_owned(),
        }
    }
    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.call(Method::GET, path, None, None).await
    }
    pub(crate) async fn post(&self, path: &str, body: Option<Value>) -> Answered {
        self.call(Method::POST, path, body, None).await
    }
    pub(crate) async fn put(&self, path: &str, body: Value) -> Answered {
        self.call(Method::PUT, path, Some(body), None).await
    }
    /// Makes a call. A path is below `/ws/v1/cluster`, unless it begins with a slash.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        accept: Option<&str>,
    ) -> Answered {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/ws/v1/cluster/{path}")
        };
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        soon(&path, async {
            let response = request.send().await.expect("answers");
            let location = response
                .headers()
                .get("location")
                .and_then(|v| v.to_str().ok())
                .map(str::to_owned);
            let status = response.status().as_u16();
            Answered {
                status,
                location,
                text: response.text().await.expect("a body"),
            }
        })
        .await
    }
}
