//! Files that an agent reads from its shims after a kill of either, and the messages between the
//! two.

use headroom_container_shim::launcher_protocol::{LauncherPacket, LauncherRequest};
use headroom_container_shim::{ExitRecord, ProcessIdentity, ProgramSpec, StartResult};

/// A decoded value encodes to bytes that decode as the same. A truncated record is refused.
pub fn check(data: &[u8]) {
    if let Ok(spec) = ProgramSpec::decode(data) {
        let text = spec.encode();
        assert_eq!(ProgramSpec::decode(&text), Ok(spec));
        torn(&text, data, |cut| ProgramSpec::decode(cut).is_err());
    }
    match ExitRecord::decode(data) {
        Ok(record) => {
            let text = record.encode();
            assert_eq!(ExitRecord::decode(&text), Ok(record));
            torn(&text, data, |cut| ExitRecord::decode(cut).is_err());
        }
        Err(bad) => assert!(bad.to_string().len() <= 4096 + 8 * data.len()),
    }
    if let Some(request) = LauncherRequest::decode(data) {
        assert!(
            request == LauncherRequest::Lock
                || matches!(&request, LauncherRequest::Run(dir) if dir.is_absolute())
        );
    }
    if let Some(word) = LauncherPacket::decode(data) {
        assert_eq!(LauncherPacket::decode(&word.encode()), Some(word));
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(identity) = ProcessIdentity::decode(text) {
        assert_eq!(ProcessIdentity::decode(&identity.encode()), Some(identity));
    }
    if let Some(answer) = StartResult::decode(text) {
        assert_eq!(StartResult::decode(&answer.encode()), Some(answer));
    }
}

/// The bytes themselves choose the position of the cut.
fn torn(text: &[u8], data: &[u8], refused: impl Fn(&[u8]) -> bool) {
    let at = data.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    }) % text.len();
    assert!(
        refused(text.get(..at).unwrap_or_default()),
        "cut at {at} of {}, it was accepted",
        text.len()
    );
}
