//! Golden samples of messages, stored as files.

use std::fmt::Debug;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Compares a sample with its file; rewrites the file with `HEADROOM_UPDATE_GOLDEN=1`.
pub(crate) fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, sample: &T) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden/v1")
        .join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(sample).expect("a message can be written") + "\n";
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        text, kept,
        "{name}: version 1 is additive; messages of today must stay readable"
    );
    let back: T = serde_json::from_str(&kept).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&back, sample, "{name}");
}
