//! Screens of tokens, policies, and the caller.

use headroom_types::UnixMillis;
use headroom_wire::v1::acl::{CallerIdentity, PolicyView, TokenView};

use super::ListStyle;
use super::figures::{or_dash, span};
use super::table::{Column, list};

/// Tokens without their secrets.
pub(crate) fn tokens(all: &[TokenView], now: UnixMillis, look: ListStyle) -> String {
    if all.is_empty() {
        return "no tokens\nnext: rmctl acl token create --right job:submit,job:read\n".to_owned();
    }
    let whom = |token: &TokenView| {
        let node = || token.node.as_ref().map(ToString::to_string);
        let whom = token.user.clone().or_else(node);
        whom.unwrap_or_else(|| "any node".to_owned())
    };
    let rights = |token: &TokenView| Some(token.rights.join(",")).filter(|r| !r.is_empty());
    let columns: &[Column<'_, &TokenView>] = &[
        ("ACCESSOR", &|token| token.accessor.clone()),
        ("KIND", &|token| token.kind.to_string()),
        ("FOR", &whom),
        ("RIGHTS", &|token| or_dash(rights(token))),
        ("EXPIRES", &|token| ends(token.expires, now)),
        ("BY", &|token| token.by.clone()),
        ("ABOUT", &|token| token.about.clone()),
    ];
    list(all, look, columns)
}

/// Remaining time until the expiry.
fn ends(expires: Option<UnixMillis>, now: UnixMillis) -> String {
    match expires {
        None => "never".to_owned(),
        Some(at) if at <= now => "over".to_owned(),
        Some(at) => format!(
            "in {}",
            span(std::time::Duration::from_millis(at.0 - now.0))
        ),
    }
}

/// Policies of users and groups.
pub(crate) fn policies(all: &[PolicyView], look: ListStyle) -> String {
    if all.is_empty() {
        return "no policies: every user has the default rights\nnext: rmctl acl policy set alice --right job:read\n".to_owned();
    }
    let columns: &[Column<'_, &PolicyView>] = &[
        ("SUBJECT", &|policy| policy.subject.clone()),
        ("RIGHTS", &|policy| policy.rights.join(",")),
    ];
    list(all, look, columns)
}

/// The caller and its rights.
pub(crate) fn own(own: &CallerIdentity, now: UnixMillis) -> String {
    let who = own
        .who
        .as_deref()
        .unwrap_or("unauthenticated: the resource manager does not authenticate callers");
    let rights = if own.rights.is_empty() {
        "no user rights".to_owned()
    } else {
        own.rights.join(", ")
    };
    let token = own.token.as_ref().map(|token| {
        format!(
            "token   {}, expires {}\n",
            token.accessor,
            ends(token.expires, now)
        )
    });
    format!(
        "you     {who}\n{}rights  {rights}\n",
        token.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::acl::TokenKind;

    #[test]
    fn tokens_and_policies_are_listed_without_secrets() {
        let now = UnixMillis(1_790_000_000_000);
        let alice = TokenView {
            accessor: "4f1c8a2b9d3e5f60".into(),
            kind: TokenKind::User,
            user: Some("alice".into()),
            rights: vec![
                "job:read".into(),
                "job:submit".into(),
                "queue:root.etl".into(),
            ],
            node: None,
            about: "nightly load".into(),
            by: "root".into(),
            created: now,
            expires: Some(UnixMillis(now.0 + 12 * 3_600_000)),
        };
        let join = TokenView {
            accessor: "00aa11bb22cc33dd".into(),
            kind: TokenKind::Join,
            user: None,
            rights: vec![],
            node: Some("worker-07".parse().expect("a node")),
            about: String::new(),
            expires: None,
            ..alice.clone()
        };
        let look = ListStyle::USUAL;
        insta::assert_snapshot!("acl_tokens", tokens(&[alice.clone(), join], now, look));
        let policy = PolicyView {
            subject: "@etl".into(),
            rights: vec!["job:submit".into(), "queue:root.etl".into()],
        };
        insta::assert_snapshot!("acl_policies", policies(&[policy], look));
        let me = CallerIdentity {
            who: Some("alice (token 4f1c8a2b9d3e5f60)".into()),
            rights: alice.rights.clone(),
            token: Some(alice),
        };
        insta::assert_snapshot!("acl_self", own(&me, now));
        assert!(tokens(&[], now, look).contains("create"));
    }
}
