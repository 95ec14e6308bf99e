//! The applied state at start and while it runs: the ledger from the state store, and the mirror that
//! keeps the store close behind.
//!
//! The store is never the truth: what it lacks comes from the snapshot and the log, and a store that does
//! not open or does not make a ledger is put aside and filled anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use reveille_ledger::{Change, Ledger};
use reveille_proto::peer::v1;

use crate::applied::Place;
use crate::fault::Fault;
use crate::store::{Contents, Mirror, Pace, Row, open_or_set_aside};
use crate::wire;

/// A store that failed is filled anew at most this often: it costs a write of the whole state.
const REBUILD_EVERY: Duration = Duration::from_secs(60);
/// What the store gets to write at the end; what it does not write is replayed at the next start.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The bytes that say how far a state is.
pub(crate) fn encode_place(place: &Place) -> Result<Vec<u8>, Fault> {
    let (membership_id, membership) = wire::from_membership(&place.membership)
        .map_err(|error| Fault::Broken(format!("a membership in force can not be written: {error}")))?;
    let meta = v1::StatePlace { last: place.last.as_ref().map(wire::from_log_id), membership_id, membership };
    Ok(meta.encode_to_vec())
}

/// Reads what [`encode_place`] wrote.
pub(crate) fn decode_place(bytes: &[u8]) -> Result<Place, String> {
    let meta = v1::StatePlace::decode(bytes).map_err(|error| error.to_string())?;
    let membership = wire::to_membership(meta.membership_id, &meta.membership).map_err(|error| error.to_string())?;
    Ok(Place { last: meta.last.as_ref().map(wire::to_log_id), membership })
}

/// A state made of rows, if they are one: a ledger whose applied index is that of its place.
pub(crate) fn assemble(place: Place, rows: impl IntoIterator<Item = Row>) -> Result<(Ledger, Place), String> {
    let ledger = Ledger::from_rows(rows).map_err(|error| error.to_string())?;
    let applied = ledger.head().applied;
    let last = place.last.map_or(0, |id| id.index);
    if applied != last {
        return Err(format!("its rows are those of entry {applied}, its place is {last}"));
    }
    Ok((ledger, place))
}

/// The state as the machine's thread keeps it on disk.
pub(crate) struct Keeper {
    mirror: Mirror,
    failed: Arc<AtomicBool>,
    rebuilt: Instant,
}

/// Opens the store in a folder. Blocks: it reads all of it.
pub(crate) fn open(folder: &Path) -> Result<(Ledger, Place, Keeper), Fault> {
    let wrong = |error: &dyn std::fmt::Display| Fault::State(error.to_string());
    let (store, contents) = open_or_set_aside(folder).map_err(|error| wrong(&error))?;
    let failed = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&failed);
    let mirror = Mirror::start(Box::new(store), Pace::default(), move |error| {
        tracing::warn!(%error, "the state store failed; it is filled anew");
        tell.store(true, Ordering::Release);
    })
    .map_err(|error| wrong(&error))?;
    let keeper = Keeper { mirror, failed, rebuilt: Instant::now() };

    let Contents::State { meta, rows } = contents else { return Ok((Ledger::new(), Place::default(), keeper)) };
    match decode_place(&meta).and_then(|place| assemble(place, rows)) {
        Ok((ledger, place)) => Ok((ledger, place, keeper)),
        Err(error) => {
            tracing::warn!(%error, "the state store makes no state; it is filled anew from snapshot and log");
            keeper.mirror.rebuild(Vec::new(), encode_place(&Place::default())?);
            Ok((Ledger::new(), Place::default(), keeper))
        }
    }
}

impl Keeper {
    /// Takes note of what a batch changed. Never waits for the disk.
    pub fn note(
        &mut self,
        place: &Place,
        changes: Vec<Change>,
        ledger: impl FnOnce() -> Vec<Row>,
    ) -> Result<(), Fault> {
        let meta = encode_place(place)?;
        if self.failed.load(Ordering::Acquire) && self.rebuilt.elapsed() >= REBUILD_EVERY {
            self.failed.store(false, Ordering::Release);
            self.rebuilt = Instant::now();
            self.mirror.rebuild(ledger(), meta);
        } else {
            self.mirror.follow(changes, meta);
        }
        Ok(())
    }

    /// The whole state was replaced.
    pub fn replace(&mut self, place: &Place, rows: Vec<Row>) -> Result<(), Fault> {
        self.mirror.rebuild(rows, encode_place(place)?);
        Ok(())
    }

    /// Writes what waits, and closes the store.
    pub fn close(self) {
        if let Err(error) = self.mirror.stop(STOP_LIMIT) {
            tracing::warn!(%error, "the state store is not up to date: the next start replays more of the log");
        }
    }
}
