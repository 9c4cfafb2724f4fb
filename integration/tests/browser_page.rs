//! The web page in a real browser with a real cluster: changes appear when they happen.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use headroom_client::Client;
use headroom_types::Bytes;
use headroom_wire::v1::operator::LeaderView;
use integration::browser::{Browser, PageAppearance, program};
use integration::cluster::{Cluster, JOB, NodeShape, SOON, until};
use integration::jobs::{JobFile, WorkLog};
use serde_json::Value;

/// Longest time from an event to its display. Milliseconds.
const SEEN_WITHIN: i64 = 1000;

/// A script that records when each of these elements appeared first: time of day in milliseconds,
/// by name.
const WATCH: &str = "
    window.firstSeen = {};
    window.loads = performance.getEntriesByType('navigation').length;
    const wanted = {
        kill: '[data-card=ladder] [data-task=\"large/0\"] [data-charge=memory]',
        retry: '[data-card=ladder] [data-task=\"large/0\"] .step:nth-of-type(2)',
        event: '[data-card=events] [data-event=OomKilled]',
        escalated: '[data-card=events] [data-event=Escalated]',
    };
    const look = () => {
        for (const [name, selector] of Object.entries(wanted))
            if (!window.firstSeen[name] && document.querySelector(selector)) window.firstSeen[name] = Date.now();
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, attributes: true });
    look(); true";

/// Starts a browser, or prints that the test is skipped.
#[allow(clippy::print_stdout)] // the runner counts these lines
fn browser() -> Option<Browser> {
    if program().is_none() {
        println!("SKIPPED: there is no chromium on this machine");
        return None;
    }
    Some(Browser::start().expect("a browser"))
}

fn skewed(cluster: &Cluster, gate: &Path) -> String {
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let after = gate.to_str().expect("UTF-8");
    let job = JobFile::new("skewed", 1, 4, Bytes::from_mib(32));
    let small = ["--mib", "8", "--over-ms", "300", "--after", after];
    let job = job
        .workload("small", 6, log.path(), &small)
        .expect("a stage");
    let job = job
        .workload(
            "large",
            1,
            log.path(),
            &["--mib", "88", "--over-ms", "1500", "--after", after],
        )
        .expect("a stage");
    let job = job.without_growth();
    job.text().to_owned()
}

#[allow(clippy::cast_possible_truncation)] // times of day are far below 2^53
fn milliseconds(value: &Value) -> i64 {
    value.as_f64().map(|n| n.round()).map_or(0, |n| n as i64)
}

/// The job page is open before the first kill: kill, next rung and verdict appear on it without a
/// reload, within a second.
#[test]
fn a_kill_appears_on_the_open_page_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let cluster = Cluster::of_one().expect("a cluster");
    let gate = cluster.dir().join("gate");
    let app = cluster.submit(&skewed(&cluster, &gate)).expect("submits");
    browser.look(PageAppearance::LIGHT).expect("looks");
    browser
        .open(&format!("{}/ui/#/job/{app}", cluster.url()))
        .expect("opens");
    browser
        .until("document.querySelector('[data-line=live]') && document.querySelector('[data-card=tasks] .grid a')", SOON)
        .expect("the job");
    browser
        .until(
            "document.querySelector('[data-card=events] [data-event]')",
            SOON,
        )
        .expect("its events");
    let before = browser
        .eval("document.querySelectorAll('[data-charge=memory], [data-event=OomKilled]').length")
        .expect("counts");
    assert_eq!(before, 0, "no attempt is killed yet");
    browser.eval(WATCH).expect("watches");
    fs::write(&gate, "").expect("opens the gate");
    cluster.until_ended(&app).expect("ends");
    browser
        .until("Object.keys(window.firstSeen).length === 4", SOON)
        .expect("all four changes");
    let end = cluster.app(&app).expect("the job");
    let rows = &end.job.as_ref().expect("rows").tasks;
    let row = rows
        .iter()
        .find(|t| t.task.to_string() == "large/0")
        .expect("the task");
    let killed = row
        .attempts
        .first()
        .and_then(|a| a.ended)
        .expect("an ended attempt");
    let again = row
        .attempts
        .get(1)
        .map(|a| a.started)
        .expect("a second attempt");
    let seen = browser.eval("window.firstSeen").expect("times");
    let after =
        |what: &str, at: u64| milliseconds(&seen[what]) - i64::try_from(at).expect("a time of day");
    for (what, at) in [
        ("kill", killed),
        ("event", killed),
        ("escalated", killed),
        ("retry", again),
    ] {
        let ms = after(what, at.0);
        assert!(
            (-50..=SEEN_WITHIN).contains(&ms),
            "{what} was seen {ms} ms after it happened"
        );
    }
    verdict(&mut browser, &cluster.url(), &format!("{app}/large/0"));
    assert_eq!(
        browser.complaints,
        Vec::<String>::new(),
        "the page reported errors"
    );
}

/// Checks the task page: verdict, evidence, cure, and the chart with its table.
fn verdict(browser: &mut Browser, url: &str, task: &str) {
    // Only the fragment of the address changes, so the page is not loaded again.
    browser.eval("window.stays = 1").expect("a mark");
    browser
        .eval(&format!("location.hash = '#/task/{task}'"))
        .expect("goes");
    browser
        .until(
            "document.querySelector('[data-card=verdict] [data-verdict=task_oom]')",
            SOON,
        )
        .expect("the verdict");
    let kills = browser
        .until("+document.querySelector('.chart').dataset.kills", SOON)
        .expect("kills in the chart");
    assert!(milliseconds(&kills) >= 1, "{kills}");
    let shown = browser
        .eval("document.querySelector('[data-card=verdict]').innerText")
        .expect("text");
    let shown = shown.as_str().expect("text");
    assert!(
        shown.contains("oom_kill") && shown.contains("limit"),
        "{shown}"
    );
    let command = browser
        .eval("[...document.querySelectorAll('.command code')].map(c => c.innerText).join('\\n')")
        .expect("commands");
    assert!(
        command
            .as_str()
            .is_some_and(|c| c.contains(&format!("rmctl diagnose {task}"))),
        "{command}"
    );
    assert_eq!(
        browser.eval("window.stays").expect("reads"),
        1,
        "the page was loaded again"
    );
    browser
        .open(&format!("{url}/ui/#/task/{task}@1"))
        .expect("the id that rmctl uses opens the page");
    browser
        .until(
            "document.querySelector('[data-card=verdict] [data-attempt$=\"@1\"]')",
            SOON,
        )
        .expect("that attempt");
}

/// A report needs no server: the file contains the job, the ladder, the verdict and the chart of a
/// task.
#[test]
fn a_report_file_needs_no_server_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let cluster = Cluster::of_one().expect("a cluster");
    let gate = cluster.dir().join("gate");
    fs::write(&gate, "").expect("an open gate");
    let app = cluster.submit(&skewed(&cluster, &gate)).expect("submits");
    cluster.until_ended(&app).expect("ends");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("report.html");
    let to = file.to_str().expect("UTF-8").to_owned();
    let ran = cluster
        .rmctl(&["job", "export", &app.to_string(), "--html", "--to", &to])
        .expect("runs");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    drop(cluster);
    browser.look(PageAppearance::LIGHT).expect("looks");
    browser.open(&format!("file://{to}")).expect("opens");
    browser
        .until("document.querySelector('[data-card=ladder] [data-task=\"large/0\"] [data-charge=memory]')", SOON)
        .expect("the ladder");
    browser
        .until(
            "document.querySelector('[data-card=events] [data-event=OomKilled]')",
            SOON,
        )
        .expect("its events");
    browser
        .eval(&format!("location.hash = '#/task/{app}/large/0'"))
        .expect("goes");
    browser
        .until(
            "document.querySelector('[data-card=verdict] [data-verdict=task_oom]')",
            SOON,
        )
        .expect("the verdict");
    browser
        .until("+document.querySelector('.chart').dataset.kills", SOON)
        .expect("kills in the chart");
    browser
        .picture(&pictures().join("report.png"), 2400)
        .expect("a picture");
    assert_eq!(
        browser.complaints,
        Vec::<String>::new(),
        "the report file reported errors"
    );
}

/// After the resource manager was killed and restarted, the stream continues without a reload.
#[test]
fn the_page_outlives_the_resource_manager_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let mut cluster = Cluster::of_one().expect("a cluster");
    browser
        .open(&format!("{}/", cluster.url()))
        .expect("leads to the page");
    browser
        .until("document.querySelector('[data-node=node-1]')", SOON)
        .expect("the node");
    assert!(browser.eval("location.pathname").expect("a path") == "/ui/");
    browser.eval("window.stays = 1").expect("a mark");
    cluster.kill_daemon("resourcemanager").expect("kills");
    browser
        .until("document.querySelector('[data-line=lost]')", SOON)
        .expect("the offline mark");
    cluster.start_resource_manager().expect("starts");
    browser
        .until("document.querySelector('[data-line=live]') && document.querySelector('[data-node=node-1]')", SOON)
        .expect("live again");
    assert_eq!(
        browser.eval("window.stays").expect("reads"),
        1,
        "the page was loaded again"
    );
}

/// An open page moves to the next leader when its own manager is a standby, and links to the other
/// managers when its own one is gone.
#[test]
fn the_page_finds_the_next_leader_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let lease = Duration::from_secs(1);
    let mut cluster =
        Cluster::start_replicated(&[NodeShape::default()], (2, 1), lease).expect("a cluster");
    let first = cluster.leading_manager().expect("a leader");
    let second = 3 - first;
    let url = |n| cluster.manager_url(n).expect("a manager");
    let (led, waits) = (url(first), url(second));
    until("both managers to be known", SOON, || {
        let view = cluster.call(Client::new(&led)?.get::<LeaderView>("/v1/leader"))?;
        Ok((view.managers.len() == 2).then_some(()))
    })
    .expect("both run");
    browser
        .open(&format!("{waits}/ui/#/nodes"))
        .expect("a standby redirects");
    let live_at = |url: &str| {
        format!(
            "location.href === '{url}/ui/#/nodes' && document.querySelector('[data-line=live]') && document.querySelector('[data-page=nodes] [data-row]')"
        )
    };
    browser.until(&live_at(&led), SOON).expect("the leader");

    let name = format!("rm-{first}");
    cluster.kill_daemon(&name).expect("kills");
    let link = format!("document.querySelector('[data-line=lost] [data-other=\"{waits}\"] a')");
    browser.until(&link, SOON).expect("a link");
    cluster.leading_manager().expect("the next leader");
    browser
        .eval(&format!("{link}.click(), 1"))
        .expect("a click");
    browser
        .until(&live_at(&waits), SOON)
        .expect("the next leader");

    // Its host comes back, and leads later: the page follows without a click.
    cluster.start_manager(first).expect("starts");
    let name = format!("rm-{second}");
    cluster.kill_daemon(&name).expect("kills");
    browser
        .until("document.querySelector('[data-line=lost]')", SOON)
        .expect("the offline mark");
    cluster.leading_manager().expect("the first one");
    cluster.start_manager(second).expect("starts");
    browser.until(&live_at(&led), SOON).expect("the leader");
}

/// Directory of screenshots for developers; they are not kept.
fn pictures() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&place).expect("a directory");
    place
}

/// Every page: its name, its address, and an element that it shows.
fn pages(app: &str, container: &str, user: &str) -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("overview", "overview".to_owned(), "[data-node]"),
        ("nodes", "nodes".into(), "[data-card=nodes] [data-row]"),
        ("node", "node/node-1".into(), "[data-card=topology]"),
        ("queues", "queues".into(), "[data-card=queues] [data-row]"),
        ("queue", "queue/root.default".into(), "[data-card=waits]"),
        ("jobs", "jobs".into(), "[data-card=jobs] [data-row]"),
        (
            "job",
            format!("job/{app}"),
            "[data-card=ladder] [data-charge=success]",
        ),
        (
            "task",
            format!("task/{app}/large/0"),
            "[data-card=verdict] [data-evidence]",
        ),
        (
            "container",
            format!("container/{container}"),
            "[data-card=timeline] .chart, [data-card=timeline] .empty",
        ),
        ("events", "events".into(), "[data-event=OomKilled]"),
        (
            "events-of-job",
            format!("events?app={app}"),
            "[data-event=OomKilled]",
        ),
        (
            "audit",
            "audit".into(),
            "[data-card=audit] [data-audit] [data-row], [data-card=audit] [data-audit]",
        ),
        (
            "profiles",
            "profiles".into(),
            "[data-card=profiles] [data-profile=slim]",
        ),
        (
            "suggestions",
            "profiles".into(),
            "[data-card=suggestions] [data-suggestion^=skewed]",
        ),
        (
            "profile",
            "profiles/slim".into(),
            "[data-card=suggestions] .empty, [data-card=suggestions] [data-suggestion]",
        ),
        ("sizes", "sizes".into(), "[data-card=families] [data-row]"),
        (
            "family",
            format!("family/{}/skewed", if user.is_empty() { "-" } else { user }),
            "[data-card=kind-large]",
        ),
    ]
}

/// Opens a page and checks that it is complete. Takes a picture of it.
fn show_page(
    browser: &mut Browser,
    url: &str,
    light: &str,
    (name, address, there): (&str, &str, &str),
) {
    browser
        .open(&format!("{url}/ui/#/{address}"))
        .expect("opens");
    browser
        .until(&format!("document.querySelector('{there}')"), SOON)
        .unwrap_or_else(|e| panic!("{name}: {e:#}"));
    whole(browser, name);
    if name == "audit" {
        let table = "document.querySelector('[data-card=audit] .scroll')";
        let beyond = browser
            .eval(&format!("{table}.scrollWidth - {table}.clientWidth"))
            .expect("a width");
        assert!(
            milliseconds(&beyond) <= 0,
            "in {light}, {beyond} pixels of the record have to be scrolled to"
        );
    }
    browser
        .picture(&pictures().join(format!("{name}-{light}.png")), 2400)
        .expect("a picture");
}

/// Every page in light, dark and narrow form: no overflow, a label on each element, no console
/// error.
#[test]
fn every_page_is_complete_in_every_theme_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let cluster = Cluster::of_one().expect("a cluster");
    let gate = cluster.dir().join("gate");
    fs::write(&gate, "").expect("is open");
    let app = cluster.submit(&skewed(&cluster, &gate)).expect("submits");
    cluster
        .until_app(&app, "a kill", JOB, |view| {
            (view.job.as_ref()?.totals.memory_kills > 0).then_some(())
        })
        .expect("a kill");
    let container = cluster
        .call(cluster.client().containers(Some(&app)))
        .expect("answers")
        .first()
        .expect("one")
        .id
        .to_string();
    let user = cluster.until_ended(&app).expect("ends").user;
    let kept = cluster
        .rmctl(&[
            "profile",
            "set",
            "slim",
            "--memory",
            "48MiB",
            "--about",
            "most scripts",
        ])
        .expect("runs");
    assert_eq!(kept.code, 0, "{}", kept.stderr);
    let pages = pages(&app.to_string(), &container, &user);
    for (light, look) in [
        ("light", PageAppearance::LIGHT),
        ("dark", PageAppearance::DARK),
        ("narrow", PageAppearance::NARROW),
    ] {
        browser.look(look).expect("looks");
        for (name, address, there) in &pages {
            show_page(&mut browser, &cluster.url(), light, (name, address, there));
        }
    }
    assert_eq!(
        browser.complaints,
        Vec::<String>::new(),
        "the page reported errors"
    );
}

fn whole(browser: &mut Browser, name: &str) {
    let wide = browser
        .eval("document.documentElement.scrollWidth - innerWidth")
        .expect("a width");
    assert!(
        milliseconds(&wide) <= 0,
        "{name} is {wide} pixels wider than its window"
    );
    let nameless = browser
        .eval(
            "[...document.querySelectorAll('a, button, input, select, [role=img]')]
                .filter(e => !(e.innerText?.trim() || e.getAttribute('aria-label') || e.title || e.closest('label')))
                .map(e => e.outerHTML.slice(0, 120))",
        )
        .expect("names");
    assert_eq!(
        nameless,
        Value::Array(Vec::new()),
        "{name} has elements without a label"
    );
    let alone = browser
        .eval("[...document.querySelectorAll('.chart, .bars, .topology, .ladder')].filter(e => !e.closest('.card')?.querySelector('details.twin')).length")
        .expect("twins");
    assert_eq!(alone, 0, "{name} has a chart without a table");
}

/// Presses a key on the focused element.
fn press(browser: &mut Browser, key: &str) {
    let script = format!(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})); true"
    );
    browser.eval(&script).expect("a key");
}

fn unknown_addresses_are_shown(browser: &mut Browser) {
    for address in ["#/nope", "#/jobs/none.7", "#/node", "#/%"] {
        browser
            .eval(&format!("location.hash = '{address}'"))
            .expect("goes");
        browser
            .until(
                "document.querySelector('main[data-page=unknown] [data-unknown]')",
                SOON,
            )
            .expect(address);
        let shown = browser
            .eval("document.querySelector('[data-unknown] code').innerText")
            .expect("text");
        assert_eq!(shown, address);
    }
}

/// A refused call for an unknown job appears on the open page.
fn a_call_appears_in_the_audit_log(cluster: &Cluster, browser: &mut Browser) {
    let before = browser
        .eval("document.querySelectorAll('[data-audit]').length")
        .expect("rows");
    cluster
        .call(
            cluster
                .client()
                .kill(&"none.7".parse().expect("an id"), None),
        )
        .expect_err("no such job");
    browser
        .until(
            &format!("document.querySelectorAll('[data-audit]').length > {before}"),
            SOON,
        )
        .expect("the call on the page");
    let shown = browser
        .eval("document.querySelector('[data-audit]').innerText")
        .expect("text");
    assert!(
        shown
            .as_str()
            .is_some_and(|t| t.contains("apps/none.7") && t.contains("HR0404")),
        "{shown}"
    );
}

/// Keyboard shortcuts navigate the pages.
#[test]
fn the_page_is_used_by_keyboard_on_this_host() {
    let Some(mut browser) = browser() else { return };
    let cluster = Cluster::of_one().expect("a cluster");
    browser
        .open(&format!("{}/ui/", cluster.url()))
        .expect("opens");
    browser
        .until("document.querySelector('[data-node=node-1]')", SOON)
        .expect("the node");
    press(&mut browser, "j");
    assert_eq!(
        browser
            .eval("document.activeElement.closest('[data-node]')?.dataset.node")
            .expect("focus"),
        "node-1"
    );
    press(&mut browser, "g");
    press(&mut browser, "n");
    browser
        .until(
            "document.querySelector('main[data-page=nodes] [data-row]')",
            SOON,
        )
        .expect("nodes");
    press(&mut browser, "g");
    press(&mut browser, "p");
    browser
        .until(
            "document.querySelector('main[data-page=profiles] [data-card=profiles] .empty')",
            SOON,
        )
        .expect("none yet");
    let set = cluster
        .rmctl(&["profile", "set", "slim", "--memory", "48MiB"])
        .expect("runs");
    assert_eq!(set.code, 0, "{}", set.stderr);
    browser
        .until("document.querySelector('[data-profile=slim]')", SOON)
        .expect("a new row");
    press(&mut browser, "g");
    press(&mut browser, "a");
    browser
        .until(
            "document.querySelector('main[data-page=audit] [data-card=audit]')",
            SOON,
        )
        .expect("changes");
    a_call_appears_in_the_audit_log(&cluster, &mut browser);
    press(&mut browser, "j");
    assert_eq!(
        browser
            .eval("location.hash = document.activeElement.getAttribute('href')")
            .expect("goes"),
        "#/job/none.7"
    );
    browser
        .until("document.querySelector('.nowhere')", SOON)
        .expect("there is no such job");
    unknown_addresses_are_shown(&mut browser);
    press(&mut browser, "?");
    browser
        .until("document.querySelector('[role=dialog]')", SOON)
        .expect("help");
    press(&mut browser, "Escape");
    browser
        .until("!document.querySelector('[role=dialog]')", SOON)
        .expect("closed");
    press(&mut browser, "/");
    assert_eq!(
        browser.eval("document.activeElement.type").expect("focus"),
        "search"
    );
}

/// The committed build of the page equals a build of its sources.
#[test]
#[allow(clippy::print_stdout)] // the runner counts these lines
fn the_built_page_is_that_of_its_sources() {
    if Command::new("npm").arg("--version").output().is_err() {
        println!("SKIPPED: there is no npm on this machine");
        return;
    }
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rm/server/ui/check");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-build");
    let ran = Command::new(check).arg(work).output().expect("runs");
    assert!(
        ran.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}
