//! Arguments of `rmctl node cordon`, `uncordon`, `label`, `taint` and `bench`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter as Completer;
use headroom_types::{Name, NodeId};

use crate::complete;

/// Arguments of `rmctl node cordon`.
#[derive(Debug, Args)]
pub(crate) struct NodeCordonArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// Reason, stored with the node
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only print the result
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `rmctl node bench`.
#[derive(Debug, Args)]
pub(crate) struct NodeBenchArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// Number of concurrent containers, 96 MiB each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub(crate) containers: u32,
    /// Number of tasks that end at once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub(crate) tasks: u32,
}

/// Arguments of `rmctl node uncordon`.
#[derive(Debug, Args)]
pub(crate) struct NodeUncordonArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// Only print the result
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `rmctl node label`.
#[derive(Debug, Args)]
pub(crate) struct NodeLabelArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// gpu (a label), zone=b (an attribute), gpu- or zone- (removed); can be repeated
    #[arg(required = true, value_name = "LABEL", value_parser = word)]
    pub(crate) words: Vec<NodeMarkEdit>,
    /// Only print the result
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `rmctl node taint`.
#[derive(Debug, Args)]
pub(crate) struct NodeTaintArgs {
    /// The node
    #[arg(add = Completer::new(complete::nodes))]
    pub(crate) node: NodeId,
    /// etl, team=etl, or etl- (removed); can be repeated
    #[arg(required = true, value_name = "TAINT", value_parser = word)]
    pub(crate) words: Vec<NodeMarkEdit>,
    /// Only print the result
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A label, an attribute or a taint, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeMarkEdit {
    /// A name without a value.
    Alone(Name),
    /// A name with a value.
    With(Name, String),
    /// A name to remove.
    Gone(Name),
}

/// Parses a toleration: the name of a taint, with one value or with any.
pub(super) fn taint(text: &str) -> Result<(Name, Option<String>), String> {
    match word(text)? {
        NodeMarkEdit::Alone(name) => Ok((name, None)),
        NodeMarkEdit::With(name, value) => Ok((name, Some(value))),
        NodeMarkEdit::Gone(_) => Err("write etl, or team=etl".to_owned()),
    }
}

fn word(text: &str) -> Result<NodeMarkEdit, String> {
    let name = |text: &str| text.parse::<Name>().map_err(|e| e.to_string());
    match text.split_once('=') {
        Some((_, "")) => Err(format!("write {text}VALUE, or the name alone")),
        Some((key, value)) => Ok(NodeMarkEdit::With(name(key)?, value.to_owned())),
        None => match text.strip_suffix('-') {
            Some(gone) => Ok(NodeMarkEdit::Gone(name(gone)?)),
            None => Ok(NodeMarkEdit::Alone(name(text)?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_set_given_a_value_or_removed() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        assert_eq!(word("gpu"), Ok(NodeMarkEdit::Alone(name("gpu"))));
        assert_eq!(
            word("zone=b=c"),
            Ok(NodeMarkEdit::With(name("zone"), "b=c".into()))
        );
        assert_eq!(word("gpu-"), Ok(NodeMarkEdit::Gone(name("gpu"))));
        assert_eq!(taint("team=etl"), Ok((name("team"), Some("etl".into()))));
        assert!(taint("gpu-").is_err());
        for wrong in ["", "-", "zone=", "=b", "a b"] {
            assert!(word(wrong).is_err(), "{wrong:?}");
        }
    }
}
