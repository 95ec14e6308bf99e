//! Lanes: from a claim row to verdicts (P4, P5).
//!
//! Each granted row is worked by a task of its own; the relay pools bound how much of it goes on at once.
//! Order for one recipient: journal `open`, compose, journal `left`, dialogue up to the gate, journal `begin`,
//! terminator, answer, journal the answer, settle. One begin a (row, recipient): after it the recipient leaves the
//! row, whatever the answer; nothing here retries. What cannot begin within ten seconds goes back. A crash suspect,
//! which was open when a holder died, is composed while nothing else is composed on this node (P12).
//!
//! A row that is granted is found by its hint or, if that was lost, by a look at the state; a row is worked
//! at most once in this life of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::{Command, OpeningCause, Refused, RelayReply, ReleaseReason, ReplyScope, Unsendable};
use reveille_ledger::content::{Recipient, Recipients, Seal};
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{Fence, Hash, RunId, Time};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::{Claim, Ledger};
use reveille_raft::{Hint, crash};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::claim_tasks::RowTasks;
use super::context::{COMPOSING_MAX, Room};
use super::gate::{LaneGate, may_begin, may_leave};
use super::injected_send;
use super::journal::{Act, Answer, Place};
use super::lease_client::Stopping;
use super::settler::Fate;
use super::tenant_queue::Waiting;
use crate::audience::Parts;
use crate::compose::{Stamp, message_id};
use crate::node::lease::{ASK_EVERY, LEASE};
use crate::ops::return_path::Bounced;
use crate::smtp::registry::Way;
use crate::smtp::{self, Dsn, Mail, Notify, Patience, Shut, Unavailable, Verdict};

/// A row not begun within this goes back (P12): a mail is begun when it has a session.
pub const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// How often the state is looked at for rows whose hint was lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often closed rows in which somebody is assumed are asked for again.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// A dialogue that has not reached its gate by then ends without a hand-off.
const PREPARE_WITHIN: Duration = Duration::from_secs(60);
/// How long a stopping node waits for the entry behind which nothing is granted to it.
const FENCE_WITHIN: Duration = Duration::from_secs(2);
/// Why a node leaves bulk mail to others; it comes back every 30 s until its deadline.
const NO_UNSUBSCRIBE: &str =
    "this node cannot write List-Unsubscribe into bulk mail: give it unsubscribe.url and unsubscribe.keys";
/// Why whoever is in a sealed audience waits where it lies on a disk that does not answer.
const NOT_READ: &str = "its audience was not read: the disk of this node did not answer in time";
/// Characters of a relay's answer that go into the ledger.
const TEXT_MAX: usize = 200;

/// One recipient on its way to its gate.
pub(crate) struct Job {
    pub place: Place,
    pub run: RunId,
    pub recipient: u32,
    pub tenant: String,
    pub key: String,
}

/// One recipient of a row, as the ledger names it.
struct Draft {
    place: Place,
    run: RunId,
    recipient: u32,
    content: Hash,
    audience: Hash,
    /// It was open when a holder died: it is composed alone (P12).
    suspect: bool,
    /// Somebody waits for the words of the relay that takes it.
    test: bool,
}

/// A row as its task works it.
pub(crate) struct Work {
    tenant: String,
    /// The tenant's share when the row came.
    share: u32,
    pool: String,
    /// Emails of the pool carry `X-Reveille-*`.
    reveille_headers: bool,
    date: Time,
    cluster_incarnation: u64,
    drafts: Vec<Draft>,
    /// Those of sealed audiences, by slot, or why they could not be read: once for the whole row.
    read: BTreeMap<u16, Result<Recipient, String>>,
}

/// Works every row that is granted to this life of the node. From the stop on gives back at once whatever is still
/// granted, and returns when nothing more can come and the last row is done. Returns before that when the task of a
/// row panicked, which nobody else can go on with.
pub(crate) async fn run(room: Arc<Room>, stopping: Stopping) {
    let mut hints = room.site.replica.effects();
    let mut worked: BTreeSet<Fence> = BTreeSet::new();
    let tasks = RowTasks::default();
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut forget = tokio::time::interval(FORGET_EVERY);
    let over = async {
        stopping.asked.cancelled().await;
        until_nothing_more_is_granted(&room, &stopping.known).await;
        tasks.over().await;
    };
    tokio::pin!(over);
    loop {
        let rows = tokio::select! {
            () = &mut over => break,
            () = tasks.broken() => return,
            _ = forget.tick() => {
                room.forget_again();
                continue;
            }
            _ = look.tick() => {
                if injected_bugs::is(Bug::ClaimAfterSend) {
                    injected_send::send_what_is_pending(&room, &tasks);
                }
                mine(&room, &mut worked)
            }
            hint = hints.next() => match hint {
                Some(Hint::Effect { effect: Effect::ClaimGranted { fence, owner }, .. }) if owner == room.site.me => {
                    vec![fence]
                }
                Some(Hint::Effect { effect: Effect::ClaimClosed { fence, owner }, .. }) if owner == room.site.me => {
                    room.site.marks.clear_row(fence);
                    forget_if_closed(&room, fence);
                    continue;
                }
                Some(Hint::Effect { .. }) => continue,
                Some(Hint::Resync) => mine(&room, &mut worked),
                None => break,
            },
        };
        begin(&room, &mut worked, &tasks, rows);
    }
    if stopping.asked.is_cancelled() {
        // All is in the state now, and a hint of it may not have been heard yet.
        let rows = mine(&room, &mut worked);
        begin(&room, &mut worked, &tasks, rows);
    }
    tasks.over().await;
}

/// Waits until every row that any leader will ever grant to this life is in the state. A leader that knows of the
/// stop claims nothing more for it, and what it had claimed is in the log before whatever is proposed afterwards; a
/// later leader knows this life only by questions that say so (one that comes a second late, from before the stop,
/// can leave a row for the next start). Where none answers, the last question may have been granted all the same:
/// that lease is waited for.
async fn until_nothing_more_is_granted(room: &Room, known: &CancellationToken) {
    let _ = tokio::time::timeout(ASK_EVERY + LEASE, known.cancelled()).await;
    let deadline = std::time::Instant::now() + FENCE_WITHIN;
    match room.site.replica.propose(&Command::Tick, deadline).await {
        Ok(reply) => drop(room.site.replica.wait_applied(reply.index, deadline).await),
        Err(error) => tracing::debug!(%error, "rows may still be granted: the next start settles them"),
    }
}

/// Begins rows that this life has not worked yet: each is worked at most once.
fn begin(room: &Arc<Room>, worked: &mut BTreeSet<Fence>, tasks: &RowTasks, rows: Vec<Fence>) {
    for fence in rows {
        if worked.insert(fence)
            && let Some(work) = work_of(room, fence)
        {
            tasks.spawn(work_row(Arc::clone(room), work, tasks.clone()));
        }
    }
}

/// The rows of this life that have something to work: claimed, or lost to it although it lives (then what
/// it never began is given back, which resolves the doubt). Forgets rows that are closed, and nothing else: a
/// row that was worked must never be worked again while it is open.
fn mine(room: &Room, worked: &mut BTreeSet<Fence>) -> Vec<Fence> {
    let (own, closed) = room.site.replica.read(|ledger| {
        let has_work = |row: &Claim| !row.claimed.is_empty() || row.was_revoked();
        let own = ledger.claims().iter().filter(|(_, row)| row.owner == room.site.me && has_work(row));
        let own: Vec<Fence> = own.map(|(fence, _)| *fence).collect();
        let applied = ledger.head().applied;
        let gone = |fence: &&Fence| fence.index <= applied && !ledger.claims().contains(fence);
        (own, worked.iter().filter(gone).copied().collect::<Vec<Fence>>())
    });
    for fence in closed {
        worked.remove(&fence);
        room.site.marks.clear_row(fence);
        room.forget(fence);
    }
    own
}

/// P11: the journal keeps the records of a row until nothing of it is claimed or in doubt.
fn forget_if_closed(room: &Room, fence: Fence) {
    if room.site.replica.read(|ledger| !ledger.claims().contains(&fence)) {
        room.forget(fence);
    }
}

fn work_of(room: &Room, fence: Fence) -> Option<Work> {
    room.site.replica.read(|ledger| work_of_row(ledger, fence, ledger.claims().get(&fence)?))
}

pub(crate) fn work_of_row(ledger: &Ledger, fence: Fence, row: &Claim) -> Option<Work> {
    let page = ledger.pages().get(&row.page)?;
    let mut slots = row.claimed.clone();
    if row.was_revoked() {
        slots.add(&row.in_doubt);
    }
    let suspects = ledger.chunks().get(&(row.page, row.chunk)).map(|chunk| &chunk.crash_suspects);
    let drafts = slots.iter().filter_map(|slot| {
        let (run, recipient) = ledger.recipient_at((row.page, row.chunk), slot)?;
        let state = ledger.run(run)?;
        let place = Place { page: row.page, chunk: row.chunk, fence, slot };
        let suspect = suspects.is_some_and(|suspects| suspects.contains(slot));
        let test = state.cause == OpeningCause::Test;
        Some(Draft { place, run, recipient, content: state.content, audience: state.audience, suspect, test })
    });
    let pool = ledger.pool_of_claim(page, row);
    Some(Work {
        tenant: page.tenant.clone(),
        share: ledger.tenants().get(&page.tenant).map_or(1, |tenant| tenant.share),
        pool: pool.to_owned(),
        reveille_headers: ledger.has_reveille_headers(pool),
        date: row.claimed_at,
        cluster_incarnation: page.cluster_incarnation,
        drafts: drafts.collect(),
        read: BTreeMap::new(),
    })
}

/// Begins the recipients of a row one after the other, as fast as the relays allow; gives back what cannot
/// begin in time.
pub(crate) async fn work_row(room: Arc<Room>, work: Work, tasks: RowTasks) {
    crash::point("claim.after-commit-before-send");
    if room.site.term().is_none() {
        crash::point("claim.after-apply-on-follower");
    }
    let deadline = Instant::now() + BEGIN_WITHIN;
    let work = Arc::new(with_recipients(&room, work, deadline).await);
    let unread = settle_unread(&room, &work).await;
    let sent = work.drafts.iter().enumerate().filter(|(_, draft)| !unread.contains(&draft.place.slot));
    let last = sent.clone().map(|(number, _)| number).next_back();
    let mut waiting = room.turns.of(&work.tenant, &work.pool, work.share);
    let mut gives_back = None;
    for (number, draft) in sent {
        if injected_bugs::is(Bug::ClaimAfterSend)
            && let Some(fate) = injected_send::was_sent(&room, draft.place)
        {
            room.settler.settle(draft.place, fate).await;
            continue;
        }
        let is_last = Some(number) == last;
        if injected_bugs::is(Bug::IdleClaim) && is_last && number > 0 {
            tasks.spawn(idle(Arc::clone(&room), draft.place));
            continue;
        }
        if gives_back.is_none() {
            match permit(&room, (&mut waiting, &work.pool), draft, (deadline, is_last)).await {
                Ok(way) => {
                    tasks.spawn(send(Arc::clone(&room), Arc::clone(&work), number, way, deadline));
                    continue;
                }
                Err(Denied::Recipient(shut)) => {
                    waiting.leave();
                    if let Some(fate) = fate_of_shut(shut) {
                        room.settler.settle(draft.place, fate).await;
                    }
                    continue;
                }
                Err(Denied::Claim(cause)) => gives_back = Some(cause),
            }
            waiting.leave();
        }
        let place = draft.place;
        let fate = match &gives_back {
            Some(GivesBack::Waits(cause)) => waits(place, cause),
            Some(GivesBack::Released(why)) => Fate::Released(*why),
            None => Fate::Released(ReleaseReason::Busy),
        };
        room.settler.settle(place, fate).await;
    }
}

/// A bug, see [`Bug::IdleClaim`].
async fn idle(room: Arc<Room>, place: Place) {
    tokio::time::sleep(PREPARE_WITHIN).await;
    room.settler.settle(place, Fate::Released(ReleaseReason::Busy)).await;
}

/// P20: reads who of the row is in a sealed audience, off the threads that others wait for. This is before `open`
/// is journaled for any of them: it hashes bytes and reads strings, whoever they are. A disk that does not answer by
/// `deadline` keeps nobody claimed (P12), and no stop waits for it.
async fn with_recipients(room: &Arc<Room>, mut work: Work, deadline: Instant) -> Work {
    let places: Vec<(u16, (Hash, u16))> = room.site.replica.read(|ledger| {
        let sealed: BTreeSet<Hash> = work.drafts.iter().map(|draft| draft.audience).collect();
        let sealed: BTreeMap<Hash, Seal> =
            sealed.into_iter().filter_map(|audience| Some((audience, ledger.seal(&audience)?))).collect();
        let place = |draft: &Draft| Some((draft.place.slot, sealed.get(&draft.audience)?.place(draft.recipient)?));
        work.drafts.iter().filter_map(place).collect()
    });
    if places.is_empty() {
        return work;
    }
    let slots: Vec<u16> = places.iter().map(|(slot, _)| *slot).collect();
    let reading = read_parts(room, places);
    work.read = match room.drain.run_until_cancelled(timeout_at(deadline, reading)).await {
        Some(Ok(Ok(read))) => read,
        Some(Ok(Err(error))) => {
            tracing::error!(%error, "reading an audience failed");
            unread(slots)
        }
        Some(Err(_)) => {
            tracing::warn!(recipients = slots.len(), "an audience is not read within ten seconds: the disk hangs");
            unread(slots)
        }
        None => unread(slots),
    };
    work
}

/// Nobody at these slots was read.
fn unread(slots: Vec<u16>) -> BTreeMap<u16, Result<Recipient, String>> {
    slots.into_iter().map(|slot| (slot, Err(NOT_READ.to_owned()))).collect()
}

/// Recipients at these places of parts, by slot. A read that hangs has its permit for as long as it does, so that not
/// every thread of this process comes to hang in one.
async fn read_parts(
    room: &Arc<Room>,
    places: Vec<(u16, (Hash, u16))>,
) -> Result<BTreeMap<u16, Result<Recipient, String>>, String> {
    let permit = Arc::clone(&room.reads).acquire_owned().await.map_err(|closed| closed.to_string())?;
    let site = Arc::clone(&room.site);
    let read = room.site.replica.blocking(move || {
        let _held = permit;
        let of_part = places.chunk_by(|(_, (one, _)), (_, (other, _))| one == other);
        of_part.flat_map(|of_part| read_part(&site.parts, of_part)).collect()
    });
    read.await.map_err(|error| error.to_string())
}

/// Gives back who could not be read, before anything of a relay is spent on them; answers their slots. The part may
/// come from a peer, and others may have it: they are pending again in a while, uncounted.
async fn settle_unread(room: &Room, work: &Work) -> BTreeSet<u16> {
    let failed = work.drafts.iter().filter_map(|draft| match work.read.get(&draft.place.slot) {
        Some(Err(cause)) => Some((draft.place, cause)),
        Some(Ok(_)) | None => None,
    });
    let mut settled = BTreeSet::new();
    for (place, cause) in failed {
        let fate =
            if room.drain.is_cancelled() { Fate::Released(ReleaseReason::Stopping) } else { waits(place, cause) };
        room.settler.settle(place, fate).await;
        settled.insert(place.slot);
    }
    settled
}

/// Recipients of one part, by slot.
fn read_part(parts: &Parts, wanted: &[(u16, (Hash, u16))]) -> Vec<(u16, Result<Recipient, String>)> {
    let Some((_, (part, _))) = wanted.first() else { return Vec::new() };
    let places: Vec<u16> = wanted.iter().map(|(_, (_, place))| *place).collect();
    let slots = wanted.iter().map(|(slot, _)| *slot);
    match parts.read(*part, &places) {
        Ok(read) => slots.zip(read).map(|(slot, (_, recipient))| (slot, Ok(recipient))).collect(),
        Err(fault) => slots.map(|slot| (slot, Err(fault.to_string()))).collect(),
    }
}

/// Why what is left of a row goes back.
enum GivesBack {
    /// No relay can take it now, in words for people.
    Waits(String),
    /// It cannot begin here.
    Released(ReleaseReason),
}

/// Why there is no permit.
enum Denied {
    /// This recipient may not leave; the next one of the row may.
    Recipient(Shut),
    /// What is left of the row goes back.
    Claim(GivesBack),
}

/// The relay cannot take it now: back to pending, uncounted, after a while (P6).
fn waits(place: Place, cause: &str) -> Fate {
    let text = clip(cause);
    Fate::Refused(Refused { slot: place.slot, code: 0, enhanced: None, text, scope: ReplyScope::Relay, words: 0 })
}

/// The right to send one mail, or why there is none in time.
async fn permit(
    room: &Room,
    (waiting, pool): (&mut Waiting, &str),
    draft: &Draft,
    (deadline, is_last): (Instant, bool),
) -> Result<Way, Denied> {
    let back = |why| Err(Denied::Claim(GivesBack::Released(why)));
    loop {
        let applied = room.site.replica.read(|ledger| {
            may_begin(ledger, room.site.me, draft.place, draft.run).map_err(Denied::Recipient)?;
            Ok(ledger.head().applied)
        })?;
        if room.drain.is_cancelled() {
            return back(ReleaseReason::Stopping);
        }
        if !room.site.lease.runs(room.site.lease_clock(), applied) {
            return back(ReleaseReason::LeaseOver);
        }
        let asked = async {
            let turn = waiting.turn(deadline).await.ok_or(Some(Unavailable::Busy))?;
            let way = room.relays.acquire(pool, deadline).await?;
            // Over as soon as there is a permit, or none: it is not held through a dialogue.
            if !is_last {
                waiting.again(turn);
            }
            Ok(way)
        };
        let unavailable = match room.drain.run_until_cancelled(asked).await {
            None => return back(ReleaseReason::Stopping),
            Some(Ok(way)) => return Ok(way),
            Some(Err(None)) => {
                let cause = format!("pool '{pool}' has no relay: add one with `relay add`");
                return Err(Denied::Claim(GivesBack::Waits(cause)));
            }
            Some(Err(Some(unavailable))) => unavailable,
        };
        let until = match &unavailable {
            Unavailable::CircuitOpen { until, .. } | Unavailable::Parked { until, .. } => *until,
            // The pace or the sessions of this node do not suffice for the row: others may have room.
            Unavailable::Busy => return back(ReleaseReason::Busy),
            Unavailable::Paced { .. } => return back(ReleaseReason::Paced),
            Unavailable::Closed => return back(ReleaseReason::Stopping),
        };
        if until >= deadline {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = room.drain.cancelled() => return back(ReleaseReason::Stopping),
            }
            return Err(Denied::Claim(GivesBack::Waits(unavailable.to_string())));
        }
        room.drain.run_until_cancelled(tokio::time::sleep_until(until)).await;
    }
}

/// One recipient, from composing to its settled outcome.
async fn send(room: Arc<Room>, work: Arc<Work>, number: usize, way: Way, deadline: Instant) {
    let draft = &work.drafts[number];
    let fate = match compose(&room, &work, draft, deadline).await {
        Ok((job, mail)) => hand_off(&room, (draft, &work.pool), (job, mail), way, deadline).await,
        Err(fate) => Some(fate),
    };
    let Some(fate) = fate else { return };
    if injected_bugs::is(Bug::ClaimAfterSend) && injected_send::is_ahead(draft.place) {
        return injected_send::keep(&room, draft.place, fate);
    }
    room.settler.settle(draft.place, fate).await;
}

/// Composes the email of one recipient between journal `open` and `left`: beside others, or alone if the recipient is
/// a crash suspect (P12). Only composing runs what a recipient brings along, so only composing can be killed by it.
/// It holds its permit for as long as it computes, and never waits for a relay.
async fn compose(room: &Room, work: &Work, draft: &Draft, deadline: Instant) -> Result<(Job, Mail), Fate> {
    let permits = room.composing.acquire_many(if draft.suspect { COMPOSING_MAX } else { 1 });
    let _permits = match room.drain.run_until_cancelled(timeout_at(deadline, permits)).await {
        Some(Ok(Ok(permits))) => permits,
        Some(_) => return Err(Fate::Released(ReleaseReason::Busy)),
        None => return Err(Fate::Released(ReleaseReason::Stopping)),
    };
    // Before anything is parsed or compiled: the recipient that kills the process there must stand in the journal.
    room.journal.note(draft.place, Act::Open).map_err(|_| Fate::Released(ReleaseReason::JournalFailed))?;
    let prepared = catch_unwind(AssertUnwindSafe(|| prepare(room, work, draft)));
    room.journal.note(draft.place, Act::Left).map_err(|_| Fate::Released(ReleaseReason::JournalFailed))?;
    prepared.unwrap_or_else(|_| Err(not_composed("preparing it panicked")))
}

/// Sees the dialogue of a composed email through. `None` if nothing may be settled of it.
async fn hand_off(
    room: &Arc<Room>,
    (draft, pool): (&Draft, &str),
    (job, mail): (Job, Mail),
    way: Way,
    deadline: Instant,
) -> Option<Fate> {
    let job = Arc::new(job);
    let (relay, verdict) = match deliver(room, pool, (&job, mail), way, deadline).await {
        Ok(verdict) => verdict,
        Err(fate) => return Some(fate),
    };
    let said = draft.test.then(|| said(relay, &verdict)).flatten();
    let fate = judge(room, &job, verdict)?;
    // What is in doubt stays marked until the state says so itself: until then nobody else could name it (P15).
    let (marks, fence) = (&room.site.marks, job.place.fence);
    if fate == Fate::InDoubt {
        marks.over(fence, job.run, job.recipient);
    }
    if fate != Fate::InDoubt || !is_claimed(room, job.place) {
        marks.clear(fence, job.run, job.recipient);
    }
    Some(match said {
        Some(said) => Fate::Said(said, Box::new(fate)),
        None => fate,
    })
}

/// The dialogue, and the relay that it was with. A relay whose EHLO offers no SMTPUTF8 for an email that needs it gives
/// it to another relay of the pool: each is asked once, with what its session of now offers, and nothing was written.
/// Where one of them took no EHLO, the recipient waits as after a transient refusal: it may take one next time.
///
/// # Errors
/// What becomes of the recipient when the relays that are left cannot be used in time: it comes back.
async fn deliver(
    room: &Arc<Room>,
    pool: &str,
    (job, mail): (&Arc<Job>, Mail),
    mut way: Way,
    deadline: Instant,
) -> Result<(String, Verdict), Fate> {
    let again = mail.needs_smtputf8().then(|| mail.clone());
    let (mut mail, mut lacking, mut all_asked) = (mail, BTreeSet::new(), true);
    loop {
        let (open_by, begin_by) = (Some(deadline), Some(Instant::now() + PREPARE_WITHIN));
        let patience = Patience { open_by, begin_by, stop: room.drain.child_token() };
        let gate = LaneGate { room: Arc::clone(room), job: Arc::clone(job) };
        let verdict = way.permit.deliver(mail, gate, patience).await;
        let (Some(copy), Verdict::NoSmtpUtf8 { asked }) = (again.as_ref(), &verdict) else {
            return Ok((way.relay, verdict));
        };
        all_asked &= *asked;
        lacking.insert(way.relay.clone());
        let next = room.relays.acquire_besides(&lacking, pool, deadline);
        way = match room.drain.run_until_cancelled(next).await {
            Some(Ok(next)) => next,
            // One that took no EHLO may have it.
            Some(Err(None)) if !all_asked => return Ok((way.relay, Verdict::smtputf8_is_not_known())),
            // None is left that could have it. A sender beyond ASCII is not the recipient's fault.
            Some(Err(None)) if copy.to.is_ascii() => return Ok((way.relay, Verdict::sender_needs_smtputf8())),
            Some(Err(None)) => return Ok((way.relay, verdict)),
            Some(Err(Some(Unavailable::Closed))) | None => return Err(Fate::Released(ReleaseReason::Stopping)),
            // Pending at once, it would be claimed again by the rate of the relay that cannot take it.
            Some(Err(Some(why))) => return Err(waits(job.place, &why.to_string())),
        };
        mail = copy.clone();
    }
}

/// In the state that this node has applied. When it is not any more, the row was revoked: the state has named this
/// hand-off, or somebody has decided over it.
fn is_claimed(room: &Room, place: Place) -> bool {
    room.site
        .replica
        .read(|ledger| ledger.claims().get(&place.fence).is_some_and(|row| row.claimed.contains(place.slot)))
}

/// A first look at the gate's questions, and the mail; or what becomes of the recipient without a dialogue.
fn prepare(room: &Room, work: &Work, draft: &Draft) -> Result<(Job, Mail), Fate> {
    let letter = room.letter(draft.content, draft.audience).map_err(|cause| not_composed(&cause))?;
    let recipient = match letter.recipients.as_ref() {
        Recipients::Inline(audience) => audience.recipients.get(draft.recipient as usize).map(Ok),
        Recipients::Sealed(seal) => match work.read.get(&draft.place.slot) {
            // It was sealed since, or the ledger has come to know its seal.
            None if seal.place(draft.recipient).is_some() => return Err(waits(draft.place, NOT_READ)),
            read => read.map(Result::as_ref),
        },
    };
    let recipient = match recipient {
        Some(Ok(recipient)) => recipient,
        Some(Err(cause)) => return Err(waits(draft.place, cause)),
        None => return Err(not_composed("the recipient is not in the audience")),
    };
    let job = Job {
        place: draft.place,
        run: draft.run,
        recipient: draft.recipient,
        tenant: work.tenant.clone(),
        key: recipient.key.clone(),
    };
    // Cheaper than a dialogue that ends at its gate; the gate asks again.
    let shut = room.site.replica.read(|ledger| may_leave(ledger, room.site.me, &job)).err();
    if let Some(fate) = shut.and_then(fate_of_shut) {
        return Err(fate);
    }
    let domain = letter.compiled.sender().domain();
    let list_unsubscribe = match (letter.compiled.is_bulk(), room.site.unsubscribe()) {
        (false, _) => None,
        (true, Some(unsubscribe)) => Some(unsubscribe.header(&job.tenant, &job.key)),
        // Another node may know how.
        (true, None) => return Err(waits(draft.place, NO_UNSUBSCRIBE)),
    };
    let stamp = Stamp {
        message_id: message_id(room.site.cluster(), work.cluster_incarnation, draft.run, draft.recipient, domain),
        reveille: work.reveille_headers.then_some((draft.run, draft.place.fence)),
        date: work.date,
        boundary_seed: draft.content.0,
        list_unsubscribe,
    };
    let mut mail = letter.compiled.compose(recipient, &stamp).map_err(|error| {
        tracing::warn!(recipient = job.name(), %error, "a mail cannot be composed");
        not_composed(&error.to_string())
    })?;
    if injected_bugs::is(Bug::SwapContents)
        && let Recipients::Inline(audience) = &*letter.recipients
        && let Some(other) = audience.recipients.get(draft.recipient as usize ^ 1)
        && let Ok(swapped) = letter.compiled.compose(other, &stamp)
    {
        mail.data = swapped.data;
    }
    let (from, notify) = match room.site.return_path() {
        Some(path) => {
            let bounced = Bounced { run: draft.run, recipient: draft.recipient };
            (path.address((room.site.cluster(), work.cluster_incarnation), bounced), Notify::Failure)
        }
        // Notifications would go to the mailbox that people answer to.
        None if letter.compiled.is_bulk() => (letter.compiled.sender().wire(), Notify::Never),
        None => (letter.compiled.sender().wire(), Notify::Failure),
    };
    let dsn = Some(Dsn { envelope_id: draft.place.fence.to_string(), notify });
    Ok((job, Mail { from, to: mail.to, data: mail.data, dsn }))
}

/// P6: what a verdict means for the recipient. Answers are journaled before they are settled (P11). `None` if nothing
/// may be settled.
fn judge(room: &Room, job: &Job, verdict: Verdict) -> Option<Fate> {
    if injected_bugs::is(Bug::JournalAfterAct)
        && !matches!(verdict, Verdict::GateClosed(_) | Verdict::NoSmtpUtf8 { .. } | Verdict::Broken { .. })
    {
        let _ = room.journal.note(job.place, Act::Begin);
    }
    Some(match verdict {
        Verdict::Accepted { .. } => {
            crash::point("smtp.after-250-before-record");
            // A journal that fails here has closed the gate for all that follow; this answer is settled
            // all the same.
            let _ = room.journal.note(job.place, Act::Accepted);
            Fate::Accepted
        }
        Verdict::Refused { code, enhanced, text, scope, .. } => {
            let scope = match scope {
                smtp::Scope::Mailbox => ReplyScope::Mailbox,
                smtp::Scope::Greylisted => ReplyScope::Greylist,
                smtp::Scope::Relay | smtp::Scope::Throttle { .. } => ReplyScope::Relay,
                smtp::Scope::Tenant | smtp::Scope::Content => ReplyScope::Policy,
            };
            let text = clip(&smtp::without_enhanced_code(&text, enhanced));
            let words = if code < 500 { 0 } else { smtp::words_hash(&text, &job.key) };
            let refused = Refused { slot: job.place.slot, code, enhanced, text, scope, words };
            let answer = Answer { code, enhanced, scope, text: refused.text.clone(), words };
            let _ = room.journal.note(job.place, Act::Refused(answer));
            Fate::Refused(refused)
        }
        Verdict::Broken { stage, cause } => match cause {
            // Peers close politely between mails: another session, at once.
            smtp::Cause::ClosedBetweenMails => Fate::Released(ReleaseReason::SessionEnded),
            // No relay refused it: it is pending at once, and another node takes it.
            smtp::Cause::Stopped => Fate::Released(ReleaseReason::Stopping),
            cause => waits(job.place, &format!("lost at {stage:?}: {cause}")),
        },
        Verdict::NoSmtpUtf8 { .. } => Fate::Unsendable(Unsendable::NoSmtpUtf8),
        Verdict::GateClosed(shut) => return fate_of_shut(shut),
        Verdict::InDoubt { cause } => {
            tracing::warn!(recipient = job.name(), fence = %job.place.fence, %cause, "in doubt");
            metrics::counter!("reveille_in_doubt_total").increment(1);
            Fate::InDoubt
        }
    })
}

/// Which relay was asked, and the words with which it took a mail: as those of a refusal, without the enhanced code.
fn said(relay: String, verdict: &Verdict) -> Option<RelayReply> {
    match verdict {
        Verdict::Accepted { code, text } => {
            let enhanced = smtp::enhanced_code(*code, text);
            let text = clip(&smtp::without_enhanced_code(text, enhanced));
            Some(RelayReply { relay, code: *code, enhanced, text })
        }
        Verdict::GateClosed(_) => None,
        Verdict::Refused { .. } | Verdict::NoSmtpUtf8 { .. } | Verdict::Broken { .. } | Verdict::InDoubt { .. } => {
            Some(RelayReply { relay, code: 0, enhanced: None, text: String::new() })
        }
    }
}

/// Whatever kept a gate shut, nothing was handed off. For a recipient that is not in the row any more this is
/// evidence: it resolves a doubt of a row that was revoked, and else changes nothing (P14). `None` where an earlier
/// hand-off in the same row may be under way: its own outcome is settled, or that of the next life's recovery.
pub(crate) fn fate_of_shut(shut: Shut) -> Option<Fate> {
    Some(Fate::Released(match shut {
        Shut::BegunBefore => return None,
        Shut::OptedOut => return Some(Fate::Suppressed),
        Shut::NotInRow => ReleaseReason::NotInClaim,
        Shut::RunPaused => ReleaseReason::RunPaused,
        Shut::RunEnded => ReleaseReason::RunEnded,
        Shut::LeaseOver => ReleaseReason::LeaseOver,
        Shut::PastDeadline => ReleaseReason::PastDeadline,
        Shut::JournalFailed => ReleaseReason::JournalFailed,
        Shut::Stopping => ReleaseReason::Stopping,
    }))
}

/// Why an email cannot be composed.
fn not_composed(cause: &str) -> Fate {
    Fate::Unsendable(Unsendable::NotComposed(clip(cause)))
}

/// At most [`TEXT_MAX`] characters, on one line.
fn clip(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(TEXT_MAX).collect()
}
