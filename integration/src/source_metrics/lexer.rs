//! Splits Rust source into prose (comments and string literals) and code.

/// Prose and code of one file.
pub(super) struct Lexed {
    /// Comments and string literals, separated by line ends.
    pub(super) prose: String,
    /// Tokens of code by line: identifiers, literals and single punctuation characters.
    pub(super) tokens: Vec<usize>,
}

/// Reads one file. Never fails: a file that rustc refuses only gives odd counts.
pub(super) fn lex(text: &str) -> Lexed {
    let mut lexer = Lexer {
        rest: text,
        line: 0,
        lexed: Lexed {
            prose: String::new(),
            tokens: vec![0],
        },
    };
    while let Some(next) = lexer.rest.chars().next() {
        lexer.token(next);
    }
    lexer.lexed
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    lexed: Lexed,
}

impl Lexer<'_> {
    fn token(&mut self, next: char) {
        if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.prose(length);
        } else if self.rest.starts_with("/*") {
            let length = block_comment(self.rest);
            self.prose(length);
        } else if let Some(length) = string(self.rest) {
            self.count();
            self.prose(length);
        } else if next.is_alphanumeric() || next == '_' {
            self.count();
            let length = self
                .rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(self.rest.len());
            self.advance(length);
        } else {
            if !next.is_whitespace() {
                self.count();
            }
            let length = if next == '\'' {
                character(self.rest)
            } else {
                next.len_utf8()
            };
            self.advance(length);
        }
    }

    fn count(&mut self) {
        self.lexed.tokens[self.line] += 1;
    }

    fn prose(&mut self, length: usize) {
        self.lexed.prose.push_str(&self.rest[..length]);
        self.lexed.prose.push('\n');
        self.advance(length);
    }

    fn advance(&mut self, length: usize) {
        let lines = self.rest[..length].matches('\n').count();
        self.line += lines;
        self.lexed.tokens.resize(self.line + 1, 0);
        self.rest = &self.rest[length..];
    }
}

/// Length of the block comment at the start, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of the string literal at the start, with its prefix and quotes.
fn string(text: &str) -> Option<usize> {
    let prefix = ["br", "r", "b", "c", "cr", ""].into_iter().find(|prefix| {
        let rest = text.strip_prefix(prefix);
        rest.is_some_and(|rest| {
            rest.trim_start_matches('#').starts_with('"')
                && (prefix.contains('r') || rest.starts_with('"'))
        })
    })?;
    let hashes = text[prefix.len()..].len() - text[prefix.len()..].trim_start_matches('#').len();
    let start = prefix.len() + hashes + 1;
    if prefix.contains('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(
            text[start..]
                .find(&end)
                .map_or(text.len(), |at| start + at + end.len()),
        );
    }
    let mut escaped = false;
    for (at, c) in text[start..].char_indices() {
        match c {
            '"' if !escaped => return Some(start + at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(text.len())
}

/// Length of the character literal or lifetime at the start.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((after, escaped))) => {
            let start = after + escaped.len_utf8();
            text[start..].find('\'').map_or(1, |at| start + at + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::lex;

    #[test]
    fn comments_and_strings_are_prose_and_the_rest_is_code() {
        let source = "/// A size.\nfn f() { // why\n    g(\"a \\\" b\", r#\"c\"#, 'x', '\"', '\\'');\n}\n/* an\nend */\n";
        let lexed = lex(source);
        assert_eq!(
            lexed.prose,
            "/// A size.\n// why\n\"a \\\" b\"\nr#\"c\"#\n/* an\nend */\n"
        );
        assert_eq!(lexed.tokens, [0, 5, 13, 1, 0, 0, 0]);
    }

    #[test]
    fn a_lifetime_is_not_the_start_of_a_character() {
        assert_eq!(lex("fn f<'a>(x: &'a str) {} // end").prose, "// end\n");
    }
}
