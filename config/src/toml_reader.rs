//! Parsed TOML tables whose values keep their position in the text.
//!
//! serde stops at the first wrong type. This reader reads key by key and records every error, so
//! that one error does not hide the next. A key that no reader requested is an error too; the
//! message suggests the most similar known key.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use headroom_types::spelling::closest_name;
use headroom_types::{Bytes, Cpus};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::ProblemCollector;

/// Purpose of a key and its correct form; printed when its value is wrong or missing.
#[derive(Clone, Copy, Debug)]
pub struct KeyHint {
    /// Purpose.
    pub why: &'static str,
    /// Correct form.
    pub fix: &'static str,
}

/// Short constructor of [`KeyHint`].
pub const fn hint(why: &'static str, fix: &'static str) -> KeyHint {
    KeyHint { why, fix }
}

/// Reads keys into the fields of the same name of `$value`, whose other fields keep their values.
/// Each row is `key: parser => purpose, correct form;`, as in [`KeyHint`]; keys of one kind share
/// a row. A key that is absent or wrong leaves its field as it is.
macro_rules! read_keys {
    ($section:expr, $value:expr, {
        $($($key:ident)|+ : $parse:expr => $why:expr, $fix:expr;)+
    }) => {{
        let mut value = $value;
        $($(value.$key = $section.read_or(
            stringify!($key),
            $crate::toml_reader::hint($why, $fix),
            value.$key,
            $parse,
        );)+)+
        value
    }};
}
pub(crate) use read_keys;

/// Reads a table into a value of this type: the purpose and the correct form of the table, then
/// rows as in [`read_keys`]. Keys that are absent have their default.
macro_rules! read_table {
    ($root:expr, $key:expr => $type:ty: $why:expr, $fix:expr; { $($rows:tt)+ }) => {
        $root.read_table($key, $crate::toml_reader::hint($why, $fix), |table| {
            $crate::toml_reader::read_keys!(table, <$type>::default(), { $($rows)+ })
        })
    };
}
pub(crate) use read_table;

/// A parser for a key whose field is empty by default.
pub(crate) fn some<'a, T>(
    parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
) -> impl FnOnce(&DeValue<'a>) -> Result<Option<T>, String> {
    |value| parse(value).map(Some)
}

/// A table of a file while it is read.
#[derive(Debug)]
pub struct TomlSection<'a> {
    path: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
    problems: &'a ProblemCollector<'a>,
    asked: BTreeSet<&'static str>,
}

/// Parses the text as TOML. Records every syntax error and returns the part that could be parsed.
pub fn parse<'a>(text: &'a str, report: &ProblemCollector<'_>) -> Spanned<DeTable<'a>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        report.add_syntax(span, format!("not TOML: {}", error.message()));
    }
    table
}

impl<'a> TomlSection<'a> {
    /// The root table of a file, with the collector of its errors.
    pub fn root(table: &'a Spanned<DeTable<'a>>, problems: &'a ProblemCollector<'a>) -> Self {
        TomlSection {
            path: String::new(),
            span: 0..0,
            table: table.get_ref(),
            problems,
            asked: BTreeSet::new(),
        }
    }

    /// Position of the table header.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The collector of the errors of the file.
    pub fn problems(&self) -> &'a ProblemCollector<'a> {
        self.problems
    }

    /// Adds an error of `key` at `span` of the text.
    pub fn add(
        &self,
        span: Range<usize>,
        key: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.problems.add(span, &self.path_of(key), what, why, fix);
    }

    /// Adds an error at the value of `key`, or at the header of the table if the key is absent.
    pub fn reject(
        &self,
        key: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(self.place(key), key, what, why, fix);
    }

    /// Full path of `key`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of `key`, converted by `parse`. `None` if the key is absent, or if its value is
    /// wrong; then the error is recorded.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<Spanned<T>> {
        self.asked.insert(key);
        let value = self.table.get(key)?;
        match parse(value.get_ref()) {
            Ok(read) => Some(Spanned::new(value.span(), read)),
            Err(wrong) => {
                self.reject(
                    key,
                    format!("{}: {wrong}", self.path_of(key)),
                    hint.why,
                    hint.fix,
                );
                None
            }
        }
    }

    /// Like [`TomlSection::read`], without the position of the value.
    pub fn read_value<T>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        self.read(key, hint, parse).map(Spanned::into_inner)
    }

    /// Like [`TomlSection::read`], but an absent key is an error.
    pub fn read_required<T>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<Spanned<T>> {
        if !self.has(key) {
            self.asked.insert(key);
            self.reject(
                key,
                format!("{} is missing", self.path_of(key)),
                hint.why,
                hint.fix,
            );
            return None;
        }
        self.read(key, hint, parse)
    }

    /// Like [`TomlSection::read`], with `default` for an absent key. A wrong value is recorded and
    /// also gives `default`.
    pub fn read_or<T>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        default: T,
        parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> T {
        self.read_value(key, hint, parse).unwrap_or(default)
    }

    /// The unconverted value of `key`.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.insert(key);
        self.table.get(key)
    }

    /// True if the key is present, with a valid or invalid value.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Position of the value of `key`.
    pub fn place(&self, key: &str) -> Range<usize> {
        self.table
            .get(key)
            .map_or_else(|| self.span(), Spanned::span)
    }

    /// The table under `key`.
    pub fn table(&mut self, key: &'static str, hint: KeyHint) -> Option<TomlSection<'a>> {
        self.asked.insert(key);
        let value = self.table.get(key)?;
        self.section(self.path_of(key), value, hint)
    }

    /// The value that `read` makes of the table under `key`; the default without that table. Keys
    /// that `read` did not request are errors.
    pub fn read_table<T: Default>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        read: impl FnOnce(&mut TomlSection<'a>) -> T,
    ) -> T {
        let Some(mut table) = self.table(key, hint) else {
            return T::default();
        };
        let value = read(&mut table);
        table.reject_unknown_keys();
        value
    }

    /// The named tables under `key`: `[key.NAME]`.
    pub fn named_tables(
        &mut self,
        key: &'static str,
        hint: KeyHint,
    ) -> Vec<(Spanned<String>, TomlSection<'a>)> {
        let Some(outer) = self.table(key, hint) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, value) in outer.table.iter() {
            let named = Spanned::new(name.span(), name.get_ref().to_string());
            if let Some(section) =
                self.section(format!("{}.{}", outer.path, named.get_ref()), value, hint)
            {
                found.push((named, section));
            }
        }
        found
    }

    /// All values of the table under `key`, converted by `parse`: `key.NAME = value`, with
    /// arbitrary names.
    pub fn named_values<T>(
        &mut self,
        key: &'static str,
        hint: KeyHint,
        parse: impl Fn(&str, &DeValue<'a>) -> Result<T, String>,
    ) -> Vec<T> {
        let Some(outer) = self.table(key, hint) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, value) in outer.table.iter() {
            match parse(name.get_ref(), value.get_ref()) {
                Ok(read) => found.push(read),
                Err(wrong) => {
                    let path = format!("{}.{}", outer.path, name.get_ref());
                    self.problems.add(
                        value.span(),
                        &path,
                        format!("{path}: {wrong}"),
                        hint.why,
                        hint.fix,
                    );
                }
            }
        }
        found
    }

    /// The tables of the array `[[key]]`, in order.
    pub fn table_array(&mut self, key: &'static str, hint: KeyHint) -> Vec<TomlSection<'a>> {
        self.asked.insert(key);
        let Some(value) = self.table.get(key) else {
            return Vec::new();
        };
        let Some(items) = value.get_ref().as_array() else {
            let what = format!(
                "{} is {}, not a list of tables",
                self.path_of(key),
                kind(value.get_ref())
            );
            self.reject(key, what, hint.why, hint.fix);
            return Vec::new();
        };
        let sections = items.iter().enumerate();
        sections
            .filter_map(|(i, item)| self.section(format!("{}[{i}]", self.path_of(key)), item, hint))
            .collect()
    }

    fn section(
        &self,
        path: String,
        value: &'a Spanned<DeValue<'a>>,
        hint: KeyHint,
    ) -> Option<TomlSection<'a>> {
        match value.get_ref().as_table() {
            Some(table) => Some(TomlSection {
                path,
                span: value.span(),
                table,
                problems: self.problems,
                asked: BTreeSet::new(),
            }),
            None => {
                let what = format!("{path} is {}, not a table", kind(value.get_ref()));
                self.problems
                    .add(value.span(), &path, what, hint.why, hint.fix);
                None
            }
        }
    }

    /// Sets the path that messages use for this table, once its name is known: `stage.group`
    /// instead of `stage[0]`.
    pub fn set_path(&mut self, path: String) {
        self.path = path;
    }

    /// Ends the read of the table. Keys that were not requested are errors.
    pub fn reject_unknown_keys(self) {
        for name in self
            .table
            .keys()
            .filter(|k| !self.asked.contains(k.get_ref().as_ref()))
        {
            let written = name.get_ref().as_ref();
            let known: Vec<&str> = self.asked.iter().copied().collect();
            let fix = match closest_name(written, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("remove it; known here: {}", known.join(", ")),
            };
            let place = if self.path.is_empty() {
                "this file".to_owned()
            } else {
                format!("[{}]", self.path)
            };
            let why = "an unknown key would be ignored silently";
            self.add(
                name.span(),
                written,
                format!("{place} has no key `{written}`"),
                why,
                fix,
            );
        }
    }
}

/// Name of a value's type.
pub fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A string.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("this is {}, not a text", kind(value)))
}

/// A string that parses as `T`.
pub fn parsed<T: FromStr>(value: &DeValue<'_>) -> Result<T, String>
where
    T::Err: Display,
{
    text(value)?.parse().map_err(|e: T::Err| e.to_string())
}

/// A list of strings.
pub fn texts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("this is {}, not a list of texts", kind(value)))?;
    items
        .iter()
        .map(|item| text(item.get_ref()).map_err(|e| format!("an element: {e}")))
        .collect()
}

/// The URL of a server, which may contain a path: `http://HOST:PORT`.
pub(crate) fn server_url(value: &DeValue<'_>) -> Result<String, String> {
    plain_url(&text(value)?)
}

/// A list of URLs of servers, not empty.
pub(crate) fn server_urls(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let urls = texts(value)?;
    if urls.is_empty() {
        return Err("the list is empty".to_owned());
    }
    urls.iter().map(|url| plain_url(url)).collect()
}

fn plain_url(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/').to_owned();
    match url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
    {
        Some(rest)
            if !rest.is_empty()
                && !rest.starts_with('/')
                && !rest.contains([' ', '?', '#', '@']) =>
        {
            Ok(url)
        }
        Some(_) | None => Err(format!(
            "{url:?} does not have the form http://HOST:PORT or https://HOST:PORT"
        )),
    }
}

/// An absolute path.
pub(crate) fn absolute_path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(value)?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!(
            "{:?} is not an absolute path",
            path.display().to_string()
        ))
    }
}

/// `true` or `false`.
pub fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("this is {}, neither true nor false", kind(value)))
}

/// An integer from `least` to `most`.
pub fn integer(value: &DeValue<'_>, least: i64, most: i64) -> Result<i64, String> {
    let n = value
        .as_integer()
        .ok_or_else(|| format!("this is {}, not a whole number", kind(value)))?;
    let n = i64::from_str_radix(n.as_str(), n.radix())
        .map_err(|_| format!("{n} is far out of range"))?;
    if (least..=most).contains(&n) {
        Ok(n)
    } else {
        Err(format!("{n} is not between {least} and {most}"))
    }
}

/// A percentage, `12.5%`, in thousandths; at most 100 %.
pub fn thousandths(value: &DeValue<'_>) -> Result<u32, String> {
    let text = text(value)?;
    let number = text
        .trim()
        .strip_suffix('%')
        .ok_or_else(|| format!("{text:?} has no % sign"))?
        .trim_end();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |t: &str| !t.is_empty() && t.len() <= 3 && t.bytes().all(|b| b.is_ascii_digit());
    let read = |t: &str| t.parse::<u32>().ok().filter(|_| digits(t));
    let part = read(whole)
        .zip(read(tenth).filter(|_| tenth.len() == 1))
        .map(|(whole, tenth)| whole * 10 + tenth);
    part.filter(|part| *part <= 1000)
        .ok_or_else(|| format!("{text:?} is not between 0% and 100%, with at most one decimal"))
}

/// A count from `least` to `most`.
pub fn count(least: u32, most: u32) -> impl FnOnce(&DeValue<'_>) -> Result<u32, String> {
    move |value| {
        let n = integer(value, i64::from(least), i64::from(most))?;
        u32::try_from(n).map_err(|_| format!("{n} is out of range"))
    }
}

/// A size: a string such as `512MiB`, or an integer number of bytes.
pub fn size(value: &DeValue<'_>) -> Result<Bytes, String> {
    match value {
        DeValue::Integer(_) => integer(value, 0, i64::MAX).map(|n| Bytes::new(n.unsigned_abs())),
        DeValue::String(t) => t
            .parse()
            .map_err(|e: headroom_types::bytes::ParseBytesError| e.to_string()),
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(format!("this is {}, not a size", kind(value))),
    }
}

/// A size above zero.
pub fn nonzero_size(value: &DeValue<'_>) -> Result<Bytes, String> {
    let bytes = size(value)?;
    if bytes.is_zero() {
        Err("0 bytes are too few for a program".to_owned())
    } else {
        Ok(bytes)
    }
}

/// A number of processors above zero: `2`, `0.5` or `"0.5"`.
pub fn cpus(value: &DeValue<'_>) -> Result<Cpus, String> {
    let read = match value {
        DeValue::Integer(n) => n.as_str().parse(),
        DeValue::Float(n) => n.as_str().parse(),
        DeValue::String(t) => t.parse::<Cpus>(),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            return Err(format!("this is {}, not a number of cores", kind(value)));
        }
    };
    match read {
        Ok(c) if c == Cpus::ZERO => Err("0 cores are too few for a program".to_owned()),
        Ok(c) => Ok(c),
        Err(e) => Err(e.to_string()),
    }
}

/// A duration above zero with units: `500ms`, `30s`, `10m`, `1h30m`.
pub fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    above_zero(duration_or_zero(value)?)
}

/// A duration with units that may be zero: `0s`, `500ms`, `1h30m`.
pub fn duration_or_zero(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::String(t) => parse_duration_or_zero(t),
        DeValue::Integer(n) => Err(format!("{n} has no unit")),
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(format!("this is {}, not a duration", kind(value))),
    }
}

/// A duration within limits.
pub fn duration_within(
    value: &DeValue<'_>,
    limits: RangeInclusive<Duration>,
) -> Result<Duration, String> {
    let time = duration(value)?;
    if limits.contains(&time) {
        Ok(time)
    } else {
        Err(format!(
            "it is not between {} ms and {} s",
            limits.start().as_millis(),
            limits.end().as_secs()
        ))
    }
}

/// Parses `500ms`, `30s`, `10m`, `1h30m`; above zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    above_zero(parse_duration_or_zero(text)?)
}

fn above_zero(time: Duration) -> Result<Duration, String> {
    if time.is_zero() {
        Err("must be longer than 0".to_owned())
    } else {
        Ok(time)
    }
}

fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err("the duration is empty".to_owned());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number: u64 = rest[..digits]
            .parse()
            .map_err(|_| format!("{text:?} is not a duration"))?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit_ms = match rest[..letters].trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" => return Err(format!("{text:?} has no unit")),
            other => return Err(format!("unknown unit {other:?} of time")),
        };
        rest = &rest[letters..];
        total = number
            .checked_mul(unit_ms)
            .and_then(|ms| total.checked_add(Duration::from_millis(ms)))
            .ok_or("too long")?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in [
            "",
            "5",
            "s",
            "5 parsecs",
            "0s",
            "-3s",
            "99999999999999999999s",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_some_durations_may_be_zero() {
        let text = |text: &str| DeValue::String(text.to_owned().into());
        assert_eq!(duration_or_zero(&text("0s")), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero(&text("1s")), duration(&text("1s")));
        for wrong in ["", "0", "-3s"] {
            assert!(duration_or_zero(&text(wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(
            duration(&text("0s")),
            Err("must be longer than 0".to_owned())
        );
    }

    #[test]
    fn a_part_is_a_percentage_with_at_most_one_decimal() {
        let part = |text: &str| thousandths(&DeValue::String(text.into()));
        assert_eq!(
            (part("10%"), part("0%"), part("12.5 %"), part("100%")),
            (Ok(100), Ok(0), Ok(125), Ok(1000))
        );
        for wrong in ["10", "%", "100.1%", "-1%", "1.25%", "1.%", ".5%", "1e1%"] {
            assert!(part(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_closest_name_is_found() {
        assert_eq!(
            closest_name("comand", &["command", "count"]),
            Some("command")
        );
        assert_eq!(
            closest_name("max-attempts", &["max_attempts", "cap"]),
            Some("max_attempts")
        );
        assert_eq!(closest_name("colour", &["command", "count"]), None);
    }

    #[test]
    fn one_wrong_type_does_not_hide_later_errors() {
        let source = "a = true\nb = 3\nzz = 1\n";
        let report = ProblemCollector::new("f", source);
        let table = parse(source, &report);
        let mut root = TomlSection::root(&table, &report);
        let h = hint("why", "fix");
        assert!(root.read("a", h, text).is_none());
        assert!(root.read("b", h, duration).is_none());
        assert!(root.read_required("c", h, size).is_none());
        root.reject_unknown_keys();
        let lines: Vec<Option<usize>> = report
            .finish(Some(()))
            .expect_err("four")
            .iter()
            .map(|p| p.line)
            .collect();
        assert_eq!(lines, [Some(1), Some(1), Some(2), Some(3)]);
    }
}
