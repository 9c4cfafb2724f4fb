//! The layout of a value in the database: a head with a checksum, and the rest in pieces. Pure.
//!
//! Pieces are small because of sled. It keeps up to 17 entries in one page, and writes a page above
//! 128 KiB to a separate file that it never syncs. 17 pieces stay below that size.

/// Maximum bytes of a value in one entry.
pub const PIECE: usize = 6 << 10;
/// The version of the head's layout.
const LAYOUT: u8 = 1;
/// Size of layout, checksum and length. In bytes.
const HEAD: usize = 1 + 4 + 4;

/// The reason why a value differs from the written one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is shorter than its head.
    #[error("{0} is truncated")]
    Short(String),
    /// The layout is unknown to this version.
    #[error("{0} has the unknown layout {1}")]
    Layout(String, u8),
    /// A piece is missing or has another length.
    #[error("{0} has {1} bytes instead of {2}")]
    Length(String, usize, usize),
    /// A byte has changed.
    #[error("{0} does not match its checksum")]
    Checksum(String),
}

/// Key of the `n`th piece after the head.
pub fn piece_key(key: &str, n: usize) -> String {
    format!("{key}#{n:04}")
}

/// The key of an entry's record, and whether the entry is its head.
pub fn owner(entry: &str) -> (&str, bool) {
    match entry.split_once('#') {
        Some((key, _)) => (key, false),
        None => (entry, true),
    }
}

/// The number of pieces after the head of a value of this length.
pub fn pieces(length: usize) -> usize {
    length.div_ceil(PIECE).saturating_sub(1)
}

/// The entries of one record, the head first.
pub fn entries(key: &str, value: &[u8]) -> Vec<(String, Vec<u8>)> {
    let first = value.len().min(PIECE);
    let (head, rest) = value.split_at(first);
    let mut bytes = Vec::with_capacity(HEAD + head.len());
    bytes.push(LAYOUT);
    bytes.extend_from_slice(&checksum(key, value).to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(head);
    let tail = rest
        .chunks(PIECE)
        .enumerate()
        .map(|(n, piece)| (piece_key(key, n), piece.to_vec()));
    std::iter::once((key.to_owned(), bytes))
        .chain(tail)
        .collect()
}

/// The length of the whole value, from its head.
pub fn length(key: &str, head: &[u8]) -> Result<usize, FrameError> {
    let layout = *head
        .first()
        .ok_or_else(|| FrameError::Short(key.to_owned()))?;
    if layout != LAYOUT {
        return Err(FrameError::Layout(key.to_owned(), layout));
    }
    let number = |at: usize| {
        head.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(u32::from_le_bytes)
    };
    let length = number(5).ok_or_else(|| FrameError::Short(key.to_owned()))?;
    usize::try_from(length).map_err(|_| FrameError::Short(key.to_owned()))
}

/// Assembles the value from its head and its pieces in order.
pub fn value<'a>(
    key: &str,
    head: &[u8],
    rest: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, FrameError> {
    let length = length(key, head)?;
    let stored = head
        .get(1..5)
        .and_then(|b| b.try_into().ok())
        .map(u32::from_le_bytes);
    let mut value = head
        .get(HEAD..)
        .ok_or_else(|| FrameError::Short(key.to_owned()))?
        .to_vec();
    for piece in rest {
        value.extend_from_slice(piece);
    }
    if value.len() != length {
        return Err(FrameError::Length(key.to_owned(), value.len(), length));
    }
    if stored != Some(checksum(key, &value)) {
        return Err(FrameError::Checksum(key.to_owned()));
    }
    Ok(value)
}

/// The checksum also covers the key, so that a value under a wrong key is detected.
fn checksum(key: &str, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key.as_bytes());
    hasher.update(&[0]);
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(key: &str, entries: &[(String, Vec<u8>)]) -> Result<Vec<u8>, FrameError> {
        value(
            key,
            &entries[0].1,
            entries[1..].iter().map(|(_, b)| b.as_slice()),
        )
    }

    proptest! {
        #[test]
        fn a_written_value_is_read_unchanged(length in 0usize..40_000, seed in any::<u8>()) {
            let original: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).expect("small") ^ seed).collect();
            let written = entries("app/1", &original);
            prop_assert_eq!(written.len(), 1 + pieces(length));
            prop_assert!(written.iter().all(|(_, b)| b.len() <= PIECE + HEAD));
            prop_assert_eq!(read("app/1", &written).expect("reads"), original);
        }

        #[test]
        fn a_flipped_bit_is_detected(length in 1usize..20_000, at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut written = entries("app/1", &vec![7; length]);
            let entry = at.index(written.len());
            let byte = at.index(written[entry].1.len());
            written[entry].1[byte] ^= 1 << bit;
            prop_assert!(read("app/1", &written).is_err());
        }
    }

    #[test]
    fn a_value_under_another_key_is_detected() {
        let written = entries("app/1", b"text");
        assert_eq!(
            read("app/2", &written),
            Err(FrameError::Checksum("app/2".into()))
        );
    }

    #[test]
    fn a_missing_piece_is_detected() {
        let mut written = entries("job/1", &vec![1; 3 * PIECE]);
        written.remove(1);
        assert_eq!(
            read("job/1", &written),
            Err(FrameError::Length("job/1".into(), 2 * PIECE, 3 * PIECE))
        );
    }

    #[test]
    fn a_full_page_stays_below_the_size_that_is_not_synced() {
        let longest_key = 64;
        assert!(17 * (PIECE + HEAD + longest_key + 32) < (128 << 10));
    }
}
