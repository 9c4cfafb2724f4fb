//! The master's journal: a crash leaves a prefix of it.

use std::path::Path;

use headroom_appmaster::journal::{check_owner, encode, parse};
use headroom_appmaster::record::JournalRecord;

/// Parsed records encode to a text that parses as the same. A cut loses only the records after it.
pub fn check(data: &[u8]) {
    let path = Path::new("journal");
    let (records, good) = match parse(path, data) {
        Ok(read) => read,
        Err(refused) => return assert!(refused.to_string().len() <= 4096 + 8 * data.len()),
    };
    assert!(good <= data.len() && (good == 0 || data.get(good - 1) == Some(&b'\n')));
    let whole = encode(&records).expect("writes");
    assert_eq!(read(path, &whole), (records.clone(), whole.len()));
    // The bytes themselves choose the position of the cut.
    let at = data.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    }) % (whole.len() + 1);
    let beginning = whole.get(..at).unwrap_or_default();
    let lines = beginning.iter().filter(|b| **b == b'\n').count();
    let (left, kept) = read(path, beginning);
    assert_eq!(left, records.get(..lines).unwrap_or_default());
    // Records that are written after the cut are read.
    let more = [
        beginning.get(..kept).unwrap_or_default(),
        encode(&records).expect("writes").as_slice(),
    ]
    .concat();
    assert_eq!(read(path, &more).0.len(), lines + records.len());
    if let Some(JournalRecord::Begin(begin)) = records.first() {
        let known = check_owner(path, records.first(), &begin.app, begin.job);
        assert!(known.is_ok() || begin.version != headroom_appmaster::record::VERSION);
        assert!(
            check_owner(path, records.first(), "another.1", begin.job).is_err()
                || begin.app == "another.1"
        );
    }
}

fn read(path: &Path, bytes: &[u8]) -> (Vec<JournalRecord>, usize) {
    parse(path, bytes).unwrap_or_else(|e| panic!("{e}"))
}
