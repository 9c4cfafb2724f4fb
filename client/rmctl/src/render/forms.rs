//! Documents as YAML, CSV, selected columns, or by a template. Pure.

use headroom_types::{Bytes, UnixMillis};
use serde_json::Value;

use super::figures::{rfc3339, short};
use super::table::Table;
use crate::select::field::{Doc, flat, number, text};

/// A document as YAML. Ambiguous strings are quoted as in JSON, which is valid YAML.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&format!("{pad}{}:", plain(key)));
                nested(value, depth, out);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for item in list {
                let mut inner = String::new();
                block(item, depth + 1, &mut inner);
                // The first line of an item follows its dash.
                out.push_str(&format!("{pad}- {}", inner.trim_start()));
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => {
            out.push_str(&format!("{pad}{}\n", scalar(value)));
        }
    }
}

fn nested(value: &Value, depth: usize, out: &mut String) {
    let deep = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if deep {
        out.push('\n');
        block(value, depth + 1, out);
    } else {
        out.push_str(&format!(" {}\n", scalar(value)));
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// True if the string needs no quotes.
fn plain(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let begins = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let special = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if begins && text.chars().all(word) && !special.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

/// Rows as CSV: a column for each key of any row, in the order of first occurrence.
pub(crate) fn csv(rows: &[Value], headers: bool) -> String {
    let mut names: Vec<String> = Vec::new();
    let flats: Vec<Vec<(String, Value)>> = rows.iter().map(flat).collect();
    for (name, _) in flats.iter().flatten() {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut out = String::new();
    if headers && !names.is_empty() {
        line(names.iter().map(String::as_str), &mut out);
    }
    for row in &flats {
        let cell = |name: &String| {
            row.iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| text(v))
                .unwrap_or_default()
        };
        let cells: Vec<String> = names.iter().map(cell).collect();
        line(cells.iter().map(String::as_str), &mut out);
    }
    out
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, out: &mut String) {
    let quoted = |cell: &str| {
        let plain = !cell.contains(['"', ',', '\n', '\r']);
        if plain {
            cell.to_owned()
        } else {
            format!("\"{}\"", cell.replace('"', "\"\""))
        }
    };
    let cells: Vec<String> = cells.map(quoted).collect();
    out.push_str(&format!("{}\n", cells.join(",")));
}

/// Selected columns as a table. Sizes stay in bytes, because programs read this format too.
pub(crate) fn columns(rows: &[Doc], names: &str, headers: bool) -> String {
    let names: Vec<&str> = names
        .split(',')
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .collect();
    let titles: Vec<String> = names.iter().map(|n| n.to_uppercase()).collect();
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        table.row(names.iter().map(|name| {
            let cell = row.get(name).map(|v| text(&v)).unwrap_or_default();
            if cell.is_empty() {
                "–".to_owned()
            } else {
                cell
            }
        }));
    }
    table.of(headers)
}

/// Rows by a template: `{{.id}} {{limit|size}}`, with `\n` and `\t`. One line for each row.
pub(crate) fn template(rows: &[Doc], template: &str) -> Result<String, String> {
    let pieces = pieces(template)?;
    let one = |row: &Doc| {
        let filled: String = pieces.iter().map(|p| p.filled(row)).collect();
        if filled.ends_with('\n') {
            filled
        } else {
            filled + "\n"
        }
    };
    Ok(rows.iter().map(one).collect())
}

/// Checks the syntax of a template.
pub(crate) fn check(template: &str) -> Result<(), String> {
    pieces(template).map(drop)
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Field { path: String, shown: Shown },
}

/// The format of a field in a template.
#[derive(Clone, Copy, Debug)]
enum Shown {
    AsItIs,
    Size,
    Time,
    Json,
}

fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut rest = template;
    let mut found = Vec::new();
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, behind) = after.split_once("}}").ok_or("a template's {{ has no }}")?;
        found.push(Piece::Text(
            before.replace("\\n", "\n").replace("\\t", "\t"),
        ));
        let (path, shown) = inside.split_once('|').map_or((inside, ""), |(p, s)| (p, s));
        let shown = match shown.trim() {
            "" => Shown::AsItIs,
            "size" => Shown::Size,
            "time" => Shown::Time,
            "json" => Shown::Json,
            other => {
                return Err(format!(
                    "a template knows size, time and json, not {other:?}"
                ));
            }
        };
        let path = path.trim().trim_start_matches('.').to_owned();
        found.push(Piece::Field { path, shown });
        rest = behind;
    }
    found.push(Piece::Text(rest.replace("\\n", "\n").replace("\\t", "\t")));
    Ok(found)
}

impl Piece {
    fn filled(&self, row: &Doc) -> String {
        let (path, shown) = match self {
            Piece::Text(text) => return text.clone(),
            Piece::Field { path, shown } => (path, *shown),
        };
        let value = if path.is_empty() {
            Some(row.value().clone())
        } else {
            row.get(path)
        };
        let value = value.unwrap_or_default();
        // Sizes and times are integers and not negative.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = || value.as_u64().or_else(|| number(&value).map(|n| n as u64));
        match shown {
            Shown::AsItIs => text(&value),
            Shown::Json => value.to_string(),
            Shown::Size => whole().map(|n| short(Bytes::new(n))).unwrap_or_default(),
            Shown::Time => whole().map(|n| rfc3339(UnixMillis(n))).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docs() -> Vec<Doc> {
        rows().iter().map(Doc::bare).collect()
    }
    fn rows() -> Vec<Value> {
        vec![
            json!({"id": "sort.1", "note": "a, \"b\"", "size": {"memory": 1_073_741_824_u64}, "at": 0, "list": [1, {"k": null}]}),
            json!({"id": "sort.2", "size": {"memory": null}, "yes": true}),
        ]
    }

    #[test]
    fn yaml_output_parses_as_yaml() {
        let text = yaml(&json!({"rows": rows(), "none": [], "word": "no", "n": "1"}));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn csv_quotes_special_characters() {
        let text = csv(&rows(), true);
        assert_eq!(
            text,
            "at,id,list,note,size.memory,yes\n0,sort.1,\"[1,{\"\"k\"\":null}]\",\"a, \"\"b\"\"\",1073741824,\n,sort.2,,,,true\n"
        );
        assert_eq!(csv(&rows()[1..], false), "sort.2,,true\n");
        assert_eq!(csv(&[], true), "");
    }

    #[test]
    fn columns_are_chosen() {
        assert_eq!(
            columns(&docs(), "id, size.memory", true),
            "ID      SIZE.MEMORY\nsort.1  1073741824\nsort.2  –\n"
        );
        assert_eq!(columns(&docs(), "id", false), "sort.1\nsort.2\n");
    }

    #[test]
    fn templates_are_filled() {
        let fill = |t: &str| template(&docs(), t);
        assert_eq!(
            fill("{{.id}}\\t{{ size.memory | size }}"),
            Ok("sort.1\t1G\nsort.2\t\n".to_owned())
        );
        assert_eq!(
            fill("{{at|time}}").map(|t| t.lines().next().map(str::to_owned)),
            Ok(Some("1970-01-01T00:00:00.000Z".into()))
        );
        assert!(fill("{{id").is_err() && fill("{{id|upper}}").is_err());
        assert_eq!(check("{{id}}"), Ok(()));
    }
}
