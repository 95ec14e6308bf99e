//! What the actors of one node share: the replica, the clock, the node's own life, its lease and marks.
//!
//! No behaviour of its own beyond small questions. The comment of a field names the actor that changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use reveille_ledger::content::{NamedAudience, Recipients};
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{ClaimOwner, Epoch, Hash, NodeId, Time};
use reveille_raft::{EntryStamp, Hint, Replica, Role};

use super::cache::Cache;
use super::clock::Clock;
use super::lease::{LEASE, LeaseClock, NodeLease};
use crate::audience::AudienceStore;
use crate::leader::leadership::Leadership;
use crate::node::peer_messages::NodeMeasurements;
use crate::ops::backlog::Backlog;
use crate::ops::return_path::ReturnPath;
use crate::ops::unsubscribe::Unsubscribe;
use crate::ops::zones::Zones;
use crate::smtp::pool::latency::RecentMean;
use crate::smtp::registry::RelayRegistry;
use crate::worker::in_flight_handoffs::InFlightHandoffs;

/// An idle leader commits an entry every ten seconds (P18); some more for its way here. Milliseconds.
const BETWEEN_ENTRIES_MS_MAX: i64 = 15_000;
/// Bytes of decoded audiences that are kept: some hundred of the largest lists that a schedule may hold.
const AUDIENCE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What a string costs beside its bytes: its place in a list, and its own piece of the heap.
const STRING_BYTES: usize = 40;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIntroduction {
    /// Its name, for people.
    pub name: String,
    /// `host:port` at which peers reach it.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Release of its time zone database.
    pub tzdb: String,
}

/// Shared by all actors of a node.
pub struct NodeContext {
    /// The replicated ledger.
    pub replica: Replica,
    /// This life of this node.
    pub me: ClaimOwner,
    /// What it says of itself.
    pub introduction: NodeIntroduction,
    /// The only source of time.
    pub clock: Arc<dyn Clock>,
    /// Time zones.
    pub zones: Zones,
    /// This node's right to pass gates; the keeper prolongs it (P9).
    pub lease: Arc<NodeLease>,
    /// The clock that leases are counted in.
    pub(crate) lease_clock: Arc<LeaseClock>,
    /// Hand-offs past the gate; the gates set them (P15).
    pub hand_offs: InFlightHandoffs,
    /// Recipients of sealed audiences (P20).
    pub parts: AudienceStore,
    /// Audiences of the ledger, decoded.
    audiences: Cache<Hash, Recipients>,
    /// An operator has checked the clock of the only voter: it is taken, however far it was moved (P18).
    accept_clock: bool,
    /// The leadership of this node, while there is one.
    leadership: RwLock<Option<Arc<Leadership>>>,
    /// The relays of this node, once its actors run.
    relays: RwLock<Option<Arc<RelayRegistry>>>,
    /// How long an outcome takes from its verdict into the ledger; the settler notes it.
    settling: Mutex<RecentMean>,
    /// The backlog as it was last measured (P16).
    backlogs: RwLock<Vec<Backlog>>,
    /// How recipients of bulk email opt out, where this node is configured for it.
    unsubscribe: Option<Unsubscribe>,
    /// Where bounces go, where this node is configured for it.
    return_path: Option<ReturnPath>,
    /// The node gives back what it has, and ends.
    stopping: AtomicBool,
}

impl NodeContext {
    /// Everything but a leadership.
    pub fn new(
        replica: Replica,
        me: ClaimOwner,
        introduction: NodeIntroduction,
        clock: Arc<dyn Clock>,
        zones: Zones,
        parts: AudienceStore,
    ) -> NodeContext {
        let lease = Arc::new(NodeLease::default());
        let lease_clock = Arc::new(LeaseClock::new(Arc::clone(&clock), Arc::clone(&lease)));
        NodeContext {
            replica,
            me,
            introduction,
            clock,
            zones,
            lease,
            lease_clock,
            hand_offs: InFlightHandoffs::default(),
            parts,
            audiences: Cache::new(AUDIENCE_BYTES_MAX),
            accept_clock: false,
            leadership: RwLock::new(None),
            relays: RwLock::new(None),
            settling: Mutex::new(RecentMean::default()),
            backlogs: RwLock::new(Vec::new()),
            unsubscribe: None,
            return_path: None,
            stopping: AtomicBool::new(false),
        }
    }

    /// Says from now on that this node is stopping: to `/readyz`, and to every member that asks how it stands.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Is this node stopping?
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The same, with the way to opt out that this node writes into bulk mail.
    pub fn unsubscribe_by(self, unsubscribe: Option<Unsubscribe>) -> NodeContext {
        NodeContext { unsubscribe, ..self }
    }

    /// The same, with the envelope sender that this node gives its emails.
    pub fn bounce_to(self, return_path: Option<ReturnPath>) -> NodeContext {
        NodeContext { return_path, ..self }
    }

    /// Where bounces go; none: to the content's sender.
    pub(crate) fn return_path(&self) -> Option<&ReturnPath> {
        self.return_path.as_ref()
    }

    /// How recipients of bulk mail opt out; none: this node was not told, and sends no bulk mail.
    pub fn unsubscribe(&self) -> Option<&Unsubscribe> {
        self.unsubscribe.as_ref()
    }

    /// The same, with the operator's word that the machine's clock is right (P18).
    pub fn accept_clock(self, accept_clock: bool) -> NodeContext {
        NodeContext { accept_clock, ..self }
    }

    /// Did an operator say that the machine's clock is right?
    pub(crate) fn accepts_clock(&self) -> bool {
        self.accept_clock
    }

    /// The cluster's id: part of every Message-ID. Zero before there is a cluster, when nothing is sent.
    pub fn cluster(&self) -> u128 {
        self.replica.cluster().map_or(0, |cluster| cluster.0)
    }

    /// The leadership of this node, while there is one.
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.leadership.read().clone()
    }

    pub(crate) fn begin_leadership(&self, leadership: Arc<Leadership>) {
        *self.leadership.write() = Some(Arc::clone(&leadership));
        self.replica.set_stamp(Arc::new(LeadershipStamp(leadership)));
    }

    pub(crate) fn end_leadership(&self) {
        self.replica.clear_stamp();
        *self.leadership.write() = None;
    }

    /// The relays of this node; none before its actors run.
    pub fn relays(&self) -> Option<Arc<RelayRegistry>> {
        self.relays.read().clone()
    }

    pub(crate) fn show_relays(&self, relays: Arc<RelayRegistry>) {
        *self.relays.write() = Some(relays);
    }

    /// An outcome that had its verdict at this instant of the monotonic clock is in the ledger.
    pub(crate) fn note_settled(&self, verdict_at: Duration) {
        let now = self.clock.monotonic();
        self.settling.lock().note(now.saturating_sub(verdict_at), now);
    }

    /// P16: what is late, by pool, as this node saw it some seconds ago.
    pub fn backlogs(&self) -> Vec<Backlog> {
        self.backlogs.read().clone()
    }

    pub(crate) fn note_backlogs(&self, backlogs: Vec<Backlog>) {
        *self.backlogs.write() = backlogs;
    }

    /// What this node has measured lately, for the leader (P12).
    pub(crate) fn measured(&self) -> NodeMeasurements {
        let relays = self.relays().map(|relays| relays.flows()).unwrap_or_default();
        NodeMeasurements { relays, settle: self.settling.lock().at(self.clock.monotonic()) }
    }

    /// A sealed audience of a tenant, and the names of its recipients' variables (P20).
    pub fn sealed(&self, tenant: &str, name: &str) -> Option<(NamedAudience, Vec<String>)> {
        self.replica.read(|ledger| {
            let known = ledger.audiences().get(&(tenant.to_owned(), name.to_owned()))?;
            let columns = ledger.seal(&known.seal)?.columns;
            Some((NamedAudience { name: name.to_owned(), seal: known.seal, rows: known.rows }, columns))
        })
    }

    /// The recipients of an audience, or of a sealed one where they are. Decoded outside the ledger's lock, once for all
    /// who ask. Not to be called inside a look at the state.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) fn recipients(&self, audience: Hash) -> Result<Arc<Recipients>, String> {
        self.audiences.get(audience, || {
            let blob = self.replica.read(|ledger| ledger.blob(&audience).map(<[u8]>::to_vec));
            let blob = blob.ok_or("the audience of the run is not in the ledger")?;
            let recipients = Recipients::from_blob(&blob).ok_or("the audience of the run cannot be read")?;
            let bytes = weight(&recipients);
            Ok((recipients, bytes))
        })
    }

    /// How far ledger time is ahead of the clocks: zero but for a test clock (P19). Milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.replica.read(|ledger| ledger.head().offset_ms())
    }

    /// Ledger time by this node's wall clock (and the offset of a test clock, P19), as far as that can be believed.
    /// `applied` is the time that a fresh read found.
    pub fn ledger_time(&self, applied: Time) -> Time {
        ledger_time(self.clock.wall().plus_ms(self.offset_ms()), applied)
    }

    /// The nodes that vote.
    pub(crate) fn voters(&self) -> Vec<NodeId> {
        let members = self.replica.members();
        members.into_iter().filter(|(_, member)| member.votes).map(|(node, _)| node).collect()
    }

    /// Does this node lead, and has a quorum answered it within the time of a lease? A leader that was cut off
    /// goes on believing (P13), and its answers are of no use.
    pub fn leads_a_quorum(&self) -> bool {
        let heard = |acked: std::time::Instant| acked.elapsed() < LEASE;
        self.leadership().is_some() && self.replica.last_quorum_acked().is_some_and(heard)
    }

    /// CLOCK_BOOTTIME, to decide by a lease.
    pub(crate) fn lease_clock(&self) -> Duration {
        self.lease_clock.now()
    }

    /// The node that leads, as far as this one knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        match *self.replica.role().borrow() {
            Role::Leader { .. } => Some(self.me.node),
            Role::Follower { leader } => leader,
            Role::Candidate | Role::Stopped => None,
        }
    }
}

/// Bytes of a decoded audience, estimated.
fn weight(recipients: &Recipients) -> usize {
    let string = |text: &String| STRING_BYTES + text.len();
    match recipients {
        Recipients::Inline(audience) => {
            let each = audience.recipients.iter().map(|one| {
                string(&one.address) + string(&one.key) + one.values.iter().map(string).sum::<usize>() + STRING_BYTES
            });
            each.sum()
        }
        Recipients::Sealed(seal) => STRING_BYTES * (1 + seal.parts.len()),
    }
}

/// Never further from what was applied than an idle leader lets pass between two entries: a clock that is wrong by hours
/// is heard for seconds. A ledger whose first leader has not asked the voters for their clocks yet has no time: what is
/// created in that moment counts from now, not from 1970.
fn ledger_time(wall: Time, applied: Time) -> Time {
    match applied {
        Time(0) => wall,
        _ => wall.clamp(applied, applied.plus_ms(BETWEEN_ENTRIES_MS_MAX)),
    }
}

/// What the leader stamps on every entry (P13, P18).
struct LeadershipStamp(Arc<Leadership>);

impl EntryStamp for LeadershipStamp {
    fn stamp(&self) -> Option<(Epoch, Time)> {
        (!self.0.ended()).then(|| (self.0.epoch(), self.0.stamp()))
    }
}

/// Whose look at the state a hint is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    Timer,
    Dispatcher,
    All,
    None,
}

/// Which of the leader's actors may have something to do.
pub(crate) fn concerns(hint: &Hint) -> Concerns {
    match hint {
        Hint::Resync => Concerns::All,
        Hint::Effect { effect, .. } => match effect {
            Effect::ClockMoved(_) => Concerns::All,
            Effect::DueChanged { .. } => Concerns::Timer,
            Effect::WorkAppeared(_) | Effect::ClaimClosed { .. } | Effect::RelaysChanged => Concerns::Dispatcher,
            _ => Concerns::None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_time_is_bounded_by_what_was_applied_and_by_the_clock_before_the_first_epoch() {
        let wall = Time(1_800_000_000_000);
        assert_eq!(ledger_time(wall, Time(0)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(-9_000)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(9_000)), wall.plus_ms(9_000), "it does not go back");
        let hours_ago = wall.plus_ms(-3 * 3_600_000);
        assert_eq!(ledger_time(wall, hours_ago), hours_ago.plus_ms(15_000), "a wrong clock is heard for seconds");
    }
}
