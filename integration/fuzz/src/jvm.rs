//! Data of a JVM: its shared counters, which the watched program itself writes, and the log of its
//! collector.

use headroom_node_core::{gclog, hsperf, marker};

/// The parser reads only the given bytes and is deterministic.
pub fn check(data: &[u8]) {
    let facts = hsperf::parse(data);
    assert_eq!(facts, hsperf::parse(data));
    match &facts {
        Ok(facts) => {
            // Bytes after the last entry are not read.
            let longer = [data, &[0xff; 16]].concat();
            assert_eq!(hsperf::parse(&longer).as_ref(), Ok(facts));
        }
        Err(error) => assert!(error.to_string().len() < 200),
    }
    let text = String::from_utf8_lossy(data);
    if let Some(log) = gclog::parse(&text) {
        assert!(log.percent().is_none_or(|p| p <= 100));
        assert!(log.pauses <= data.len() as u64);
        let mut heap = facts.unwrap_or_else(|_| no_heap());
        gclog::add(&log, &mut heap);
    }
    if let Some(line) = marker::find(&text) {
        assert!(line.len() <= 300 && text.contains(line));
    }
    let _ = marker::cached(&text);
}

fn no_heap() -> headroom_types::exit::HeapReport {
    serde_json::from_str(r#"{"used":0,"committed":0,"max":0}"#)
        .expect("three sizes make a heap report")
}
