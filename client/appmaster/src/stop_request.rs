//! The request to end a running master. Signals and callers send it, and the driver obeys it.

/// A request of a signal or a caller to a running master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopRequest {
    /// Continue.
    #[default]
    GoOn,
    /// End this run and leave the job to the next one.
    Leave,
    /// End the job.
    Stop,
}
