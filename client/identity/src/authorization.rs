//! Authorization: the caller, the requirement of a call, and the decision.

use std::sync::Arc;

use headroom_types::{AppId, AttemptId, NodeId, QueuePath};

use crate::right::{AccessRight, AccessRights};
use crate::token::TokenAccessor;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A caller of a loopback listener without authentication and access rules.
    Open,
    /// An unauthenticated caller.
    Anonymous,
    /// A user, authenticated by token, by certificate, or by the Unix socket of the host.
    User {
        /// Name of the account.
        name: String,
        /// The token of the call, if any.
        token: Option<TokenAccessor>,
        /// Rights of the user.
        rights: AccessRights,
        /// Groups of the user on the resource manager's host, as far as known.
        groups: Arc<[String]>,
    },
    /// A resource manager.
    Manager,
    /// The agent of a node.
    Node(NodeId),
    /// The master of an application.
    Master(AttemptId),
    /// An executor of an application, which only queries the address of its master.
    Executor(AppId),
}

/// The attributes of an application that decide about access: its owner, its queue, and the users
/// that its owner admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOwnership {
    /// Owner of the application.
    pub user: String,
    /// Its queue.
    pub queue: QueuePath,
    /// Users, and groups with a leading `@`, that may view it.
    pub viewers: Vec<String>,
    /// Users and groups that may also change and end it.
    pub changers: Vec<String>,
}

/// The requirement of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRequirement {
    /// None: health check, version, the web page without its data.
    Nothing,
    /// A caller with at least one right.
    Anybody,
    /// A right.
    Right(AccessRight),
    /// View permission on some applications; the list itself filters them.
    Look,
    /// View permission on this application: callers with permission on all applications or on its
    /// queue, its owner and the users that the owner admits, its master and its executors.
    See(AppId),
    /// The master of this application, or a user who may change it with `job:kill`.
    Application(AppId),
    /// This right, on an own application or one that the user may change; `queue-admin` for
    /// applications of a queue; `operator:write` for all.
    Own(AccessRight, AppId),
    /// Administration of this queue.
    Queue(QueuePath),
    /// The agent of this node.
    Node(NodeId),
    /// The agent of any node, or a user with this right.
    SomeNodeOr(AccessRight),
    /// Another resource manager of the cluster.
    OtherManager,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    /// Unauthenticated caller.
    #[error("this call requires authentication")]
    Unknown,
    /// The authenticated caller lacks the permission.
    #[error("{who} may not do this: it needs {needs}")]
    Forbidden {
        /// Name of the caller.
        who: String,
        /// The missing permission.
        needs: String,
    },
}

impl Principal {
    /// Name of the caller in the audit log.
    pub fn audit_name(&self) -> Option<String> {
        match self {
            Principal::Open => None,
            Principal::Anonymous => Some("anonymous".to_owned()),
            Principal::User {
                name,
                token: Some(token),
                ..
            } => Some(format!("{name} (token {token})")),
            Principal::User {
                name, token: None, ..
            } => Some(name.clone()),
            Principal::Manager => Some("manager".to_owned()),
            Principal::Node(node) => Some(format!("node/{node}")),
            Principal::Master(attempt) => Some(format!("master/{attempt}")),
            Principal::Executor(app) => Some(format!("executor/{app}")),
        }
    }

    /// Checks the permission; `of` returns the access attributes of an application, if it is known.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn authorize(
        &self,
        need: &CallRequirement,
        of: impl FnOnce(&AppId) -> Option<AppOwnership>,
    ) -> Result<(), AccessDenied> {
        let allowed = match (self, need) {
            (Principal::Open, _) | (_, CallRequirement::Nothing) => true,
            (Principal::Anonymous, _) => return Err(AccessDenied::Unknown),
            (Principal::User { rights, .. }, _) => self.user_meets(rights, need, of),
            (Principal::Manager, _) => manager_meets(need),
            (Principal::Node(node), _) => node_meets(node, need),
            (Principal::Master(attempt), _) => master_meets(attempt, need),
            (Principal::Executor(app), _) => executor_meets(app, need),
        };
        let who = || self.audit_name().unwrap_or_default();
        if allowed {
            Ok(())
        } else {
            Err(AccessDenied::Forbidden {
                who: who(),
                needs: need.words(),
            })
        }
    }

    /// True if a user with these rights meets the requirement.
    fn user_meets(
        &self,
        rights: &AccessRights,
        need: &CallRequirement,
        of: impl FnOnce(&AppId) -> Option<AppOwnership>,
    ) -> bool {
        match need {
            CallRequirement::Nothing => true,
            CallRequirement::Anybody => rights.has(&AccessRight::ClusterRead),
            CallRequirement::Right(right) | CallRequirement::SomeNodeOr(right) => rights.has(right),
            CallRequirement::Look => rights.may_view_some(),
            CallRequirement::See(app) => {
                rights.has(&AccessRight::JobRead)
                    || of(app).is_none_or(|belongs| self.may_view(&belongs))
            }
            CallRequirement::Own(right, app) => self.may_change(rights, right, of(app).as_ref()),
            CallRequirement::Application(app) => {
                self.may_change(rights, &AccessRight::JobKill, of(app).as_ref())
            }
            CallRequirement::Queue(queue) => rights.may_administer(queue),
            CallRequirement::Node(_) | CallRequirement::OtherManager => {
                rights.has(&AccessRight::Admin)
            }
        }
    }
}

/// True if another resource manager meets the requirement.
fn manager_meets(need: &CallRequirement) -> bool {
    match need {
        CallRequirement::Nothing
        | CallRequirement::Anybody
        | CallRequirement::See(_)
        | CallRequirement::Look
        | CallRequirement::OtherManager => true,
        CallRequirement::Right(right) => {
            matches!(right, AccessRight::ClusterRead | AccessRight::JobRead)
        }
        CallRequirement::Application(_)
        | CallRequirement::Own(..)
        | CallRequirement::Queue(_)
        | CallRequirement::Node(_)
        | CallRequirement::SomeNodeOr(_) => false,
    }
}

/// True if the agent of this node meets the requirement.
fn node_meets(node: &NodeId, need: &CallRequirement) -> bool {
    match need {
        CallRequirement::Nothing | CallRequirement::Anybody | CallRequirement::SomeNodeOr(_) => {
            true
        }
        // A node queries whether an application with files on it has ended.
        CallRequirement::See(_) => true,
        CallRequirement::Node(of) => node == of,
        CallRequirement::Right(right) => *right == AccessRight::ClusterRead,
        CallRequirement::Look
        | CallRequirement::Application(_)
        | CallRequirement::Own(..)
        | CallRequirement::OtherManager
        | CallRequirement::Queue(_) => false,
    }
}

/// True if this master meets the requirement.
fn master_meets(attempt: &AttemptId, need: &CallRequirement) -> bool {
    match need {
        CallRequirement::Nothing | CallRequirement::Anybody => true,
        CallRequirement::Application(app)
        | CallRequirement::Own(_, app)
        | CallRequirement::See(app) => attempt.app == *app,
        // Masters may read nodes and the history of their job name, but nothing about other
        // applications.
        CallRequirement::Right(right) => *right == AccessRight::ClusterRead,
        CallRequirement::Look
        | CallRequirement::Queue(_)
        | CallRequirement::Node(_)
        | CallRequirement::OtherManager
        | CallRequirement::SomeNodeOr(_) => false,
    }
}

/// True if an executor of this application meets the requirement.
fn executor_meets(own: &AppId, need: &CallRequirement) -> bool {
    match need {
        CallRequirement::Nothing | CallRequirement::Anybody => true,
        CallRequirement::See(app) => own == app,
        CallRequirement::Look
        | CallRequirement::Right(_)
        | CallRequirement::Application(_)
        | CallRequirement::Own(..)
        | CallRequirement::Queue(_)
        | CallRequirement::Node(_)
        | CallRequirement::OtherManager
        | CallRequirement::SomeNodeOr(_) => false,
    }
}

impl Principal {
    /// True if the caller may view every application.
    pub fn may_view_all(&self) -> bool {
        match self {
            Principal::Open | Principal::Manager => true,
            Principal::User { rights, .. } => rights.has(&AccessRight::JobRead),
            Principal::Anonymous
            | Principal::Node(_)
            | Principal::Master(_)
            | Principal::Executor(_) => false,
        }
    }

    /// True if the caller may view an application with these attributes.
    pub fn may_view(&self, belongs: &AppOwnership) -> bool {
        self.may_view_all()
            || match self {
                Principal::User { name, rights, .. } => {
                    *name == belongs.user
                        || rights.may_view_queue(&belongs.queue)
                        || self.is_among(&belongs.viewers)
                        || self.is_among(&belongs.changers)
                }
                Principal::Open
                | Principal::Manager
                | Principal::Anonymous
                | Principal::Node(_)
                | Principal::Master(_)
                | Principal::Executor(_) => false,
            }
    }

    /// True if a user may change an application. For an unknown application only the right counts;
    /// the handler reports the missing application.
    fn may_change(
        &self,
        rights: &AccessRights,
        right: &AccessRight,
        belongs: Option<&AppOwnership>,
    ) -> bool {
        let Some(belongs) = belongs else {
            return rights.has(right);
        };
        let own =
            self.is_among(std::slice::from_ref(&belongs.user)) || self.is_among(&belongs.changers);
        rights.may_administer(&belongs.queue) || rights.has(right) && own
    }

    /// True if a list of users and groups contains the user.
    fn is_among(&self, subjects: &[String]) -> bool {
        let Principal::User { name, groups, .. } = self else {
            return false;
        };
        subjects
            .iter()
            .any(|subject| match subject.strip_prefix('@') {
                Some(group) => groups.iter().any(|own| own == group),
                None => subject == name,
            })
    }
}

impl CallRequirement {
    /// The requirement in words, for the refused caller.
    pub fn words(&self) -> String {
        match self {
            CallRequirement::Nothing => "nothing".to_owned(),
            CallRequirement::Anybody => "some right".to_owned(),
            CallRequirement::Right(right) => format!("the right {right}"),
            CallRequirement::Look => "the right job:read, or queue-view for a queue".to_owned(),
            CallRequirement::See(app) => {
                format!("the right job:read, the token of {app}, or the permission of its owner")
            }
            CallRequirement::Queue(queue) => {
                format!("the right queue-admin:{queue}, or operator:write")
            }
            CallRequirement::Application(app) => {
                format!("the token of {app}, or the right job:kill and ownership of {app}")
            }
            CallRequirement::Own(right, app) => {
                format!("the right {right} and ownership of {app}, or the right operator:write")
            }
            CallRequirement::Node(node) => format!("the certificate of node {node}"),
            CallRequirement::SomeNodeOr(right) => {
                format!("the right {right}, or the certificate of a node")
            }
            CallRequirement::OtherManager => "the certificate of a resource manager".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, rights: &[AccessRight]) -> Principal {
        Principal::User {
            name: name.into(),
            token: None,
            rights: rights.iter().cloned().collect(),
            groups: Arc::default(),
        }
    }

    fn app(id: &str) -> AppId {
        id.parse().expect("an app")
    }

    /// Owned by alice, in root.etl; bob may view it, and the group oncall may change it.
    fn belongs() -> AppOwnership {
        let (user, queue) = ("alice".to_owned(), "root.etl".parse().expect("a queue"));
        AppOwnership {
            user,
            queue,
            viewers: vec!["bob".into()],
            changers: vec!["@oncall".into()],
        }
    }

    fn may(who: &Principal, need: &CallRequirement) -> bool {
        who.authorize(need, |_| Some(belongs())).is_ok()
    }

    #[test]
    fn a_user_can_change_only_own_applications() {
        let kill = CallRequirement::Own(AccessRight::JobKill, app("sort.1"));
        assert!(may(&user("alice", &[AccessRight::JobKill]), &kill));
        assert!(!may(&user("alice", &[AccessRight::JobSubmit]), &kill));
        assert!(!may(&user("bob", &[AccessRight::JobKill]), &kill));
        assert!(may(&user("bob", &[AccessRight::OperatorWrite]), &kill));
        assert!(may(&user("bob", &[AccessRight::Admin]), &kill));
    }

    #[test]
    fn queue_administrators_and_permitted_users_can_act_on_applications() {
        let (see, kill) = (
            CallRequirement::See(app("sort.1")),
            CallRequirement::Own(AccessRight::JobKill, app("sort.1")),
        );
        let queue = |name: &str| name.parse::<QueuePath>().expect("a queue");
        let keeper = user("carol", &[AccessRight::QueueAdmin(queue("root.etl"))]);
        assert!(
            may(&keeper, &see)
                && may(&keeper, &kill)
                && may(&keeper, &CallRequirement::Queue(queue("root.etl.daily")))
        );
        assert!(
            !may(&keeper, &CallRequirement::Queue(queue("root")))
                && !may(&keeper, &CallRequirement::Right(AccessRight::OperatorWrite))
        );
        let other = user(
            "carol",
            &[
                AccessRight::QueueAdmin(queue("root.web")),
                AccessRight::JobKill,
            ],
        );
        assert!(!may(&other, &see) && !may(&other, &kill), "another queue");
        assert!(may(
            &user("carol", &[AccessRight::QueueView(queue("root"))]),
            &see
        ));
        assert!(
            may(&user("alice", &[AccessRight::JobSubmit]), &see),
            "own application"
        );
        let bob = user("bob", &[AccessRight::JobSubmit, AccessRight::JobKill]);
        assert!(may(&bob, &see) && !may(&bob, &kill), "may view only");
        let Principal::User { rights, .. } = &bob else {
            panic!("a user")
        };
        let oncall = Principal::User {
            name: "dan".into(),
            token: None,
            rights: rights.clone(),
            groups: ["oncall".to_owned()].into(),
        };
        assert!(may(&oncall, &see) && may(&oncall, &kill));
        assert!(
            !may(&user("oncall", &[AccessRight::JobKill]), &kill),
            "a user with the name of the group is not a member"
        );
    }

    #[test]
    fn a_master_can_act_on_its_own_application_only() {
        let master = Principal::Master("sort.1@1".parse().expect("an attempt"));
        assert!(may(&master, &CallRequirement::Application(app("sort.1"))));
        assert!(!may(&master, &CallRequirement::Application(app("sort.2"))));
        assert!(!may(
            &master,
            &CallRequirement::Own(AccessRight::JobKill, app("sort.2"))
        ));
        assert!(!may(
            &master,
            &CallRequirement::Right(AccessRight::JobSubmit)
        ));
        assert!(!may(
            &master,
            &CallRequirement::SomeNodeOr(AccessRight::JobSubmit)
        ));
    }

    #[test]
    fn a_node_can_act_only_as_itself() {
        let node = Principal::Node("n1".parse().expect("a node"));
        assert!(may(
            &node,
            &CallRequirement::Node("n1".parse().expect("a node"))
        ));
        assert!(!may(
            &node,
            &CallRequirement::Node("n2".parse().expect("a node"))
        ));
        assert!(!may(&node, &CallRequirement::Application(app("sort.1"))));
        assert!(!may(&node, &CallRequirement::Right(AccessRight::NodeWrite)));
    }

    #[test]
    fn unauthenticated_callers_have_no_access() {
        let needs = [
            CallRequirement::Anybody,
            CallRequirement::SomeNodeOr(AccessRight::ClusterRead),
            CallRequirement::Right(AccessRight::ClusterRead),
            CallRequirement::Application(app("a.1")),
        ];
        for need in needs {
            assert_eq!(
                Principal::Anonymous.authorize(&need, |_| None),
                Err(AccessDenied::Unknown)
            );
            assert!(may(&Principal::Open, &need));
        }
        assert!(may(&Principal::Anonymous, &CallRequirement::Nothing));
    }

    #[test]
    fn a_refusal_names_the_caller_and_the_right() {
        let why = user("bob", &[])
            .authorize(&CallRequirement::Right(AccessRight::NodeWrite), |_| None)
            .expect_err("forbidden")
            .to_string();
        assert_eq!(why, "bob may not do this: it needs the right node:write");
    }
}
