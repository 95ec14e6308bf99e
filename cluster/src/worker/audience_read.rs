//! Reads the recipients of a claim from sealed audiences, once for the whole claim (P20).
//!
//! Runs on blocking threads, before `composing` is journaled for any recipient: it only hashes bytes and reads strings. If
//! the disk does not answer in time, the recipients are released (P12). A stop does not wait for the disk either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_ledger::content::{Recipient, Seal};
use reveille_ledger::ids::Hash;
use tokio::time::{Instant, timeout_at};

use super::claim::ClaimedRecipient;
use super::context::WorkerContext;
use crate::file_store::PartPosition;

/// Reason for a recipient whose sealed audience is on a disk that does not answer.
pub(crate) const NOT_READ: &str = "its audience was not read: the disk of this node did not answer in time";

/// Recipients by slot; an error says why a recipient could not be read.
type BySlot = BTreeMap<u16, Result<Recipient, String>>;

/// Reads those of the claimed recipients that are in sealed audiences. Recipients that are not read by `deadline`, or
/// before a stop, have the error [`NOT_READ`].
pub(crate) async fn recipients(
    context: &Arc<WorkerContext>,
    claimed: &[ClaimedRecipient],
    deadline: Instant,
) -> BySlot {
    let places: Vec<(u16, PartPosition)> = context.node.replica.read(|ledger| {
        let sealed: BTreeSet<Hash> = claimed.iter().map(|recipient| recipient.audience).collect();
        let sealed: BTreeMap<Hash, Seal> =
            sealed.into_iter().filter_map(|audience| Some((audience, ledger.seal(&audience)?))).collect();
        let place =
            |one: &ClaimedRecipient| Some((one.claimed_slot.slot, sealed.get(&one.audience)?.locate(one.number)?));
        claimed.iter().filter_map(place).collect()
    });
    if places.is_empty() {
        return BTreeMap::new();
    }
    let slots: Vec<u16> = places.iter().map(|(slot, _)| *slot).collect();
    let reading = read_places(context, places);
    match context.stop_requested.run_until_cancelled(timeout_at(deadline, reading)).await {
        Some(Ok(Ok(read))) => return read,
        Some(Ok(Err(error))) => tracing::error!(%error, "reading an audience failed"),
        Some(Err(_)) => {
            tracing::warn!(recipients = slots.len(), "an audience is not read within ten seconds: the disk hangs");
        }
        None => {}
    }
    slots.into_iter().map(|slot| (slot, Err(NOT_READ.to_owned()))).collect()
}

/// Reads the recipients at these places. A read that hangs keeps its permit, so hanging reads cannot use up all threads
/// of the process.
async fn read_places(context: &Arc<WorkerContext>, places: Vec<(u16, PartPosition)>) -> Result<BySlot, String> {
    let permit = Arc::clone(&context.reads).acquire_owned().await.map_err(|closed| closed.to_string())?;
    let node = Arc::clone(&context.node);
    let read = context.node.replica.blocking(move || {
        let _held = permit;
        let read = node.files.read_each(places.iter().map(|(_, place)| *place).collect());
        let of_slot = |(slot, place)| Some((slot, read.get(&place)?.clone().map_err(|fault| fault.to_string())));
        places.into_iter().filter_map(of_slot).collect()
    });
    read.await.map_err(|error| error.to_string())
}
