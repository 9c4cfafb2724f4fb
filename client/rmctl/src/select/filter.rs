//! Filter expressions: `state==pending && limit>4GiB`. Parsed once, then evaluated for each row.

use std::cmp::Ordering;
use std::str::FromStr;
use std::time::Duration;

use headroom_types::Bytes;
use serde_json::Value;

use super::field::{Doc, number, text};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// Both conditions are true.
    And(Box<Filter>, Box<Filter>),
    /// At least one condition is true.
    Or(Box<Filter>, Box<Filter>),
    /// The condition is false.
    Not(Box<Filter>),
    /// A comparison of a field with a value.
    Is(Comparison),
}

/// A field compared with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    field: String,
    operator: Operator,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Contains,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Operators in the order of matching: the longer ones first.
const OPERATORS: [(&str, Operator); 8] = [
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=~", Operator::Contains),
    ("<", Operator::Less),
    (">", Operator::More),
    ("=", Operator::Equal),
];

impl Filter {
    /// Evaluates the condition for a row. A missing field is null.
    pub(crate) fn holds(&self, doc: &Doc) -> bool {
        match self {
            Filter::And(a, b) => a.holds(doc) && b.holds(doc),
            Filter::Or(a, b) => a.holds(doc) || b.holds(doc),
            Filter::Not(a) => !a.holds(doc),
            Filter::Is(comparison) => {
                comparison.holds(&doc.get(&comparison.field).unwrap_or_default())
            }
        }
    }

    /// All fields of the condition.
    pub(crate) fn fields(&self) -> Vec<&str> {
        match self {
            Filter::And(a, b) | Filter::Or(a, b) => {
                a.fields().into_iter().chain(b.fields()).collect()
            }
            Filter::Not(a) => a.fields(),
            Filter::Is(comparison) => vec![comparison.field.as_str()],
        }
    }
}

impl Comparison {
    fn holds(&self, value: &Value) -> bool {
        if value.is_null() {
            let same = self.value == "null";
            return match self.operator {
                Operator::Equal => same,
                Operator::Unequal => !same,
                Operator::Contains
                | Operator::Less
                | Operator::AtMost
                | Operator::More
                | Operator::AtLeast => false,
            };
        }
        if self.operator == Operator::Contains {
            return text(value).contains(&self.value);
        }
        let order = match number(value).zip(quantity(&self.field, &self.value)) {
            Some((a, b)) => a.total_cmp(&b),
            None => text(value).as_str().cmp(&self.value),
        };
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::Unequal => order != Ordering::Equal,
            Operator::Less => order == Ordering::Less,
            Operator::AtMost => order != Ordering::Greater,
            Operator::More => order == Ordering::Greater,
            Operator::AtLeast => order != Ordering::Less,
            Operator::Contains => false,
        }
    }
}

/// Parses a number, a size in bytes, or a time in the unit of the field's name.
#[allow(clippy::cast_precision_loss)] // both sides of the comparison have the same precision
fn quantity(field: &str, value: &str) -> Option<f64> {
    if let Ok(number) = value.parse::<f64>() {
        return Some(number);
    }
    let time = || headroom_config::toml_reader::parse_duration(value).ok();
    let scaled = |unit: f64| time().map(|t: Duration| t.as_secs_f64() * unit);
    match field.rsplit_once('_').map(|(_, unit)| unit) {
        Some("ms") => scaled(1e3),
        Some("s") => scaled(1.0),
        Some("us") => scaled(1e6),
        Some(_) | None => value.parse::<Bytes>().ok().map(|b| b.get() as f64),
    }
}

impl FromStr for Filter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let tokens = tokens(text)?;
        let mut reader = Reader {
            tokens: &tokens,
            at: 0,
        };
        let filter = reader.either()?;
        match reader.peek() {
            None => Ok(filter),
            Some(token) => Err(format!(
                "{} is not expected; write for example {EXAMPLE}",
                token.shown()
            )),
        }
    }
}

const EXAMPLE: &str = "'state==pending && limit>4GiB'";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(Operator),
    And,
    Or,
    Not,
    Open,
    Close,
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Token::Word(word) => format!("{word:?}"),
            Token::Operator(operator) => OPERATORS
                .iter()
                .find(|(_, o)| o == operator)
                .map_or("?", |(t, _)| t)
                .to_owned(),
            Token::And => "&&".to_owned(),
            Token::Or => "||".to_owned(),
            Token::Not => "!".to_owned(),
            Token::Open => "(".to_owned(),
            Token::Close => ")".to_owned(),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = token(rest, first)?;
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

fn token(rest: &str, first: char) -> Result<(Token, usize), String> {
    let fixed = [
        ("&&", Token::And),
        ("||", Token::Or),
        ("(", Token::Open),
        (")", Token::Close),
    ];
    if let Some((text, token)) = fixed.into_iter().find(|(text, _)| rest.starts_with(text)) {
        return Ok((token, text.len()));
    }
    if let Some((text, operator)) = OPERATORS.iter().find(|(text, _)| rest.starts_with(text)) {
        return Ok((Token::Operator(*operator), text.len()));
    }
    match first {
        '!' => Ok((Token::Not, 1)),
        '"' | '\'' => {
            let end = rest[1..]
                .find(first)
                .ok_or_else(|| format!("the quote {first} is not closed"))?;
            Ok((Token::Word(rest[1..=end].to_owned()), end + 2))
        }
        _ => {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!<>&|()\"'".contains(c))
                .unwrap_or(rest.len());
            if end == 0 {
                return Err(format!(
                    "{first:?} is not understood; write for example {EXAMPLE}"
                ));
            }
            Ok((Token::Word(rest[..end].to_owned()), end))
        }
    }
}

/// A parser that reads tokens from left to right: `||` has the lowest precedence, `!` the highest.
struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }
    fn takes(&mut self, token: &Token) -> bool {
        let there = self.peek() == Some(token);
        self.at += usize::from(there);
        there
    }
    fn either(&mut self) -> Result<Filter, String> {
        let mut left = self.both()?;
        while self.takes(&Token::Or) {
            left = Filter::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }
    fn both(&mut self) -> Result<Filter, String> {
        let mut left = self.one()?;
        while self.takes(&Token::And) {
            left = Filter::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }
    fn one(&mut self) -> Result<Filter, String> {
        if self.takes(&Token::Not) {
            return Ok(Filter::Not(Box::new(self.one()?)));
        }
        if self.takes(&Token::Open) {
            let inner = self.either()?;
            return if self.takes(&Token::Close) {
                Ok(inner)
            } else {
                Err("a ) is missing".to_owned())
            };
        }
        let field = self.word("a field")?;
        let Some(Token::Operator(operator)) = self.peek().cloned() else {
            return Err(format!(
                "after {field:?} write ==, !=, <, <=, >, >= or =~; write for example {EXAMPLE}"
            ));
        };
        self.at += 1;
        let value = self.word("a value")?;
        Ok(Filter::Is(Comparison {
            field,
            operator,
            value,
        }))
    }
    fn word(&mut self, what: &str) -> Result<String, String> {
        match self.peek().cloned() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            Some(token) => Err(format!(
                "{} found, but {what} is expected; write for example {EXAMPLE}",
                token.shown()
            )),
            None => Err(format!(
                "{what} is missing at the end; write for example {EXAMPLE}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn holds(filter: &str) -> bool {
        filter
            .parse::<Filter>()
            .unwrap_or_else(|e| panic!("{filter}: {e}"))
            .holds(&Doc::of(&fixture::escalated()))
    }

    #[test]
    fn every_operator_compares() {
        for yes in [
            "state==running",
            "state = running",
            "state != done",
            "rung>2 && rung<=3",
            "limit >= 8GiB && limit < 9GiB",
            "task =~ map",
            "note == ''",
            "!(state==done || rung==1)",
            "reason == overhead_oom",
            "nothing == null && !nothing > 3",
        ] {
            assert!(holds(yes), "{yes}");
        }
        for no in [
            "state==done",
            "limit<1GiB",
            "rung==1 || state==done",
            "rung != 3",
            "nothing != null",
            "used<1KiB",
        ] {
            assert!(!holds(no), "{no}");
        }
    }

    #[test]
    fn and_binds_more_than_or() {
        assert!(holds("state==running || state==done && rung==9"));
        assert!(!holds("(state==running || state==done) && rung==9"));
    }

    #[test]
    fn times_have_the_unit_of_their_field() {
        assert_eq!(quantity("silent_ms", "3s"), Some(3000.0));
        assert_eq!(quantity("up_s", "2m"), Some(120.0));
        assert_eq!(quantity("memory", "1KiB"), Some(1024.0));
        assert_eq!(quantity("state", "ready"), None);
    }

    #[test]
    fn errors_name_the_expected_token() {
        for (text, expected) in [
            ("", "a field is missing"),
            ("state", "after \"state\""),
            ("state ==", "a value is missing"),
            ("(state==a", "a ) is missing"),
            ("state==a b", "\"b\" is not expected"),
            ("state=='a", "not closed"),
            ("&& a==b", "found, but a field is expected"),
        ] {
            let wrong = text.parse::<Filter>().expect_err(text);
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
    }
}
