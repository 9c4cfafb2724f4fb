//! Names of all keys, below the prefix of the cluster. Pure.

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdKeys {
    prefix: String,
}

impl EtcdKeys {
    /// The keys below `prefix`.
    pub fn new(prefix: &str) -> Self {
        EtcdKeys {
            prefix: prefix.trim_end_matches('/').to_owned(),
        }
    }
    /// The prefix, without a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
    /// The key that exists while a manager leads.
    pub fn leader(&self) -> Vec<u8> {
        self.below("leader")
    }
    /// The key that the leader writes with each renewal of its lease.
    pub fn renewed(&self) -> Vec<u8> {
        self.below("renewed")
    }
    /// The key of a running manager.
    pub fn manager(&self, id: &str) -> Vec<u8> {
        self.below(&format!("managers/{id}"))
    }
    /// Start of the keys of all running managers.
    pub fn managers(&self) -> Vec<u8> {
        self.below("managers/")
    }
    /// The reason why no manager may use the state: an interrupted restore, a migration.
    pub fn closed(&self) -> Vec<u8> {
        self.below("closed")
    }
    /// The identity of the cluster.
    pub fn cluster(&self) -> Vec<u8> {
        self.below("cluster")
    }
    /// Start of the entries of the state.
    pub fn state(&self) -> Vec<u8> {
        self.below("state/")
    }
    /// The key of one entry of the state.
    pub fn entry(&self, key: &[u8]) -> Vec<u8> {
        [self.state().as_slice(), key].concat()
    }
    /// Start of the parts of a batch that is too large for one transaction.
    pub fn parts(&self) -> Vec<u8> {
        self.below("batch/part/")
    }
    /// The key of one part.
    pub fn part(&self, n: usize) -> Vec<u8> {
        self.below(&format!("batch/part/{n:08}"))
    }
    /// The key that makes all parts valid at once.
    pub fn parts_complete(&self) -> Vec<u8> {
        self.below("batch/complete")
    }

    fn below(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.prefix).into_bytes()
    }
}

/// The first key after all keys with this prefix.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys: etcd's notation of an open end.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_below_the_prefix_and_no_kind_contains_another() {
        let keys = EtcdKeys::new("/headroom/");
        assert_eq!(keys.leader(), b"/headroom/leader");
        assert_eq!(keys.entry(b"app/1"), b"/headroom/state/app/1");
        assert_eq!(keys.part(3), b"/headroom/batch/part/00000003");
        for (start, other) in [
            (keys.state(), keys.leader()),
            (keys.managers(), keys.cluster()),
            (keys.parts(), keys.parts_complete()),
        ] {
            assert!(!other.starts_with(&start));
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_after_all_its_keys() {
        assert_eq!(after(b"a/"), b"a0");
        assert_eq!(after(&[1, 255]), [2]);
        assert_eq!(after(&[255]), [0]);
    }
}
