//! Recipients of a run in the order of their numbers: the state of each, and what a relay answered last.
//!
//! A reader copies a slice under the lock of the state, and reads its rows after it has released the lock. Most of what
//! is known is in closed claims, and unpacking those of a chunk takes milliseconds.

use std::collections::BTreeMap;

use crate::model::{
    Bitmap, CHUNK, ChunkKey, Claim, ClaimEventKind, ClosedClaimBlock, DeadLetter, DoubtReason, EnhancedCode, Fence,
    Hash, Ledger, RecipientState, RunEvent, RunEventKind, RunId, RunSlots, Time, run_events,
};

/// One recipient of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientRow {
    /// Its number in the run.
    pub number: u32,
    /// Its present state.
    pub state: RecipientState,
    /// Number of counted attempts.
    pub attempts: u8,
    /// Ledger time of the last event of this recipient. `None`: nothing has happened to it yet.
    pub at: Option<Time>,
    /// The last answer by which a relay refused it; `None` if no relay did, or if a relay accepted it later.
    pub last_answer: Option<LastAnswer>,
    /// Its dead letter; `None` if it is not dead.
    pub dead: Option<DeadLetter>,
    /// Why it is in doubt; `None` if it is not.
    pub doubt: Option<DoubtReason>,
    /// True if it was suppressed because of `min_gap` (P17).
    pub inside_gap: bool,
}

/// Answer of a relay about one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAnswer {
    /// Basic code.
    pub code: u16,
    /// Enhanced status code; `None` if the answer had none, or if it is no longer known.
    pub enhanced: Option<EnhancedCode>,
    /// Text of the answer; empty if it is no longer known.
    pub text: String,
}

/// Recipients of a run, all in one chunk, with what the state has about them.
#[derive(Clone, Debug)]
pub struct RecipientSlice {
    /// Hash of the run's audience.
    pub audience: Hash,
    /// Number of the recipient with which the next slice begins; `None` if this is the last slice.
    pub next: Option<u32>,
    chunk: ChunkKey,
    rows: BTreeMap<u16, RecipientRow>,
    claims: Vec<(Fence, Claim)>,
    closed: Vec<ClosedClaimBlock>,
    run_events: Vec<(u64, RunEvent)>,
}

impl Ledger {
    /// Copies at most `most` recipients of a run from number `from` on. Only those in one of these states; in any state
    /// if there is none. A slice has recipients of one chunk, so it may be shorter, or empty, and not be the last one.
    /// `None`: the ledger has no such run.
    pub fn recipient_slice(
        &self,
        run: RunId,
        from: u32,
        states: &[RecipientState],
        most: usize,
    ) -> Option<RecipientSlice> {
        let (page, whole, position) = self.page_of(run)?;
        let known = whole.runs.get(position)?;
        let from = from.min(known.count);
        let left = RunSlots { first: known.first.saturating_add(from), count: known.count - from };
        // Past the last recipient there may be no chunk.
        let first = if left.count == 0 { known.first } else { left.first };
        let key = page.chunk(first / CHUNK);
        let chunk = self.chunks.get(&key)?;
        let mine = left.in_chunk(key.number);
        let mut chosen = Bitmap::new();
        for state in states {
            chosen.add(&chunk.set(*state).and(&mine));
        }
        let chosen = if states.is_empty() { mine } else { chosen };
        let number = |slot: u16| key.number * CHUNK + u32::from(slot) - known.first;
        let slots: Vec<u16> = chosen.iter().take(most.saturating_add(1)).collect();
        let end_of_chunk = from + left.numbers_in(key.number).end;
        let next = slots.get(most).map(|slot| number(*slot));
        let next = next.or(Some(end_of_chunk).filter(|end| *end < known.count));
        let row = |slot: &u16| {
            let (number, state) = (number(*slot), chunk.state(*slot)?);
            let dead = self.dead.get(&run.recipient(number)).filter(|_| state == RecipientState::Dead);
            let deferral = chunk.deferrals.get(*slot);
            let row = RecipientRow {
                number,
                state,
                attempts: chunk.attempts.get(slot).copied().unwrap_or_default(),
                at: None,
                last_answer: deferral.map(|one| LastAnswer { code: one.code, enhanced: None, text: String::new() }),
                dead: dead.cloned(),
                doubt: None,
                inside_gap: chunk.suppressed_by_gap.contains(*slot),
            };
            Some((*slot, row))
        };
        let rows: BTreeMap<u16, RecipientRow> = slots.iter().take(most).filter_map(row).collect();
        let (mut claims, mut closed, mut of_run) = (Vec::new(), Vec::new(), Vec::new());
        if !rows.is_empty() {
            let open = self.claims.iter().filter(|(_, claim)| claim.chunk == key);
            claims.extend(open.map(|(fence, claim)| (*fence, claim.clone())));
            closed.extend(self.closed_claim_blocks_of(key).cloned());
            for ((_, index, of), events) in self.run_events.range(run_events::keys_of(run)) {
                of_run.extend(events.iter().filter(|_| *of == key.number).map(|event| (*index, event.clone())));
            }
        }
        Some(RecipientSlice { audience: known.audience, next, chunk: key, rows, claims, closed, run_events: of_run })
    }
}

/// A row, and the log indices of the events that it shows.
struct RowInProgress {
    row: RecipientRow,
    /// Log index of the last event.
    last: u64,
    /// Log index of the last event that set or removed the answer.
    answered: u64,
}

impl RowInProgress {
    fn happened(&mut self, index: u64, at: Time) {
        if index >= self.last {
            (self.last, self.row.at) = (index, Some(at));
        }
    }

    fn answered(&mut self, index: u64, answer: Option<LastAnswer>) {
        if index >= self.answered {
            (self.answered, self.row.last_answer) = (index, answer);
        }
    }
}

impl RecipientSlice {
    /// True if it has no recipients.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the rows, in the order of their numbers. Unpacks the closed claims of the chunk, so call it without the
    /// lock of the state.
    pub fn rows(self) -> Vec<RecipientRow> {
        let wanted: Bitmap = self.rows.keys().copied().collect();
        let row = |(slot, row): (u16, RecipientRow)| (slot, RowInProgress { row, last: 0, answered: 0 });
        let mut rows: BTreeMap<u16, RowInProgress> = self.rows.into_iter().map(row).collect();
        let mut each = |slots: &Bitmap, change: &mut dyn FnMut(u16, &mut RowInProgress)| {
            for slot in slots.and(&wanted).iter() {
                rows.get_mut(&slot).into_iter().for_each(|row| change(slot, row));
            }
        };
        let closed = self.closed.iter().flat_map(|block| block.claims(self.chunk));
        for (fence, claim) in self.claims.into_iter().chain(closed) {
            each(&claim.granted, &mut |_, row| row.happened(fence.index, claim.claimed_at));
            for event in claim.history.iter() {
                let answer = answer_of(&event.what);
                each(event.slots(&claim.granted), &mut |_, row| {
                    row.happened(event.index, event.at);
                    answer.iter().for_each(|answer| row.answered(event.index, answer.clone()));
                });
            }
            each(&claim.in_doubt, &mut |slot, row| row.row.doubt = claim.doubt(slot).map(|(doubt, _)| doubt));
        }
        for (index, RunEvent { at, what, slots }) in &self.run_events {
            let Some(slots) = slots else { continue };
            each(slots, &mut |_, row| {
                row.happened(*index, *at);
                if matches!(what, RunEventKind::Requeued(_)) {
                    row.answered(*index, None);
                }
            });
        }
        rows.into_values().map(|known| known.row).collect()
    }
}

/// Returns the answer that an event shows. `None`: it says nothing about answers. `Some(None)`: a relay accepted the
/// email, so that former refusals no longer count.
fn answer_of(what: &ClaimEventKind) -> Option<Option<LastAnswer>> {
    match what {
        ClaimEventKind::Refused { code, enhanced, text, .. } if *code > 0 => {
            Some(Some(LastAnswer { code: *code, enhanced: *enhanced, text: text.clone() }))
        }
        ClaimEventKind::TestAccepted(reply) => {
            Some(Some(LastAnswer { code: reply.code, enhanced: reply.enhanced, text: reply.text.clone() }))
        }
        ClaimEventKind::Accepted
        | ClaimEventKind::KnownDuplicate
        | ClaimEventKind::Contradiction
        | ClaimEventKind::AcceptedByLog
        | ClaimEventKind::AcceptedElsewhere => Some(None),
        ClaimEventKind::Refused { .. }
        | ClaimEventKind::Released(_)
        | ClaimEventKind::Suppressed
        | ClaimEventKind::Unsendable(_)
        | ClaimEventKind::InDoubt(_)
        | ClaimEventKind::Assumed(_)
        | ClaimEventKind::Resent(_)
        | ClaimEventKind::TestRelay(_) => None,
    }
}
