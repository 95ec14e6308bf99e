//! The state as rows of bytes: the content of snapshots and of the state hash.
//!
//! Keys are in postcard after the tag of their table, and values in postcard after the version of their form. Equal
//! states have equal rows, byte for byte, in the order of their tables and keys.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::index::Derived;
use crate::index::mailed_runs::MailedRuns;
use crate::model::{
    AdminToken, ArchivePart, AuditRecord, Campaign, Chunk, Claim, ClosedClaimBlock, DeadLetter, Hash, Head,
    InstantOutcome, Ledger, OptedOut, PackedEvents, Page, PartContent, PoolRow, RecipientState, Relay, RemovedNode,
    RunEvent, RunSummary, Schedule, ScheduleId, SealedAudience, StoredAnswer, StoredBlob, TakenBack, Template, Tenant,
};
use crate::storage::form::{RowForm, Unreadable, decode_as, encode_as};
use crate::storage::{FrozenState, Row, Table};

/// Maximum size of a row, in bytes. A block of a snapshot has complete rows and fits into one message between nodes. So
/// a larger row would leave a follower without a snapshot.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;

const HEAD: u8 = 0;
/// Tag of the table `blobs`, whose rows are in blocks of their own in the archive.
pub(super) const BLOBS: u8 = 5;

fn rows<K: Serialize + Ord, V: RowForm>(tag: u8, level: u32, table: &Table<K, V>) -> impl Iterator<Item = Row> + '_ {
    table.iter().map(move |(key, value)| (encode_as(tag, key), value.to_row(level)))
}

fn read<K: DeserializeOwned, V: RowForm>(tag: u8, key: &[u8], value: &[u8]) -> Result<(K, V), Unreadable> {
    Ok((decode_as(tag, key)?, V::from_row(value)?))
}

/// The only list of tables and their tags; writing, reading and hashing use it. Rows of some tables are interned when
/// they are read.
macro_rules! tables {
    ($($tag:literal => $table:ident $(interned by $intern:path)?),* $(,)?) => {
        impl Ledger {
            /// Iterates over all rows, in the order of their keys and in the forms of the ledger's level.
            pub fn all_rows(&self) -> impl Iterator<Item = Row> + '_ {
                let level = self.head.level;
                std::iter::once((vec![HEAD], self.head.to_row(level)))
                    $(.chain(rows($tag, level, &self.$table)))*
            }

            /// Freezes the state. Costs one pointer a leaf.
            pub fn freeze(&self) -> FrozenState {
                let level = self.head.level;
                let mut state = FrozenState::default();
                let mut head = Table::default();
                head.put((), self.head.clone());
                state.add(HEAD, level, head.frozen_leaves());
                $(state.add($tag, level, self.$table.frozen_leaves());)*
                state.with_archive(self.frozen_archive())
            }

            /// Forgets how leaves were encoded: another level may have other forms.
            pub(crate) fn forget_blocks(&mut self) {
                $(self.$table.forget_blocks();)*
            }

            /// Number of rows.
            pub fn row_count(&self) -> usize {
                1 $(+ self.$table.len())*
            }

            fn restore_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
                match key.first() {
                    Some(&HEAD) => {
                        let ((), head) = read(HEAD, key, value)?;
                        self.head = head;
                    }
                    $(Some(&$tag) => {
                        let (key, row) = read($tag, key, value)?;
                        $(let row = {
                            let mut row = row;
                            $intern(&mut row, &mut self.derived.shared);
                            row
                        };)?
                        self.$table.put(key, row);
                    })*
                    _ => return Err(Unreadable("a row of an unknown table".to_owned())),
                }
                Ok(())
            }
        }

        /// Tags and names of all tables.
        pub(super) const TABLES: &[(u8, &str)] = &[(HEAD, "head"), $(($tag, stringify!($table))),*];
    };
}
tables! {
    1 => nodes,
    2 => relays,
    3 => schedules interned by Schedule::intern,
    4 => history,
    5 => blobs,
    6 => pages interned by Page::intern,
    7 => chunks,
    8 => claims,
    9 => closed_claim_blocks,
    10 => dead,
    11 => opted_out,
    12 => answers,
    13 => summaries interned by RunSummary::intern,
    14 => run_events,
    15 => audiences,
    16 => campaigns,
    17 => tenants,
    18 => taken_back,
    19 => pools,
    20 => parts interned by ArchivePart::intern,
    21 => removed_nodes,
    22 => tokens,
    23 => audit,
    24 => events,
    25 => templates,
}

/// Types whose rows have had only one form.
macro_rules! of_one_form {
    ($($value:ty $(: $leaf_rows:literal)?),* $(,)?) => {
        $(impl RowForm for $value { $(const LEAF_ROWS: u32 = $leaf_rows;)? })*
    };
}
of_one_form! {
    Head, Relay, Schedule, InstantOutcome, StoredBlob: 128, Page: 8, Chunk: 8, Claim: 32, ClosedClaimBlock: 8, DeadLetter, OptedOut,
    StoredAnswer, RunSummary, Vec<RunEvent>: 8, SealedAudience, Campaign, Tenant, TakenBack, PoolRow, ArchivePart,
    RemovedNode, AdminToken, AuditRecord, PackedEvents, Template: 16,
}
#[cfg(not(feature = "next-level"))]
impl RowForm for crate::model::Node {}

impl Ledger {
    /// Builds the state from all of its rows, in any order.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Result<Ledger, Unreadable> {
        let mut ledger = Ledger::new();
        for (key, value) in rows {
            ledger.restore_row(&key, &value)?;
        }
        let shared = std::mem::take(&mut ledger.derived.shared);
        ledger.derived = Derived { shared, ..ledger.derive() };
        Ok(ledger)
    }

    /// Hash of the state: equal on every replica at an equal index (I11). Encodes the leaves that have changed since
    /// they were last encoded.
    pub fn state_hash(&self) -> Hash {
        self.freeze().hash()
    }

    /// Size of the largest row, in bytes. Reads the whole state.
    pub(crate) fn largest_row(&self) -> usize {
        self.all_rows().map(|(_, value)| value.len()).max().unwrap_or(0)
    }

    /// Computes the secondary indexes from the rows.
    pub(crate) fn derive(&self) -> Derived {
        let mut derived = Derived::default();
        for (id, _, run) in self.runs() {
            let key = (run.schedule, id);
            derived.unfinished.extend(run.takes_part_in_overlap().then_some(key));
            derived.exempt_from_overlap.extend(run.is_exempt_from_overlap().then_some(key));
            derived.blocking.extend(run.may_block_next().then_some(key));
            if run.has_emails() {
                derived.mailed.insert(MailedRuns::rows(id, run, self.blob(&run.audience)));
            }
        }
        let busy: BTreeSet<ScheduleId> = derived.blocking.iter().map(|(schedule, _)| *schedule).collect();
        for (id, schedule) in self.schedules.iter() {
            derived.name_schedule(*id, schedule);
            derived.due.extend(schedule.wakes_at(busy.contains(id)).map(|due| (due, *id)));
        }
        for (_, page) in self.pages.iter() {
            let claimed = page.runs.iter().map(|run| run.counts.get(RecipientState::Claimed)).sum::<u32>();
            if claimed > 0 {
                *derived.claimed.entry(page.tenant.to_string()).or_default() += claimed;
            }
        }
        for (_, row) in self.claims.iter().filter(|(_, row)| !row.claimed.is_empty()) {
            if let Some(page) = self.pages.get(&row.chunk.page) {
                let pool = self.pool_of_claim(page, row).to_owned();
                *derived.claimed_by_pool.entry(pool).or_default() += row.claimed.len();
            }
        }
        let open = self.pages.iter().filter(|(_, page)| page.is_open());
        derived.open_pages = open.map(|(id, page)| (page.starts_at(), *id)).collect();
        let audiences = self.audiences.iter().map(|(_, audience)| audience.seal);
        let audiences = audiences.chain(self.schedules.iter().map(|(_, schedule)| schedule.audience));
        let audiences = audiences.chain(self.runs().map(|(_, _, run)| run.audience));
        derived.seals = audiences.filter(|hash| self.seal(hash).is_some()).collect();
        let used = self.blobs.iter().filter(|(_, blob)| blob.references > 0);
        used.for_each(|(hash, blob)| derived.add_files(*hash, &blob.bytes));
        let runs = self.runs().filter(|(_, _, run)| derived.seals.contains(&run.audience));
        derived.to_seals = runs.map(|(id, _, run)| (run.content, id)).collect();
        let mailings = self.summaries.iter().filter_map(|(id, summary)| Some((summary.mailing.as_ref()?.content, *id)));
        derived.to_seals.extend(mailings);
        let audit_parts = self.parts.iter().filter(|(_, part)| matches!(part.content, PartContent::Audit { .. }));
        derived.audit_parts = audit_parts.map(|(key, _)| *key).collect();
        let event_parts = self.parts.iter().filter(|(_, part)| matches!(part.content, PartContent::Events { .. }));
        derived.event_parts = event_parts.map(|(key, _)| *key).collect();
        derived.event_bytes = self.events.iter().map(|(_, row)| row.packed_len()).sum();
        for (key, answer) in self.answers.iter() {
            derived.answers_by_index.insert(answer.index, key.clone());
            derived.answers_of_tenant.entry(key.0.clone()).or_default().insert(answer.index);
        }
        derived
    }
}
