//! Who calls, what the call needs, and whether the one may do the other.

use headroom_types::{AppId, AttemptId, NodeId};

use crate::right::{Right, Rights};
use crate::token::Accessor;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Nobody is asked who they are: the daemon listens on loopback and has no rules.
    Open,
    /// Somebody who did not say who they are.
    Anonymous,
    /// A user: by token, by certificate, or by the socket of the host.
    User {
        /// The name of the account.
        name: String,
        /// The token that said so, if it was one.
        token: Option<Accessor>,
        /// What they may do.
        rights: Rights,
    },
    /// A resource manager.
    Manager,
    /// The agent of this node.
    Node(NodeId),
    /// The master of this application.
    Master(AttemptId),
    /// An executor of this application, which only asks where its master is.
    Executor(AppId),
}

/// What a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: whether it lives, its version, the page without what it shows.
    Nothing,
    /// To be somebody who may do at least anything.
    Anybody,
    /// A right, whoever has it.
    Right(Right),
    /// To look at this application: whoever may look at all of them, its master and its executors.
    See(AppId),
    /// To be the master of this application, or its owner with the right to change it.
    Application(AppId),
    /// This right for an application of one's own, `operator:write` for anybody else's.
    Own(Right, AppId),
    /// To be the agent of this node.
    Node(NodeId),
    /// To be the agent of some node; which one is in the body.
    SomeNode,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Who calls is not known, and must be.
    #[error("nobody may do this without saying who they are")]
    Unknown,
    /// Who calls is known and may not.
    #[error("{who} may not do this: it needs {needs}")]
    Forbidden {
        /// Who.
        who: String,
        /// What would be needed.
        needs: String,
    },
}

impl Principal {
    /// How the record of changes names it.
    pub fn who(&self) -> Option<String> {
        match self {
            Principal::Open => None,
            Principal::Anonymous => Some("anonymous".to_owned()),
            Principal::User { name, token: Some(token), .. } => Some(format!("{name} (token {token})")),
            Principal::User { name, token: None, .. } => Some(name.clone()),
            Principal::Manager => Some("manager".to_owned()),
            Principal::Node(node) => Some(format!("node/{node}")),
            Principal::Master(attempt) => Some(format!("master/{attempt}")),
            Principal::Executor(app) => Some(format!("executor/{app}")),
        }
    }

    /// Whether this may be done; `owner` says whose an application is, where somebody knows it.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may(&self, need: &Need, owner: impl FnOnce(&AppId) -> Option<String>) -> Result<(), Why> {
        let allowed = match (self, need) {
            (Principal::Open, _) | (_, Need::Nothing) => true,
            (Principal::Anonymous, _) => return Err(Why::Unknown),
            (Principal::User { rights, .. }, Need::Anybody) => rights.has(&Right::ClusterRead),
            (Principal::Manager | Principal::Node(_) | Principal::Master(_) | Principal::Executor(_), Need::Anybody) => true,
            (Principal::User { rights, .. }, Need::Right(right)) => rights.has(right),
            (Principal::User { rights, .. }, Need::See(_)) => rights.has(&Right::JobRead),
            (Principal::User { name, rights, .. }, Need::Own(right, app)) => {
                rights.has(&Right::OperatorWrite) || rights.has(right) && owner(app).is_none_or(|owner| owner == *name)
            }
            (Principal::User { name, rights, .. }, Need::Application(app)) => {
                rights.has(&Right::OperatorWrite) || rights.has(&Right::JobKill) && owner(app).is_none_or(|owner| owner == *name)
            }
            (Principal::User { rights, .. }, Need::Node(_) | Need::SomeNode) => rights.has(&Right::Admin),
            (Principal::Master(attempt), Need::Application(app) | Need::Own(_, app) | Need::See(app)) => attempt.app == *app,
            // Where nodes are, and what earlier jobs of that name needed: nothing of what runs for others.
            (Principal::Master(_), Need::Right(right)) => *right == Right::ClusterRead,
            (Principal::Executor(own), Need::See(app)) => own == app,
            (Principal::Node(node), Need::Node(of)) => node == of,
            (Principal::Node(_), Need::SomeNode) => true,
            // A node asks whether an application that has files there is over.
            (Principal::Node(_), Need::See(_)) => true,
            (Principal::Node(_), Need::Right(right)) => *right == Right::ClusterRead,
            (Principal::Manager, Need::Right(right)) => matches!(right, Right::ClusterRead | Right::JobRead),
            (Principal::Manager, Need::See(_)) => true,
            (Principal::Executor(_), Need::Right(_) | Need::Application(_) | Need::Own(..) | Need::Node(_) | Need::SomeNode)
            | (Principal::Node(_), Need::Application(_) | Need::Own(..))
            | (Principal::Master(_), Need::Node(_) | Need::SomeNode)
            | (Principal::Manager, Need::Application(_) | Need::Own(..) | Need::Node(_) | Need::SomeNode) => false,
        };
        let who = || self.who().unwrap_or_default();
        if allowed { Ok(()) } else { Err(Why::Forbidden { who: who(), needs: need.words() }) }
    }
}

impl Need {
    /// What it is, for whoever lacks it.
    pub fn words(&self) -> String {
        match self {
            Need::Nothing => "nothing".to_owned(),
            Need::Anybody => "some right".to_owned(),
            Need::Right(right) => format!("the right {right}"),
            Need::See(app) => format!("the right job:read, or the token of {app}"),
            Need::Application(app) => format!("the token of {app}, or the right job:kill and {app} to be one's own"),
            Need::Own(right, app) => format!("the right {right} and {app} to be one's own, or the right operator:write"),
            Need::Node(node) => format!("the certificate of node {node}"),
            Need::SomeNode => "the certificate of a node".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, rights: &[Right]) -> Principal {
        Principal::User { name: name.into(), token: None, rights: rights.iter().cloned().collect() }
    }

    fn app(id: &str) -> AppId {
        id.parse().expect("an app")
    }

    fn may(who: &Principal, need: &Need) -> bool {
        who.may(need, |_| Some("alice".into())).is_ok()
    }

    #[test]
    fn what_is_one_s_own_can_be_changed_and_what_is_not_cannot() {
        let kill = Need::Own(Right::JobKill, app("sort.1"));
        assert!(may(&user("alice", &[Right::JobKill]), &kill));
        assert!(!may(&user("alice", &[Right::JobSubmit]), &kill));
        assert!(!may(&user("bob", &[Right::JobKill]), &kill));
        assert!(may(&user("bob", &[Right::OperatorWrite]), &kill));
        assert!(may(&user("bob", &[Right::Admin]), &kill));
    }

    #[test]
    fn a_master_reaches_its_own_application_only() {
        let master = Principal::Master("sort.1@1".parse().expect("an attempt"));
        assert!(may(&master, &Need::Application(app("sort.1"))));
        assert!(!may(&master, &Need::Application(app("sort.2"))));
        assert!(!may(&master, &Need::Own(Right::JobKill, app("sort.2"))));
        assert!(!may(&master, &Need::Right(Right::JobSubmit)));
        assert!(!may(&master, &Need::SomeNode));
    }

    #[test]
    fn a_node_is_itself() {
        let node = Principal::Node("n1".parse().expect("a node"));
        assert!(may(&node, &Need::Node("n1".parse().expect("a node"))));
        assert!(!may(&node, &Need::Node("n2".parse().expect("a node"))));
        assert!(!may(&node, &Need::Application(app("sort.1"))));
        assert!(!may(&node, &Need::Right(Right::NodeWrite)));
    }

    #[test]
    fn whoever_does_not_say_who_they_are_learns_nothing() {
        let needs = [Need::Anybody, Need::SomeNode, Need::Right(Right::ClusterRead), Need::Application(app("a.1"))];
        for need in needs {
            assert_eq!(Principal::Anonymous.may(&need, |_| None), Err(Why::Unknown));
            assert!(may(&Principal::Open, &need));
        }
        assert!(may(&Principal::Anonymous, &Need::Nothing));
    }

    #[test]
    fn a_refusal_says_who_and_what_for() {
        let why = user("bob", &[]).may(&Need::Right(Right::NodeWrite), |_| None).expect_err("forbidden").to_string();
        assert_eq!(why, "bob may not do this: it needs the right node:write");
    }
}
