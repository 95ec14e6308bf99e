//! Reads runs that have left the replicated state for the archive (P24).
//!
//! A finished run moves to the archive in one step. So a reader asks the state first, and then the archive if the state
//! does not have the run. Parts of the archive are opened outside the lock of the state.

use std::sync::Arc;

use reveille_cluster::maintenance::archive_reader;
use reveille_ledger::ids::{OccurrenceName, RunId, Time};
use reveille_ledger::{ArchivePartKey, Ledger, RunSummary};
use reveille_proto::admin::v1::{self, ErrorReason};

use super::{Admin, ApiError, ApiResult, error_texts, views};

/// The ledgers to read a run from.
#[derive(Clone, Copy)]
pub struct RunLedgers<'l> {
    /// The replicated state. It also has contents and audiences of archived runs that other runs use.
    pub state: &'l Ledger,
    /// Has the run or its summary: the replicated state, or a part of the archive.
    pub own: &'l Ledger,
}

/// Returns true if the ledger has the run or its summary.
fn has_run(ledger: &Ledger, run: RunId) -> bool {
    ledger.run(run).is_some() || ledger.summaries().contains(&run)
}

/// Returns the error instead of the result if a part of the archive that may have it is lost.
pub fn unless_lost<T>(read: ApiResult<T>) -> ApiResult<Result<T, ApiError>> {
    match read {
        Err(error) if error.reason() == ErrorReason::ArchiveLost => Ok(Err(error)),
        read => read.map(Ok),
    }
}

/// Returns the run as the API shows it. Of a run that is lost only the id is known: a repeated request opens no other.
pub fn shown_or_lost(run: RunId, shown: ApiResult<v1::Run>) -> ApiResult<v1::Run> {
    let lost = |_| v1::Run { run: run.to_string(), lost: true, ..v1::Run::default() };
    Ok(unless_lost(shown)?.unwrap_or_else(lost))
}

impl Admin {
    /// Reads a run from the state of this node or from the archive. If neither has the run, `own` is the state.
    pub(crate) async fn read_run<T>(&self, run: RunId, mut query: impl FnMut(RunLedgers<'_>) -> T) -> ApiResult<T> {
        let replica = &self.context.replica;
        let in_state = replica.read(|state| has_run(state, run).then(|| query(RunLedgers { state, own: state })));
        if let Some(found) = in_state {
            return Ok(found);
        }
        let part = self.part_of(run, None).await?;
        Ok(replica.read(|state| {
            let own = part.as_ref().map_or(state, |(_, part)| &**part);
            query(RunLedgers { state, own })
        }))
    }

    /// Returns the run as the API shows it (`v1::Run`).
    pub(crate) async fn show_run(&self, run: RunId) -> ApiResult<v1::Run> {
        let found = self.read_run(run, |at| views::run_of(at.own, run)).await?;
        found.ok_or_else(|| error_texts::no_run(run))
    }

    /// Returns the part of the archive that has the run or its summary. With a tenant it is not searched among the runs
    /// of others, so a lost run of another tenant is as one that does not exist.
    pub(crate) async fn part_of(
        &self,
        run: RunId,
        tenant: Option<&str>,
    ) -> ApiResult<Option<(ArchivePartKey, Arc<Ledger>)>> {
        self.record_step("search archive");
        archive_reader::archived(&self.context, run, tenant)
            .await
            .map_err(|error| error_texts::archive_unreadable(&error))
    }

    /// Opens a part of the archive. Returns `None` if its retention has ended.
    pub(crate) async fn open_part(&self, key: ArchivePartKey) -> ApiResult<Option<Arc<Ledger>>> {
        self.record_step("open archive");
        archive_reader::open_part(&self.context, key).await.map_err(|error| error_texts::archive_unreadable(&error))
    }
}

/// An archived run of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRun {
    pub id: RunId,
    pub occurrence: OccurrenceName,
    pub due: Time,
    /// Log index of the entry that archived it.
    pub archived_index: u64,
}

/// Reads the archived runs of a schedule, the one that was archived last first. It ends where no part has the next run
/// any more.
pub struct ArchiveChain<'a> {
    admin: &'a Admin,
    next: Option<RunId>,
    /// Where the chain reaches the first run, it continues with the second one.
    skip: Option<(RunId, Option<RunId>)>,
    /// The part of the last run. Consecutive runs are often in one part.
    part: Option<(ArchivePartKey, Arc<Ledger>)>,
    /// Set if the chain ended because the part of the next run is lost.
    pub broken: Option<ApiError>,
}

impl<'a> ArchiveChain<'a> {
    /// Begins with the run `last`, which is `plan.archived` of the schedule.
    pub fn new(admin: &'a Admin, last: Option<RunId>) -> ArchiveChain<'a> {
        ArchiveChain { admin, next: last, skip: None, part: None, broken: None }
    }

    /// Leaves out the runs from the first one up to the second one, exclusive. `None`: up to the end.
    pub fn skipping(self, skip: Option<(RunId, Option<RunId>)>) -> ArchiveChain<'a> {
        ArchiveChain { skip, ..self }
    }

    /// Returns the id of the next run.
    pub fn position(&self) -> Option<RunId> {
        match self.skip {
            Some((from, to)) if self.next == Some(from) => to,
            _ => self.next,
        }
    }

    /// Reads the next run.
    pub async fn next(&mut self) -> ApiResult<Option<ArchivedRun>> {
        let Some(id) = self.position() else { return Ok(None) };
        if self.next != Some(id) {
            self.skip = None;
        }
        self.part = match self.part.take().filter(|(_, part)| has_run(part, id)) {
            Some(part) => Some(part),
            None => match unless_lost(self.admin.part_of(id, None).await)? {
                Ok(part) => part,
                Err(error) => {
                    self.broken = Some(error);
                    return Ok(None);
                }
            },
        };
        let found = self.part.as_ref().and_then(|(key, part)| Some((key.index, part.summary_of(id)?)));
        self.next = found.as_ref().and_then(|(_, run)| run.previous);
        let archived =
            |(archived_index, RunSummary { occurrence, due, .. })| ArchivedRun { id, occurrence, due, archived_index };
        Ok(found.map(archived))
    }
}
