//! Splits a line into arguments as a shell does: blanks separate, single and double quotes and a
//! backslash keep them. Nothing is expanded.

/// Splits a line into arguments.
///
/// # Errors
/// A quote without its end, or a backslash at the end of the line.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut arguments = Vec::new();
    // `None` between arguments; empty quotes are an argument.
    let mut current: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = current.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => match chars.next() {
                            Some(escaped @ ('"' | '\\' | '$' | '`')) => word.push(escaped),
                            Some(other) => word.extend(['\\', other]),
                            None => return Err(format!("the quote {c} has no end")),
                        },
                        Some(inner) => word.push(inner),
                        None => return Err(format!("the quote {c} has no end")),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(escaped) => current.get_or_insert_default().push(escaped),
                None => return Err("the line ends with a backslash".to_owned()),
            },
            c if c.is_whitespace() => arguments.extend(current.take()),
            c => current.get_or_insert_default().push(c),
        }
    }
    arguments.extend(current);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_like_in_a_shell() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("  a  b\tc ", &["a", "b", "c"]),
            ("'a b' \"c d\"", &["a b", "c d"]),
            (r"a\ b c\'d", &["a b", "c'd"]),
            (r#"--x="1 \"2\" \n $HOME""#, &["--x=1 \"2\" \\n $HOME"]),
            ("'' \"\"", &["", ""]),
            (r"'a\b'", &[r"a\b"]),
            ("äö 'ü ß'", &["äö", "ü ß"]),
        ];
        for (line, arguments) in cases {
            assert_eq!(
                split(line).as_deref(),
                Ok(&*arguments
                    .iter()
                    .map(|a| (*a).to_owned())
                    .collect::<Vec<_>>()),
                "{line}"
            );
        }
        for line in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
