//! Screen of a directory in a container.

use headroom_wire::v1::container_access::ContainerFileEntry;

use super::ListStyle;
use super::figures::rfc3339;
use super::table::Table;

/// The whole screen.
pub(crate) fn table(rows: &[ContainerFileEntry], look: ListStyle) -> String {
    if rows.is_empty() {
        return look.advice("there is nothing in it\n".to_owned());
    }
    let mut table = Table::new(&["KIND", ">BYTES", "CHANGED", "PATH"]);
    for row in rows {
        // A file name may contain any character. Control characters are escaped, because they could
        // move the cursor.
        let plain = |text: &str| {
            text.chars()
                .flat_map(|c| {
                    if c.is_control() {
                        c.escape_default().collect()
                    } else {
                        vec![c]
                    }
                })
                .collect()
        };
        let path: String = plain(&row.path);
        let path = row
            .target
            .as_ref()
            .map_or(path.clone(), |to| format!("{path} → {}", plain(to)));
        table.row([
            row.kind.as_str().to_owned(),
            row.bytes.to_string(),
            rfc3339(row.modified),
            path,
        ]);
    }
    table.of(look.headers)
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
