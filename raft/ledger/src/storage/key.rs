//! Keys as bytes. They keep the order of the tables (big-endian numbers, escaped strings), so that rows of one kind
//! with close numbers are neighbours.

use crate::model::{ArchivePartKey, Epoch, Fence, Hash, NodeId, Nominal, RunId, ScheduleId, Time};

/// A key that keeps its order as bytes.
pub trait TableKey: Sized {
    /// Appends the key to `out`.
    fn put(&self, out: &mut Vec<u8>);
    /// Removes a key from the front of `bytes`; `None` if there is no valid key.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// The key of a row: the tag of its table, then the key.
    fn to_bytes(&self, tag: u8) -> Vec<u8> {
        let mut bytes = vec![tag];
        self.put(&mut bytes);
        bytes
    }
}

/// The key of the only row of its kind.
impl TableKey for () {
    fn put(&self, _out: &mut Vec<u8>) {}

    fn take(_bytes: &mut &[u8]) -> Option<()> {
        Some(())
    }
}

fn split<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

macro_rules! number_keys {
    ($($number:ty),*) => {$(
        impl TableKey for $number {
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

impl TableKey for i64 {
    /// The sign bit is inverted, so that negative numbers come first.
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64 ^ 1 << 63).put(out);
    }
    fn take(bytes: &mut &[u8]) -> Option<i64> {
        u64::take(bytes).map(|number| (number ^ 1 << 63) as i64)
    }
}

impl TableKey for String {
    /// A zero octet is written as 0 255, and the end as 0 0.
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

impl TableKey for Hash {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }

    fn take(bytes: &mut &[u8]) -> Option<Hash> {
        split(bytes).map(Hash)
    }
}

/// Structs as their fields, in this order.
macro_rules! struct_keys {
    ($($key:ident { $($field:tt),* })*) => {$(
        impl TableKey for $key {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: TableKey::take(bytes)?),* })
            }
        }
    )*};
}
struct_keys! {
    NodeId { 0 }
    ScheduleId { 0 }
    Epoch { 0 }
    Time { 0 }
    RunId { index, place }
    ArchivePartKey { index, place }
    Fence { group, epoch, index, place }
}

macro_rules! tuple_keys {
    ($(($($part:ident $field:tt),*))*) => {$(
        impl<$($part: TableKey),*> TableKey for ($($part),*) {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::take(bytes)?),*))
            }
        }
    )*};
}
tuple_keys! {
    (A 0, B 1)
    (A 0, B 1, C 2)
}

impl TableKey for Nominal {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Nominal::Civil { civil_ms, fold } => {
                0u8.put(out);
                civil_ms.put(out);
                fold.put(out);
            }
            Nominal::Instant(time) => {
                1u8.put(out);
                time.put(out);
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
            1 => Some(Nominal::Instant(Time::take(bytes)?)),
            2 => Some(Nominal::Trigger(String::take(bytes)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_keep_their_order_and_read_back(a in (any::<String>(), any::<i64>()), b in (any::<String>(), any::<i64>())) {
            let whole = a.to_bytes(7);
            prop_assert_eq!(a.cmp(&b), whole.cmp(&b.to_bytes(7)));
            let mut rest = &whole[1..];
            prop_assert_eq!(<(String, i64)>::take(&mut rest), Some(a));
            prop_assert!(rest.is_empty());
        }
    }
}
