//! Documents as YAML, CSV, selected columns, or by a template. Pure.

use std::sync::Arc;

use headroom_types::{Bytes, UnixMillis};
use minijinja::value::{self as jinja, Object, Serde};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::Value;

use super::figures::{rfc3339, short};
use super::table::Table;
use crate::select::field::{RowDocument, flat, text};

/// A document as YAML. Strings that a reader could take for another type are quoted.
pub(crate) fn yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|e| format!("# {e}\n"))
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
    let mut out = csv::Writer::from_writer(Vec::new());
    // Writing to a `Vec` cannot fail, and every row has as many cells as there are names.
    if headers && !names.is_empty() {
        let _ = out.write_record(&names);
    }
    for row in &flats {
        let cell = |name: &String| {
            row.iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| text(v))
                .unwrap_or_default()
        };
        let _ = out.write_record(names.iter().map(cell));
    }
    String::from_utf8(out.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Selected columns as a table. Sizes stay in bytes, because programs read this format too.
pub(crate) fn columns(rows: &[RowDocument], names: &str, headers: bool) -> String {
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

/// Rows by a template in the language of Jinja: `{{id}} {{limit|size}}`, with `\n` and `\t`. One
/// line for each row. A row that the template cannot show becomes the text of the error.
pub(crate) fn template(rows: &[RowDocument], template: &str) -> Result<String, String> {
    let (environment, source) = (environment(), source(template));
    let template = environment
        .template_from_str(&source)
        .map_err(|e| e.to_string())?;
    let one = |row: &RowDocument| {
        let filled = template.render(jinja::Value::from_object(row.clone()));
        let line = filled.unwrap_or_else(|e| format!("error: {e}"));
        if line.ends_with('\n') {
            line
        } else {
            line + "\n"
        }
    };
    Ok(rows.iter().map(one).collect())
}

/// Checks the syntax of a template and the names of its filters and functions.
pub(crate) fn check(template: &str) -> Result<(), String> {
    let source = source(template);
    match environment().render_str(&source, ()) {
        Err(e) if is_template_error(e.kind()) => Err(e.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// True for errors that do not depend on the fields of a row.
fn is_template_error(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::SyntaxError
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
    )
}

/// A template in pure Jinja. Names of fields may begin with a dot, as in templates of `kubectl`.
fn source(template: &str) -> String {
    template
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("{{.", "{{")
        .replace("{{ .", "{{ ")
}

/// The filters of a template. Unknown fields are empty at every depth.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&text(&to_json(value)))?));
    environment.add_filter("json", |value: &jinja::Value| to_json(value).to_string());
    environment.add_filter("size", |value: &jinja::Value| {
        let bytes = u64::try_from(value.clone());
        bytes.map_or_else(|_| String::new(), |n| short(Bytes::new(n)))
    });
    environment.add_filter("time", |value: &jinja::Value| {
        let millis = u64::try_from(value.clone());
        millis.map_or_else(|_| String::new(), |n| rfc3339(UnixMillis(n)))
    });
    environment
}

/// A value of a template as JSON; `null` for an unknown field.
fn to_json(value: &jinja::Value) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl Object for RowDocument {
    fn get_value(self: &Arc<Self>, name: &jinja::Value) -> Option<jinja::Value> {
        self.get(name.as_str()?).map(|value| Serde(value).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docs() -> Vec<RowDocument> {
        rows().iter().map(RowDocument::bare).collect()
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
        assert_eq!(
            fill("{% if yes %}{{id|upper}}{% endif %}{{no.such.field}}"),
            Ok("\nSORT.2\n".to_owned())
        );
        assert_eq!(check("{{id}}"), Ok(()));
        assert!(check("{{id").is_err() && check("{{id|lower|unknown}}").is_err());
    }
}
