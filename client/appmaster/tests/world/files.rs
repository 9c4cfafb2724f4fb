//! The file system of outputs: it behaves like `output::commit` on a real one, and never replaces
//! an output.

use std::path::{Path, PathBuf};

use headroom_appmaster::output::EarlierCommit;

use super::*;

#[derive(Clone, Default)]
pub struct Files {
    pub(super) rename_ms: u64,
    /// Directories of attempts.
    made: BTreeSet<PathBuf>,
    /// The former directory of each committed output.
    pub places: BTreeMap<PathBuf, PathBuf>,
    pub(super) die_after: Option<usize>,
    renamed: usize,
}

impl Files {
    pub(super) fn new(rename_ms: u64, places: &[&str]) -> Files {
        let places = places
            .iter()
            .map(|p| (PathBuf::from(p), PathBuf::from("another owner")))
            .collect();
        Files {
            rename_ms,
            places,
            ..Files::default()
        }
    }

    pub(super) fn make(&mut self, output: Option<&str>) {
        if let Some(output) = output {
            assert!(
                self.made.insert(output.into()),
                "{output} exists already: two attempts share it"
            );
        }
    }

    /// The attempt whose directory became this output.
    pub fn attempt(&self, place: &str) -> Option<&str> {
        self.places.get(Path::new(place))?.file_name()?.to_str()
    }

    /// Carries out a commit; returns the error.
    fn rename(&mut self, commit: &OutputCommit) -> Option<String> {
        match (
            self.made.contains(&commit.from),
            self.places.contains_key(&commit.to),
            commit.turn,
        ) {
            (true, false, _) => {
                self.made.remove(&commit.from);
                self.places.insert(commit.to.clone(), commit.from.clone());
                self.renamed += 1;
                None
            }
            (false, true, EarlierCommit::Again | EarlierCommit::Anew) => None,
            (false, _, _) => Some("it is gone".to_owned()),
            (true, true, _) => Some("it existed before".to_owned()),
        }
    }
}

impl SimulatedCluster {
    pub(super) fn put_in_place(
        &mut self,
        task: TaskPosition,
        attempt: TaskAttemptId,
        commit: &OutputCommit,
    ) {
        let error = self.files.rename(commit);
        if self.files.die_after == Some(self.files.renamed) {
            self.files.die_after = None;
            return self.master_dies();
        }
        let event = MasterEvent::Committed {
            task,
            attempt,
            error,
        };
        if self.twice {
            self.later(400, SimulatedEvent::Deliver(event.clone()));
        }
        self.step(event);
    }
}
