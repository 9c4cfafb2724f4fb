//! Sentences per size within one answer, so that equal sizes share a sentence.
//!
//! It lives for one answer or one review, and never outlives a step.

use std::sync::Arc;

use headroom_types::Resource;

/// Sentences per size within one answer, so that equal sizes share a sentence.
#[derive(Debug, Default)]
pub(crate) struct SentenceCache {
    of: Vec<(Resource, Arc<str>)>,
}

/// Most sizes in a [`SentenceCache`]; sentences for further sizes are formatted again.
const SAID: usize = 8;

impl SentenceCache {
    /// Sentence for a size, if one is known.
    pub(crate) fn of(&self, size: &Resource) -> Option<Arc<str>> {
        self.of
            .iter()
            .find(|(known, _)| known == size)
            .map(|(_, sentence)| sentence.clone())
    }
    /// Keeps the sentence for a size, unless the cache is full.
    pub(crate) fn keep(&mut self, size: &Resource, sentence: &Arc<str>) {
        if self.of.len() < SAID && !self.of.iter().any(|(known, _)| known == size) {
            self.of.push((size.clone(), sentence.clone()));
        }
    }
}
