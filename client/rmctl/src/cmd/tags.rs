//! Operators' marks on nodes: cordon, labels, attributes, taints.

use headroom_client::DryRunMode;
use headroom_types::NodeId;
use headroom_wire::v1::nodes::{NodeView, TagNodeRequest};

use crate::args::{NodeCordonArgs, NodeLabelArgs, NodeMarkEdit, NodeTaintArgs, NodeUncordonArgs};
use crate::context::{CommandContext, user};
use crate::exit::CommandResult;
use crate::render::{json::MachineOutput, tags};

/// Cordons a node: it gets no new containers; running ones continue.
pub(super) async fn cordon(context: &CommandContext, args: NodeCordonArgs) -> CommandResult {
    let reason = args
        .reason
        .or_else(|| user().map(|user| format!("cordoned by {user}")));
    let body = TagNodeRequest {
        cordon: Some(true),
        reason,
        ..TagNodeRequest::default()
    };
    let view = send(context, &args.node, args.dry_run, &body).await?;
    print_node(context, &view, |v| tags::cordoned(v, args.dry_run))
}

/// Uncordons a node.
pub(super) async fn uncordon(context: &CommandContext, args: NodeUncordonArgs) -> CommandResult {
    let body = TagNodeRequest {
        cordon: Some(false),
        ..TagNodeRequest::default()
    };
    let view = send(context, &args.node, args.dry_run, &body).await?;
    print_node(context, &view, |v| tags::uncordoned(v, args.dry_run))
}

/// Sets and removes labels and attributes.
pub(super) async fn label(context: &CommandContext, args: NodeLabelArgs) -> CommandResult {
    let view = send(context, &args.node, args.dry_run, &labels(&args.words)).await?;
    print_node(context, &view, |v| {
        tags::said(v, args.dry_run, context.term.paint) + &tags::stays(v, &gone(&args.words))
    })
}

/// Sets and removes taints.
pub(super) async fn taint(context: &CommandContext, args: NodeTaintArgs) -> CommandResult {
    let view = send(context, &args.node, args.dry_run, &taints(&args.words)).await?;
    print_node(context, &view, |v| {
        tags::said(v, args.dry_run, context.term.paint)
    })
}

async fn send(
    context: &CommandContext,
    node: &NodeId,
    dry_run: bool,
    body: &TagNodeRequest,
) -> CommandResult<NodeView> {
    let how = DryRunMode::of(dry_run);
    Ok(context.client()?.tag_node(node, how, body).await?)
}

fn labels(words: &[NodeMarkEdit]) -> TagNodeRequest {
    let mut body = TagNodeRequest::default();
    for word in words {
        match word {
            NodeMarkEdit::Alone(label) => drop(body.labels.insert(label.clone(), true)),
            NodeMarkEdit::With(name, value) => {
                drop(body.attributes.insert(name.clone(), Some(value.clone())))
            }
            NodeMarkEdit::Gone(name) => {
                // The name may be a label or an attribute.
                body.labels.insert(name.clone(), false);
                body.attributes.insert(name.clone(), None);
            }
        }
    }
    body
}

fn taints(words: &[NodeMarkEdit]) -> TagNodeRequest {
    let one = |word: &NodeMarkEdit| match word {
        NodeMarkEdit::Alone(name) => (name.clone(), Some(String::new())),
        NodeMarkEdit::With(name, value) => (name.clone(), Some(value.clone())),
        NodeMarkEdit::Gone(name) => (name.clone(), None),
    };
    TagNodeRequest {
        taints: words.iter().map(one).collect(),
        ..TagNodeRequest::default()
    }
}

fn gone(words: &[NodeMarkEdit]) -> Vec<headroom_types::Name> {
    let gone = words.iter().filter_map(|word| match word {
        NodeMarkEdit::Gone(name) => Some(name.clone()),
        NodeMarkEdit::Alone(_) | NodeMarkEdit::With(..) => None,
    });
    gone.collect()
}

/// Prints a node: the document in a machine format, or a text for users.
pub(super) fn print_node(
    context: &CommandContext,
    view: &NodeView,
    people: impl Fn(&NodeView) -> String,
) -> CommandResult {
    let machine = MachineOutput::one(view).text(&context.output, |n| n.id.to_string());
    Ok(context.show(machine, || people(view)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_the_request_body() {
        let name = |text: &str| text.parse::<headroom_types::Name>().expect("a name");
        let words = [
            NodeMarkEdit::Alone(name("gpu")),
            NodeMarkEdit::With(name("zone"), "b".into()),
            NodeMarkEdit::Gone(name("old")),
        ];
        let body = serde_json::to_value(labels(&words)).expect("writes");
        let wanted = serde_json::json!({"labels": {"gpu": true, "old": false}, "attributes": {"zone": "b", "old": null}});
        assert_eq!(body, wanted);
        let body = serde_json::to_value(taints(&words)).expect("writes");
        assert_eq!(
            body,
            serde_json::json!({"taints": {"gpu": "", "zone": "b", "old": null}})
        );
        assert_eq!(gone(&words), [name("old")]);
    }
}
