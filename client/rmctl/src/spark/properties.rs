//! Settings of a Spark application: `--conf` first, then the properties file. Pure.

use std::collections::BTreeMap;

use super::arguments::SparkArguments;

/// The settings in a properties file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PropertiesFile(BTreeMap<String, String>);

impl PropertiesFile {
    /// Parses the text as Java does: `key=value`, `key: value` or `key value`; `#` and `!` begin a
    /// comment; a backslash at the end continues a line.
    pub(crate) fn parse(text: &str) -> PropertiesFile {
        let mut all = BTreeMap::new();
        let mut lines = text.lines();
        while let Some(first) = lines.next() {
            let mut line = first.trim_start().to_owned();
            if line.starts_with(['#', '!']) {
                continue;
            }
            while is_continued(&line) {
                line.pop();
                line.push_str(lines.next().unwrap_or_default().trim_start());
            }
            if let Some((key, value)) = pair(&line) {
                all.insert(key, value);
            }
        }
        PropertiesFile(all)
    }
}

/// Finds the value of a setting: `--conf`, else the properties file.
pub(crate) fn setting<'a>(
    arguments: &'a SparkArguments,
    file: &'a PropertiesFile,
    key: &str,
) -> Option<&'a str> {
    let of_file = || file.0.get(key).map(String::as_str);
    arguments.setting(key).or_else(of_file)
}

/// True when an odd number of backslashes ends the line.
fn is_continued(line: &str) -> bool {
    let slashes = line.chars().rev().take_while(|c| *c == '\\').count();
    slashes % 2 == 1
}

fn pair(line: &str) -> Option<(String, String)> {
    let is_end = |c: char| c == '=' || c == ':' || c.is_whitespace();
    let mut key = String::new();
    let mut rest = line.chars();
    let mut ended_by = None;
    while let Some(c) = rest.next() {
        match c {
            '\\' => key.extend(rest.next()),
            c if is_end(c) => {
                ended_by = Some(c);
                break;
            }
            c => key.push(c),
        }
    }
    let rest = rest.as_str().trim_start();
    let separated = ended_by.is_some_and(char::is_whitespace);
    let value = rest.strip_prefix(['=', ':']).filter(|_| separated);
    let value = value.unwrap_or(rest).trim();
    (!key.is_empty()).then(|| (key, unescaped(value)))
}

/// The text without backslashes. Spark's own settings need no other escapes.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => plain.extend(rest.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_properties_file_is_read_as_java_reads_it() {
        let text = "# comment\n! comment\n\nspark.driver.memory   2g\nspark.a=b=c\n spark.b : d e\n\
                    spark.c one \\\n   two\nspark.d\nspark.e = x\n";
        let file = PropertiesFile::parse(text);
        let none = SparkArguments::default();
        let of = |key| setting(&none, &file, key);
        assert_eq!(of("spark.driver.memory"), Some("2g"));
        assert_eq!(of("spark.a"), Some("b=c"));
        assert_eq!(of("spark.b"), Some("d e"));
        assert_eq!(of("spark.c"), Some("one two"));
        assert_eq!(of("spark.d"), Some(""));
        assert_eq!(of("spark.e"), Some("x"));
        assert_eq!(file.0.len(), 6);
    }

    #[test]
    fn an_argument_has_precedence_over_the_file() {
        let words = ["--conf", "spark.a=1", "app.py"].map(str::to_owned);
        let arguments = SparkArguments::parse(&words).expect("parses");
        let file = PropertiesFile::parse("spark.a 2\nspark.b 3");
        assert_eq!(setting(&arguments, &file, "spark.a"), Some("1"));
        assert_eq!(setting(&arguments, &file, "spark.b"), Some("3"));
    }
}
