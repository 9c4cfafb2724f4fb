//! The database of the resource manager's durable state.

use serde::{Deserialize, Serialize};

word_enum! {
    /// The database of the resource manager's state. Closed: every backend passes the same tests.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum StoreBackend: "is not a store; use" {
        /// sled, with an explicit sync after each commit.
        #[default]
        Sled = "sled",
        /// redb.
        Redb = "redb",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_names_round_trip_as_text() {
        for backend in StoreBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert!(
            "SLED"
                .parse::<StoreBackend>()
                .expect_err("wrong case")
                .to_string()
                .contains("redb")
        );
    }
}
