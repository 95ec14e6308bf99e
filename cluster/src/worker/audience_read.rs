//! Reads the recipients of a claim from sealed audiences, once for the whole claim (P20).
//!
//! Runs on blocking threads, before `open` is journaled for any recipient: it only hashes bytes and reads strings. If
//! the disk does not answer in time, the recipients are released (P12). A stop does not wait for the disk either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_ledger::content::{Recipient, Seal};
use reveille_ledger::ids::Hash;
use tokio::time::{Instant, timeout_at};

use super::claim::ClaimedRecipient;
use super::context::WorkerContext;
use crate::audience::AudienceStore;

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
    let positions: Vec<(u16, (Hash, u16))> = context.node.replica.read(|ledger| {
        let sealed: BTreeSet<Hash> = claimed.iter().map(|recipient| recipient.audience).collect();
        let sealed: BTreeMap<Hash, Seal> =
            sealed.into_iter().filter_map(|audience| Some((audience, ledger.seal(&audience)?))).collect();
        let position =
            |one: &ClaimedRecipient| Some((one.claimed_slot.slot, sealed.get(&one.audience)?.locate(one.recipient)?));
        claimed.iter().filter_map(position).collect()
    });
    if positions.is_empty() {
        return BTreeMap::new();
    }
    let slots: Vec<u16> = positions.iter().map(|(slot, _)| *slot).collect();
    let reading = read_parts(context, positions);
    match context.drain.run_until_cancelled(timeout_at(deadline, reading)).await {
        Some(Ok(Ok(read))) => return read,
        Some(Ok(Err(error))) => tracing::error!(%error, "reading an audience failed"),
        Some(Err(_)) => {
            tracing::warn!(recipients = slots.len(), "an audience is not read within ten seconds: the disk hangs");
        }
        None => {}
    }
    slots.into_iter().map(|slot| (slot, Err(NOT_READ.to_owned()))).collect()
}

/// Reads the recipients at these positions of parts. A read that hangs keeps its permit, so hanging reads cannot use up
/// all threads of the process.
async fn read_parts(context: &Arc<WorkerContext>, positions: Vec<(u16, (Hash, u16))>) -> Result<BySlot, String> {
    let permit = Arc::clone(&context.reads).acquire_owned().await.map_err(|closed| closed.to_string())?;
    let node = Arc::clone(&context.node);
    let read = context.node.replica.blocking(move || {
        let _held = permit;
        let of_part = positions.chunk_by(|(_, (one, _)), (_, (other, _))| one == other);
        of_part.flat_map(|of_part| read_part(&node.parts, of_part)).collect()
    });
    read.await.map_err(|error| error.to_string())
}

/// Reads recipients of one part, by slot.
fn read_part(store: &AudienceStore, wanted: &[(u16, (Hash, u16))]) -> Vec<(u16, Result<Recipient, String>)> {
    let Some((_, (part, _))) = wanted.first() else { return Vec::new() };
    let positions: Vec<u16> = wanted.iter().map(|(_, (_, position))| *position).collect();
    let slots = wanted.iter().map(|(slot, _)| *slot);
    match store.read(*part, &positions) {
        Ok(read) => slots.zip(read).map(|(slot, (_, recipient))| (slot, Ok(recipient))).collect(),
        Err(fault) => slots.map(|slot| (slot, Err(fault.to_string()))).collect(),
    }
}
