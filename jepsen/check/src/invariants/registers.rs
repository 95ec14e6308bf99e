//! Each object as a register (I7): the values that a read may return, and the values that may remain at the end.
//!
//! A write takes effect once, between its start and its answer. A write without an answer takes effect at any time
//! after its start, or never. Two calls with one request id are one write. A value that a read returned was written
//! before the read ended. If two writes wrote the same value, a read may have returned either.

use std::collections::BTreeMap;

use crate::events::{Answer, Call, OPTED_OUT, ObjectKind, Operation};
use crate::history::History;

/// Kind, tenant and name of an object.
pub type Key<'a> = (ObjectKind, &'a str, &'a str);

/// One object.
#[derive(Default)]
pub struct Register<'a> {
    writes: Vec<Write<'a>>,
    reads: Vec<Read<'a>>,
}

struct Write<'a> {
    request_id: Option<&'a str>,
    invoked_ns: u64,
    /// Time by which the write was executed. `None`: it may have been executed at any later time, or never.
    done_ns: Option<u64>,
    value: Option<&'a str>,
}

/// A client's read.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Client that read, as the history names it. A violation is reported with this name.
    pub client: &'a str,
    /// Start of the call.
    pub invoked_ns: u64,
    /// Time of the answer.
    pub answered_ns: u64,
    /// The returned value.
    pub value: Option<&'a str>,
}

/// Reason why a read is a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The value was not written before the read ended.
    NeverWritten,
    /// The value was overwritten, or another value was written, before the read began.
    Stale,
    /// A later read returned the value that this read should have returned: the value disappeared and came back.
    WentBack,
}

/// Returns all objects that were written or read.
pub fn registers(history: &History) -> BTreeMap<Key<'_>, Register<'_>> {
    let mut registers: BTreeMap<Key, Register> = BTreeMap::new();
    for call in &history.calls {
        match &call.operation {
            Operation::Write { kind, tenant, name, value } => {
                registers.entry((*kind, tenant, name)).or_default().record_write(call, value.as_deref());
            }
            Operation::OptOut { tenant, recipient } => {
                registers
                    .entry((ObjectKind::OptOut, tenant, recipient))
                    .or_default()
                    .record_write(call, Some(OPTED_OUT));
            }
            Operation::TakeBack { tenant, recipient } => {
                registers.entry((ObjectKind::OptOut, tenant, recipient)).or_default().record_write(call, None);
            }
            Operation::Read { kind, tenant, name } => {
                if let (Answer::Found { value }, Some(answered_ns)) = (&call.answer, call.answered_ns) {
                    let (client, invoked_ns) = (call.client.as_str(), call.invoked_ns);
                    let read = Read { client, invoked_ns, answered_ns, value: value.as_deref() };
                    registers.entry((*kind, tenant, name)).or_default().reads.push(read);
                }
            }
            _ => {}
        }
    }
    registers.values_mut().for_each(Register::learn);
    registers
}

impl<'a> Register<'a> {
    fn record_write(&mut self, call: &'a Call, value: Option<&'a str>) {
        let done_ns = match call.answer {
            Answer::Ok { .. } => call.answered_ns,
            Answer::Unknown => None,
            Answer::Failed { .. } | Answer::Found { .. } => return,
        };
        let (request_id, invoked_ns) = (call.request_id.as_deref(), call.invoked_ns);
        let is_same =
            |known: &&mut Write| request_id.is_some() && (known.request_id, known.value) == (request_id, value);
        match self.writes.iter_mut().find(is_same) {
            Some(known) => {
                known.invoked_ns = known.invoked_ns.min(invoked_ns);
                known.done_ns = known.done_ns.into_iter().chain(done_ns).min();
            }
            None => self.writes.push(Write { request_id, invoked_ns, done_ns, value }),
        }
    }

    /// Marks writes whose value was read as executed.
    fn learn(&mut self) {
        for position in 0..self.writes.len() {
            if let Some(value) = self.writes[position].value.filter(|value| self.is_one_write(value)) {
                let seen = self.reads.iter().filter(|read| read.value == Some(value)).map(|read| read.answered_ns);
                let by_ns = seen.chain(self.writes[position].done_ns).min();
                self.writes[position].done_ns = by_ns;
            }
        }
    }

    /// Returns true if exactly one write has this value, so that a read of the value proves this write.
    fn is_one_write(&self, value: &str) -> bool {
        self.writes.iter().filter(|write| write.value == Some(value)).count() == 1
    }

    /// Returns true if the object was, or may have been, written.
    pub fn is_written(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns the value of the last answered write.
    pub fn last_answered(&self) -> Option<&'a str> {
        self.writes.iter().rev().find(|write| write.done_ns.is_some()).and_then(|write| write.value)
    }

    /// Returns true if this value is possible at the end, after all reads.
    pub fn may_hold(&self, held: Option<&str>) -> bool {
        let was_replaced =
            |write: &Write| self.has_unique_value(write) && self.reads.iter().any(|read| write.is_replaced_at(read));
        let came_back = self.writes.iter().any(|write| write.value == held && was_replaced(write));
        self.may_show(held, u64::MAX, u64::MAX) && !came_back
    }

    /// Returns the impossible reads, with the reason.
    pub fn wrong_reads(&self) -> impl Iterator<Item = (Read<'a>, ReadError)> + '_ {
        self.reads.iter().filter_map(|read| Some((*read, self.wrong(read)?)))
    }

    fn wrong(&self, read: &Read) -> Option<ReadError> {
        let may_be_written = |write: &Write| write.value == read.value && write.invoked_ns < read.answered_ns;
        if read.value.is_some() && !self.writes.iter().any(may_be_written) {
            Some(ReadError::NeverWritten)
        } else if !self.may_show(read.value, read.invoked_ns, read.answered_ns) {
            Some(ReadError::Stale)
        } else {
            self.went_back(read).then_some(ReadError::WentBack)
        }
    }

    /// Returns true if a read in this interval may return the value: its write is not followed by another write that
    /// was done before `from_ns`.
    fn may_show(&self, value: Option<&str>, from_ns: u64, until_ns: u64) -> bool {
        let done_before =
            || self.writes.iter().filter(move |write| write.done_ns.is_some_and(|done_ns| done_ns < from_ns));
        let is_replaced =
            |write: &Write| write.done_ns.is_some_and(|done_ns| done_before().any(|later| later.invoked_ns > done_ns));
        let is_untouched = value.is_none() && done_before().next().is_none();
        let mut written = self.writes.iter().filter(|write| write.value == value && write.invoked_ns < until_ns);
        is_untouched || written.any(|write| !is_replaced(write))
    }

    /// Returns true if this read lies between the only write of another value and a later read of that value.
    fn went_back(&self, read: &Read) -> bool {
        let is_read_later = |write: &Write| {
            self.reads.iter().any(|later| later.value == write.value && later.invoked_ns > read.answered_ns)
        };
        self.writes
            .iter()
            .any(|write| write.is_replaced_at(read) && self.has_unique_value(write) && is_read_later(write))
    }

    /// Returns true if no other write has the same value.
    fn has_unique_value(&self, write: &Write) -> bool {
        write.value.is_some_and(|value| self.is_one_write(value))
    }
}

impl Write<'_> {
    /// Returns true if a read that began after this write returned another value.
    fn is_replaced_at(&self, read: &Read) -> bool {
        self.value != read.value && self.done_ns.is_some_and(|done_ns| done_ns < read.invoked_ns)
    }
}
