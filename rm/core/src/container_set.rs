//! Containers of one node or one application, by their positions in the table of containers.
//!
//! The set does not keep the order of the grants: readers that need it sort the containers, see
//! `Allocations::in_order`.

use crate::table::RowPosition;

/// Containers of one node or one application.
#[derive(Clone, Debug, Default)]
pub struct ContainerSet {
    rows: Vec<RowPosition>,
}

impl ContainerSet {
    /// Number of containers.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// True when the set is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Positions of all containers.
    pub(crate) fn rows(&self) -> &[RowPosition] {
        &self.rows
    }
    /// Adds a container that is not in the set; returns its place in the set.
    pub(crate) fn push(&mut self, row: RowPosition) -> u32 {
        self.rows.push(row);
        u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
    }
    /// Removes the container at a place. The last container takes the place; returns its position,
    /// unless it was removed itself.
    pub(crate) fn remove_at(&mut self, place: u32) -> Option<RowPosition> {
        let place = place as usize;
        if place < self.rows.len() {
            self.rows.swap_remove(place);
        }
        self.rows.get(place).copied()
    }
    /// Removes a container; the search takes time in proportion to the number of containers.
    pub(crate) fn remove(&mut self, row: RowPosition) {
        if let Some(place) = self.rows.iter().position(|known| *known == row) {
            self.rows.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_container_takes_the_place_of_a_removed_one() {
        let row = RowPosition::new;
        let mut set = ContainerSet::default();
        assert_eq!([7, 8, 9].map(|n| set.push(row(n))), [0, 1, 2]);
        assert_eq!(set.remove_at(0), Some(row(9)));
        assert_eq!(set.rows(), [row(9), row(8)]);
        assert_eq!(set.remove_at(1), None, "it was the last one");
        assert_eq!(set.remove_at(5), None);
        set.push(row(3));
        set.remove(row(9));
        assert_eq!((set.rows(), set.is_empty()), (&[row(3)][..], false));
    }
}
