//! Parts of sentences for users: alternatives, tags, and missing resources.
//!
//! Pure. It formats what it is given, and never reads the cluster.

use std::fmt;

use headroom_types::{Bytes, Name, Resource};

/// Memory of a node that ended containers left charged, with a leading comma; empty for zero.
pub(crate) fn left_words(left: Bytes) -> String {
    if left.is_zero() {
        return String::new();
    }
    format!(", and ended containers left {left} charged there")
}

/// `a`, `a or b`, `a, b, c or 2 more`.
pub(crate) fn either<T: fmt::Display>(values: impl Iterator<Item = T>) -> String {
    const NAMED: usize = 3;
    let mut words: Vec<String> = values.map(|v| v.to_string()).collect();
    if words.len() > NAMED {
        let more = words.len() - NAMED;
        words.truncate(NAMED);
        words.push(format!("{more} more"));
    }
    let Some(last) = words.pop() else {
        return "nothing".into();
    };
    if words.is_empty() {
        last
    } else {
        format!("{} or {last}", words.join(", "))
    }
}

/// Missing resources of a node that is large enough when empty.
pub(crate) fn shortfall(need: &Resource, free: &Resource) -> String {
    let mut short = Vec::new();
    if need.memory > free.memory {
        short.push(format!(
            "{} of memory short",
            need.memory.saturating_sub(free.memory)
        ));
    }
    if let Some(cpus) = need.cpus.checked_sub(free.cpus).filter(|c| c.milli() > 0) {
        short.push(format!("{} short", cpus.words()));
    }
    for (name, n) in &need.extra {
        let have = free.extra.get(name).copied().unwrap_or(0);
        if *n > have {
            short.push(format!("{} {name} short", n - have));
        }
    }
    short.join(", ")
}

/// `name=value`, or only the name when the value is empty.
pub(crate) fn pair(name: &Name, value: &str) -> String {
    if value.is_empty() {
        name.to_string()
    } else {
        format!("{name}={value}")
    }
}
