//! A journal that takes its groups by calls, one at a time: in the resource manager, or in an object
//! store. Its starts follow the copy on this node.

use std::path::PathBuf;
use std::time::Duration;

use crate::journal::JournalError;
use crate::journal_tail::JournalTail;

/// The journal of one attempt, after its take-over.
pub(crate) trait RemoteJournal: Send + 'static {
    /// Maximum pause between two appends. A longer one means fewer calls, and later results.
    const MAX_PAUSE: Duration;

    /// Its name in messages.
    fn name(&self) -> PathBuf;

    /// The copy on this node, for the caller that writes the groups to it before it appends them.
    /// `None` if the journal needs no copy.
    fn take_tail(&mut self) -> Option<JournalTail>;

    /// Appends records in the format of the file, which the taken copy has. Returns when they are
    /// durable, and no later attempt had appended before. While the store does not answer, it waits.
    ///
    /// # Errors
    /// A later attempt has taken over; errors of the file system after a move.
    fn append_encoded(
        &mut self,
        group: &[u8],
    ) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// True after a move to a file of this node.
    fn has_moved(&self) -> bool;
}
