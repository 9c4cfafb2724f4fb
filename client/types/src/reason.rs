//! Reasons of events: the closed list in the event log, with the topic and the trigger of each.

use std::fmt;
use std::str::FromStr;

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventTopic {
    /// The resource manager itself.
    Cluster,
    /// A node.
    Node,
    /// A queue.
    Queue,
    /// An application and its master.
    Job,
    /// A container request.
    Request,
    /// A container.
    Container,
    /// A task of a job.
    Task,
}

impl EventTopic {
    /// All of them.
    pub const ALL: [EventTopic; 7] = [
        EventTopic::Cluster,
        EventTopic::Node,
        EventTopic::Queue,
        EventTopic::Job,
        EventTopic::Request,
        EventTopic::Container,
        EventTopic::Task,
    ];

    /// The word in URLs and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            EventTopic::Cluster => "cluster",
            EventTopic::Node => "node",
            EventTopic::Queue => "queue",
            EventTopic::Job => "job",
            EventTopic::Request => "request",
            EventTopic::Container => "container",
            EventTopic::Task => "task",
        }
    }
}

impl FromStr for EventTopic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = EventTopic::ALL.into_iter().find(|t| t.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not a topic: cluster, node, queue, job, request, container or task"))
    }
}

/// The level of the events of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonLevel {
    /// Expected operation.
    Normal,
    /// Needs attention.
    Warning,
    /// Normal or warning, depending on the outcome.
    Either,
}

impl ReasonLevel {
    /// The word in the documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            ReasonLevel::Normal => "normal",
            ReasonLevel::Warning => "warning",
            ReasonLevel::Either => "normal or warning",
        }
    }
}

macro_rules! reasons {
    ($($name:ident $topic:ident $weight:ident $when:literal)*) => {
        /// The reason of an event. A name never gets a second meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $when] $name,)*
        }
        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];
            /// The name in the event log.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)* }
            }
            /// The subject of its events.
            pub fn topic(self) -> EventTopic {
                match self { $(Reason::$name => EventTopic::$topic,)* }
            }
            /// The level of its events.
            pub fn weight(self) -> ReasonLevel {
                match self { $(Reason::$name => ReasonLevel::$weight,)* }
            }
            /// The condition that triggers its events.
            pub fn when(self) -> &'static str {
                match self { $(Reason::$name => $when,)* }
            }
        }
    };
}

reasons! {
    ResourceManagerStarted Cluster Normal "A life of the resource manager begins."
    ConfigReloaded Cluster Normal "The configuration of the resource manager or of a node was read again while it runs; with the keys that hold now."
    ConfigRefused Cluster Warning "The configuration was to be read again and has mistakes: what held before still holds."
    NodeJoined Node Normal "A node agent registered."
    NodeReady Node Normal "A node takes work."
    NodeUnhealthy Node Warning "A node says that it cannot take work."
    NodeSilent Node Warning "No sign of life for as long as the key suspect says: no new work for now."
    NodeUnreachable Node Warning "Still silent, for as long as unreachable says; its containers are counted on."
    NodeLost Node Warning "Silent for as long as lost says: its containers are given up."
    NodeMissing Node Warning "A node of the life before did not come back after a restart."
    NodeDraining Node Normal "An operator lets a node run empty."
    NodeUndrained Node Normal "An operator lets it take work again."
    DrainDeadline Node Normal "The time to run empty is over; what is left is stopped."
    NodeDrained Node Normal "A node that is drained has no containers any more."
    NodeDecommissioned Node Normal "A drained node is no member any more."
    NodeCordoned Node Normal "An operator lets a node get no new containers; those it has stay."
    NodeUncordoned Node Normal "An operator lets it get new containers again."
    NodeTagged Node Normal "An operator changed what is said of a node: labels, attributes, taints."
    NodeMemoryLeft Node Warning "Ended containers left memory on a node that no running container holds; with who left it. The scheduler counts it as taken."
    NodeMemoryFreed Node Normal "That memory is free again."
    NodeOom Node Warning "A container was killed because its whole host ran out of memory."
    NodeReserved Request Normal "A node is kept free for a request that has waited."
    ReservationEnded Request Normal "A node is no longer kept for it."
    QueuesSet Queue Normal "Another tree of queues is in force."
    QueueGate Queue Normal "A queue was opened, paused, drained or closed."
    ProfileSet Cluster Normal "A profile of the cluster is new or has another size."
    ProfileUnset Cluster Normal "A profile of the cluster was taken away."
    JobSubmitted Job Normal "An application was accepted; it survives any restart from here on."
    AppRunning Job Normal "Its master has registered."
    AppFinished Job Normal "It ended, and it succeeded."
    AppFailed Job Warning "It ended, and it failed."
    AppKilled Job Normal "It was ended on request."
    AppChanged Job Normal "Its queue, priority or lifetime was changed."
    JobPurged Job Normal "Somebody had what is kept of it, after its end, removed."
    JobScaled Job Normal "How many executors of a set it may have at once was changed on request."
    ScaleRefused Job Warning "It was to have another number of executors, and has no such set."
    KillAsked Job Normal "Somebody asked to end it."
    LifetimeOver Job Warning "Its time is over, and it is ended."
    MasterLaunched Job Normal "A run of its master was given a container."
    MasterFailed Job Warning "A run of its master ended before it was done."
    JobStarted Job Normal "Its master begins with the tasks."
    JobFinished Job Either "All of its tasks are over; a warning when not all are done."
    RequestCreated Request Normal "A master asks for containers of one size."
    RequestGranted Request Normal "One of them was given; with how long it was waited for."
    RequestStarving Request Warning "A request has waited for five minutes."
    RequestRefused Request Warning "No node could ever give it, so it was not taken in."
    RequestExpired Request Warning "Its deadline passed with something missing."
    PreemptPlanned Request Normal "Containers of others are to be taken back for it."
    PreemptCalledOff Request Normal "That is no longer needed."
    PreemptSoon Container Either "A container is about to be taken back for another queue."
    ContainerLeaving Container Normal "Its node runs empty, so its master begins nothing new in it."
    ContainerStarted Container Normal "Its program runs."
    ContainerExited Container Either "It ended, but not for memory; a warning when its end was not asked for and no success."
    ContainerSignalled Container Normal "Somebody had a signal sent to its program, or to all of its processes."
    ContainerEntered Container Normal "Somebody runs a program of theirs in it, beside its own."
    ContainerResizing Container Normal "Another size is on its way to its node."
    ContainerResized Container Normal "It has another size."
    ResizeFailed Container Warning "It keeps its size: its node could not give it the other one."
    ResizeOverdue Container Warning "Its node has not said whether it has its new size."
    NearLimit Container Warning "It uses 90 % of its limit or more; told once for each container."
    OomKilled Container Warning "A container, or a task in one, ended for memory of its own."
    NodeShunned Task Warning "Launches failed on a node, so its master begins nothing there for a while and asks for others; or tasks were killed there for outer limits, and the job leaves it."
    TaskFinished Task Normal "An attempt ended well."
    AttemptLost Task Warning "An attempt ended, and memory was not the reason."
    TaskRetried Task Normal "A task runs again, with the same size."
    TaskMoved Task Normal "A task runs again elsewhere."
    TaskFailed Task Warning "A task was given up."
    RungLearned Task Normal "Tasks of a kind begin with more or less than before, by more than a tenth: learned from those that ended."
    Escalated Task Warning "A task runs again with more, because memory ended its last attempt."
    EscalationExhausted Task Warning "Memory ended it again, and there is no larger size."
    Grown Task Normal "A running attempt was given more memory where it runs."
    GrowthRefused Task Warning "A running attempt that needed more could not be given it."
    GrowthWaits Task Normal "A running attempt is held near its limit because there is no room for more on its node."
    GaveWay Task Normal "A running attempt was ended so that one that is held on its node can be given its memory; it runs again, uncharged."
    InputGap Task Warning "An attempt read far more or less than was planned."
    BadlySized Task Warning "So many tasks of a stage needed more that it is given no more."
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Reason::ALL.iter().copied().find(|r| r.as_str() == text);
        found.ok_or_else(|| {
            let near = crate::spelling::did_you_mean(text, Reason::ALL.iter().map(|r| r.as_str()));
            format!("{text:?} is not a reason of events{}", near.map(|n| format!("; {n}")).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_read_as_it_is_written() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
            assert!(reason.when().ends_with('.') && EventTopic::ALL.contains(&reason.topic()));
        }
        assert!("OomKiled".parse::<Reason>().expect_err("no such reason").contains("OomKilled"));
    }
}
