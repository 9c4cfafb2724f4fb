//! Filter expressions: `state==pending && limit>4GiB`. Parsed once, then evaluated for each row.

use std::cmp::Ordering;
use std::str::FromStr;
use std::time::Duration;

use headroom_types::Bytes;
use serde_json::Value;

use super::field::{RowDocument, number, text};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowFilter {
    /// Both conditions are true.
    And(Box<RowFilter>, Box<RowFilter>),
    /// At least one condition is true.
    Or(Box<RowFilter>, Box<RowFilter>),
    /// The condition is false.
    Not(Box<RowFilter>),
    /// A comparison of a field with a value.
    Is(Comparison),
}

/// A field compared with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    field: String,
    operator: ComparisonOperator,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonOperator {
    Equal,
    Unequal,
    Contains,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Operators in the order of matching: the longer ones first.
const OPERATORS: [(&str, ComparisonOperator); 8] = [
    ("==", ComparisonOperator::Equal),
    ("!=", ComparisonOperator::Unequal),
    ("<=", ComparisonOperator::AtMost),
    (">=", ComparisonOperator::AtLeast),
    ("=~", ComparisonOperator::Contains),
    ("<", ComparisonOperator::Less),
    (">", ComparisonOperator::More),
    ("=", ComparisonOperator::Equal),
];

impl RowFilter {
    /// Evaluates the condition for a row. A missing field is null.
    pub(crate) fn holds(&self, doc: &RowDocument) -> bool {
        match self {
            RowFilter::And(a, b) => a.holds(doc) && b.holds(doc),
            RowFilter::Or(a, b) => a.holds(doc) || b.holds(doc),
            RowFilter::Not(a) => !a.holds(doc),
            RowFilter::Is(comparison) => {
                comparison.holds(&doc.get(&comparison.field).unwrap_or_default())
            }
        }
    }

    /// All fields of the condition.
    pub(crate) fn fields(&self) -> Vec<&str> {
        match self {
            RowFilter::And(a, b) | RowFilter::Or(a, b) => {
                a.fields().into_iter().chain(b.fields()).collect()
            }
            RowFilter::Not(a) => a.fields(),
            RowFilter::Is(comparison) => vec![comparison.field.as_str()],
        }
    }
}

impl Comparison {
    fn holds(&self, value: &Value) -> bool {
        if value.is_null() {
            let same = self.value == "null";
            return match self.operator {
                ComparisonOperator::Equal => same,
                ComparisonOperator::Unequal => !same,
                ComparisonOperator::Contains
                | ComparisonOperator::Less
                | ComparisonOperator::AtMost
                | ComparisonOperator::More
                | ComparisonOperator::AtLeast => false,
            };
        }
        if self.operator == ComparisonOperator::Contains {
            return text(value).contains(&self.value);
        }
        let order = match number(value).zip(quantity(&self.field, &self.value)) {
            Some((a, b)) => a.total_cmp(&b),
            None => text(value).as_str().cmp(&self.value),
        };
        match self.operator {
            ComparisonOperator::Equal => order == Ordering::Equal,
            ComparisonOperator::Unequal => order != Ordering::Equal,
            ComparisonOperator::Less => order == Ordering::Less,
            ComparisonOperator::AtMost => order != Ordering::Greater,
            ComparisonOperator::More => order == Ordering::Greater,
            ComparisonOperator::AtLeast => order != Ordering::Less,
            ComparisonOperator::Contains => false,
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

impl FromStr for RowFilter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let tokens = tokens(text)?;
        let mut reader = FilterParser {
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
enum FilterToken {
    Word(String),
    Operator(ComparisonOperator),
    And,
    Or,
    Not,
    Open,
    Close,
}

impl FilterToken {
    fn shown(&self) -> String {
        match self {
            FilterToken::Word(word) => format!("{word:?}"),
            FilterToken::Operator(operator) => OPERATORS
                .iter()
                .find(|(_, o)| o == operator)
                .map_or("?", |(t, _)| t)
                .to_owned(),
            FilterToken::And => "&&".to_owned(),
            FilterToken::Or => "||".to_owned(),
            FilterToken::Not => "!".to_owned(),
            FilterToken::Open => "(".to_owned(),
            FilterToken::Close => ")".to_owned(),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<FilterToken>, String> {
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = token(rest, first)?;
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

fn token(rest: &str, first: char) -> Result<(FilterToken, usize), String> {
    let fixed = [
        ("&&", FilterToken::And),
        ("||", FilterToken::Or),
        ("(", FilterToken::Open),
        (")", FilterToken::Close),
    ];
    if let Some((text, token)) = fixed.into_iter().find(|(text, _)| rest.starts_with(text)) {
        return Ok((token, text.len()));
    }
    if let Some((text, operator)) = OPERATORS.iter().find(|(text, _)| rest.starts_with(text)) {
        return Ok((FilterToken::Operator(*operator), text.len()));
    }
    match first {
        '!' => Ok((FilterToken::Not, 1)),
        '"' | '\'' => {
            let end = rest[1..]
                .find(first)
                .ok_or_else(|| format!("the quote {first} is not closed"))?;
            Ok((FilterToken::Word(rest[1..=end].to_owned()), end + 2))
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
            Ok((FilterToken::Word(rest[..end].to_owned()), end))
        }
    }
}

/// A parser that reads tokens from left to right: `||` has the lowest precedence, `!` the highest.
struct FilterParser<'a> {
    tokens: &'a [FilterToken],
    at: usize,
}

impl FilterParser<'_> {
    fn peek(&self) -> Option<&FilterToken> {
        self.tokens.get(self.at)
    }
    fn takes(&mut self, token: &FilterToken) -> bool {
        let there = self.peek() == Some(token);
        self.at += usize::from(there);
        there
    }
    fn either(&mut self) -> Result<RowFilter, String> {
        let mut left = self.both()?;
        while self.takes(&FilterToken::Or) {
            left = RowFilter::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }
    fn both(&mut self) -> Result<RowFilter, String> {
        let mut left = self.one()?;
        while self.takes(&FilterToken::And) {
            left = RowFilter::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }
    fn one(&mut self) -> Result<RowFilter, String> {
        if self.takes(&FilterToken::Not) {
            return Ok(RowFilter::Not(Box::new(self.one()?)));
        }
        if self.takes(&FilterToken::Open) {
            let inner = self.either()?;
            return if self.takes(&FilterToken::Close) {
                Ok(inner)
            } else {
                Err("a ) is missing".to_owned())
            };
        }
        let field = self.word("a field")?;
        let Some(FilterToken::Operator(operator)) = self.peek().cloned() else {
            return Err(format!(
                "after {field:?} write ==, !=, <, <=, >, >= or =~; write for example {EXAMPLE}"
            ));
        };
        self.at += 1;
        let value = self.word("a value")?;
        Ok(RowFilter::Is(Comparison {
            field,
            operator,
            value,
        }))
    }
    fn word(&mut self, what: &str) -> Result<String, String> {
        match self.peek().cloned() {
            Some(FilterToken::Word(word)) => {
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
            .parse::<RowFilter>()
            .unwrap_or_else(|e| panic!("{filter}: {e}"))
            .holds(&RowDocument::of(&fixture::escalated()))
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
            let wrong = text.parse::<RowFilter>().expect_err(text);
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
    }
}
