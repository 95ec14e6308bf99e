//! The store that forgets: for tests, simulation and nodes that want no state on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changes, Contents, Row, StateStore, StoreError};

/// A [`StateStore`] in memory. Clones share one content, so that a simulated node can lose its store handle and
/// "open the disk" again.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    meta: Option<Vec<u8>>,
}

impl MemoryStore {
    /// A store with the same content, which goes its own way from here on: what a crash at this moment leaves.
    pub fn copy(&self) -> MemoryStore {
        let held = self.held.lock();
        MemoryStore { held: Arc::new(Mutex::new(Held { rows: held.rows.clone(), meta: held.meta.clone() })) }
    }
}

impl StateStore for MemoryStore {
    fn load(&mut self) -> Result<Contents, StoreError> {
        let held = self.held.lock();
        Ok(match &held.meta {
            None => Contents::Empty,
            Some(meta) => Contents::State {
                meta: meta.clone(),
                rows: held.rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            },
        })
    }

    fn write(&mut self, changes: &Changes, meta: &[u8]) -> Result<(), StoreError> {
        let mut held = self.held.lock();
        for (key, value) in changes {
            match value {
                Some(value) => held.rows.insert(key.clone(), value.clone()),
                None => held.rows.remove(key),
            };
        }
        held.meta = Some(meta.to_vec());
        Ok(())
    }

    fn replace(&mut self, rows: &mut dyn Iterator<Item = Row>, meta: &[u8]) -> Result<(), StoreError> {
        let rows = rows.collect();
        *self.held.lock() = Held { rows, meta: Some(meta.to_vec()) };
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}
