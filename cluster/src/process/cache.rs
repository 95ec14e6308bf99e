//! Cache of values that are expensive to make: each is made once and kept within a limit of bytes.
//!
//! Used for decoded audiences, compiled contents, encoded attachments and heads of audience parts. Each value is made
//! under the lock of its own cell: callers that need the same value wait for it, others continue. The least recently
//! used values are removed first.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// A cache of at most `bytes_max`, by the sizes that its callers give. A larger value is kept alone.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    bytes_max: usize,
    kept: Mutex<Kept<K, V>>,
}

/// The values by key. `bytes` is the sum of their sizes. `uses` counts look-ups, and each value has the count at its last
/// one: the lowest is the least recently used.
#[derive(Debug)]
struct Kept<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    bytes: usize,
    uses: u64,
}

/// The cell of one value. It is locked while the value is made, and empty until then.
type Cell<V> = Arc<Mutex<Option<Arc<V>>>>;

/// One value. `bytes` is 0 until the value is made.
#[derive(Debug)]
struct Slot<V> {
    cell: Cell<V>,
    bytes: usize,
    used: u64,
}

impl<K: Ord + Copy, V> Cache<K, V> {
    pub fn new(bytes_max: usize) -> Cache<K, V> {
        let kept = Kept { slots: BTreeMap::new(), bytes: 0, uses: 0 };
        Cache { bytes_max, kept: Mutex::new(kept) }
    }

    /// Returns the value of a key: the kept one, or the one that `make` returns with its size in bytes.
    ///
    /// # Errors
    /// Returns the error of `make`. The next caller tries to make the value again.
    pub fn get<E>(&self, key: K, make: impl FnOnce() -> Result<(V, usize), E>) -> Result<Arc<V>, E> {
        let cell = self.cell(key);
        let mut content = cell.lock();
        if let Some(value) = content.as_ref() {
            return Ok(Arc::clone(value));
        }
        let (value, bytes) = make().inspect_err(|_| self.remove(key))?;
        let value = Arc::new(value);
        *content = Some(Arc::clone(&value));
        self.account(key, &cell, bytes);
        Ok(value)
    }

    /// Returns the value of a key if it is kept.
    pub fn known(&self, key: K) -> Option<Arc<V>> {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let used = kept.uses;
        let slot = kept.slots.get_mut(&key)?;
        slot.used = used;
        // A value that is being made is not known yet.
        slot.cell.try_lock()?.clone()
    }

    /// Removes a value.
    pub fn remove(&self, key: K) {
        let mut kept = self.kept.lock();
        if let Some(slot) = kept.slots.remove(&key) {
            kept.bytes -= slot.bytes;
        }
    }

    fn cell(&self, key: K) -> Cell<V> {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let used = kept.uses;
        let slot = kept.slots.entry(key).or_insert_with(|| Slot { cell: Arc::default(), bytes: 0, used });
        slot.used = used;
        Arc::clone(&slot.cell)
    }

    /// Adds the bytes of a value that was made. A value that was removed meanwhile is not kept.
    fn account(&self, key: K, cell: &Cell<V>, bytes: usize) {
        let mut kept = self.kept.lock();
        let Some(slot) = kept.slots.get_mut(&key).filter(|slot| Arc::ptr_eq(&slot.cell, cell)) else { return };
        slot.bytes = bytes.max(1);
        kept.bytes += bytes.max(1);
        if kept.bytes > self.bytes_max {
            kept.evict(key, self.bytes_max / 4 * 3);
        }
    }
}

impl<K: Ord + Copy, V> Kept<K, V> {
    /// Removes the least recently used values until `bytes_left` remain. A quarter is removed at once, so that this
    /// search is rare. `newest` and values that are being made stay.
    fn evict(&mut self, newest: K, bytes_left: usize) {
        let ready = self.slots.iter().filter(|(key, slot)| **key != newest && slot.bytes > 0);
        let mut by_use: Vec<(u64, K)> = ready.map(|(key, slot)| (slot.used, *key)).collect();
        by_use.sort_unstable();
        for (_, key) in by_use {
            if self.bytes <= bytes_left {
                return;
            }
            if let Some(slot) = self.slots.remove(&key) {
                self.bytes -= slot.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    fn computed(value: u32, bytes: usize) -> impl FnOnce() -> Result<(u32, usize), String> {
        move || Ok((value, bytes))
    }

    fn is_kept(cache: &Cache<u32, u32>, key: u32) -> bool {
        cache.kept.lock().slots.get(&key).is_some_and(|slot| slot.bytes > 0)
    }

    #[test]
    fn value_is_made_once_for_all_waiters() {
        let (cache, times) = (Cache::<u32, u32>::new(100), AtomicU32::new(0));
        let make = || {
            times.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(50));
            Ok::<_, String>((7, 1))
        };
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8).map(|_| scope.spawn(|| cache.get(1, make))).collect();
            assert!(callers.into_iter().all(|caller| caller.join().expect("it ends").as_deref() == Ok(&7)));
        });
        assert_eq!(times.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn least_recently_used_values_go_first_and_the_bytes_are_bounded() {
        let cache = Cache::<u32, u32>::new(100);
        for key in 0..10 {
            assert!(cache.get(key, computed(key, 10)).is_ok());
        }
        // The lowest key is used again, so it stays.
        assert!(cache.get(0, computed(99, 10)).is_ok_and(|value| *value == 0));
        assert!(cache.get(10, computed(10, 10)).is_ok());
        let kept: Vec<u32> = (0..=10).filter(|key| is_kept(&cache, *key)).collect();
        assert_eq!(kept, [0, 5, 6, 7, 8, 9, 10]);
        assert!(cache.get(11, computed(11, 1_000)).is_ok());
        assert!(is_kept(&cache, 11) && cache.kept.lock().slots.len() == 1, "larger than all: alone");
        cache.remove(11);
        let kept = cache.kept.lock();
        assert_eq!((kept.bytes, kept.slots.len()), (0, 0));
    }

    #[test]
    fn failed_value_is_tried_again() {
        let cache = Cache::<u32, u32>::new(100);
        assert_eq!(cache.get(1, || Err("no".to_owned())), Err("no".to_owned()));
        assert_eq!(cache.known(1), None);
        assert_eq!(cache.get(1, computed(3, 1)).as_deref(), Ok(&3));
        assert_eq!(cache.known(1).as_deref(), Some(&3));
    }
}
