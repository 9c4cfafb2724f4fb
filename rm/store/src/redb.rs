//! Entries in redb 4.
//!
//! With `Durability::Immediate` a commit writes its pages next to the old ones. Then it writes the
//! other of two commit slots, with a checksum over all of it. It syncs the file with `fdatasync`
//! before it returns. After a crash, redb uses the slot with a valid checksum.
//!
//! redb does not sync the directory entry of its file (see [`mod@crate::open`]). It also does not
//! detect damaged pages of a cleanly closed database. A copy is therefore checked page by page
//! before the original is opened.

use std::path::Path;
use std::sync::Arc;

use ::redb::{Builder, Database, ReadableDatabase as _, TableDefinition, TableError};

use crate::engine_error::EngineError;
use crate::entry::{Durability, KeyRange};

const CACHE: usize = 32 << 20;
/// Keys are bytes, because redb panics on a key that is not UTF-8.
const ENTRIES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("entries");

/// An open database.
#[derive(Clone)]
pub struct RedbEngine {
    database: Arc<Database>,
}

headroom_types::debug_fields!(RedbEngine {});

fn wrong(error: impl Into<::redb::Error>) -> EngineError {
    EngineError::Redb(Box::new(error.into()))
}

impl RedbEngine {
    /// Opens or creates a database.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        Self::create(Builder::new().set_cache_size(CACHE), path)
    }

    /// Opens a database and checks every page.
    pub fn open_suspect(path: &Path) -> Result<Self, EngineError> {
        Self::create(
            Builder::new()
                .set_cache_size(CACHE)
                .set_check_integrity_on_open(true),
            path,
        )
    }

    fn create(builder: &Builder, path: &Path) -> Result<Self, EngineError> {
        Ok(RedbEngine {
            database: Arc::new(builder.create(path).map_err(wrong)?),
        })
    }

    /// Writes all entries in one transaction.
    pub fn write<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        let mut transaction = self.database.begin_write().map_err(wrong)?;
        transaction
            .set_durability(match durability {
                Durability::Immediate => ::redb::Durability::Immediate,
                Durability::Deferred => ::redb::Durability::None,
            })
            .map_err(wrong)?;
        {
            let mut table = transaction.open_table(ENTRIES).map_err(wrong)?;
            for (key, bytes) in entries {
                match bytes {
                    Some(bytes) => drop(table.insert(key, bytes).map_err(wrong)?),
                    None => drop(table.remove(key).map_err(wrong)?),
                }
            }
        }
        transaction.commit().map_err(wrong)
    }

    /// The value of one entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut found = None;
        let only = std::ops::Bound::Included(key);
        self.walk((only, only), |_, bytes| {
            found = Some(bytes.to_vec());
            Ok::<(), EngineError>(())
        })?;
        Ok(found)
    }

    /// Passes the entries of one consistent view to `see`, in key order.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let transaction = self.database.begin_read().map_err(wrong)?;
        let table = match transaction.open_table(ENTRIES) {
            Ok(table) => table,
            // The database was never written.
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(wrong(error).into()),
        };
        for entry in table.range::<&[u8]>(keys).map_err(wrong)? {
            let (key, bytes) = entry.map_err(wrong)?;
            see(key.value(), bytes.value())?;
        }
        Ok(())
    }
}
