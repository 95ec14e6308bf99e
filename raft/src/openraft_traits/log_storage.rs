//! openraft's log storage on [`crate::wal`]: converts types and gives the guarantees of the log.
//!
//! `save_vote` returns when the vote is durable; an append calls its callback when it is durable. A truncation or purge
//! takes effect at once and is durable before any later record. A commit becomes durable later: it only saves work at
//! the next start.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use futures::Stream;
use openraft::OptionalSend;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use prost::bytes::Bytes;

use crate::types::{
    EntryBytes, EntryPayload, LogEntry, LogId, TypeConfig, Vote, decode_membership, encode_membership, to_log_id,
    to_point, to_vote, to_vote_record,
};
use crate::wal::{
    Disk, EntryRecord, FolderDisk, LogState, OpenError, OpeningReport, PayloadKind, Wal, WalHandle, WalOptions,
    WalReader,
};

/// Largest payload of one replication round or stream read. With framing it stays below tonic's default limit of 4 MiB.
pub const READ_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The write half of the log for openraft. Dropping it ends the writer's thread.
pub struct LogStore {
    wal: Wal,
    reader: LogReader,
}

/// The read half of the log for openraft.
#[derive(Clone)]
pub struct LogReader {
    reader: WalReader,
}

impl LogStore {
    /// Opens the log of a node in a folder, or creates it. Blocks while it reads the whole log.
    pub fn open(folder: &Path, options: &WalOptions) -> Result<(LogStore, OpeningReport), OpenError> {
        let disk = FolderDisk::open(folder)
            .map_err(|error| OpenError::from_io("open the folder", &folder.display().to_string(), error))?;
        // Add the folder to the file name, so that the operator finds the file.
        LogStore::open_on(Arc::new(disk), options).map_err(|error| match error {
            OpenError::Damaged { file, offset, expected, found } => {
                OpenError::Damaged { file: folder.join(file).display().to_string(), offset, expected, found }
            }
            error => error,
        })
    }

    /// Opens or creates the log on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, options: &WalOptions) -> Result<(LogStore, OpeningReport), OpenError> {
        let (wal, report) = Wal::open(disk, options)?;
        let reader = LogReader { reader: wal.reader() };
        Ok((LogStore { wal, reader }, report))
    }

    /// Returns the vote, the commit index, the purge and the last entry.
    pub fn state(&self) -> LogState {
        self.wal.state()
    }

    /// Drops all entries unless the log has `last`, the last entry of the loaded state: a snapshot was fetched, or its
    /// installation was interrupted. Called before openraft has the log. `last` is committed. So another entry in its
    /// place, and all after that, never will be; and if the log ends before it, what is committed there is in the
    /// state.
    pub async fn fit_to(&mut self, last: &LogId) -> Result<(), io::Error> {
        let (state, point) = (self.wal.state(), to_point(last));
        let is_purged = state.purged.is_some_and(|purged| purged.index >= point.index);
        if state.last.is_none() || is_purged || self.wal.at(point.index) == Some(point) {
            return Ok(());
        }
        tracing::warn!(last = ?state.last, state = ?point, "the log is replaced by the state of a snapshot");
        // As after a message of that leader: no vote is lower than an entry of the log.
        let proposed_by = Vote { leader_id: last.leader_id, committed: true };
        if state.vote.map(to_vote) < Some(proposed_by) {
            self.save_vote(&proposed_by).await?;
        }
        Ok(self.wal.begin_after(point).await?)
    }

    /// Returns the health of the log. Call this before openraft takes ownership of the log.
    pub fn health(&self) -> WalHandle {
        self.wal.health()
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<openraft::LogState<TypeConfig>, io::Error> {
        let state = self.wal.state();
        Ok(openraft::LogState {
            last_purged_log_id: state.purged.map(to_log_id),
            last_log_id: state.last.map(to_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (sender, durable) = tokio::sync::oneshot::channel();
        let done = Box::new(move |outcome| drop(sender.send(outcome)));
        self.wal.vote(to_vote_record(vote), done).await?;
        // The writer calls every callback, even when it ends.
        durable.await.map_err(|_| io::Error::from(crate::wal::WalFailure::writer_gone()))?.map_err(io::Error::from)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        Ok(self.wal.commit(committed.as_ref().map(to_point)).await?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.wal.state().committed.map(to_log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records = entries.into_iter().map(to_record).collect::<Result<Vec<_>, _>>()?;
        let done = Box::new(move |outcome: Result<(), _>| callback.io_completed(outcome.map_err(io::Error::from)));
        Ok(self.wal.append(records, done).await?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        Ok(self.wal.truncate(last_log_id.as_ref().map(to_point)).await?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        Ok(self.wal.purge(to_point(&log_id)).await?)
    }
}

impl LogReader {
    async fn read(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<LogEntry>, io::Error> {
        let plan = self.reader.plan(range, bytes_max);
        let records = if plan.touches_disk() && self.reader.may_block_elsewhere() {
            tokio::task::spawn_blocking(|| plan.read()).await.map_err(io::Error::other)?
        } else {
            plan.read()
        };
        records?.into_iter().map(to_entry).collect()
    }
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<LogEntry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(half_open(&range), usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<LogEntry>, io::Error> {
        self.read(start..end, READ_BYTES_MAX).await
    }

    /// Reads at most [`READ_BYTES_MAX`] ahead.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<LogEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let ahead = Ahead { reader: self.clone(), rest: half_open(&range), ready: Vec::new().into_iter() };
        Box::pin(futures::stream::try_unfold(ahead, |mut ahead| async move {
            if ahead.ready.len() == 0 {
                ahead.ready = ahead.reader.read(ahead.rest.clone(), READ_BYTES_MAX).await?.into_iter();
            }
            let Some(entry) = ahead.ready.next() else { return Ok(None) };
            ahead.rest.start = entry.index().saturating_add(1);
            Ok(Some((entry, ahead)))
        }))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.reader.state().vote.map(to_vote))
    }
}

struct Ahead {
    reader: LogReader,
    rest: Range<u64>,
    ready: std::vec::IntoIter<LogEntry>,
}

fn half_open(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

fn to_record(entry: LogEntry) -> Result<EntryRecord, io::Error> {
    let point = to_point(&entry.log_id);
    let (kind, bytes) = match entry.payload {
        EntryPayload::Blank => (PayloadKind::Blank, Bytes::new()),
        EntryPayload::Normal(command) => (PayloadKind::Normal, command.0),
        EntryPayload::Membership(membership) => {
            (PayloadKind::Membership, Bytes::from(encode_membership(&membership).map_err(io::Error::other)?))
        }
    };
    Ok(EntryRecord { point, kind, bytes })
}

fn to_entry(record: EntryRecord) -> Result<LogEntry, io::Error> {
    let payload = match record.kind {
        PayloadKind::Blank => EntryPayload::Blank,
        PayloadKind::Normal => EntryPayload::Normal(EntryBytes(record.bytes)),
        PayloadKind::Membership => {
            let membership = decode_membership(&record.bytes);
            EntryPayload::Membership(membership.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?)
        }
    };
    Ok(LogEntry { log_id: to_log_id(record.point), payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::to_log_id;
    use crate::wal::{Execution, LogPoint, MemoryDisk, VoteRecord};

    fn point(term: u64, index: u64) -> LogPoint {
        LogPoint { term, leader: 1, index }
    }

    fn open(disk: &MemoryDisk) -> LogStore {
        let options = WalOptions { execution: Execution::Inline, ..WalOptions::new(1) };
        LogStore::open_on(Arc::new(disk.clone()), &options).unwrap().0
    }

    /// Returns a log that voted in term 3 and has the entries 11 to 20, from 16 on of term 3.
    async fn filled(disk: &MemoryDisk) -> LogStore {
        let log = open(disk);
        log.wal.vote(VoteRecord { term: 3, leader: 1, committed: false }, Box::new(drop)).await.unwrap();
        let entry = |index| {
            let point = point(if index < 16 { 1 } else { 3 }, index);
            EntryRecord { point, kind: PayloadKind::Blank, bytes: Bytes::new() }
        };
        log.wal.append((1..=20).map(entry).collect(), Box::new(drop)).await.unwrap();
        log.wal.purge(point(1, 10)).await.unwrap();
        log
    }

    /// Returns the state of this log after `fit_to`.
    async fn fitted(last: LogPoint) -> LogState {
        let disk = MemoryDisk::new();
        let mut log = filled(&disk).await;
        log.fit_to(&to_log_id(last)).await.unwrap();
        let state = log.state();
        drop(log);
        let log = open(&disk);
        assert_eq!(log.state(), state, "it is durable");
        let next = EntryRecord {
            point: point(9, state.last.unwrap().index + 1),
            kind: PayloadKind::Blank,
            bytes: Bytes::new(),
        };
        log.wal.append(vec![next], Box::new(drop)).await.unwrap();
        state
    }

    #[tokio::test]
    async fn log_that_has_the_last_entry_of_the_state_stays() {
        for last in [point(1, 10), point(1, 12), point(3, 16), point(3, 20)] {
            let state = fitted(last).await;
            assert_eq!((state.purged, state.last), (Some(point(1, 10)), Some(point(3, 20))), "{last:?}");
        }
    }

    #[tokio::test]
    async fn log_without_the_last_entry_of_the_state_begins_after_it() {
        for (last, term) in
            [(point(5, 12), 5), (point(5, 20), 5), (point(5, 30), 5), (point(2, 18), 3), (point(2, 30), 3)]
        {
            let state = fitted(last).await;
            assert_eq!((state.purged, state.last), (Some(last), Some(last)));
            assert_eq!(state.vote.map(|vote| (vote.term, vote.committed)), Some((term, term == 5)), "{last:?}");
        }
    }

    /// A log without its entries that does not say where it begins would let an older snapshot take the place of the
    /// one to which it was fitted: entries that this node acknowledged would be missing.
    #[tokio::test]
    async fn crash_while_log_is_replaced_leaves_all_entries_or_new_beginning() {
        let (last, former) = (point(5, 30), (Some(point(1, 10)), Some(point(3, 20))));
        let mut ends = Vec::new();
        // A batch is whole sectors. The first one has the vote.
        for sectors in 0..8 {
            let disk = MemoryDisk::new();
            let mut log = filled(&disk).await;
            disk.limit_space(sectors * 512);
            let _ = log.fit_to(&to_log_id(last)).await;
            drop(log);
            disk.heal();
            let LogState { vote, purged, last, .. } = open(&disk).state();
            ends.push((vote.unwrap().term, (purged, last)));
        }
        ends.dedup();
        assert_eq!(ends, [(3, former), (5, former), (5, (Some(last), Some(last)))]);
    }
}
