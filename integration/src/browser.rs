//! A headless browser, driven over two pipes with the Chrome `DevTools` protocol.
//!
//! One test or measurement owns it. Every call has a deadline. Dropping it ends the browser and
//! removes its profile.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::clock;

/// Timeout of one protocol call on a loaded machine.
const CALL: Duration = Duration::from_secs(60);
/// Timeout for the browser to exit after `Browser.close`.
const END: Duration = Duration::from_secs(10);
/// Names of programs that implement the protocol, in the order of preference.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The viewport and the color scheme of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageAppearance {
    /// Width of the window. Pixels.
    pub width: u32,
    /// Its height. Pixels.
    pub height: u32,
    /// `light` or `dark`.
    pub scheme: &'static str,
}

impl PageAppearance {
    /// A desktop window in the light scheme.
    pub const LIGHT: PageAppearance = PageAppearance {
        width: 1280,
        height: 900,
        scheme: "light",
    };
    /// A desktop window in the dark scheme.
    pub const DARK: PageAppearance = PageAppearance {
        scheme: "dark",
        ..PageAppearance::LIGHT
    };
    /// The narrowest supported window.
    pub const NARROW: PageAppearance = PageAppearance {
        width: 360,
        height: 740,
        scheme: "light",
    };
}

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    calls: u64,
    session: Option<String>,
    /// Errors that the page wrote to its console, and its uncaught exceptions.
    pub complaints: Vec<String>,
    /// Data that the page received over the network. Bytes.
    pub received: u64,
    /// Every `Set-Cookie` header that the page received, in order.
    pub cookies: Vec<String>,
    dir: tempfile::TempDir,
}

/// The first browser on `PATH`; `None` without one.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES
        .iter()
        .flat_map(|name| places.iter().map(move |place| place.join(name)))
        .find(|program| program.is_file())
}

impl Browser {
    /// Starts a browser with an empty page.
    pub fn start() -> Result<Self> {
        Browser::start_with(&[])
    }

    /// As [`Browser::start`], with one more trusted certificate (PEM). Other certificates are
    /// checked against the public authorities only.
    pub fn trusting(certificate: &str) -> Result<Self> {
        let der = headroom_identity::certificates(certificate)?
            .into_iter()
            .next()
            .context("a certificate")?;
        let (_, read) = x509_parser::parse_x509_certificate(&der)?;
        let key =
            base64::engine::general_purpose::STANDARD.encode(Sha256::digest(read.public_key().raw));
        Browser::start_with(&[&format!("--ignore-certificate-errors-spki-list={key}")])
    }

    fn start_with(more: &[&str]) -> Result<Self> {
        let program = program().context("no chromium: `apt-get install -y chromium`")?;
        let dir = tempfile::Builder::new()
            .prefix("headroom-browser-")
            .tempdir()?;
        let log = File::create(dir.path().join("log"))?;
        // The browser reads commands from descriptor 3 and writes answers to descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2"])
            .arg(&program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-sync",
                "--mute-audio",
            ])
            .args([
                "--disable-component-update",
                "--disable-extensions",
                "--no-proxy-server",
                "--force-color-profile=srgb",
            ])
            .args(more)
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .env("HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let to = child.stdin.take().context("the pipe of the browser")?;
        let mut lines = BufReader::new(child.stdout.take().context("the pipe of the browser")?);
        let (sender, from) = channel();
        // The thread ends when the browser closes its end of the pipe.
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while lines.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                if value.is_ok_and(|value| sender.send(value).is_err()) {
                    return;
                }
                message.clear();
            }
        });
        let (complaints, cookies) = (Vec::new(), Vec::new());
        let mut browser = Browser {
            child,
            to,
            from,
            calls: 0,
            session: None,
            complaints,
            received: 0,
            cookies,
            dir,
        };
        browser
            .attach()
            .with_context(|| format!("the log of the browser: {}", browser.log()))?;
        Ok(browser)
    }

    fn attach(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        )?;
        self.session = Some(
            attached["sessionId"]
                .as_str()
                .context("a session")?
                .to_owned(),
        );
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Makes one call of the protocol and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to
            .write_all(&bytes)
            .with_context(|| format!("the browser has ended; its log: {}", self.log()))?;
        let until = Instant::now() + CALL;
        loop {
            let message = match self
                .from
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{method} was not answered within {} s", CALL.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the browser ended at {method}; its log: {}", self.log())
                }
            };
            if message["id"] == json!(self.calls) {
                ensure!(
                    message["error"].is_null(),
                    "{method}: {}",
                    message["error"]["message"]
                );
                return Ok(message["result"].clone());
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        let text = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                Some(params["entry"].to_string())
            }
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                Some(params["args"].to_string())
            }
            Some(_) | None => None,
        };
        self.complaints.extend(text);
        if message["method"] == "Network.responseReceivedExtraInfo" {
            let headers = params["headers"].as_object().into_iter().flatten();
            let set = headers.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
            self.cookies
                .extend(set.filter_map(|(_, value)| Some(value.as_str()?.to_owned())));
        }
        if message["method"] == "Network.dataReceived" {
            // For a stream that is still open, the browser reports only `dataLength`.
            let wire = params["encodedDataLength"].as_u64().filter(|n| *n > 0);
            self.received += wire.or_else(|| params["dataLength"].as_u64()).unwrap_or(0);
        }
    }

    /// Applies a viewport and a color scheme.
    pub fn look(&mut self, look: PageAppearance) -> Result<()> {
        let PageAppearance {
            width,
            height,
            scheme,
        } = look;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        Ok(())
    }

    /// Navigates to an address.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let went = self.call("Page.navigate", json!({"url": url}))?;
        ensure!(went["errorText"].is_null(), "{url}: {}", went["errorText"]);
        Ok(())
    }

    /// Evaluates an expression in the page. A promise is awaited.
    pub fn eval(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let found = self.call("Runtime.evaluate", params)?;
        ensure!(
            found["exceptionDetails"].is_null(),
            "{expression}: {}",
            found["exceptionDetails"]
        );
        Ok(found["result"]["value"].clone())
    }

    /// Waits until an expression in the page is neither null, false, 0 nor empty, and returns its
    /// value.
    pub fn until(&mut self, expression: &str, time: Duration) -> Result<Value> {
        let deadline = Instant::now() + time;
        loop {
            let value = self.eval(expression)?;
            if ![Value::Null, json!(false), json!(0), json!("")].contains(&value) {
                return Ok(value);
            }
            if Instant::now() >= deadline {
                let text = self.eval("document.body?.innerText").unwrap_or_default();
                bail!(
                    "timed out after {} s waiting for {expression}; page errors {:?}; the page shows {text}",
                    time.as_secs(),
                    self.complaints
                );
            }
            clock::pause(Duration::from_millis(20));
        }
    }

    /// Writes a screenshot of the whole page, at most `most` pixels high.
    pub fn picture(&mut self, file: &Path, most: u32) -> Result<()> {
        let size = self.call("Page.getLayoutMetrics", json!({}))?;
        let (width, height) = (
            &size["cssContentSize"]["width"],
            size["cssContentSize"]["height"].as_f64().unwrap_or(0.0),
        );
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height.min(f64::from(most)), "scale": 1});
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "clip": clip, "captureBeyondViewport": true}),
        )?;
        let data = shot["data"].as_str().context("a picture")?;
        fs::write(
            file,
            base64::engine::general_purpose::STANDARD
                .decode(data)
                .context("base64")?,
        )
        .with_context(|| file.display().to_string())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let asked = self.call("Browser.close", json!({})).is_ok();
        let until = Instant::now() + END;
        while asked && Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            clock::pause(Duration::from_millis(10));
        }
        // The browser did not exit by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
