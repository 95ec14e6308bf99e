//! A store in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changes, Contents, Row, StateStore, StoreError};

/// A [`StateStore`] in memory. Clones share one content, so that a simulated node can lose its store handle and
/// "open the disk" again.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    contents: Arc<Mutex<MemoryContents>>,
}

#[derive(Debug, Default)]
struct MemoryContents {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    meta: Option<Vec<u8>>,
}

impl MemoryStore {
    /// A store with the same content, which goes its own way from here on: what a crash at this moment leaves.
    pub fn copy(&self) -> MemoryStore {
        let contents = self.contents.lock();
        MemoryStore {
            contents: Arc::new(Mutex::new(MemoryContents { rows: contents.rows.clone(), meta: contents.meta.clone() })),
        }
    }
}

impl StateStore for MemoryStore {
    fn load(&mut self) -> Result<Contents, StoreError> {
        let contents = self.contents.lock();
        Ok(match &contents.meta {
            None => Contents::Empty,
            Some(meta) => Contents::State {
                meta: meta.clone(),
                rows: contents.rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            },
        })
    }

    fn write(&mut self, changes: &Changes, meta: &[u8]) -> Result<(), StoreError> {
        let mut contents = self.contents.lock();
        for (key, value) in changes {
            match value {
                Some(value) => contents.rows.insert(key.clone(), value.clone()),
                None => contents.rows.remove(key),
            };
        }
        contents.meta = Some(meta.to_vec());
        Ok(())
    }

    fn replace(&mut self, rows: &mut dyn Iterator<Item = Row>, meta: &[u8]) -> Result<(), StoreError> {
        let rows = rows.collect();
        *self.contents.lock() = MemoryContents { rows, meta: Some(meta.to_vec()) };
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}
