//! State that the actors of one node share: the replica, the clock, the node's identity, its lease and its handoffs.
//!
//! It has no logic beyond small queries. The comment of a field names the actor that changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use reveille_ledger::content::{Content, NamedAudience, NamedTemplate, Recipients};
use reveille_ledger::ids::{ClaimOwner, Epoch, Hash, NodeId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_raft::{EntryStamp, Replica, Role};

use super::cache::Cache;
use super::clock::Clock;
use super::lease::{LEASE, LeaseClock, NodeLease};
use crate::backup::BackupPlan;
use crate::compose::return_path::ReturnPath;
use crate::compose::unsubscribe::Unsubscribe;
use crate::file_store::FileStore;
use crate::leader::leadership::Leadership;
use crate::maintenance::scrub_report::Scrub;
use crate::monitoring::backlog::Backlog;
use crate::monitoring::disk_reserve::DiskReserve;
use crate::process::peer_messages::NodeMeasurements;
use crate::process::recent_mean::RecentMean;
use crate::process::zones::Zones;
use crate::smtp::registry::RelayRegistry;
use crate::worker::in_flight_handoffs::InFlightHandoffs;

/// Maximum time between two entries on this node in milliseconds: an idle leader commits one every ten seconds (P18),
/// and it takes some time to arrive.
const BETWEEN_ENTRIES_MS_MAX: i64 = 15_000;
/// Maximum bytes of decoded audiences that are kept: about forty of the largest lists that a schedule may have.
const AUDIENCE_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Memory that a cached audience needs besides its recipients. Most have one recipient, so this determines how many fit.
const AUDIENCE_BYTES: usize = 300;
/// Time from the end of a run to its archiving, unless the operator sets another one.
const ARCHIVE_AFTER: Duration = Duration::from_hours(24);
/// Memory of a string in addition to its bytes: its entry in a list, and its allocation.
const STRING_BYTES: usize = 40;

/// Description of a node for its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIntroduction {
    /// Display name.
    pub name: String,
    /// `host:port` at which peers reach the node.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Release of the node's time zone database.
    pub tzdb: String,
}

/// State shared by all actors of a node.
pub struct NodeContext {
    /// The replicated ledger.
    pub replica: Replica,
    /// This node and its incarnation.
    pub me: ClaimOwner,
    /// Description of this node for its peers.
    pub introduction: NodeIntroduction,
    /// The only source of time.
    pub clock: Arc<dyn Clock>,
    /// Time zones.
    pub zones: Zones,
    /// This node's right to pass gates. The lease client prolongs it (P9).
    pub lease: Arc<NodeLease>,
    /// The clock for decisions by a lease.
    pub(crate) lease_clock: Arc<LeaseClock>,
    /// Handoffs past the gate. The gates add them (P15).
    pub handoffs: InFlightHandoffs,
    /// Audience parts and attachments on this node (P20).
    pub files: FileStore,
    /// Decoded audiences of the ledger.
    audiences: Cache<Hash, Recipients>,
    /// True if an operator has checked the clock of the only voter: it is then accepted, however far it was moved
    /// (P18).
    pub accept_clock: bool,
    /// Leadership of this node. `None` while it does not lead.
    leadership: RwLock<Option<Arc<Leadership>>>,
    /// Relays of this node. `None` before its actors run.
    relays: RwLock<Option<Arc<RelayRegistry>>>,
    /// Recent time from an outcome to its entry in the ledger. The settler records it.
    settling: Mutex<RecentMean>,
    /// Late emails by pool at the last measurement (P16). The backlog watch records it.
    pub backlogs: RwLock<Vec<Backlog>>,
    /// How recipients of bulk email opt out. `None`: this node is not configured for it, and sends no bulk email.
    pub unsubscribe: Option<Unsubscribe>,
    /// Time from the end of a run to its archiving (P24).
    pub archive_after: Duration,
    /// Where and when backups are made. `None`: nowhere.
    pub backups: Option<BackupPlan>,
    /// Space on the volume of the data folder.
    pub disk: DiskReserve,
    /// Checks of files at rest.
    pub scrub: Scrub,
    /// Address for bounces. `None`: bounces go to the content's sender.
    pub return_path: Option<ReturnPath>,
    /// True if the node is stopping: it returns what it has not begun, and ends.
    stopping: AtomicBool,
}

impl NodeContext {
    /// Returns the context of a node that does not lead and has no relays yet. The caller sets the operator's options.
    pub fn new(
        replica: Replica,
        me: ClaimOwner,
        introduction: NodeIntroduction,
        clock: Arc<dyn Clock>,
        zones: Zones,
        files: FileStore,
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
            handoffs: InFlightHandoffs::default(),
            files,
            audiences: Cache::new(AUDIENCE_BYTES_MAX),
            accept_clock: false,
            leadership: RwLock::new(None),
            relays: RwLock::new(None),
            settling: Mutex::new(RecentMean::default()),
            backlogs: RwLock::new(Vec::new()),
            unsubscribe: None,
            archive_after: ARCHIVE_AFTER,
            backups: None,
            disk: DiskReserve::default(),
            scrub: Scrub::default(),
            return_path: None,
            stopping: AtomicBool::new(false),
        }
    }

    /// Marks this node as stopping. `/readyz` and all members that ask for its description then see it.
    pub fn mark_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns true if this node is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the cluster's id, which is part of every Message-ID. Zero before there is a cluster, when nothing is
    /// sent.
    pub fn cluster(&self) -> u128 {
        self.replica.cluster().map_or(0, |cluster| cluster.0)
    }

    /// Returns the leadership of this node. `None` while it does not lead.
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.leadership.read().clone()
    }

    pub(crate) fn set_leadership(&self, leadership: Arc<Leadership>) {
        *self.leadership.write() = Some(Arc::clone(&leadership));
        self.replica.set_stamp(Arc::new(LeadershipStamp(leadership)));
    }

    pub(crate) fn clear_leadership(&self) {
        self.replica.clear_stamp();
        *self.leadership.write() = None;
    }

    /// Returns the relays of this node. `None` before its actors run.
    pub fn relays(&self) -> Option<Arc<RelayRegistry>> {
        self.relays.read().clone()
    }

    pub(crate) fn set_relays(&self, relays: Arc<RelayRegistry>) {
        *self.relays.write() = Some(relays);
    }

    /// Records that an outcome is in the ledger. `result_at` is the monotonic time of its result.
    pub(crate) fn record_settled(&self, result_at: Duration) {
        let now = self.clock.monotonic();
        self.settling.lock().record(now.saturating_sub(result_at), now);
    }

    /// Returns recent measurements of this node, for the leader (P12).
    pub(crate) fn measured(&self) -> NodeMeasurements {
        let relays = self.relays().map(|relays| relays.flows()).unwrap_or_default();
        NodeMeasurements { relays, settle: self.settling.lock().at(self.clock.monotonic()) }
    }

    /// Returns a sealed audience of a tenant, and the names of its recipients' variables (P20).
    pub fn sealed(&self, tenant: &str, name: &str) -> Option<(NamedAudience, Vec<String>)> {
        self.replica.read(|ledger| {
            let known = ledger.audiences().get(&(tenant.to_owned(), name.to_owned()))?;
            let columns = ledger.seal(&known.seal)?.columns;
            Some((NamedAudience { name: name.to_owned(), seal: known.seal, rows: known.rows }, columns))
        })
    }

    /// Returns a version of a template of a tenant, or the newest one, with its content.
    ///
    /// # Errors
    /// If there is no such template or version.
    pub fn template(
        &self,
        tenant: &str,
        name: &str,
        version: Option<u32>,
    ) -> Result<(NamedTemplate, Content), CommandRefusal> {
        let (named, bytes) = self.replica.read(|ledger| {
            let known = ledger.template_version(tenant, name, version)?;
            let (name, newest) = (name.to_owned(), version.is_none());
            let named = NamedTemplate { name, version: known.version, content: known.content, newest };
            Ok::<_, CommandRefusal>((named, ledger.blob(&known.content).map(<[u8]>::to_vec).unwrap_or_default()))
        })?;
        let missing = || CommandRefusal::NoSuchTemplate { name: name.to_owned(), version };
        let content = Content::from_blob(&bytes).ok_or_else(missing)?;
        Ok((named, content))
    }

    /// Returns the recipients of an audience, or the seal of a sealed one. They are decoded outside the ledger's lock,
    /// once for all callers. Must not be called inside a read of the ledger.
    ///
    /// # Errors
    /// Returns a text that says why there are none.
    pub(crate) fn recipients(&self, audience: Hash) -> Result<Arc<Recipients>, String> {
        self.audiences.get(audience, || {
            let blob = self.replica.read(|ledger| ledger.blob(&audience).map(<[u8]>::to_vec));
            let blob = blob.ok_or("the audience of the run is not in the ledger")?;
            let recipients = Recipients::from_blob(&blob).ok_or("the audience of the run cannot be read")?;
            let bytes = weight(&recipients);
            Ok((recipients, bytes))
        })
    }

    /// Returns how far ledger time is ahead of the clocks, in milliseconds. Zero without a test clock (P19).
    pub fn offset_ms(&self) -> i64 {
        self.replica.read(|ledger| ledger.head().offset_ms())
    }

    /// Returns ledger time by this node's wall clock (plus the offset of a test clock, P19), within the limits of
    /// `BETWEEN_ENTRIES_MS_MAX`. `applied` is the ledger time that a fresh read found.
    pub fn ledger_time(&self, applied: Time) -> Time {
        ledger_time(self.clock.wall().plus_ms(self.offset_ms()), applied)
    }

    /// Returns the nodes that vote.
    pub(crate) fn voters(&self) -> Vec<NodeId> {
        let members = self.replica.members();
        members.into_iter().filter(|(_, member)| member.votes).map(|(node, _)| node).collect()
    }

    /// Returns true if this node leads and a quorum has answered it within the length of a lease. A leader that was cut
    /// off still believes that it leads (P13), but its answers are useless.
    pub fn leads_a_quorum(&self) -> bool {
        let heard = |acked: std::time::Instant| acked.elapsed() < LEASE;
        self.leadership().is_some() && self.replica.last_quorum_acked().is_some_and(heard)
    }

    /// Returns CLOCK_BOOTTIME for a decision by a lease.
    pub(crate) fn lease_clock(&self) -> Duration {
        self.lease_clock.now()
    }

    /// Returns the leader that this node knows. `None`: it knows none.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        match *self.replica.role().borrow() {
            Role::Leader { .. } => Some(self.me.node),
            Role::Follower { leader } => leader,
            Role::Candidate | Role::Stopped => None,
        }
    }
}

/// Returns the estimated bytes of a decoded audience.
fn weight(recipients: &Recipients) -> usize {
    let string = |text: &String| STRING_BYTES + text.len();
    match recipients {
        Recipients::Inline(audience) => {
            let each = audience.recipients.iter().map(|one| {
                string(&one.address) + string(&one.key) + one.values.iter().map(string).sum::<usize>() + STRING_BYTES
            });
            AUDIENCE_BYTES + each.sum::<usize>()
        }
        Recipients::Sealed(seal) => STRING_BYTES * (1 + seal.parts.len()),
    }
}

/// Limits wall time to at most the time that an idle leader lets pass after the applied time: so a clock that is wrong
/// by hours has an effect of seconds only. Before the first leader has asked the voters for their clocks, the ledger
/// has no time. What is created then counts from the wall clock, not from 1970.
fn ledger_time(wall: Time, applied: Time) -> Time {
    match applied {
        Time(0) => wall,
        _ => wall.clamp(applied, applied.plus_ms(BETWEEN_ENTRIES_MS_MAX)),
    }
}

/// Stamps each entry of a leadership with its epoch and time (P13, P18).
struct LeadershipStamp(Arc<Leadership>);

impl EntryStamp for LeadershipStamp {
    fn stamp(&self) -> Option<(Epoch, Time)> {
        (!self.0.ended()).then(|| (self.0.epoch(), self.0.stamp()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_time_before_first_epoch_is_bounded_by_applied_time_and_clock() {
        let wall = Time(1_800_000_000_000);
        assert_eq!(ledger_time(wall, Time(0)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(-9_000)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(9_000)), wall.plus_ms(9_000), "it does not go back");
        let hours_ago = wall.plus_ms(-3 * 3_600_000);
        assert_eq!(ledger_time(wall, hours_ago), hours_ago.plus_ms(15_000), "a wrong clock is heard for seconds");
    }
}
