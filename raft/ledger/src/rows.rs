//! The state as rows of bytes: what the state store mirrors, what snapshots hold, what is hashed.
//!
//! Keys keep the order of the tables (big-endian numbers, escaped strings), so that rows of one kind and of
//! neighbouring numbers lie together. Values are postcard. Equal states are equal rows, byte for byte.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::{Cause, Unreadable};
use crate::ids::{Epoch, Fence, Hash, NodeId, Nominal, RunId, ScheduleId, Time};
use crate::state::{Derived, Ledger};
use crate::table::Table;

/// A key and its value; no value: the row was removed.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key that keeps its order as bytes.
trait Key: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

fn split<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

macro_rules! number_keys {
    ($($number:ty),*) => {$(
        impl Key for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                split(bytes).map(<$number>::from_be_bytes)
            }
        }
    )*};
}
number_keys!(u8, u32, u64);

impl Key for i64 {
    /// The sign bit is turned over, so that negative numbers come first.
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64 ^ 1 << 63).put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<i64> {
        u64::take(bytes).map(|number| (number ^ 1 << 63) as i64)
    }
}

impl Key for String {
    /// A zero octet is written as 0 255, the end as 0 0.
    fn put(&self, out: &mut Vec<u8>) {
        for octet in self.bytes() {
            out.push(octet);
            if octet == 0 {
                out.push(255);
            }
        }
        out.extend([0, 0]);
    }
    fn take(bytes: &mut &[u8]) -> Option<String> {
        let mut text = Vec::new();
        loop {
            match split::<1>(bytes)? {
                [0] => match split::<1>(bytes)? {
                    [0] => return String::from_utf8(text).ok(),
                    _ => text.push(0),
                },
                [octet] => text.push(octet),
            }
        }
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(bytes)?, B::take(bytes)?))
    }
}

impl Key for Hash {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }
    fn take(bytes: &mut &[u8]) -> Option<Hash> {
        split(bytes).map(Hash)
    }
}

impl Key for NodeId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<NodeId> {
        u64::take(bytes).map(NodeId)
    }
}

impl Key for ScheduleId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<ScheduleId> {
        u64::take(bytes).map(ScheduleId)
    }
}

impl Key for RunId {
    fn put(&self, out: &mut Vec<u8>) {
        self.index.put(out);
        self.place.put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<RunId> {
        Some(RunId { index: u64::take(bytes)?, place: u32::take(bytes)? })
    }
}

impl Key for Fence {
    fn put(&self, out: &mut Vec<u8>) {
        self.group.put(out);
        self.epoch.0.put(out);
        self.index.put(out);
        self.place.put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<Fence> {
        Some(Fence {
            group: u32::take(bytes)?,
            epoch: Epoch(u64::take(bytes)?),
            index: u64::take(bytes)?,
            place: u32::take(bytes)?,
        })
    }
}

impl Key for Nominal {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Nominal::Civil { civil_ms, fold } => {
                0u8.put(out);
                civil_ms.put(out);
                fold.put(out);
            }
            Nominal::Instant(time) => {
                1u8.put(out);
                time.0.put(out);
            }
            Nominal::Trigger(request) => {
                2u8.put(out);
                request.put(out);
            }
        }
    }
    fn take(bytes: &mut &[u8]) -> Option<Nominal> {
        match u8::take(bytes)? {
            0 => Some(Nominal::Civil { civil_ms: i64::take(bytes)?, fold: u8::take(bytes)? }),
            1 => Some(Nominal::Instant(Time(i64::take(bytes)?))),
            2 => Some(Nominal::Trigger(String::take(bytes)?)),
            _ => None,
        }
    }
}

const HEAD: u8 = 0;

fn encode<V: Serialize>(value: &V) -> Vec<u8> {
    // Plain data in memory: postcard has nothing to refuse there.
    postcard::to_stdvec(value).unwrap_or_default()
}

fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, Unreadable> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Unreadable(format!("{} bytes are left over in a row", rest.len()))),
        Err(error) => Err(Unreadable(error.to_string())),
    }
}

fn key_bytes<K: Key>(tag: u8, key: &K) -> Vec<u8> {
    let mut bytes = vec![tag];
    key.put(&mut bytes);
    bytes
}

fn changes<K: Key + Ord + Clone, V: Serialize>(tag: u8, table: &mut Table<K, V>, out: &mut Vec<Change>) {
    for key in table.take_dirty() {
        out.push((key_bytes(tag, &key), table.get(&key).map(encode)));
    }
}

fn rows<K: Key + Ord + Clone, V: Serialize>(
    tag: u8,
    table: &Table<K, V>,
) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
    table.iter().map(move |(key, value)| (key_bytes(tag, key), encode(value)))
}

fn restore<K: Key + Ord + Clone, V: DeserializeOwned>(
    table: &mut Table<K, V>,
    mut key: &[u8],
    value: &[u8],
) -> Result<(), Unreadable> {
    let wrong = || Unreadable("a key of the wrong form".to_owned());
    let read = K::take(&mut key).ok_or_else(wrong)?;
    if !key.is_empty() {
        return Err(wrong());
    }
    table.restore(read, decode(value)?);
    Ok(())
}

/// The one list of tables and their tags: writing, reading and hashing all go by it.
macro_rules! tables {
    ($($tag:literal => $table:ident),* $(,)?) => {
        impl Ledger {
            /// The rows that changed since the last call, each with its present value.
            pub fn take_changes(&mut self) -> Vec<Change> {
                let mut out = vec![(vec![HEAD], Some(encode(&self.head)))];
                $(changes($tag, &mut self.$table, &mut out);)*
                out
            }

            /// All rows, in the order of their keys.
            pub fn all_rows(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
                std::iter::once((vec![HEAD], encode(&self.head)))$(.chain(rows($tag, &self.$table)))*
            }

            /// How many rows there are.
            pub fn row_count(&self) -> usize {
                1 $(+ self.$table.len())*
            }

            fn restore_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
                match key.split_first() {
                    Some((&HEAD, [])) => self.head = decode(value)?,
                    $(Some((&$tag, key)) => restore(&mut self.$table, key, value)?,)*
                    _ => return Err(Unreadable("a row of an unknown table".to_owned())),
                }
                Ok(())
            }
        }
    };
}
tables! {
    1 => nodes,
    2 => relays,
    3 => schedules,
    4 => history,
    5 => blobs,
    6 => pages,
    7 => chunks,
    8 => rows,
    9 => closed,
    10 => dead,
    11 => opted_out,
    12 => answers,
    13 => summaries,
    14 => rulings,
    15 => audiences,
    16 => campaigns,
}

impl Ledger {
    /// Builds the state from all of its rows, in any order.
    pub fn from_rows(rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Ledger, Unreadable> {
        let mut ledger = Ledger::new();
        for (key, value) in rows {
            ledger.restore_row(&key, &value)?;
        }
        ledger.derived = ledger.derive();
        Ok(ledger)
    }

    /// Hash of all rows: equal on every replica at an equal index (I11). Costs a walk over the state.
    pub fn state_hash(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        for (key, value) in self.all_rows() {
            hasher.update(&(key.len() as u64).to_be_bytes()).update(&key);
            hasher.update(&(value.len() as u64).to_be_bytes()).update(&value);
        }
        Hash(*hasher.finalize().as_bytes())
    }

    /// What is computed from the rows and never stored.
    pub(crate) fn derive(&self) -> Derived {
        let mailed = self.runs().filter(|(_, _, run)| run.counts.mails());
        let forgotten = self.summaries.iter().filter(|(_, summary)| summary.counts.mails());
        let mut derived = Derived {
            mailed: mailed.map(|(id, _, run)| (run.schedule, run.due, id)).collect(),
            forgotten: forgotten.map(|(id, summary)| (summary.schedule, summary.due, *id)).collect(),
            ..Derived::default()
        };
        let unfinished = self.runs().filter(|(_, _, run)| !run.counts.is_finished() && run.cause != Cause::Backfill);
        derived.unfinished = unfinished.map(|(id, _, run)| (run.schedule, id)).collect();
        let busy: BTreeSet<ScheduleId> = derived.unfinished.iter().map(|(schedule, _)| *schedule).collect();
        for (id, schedule) in self.schedules.iter() {
            derived.names.insert((schedule.tenant.clone(), schedule.name.clone()), *id);
            derived.due.extend(schedule.wakes_at(busy.contains(id)).map(|due| (due, *id)));
        }
        let open = self.pages.iter().filter(|(_, page)| page.is_open());
        derived.open_pages = open.map(|(id, _)| *id).collect();
        let audiences = self.audiences.iter().map(|(_, audience)| audience.seal);
        let audiences = audiences.chain(self.schedules.iter().map(|(_, schedule)| schedule.audience));
        let audiences = audiences.chain(self.runs().map(|(_, _, run)| run.audience));
        derived.seals = audiences.filter(|hash| self.seal(hash).is_some()).collect();
        for (key, answer) in self.answers.iter() {
            derived.answers_by_index.insert(answer.index, key.clone());
            derived.answers_of_tenant.entry(key.0.clone()).or_default().insert(answer.index);
        }
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        key_bytes(9, key)
    }

    proptest! {
        #[test]
        fn keys_keep_their_order_and_read_back(a in (any::<String>(), any::<i64>()), b in (any::<String>(), any::<i64>())) {
            prop_assert_eq!(a.cmp(&b), bytes(&a).cmp(&bytes(&b)));
            let whole = bytes(&a);
            let mut rest = &whole[1..];
            prop_assert_eq!(<(String, i64)>::take(&mut rest), Some(a));
            prop_assert!(rest.is_empty());
        }
    }
}
