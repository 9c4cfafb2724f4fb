//! Sizes that a pass need not try, because a smaller or equal size did not fit.

use headroom_types::Resource;

/// Sizes that did not fit in this pass.
#[derive(Debug, Default)]
pub struct BlockedSizes {
    sizes: Vec<Resource>,
}

/// Most remembered sizes; further sizes are tried again.
const MOST: usize = 16;

impl BlockedSizes {
    /// True when a size cannot fit in this pass.
    pub fn covers(&self, size: &Resource) -> bool {
        self.sizes.iter().any(|known| known.fits(size))
    }
    /// Records a size without placement rules that did not fit.
    pub fn add(&mut self, size: &Resource) {
        self.sizes.retain(|known| !size.fits(known));
        if self.sizes.len() < MOST {
            self.sizes.push(size.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus};

    #[test]
    fn a_blocked_size_covers_only_larger_sizes() {
        let size = |gib, cores| Resource::new(Bytes::from_gib(gib), Cpus::from_cores(cores));
        let mut blocked = BlockedSizes::default();
        blocked.add(&size(4, 2));
        assert!(blocked.covers(&size(4, 2)) && blocked.covers(&size(5, 2)));
        assert!(!blocked.covers(&size(3, 2)) && !blocked.covers(&size(8, 1)));
        blocked.add(&size(2, 1));
        assert!(blocked.covers(&size(3, 1)));
        assert_eq!(
            blocked.sizes.len(),
            1,
            "the smaller size covers the larger one"
        );
    }
}
