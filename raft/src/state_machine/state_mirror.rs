//! The copy of the applied state on disk: loaded at the start, and kept close behind the ledger while it runs.
//!
//! The copy is never the truth. A store that does not open, or whose rows are no ledger, is moved away and refilled from the
//! snapshot and the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLockWriteGuard;
use reveille_ledger::Ledger;

use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::position::{AppliedPosition, assemble, check_level, decode_position, encode_position};
use crate::store::{
    Contents, MIRROR_EVERY, MemoryStore, Mirror, Source, StateStore, StateUpdate, UpdatedRows, open_or_quarantine,
};

/// A failed store is rewritten at most this often, since that writes the whole state.
const REBUILD_EVERY: Duration = Duration::from_secs(60);
/// Limit of the last write at the stop. The next start replays what is missing.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A loaded state and its store.
pub(crate) struct Opened {
    pub ledger: Ledger,
    pub position: AppliedPosition,
    pub store: Box<dyn StateStore>,
    /// The rows of the store are no ledger, so it must be rewritten.
    pub rewrite: bool,
}

/// Loads the store in `folder`, or the one in memory if given. Blocks: it reads all rows.
pub(crate) fn open(folder: &Path, memory: Option<MemoryStore>, highest_level: u32) -> Result<Opened, FatalError> {
    let opened = match memory {
        Some(mut store) => store.load().map(|contents| (Box::new(store) as Box<dyn StateStore>, contents)),
        None => open_or_quarantine(folder).map(|(store, contents)| (Box::new(store) as Box<dyn StateStore>, contents)),
    };
    let (store, contents) = opened.map_err(|error| FatalError::State(error.to_string()))?;
    let made = match contents {
        Contents::State { meta, rows } => match decode_position(&meta) {
            Ok(position) => {
                check_level(&position, highest_level)?;
                assemble(position, rows)
            }
            Err(error) => Err(error),
        },
        Contents::Empty => Ok((Ledger::new(), AppliedPosition::default())),
    };
    Ok(match made {
        Ok((ledger, position)) => Opened { ledger, position, store, rewrite: false },
        Err(error) => {
            tracing::warn!(%error, "the rows of the state store are no ledger; it will be rewritten from snapshot and log");
            Opened { ledger: Ledger::new(), position: AppliedPosition::default(), store, rewrite: true }
        }
    })
}

/// Source of the mirror.
struct Applied(Arc<AppliedState>);

impl Source for Applied {
    /// Takes the set of changed rows under the write lock and encodes them under the read lock. Nothing is applied in
    /// between, so rows and position are of one state. Returns when the log is durable up to that state.
    fn take(&mut self, all: bool) -> Result<StateUpdate, String> {
        let applied_state = &self.0;
        let mut ledger = applied_state.ledger.write();
        applied_state.check_whole().map_err(|fatal_error| fatal_error.to_string())?;
        let changed = ledger.take_changed();
        let all = applied_state.rewrite.swap(false, Ordering::Relaxed) || all;
        let position = applied_state.position.lock().clone();
        let rows = applied_state.full_scan(RwLockWriteGuard::downgrade(ledger), |ledger| match all {
            true => UpdatedRows::All(ledger.all_rows().collect()),
            false => UpdatedRows::Changed(ledger.changed_rows(&changed).collect()),
        });
        applied_state.wait_for_log().map_err(|fatal_error| fatal_error.to_string())?;
        match encode_position(&position) {
            Ok(meta) => Ok(StateUpdate { rows, meta }),
            Err(fatal_error) => {
                let why = fatal_error.to_string();
                applied_state.fatal_errors.raise(fatal_error);
                Err(why)
            }
        }
    }
}

/// Keeps the copy on disk. The apply thread notifies it.
pub(crate) struct StateMirror {
    mirror: Mirror,
    execution: Execution,
    failed: Arc<AtomicBool>,
    rebuilt: Instant,
}

impl StateMirror {
    /// Starts to mirror the state into `store`.
    pub fn start(
        store: Box<dyn StateStore>,
        applied_state: Arc<AppliedState>,
        execution: Execution,
    ) -> Result<StateMirror, FatalError> {
        let failed = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&failed);
        let mirror = Mirror::start(execution, store, Box::new(Applied(applied_state)), MIRROR_EVERY, move |error| {
            tracing::warn!(%error, "the state store failed; it will be rewritten");
            tell.store(true, Ordering::Release);
        })
        .map_err(|error| FatalError::State(error.to_string()))?;
        Ok(StateMirror { mirror, execution, failed, rebuilt: Instant::now() })
    }

    /// The state has changed. Does not wait for the disk.
    pub fn note(&mut self) {
        if self.failed.load(Ordering::Acquire) && self.rebuilt.elapsed() >= REBUILD_EVERY {
            self.rebuild();
        } else {
            self.mirror.note();
        }
    }

    /// Rewrites the store: the state was replaced or the store failed.
    pub fn rebuild(&mut self) {
        self.failed.store(false, Ordering::Release);
        self.rebuilt = Instant::now();
        self.mirror.rebuild();
    }

    /// Writes what waits and closes the store. An inline mirror ends by itself.
    pub fn close(self) {
        if self.execution == Execution::Inline {
            return drop(self.mirror);
        }
        if let Err(error) = self.mirror.stop(STOP_LIMIT) {
            tracing::warn!(%error, "the state store is not up to date: the next start replays more of the log");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use reveille_ledger::command::{Command, Entry, EpochStart, OptOut, VoterClock};
    use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};
    use reveille_ledger::reply::CommandOutcome;
    use reveille_proto::peer::v1;

    use super::*;
    use crate::fatal_error::FatalErrorCell;
    use crate::store::Row;
    use crate::wire;

    fn new() -> Arc<AppliedState> {
        Arc::new(AppliedState::new(Ledger::new(), AppliedPosition::default(), false, FatalErrorCell::new()))
    }

    /// Applies an entry, as the apply thread does.
    fn apply(applied_state: &AppliedState, index: u64) {
        let mut ledger = applied_state.ledger.write();
        ledger.skip(index);
        applied_state.position.lock().last = Some(wire::to_log_id(&v1::LogId { term: 1, leader: 1, index }));
    }

    /// Applied index of the rows, and of their meta.
    fn indices(taken: &StateUpdate) -> (u64, u64) {
        let rows: Vec<Row> = match &taken.rows {
            UpdatedRows::Changed(changes) => {
                changes.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
            }
            UpdatedRows::All(rows) => rows.clone(),
        };
        let ledger = Ledger::from_rows(rows).unwrap();
        (ledger.head().applied, decode_position(&taken.meta).unwrap().last.map_or(0, |id| id.index))
    }

    #[test]
    fn rows_and_meta_are_of_one_state_while_entries_are_applied() {
        const ENTRIES: u64 = 20_000;
        let applied_state = new();
        let applied = Arc::new(AtomicU64::new(0));
        let (of_thread, progress) = (Arc::clone(&applied_state), Arc::clone(&applied));
        let machine = std::thread::spawn(move || {
            for index in 1..=ENTRIES {
                apply(&of_thread, index);
                progress.store(index, Ordering::Release);
            }
        });
        let mut source = Applied(Arc::clone(&applied_state));
        let mut looks = 0;
        while applied.load(Ordering::Acquire) < ENTRIES || looks < 3 {
            let before = applied.load(Ordering::Acquire);
            let (rows, meta) = indices(&source.take(looks % 2 == 1).unwrap());
            assert_eq!(rows, meta);
            assert!(rows >= before, "it is not older than what was applied");
            looks += 1;
        }
        machine.join().unwrap();
    }

    /// Applies an entry that changes a row beside the head.
    fn opt_out(applied_state: &AppliedState, index: u64) {
        let opt_out = OptOut { tenant: "default".to_owned(), keys: vec![index.to_string()] };
        let entry = Entry { epoch: Epoch(1), now: Time(1), command: Command::OptOut(opt_out) };
        let applied = applied_state.ledger.write().apply(index, &entry);
        assert_eq!(applied.reply.outcome, CommandOutcome::Moved(1));
        applied_state.position.lock().last = Some(wire::to_log_id(&v1::LogId { term: 1, leader: 1, index }));
    }

    #[test]
    fn dropped_set_of_changes_gives_all_rows_once() {
        let applied_state = new();
        let mut source = Applied(Arc::clone(&applied_state));
        let me = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let start = EpochStart::new(me, 1, vec![VoterClock { node: me.node, wall: Time(0) }]);
        let entry = Entry { epoch: Epoch(0), now: Time(0), command: Command::EpochStart(start) };
        applied_state.ledger.write().apply(1, &entry);
        drop(source.take(false).unwrap());
        opt_out(&applied_state, 2);
        applied_state.bound_changes(&mut applied_state.ledger.write(), 1);
        assert_eq!(applied_state.ledger.read().changed_count(), 1);
        assert!(
            matches!(source.take(false).unwrap().rows, UpdatedRows::Changed(rows) if rows.len() == 2),
            "with the head"
        );
        opt_out(&applied_state, 3);
        opt_out(&applied_state, 4);
        applied_state.bound_changes(&mut applied_state.ledger.write(), 1);
        assert_eq!(applied_state.ledger.read().changed_count(), 0, "nothing gathers without bound");
        opt_out(&applied_state, 5);
        let taken = source.take(false).unwrap();
        assert_eq!(indices(&taken), (5, 5));
        assert!(matches!(taken.rows, UpdatedRows::All(rows) if rows.len() == 5), "four, and the head");
        assert!(matches!(source.take(false).unwrap().rows, UpdatedRows::Changed(_)));
    }
}
