//! The records of the resource manager: frames in its database, snapshots, and their replay.

use headroom_rm_store::frame;
use headroom_rm_store::replay::replay;
use headroom_rm_store::snapshot::{StateSnapshot, compose, walk_text};

/// A frame returns the written bytes, a snapshot is written as it was read, and records are
/// replayed or refused.
pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((0, rest)) => frames(rest),
        Some((1, rest)) => drop(snapshot(rest)),
        // A valid checksum is added, so that the fuzzer reaches the code behind its check.
        Some((2, rest)) => summed(rest),
        Some((_, rest)) => records(rest),
        None => {}
    }
}

fn frames(data: &[u8]) {
    let pieces: Vec<&[u8]> = data.split(|b| *b == 0xfe).collect();
    if let Some((head, rest)) = pieces.split_first()
        && let Ok(value) = frame::value("app/1", head, rest.iter().copied())
    {
        assert!(value.len() <= data.len());
    }
    let written = frame::entries("app/1", data);
    let (head, rest) = written.split_first().expect("a head");
    assert_eq!(
        frame::value("app/1", &head.1, rest.iter().map(|(_, b)| b.as_slice())).as_deref(),
        Ok(data)
    );
    assert!(
        frame::value("app/2", &head.1, rest.iter().map(|(_, b)| b.as_slice())).is_err(),
        "another key, the same checksum"
    );
}

fn snapshot(data: &[u8]) -> Option<StateSnapshot> {
    let mut records = Vec::new();
    let walked = walk_text(data, |key, value| {
        records.push((key, value));
        Ok(())
    });
    let read = StateSnapshot {
        commit: walked.ok()?.commit,
        records,
    };
    let mut text = Vec::new();
    compose(&mut text, &read).expect("writes");
    let mut found = Vec::new();
    let header = walk_text(text.as_slice(), |key, value| {
        found.push((key, value));
        Ok(())
    });
    assert_eq!(header.map(|h| h.commit), Ok(read.commit));
    assert_eq!(found, read.records);
    Some(read)
}

fn summed(data: &[u8]) {
    let lines = data.iter().filter(|b| **b == b'\n').count();
    let head = format!(
        "{{\"headroom_snapshot\":1,\"commit\":7,\"records\":{}}}\n",
        lines + 1
    );
    let text = [head.as_bytes(), data].concat();
    let whole = [
        text.as_slice(),
        format!("\n{{\"crc32\":{}}}\n", crc32fast::hash(&text)).as_bytes(),
    ]
    .concat();
    if let Some(read) = snapshot(&whole) {
        let _ = replay(&read.records);
    }
}

/// Lines of `key value`, as the database returns them.
fn records(data: &[u8]) {
    let of = |line: &[u8]| {
        let at = line.iter().position(|b| *b == b' ')?;
        let (key, value) = line.split_at(at);
        Some((
            String::from_utf8(key.to_vec()).ok()?,
            value.get(1..)?.to_vec(),
        ))
    };
    let mut all: Vec<_> = data.split(|b| *b == b'\n').filter_map(of).collect();
    all.push(("meta".to_owned(), br#"{"epoch":3,"last_app":9}"#.to_vec()));
    match replay(&all) {
        Ok((meta, next)) => assert!(next.epoch >= meta.epoch && next.last_app == meta.last_app),
        Err(refused) => assert!(refused.to_string().len() <= 4096 + 64 * data.len()),
    }
}
