//! Tables without borders: upper-case headers, and columns as wide as their widest cell. The last
//! column has no limit. Colour codes in a cell have no width.

use comfy_table::CellAlignment;

use super::ListStyle;
pub(crate) use super::cut_text::cut;

/// A table under construction.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(String, CellAlignment)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headers. A header with a leading `>` aligns its column to the right.
    pub(crate) fn new(headers: &[&str]) -> Self {
        let column = |h: &&str| match h.strip_prefix('>') {
            Some(h) => (h.to_owned(), CellAlignment::Right),
            None => ((*h).to_owned(), CellAlignment::Left),
        };
        Table {
            columns: headers.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with as many cells as headers.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// True without rows.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each with a final line break.
    pub(crate) fn text(&self) -> String {
        self.of(true)
    }

    /// The lines, with or without headers.
    pub(crate) fn of(&self, headers: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if headers {
            table.set_header(self.columns.iter().map(|(header, _)| header));
        }
        table.add_rows(&self.rows);
        for (column, (_, align)) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 2)).set_cell_alignment(*align);
        }
        table
            .lines()
            .map(|l| format!("{}\n", l.trim_end()))
            .collect()
    }
}

/// A column of a list with rows `R`: its header, and the cell of a row. The header is as in
/// [`Table::new`]; with a `+` before it, only wide lists have the column.
pub(crate) type Column<'a, R> = (&'a str, &'a dyn Fn(R) -> String);

/// The lines of a list: the columns of its style, one line for each row.
pub(crate) fn list<R: Copy>(
    rows: impl IntoIterator<Item = R>,
    look: ListStyle,
    columns: &[Column<'_, R>],
) -> String {
    let (mut headers, mut cells) = (Vec::new(), Vec::new());
    for (header, cell) in columns {
        let wide = header.strip_prefix('+');
        if wide.is_none() || look.wide {
            headers.push(wide.unwrap_or(header));
            cells.push(cell);
        }
    }
    let mut table = Table::new(&headers);
    for row in rows {
        table.row(cells.iter().map(|cell| cell(row)));
    }
    table.of(look.headers)
}

/// Wraps a text at spaces into lines of at most `width` columns.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else {
            continue;
        };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::TextPainter;

    #[test]
    fn colour_does_not_move_columns() {
        let mut plain = Table::new(&["A", ">N", "C"]);
        plain.row(["✗".to_owned(), "7".to_owned(), "x".to_owned()]);
        plain.row(["long".to_owned(), "700".to_owned(), "y".to_owned()]);
        let mut coloured = Table::new(&["A", ">N", "C"]);
        coloured.row([
            TextPainter::new(true).bad("✗"),
            "7".to_owned(),
            "x".to_owned(),
        ]);
        coloured.row(["long".to_owned(), "700".to_owned(), "y".to_owned()]);
        assert!(!plain.is_empty());
        assert_eq!(plain.text(), "A       N  C\n✗       7  x\nlong  700  y\n");
        assert_eq!(
            coloured
                .text()
                .replace("\u{1b}[31m", "")
                .replace("\u{1b}[0m", ""),
            plain.text()
        );
    }

    #[test]
    fn text_is_cut_and_wrapped() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
