//! Planted (`claim-after-send`): the lanes of a leader send what is pending, and their claim comes afterwards. Nothing of
//! it is called in a build without the feature `planted-bugs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::Claim;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::claim_history::ClaimHistory;
use reveille_ledger::ids::{ClaimOwner, Fence, GROUP, RunId};

use super::claim::{work_of_row, work_row};
use super::claim_tasks::RowTasks;
use super::context::Room;
use super::journal::Place;
use super::settler::Fate;
use crate::leader::claims::claimable::claimable;

/// The place in an entry of a row that no entry has granted.
const NOT_GRANTED: u32 = u32::MAX;
/// Recipients that are sent ahead at once.
const AHEAD_MAX: u32 = 4;

/// Whom a life has sent ahead, and what came of it; none while nothing has.
type Sent = BTreeMap<(ClaimOwner, RunId, u32, u16), Option<Fate>>;

/// Several nodes may share a process.
static SENT: Mutex<Sent> = Mutex::new(BTreeMap::new());

fn key(room: &Room, place: Place) -> (ClaimOwner, RunId, u32, u16) {
    (room.site.me, place.page, place.chunk, place.slot)
}

/// Is it sent under a row that nobody has granted?
pub(crate) fn is_ahead(place: Place) -> bool {
    place.fence.place == NOT_GRANTED
}

/// What came of whoever was sent ahead.
pub(crate) fn was_sent(room: &Room, place: Place) -> Option<Fate> {
    SENT.lock().get(&key(room, place)).cloned().flatten()
}

/// Keeps it until the claim is there.
pub(crate) fn keep(room: &Room, place: Place, fate: Fate) {
    SENT.lock().insert(key(room, place), Some(fate));
}

/// Sends some of what is pending, where this node leads.
pub(crate) fn send_what_is_pending(room: &Arc<Room>, tasks: &RowTasks) {
    let Some(term) = room.site.term() else { return };
    let now = term.now();
    let work = room.site.replica.read(|ledger| {
        let mut sent = SENT.lock();
        let parts = ledger
            .open_pages()
            .flat_map(|(id, page)| claimable(ledger, id, page, now).map(move |part| (id, part.number, part.slots)));
        let fresh = parts.map(|(page, chunk, slots)| {
            let is_new = |slot: &u16| !sent.contains_key(&(room.site.me, page, chunk, *slot));
            (page, chunk, slots.iter().filter(is_new).collect::<Bitmap>().first(AHEAD_MAX))
        });
        let (page, chunk, slots) = fresh.into_iter().find(|(_, _, slots)| !slots.is_empty())?;
        sent.extend(slots.iter().map(|slot| ((room.site.me, page, chunk, slot), None)));
        let fence = Fence { group: GROUP, epoch: term.epoch(), index: ledger.head().applied, place: NOT_GRANTED };
        let row = Claim {
            page,
            chunk,
            owner: room.site.me,
            claimed_at: now,
            granted: slots.clone(),
            claimed: slots,
            in_doubt: Bitmap::new(),
            sent: Bitmap::new(),
            assumed: Bitmap::new(),
            history: ClaimHistory::default(),
        };
        work_of_row(ledger, fence, &row)
    });
    if let Some(work) = work {
        tasks.spawn(work_row(Arc::clone(room), work, tasks.clone()));
    }
}
