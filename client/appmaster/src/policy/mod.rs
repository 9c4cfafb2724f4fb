//! The decision on a task whose attempt has ended: a pure function from facts to one decision.
//!
//! [`decide()`] makes the decision. Each mode is a small module behind
//! [`MemoryFailureMode`](headroom_wire::v1::job::MemoryFailureMode). All modes use the same facts,
//! classified by the same [`classify`]. The policy has no owner and no state: the spent budgets are
//! part of the facts.
//!
//! *Architecture Invariant*: no clock, no files, no state.

mod attempt_size;
mod backoff;
pub mod blame;
mod budget;
pub mod chosen_treatment;
pub mod classify;
pub mod collateral;
pub mod contention;
mod databricks;
mod decide;
mod decision_input;
mod fixed;
pub mod grow;
mod headroom;
pub mod ladder;
pub mod leak;
mod pinterest;
pub mod sizing;
pub mod slot_placement;
mod task_decision;
pub mod tovar;
pub mod treatment;
mod uber;

pub use headroom_sizes::learn;

pub use attempt_size::{AttemptPlace, AttemptSize, TaskSizeCap};
pub(crate) use backoff::backoff;
pub use blame::UnknownCharge;
pub use budget::{ChargeAccount, SpentBudgets};
pub use decide::decide;
pub use decision_input::{DecisionInput, GrowthBound};
pub use task_decision::{AvoidScope, GiveUpCause, TaskDecision};
