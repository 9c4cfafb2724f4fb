//! Table of the container records, by id and by position.
//!
//! The allocations own the table. A record contains its own id, so the id is stored once. Rows are
//! never listed in the order of the hash.

use headroom_types::ContainerId;

use crate::container::Container;
use crate::table::{HashIndex, RowPosition};

/// Container records.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerTable {
    rows: Vec<Option<Container>>,
    free: Vec<RowPosition>,
    index: HashIndex,
}

impl ContainerTable {
    /// Looks up a container.
    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.at(self.row_of(id)?)
    }
    /// Looks up a container, mutable.
    pub(crate) fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.at_mut(self.row_of(id)?)
    }
    /// Position of a container.
    pub(crate) fn row_of(&self, id: &ContainerId) -> Option<RowPosition> {
        let is_it = |row| {
            self.at(RowPosition::new(row))
                .is_some_and(|c| c.id.seq == id.seq && c.id == *id)
        };
        let (_, row) = self.index.find(tag(id), is_it)?;
        Some(RowPosition::new(row))
    }
    /// Container at a position.
    #[inline]
    pub(crate) fn at(&self, row: RowPosition) -> Option<&Container> {
        self.rows.get(row.index())?.as_ref()
    }
    /// Container at a position, mutable.
    #[inline]
    pub(crate) fn at_mut(&mut self, row: RowPosition) -> Option<&mut Container> {
        self.rows.get_mut(row.index())?.as_mut()
    }
    /// Adds a container that is not in the table; returns its position, which does not change.
    #[inline] // a container is large, and a call copies it
    pub(crate) fn insert(&mut self, c: Container) -> RowPosition {
        let tag = tag(&c.id);
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            RowPosition::new(u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX))
        });
        self.index.insert(tag, row.number());
        if let Some(slot) = self.rows.get_mut(row.index()) {
            *slot = Some(c);
        }
        row
    }
    /// Removes the container at a position.
    pub(crate) fn remove(&mut self, row: RowPosition) {
        let Some(slot) = self.rows.get_mut(row.index()) else {
            return;
        };
        let Some(c) = slot else { return };
        if let Some((entry, _)) = self.index.find(tag(&c.id), |at| at == row.number()) {
            self.index.remove(entry);
        }
        *slot = None;
        self.free.push(row);
    }
    /// All containers, by position.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Container> + Clone {
        self.rows.iter().flatten()
    }
    /// All containers with their positions.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RowPosition, &Container)> {
        let rows = (0u32..).map(RowPosition::new).zip(&self.rows);
        rows.filter_map(|(row, c)| Some((row, c.as_ref()?)))
    }
}

/// Part of the hash of an id. Four consecutive grants have adjacent entries in the index: they are
/// often of one node, which reports them together.
#[allow(clippy::cast_possible_truncation)] // the upper half of the bits, and two low bits
pub(crate) fn tag(id: &ContainerId) -> u32 {
    let number = id.seq ^ (u64::from(id.epoch.0) << 40);
    let group = ((number >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
    (group & !3) | (number & 3) as u32
}
