//! One container as the API of YARN's node manager shows it. Pure.

use headroom_types::{Bytes, ContainerId, ExitReport};
use headroom_wire::v1::nodes::{NodeContainerPhase, RunOrder};

use crate::agent_query::ContainerDetail;

/// One container of this node, from the loop or from disk.
#[derive(Clone, Debug)]
pub(super) struct ShownContainer {
    pub(super) id: ContainerId,
    pub(super) attempt: u32,
    /// Memory and processors of the container.
    pub(super) size: headroom_types::Resource,
    pub(super) life: ShownPhase,
    /// Memory in use at the last sample. Bytes.
    pub(super) used: Option<Bytes>,
    /// Largest measured memory use. Bytes.
    pub(super) peak: Option<Bytes>,
}

/// The phase of a container.
#[derive(Clone, Debug)]
pub(super) enum ShownPhase {
    Live(NodeContainerPhase),
    Over(Box<ExitReport>),
    /// Ended, and its report is no longer needed.
    Forgotten(Box<ExitReport>),
}

impl ShownPhase {
    /// The exit report, after the end.
    pub(super) fn report(&self) -> Option<&ExitReport> {
        match self {
            ShownPhase::Live(_) => None,
            ShownPhase::Over(report) | ShownPhase::Forgotten(report) => Some(report),
        }
    }
}

impl ShownContainer {
    /// A container of the loop.
    pub(super) fn of(detail: ContainerDetail) -> Self {
        let ContainerDetail {
            observed,
            timeline,
            report,
        } = detail;
        let measured = timeline.iter().map(|sample| sample.current).max();
        let peak = report
            .as_ref()
            .and_then(|report| report.evidence.own.peak)
            .or(measured);
        let life = report.map_or(ShownPhase::Live(observed.phase), |report| {
            ShownPhase::Over(Box::new(report))
        });
        let used = match life {
            ShownPhase::Live(_) => observed.used,
            ShownPhase::Over(_) | ShownPhase::Forgotten(_) => None,
        };
        ShownContainer {
            id: observed.container,
            attempt: observed.attempt,
            size: observed.resource,
            life,
            used,
            peak,
        }
    }
    /// A container of which only the directory is left.
    pub(super) fn forgotten(id: ContainerId, order: RunOrder, report: ExitReport) -> Self {
        let peak = report.evidence.own.peak;
        ShownContainer {
            id,
            attempt: order.attempt,
            size: order.resource,
            life: ShownPhase::Forgotten(Box::new(report)),
            used: None,
            peak,
        }
    }
}
