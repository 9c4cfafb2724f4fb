//! Sign-in to the page in a real browser, at a cluster with remote listeners. Unauthenticated users
//! see nothing, readers see the cluster, and signing out ends the access.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::{Path, PathBuf};

use headroom_types::Bytes;
use integration::browser::{Browser, program};
use integration::cluster::{Cluster, NodeShape, SOON};
use serde_json::{Value, json};

const JOB: &str = "version = 1\nname = \"meanwhile\"\n[profiles.small]\nmemory = \"96MiB\"\ncpus = 0.5\n\
    [executors.small]\nprofile = \"small\"\nslots = 1\nreserve = \"64MiB\"\n\
    [[stage]]\nname = \"say\"\ncount = 1\nexecutors = \"small\"\ncommand = [\"true\"]\n";
/// Name of the session cookie.
const COOKIE: &str = "headroom_session";
/// A text that only authorized users may see.
const NODE: &str = "node-1";

/// Starts a secured cluster and a browser that trusts its manager, or prints that the test is
/// skipped.
#[allow(clippy::print_stdout)] // the runner counts these lines
fn both() -> Option<(Cluster, Browser)> {
    if program().is_none() {
        println!("SKIPPED: there is no chromium on this machine");
        return None;
    }
    let shape = NodeShape {
        memory: Bytes::from_mib(512),
        ..NodeShape::default()
    };
    let cluster = Cluster::start_secured(&[shape]).expect("a cluster");
    let certificate = cluster
        .papers()
        .expect("certificates")
        .manager()
        .join("cert.pem");
    let browser =
        Browser::trusting(&fs::read_to_string(certificate).expect("reads")).expect("a browser");
    Some((cluster, browser))
}

/// Creates a token for a user, in a file.
fn token(cluster: &Cluster, user: &str, rights: &str) -> PathBuf {
    let file = cluster.dir().join(format!("{user}.token"));
    let path = file.display().to_string();
    let made = [
        "acl", "token", "create", "--user", user, "--right", rights, "--out", &path,
    ];
    let ran = cluster.rmctl(&made).expect("runs");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    file
}

/// Revokes the token in a file. Returns its accessor.
fn revoke(cluster: &Cluster, file: &Path) -> String {
    let accessor = fs::read_to_string(file)
        .expect("reads")
        .split('_')
        .nth(1)
        .expect("three parts")
        .to_owned();
    let ran = cluster
        .rmctl(&["acl", "token", "revoke", &accessor])
        .expect("runs");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    accessor
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let found = browser
        .until(
            &format!("document.querySelector('{selector}')?.innerText"),
            SOON,
        )
        .expect("the element");
    found.as_str().expect("text").to_owned()
}

/// Checks that the page shows the form and nothing of the cluster.
fn outside(browser: &mut Browser) {
    browser
        .until("document.querySelector('.signin input[name=token]')", SOON)
        .expect("the form");
    browser
        .until("document.querySelector('[data-line=locked]')", SOON)
        .expect("the locked mark");
    let body = text(browser, "body");
    assert!(
        !body.contains(NODE),
        "an unauthenticated page names a node: {body}"
    );
    let shown = browser
        .eval("document.querySelectorAll('[data-row], [data-node], [data-card]').length")
        .expect("counts");
    assert_eq!(shown, 0, "{body}");
}

/// Types a token and presses the button, as a user does.
fn sign_in(browser: &mut Browser, token: &str) {
    browser.eval("(i => { i.value = ''; i.focus(); })(document.querySelector('.signin input[name=token]'))").expect("the field");
    browser
        .call("Input.insertText", json!({"text": token}))
        .expect("types");
    browser
        .eval("document.querySelector('.signin form button[type=submit]').click()")
        .expect("the button");
}

fn sign_in_from(browser: &mut Browser, file: &Path, user: &str) {
    sign_in(browser, fs::read_to_string(file).expect("reads").trim());
    browser
        .until(
            &format!("document.querySelector('[data-who=\"{user}\"]')"),
            SOON,
        )
        .expect("the name of the user");
    browser
        .until("document.querySelector('[data-line=live]')", SOON)
        .expect("live");
    assert_eq!(
        browser
            .eval("document.querySelectorAll('.signin').length")
            .expect("counts"),
        0
    );
}

fn sign_out(browser: &mut Browser) {
    browser
        .eval("document.querySelector('[data-who] button').click()")
        .expect("the button");
    outside(browser);
    assert_eq!(
        kept(browser, "https://127.0.0.1/"),
        Value::Null,
        "the cookie is gone"
    );
}

/// The cookie in the browser's store.
fn kept(browser: &mut Browser, url: &str) -> Value {
    let all = browser
        .call("Network.getCookies", json!({"urls": [url]}))
        .expect("cookies");
    let mut all = all["cookies"].as_array().expect("a list").iter();
    all.find(|cookie| cookie["name"] == COOKIE)
        .cloned()
        .unwrap_or_default()
}

/// Status and body of a call by a script in the page, with the headers that the browser adds.
fn fetched(browser: &mut Browser, method: &str, path: &str, body: &str) -> (u64, String) {
    let script = format!(
        "fetch('{path}', {{method: '{method}', headers: {{'content-type': 'application/json'}}, body: {body}}})
            .then(async a => ({{status: a.status, text: await a.text()}}))"
    );
    let answer = browser.eval(&script).expect("answers");
    (
        answer["status"].as_u64().expect("a status"),
        answer["text"].as_str().expect("text").to_owned(),
    )
}

/// Errors of the page, without the browser's own messages about refused calls, which are expected
/// here.
fn complaints(browser: &Browser) -> Vec<String> {
    let refused = |c: &&String| {
        !(c.contains("Failed to load resource") && (c.contains("401") || c.contains("403")))
    };
    browser.complaints.iter().filter(refused).cloned().collect()
}

#[test]
fn a_reader_signs_in_looks_and_signs_out_on_this_host() {
    let Some((cluster, mut browser)) = both() else {
        return;
    };
    let reader = token(&cluster, "rita", "cluster:read,job:read");
    browser
        .open(&format!("{}/ui/", cluster.url()))
        .expect("opens");
    outside(&mut browser);
    assert_eq!(
        fetched(&mut browser, "GET", "/v1/nodes", "undefined").0,
        401
    );
    let wrong = format!("hru_{}_{}", "0".repeat(16), "0".repeat(64));
    sign_in(&mut browser, &wrong);
    let why = text(&mut browser, ".signin [role=alert]");
    assert!(why.contains("this token is not known"), "{why}");
    outside(&mut browser);
    assert_eq!(
        browser.cookies,
        Vec::<String>::new(),
        "an invalid token leaves no cookie"
    );

    sign_in_from(&mut browser, &reader, "rita");
    browser
        .until(
            &format!("document.querySelector('[data-node={NODE}]')"),
            SOON,
        )
        .expect("the node");
    the_cookie_is_kept_from_others(&mut browser);
    browser
        .eval("window.stays = 1; location.hash = '#/jobs'")
        .expect("goes");
    browser
        .until(
            "document.querySelector('main[data-page=jobs] [data-card=jobs]')",
            SOON,
        )
        .expect("the list");
    let app = cluster.submit(JOB).expect("submits");
    browser
        .until(
            &format!("document.querySelector('[data-row][href*=\"{app}\"]')"),
            SOON,
        )
        .expect("a new row");
    cluster.until_ended(&app).expect("ends");
    assert_eq!(
        browser.eval("window.stays").expect("reads"),
        1,
        "the page was loaded again"
    );

    browser.call("Page.reload", json!({})).expect("loads again");
    browser
        .until(
            "!window.stays && document.querySelector('[data-who=rita]')",
            SOON,
        )
        .expect("still signed in");
    browser
        .until(
            &format!("document.querySelector('[data-row][href*=\"{app}\"]')"),
            SOON,
        )
        .expect("the row of the job");
    a_reader_changes_nothing(&cluster, &mut browser, &app.to_string());
    sign_out(&mut browser);
    assert_eq!(
        fetched(&mut browser, "GET", "/v1/nodes", "undefined").0,
        401
    );
    assert_eq!(
        complaints(&browser),
        Vec::<String>::new(),
        "the page reported errors"
    );
}

fn the_cookie_is_kept_from_others(browser: &mut Browser) {
    let [set] = browser.cookies.as_slice() else {
        panic!("one cookie: {:?}", browser.cookies)
    };
    let (pair, attributes) = set.split_once(';').expect("attributes");
    assert!(pair.starts_with(&format!("{COOKIE}=hru_")), "{pair}");
    let attributes: Vec<&str> = attributes.split(';').map(str::trim).collect();
    assert_eq!(
        attributes,
        ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"]
    );
    let cookie = kept(browser, "https://127.0.0.1/");
    assert_eq!(
        [&cookie["httpOnly"], &cookie["secure"], &cookie["session"]],
        [true, true, true],
        "{cookie}"
    );
    assert_eq!(cookie["sameSite"], "Strict", "{cookie}");
    assert_eq!(
        browser.eval("document.cookie").expect("reads"),
        "",
        "scripts cannot read the cookie"
    );
}

/// Checks that the page offers no changes to a reader. Changes and operators' data are refused with
/// a message.
fn a_reader_changes_nothing(cluster: &Cluster, browser: &mut Browser, app: &str) {
    browser
        .eval(&format!("location.hash = '#/job/{app}'"))
        .expect("goes");
    browser
        .until(
            "document.querySelector('main[data-page=job] [data-card=tasks]')",
            SOON,
        )
        .expect("the job");
    let pressed = browser
        .eval("[...document.querySelectorAll('main button')].map(b => b.getAttribute('aria-label') ?? b.innerText).filter(t => !t.startsWith('copy '))")
        .expect("buttons");
    let harmless = |label: &Value| {
        label.as_str().is_some_and(|l| {
            !["kill", "drain", "retry", "resize"]
                .iter()
                .any(|w| l.contains(w))
        })
    };
    assert!(
        pressed.as_array().expect("a list").iter().all(harmless),
        "{pressed}"
    );
    for (method, path) in [
        ("POST", format!("/v1/apps/{app}/kill")),
        ("POST", format!("/v1/nodes/{NODE}/drain")),
    ] {
        let (status, answer) = fetched(browser, method, &path, "'{}'");
        assert_eq!(status, 403, "{path}: {answer}");
        assert!(
            answer.contains("rita (token ") && answer.contains("may not do this: it needs"),
            "{path}: {answer}"
        );
    }
    browser.eval("location.hash = '#/audit'").expect("goes");
    let why = text(browser, "[data-barred] [role=alert]");
    assert!(
        why.contains("rita (token ") && why.contains("it needs the right operator:read"),
        "{why}"
    );
    assert!(
        !text(browser, "body").contains("apps/"),
        "the page shows no row of the audit log"
    );
    let (status, answer) = fetched(browser, "GET", "/v1/audit", "undefined");
    assert_eq!(status, 403, "{answer}");
    assert_eq!(
        cluster
            .app(&app.parse().expect("an id"))
            .expect("the job")
            .state
            .as_str(),
        "finished"
    );
}

#[test]
fn a_revoked_token_can_be_replaced_on_this_host() {
    let Some((cluster, mut browser)) = both() else {
        return;
    };
    let reader = token(&cluster, "rita", "cluster:read,job:read");
    browser
        .open(&format!("{}/ui/#/audit", cluster.url()))
        .expect("opens");
    outside(&mut browser);
    sign_in_from(&mut browser, &reader, "rita");
    let accessor = revoke(&cluster, &reader);
    assert_eq!(
        fetched(&mut browser, "GET", "/v1/nodes", "undefined").0,
        401,
        "from the next call on"
    );

    // The browser still sends the cookie. The page loads anyway, shows the problem, and accepts
    // another token.
    browser.call("Page.reload", json!({})).expect("loads again");
    outside(&mut browser);
    let why = text(&mut browser, "[data-stale]");
    assert!(
        why.contains("is no longer valid") && why.contains("revoked"),
        "{why}"
    );
    let admin = cluster.papers().expect("certificates").token();
    sign_in_from(&mut browser, &admin, "admin");
    browser
        .until(
            "document.querySelector('[data-card=audit] [data-audit]')",
            SOON,
        )
        .expect("the record");
    let record = text(&mut browser, "[data-card=audit]");
    assert!(
        record.contains(&format!("rita (token {accessor}) signed in")),
        "{record}"
    );
    assert!(
        !record.contains(fs::read_to_string(&reader).expect("reads").trim()),
        "a secret is in the record"
    );
    sign_out(&mut browser);

    // A user with an invalid token can also continue without one.
    let short = token(&cluster, "sam", "cluster:read");
    sign_in_from(&mut browser, &short, "sam");
    revoke(&cluster, &short);
    browser.call("Page.reload", json!({})).expect("loads again");
    browser
        .until("document.querySelector('[data-stale] button')", SOON)
        .expect("the button to continue without a token");
    browser
        .eval("document.querySelector('[data-stale] button').click()")
        .expect("the button");
    browser
        .until(
            "document.querySelector('.signin') && !document.querySelector('[data-stale]')",
            SOON,
        )
        .expect("forgotten");
    assert_eq!(kept(&mut browser, "https://127.0.0.1/"), Value::Null);
    assert_eq!(
        complaints(&browser),
        Vec::<String>::new(),
        "the page reported errors"
    );
}
