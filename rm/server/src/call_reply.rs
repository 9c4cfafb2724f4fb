//! Replies of the core, one type for each kind of call.
//!
//! The receiver of a reply names its type. An answer of another kind is a bug, reported in one
//! place.

use headroom_rm_core::{CallAnswer, GrantedContainer, QueuesFrom, RequestVerdict, TagChangeResult};
use headroom_types::{AppId, ContainerId, RequestId, Resource};
use headroom_wire::v1::error::ProblemDetails;

use crate::to_wire;

/// A reply to one kind of call.
pub(crate) trait CallReply: Sized {
    /// The reply in an answer; `None` if the answer is of another kind.
    fn in_answer(answer: CallAnswer) -> Option<Self>;

    /// The reply in an answer. An answer of another kind becomes an internal error.
    fn of(answer: CallAnswer) -> Result<Self, ProblemDetails> {
        Self::in_answer(answer).ok_or_else(|| {
            tracing::error!(
                "the core returned an unexpected result; the caller received an internal error"
            );
            to_wire::internal_error()
        })
    }
}

/// Declares a reply for each variant of [`CallAnswer`] with the same name and fields.
macro_rules! replies {
    ($($name:ident { $($field:ident: $kind:ty),* })+) => {$(
        #[doc = concat!("As [`CallAnswer::", stringify!($name), "`].")]
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind),*
        }

        impl CallReply for $name {
            fn in_answer(answer: CallAnswer) -> Option<Self> {
                if let CallAnswer::$name { $($field),* } = answer {
                    Some($name { $($field),* })
                } else {
                    None
                }
            }
        }
    )+};
}

replies! {
    Submitted { app: AppId, attempt: u32 }
    Reserved { number: u32 }
    Done {}
    Master { largest: Resource, containers: Vec<GrantedContainer>, cursor: u64 }
    Synced { verdicts: Vec<(RequestId, RequestVerdict)>, stop: bool }
    Asked { verdict: RequestVerdict }
    Resizing { version: u32 }
    Queues { generation: u64 }
    Configured { queues: QueuesFrom }
    Node { acked: Vec<ContainerId> }
    Received { received: Vec<ContainerId> }
}

impl CallReply for Box<TagChangeResult> {
    fn in_answer(answer: CallAnswer) -> Option<Self> {
        if let CallAnswer::Tagged(tagged) = answer {
            Some(tagged)
        } else {
            None
        }
    }
}
