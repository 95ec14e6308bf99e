//! Everything that may be asked of the ledger. One log entry holds one [`Entry`].
//!
//! Commands carry time and chance as data; `apply` sees neither a clock nor a zone table (P2). The
//! enumeration is closed: an ordinal that this build does not know stops the node (P23), so variants are
//! only ever added at the end, and a changed meaning is a new variant.

use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::bitmap::Bitmap;
use crate::content::{Audience, AudienceChoice, Content, Seal};
use crate::decide::calendar::When;
use crate::fingerprint::fingerprint;
use crate::form;
use crate::ids::{ClaimOwner, Epoch, Fence, Hash, NodeId, Nominal, RunId, ScheduleId, Time};
use crate::instant_range::InstantRange;
use crate::labels::Labels;
use crate::level::GENESIS_LEVEL;
#[cfg(doc)]
use crate::limits::Limits;
use crate::policy::Policies;
use crate::pool::PoolSet;
use crate::tenant::TenantSet;

/// Bytes of one encoded entry; a larger one is refused before it is proposed.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// What one log entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The epoch of the leader that proposed it (P13). `EpochStart` carries zero: it makes one.
    pub epoch: Epoch,
    /// What the leader's clock said when it was proposed (P18): ledger time, but for the offset of a test
    /// clock, which `apply` adds (P19). So no stamp is stale because the clock was moved after it was given.
    /// Ignored on `EpochStart`.
    pub now: Time,
    /// What is asked.
    pub command: Command,
}

/// The closed set of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A new leader's first entry.
    EpochStart(EpochStart),
    /// Nothing but time: an idle leader commits one every ten seconds.
    Tick,
    /// A process says that it lives (P10).
    NodeUp(NodeUp),
    /// Adds a relay or changes one.
    RelayPut(RelayPut),
    /// Removes a relay by name.
    RelayRemove(String),
    /// Creates a schedule.
    ScheduleCreate(Box<ScheduleCreate>),
    /// Stops a schedule from firing.
    SchedulePause(SchedulePause),
    /// Lets a schedule fire again.
    ScheduleResume(ScheduleResume),
    /// Deletes a schedule; its open runs go on.
    ScheduleDelete(ScheduleId),
    /// Opens one run of a schedule now, named by its request.
    Trigger(Trigger),
    /// Opens what is due (P8).
    Fire(Vec<Fire>),
    /// Gives slices to owners (P4).
    Claim(Vec<ClaimRequest>),
    /// Records outcomes of rows (P14).
    Settle(Vec<ClaimOutcome>),
    /// The leader closes the rows of owners whose lease is over (P9): in doubt, "owner lost".
    Revoke(Vec<Fence>),
    /// What a run has not sent by its deadline expires (P16).
    Expire(Vec<RunId>),
    /// Pauses a run: no gate passes after the barrier (P15).
    RunPause(RunPause),
    /// Lets a paused run go on.
    RunResume(RunResume),
    /// Cancels what a run has not sent.
    RunCancel(RunId),
    /// Decides what is in doubt.
    Decide(Decide),
    /// Sends dead recipients again, with attempts counted anew.
    Requeue(Requeue),
    /// Takes dead recipients off the list; they stay dead.
    Discard(Vec<PickedRecipients>),
    /// Nothing is sent to this recipient of a tenant any more (P15).
    OptOut(OptOut),
    /// Takes an item that makes the leader fail out of the way (P13).
    Quarantine(Quarantine),
    /// Gives the cluster a clock that is moved by hand (P19): for good, and before anything else is in it.
    TestClock,
    /// Moves the test clock forward (P19).
    Advance(Advance),
    /// Changes a schedule.
    ScheduleEdit(Box<ScheduleEdit>),
    /// Opens occurrences that the plan has left behind unopened (P7).
    Backfill(Backfill),
    /// Forgets what is older than it has to be kept (P24).
    Prune(Prune),
    /// What another release of the zone database makes of schedules' next instants (I10).
    Replan(Vec<Replan>),
    /// Opens a run of one mail, whose schedule is gone in the same entry.
    SendTest(Box<SendTest>),
    /// Makes a large audience known by its seal (P20).
    AudienceSeal(AudienceSeal),
    /// Forgets a sealed audience that no schedule names.
    AudienceDelete(AudienceDelete),
    /// Makes a campaign known: a draft.
    CampaignCreate(Box<CampaignCreate>),
    /// Lets a campaign open at its instant.
    CampaignLaunch(CampaignLaunch),
    /// Decides about a launched campaign whose audience was not sealed.
    CampaignArm(CampaignArm),
    /// Ends a campaign.
    CampaignCancel(CampaignName),
    /// Forgets a campaign that is over.
    CampaignDelete(CampaignName),
    /// Whether some live node has what runs are sent from (P20).
    RunBlock(Vec<RunBlock>),
    /// Sets bounds of a tenant (P12, P25).
    TenantSet(TenantSet),
    /// Takes the bounds of a tenant away, by its name.
    TenantRemove(String),
    /// Takes an opt-out back: mail goes to this recipient again (P15).
    OptOutTakeBack(OptOutTakeBack),
    /// Bounds what goes by a pool on each of its first days (P25), or says whether its emails carry `X-Reveille-*`.
    PoolSet(PoolSet),
    /// Takes away what is set of a pool.
    PoolReset(String),
    /// Raises the ledger's level, after which commands and row forms of that level may be used (P23).
    RaiseLevel(RaiseLevel),
    /// Changes nothing.
    #[cfg(feature = "next-level")]
    OfNextLevel,
}

/// One voter's clock at the start of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterClock {
    /// Whose.
    pub node: NodeId,
    /// Its wall clock.
    pub wall: Time,
}

/// See [`Command::EpochStart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The leader.
    pub leader: ClaimOwner,
    /// Number of voters in the cluster.
    pub voters: u32,
    /// The clocks that answered, the leader's own among them.
    pub readings: Vec<VoterClock>,
    /// How long the leader's machine has run, where it knows: what a single voter's clock is held against.
    pub machine: Option<MachineClock>,
    /// An operator has looked at a single voter's clock: it is taken, however far it was moved.
    pub accept_clock: bool,
}

impl EpochStart {
    /// With wall clocks alone.
    pub fn new(leader: ClaimOwner, voters: u32, readings: Vec<VoterClock>) -> EpochStart {
        EpochStart { leader, voters, readings, machine: None, accept_clock: false }
    }
}

/// The clock of one machine that nobody sets (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClock {
    /// Names one life of one machine: a hash of its boot id.
    pub boot: u64,
    /// How long that life has lasted, sleep included. Milliseconds.
    pub boot_ms: u64,
}

/// See [`Command::NodeUp`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUp {
    /// The node and its new life.
    pub owner: ClaimOwner,
    /// Its name, for people.
    pub name: String,
    /// The highest ledger level that it can apply (P23).
    pub level: u32,
    /// Drawn by the process: tells a repeat of this entry from another life with an old data folder.
    pub process_nonce: u64,
}

/// An SMTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Unique name.
    pub name: String,
    /// Pool: relays that share reputation.
    pub pool: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Its encryption, and as whom it is entered.
    pub access: Access,
    /// Mails a second over the whole cluster, in thousandths; zero means no bound.
    pub rate_milli: u64,
    /// Open dialogues on one node, waiting ones included (P12).
    pub max_sessions: u32,
    /// Late mails a second over the whole cluster, in thousandths; zero means half of the rate (P16).
    pub late_rate_milli: u64,
    /// Its share of what its pool sends, beside those of the other relays with room; 1 or more.
    pub weight: u32,
}

impl Relay {
    /// P16: late mails a second, in thousandths, at most; none where there is no bound.
    pub fn late_bound_milli(&self) -> Option<u64> {
        match (self.late_rate_milli, self.rate_milli) {
            (0, 0) => None,
            (0, rate) => Some(rate.div_ceil(2)),
            (late, 0) => Some(late),
            (late, rate) => Some(late.min(rate)),
        }
    }
}

/// See [`Command::RelayPut`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPut {
    /// The relay.
    pub relay: Relay,
    /// Takes the place of a relay of that name with another body.
    pub replace: bool,
    /// Request id, where the caller gave one.
    pub request: Option<String>,
}

impl From<Relay> for RelayPut {
    /// Whatever was there before.
    fn from(relay: Relay) -> RelayPut {
        RelayPut { relay, replace: true, request: None }
    }
}

/// See [`Command::ScheduleCreate`]. `request` is what makes it idempotent beyond its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleCreate {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Name, unique in the tenant.
    pub name: String,
    /// When it fires, in which zone.
    pub when: When,
    /// IANA name of the zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most.
    pub max_runs: Option<u32>,
    /// Policies.
    pub policies: Policies,
    /// Pool of relays.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// Paused from the start, with the reason.
    pub paused: Option<String>,
    /// Content.
    pub content: Content,
    /// Audience.
    pub audience: AudienceChoice,
    /// Instants after this one are the schedule's to open or explain.
    pub after: Time,
    /// The first of them, computed by the proposer with `tzdb`.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
    /// By which people group it.
    pub labels: Labels,
}

/// The next instant of a schedule that is neither opened nor explained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextInstant {
    /// Its name.
    pub nominal: Nominal,
    /// When it is due.
    pub due: Time,
    /// How long after that it opens: its place in the schedule's window (`jitter`). Milliseconds.
    pub jitter_ms: i64,
}

impl NextInstant {
    /// When it opens.
    pub fn opens(&self) -> Time {
        self.due.plus_ms(self.jitter_ms)
    }

    /// Is its place in a window of this width?
    pub fn is_within(&self, window_ms: i64) -> bool {
        self.jitter_ms == 0 || (0..window_ms).contains(&self.jitter_ms)
    }
}

/// Why an instant did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnopenedReason {
    /// A later missed instant stands for it (`catch_up = one`).
    Coalesced,
    /// `catch_up = none`, and it was missed.
    NoCatchUp,
    /// Later than `start_within`.
    TooLate,
    /// The local time or date does not exist and the policy says skip; or it was planned by rules of the
    /// zone that have changed since, and is another instant now or none.
    DoesNotExist,
    /// An instant of that name has opened already: the zone's rules were changed in between (P7).
    OpenedBefore,
    /// It was missed while the schedule did not fire, or waited, and then the schedule got another timing.
    Edited,
    /// A former run was not finished, and `overlap = skip`.
    Overlap,
    /// It waited for a former run (`buffer_one`), or would have been cancelled at once (`cancel_other`), and a
    /// later instant stands for it.
    Superseded,
}

/// What became of an instant that did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// A later one stands for it.
    Coalesced,
    /// It was left out.
    Skipped,
    /// It was too late.
    Expired,
    /// It must not open.
    Refused,
}

impl Unopened {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            Unopened::Coalesced => "coalesced",
            Unopened::Skipped => "skipped",
            Unopened::Expired => "expired",
            Unopened::Refused => "refused",
        }
    }
}

impl UnopenedReason {
    /// What became of the instant.
    pub fn outcome(self) -> Unopened {
        match self {
            UnopenedReason::Coalesced | UnopenedReason::Superseded => Unopened::Coalesced,
            UnopenedReason::NoCatchUp
            | UnopenedReason::DoesNotExist
            | UnopenedReason::Edited
            | UnopenedReason::Overlap => Unopened::Skipped,
            UnopenedReason::TooLate => Unopened::Expired,
            UnopenedReason::OpenedBefore => Unopened::Refused,
        }
    }

    /// The policy or the cause, in one word.
    pub fn word(self) -> &'static str {
        match self {
            UnopenedReason::Coalesced | UnopenedReason::NoCatchUp => "catch_up",
            UnopenedReason::TooLate => "start_within",
            UnopenedReason::DoesNotExist => "does_not_exist",
            UnopenedReason::Edited => "edited",
            UnopenedReason::Overlap | UnopenedReason::Superseded => "overlap",
            UnopenedReason::OpenedBefore => "opened_before",
        }
    }
}

/// A range of instants of one schedule that were not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRange {
    /// The first.
    pub first: Nominal,
    /// Those after it.
    pub instants: InstantRange,
    /// Why.
    pub reason: UnopenedReason,
}

impl ExplainedRange {
    /// How many.
    pub fn count(&self) -> u32 {
        self.instants.count()
    }

    /// The last.
    pub fn last(&self) -> Nominal {
        self.instants.last(&self.first)
    }
}

/// Why an occurrence opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpeningCause {
    /// It was due.
    Due,
    /// It was missed and caught up.
    CatchUp,
    /// Somebody triggered it.
    Trigger,
    /// Somebody backfilled it.
    Backfill,
    /// Somebody wants to see one mail arrive.
    Test,
}

impl OpeningCause {
    /// P16: is it sent at the rate of what is late? What only waited for a run is not.
    pub fn is_late(self) -> bool {
        matches!(self, OpeningCause::CatchUp | OpeningCause::Backfill)
    }
}

/// An occurrence that opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its name.
    pub nominal: Nominal,
    /// When it was due.
    pub due: Time,
    /// Why it opens.
    pub cause: OpeningCause,
    /// What is not sent by then expires.
    pub finish_by: Time,
}

/// One schedule's part of a [`Command::Fire`]: a compare-and-set on its plan (P8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fire {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// Must equal the plan's next instant.
    pub from: Nominal,
    /// What opens, in order.
    pub opened: Vec<Opening>,
    /// What does not, and why, in order.
    pub explained: Vec<ExplainedRange>,
    /// Every instant up to here, this one included, is opened or explained by this fire.
    pub through: Time,
    /// The plan's next instant from now on.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}

/// See [`Command::ScheduleEdit`]: what is not named stays. Runs that are open keep what they opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEdit {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Hash of what was asked for: tells a repeat of the request from another one under its id.
    pub body: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// When it fires. Must be there where `policies` change what the calendar gives.
    pub timing: Option<TimingChange>,
    /// Policies.
    pub policies: Option<Policies>,
    /// Pool of relays.
    pub pool: Option<String>,
    /// Higher goes first within the tenant.
    pub priority: Option<u8>,
    /// Content.
    pub content: Option<Content>,
    /// Audience.
    pub audience: Option<AudienceChoice>,
    /// By which people group it; all of them.
    pub labels: Option<Labels>,
}

/// Another timing of a schedule, and what becomes of the former one (P8): its instants up to `through` are
/// opened or explained, those after it are none any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingChange {
    /// When it fires.
    pub when: When,
    /// IANA name of the zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most, those before the edit among them.
    pub max_runs: Option<u32>,
    /// The former timing holds up to here, the new one after it. Not above ledger time.
    pub through: Time,
    /// Of a schedule that fires: what of the former timing is due.
    pub due: Option<Fire>,
    /// Of a schedule that does not fire: what of the former timing was missed.
    pub explained: Vec<ExplainedRange>,
    /// The first instant of the new timing after `through`.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}

/// See [`Command::SchedulePause`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Why, for people.
    pub reason: String,
}

/// See [`Command::ScheduleResume`]: what fell in the pause is explained in the same entry, or fires
/// after it by `catch_up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleResume {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
}

/// See [`Command::Trigger`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The schedule.
    pub schedule: ScheduleId,
    /// The occurrence's name: the same request id never opens a second run.
    pub request: String,
}

/// See [`Command::Backfill`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Hash of what was asked for: tells a repeat of the request from another one under its id.
    pub body: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// What opens, in order; what has opened before is left out when this is applied.
    pub openings: Vec<Opening>,
    /// Of what was asked for, what the proposer left out because it had opened before.
    pub known: u32,
    /// Where a backfill of what the proposer did not look at begins.
    pub rest: Option<Time>,
}

/// See [`Command::SendTest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendTest {
    /// The run's name, and what makes it idempotent.
    pub request: String,
    /// Tenant.
    pub tenant: String,
    /// Pool of relays.
    pub pool: String,
    /// Content.
    pub content: Content,
    /// One recipient.
    pub audience: Audience,
    /// As of a schedule, but that there is one attempt, and no other run stands in its way. In the command, because the
    /// defaults of two releases may differ.
    pub policies: Policies,
}

/// One schedule's part of a [`Command::Replan`]: a compare-and-set on its plan. What is due by then is the
/// next fire's to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replan {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// Must equal the plan's next instant.
    pub from: NextInstant,
    /// The plan's next instant from now on.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}

/// See [`Command::AudienceSeal`]. Whoever proposes it knows its parts on the disks of a majority (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceSeal {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Its name and its parts.
    pub seal: Seal,
}

/// See [`Command::AudienceDelete`]. Runs that are there keep the seal, and with it the parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceDelete {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
}

/// See [`Command::CampaignCreate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignCreate {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Name, unique among campaigns and schedules of the tenant.
    pub name: String,
    /// When it is to be sent.
    pub due: Time,
    /// IANA name of the zone in which that was said.
    pub zone: String,
    /// Name of the audience, sealed or to be sealed.
    pub audience: String,
    /// Content.
    pub content: Content,
    /// Policies.
    pub policies: Policies,
    /// Somebody chose its `finish_by`; if not, it is forecast when it is launched.
    pub finish_by_given: bool,
    /// Pool of relays.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// By which people group it.
    pub labels: Labels,
}

impl ScheduleCreate {
    /// Hash of what makes two creates the same: all but the request id and what the proposer computed.
    pub fn body(&self) -> Hash {
        fingerprint(&ScheduleCreate { request: None, after: Time(0), next: None, tzdb: String::new(), ..self.clone() })
    }
}

impl CampaignCreate {
    /// Hash of what it makes, whoever asks for it: the same again is the same campaign.
    pub fn body(&self) -> Hash {
        fingerprint(&("campaign", &CampaignCreate { request: None, ..self.clone() }))
    }
}

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignName {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
}

impl CampaignName {
    /// Its key.
    pub fn place(&self) -> (String, String) {
        (self.tenant.clone(), self.name.clone())
    }
}

/// See [`Command::CampaignArm`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignArm {
    /// Which.
    pub campaign: CampaignName,
    /// The seal against which the proposer has compiled the content: where it is another one by now, or none, the
    /// campaign waits on and is looked at again.
    pub checked: Option<Hash>,
    /// Why its content cannot be sent to that audience, as the proposer found.
    pub wrong: Option<String>,
}

/// See [`Command::CampaignLaunch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignLaunch {
    /// Which.
    pub campaign: CampaignName,
    /// When it is to be sent.
    pub due: Time,
    /// The seal with which the proposer has compiled the content: with another one, or none, the leader does so.
    pub checked: Option<Hash>,
    /// Also where the same content went to the same audience within thirty days.
    pub again: bool,
    /// Version of the proposer's time zone database.
    pub tzdb: String,
}

/// See [`Command::RunBlock`]. A mark for people: what is claimed is decided by what each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlock {
    /// The run.
    pub run: RunId,
    /// A part of its audience that no live node has, by its place in the seal; none: there is no such part any more.
    pub part: Option<u32>,
}

/// See [`Command::Prune`]: what is not old enough when this is applied stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prune {
    /// Pages, by their first run: each of their runs leaves a summary.
    pub pages: Vec<RunId>,
    /// Runs whose summary goes too, and with it their name.
    pub summaries: Vec<RunId>,
    /// Ranges of instants that were explained, by their first.
    pub history: Vec<(ScheduleId, Nominal)>,
}

/// One slice for one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// The recipients asked for, at most [`Limits::slice`].
    pub slice: Bitmap,
    /// Who works it.
    pub owner: ClaimOwner,
}

/// Whom an answer of a relay concerns (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyScope {
    /// This mailbox: the attempt counts.
    Mailbox,
    /// The recipient is deferred (4yz): it waits a back-off of its own, uncounted.
    Greylist,
    /// The relay: it slows or opens its circuit; back to pending, uncounted.
    Relay,
    /// The content, the sender or the tenant: uncounted; ten in a row pause the run.
    Policy,
}

/// A definite refusal of one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The recipient's slot in its chunk.
    pub slot: u16,
    /// Basic code, 400 to 599; 0 where no relay could be asked, and the text says why.
    pub code: u16,
    /// Enhanced status code, where the answer had one.
    pub enhanced: Option<(u8, u16, u16)>,
    /// The answer's text without the codes, cleaned and cut by the lane.
    pub text: String,
    /// Whom it concerns.
    pub scope: ReplyScope,
    /// Of a permanent answer: hash of its words without what differs by recipient, computed by the node. Zero: none.
    pub words: u32,
}

/// Why no relay can be given an email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsendable {
    /// It cannot be composed; the words are the node's, and empty where this stands for several causes.
    NotComposed(String),
    /// An address in it is not ASCII, and no relay of its pool offers SMTPUTF8 (RFC 6531).
    NoSmtpUtf8,
}

impl Unsendable {
    /// The cause, for people.
    pub fn text(&self) -> &str {
        match self {
            Unsendable::NotComposed(words) => words,
            Unsendable::NoSmtpUtf8 => {
                "an address in it is not ASCII, and no relay of its pool offers SMTPUTF8 with 8BITMIME"
            }
        }
    }
}

/// Why a recipient was given back although no relay was asked to take it, or none that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// It was not begun within ten seconds (P12): its relays' sessions, or those of its node, were busy.
    Busy,
    /// It was not begun within ten seconds (P12): it was not its turn at the rate of its relays.
    Paced,
    /// The relay had closed an idle session, and politely so.
    SessionEnded,
    /// Its row had been taken from its owner (P9).
    NotInClaim,
    /// Its run was paused.
    RunPaused,
    /// Its run had ended.
    RunEnded,
    /// Its run's deadline had passed.
    PastDeadline,
    /// The lease of its node was over (P9).
    LeaseOver,
    /// The journal of its node could not be written (P11).
    JournalFailed,
    /// Its node was stopping.
    Stopping,
    /// Its owner died before it had begun, as the journal that it left proves (P10).
    OwnerDied,
    /// Its owner died while it prepared it, as the journal that it left proves (P12).
    OwnerDiedPreparing,
}

/// Who says what became of a row's recipients (P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeSource {
    /// The life that holds it.
    Owner,
    /// A later life of its node, from a journal that proves what it says.
    Journal,
    /// A later life of its node, which found no journal that proves anything.
    NoJournal,
}

/// Who decided what is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// An operator.
    Operator,
    /// The policy of the run.
    Policy,
}

/// What became of recipients of one row. A recipient that stands in none of the sets stays in the row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// The row.
    pub fence: Fence,
    /// Who says so.
    pub source: OutcomeSource,
    /// Answered 250 to the final dot.
    pub accepted: Bitmap,
    /// Definitely not handed off, and why: back, or what the run now demands. Who was being prepared when the
    /// owner died is named as such: only recovery says so, from a journal that proves it (P12).
    pub released: Vec<(ReleaseReason, Bitmap)>,
    /// Definitely not handed off because the recipient opted out.
    pub suppressed: Bitmap,
    /// Definitely refused.
    pub refused: Vec<Refused>,
    /// The terminator may have been written and no answer is known.
    pub in_doubt: Bitmap,
    /// Definitely not handed off, and no relay can be given it: dead at once, with the cause.
    pub unsendable: Vec<(u16, Unsendable)>,
    /// Of those who were being prepared when the owner died: nothing else was on that node then.
    pub alone: bool,
    /// Of a test mail: which relay was asked, and in which words it took the mail.
    pub relay_reply: Option<RelayReply>,
}

/// A relay that was asked to take a test mail, and its answer to a final dot that it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReply {
    /// The relay.
    pub relay: String,
    /// 250, or another 2yz; zero where it did not take it: what it said then is in the refusal.
    pub code: u16,
    /// Enhanced status code.
    pub enhanced: Option<(u8, u16, u16)>,
    /// Its words, cleaned and cut by the lane.
    pub text: String,
}

impl ClaimOutcome {
    /// An outcome that says nothing yet.
    pub fn empty(page: RunId, chunk: u32, fence: Fence) -> ClaimOutcome {
        ClaimOutcome {
            page,
            chunk,
            fence,
            source: OutcomeSource::Owner,
            accepted: Bitmap::new(),
            released: Vec::new(),
            suppressed: Bitmap::new(),
            refused: Vec::new(),
            in_doubt: Bitmap::new(),
            unsendable: Vec::new(),
            alone: false,
            relay_reply: None,
        }
    }

    /// Adds somebody who was not handed off.
    pub fn release(&mut self, why: ReleaseReason, slot: u16) {
        match self.released.iter_mut().find(|(known, _)| *known == why) {
            Some((_, slots)) => drop(slots.insert(slot)),
            None => self.released.push((why, [slot].into_iter().collect())),
        }
    }

    /// All who were not handed off, whyever.
    pub fn all_released(&self) -> Bitmap {
        let mut all = Bitmap::new();
        self.released.iter().for_each(|(_, slots)| all.add(slots));
        all
    }

    /// Those who were being prepared when the owner died (P12).
    pub fn was_open(&self) -> Bitmap {
        let open = self.released.iter().filter(|(why, _)| *why == ReleaseReason::OwnerDiedPreparing);
        open.fold(Bitmap::new(), |mut all, (_, slots)| {
            all.add(slots);
            all
        })
    }
}

/// See [`Command::Advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advance {
    /// Ledger time after it: later than before it, and unless it jumps not beyond the next due instant.
    pub to: Time,
    /// Leaps over what falls due in between, as an outage would; the policies decide what becomes of it.
    pub jump: bool,
}

/// See [`Command::RunPause`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPause {
    /// The run.
    pub run: RunId,
    /// Why, for people.
    pub reason: String,
}

/// See [`Command::RunResume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResume {
    /// The run.
    pub run: RunId,
    /// Its canary has held it, and it is to go on without. Compared with how that stands: whoever has not seen the
    /// verdict overrules none.
    pub without_canary: bool,
}

/// What a person or a policy decides of a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Closed as `assumed`; never counted as sent.
    Assume,
    /// Pending again: may come twice, by choice.
    Resend,
}

/// See [`Command::Decide`]. `recipients` by number within the run; empty means all that are in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decide {
    /// The run.
    pub run: RunId,
    /// Which recipients.
    pub recipients: Vec<u32>,
    /// What.
    pub decision: Decision,
    /// Who decides.
    pub by: Decider,
    /// The newest hand-off that was looked at: a doubt of a later one stays. None: all doubts are meant.
    pub up_to: Option<Fence>,
    /// The client's key: asked again with the same body, it decides nothing more.
    pub request: Option<String>,
}

/// Recipients of one run, by number; empty means all that the command can mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickedRecipients {
    /// The run.
    pub run: RunId,
    /// Which recipients.
    pub recipients: Vec<u32>,
}

/// See [`Command::Requeue`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// Whom.
    pub picked: Vec<PickedRecipients>,
    /// By which pool they go from now on; none: by the one they went by.
    pub pool: Option<String>,
}

/// Address keys of one opt-out. A key has at most 320 bytes, so the entry has at most 320 KB.
pub const OPT_OUTS_MAX: usize = 1_000;

/// See [`Command::OptOut`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOut {
    /// Tenant.
    pub tenant: String,
    /// The recipients' address keys; at most [`OPT_OUTS_MAX`].
    pub keys: Vec<String>,
}

/// See [`Command::OptOutTakeBack`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOutTakeBack {
    /// Tenant.
    pub tenant: String,
    /// The recipient's address key.
    pub key: String,
    /// The last entry by which it opted out, as whoever asks knows it: a later one stands.
    pub last: u64,
    /// What it rests on, for people.
    pub reason: String,
}

/// What a leader takes out of the way after its second panic on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quarantined {
    /// A schedule becomes `blocked`.
    Schedule(ScheduleId),
    /// A run becomes `paused`.
    Run(RunId),
}

/// See [`Command::Quarantine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// What.
    pub item: Quarantined,
    /// Why.
    pub cause: String,
}

/// See [`Command::RaiseLevel`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseLevel {
    /// The new level.
    pub level: u32,
    /// The voters, as the proposer knows them: each must have announced the level.
    pub voters: Vec<NodeId>,
}

impl Command {
    /// The lowest level of the ledger at which this command may be proposed (P23). A command that a later release
    /// adds gets its own arm here, with the level of that release.
    pub fn level(&self) -> u32 {
        match self {
            #[cfg(feature = "next-level")]
            Command::OfNextLevel => crate::level::KNOWN,
            _ => GENESIS_LEVEL,
        }
    }
}

impl Entry {
    /// The bytes that go into the log.
    pub fn to_bytes(&self) -> Vec<u8> {
        form::encode(self)
    }

    /// Reads an entry; bytes left over, an unknown form or ordinal or a set in another form is an error, and the
    /// node that meets one in its log stops (P23).
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, Unreadable> {
        form::decode(bytes)
    }
}

/// A log entry or a stored row that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not readable by this build: {0}")]
pub struct Unreadable(pub String);
