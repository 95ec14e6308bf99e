//! The applied state at start and while it runs: the ledger from the state store, and the mirror that
//! keeps the store close behind.
//!
//! The store is never the truth: what it lacks comes from the snapshot and the log, and a store that does
//! not open or does not make a ledger is put aside and filled anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLockWriteGuard;
use reveille_ledger::Ledger;

use crate::drive::Drive;
use crate::fault::Fault;
use crate::state_machine::applied_state::Core;
use crate::state_machine::position::{Place, assemble, check_level, decode_place, encode_place};
use crate::store::{Contents, MIRROR_EVERY, MemoryStore, Mirror, Rows, Source, StateStore, Taken, open_or_set_aside};

/// A store that failed is filled anew at most this often: it costs a write of the whole state.
const REBUILD_EVERY: Duration = Duration::from_secs(60);
/// What the store gets to write at the end; what it does not write is replayed at the next start.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What a folder held.
pub(crate) struct Opened {
    pub ledger: Ledger,
    pub place: Place,
    pub store: Box<dyn StateStore>,
    /// The store holds rows that make no state: it must be written anew.
    pub anew: bool,
}

/// Opens the store: that in a folder, unless there is one in memory. Blocks: it reads all of it.
pub(crate) fn open(folder: &Path, memory: Option<MemoryStore>, highest_level: u32) -> Result<Opened, Fault> {
    let opened = match memory {
        Some(mut store) => store.load().map(|contents| (Box::new(store) as Box<dyn StateStore>, contents)),
        None => open_or_set_aside(folder).map(|(store, contents)| (Box::new(store) as Box<dyn StateStore>, contents)),
    };
    let (store, contents) = opened.map_err(|error| Fault::State(error.to_string()))?;
    let made = match contents {
        Contents::State { meta, rows } => match decode_place(&meta) {
            Ok(place) => {
                check_level(&place, highest_level)?;
                assemble(place, rows)
            }
            Err(error) => Err(error),
        },
        Contents::Empty => Ok((Ledger::new(), Place::default())),
    };
    Ok(match made {
        Ok((ledger, place)) => Opened { ledger, place, store, anew: false },
        Err(error) => {
            tracing::warn!(%error, "the state store makes no state; it is filled anew from snapshot and log");
            Opened { ledger: Ledger::new(), place: Place::default(), store, anew: true }
        }
    })
}

/// The applied state, as the mirror sees it.
struct Applied(Arc<Core>);

impl Source for Applied {
    /// Holds the ledger's lock for writing for a few pointers, and for reading while it encodes. Nothing is applied
    /// in between, so rows and place are of one state. Gives them when the log is as far on disk as they are.
    fn take(&mut self, all: bool) -> Result<Taken, String> {
        let core = &self.0;
        let mut ledger = core.ledger.write();
        core.check_whole().map_err(|fault| fault.to_string())?;
        let changed = ledger.take_changed();
        let all = core.anew.swap(false, Ordering::Relaxed) || all;
        let place = core.place.lock().clone();
        let rows = core.walk(RwLockWriteGuard::downgrade(ledger), |ledger| match all {
            true => Rows::All(ledger.all_rows().collect()),
            false => Rows::Changed(ledger.changed_rows(&changed).collect()),
        });
        core.wait_for_log().map_err(|fault| fault.to_string())?;
        match encode_place(&place) {
            Ok(meta) => Ok(Taken { rows, meta }),
            Err(fault) => {
                let why = fault.to_string();
                core.faults.raise(fault);
                Err(why)
            }
        }
    }
}

/// Keeps the state on disk. The machine's thread rings it.
pub(crate) struct Keeper {
    mirror: Mirror,
    drive: Drive,
    failed: Arc<AtomicBool>,
    rebuilt: Instant,
}

impl Keeper {
    /// Starts to follow the state that was read from `store`.
    pub fn start(store: Box<dyn StateStore>, core: Arc<Core>, drive: Drive) -> Result<Keeper, Fault> {
        let failed = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&failed);
        let mirror = Mirror::start(drive, store, Box::new(Applied(core)), MIRROR_EVERY, move |error| {
            tracing::warn!(%error, "the state store failed; it is filled anew");
            tell.store(true, Ordering::Release);
        })
        .map_err(|error| Fault::State(error.to_string()))?;
        Ok(Keeper { mirror, drive, failed, rebuilt: Instant::now() })
    }

    /// The state has changed. Never waits for the disk.
    pub fn note(&mut self) {
        if self.failed.load(Ordering::Acquire) && self.rebuilt.elapsed() >= REBUILD_EVERY {
            self.rebuild();
        } else {
            self.mirror.note();
        }
    }

    /// The whole state was replaced, or the store failed: it is written anew.
    pub fn rebuild(&mut self) {
        self.failed.store(false, Ordering::Release);
        self.rebuilt = Instant::now();
        self.mirror.rebuild();
    }

    /// Writes what waits, and closes the store. Without a thread of its own the mirror ends by itself, soon.
    pub fn close(self) {
        if self.drive == Drive::Inline {
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
    use crate::fault::FaultCell;
    use crate::store::Row;
    use crate::wire;

    fn new() -> Arc<Core> {
        Arc::new(Core::new(Ledger::new(), Place::default(), false, FaultCell::new()))
    }

    /// Applies an entry, as the machine does.
    fn apply(core: &Core, index: u64) {
        let mut ledger = core.ledger.write();
        ledger.skip(index);
        core.place.lock().last = Some(wire::to_log_id(&v1::LogId { term: 1, leader: 1, index }));
    }

    /// Applied index of the rows, and of their meta.
    fn indices(taken: &Taken) -> (u64, u64) {
        let rows: Vec<Row> = match &taken.rows {
            Rows::Changed(changes) => {
                changes.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
            }
            Rows::All(rows) => rows.clone(),
        };
        let ledger = Ledger::from_rows(rows).unwrap();
        (ledger.head().applied, decode_place(&taken.meta).unwrap().last.map_or(0, |id| id.index))
    }

    #[test]
    fn rows_and_meta_are_of_one_state_whatever_is_applied_meanwhile() {
        const ENTRIES: u64 = 20_000;
        let core = new();
        let applied = Arc::new(AtomicU64::new(0));
        let (of_thread, progress) = (Arc::clone(&core), Arc::clone(&applied));
        let machine = std::thread::spawn(move || {
            for index in 1..=ENTRIES {
                apply(&of_thread, index);
                progress.store(index, Ordering::Release);
            }
        });
        let mut source = Applied(Arc::clone(&core));
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
    fn opt_out(core: &Core, index: u64) {
        let who = OptOut { tenant: "default".to_owned(), keys: vec![index.to_string()] };
        let entry = Entry { epoch: Epoch(1), now: Time(1), command: Command::OptOut(who) };
        let told = core.ledger.write().apply(index, &entry);
        assert_eq!(told.reply.outcome, CommandOutcome::Moved(1));
        core.place.lock().last = Some(wire::to_log_id(&v1::LogId { term: 1, leader: 1, index }));
    }

    #[test]
    fn a_state_whose_changes_were_forgotten_is_given_as_a_whole_and_once() {
        let core = new();
        let mut source = Applied(Arc::clone(&core));
        let me = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let start = EpochStart::new(me, 1, vec![VoterClock { node: me.node, wall: Time(0) }]);
        let entry = Entry { epoch: Epoch(0), now: Time(0), command: Command::EpochStart(start) };
        core.ledger.write().apply(1, &entry);
        drop(source.take(false).unwrap());
        opt_out(&core, 2);
        core.bound_changes(&mut core.ledger.write(), 1);
        assert_eq!(core.ledger.read().changed_count(), 1);
        assert!(matches!(source.take(false).unwrap().rows, Rows::Changed(rows) if rows.len() == 2), "with the head");
        opt_out(&core, 3);
        opt_out(&core, 4);
        core.bound_changes(&mut core.ledger.write(), 1);
        assert_eq!(core.ledger.read().changed_count(), 0, "nothing gathers without bound");
        opt_out(&core, 5);
        let taken = source.take(false).unwrap();
        assert_eq!(indices(&taken), (5, 5));
        assert!(matches!(taken.rows, Rows::All(rows) if rows.len() == 5), "four, and the head");
        assert!(matches!(source.take(false).unwrap().rows, Rows::Changed(_)));
    }
}
