//! Kernel files: the kernel writes them, but watched programs often choose the names in them.

use headroom_node_cgroup::parse;
use headroom_node_core::maps;
use headroom_types::Bytes;

/// Runs all parsers of kernel texts on this text.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    figures(&text);
    places(&text);
    let facts = maps::parse(&text);
    assert_eq!(facts, maps::parse(&text));
    names(data);
}

fn figures(text: &str) {
    let events = parse::memory_events(text);
    assert_eq!(
        Some(events.oom_kill),
        parse::keyed(text, "oom_kill").or(Some(0))
    );
    let (two, one) = (
        parse::stat_v2(text),
        parse::stat_v1(text, Some(Bytes::ZERO)),
    );
    assert_eq!(two.anon.map(Bytes::get), parse::keyed(text, "anon"));
    assert_eq!(one.anon.map(Bytes::get), parse::keyed(text, "total_rss"));
    if let Some(control) = parse::oom_control(text) {
        assert_eq!(control.oom_kill, parse::keyed(text, "oom_kill"));
    }
    if let Some(bytes) = parse::limit(text).and_then(parse::CgroupLimitValue::bytes) {
        assert_eq!(
            parse::limit(&bytes.get().to_string()).and_then(parse::CgroupLimitValue::bytes),
            Some(bytes)
        );
    }
    let pids = parse::pids(text);
    assert!(pids.iter().all(|pid| *pid > 0) && pids.len() <= text.len());
    let _ = (
        parse::number(text),
        parse::read_chars(text),
        parse::populated(text),
        parse::words(text),
    );
    let _ = parse::status(text, "Uid:").map(Iterator::count);
}

fn places(text: &str) {
    let mounts = parse::mountinfo(text);
    assert!(mounts.iter().all(|m| m.fstype.starts_with("cgroup")));
    let memberships = parse::self_cgroup(text);
    assert!(memberships.len() <= text.lines().count());
}

/// A process name of any form does not change the fields after it.
fn names(name: &[u8]) {
    let name = name.get(..name.len().min(15)).unwrap_or_default();
    let rest =
        b") S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 200 18446744073709551615\n";
    let stat = [b"7 (", name, rest].concat();
    assert_eq!(
        headroom_node_process::procstat::parse(&stat).map(|s| (s.state, s.starttime)),
        Some(('S', 98765))
    );
    assert_eq!(
        parse::starttime(&String::from_utf8_lossy(&stat)),
        Some(98765)
    );
    let _ = headroom_node_process::procstat::parse(name);
}
