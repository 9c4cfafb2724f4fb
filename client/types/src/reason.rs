//! Reasons of events: the closed list in the event log, with the topic and the trigger of each.

use std::fmt;
use std::str::FromStr;

word_enum! {
    /// The subject of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EventTopic: "is not a topic:" {
        /// The resource manager itself.
        Cluster = "cluster",
        /// A node.
        Node = "node",
        /// A queue.
        Queue = "queue",
        /// An application and its master.
        Job = "job",
        /// A container request.
        Request = "request",
        /// A container.
        Container = "container",
        /// A task of a job.
        Task = "task",
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
    ResourceManagerStarted Cluster Normal "The resource manager started."
    ConfigReloaded Cluster Normal "The resource manager or a node reloaded its configuration; the message has the active keys."
    ConfigRefused Cluster Warning "A new configuration has mistakes and was refused; the previous one stays active."
    NodeJoined Node Normal "A node agent registered."
    NodeReady Node Normal "A node accepts containers."
    NodeUnhealthy Node Warning "A node reports that it cannot run containers."
    NodeSuspect Node Warning "No heartbeat for the time of the key suspect: the node gets no new containers."
    NodeUnreachable Node Warning "No heartbeat for the time of the key unreachable; its containers still count as running."
    NodeLost Node Warning "No heartbeat for the time of the key lost: its containers are declared lost."
    NodeMissing Node Warning "A node of the previous incarnation did not register again after a restart."
    NodeDraining Node Normal "An operator drains a node."
    NodeUndrained Node Normal "An operator ended the drain."
    DrainDeadline Node Normal "The deadline of a drain has passed; the remaining containers are stopped."
    NodeDrained Node Normal "A draining node has no containers left."
    NodeDecommissioned Node Normal "A drained node was removed from the cluster."
    NodeCordoned Node Normal "An operator cordoned a node: it gets no new containers, and its containers keep running."
    NodeUncordoned Node Normal "An operator uncordoned a node."
    NodeTagged Node Normal "An operator changed the labels, attributes or taints of a node."
    NodeMemoryLeft Node Warning "Ended containers, named in the message, left memory on a node. It counts as allocated."
    NodeMemoryFreed Node Normal "Memory that ended containers had left is free again."
    NodeOom Node Warning "A container was killed because its whole host ran out of memory."
    NodeReserved Request Normal "A node is reserved for a request that has waited."
    ReservationEnded Request Normal "The reservation of a node ended."
    QueuesSet Queue Normal "The tree of queues was changed."
    QueueStateChanged Queue Normal "A queue was set to running, paused, draining or stopped."
    ProfileSet Cluster Normal "A profile of the cluster is new or has another size."
    ProfileRemoved Cluster Normal "A profile of the cluster was removed."
    JobSubmitted Job Normal "An application was accepted; it survives restarts."
    AppRunning Job Normal "The master of an application registered."
    AppFinished Job Normal "An application succeeded."
    AppFailed Job Warning "An application failed."
    AppKilled Job Normal "An application was ended on request."
    AppChanged Job Normal "The queue, priority or lifetime of an application was changed."
    JobPurged Job Normal "A user removed the stored data of an ended application."
    JobScaled Job Normal "The maximum number of executors of a set was changed on request."
    ScaleRefused Job Warning "A request to scale a job named an executor set that it does not have."
    KillRequested Job Normal "A user requested the end of an application."
    LifetimeExceeded Job Warning "An application reached its maximum lifetime and is ended."
    MasterLaunched Job Normal "A run of a master got a container."
    MasterFailed Job Warning "A run of a master ended before its application."
    JobStarted Job Normal "A master starts the tasks of its job."
    JobFinished Job Either "All tasks of a job have ended; a warning if some failed."
    RequestCreated Request Normal "A master requested containers of one size."
    RequestGranted Request Normal "A container of a request was granted; the message contains the wait."
    RequestStarving Request Warning "A request has waited for five minutes."
    RequestRefused Request Warning "A request is infeasible on every node and was refused."
    RequestExpired Request Warning "The deadline of a request passed before all containers were granted."
    PreemptionPlanned Request Normal "Containers of other queues will be preempted for a request."
    PreemptionCancelled Request Normal "A planned preemption is no longer needed."
    PreemptionWarning Container Either "A container will soon be preempted for another queue."
    ContainerDraining Container Normal "Its master starts no more tasks in a container, for example because its node drains."
    ContainerStarted Container Normal "The program of a container runs."
    ContainerExited Container Either "A container ended, but not for memory; a warning if it failed and no end was requested."
    ContainerSignalled Container Normal "A user sent a signal to the program of a container, or to all its processes."
    ContainerExecStarted Container Normal "A user runs an additional program in a container."
    ContainerResizing Container Normal "A resize of a container was sent to its node."
    ContainerResized Container Normal "A container was resized."
    ResizeFailed Container Warning "A container keeps its size because its node could not resize it."
    ResizeOverdue Container Warning "A node has not reported the result of a resize."
    NearLimit Container Warning "A container uses at least 90 % of its limit; reported once for each container."
    OomKilled Container Warning "A container, or a task in one, ended because of its own memory use."
    NodeExcluded Task Warning "Launches failed on a node, so a job starts nothing there for a while; or outer limits killed tasks there, and the job avoids it."
    TaskFinished Task Normal "An attempt succeeded."
    AttemptLost Task Warning "An attempt ended, and memory was not the reason."
    TaskRetried Task Normal "A task is retried with the same size."
    TaskMoved Task Normal "A task is moved to another container or node."
    TaskFailed Task Warning "A task failed finally."
    RungLearned Task Normal "The learned first size of a kind changed by more than a tenth."
    Escalated Task Warning "A task is retried, or a master is run again, with more memory after a memory failure."
    EscalationExhausted Task Warning "A task failed for memory at its largest size."
    TaskGrown Task Normal "A running attempt got more memory in place."
    GrowthRefused Task Warning "A running attempt needed more memory and did not get it."
    TaskFrozen Task Normal "A running attempt is frozen near its limit because its node has no free memory."
    TaskEvicted Task Normal "A running attempt was evicted for a frozen task on its node; its task runs again, not charged."
    InputGap Task Warning "An attempt read far more or less than planned."
    StageBadlySized Task Warning "Too many tasks of a stage needed more memory, so its tasks get no more."
}

/// Names in event logs of the version before.
const FORMER_NAMES: [(&str, Reason); 15] = [
    ("BadlySized", Reason::StageBadlySized),
    ("ContainerEntered", Reason::ContainerExecStarted),
    ("ContainerLeaving", Reason::ContainerDraining),
    ("GaveWay", Reason::TaskEvicted),
    ("Grown", Reason::TaskGrown),
    ("GrowthWaits", Reason::TaskFrozen),
    ("KillAsked", Reason::KillRequested),
    ("LifetimeOver", Reason::LifetimeExceeded),
    ("NodeShunned", Reason::NodeExcluded),
    ("NodeSilent", Reason::NodeSuspect),
    ("PreemptCalledOff", Reason::PreemptionCancelled),
    ("PreemptPlanned", Reason::PreemptionPlanned),
    ("PreemptSoon", Reason::PreemptionWarning),
    ("ProfileUnset", Reason::ProfileRemoved),
    ("QueueGate", Reason::QueueStateChanged),
];

impl Reason {
    /// The reason with this name in a stored event log of the version before. `None` if it had
    /// the same name there, or did not exist.
    pub fn from_former_name(name: &str) -> Option<Reason> {
        let found = FORMER_NAMES.iter().find(|(former, _)| *former == name);
        found.map(|(_, reason)| *reason)
    }
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
            format!(
                "{text:?} is not a reason of events{}",
                near.map(|n| format!("; {n}")).unwrap_or_default()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_as_text() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
            assert!(reason.when().ends_with('.') && EventTopic::ALL.contains(&reason.topic()));
        }
        assert!(
            "OomKiled"
                .parse::<Reason>()
                .expect_err("no such reason")
                .contains("OomKilled")
        );
    }

    #[test]
    fn former_names_are_free() {
        for (former, reason) in FORMER_NAMES {
            assert!(former.parse::<Reason>().is_err(), "{former}");
            assert_eq!(Reason::from_former_name(former), Some(reason));
        }
        assert_eq!(Reason::from_former_name("OomKilled"), None);
    }
}
