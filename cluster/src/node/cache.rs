//! Values that cost something to make, each made once, within a bound of bytes.
//!
//! Used for decoded audiences, compiled contents and heads of audience parts. A value is made outside every lock but its
//! own: callers that want the same one wait for it, all others go on. The least recently used values go first.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// A cache of at most `bytes_max`, as its callers weigh the values, or of the last value alone.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    bytes_max: usize,
    kept: Mutex<Kept<K, V>>,
}

/// - `bytes` is the sum over `slots`.
/// - `uses` counts look-ups; each slot knows its last one.
#[derive(Debug)]
struct Kept<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    bytes: usize,
    uses: u64,
}

/// Not ready while it is being made; its maker holds `making`.
#[derive(Debug)]
struct Slot<V> {
    ready: Option<Arc<V>>,
    making: Arc<Mutex<()>>,
    bytes: usize,
    used: u64,
}

impl<V> Slot<V> {
    fn new() -> Slot<V> {
        Slot { ready: None, making: Arc::default(), bytes: 0, used: 0 }
    }
}

impl<K: Ord + Copy, V> Cache<K, V> {
    pub fn new(bytes_max: usize) -> Cache<K, V> {
        let kept = Kept { slots: BTreeMap::new(), bytes: 0, uses: 0 };
        Cache { bytes_max, kept: Mutex::new(kept) }
    }

    /// The value of a key: as kept, or as `make` returns it with its bytes.
    ///
    /// # Errors
    /// What `make` returns. The next caller makes it anew.
    pub fn get<E>(&self, key: K, make: impl FnOnce() -> Result<(V, usize), E>) -> Result<Arc<V>, E> {
        let making = match self.look(key) {
            Ok(ready) => return Ok(ready),
            Err(making) => making,
        };
        let _making = making.lock();
        // Another caller may have made it meanwhile.
        if let Ok(ready) = self.look(key) {
            return Ok(ready);
        }
        match make() {
            Ok((value, bytes)) => Ok(self.keep(key, value, bytes)),
            Err(error) => {
                self.remove(key);
                Err(error)
            }
        }
    }

    /// Forgets a value.
    pub fn remove(&self, key: K) {
        let mut kept = self.kept.lock();
        if let Some(slot) = kept.slots.remove(&key) {
            kept.bytes -= slot.bytes;
        }
    }

    /// The value if it is ready, else the lock of its making.
    fn look(&self, key: K) -> Result<Arc<V>, Arc<Mutex<()>>> {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let used = kept.uses;
        let slot = kept.slots.entry(key).or_insert_with(Slot::new);
        slot.used = used;
        slot.ready.clone().ok_or_else(|| Arc::clone(&slot.making))
    }

    fn keep(&self, key: K, value: V, bytes: usize) -> Arc<V> {
        let value = Arc::new(value);
        let mut kept = self.kept.lock();
        let slot = kept.slots.entry(key).or_insert_with(Slot::new);
        let before = std::mem::replace(&mut slot.bytes, bytes);
        slot.ready = Some(Arc::clone(&value));
        kept.bytes = kept.bytes - before + bytes;
        if kept.bytes > self.bytes_max {
            kept.evict(key, self.bytes_max / 4 * 3);
        }
        value
    }
}

impl<K: Ord + Copy, V> Kept<K, V> {
    /// Takes the least recently used values out, down to `bytes_left`: a quarter at once, so that the search for them
    /// is rare. `newest` stays, and so does what is being made.
    fn evict(&mut self, newest: K, bytes_left: usize) {
        let ready = self.slots.iter().filter(|(key, slot)| **key != newest && slot.ready.is_some());
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

    fn made(value: u32, bytes: usize) -> impl FnOnce() -> Result<(u32, usize), String> {
        move || Ok((value, bytes))
    }

    fn is_kept(cache: &Cache<u32, u32>, key: u32) -> bool {
        cache.kept.lock().slots.get(&key).is_some_and(|slot| slot.ready.is_some())
    }

    #[test]
    fn value_is_made_once_for_all_who_wait_for_it() {
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
            assert!(cache.get(key, made(key, 10)).is_ok());
        }
        // The lowest key is used again: it stays.
        assert!(cache.get(0, made(99, 10)).is_ok_and(|value| *value == 0));
        assert!(cache.get(10, made(10, 10)).is_ok());
        let kept: Vec<u32> = (0..=10).filter(|key| is_kept(&cache, *key)).collect();
        assert_eq!(kept, [0, 5, 6, 7, 8, 9, 10]);
        assert!(cache.get(11, made(11, 1_000)).is_ok());
        assert!(is_kept(&cache, 11) && cache.kept.lock().slots.len() == 1, "larger than all: alone");
        cache.remove(11);
        let kept = cache.kept.lock();
        assert_eq!((kept.bytes, kept.slots.len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_made_is_tried_again() {
        let cache = Cache::<u32, u32>::new(100);
        assert_eq!(cache.get(1, || Err("no".to_owned())), Err("no".to_owned()));
        assert_eq!(cache.get(1, made(3, 1)).as_deref(), Ok(&3));
    }
}
