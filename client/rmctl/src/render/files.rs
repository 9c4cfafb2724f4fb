//! Screen of a directory in a container.

use headroom_wire::v1::container_access::ContainerFileEntry;

use super::ListStyle;
use super::figures::rfc3339;
use super::table::{Column, list};

/// The whole screen.
pub(crate) fn table(rows: &[ContainerFileEntry], look: ListStyle) -> String {
    if rows.is_empty() {
        return look.advice("there is nothing in it\n".to_owned());
    }
    let path = |row: &ContainerFileEntry| {
        let target = row.target.as_ref().map(|to| format!(" → {}", plain(to)));
        plain(&row.path) + &target.unwrap_or_default()
    };
    let columns: &[Column<'_, &ContainerFileEntry>] = &[
        ("KIND", &|row| row.kind.to_string()),
        (">BYTES", &|row| row.bytes.to_string()),
        ("CHANGED", &|row| rfc3339(row.modified)),
        ("PATH", &path),
    ];
    list(rows, look, columns)
}

/// A name with escapes for control characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_wire::v1::container_access::FileEntryKind;

    #[test]
    fn each_entry_has_a_line() {
        let row = |path: &str, kind, target: Option<&str>| ContainerFileEntry {
            path: path.to_owned(),
            kind,
            bytes: 12,
            modified: fixture::NOW,
            target: target.map(str::to_owned),
        };
        let rows = [
            row("work/a\u{1b}[2J", FileEntryKind::File, None),
            row("work/last", FileEntryKind::Link, Some("a")),
        ];
        let text = table(&rows, ListStyle::USUAL);
        assert!(
            text.starts_with("KIND") && text.contains("work/last → a"),
            "{text}"
        );
        assert!(
            !text.contains('\u{1b}') && text.contains("\\u{1b}"),
            "{text}"
        );
        assert_eq!(table(&[], ListStyle::USUAL), "there is nothing in it\n");
    }
}
