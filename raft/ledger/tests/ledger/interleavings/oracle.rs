//! An independent implementation of the rules, for one recipient at a time: what an entry may do to it.
//!
//! It shares no code with `apply`. From the state before an entry and the entry it computes the state of each recipient
//! afterwards (claims P4, evidence P14), or at least which transitions are allowed.

use std::collections::{BTreeMap, BTreeSet};

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::canary::CanaryVerdict;
use reveille_ledger::command::*;
use reveille_ledger::content::Recipients;
use reveille_ledger::ids::{ChunkKey, PageId, RecipientId, RunId, Time};
use reveille_ledger::policy::Overlap;
use reveille_ledger::pool::Day;
use reveille_ledger::{Chunk, Claim, Ledger, RecipientState, Run, RunState, WAVE_MS};

use crate::archived::{archived, assert_whole};

type SlotKey = (ChunkKey, u16);

/// In a chunk with more slots, only recipients at its borders and those that changed are judged one by one.
const SLOTS_MAX: u32 = 16_384;
/// Number of slots that are judged at the start and at the end of a set with the same transition.
const MOVED_MAX: usize = 24;

/// Returns the recipients of both states, each with its state.
fn all_recipients(before: &Ledger, after: &Ledger) -> [BTreeMap<SlotKey, RecipientState>; 2] {
    let mut all = [BTreeMap::new(), BTreeMap::new()];
    let keys: BTreeSet<ChunkKey> =
        [before, after].iter().flat_map(|of| of.chunks().iter().map(|(key, _)| *key)).collect();
    for key in keys {
        let chunks = [before, after].map(|of| of.chunks().get(&key));
        let looked_at = looked_at(chunks);
        for (chunk, found) in chunks.into_iter().zip(&mut all) {
            for state in RecipientState::ALL {
                let slots = chunk.map(|chunk| chunk.set(state).and(&looked_at)).unwrap_or_default();
                found.extend(slots.iter().map(|slot| ((key, slot), state)));
            }
        }
    }
    all
}

fn looked_at(chunks: [Option<&Chunk>; 2]) -> Bitmap {
    let sets = |state| chunks.map(|chunk| chunk.map(|chunk| chunk.set(state).clone()).unwrap_or_default());
    let mut all = Bitmap::new();
    RecipientState::ALL.into_iter().flat_map(sets).for_each(|set| all.add(&set));
    let slots = all.max().map_or(0, |last| u32::from(last) + 1);
    if slots <= SLOTS_MAX {
        return all;
    }
    let mut looked_at = Bitmap::range(0, 40);
    looked_at.add(&Bitmap::range(slots - 40, 40));
    for [was, is] in RecipientState::ALL.into_iter().map(sets) {
        for moved in [was.and_not(&is), is.and_not(&was)] {
            let moved: Vec<u16> = moved.iter().collect();
            looked_at.add(&moved.iter().take(MOVED_MAX).chain(moved.iter().rev().take(MOVED_MAX)).copied().collect());
        }
    }
    looked_at
}

/// Panics if a recipient has a state that the rules exclude.
pub fn judge(before: &Ledger, entry: &Entry, after: &Ledger, refused: bool) {
    judge_places(before, entry, after);
    assert_whole(after);
    let [was, is] = all_recipients(before, after);
    for (slot_key, state) in &is {
        if *state == RecipientState::Claimed && was.get(slot_key) != Some(state) {
            let near = beside(after, *slot_key);
            assert!(
                !near.iter().any(|of| counts(*of) || *of == RecipientState::Claimed),
                "P17: {slot_key:?} beside {near:?}"
            );
        }
        let Some(former) = was.get(slot_key) else {
            let near = beside(after, *slot_key).iter().any(|of| counts(*of));
            let expected = if near { RecipientState::Suppressed } else { RecipientState::Pending };
            assert_eq!(*state, expected, "{slot_key:?} is new");
            continue;
        };
        let context = || format!("{slot_key:?} was {former:?} and is {state:?} after {entry:?}");
        assert!(!refused || former == state, "a refusal changes nothing: {}", context());
        if let Some(expected) = may_be(before, entry, *slot_key, *former, refused) {
            assert!(expected.contains(state), "not of {expected:?}: {}", context());
        }
        assert!(former == state || may_move(&entry.command, *former, *state), "{}", context());
        if let Some(expected) = suspicion(before, entry, *slot_key, *former, *state, refused) {
            assert_eq!(is_crash_suspect(after, *slot_key), expected, "P12: {}", context());
        }
    }
    let left: Vec<RunId> = before.runs().map(|(id, ..)| id).filter(|id| after.run(*id).is_none()).collect();
    assert!(left.is_empty() || matches!(entry.command, Command::Archive(_)), "a run is gone after {entry:?}");
    for (id, _, run) in before.runs().filter(|(id, ..)| left.contains(id)) {
        judge_archived(before, run, after, id, entry.now);
    }
    let has_left = |slot_key: &SlotKey| {
        before.recipient_at(slot_key.0, slot_key.1).is_some_and(|recipient| left.contains(&recipient.run))
    };
    let is_left = |slot_key: &SlotKey| is.contains_key(slot_key) || has_left(slot_key);
    assert!(was.keys().all(is_left), "a recipient is gone after {entry:?}");
    for (id, _, run) in before.runs().filter(|(id, ..)| !left.contains(id)) {
        let now = after.run(id).expect("a run stays");
        let context = || format!("{id} was {:?} and is {:?} after {entry:?}", run.state, now.state);
        assert!(run.state.word() == now.state.word() || may_become(&entry.command, id, run, now), "{}", context());
    }
    judge_reopened(before, entry, after);
    judge_restored(before, entry, after, [&was, &is]);
    grows(before, after);
    judge_concurrency(before, entry, after);
    judge_warm_up(before, entry, after);
    for (id, _, run) in after.runs().filter(|(id, ..)| before.run(*id).is_none()) {
        judge_overlap(after, id, run);
    }
}

/// A claim takes as many recipients as the pool's cap of today allows, and no more. Each recipient that is sent or in
/// doubt counts (P25).
fn judge_warm_up(before: &Ledger, entry: &Entry, after: &Ledger) {
    let used = |ledger: &Ledger, pool: &str| {
        let warm_up = ledger.pools().get(&pool.to_owned())?;
        let day = Day::of(after.head().now);
        let rows = ledger.claims().iter().filter(|(_, row)| {
            let page = ledger.pages().get(&row.chunk.page).expect("a page");
            ledger.pool_of_claim(page, row) == pool
        });
        let claimed: u32 = rows.map(|(_, row)| row.claimed.len()).sum();
        Some((warm_up.spent(day), claimed, warm_up.cap(day)))
    };
    for (pool, _) in after.pools().iter() {
        let Some((is_spent, is_claimed, cap)) = used(after, pool) else { continue };
        let Some((was_spent, was_claimed, _)) = used(before, pool) else { continue };
        assert!(is_spent >= was_spent, "P25: {pool}: {was_spent} were spent, and {is_spent} are after {entry:?}");
        if let (Command::Claim(_), Some(cap)) = (&entry.command, cap) {
            let (was, is) = (was_spent + was_claimed, is_spent + is_claimed);
            assert!(is <= cap.max(was), "P25: {pool}: {was} were used, and {is} of {cap} are after {entry:?}");
        }
    }
}

/// How many recipients of the page's tenant may be claimed at once (P12).
fn at_once(ledger: &Ledger, page: PageId) -> Option<u32> {
    ledger.tenant(&ledger.pages().get(&page)?.tenant).at_once()
}

/// A claim takes as many recipients as the tenant's limit allows, and no more (P12).
fn judge_concurrency(before: &Ledger, entry: &Entry, after: &Ledger) {
    let Command::Claim(claims) = &entry.command else { return };
    let claimed = |ledger: &Ledger, tenant: &str| {
        let of_tenant = ledger.pages().iter().filter(|(_, page)| *page.tenant == *tenant);
        let runs = of_tenant.flat_map(|(_, page)| &page.runs);
        runs.map(|run| run.counts.get(RecipientState::Claimed)).sum::<u32>()
    };
    for claim in claims {
        let (Some(page), Some(most)) = (before.pages().get(&claim.chunk.page), at_once(before, claim.chunk.page))
        else {
            continue;
        };
        let (was, is) = (claimed(before, &page.tenant), claimed(after, &page.tenant));
        assert!(is <= most.max(was), "P12: {is} of {} are claimed, {was} were, {most} may be", page.tenant);
        let gone = after.claimed_by_tenant(&page.tenant);
        assert_eq!(gone, is, "P12: the index of who is claimed");
    }
}

/// A run that has just opened has no unfinished run of its schedule beside it that the policy forbids. Backfills do not
/// count (P16).
fn judge_overlap(after: &Ledger, id: RunId, run: &Run) {
    let counts = |run: &Run| run.cause != OpeningCause::Backfill && !run.reopened;
    // A trigger considers all unfinished runs. An instant of the calendar considers only runs of the calendar that are
    // not paused.
    let is_trigger = run.cause == OpeningCause::Trigger;
    // A run that was paused before this entry may have expired by it.
    let is_paused =
        |run: &Run| matches!(run.state, RunState::Paused { .. } | RunState::Expired { paused: Some(_), .. });
    let may_block = |run: &Run| is_trigger || run.cause != OpeningCause::Trigger && !is_paused(run);
    let beside = after.runs().filter(|(other, _, beside)| {
        let is_open = beside.counts.get(RecipientState::Pending) + beside.counts.get(RecipientState::Claimed) > 0;
        *other != id && beside.schedule == run.schedule && counts(beside) && is_open
    });
    for (other, _, beside) in beside.filter(|_| counts(run)) {
        let allowed = match run.policies.overlap {
            Overlap::Allow => true,
            Overlap::BufferOne | Overlap::Skip => !may_block(beside),
            Overlap::CancelOther => matches!(beside.state, RunState::Cancelled { .. } | RunState::Expired { .. }),
        };
        assert!(allowed, "{id} opened beside {other}, {beside:?}");
    }
}

/// A run that was over and is reopened by a requeue or a resend takes no part in `overlap` (P16).
fn judge_reopened(before: &Ledger, entry: &Entry, after: &Ledger) {
    if !matches!(entry.command, Command::Requeue(_) | Command::Decide(_)) {
        return;
    }
    let open = |run: &Run| run.counts.get(RecipientState::Pending) + run.counts.get(RecipientState::Claimed);
    for (id, _, was) in before.runs().filter(|(_, _, run)| open(run) == 0 || run.finish_by <= entry.now) {
        let Some(is) = after.run(id).filter(|is| is.counts.get(RecipientState::Pending) > 0) else { continue };
        let is_back = is.finish_by > was.finish_by || open(was) == 0;
        assert!(!is_back || is.reopened, "{id} was {was:?} and is {is:?}");
    }
}

/// What a former cluster may have sent is sent again only by an operator: a doubt of before the restore, and an instant
/// up to the acceptance. Before that nothing opens and nothing is claimed (P21).
fn judge_restored(before: &Ledger, entry: &Entry, after: &Ledger, [was, is]: [&BTreeMap<SlotKey, RecipientState>; 2]) {
    let Some(through) = before.maybe_sent_through() else { return };
    let is_held = before.unaccepted_restore().is_some();
    for (id, _, run) in after.runs().filter(|(id, ..)| before.run(*id).is_none()) {
        let is_due = matches!(run.cause, OpeningCause::Due | OpeningCause::CatchUp);
        assert!(!is_held && (!is_due || run.due > through), "P21: {id} opened, up to {through:?} is unknown: {run:?}");
    }
    let is_operators = matches!(&entry.command, Command::Decide(decide) if decide.by == Decider::Operator);
    for (slot_key, former) in was {
        let Some(state) = is.get(slot_key).filter(|state| *state != former) else { continue };
        let context = || format!("P21: {slot_key:?} was {former:?} and is {state:?} after {entry:?}");
        assert!(!is_held || *state != RecipientState::Claimed, "{}", context());
        let mut claims = before.claims().iter().filter(|(_, claim)| claim.chunk == slot_key.0);
        let holds = |claim: &Claim| claim.in_doubt.contains(slot_key.1);
        if claims.any(|(fence, claim)| holds(claim) && before.only_operator_decides(*fence)) {
            assert!(is_operators || *state == RecipientState::Sent, "{}", context());
        }
    }
}

/// Only finished runs leave: when nothing can be decided about them any more, with all details; or after their
/// retention. The name and the counts remain (P24).
fn judge_archived(before: &Ledger, run: &Run, after: &Ledger, id: RunId, now: Time) {
    let count = |state| run.counts.get(state);
    let age_ms = run.finished_at.map_or(-1, |at| now.since_ms(at));
    assert_eq!(count(RecipientState::Pending) + count(RecipientState::Claimed), 0, "{id} was archived open: {run:?}");
    let is_over = age_ms >= run.policies.retention_ms;
    assert!(count(RecipientState::InDoubt) == 0 || age_ms >= 30 * 86_400_000, "{id} left before its evidence: {run:?}");
    let summary = after.summaries().get(&id).cloned();
    if let Some(summary) = &summary {
        assert!(is_over, "{id} left too early: {run:?}");
        assert_eq!((summary.counts, &summary.occurrence), (run.counts, &run.occurrence), "{id}");
        return;
    }
    assert!(
        after.has_opened(&(run.schedule, run.occurrence.clone())) || !after.schedules().contains(&run.schedule),
        "P7: {run:?}"
    );
    let part = archived(after, id).expect("a part of the archive has the run");
    let Some(kept) = part.run(id) else {
        assert!(is_over, "the details of {id} went too early: {run:?}");
        let summary = part.summaries().get(&id).expect("a summary");
        assert_eq!((summary.counts, &summary.occurrence), (run.counts, &run.occurrence), "{id}");
        return;
    };
    let undecided = [RecipientState::InDoubt, RecipientState::Assumed, RecipientState::Dead].map(count);
    assert_eq!((undecided, age_ms >= 10_000), ([0; 3], true), "{id} was archived too early: {run:?}");
    assert_eq!(*kept, Run { previous: kept.previous, ..run.clone() }, "{id}");
    for number in 0..run.count {
        assert_eq!(part.state(id, number), before.state(id, number), "{id}#{number}");
    }
    let claims = |ledger: &Ledger, number| {
        format!("{:?}", ledger.explain_recipient(id, number).expect("its explanation").claims)
    };
    for number in 0..run.count.min(8) {
        assert_eq!(claims(&part, number), claims(before, number), "{id}#{number}");
    }
    let address = |ledger: &Ledger, other: &Ledger| {
        let blob = ledger.blob(&run.audience).or(other.blob(&run.audience));
        blob.map(<[u8]>::to_vec)
    };
    assert_eq!(address(&part, after), address(before, before), "{id}: its audience");
}

/// A fire does not move a plan before its next instant opens, with its jitter.
fn judge_places(before: &Ledger, entry: &Entry, after: &Ledger) {
    let Command::Fire(fires) = &entry.command else { return };
    for fire in fires {
        let plan = |ledger: &Ledger| ledger.schedules().get(&fire.schedule).map(|schedule| schedule.plan.clone());
        let (Some(was), Some(is)) = (plan(before), plan(after)) else { continue };
        if was.next != is.next {
            let opens = was.next.expect("it was planned").opens();
            assert!(opens <= after.head().now, "opened before its place, {opens}: {fire:?}");
        }
    }
}

/// True if a recipient in this state counts for `min_gap`.
fn counts(state: RecipientState) -> bool {
    matches!(state, RecipientState::Sent | RecipientState::Assumed | RecipientState::InDoubt)
}

/// Returns the address key of a recipient of an inline list.
fn address_key(ledger: &Ledger, run: &Run, number: u32) -> Option<String> {
    let audience = ledger.blob(&run.audience).and_then(Recipients::from_blob).expect("an audience");
    let Recipients::Inline(audience) = audience else { panic!("a list") };
    audience.recipients.get(number as usize).map(|recipient| recipient.key.clone())
}

/// True if the recipient has opted out or was erased.
fn has_opted_out(ledger: &Ledger, (chunk, slot): SlotKey) -> bool {
    let Some(RecipientId { run, number }) = ledger.recipient_at(chunk, slot) else { return false };
    let tenant = ledger.pages().get(&chunk.page).expect("its page").tenant.to_string();
    let key = address_key(ledger, ledger.run(run).expect("a run"), number).expect("a recipient");
    key.is_empty() || ledger.opt_out_of(&(tenant, key)).is_some()
}

/// States of the same address in other runs of the schedule within the gap (P17).
fn beside(ledger: &Ledger, (chunk, slot): SlotKey) -> Vec<RecipientState> {
    let Some(RecipientId { run: id, number }) = ledger.recipient_at(chunk, slot) else { return vec![] };
    let run = ledger.run(id).expect("a run");
    // Without `min_gap` no run is compared. Runs to sealed audiences never have one (`GapOfSealed`).
    if run.policies.min_gap_ms == 0 {
        return vec![];
    }
    let key = |run: &Run, number: u32| address_key(ledger, run, number);
    let near = |other: &Run| (other.due.0 - run.due.0).abs() < run.policies.min_gap_ms;
    let others = ledger.runs().filter(|(other, _, beside)| *other != id && beside.schedule == run.schedule);
    let wanted = key(run, number);
    let mut found = vec![];
    for (other, _, beside) in others.filter(|(_, _, beside)| near(beside)) {
        let Some(place) = (0..beside.count).find(|number| key(beside, *number) == wanted) else { continue };
        found.extend(ledger.state(other, place));
        // One that was sent again may have the email of its doubt, whatever its state is now.
        let resent =
            |(chunk, slot): SlotKey| ledger.chunks().get(&chunk).is_some_and(|chunk| chunk.resent.contains(slot));
        found.extend(ledger.slot_of(other, place).filter(|slot| resent(*slot)).map(|_| RecipientState::InDoubt));
    }
    found
}

fn is_crash_suspect(ledger: &Ledger, (chunk, slot): SlotKey) -> bool {
    ledger.chunks().get(&chunk).is_some_and(|chunk| chunk.crash_suspects.contains(slot))
}

/// Returns whether a recipient must be a crash suspect afterwards (P12). `None` for entries that settle several claims.
fn suspicion(
    before: &Ledger,
    entry: &Entry,
    slot_key: SlotKey,
    former: RecipientState,
    state: RecipientState,
    refused: bool,
) -> Option<bool> {
    let (was, slot) = (is_crash_suspect(before, slot_key), slot_key.1);
    if state.is_terminal() {
        return Some(false);
    }
    let Command::Settle(outcomes) = &entry.command else { return Some(was) };
    let [outcome] = &outcomes[..] else { return None };
    let is_older = before.only_operator_decides(outcome.fence);
    let row = row_of(before, outcome, slot_key).filter(|row| !refused && !is_older && is_mine(row, slot, former));
    if row.is_none() {
        return Some(was);
    }
    // It was handed off, or a relay answered about it.
    let answered = outcome.refused.iter().any(|answer| answer.slot == slot && answer.effect != RefusalEffect::NextWave);
    let cleared = answered || (former, state) == (RecipientState::Claimed, RecipientState::InDoubt);
    let caught = state == RecipientState::Pending && outcome.interrupted().contains(slot);
    Some(!cleared && (was || caught))
}

/// Panics if a schedule's plan or ledger time went back (P7, P8).
fn grows(before: &Ledger, after: &Ledger) {
    assert!(after.head().now >= before.head().now, "P18: ledger time went back");
    for (id, was) in before.schedules().iter() {
        let Some(is) = after.schedules().get(id) else { continue };
        let grown = is.plan.fired_through >= was.plan.fired_through
            && is.plan.version >= was.plan.version
            && is.plan.opened >= was.plan.opened;
        assert!(grown, "{id:?} was {:?} and is {:?}", was.plan, is.plan);
    }
    for (name, was) in before.history().iter() {
        let is = after.history().get(name);
        let has_left = !after.schedules().contains(&name.0) || before.has_opened(name) && after.has_opened(name);
        assert!(was.run().is_none() || is == Some(was) || has_left, "P7: {name:?} was {was:?} and is {is:?}");
    }
}

/// True if a command may change the state of a run in this way (P15). A cancel is final, and only a resume ends a pause
/// while the run may have recipients to send.
fn may_become(command: &Command, id: RunId, was: &Run, is: &Run) -> bool {
    // Only an explicit resume overrules a failed canary (P6).
    let is_held = was.canary.is_some_and(|canary| canary.verdict == CanaryVerdict::Held);
    let resumed = *command == Command::RunResume(RunResume { run: id, without_canary: is_held, expected: None });
    let sent_again = match command {
        Command::Requeue(requeue) => requeue.letters.picked.iter().any(|picked| picked.run == id),
        Command::Decide(decide) => decide.run == id && decide.decision == Decision::Resend,
        _ => false,
    };
    let doubts = is.counts.get(RecipientState::InDoubt) + is.counts.get(RecipientState::Assumed);
    match (&was.state, &is.state) {
        (RunState::Cancelled { .. }, _) => false,
        (RunState::Paused { .. }, RunState::Open) => resumed,
        (RunState::Paused { .. }, RunState::Finished) => resumed || doubts == 0,
        (RunState::Expired { paused: None }, RunState::Open | RunState::Finished) => sent_again,
        (RunState::Expired { paused: Some(_) }, RunState::Paused { .. }) => sent_again,
        (RunState::Expired { .. }, _) => false,
        // Before another run of its schedule opens, a late run expires, and other runs may be cancelled (P16).
        (_, RunState::Cancelled { .. }) => *command == Command::RunCancel(id) || opens_runs(command),
        (_, RunState::Expired { .. }) => matches!(command, Command::Expire(_)) || opens_runs(command),
        _ => true,
    }
}

fn has_expired(state: &RunState) -> bool {
    matches!(state, RunState::Expired { .. })
}

fn opens_runs(command: &Command) -> bool {
    matches!(command, Command::Fire(_) | Command::Trigger(_) | Command::ScheduleEdit(_))
}

/// True if a command can make this transition.
fn may_move(command: &Command, from: RecipientState, to: RecipientState) -> bool {
    use RecipientState::*;
    match command {
        Command::Claim(_) => from == Pending && matches!(to, Claimed | Suppressed),
        Command::Revoke(_) => (from, to) == (Claimed, InDoubt),
        Command::Expire(_) => from == Pending && matches!(to, Expired | Dead),
        Command::RunCancel(_) => (from, to) == (Pending, Cancelled),
        Command::Restore(_) => matches!(from, Pending | Claimed) && to == InDoubt,
        _ if opens_runs(command) => from == Pending && matches!(to, Cancelled | Expired | Dead),
        // Pending recipients past the deadline expire before their run is reopened (P15).
        Command::Requeue(_) => (from, to) == (Dead, Pending) || from == Pending && matches!(to, Expired | Dead),
        Command::Decide(decide) => match decide.decision {
            Decision::Assume => (from, to) == (InDoubt, Assumed),
            Decision::Sent => (from, to) == (InDoubt, Sent),
            Decision::Resend => (from, to) == (InDoubt, Pending) || from == Pending && matches!(to, Expired | Dead),
        },
        // The tenth unattributed refusal makes the recipients of the nine before it pending again (P6).
        Command::Settle(_) => !from.is_terminal() || from == Assumed || (from, to) == (Dead, Pending),
        _ => false,
    }
}

/// Returns the states that a recipient may have, for commands whose result is predicted. It is one state, unless a
/// limit allows fewer grants than there are recipients.
fn may_be(
    before: &Ledger,
    entry: &Entry,
    slot_key: SlotKey,
    former: RecipientState,
    refused: bool,
) -> Option<Vec<RecipientState>> {
    if refused {
        return Some(vec![former]);
    }
    let (chunk, slot) = slot_key;
    match &entry.command {
        Command::Claim(claims) => {
            let [claim] = &claims[..] else { return None };
            let asked = claim.chunk == chunk && claim.slice.contains(slot);
            let fits = claim.slice.len() <= before.limits().slice_recipients_max && before.is_current(claim.owner);
            let alone = claim.slice.len() == 1 || !is_crash_suspect(before, slot_key);
            let granted =
                asked && fits && alone && former == RecipientState::Pending && is_sendable(before, slot_key, entry.now);
            let granted = granted && goes_by_the_pool_of(before, claim, slot, entry.now);
            let near = if granted { beside(before, slot_key) } else { vec![] };
            Some(match granted {
                false => vec![former],
                true if near.iter().any(|of| counts(*of)) => vec![RecipientState::Suppressed],
                true if near.contains(&RecipientState::Claimed) && has_opted_out(before, slot_key) => {
                    vec![RecipientState::Suppressed]
                }
                true if near.contains(&RecipientState::Claimed) => vec![former],
                // The number of grants is judged separately (P12, P25).
                true if is_bounded(before, slot_key, entry.now) => vec![former, RecipientState::Claimed],
                true => vec![RecipientState::Claimed],
            })
        }
        Command::Settle(outcomes) => {
            let [outcome] = &outcomes[..] else { return None };
            settled(before, outcome, slot_key, former, entry.now).map(|state| vec![state])
        }
        _ => None,
    }
}

/// True if the tenant of the page has a limit of claimed recipients, or its pool has a cap today (P12, P25).
fn is_bounded(ledger: &Ledger, (chunk, slot): SlotKey, now: Time) -> bool {
    let pool = ledger.pages().get(&chunk.page).map(|page| ledger.pool_of(page, chunk, slot).to_owned());
    let warm_up = pool.and_then(|pool| ledger.pools().get(&pool));
    at_once(ledger, chunk.page).is_some() || warm_up.is_some_and(|warm_up| warm_up.cap(Day::of(now)).is_some())
}

/// A claim has one pool: that of its lowest slot that can be sent (P4).
fn goes_by_the_pool_of(ledger: &Ledger, claim: &ClaimRequest, slot: u16, now: Time) -> bool {
    let Some((page, chunk)) = ledger.pages().get(&claim.chunk.page).zip(ledger.chunks().get(&claim.chunk)) else {
        return false;
    };
    let can_go = |slot: &u16| {
        chunk.set(RecipientState::Pending).contains(*slot) && is_sendable(ledger, (claim.chunk, *slot), now)
    };
    let pool = |slot: u16| ledger.pool_of(page, claim.chunk, slot);
    claim.slice.iter().find(can_go).is_some_and(|lowest| pool(lowest) == pool(slot))
}

/// True if its wave is reached, its run is open, and the deadline has not passed (P4, P6, P16).
fn is_sendable(ledger: &Ledger, (chunk, slot): SlotKey, now: Time) -> bool {
    let waves = ledger.chunks().get(&chunk).map(|chunk| chunk.waves.clone()).unwrap_or_default();
    let waits = waves.iter().any(|(wave, slots)| wave * WAVE_MS > now.0 && slots.contains(slot));
    let run = run_of(ledger, (chunk, slot));
    // Only recipients of the canary are claimed before its verdict (P6).
    let number = ledger.recipient_at(chunk, slot).map_or(0, |recipient| recipient.number);
    let is_behind = |run: &Run| run.waits_for_canary() && !run.is_of_canary(number);
    !waits && run.is_some_and(|run| run.state == RunState::Open && run.finish_by > now && !is_behind(run))
}

fn run_of(ledger: &Ledger, (chunk, slot): SlotKey) -> Option<&Run> {
    ledger.run(ledger.recipient_at(chunk, slot)?.run)
}

/// The table of P14, for one recipient and one claim.
fn settled(
    ledger: &Ledger,
    outcome: &ClaimOutcome,
    slot_key: SlotKey,
    former: RecipientState,
    now: Time,
) -> Option<RecipientState> {
    let (chunk, slot) = slot_key;
    let row = row_of(ledger, outcome, slot_key);
    let run = run_of(ledger, slot_key)?;
    // A series of unattributed refusals pauses a run of several: ten, or as many as the run has recipients if one of
    // them is about sender or content. Then others of the series may come back, which is not predicted here.
    let is_for_all = |refused: &RelayRefusal| refused.code >= 500 && refused.effect == RefusalEffect::MayPauseRun;
    let is_unattributed = |refused: &&RelayRefusal| {
        refused.code >= 500 && !matches!(refused.enhanced, Some(EnhancedCode { subject: 1 | 2, .. }))
    };
    let counts = |refused: &&RelayRefusal| is_for_all(refused) || is_unattributed(refused);
    let most = if outcome.refused.iter().any(is_for_all) { run.count.min(10) as usize } else { 10 };
    if run.count > 1 && run.unattributed_refusals.len() + outcome.refused.iter().filter(counts).count() >= most {
        return None;
    }
    let Some(row) = row else { return Some(former) };
    if outcome.accepted.contains(slot) && !row.sent.contains(slot) {
        let moves = !former.is_terminal() || former == RecipientState::Assumed;
        return Some(if moves { RecipientState::Sent } else { former });
    }
    // A former cluster may have claimed again what this claim did not send (P21).
    if ledger.only_operator_decides(outcome.fence) {
        return Some(former);
    }
    let attempts = ledger.chunks().get(&chunk)?.attempts.get(&slot).copied().unwrap_or(0);
    if is_mine(&row, slot, former)
        && let Some(to) = not_sent(run, outcome, slot, attempts, now)
    {
        let killed = outcome.interrupted().contains(slot) && outcome.alone;
        let killed_again = killed && is_crash_suspect(ledger, slot_key) && to == RecipientState::Pending;
        return Some(if killed_again { RecipientState::Dead } else { to });
    }
    let doubt = former == RecipientState::Claimed && row.claimed.contains(slot) && outcome.in_doubt.contains(slot);
    Some(if doubt { RecipientState::InDoubt } else { former })
}

/// Returns the claim that an outcome names, if it was granted the recipient.
fn row_of(ledger: &Ledger, outcome: &ClaimOutcome, (chunk, slot): SlotKey) -> Option<Claim> {
    let closed = || ledger.closed_claims().find(|(fence, _)| *fence == outcome.fence).map(|(_, row)| row);
    let row = ledger.claims().get(&outcome.fence).cloned().or_else(closed)?;
    let named = row.chunk == outcome.chunk && chunk == row.chunk;
    (named && row.granted.contains(slot)).then_some(row)
}

/// True if a definite not-sent of this claim applies to the recipient.
fn is_mine(row: &Claim, slot: u16, state: RecipientState) -> bool {
    match state {
        RecipientState::Claimed => row.claimed.contains(slot),
        RecipientState::InDoubt => row.in_doubt.contains(slot),
        RecipientState::Assumed => row.assumed.contains(slot),
        _ => false,
    }
}

fn not_sent(run: &Run, outcome: &ClaimOutcome, slot: u16, attempts: u8, now: Time) -> Option<RecipientState> {
    if let Some(answer) = outcome.refused.iter().find(|answer| answer.slot == slot) {
        return Some(match answer.effect {
            RefusalEffect::Dead => RecipientState::Dead,
            RefusalEffect::MayPauseRun if run.count == 1 => RecipientState::Dead,
            RefusalEffect::CountAttempt if attempts + 1 >= run.policies.max_attempts => RecipientState::Dead,
            RefusalEffect::CountAttempt => state_after_not_sent(run, attempts + 1, now),
            _ => state_after_not_sent(run, attempts, now),
        });
    }
    if outcome.released.iter().any(|(_, slots)| slots.contains(slot)) {
        return Some(state_after_not_sent(run, attempts, now));
    }
    if outcome.suppressed.contains(slot) {
        return Some(RecipientState::Suppressed);
    }
    outcome.unsendable.iter().any(|(of, _)| *of == slot).then_some(RecipientState::Dead)
}

fn state_after_not_sent(run: &Run, attempts: u8, now: Time) -> RecipientState {
    match (&run.state, attempts) {
        (RunState::Cancelled { .. }, _) => RecipientState::Cancelled,
        (state, 0) if has_expired(state) || run.finish_by <= now => RecipientState::Expired,
        (state, _) if has_expired(state) || run.finish_by <= now => RecipientState::Dead,
        _ => RecipientState::Pending,
    }
}
