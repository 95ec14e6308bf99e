//! Requests between the nodes of a cluster in addition to Raft's own: leases, barriers, clocks, files.
//!
//! [`ask`] sends one of them as an opaque request of `reveille_raft`; the peer handler of the other node decodes it
//! with [`decode`] and answers with [`reply`]. The encoding is JSON, so that nodes of two releases understand each
//! other during an upgrade: unknown fields are ignored, and a field that a release adds has `#[serde(default)]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reveille_ledger::command::Actor;
use reveille_ledger::ids::{AuthorityId, ClaimOwner, Fence, Hash, Incarnation, NodeId, RunId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_raft::peer::{ApplicationRequest, Peer, PeerError, Rejection};
use reveille_raft::tls::TrustReport;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::maintenance::scrub_report::ScrubReport;
use crate::monitoring::disk_reserve::{DiskSpace, Shortage};

/// One kind of request.
pub trait TypedRequest: Serialize {
    /// Name of the request, for logs and metrics.
    const NAME: &'static str;
    /// True if the answer may be about a megabyte.
    const BULK: bool;
    /// Type of the answer.
    type Answer: Serialize + DeserializeOwned;
    /// Wraps the request in a [`PeerRequest`].
    fn into_request(self) -> PeerRequest;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($request:ty) -> $answer:ty, bulk: $bulk:literal;)*) => {
        /// The closed list of requests.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum PeerRequest {
            $($(#[$doc])* $name($request),)*
        }

        $(impl TypedRequest for $request {
            const NAME: &'static str = stringify!($name);
            const BULK: bool = $bulk;
            type Answer = $answer;

            fn into_request(self) -> PeerRequest {
                PeerRequest::$name(self)
            }
        })*
    };
}

requests! {
    /// To the leader: prolongs the sender's lease (P9).
    RenewLease(LeaseRequest) -> Result<GrantedLease, String>, bulk: false;
    /// To a claim owner: asks if its gates decide by a state that includes an entry (P15).
    Barrier(BarrierRequest) -> BarrierAnswer, bulk: false;
    /// To the leader: holds a barrier until no gate on any node decides without an entry (P15).
    HoldBarrier(HoldBarrier) -> Result<BarrierReport, String>, bulk: false;
    /// To the leader: asks it to transfer its leadership.
    HandOver(HandOver) -> Result<(), String>, bulk: false;
    /// To the leader: asks it to drain or remove a member (P22).
    ChangeMember(ChangeMember) -> Result<ChangedMember, MemberRefusal>, bulk: false;
    /// Asks a node for its clocks (P18).
    Clock(ReadClock) -> ClockReading, bulk: false;
    /// Asks a node for its description.
    Describe(Describe) -> Description, bulk: false;
    /// Asks for a piece of a file. `None`: the node does not have it.
    FetchFile(FetchFile) -> Option<FilePiece>, bulk: true;
    /// Asks which of these audience parts the node lacks. It keeps the others for at least seven hours (P20).
    FindMissingParts(FindMissingParts) -> Result<Vec<Hash>, String>, bulk: false;
    /// Asks which of these blocks of the archive the node cannot read (P24).
    FindUnreadableBlocks(FindUnreadableBlocks) -> Result<BTreeSet<Hash>, String>, bulk: true;
    /// Asks a node to fetch an audience part from another node and to answer after it is synced (P20).
    PullPart(PullPart) -> Result<(), String>, bulk: false;
    /// Asks a member for an authority with its key (P22). `None`: it does not have it.
    FetchAuthority(FetchAuthority) -> Option<AuthorityFile>, bulk: false;
    /// Asks a node to check its files at rest now. [`Description`] has the result.
    BeginScrub(BeginScrub) -> (), bulk: false;
}

/// Sends a request and waits at most `limit` for the answer.
pub async fn ask<R: TypedRequest>(peer: &Peer, request: R, limit: Duration) -> Result<R::Answer, PeerError> {
    let payload = encode(&request.into_request())?;
    let answer = peer.ask(ApplicationRequest { name: R::NAME, payload, bulk: R::BULK }, limit).await?;
    serde_json::from_slice(&answer).map_err(|error| PeerError::Lost(format!("the answer can not be read: {error}")))
}

/// Decodes a request.
pub fn decode(payload: &[u8]) -> Result<PeerRequest, Rejection> {
    serde_json::from_slice(payload).map_err(|error| Rejection::Malformed(error.to_string()))
}

/// Encodes an answer.
pub fn reply<R: TypedRequest>(answer: &R::Answer) -> Result<Vec<u8>, Rejection> {
    encode(answer)
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>, Rejection> {
    serde_json::to_vec(message).map_err(|error| Rejection::Malformed(error.to_string()))
}

/// A node asks the leader to prolong its right to pass gates (P9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The process that asks.
    pub owner: ClaimOwner,
    /// The index that the process has applied.
    pub applied: u64,
    /// Audience parts that it needs but cannot read (P20).
    pub missing: Vec<Hash>,
    /// True if it lacks blocks of the archive (P24).
    pub lacks_archive: bool,
    /// Space on its volume.
    #[serde(default)]
    pub space: DiskSpace,
    /// Measurements by which the leader decides how far ahead the node may claim (P12).
    pub measured: NodeMeasurements,
    /// True if the node stops: it passes no more gates and wants no claims. It asks so that its claims stay its own
    /// until they are settled. The answer means that every claim granted before is in the log.
    pub stopping: bool,
}

/// Recent measurements of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMeasurements {
    /// Measurements of each relay, by its name.
    pub relays: BTreeMap<String, RelayFlow>,
    /// Time from an outcome to its entry in the ledger. `None`: not known.
    pub settle: Option<Duration>,
}

/// Measurements of one relay on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayFlow {
    /// Duration of a dialogue. `None`: not known.
    pub dialogue: Option<Duration>,
    /// Emails per thousand seconds that the node may send through the relay now. Zero: none may pass.
    pub rate_milli: u64,
}

/// The leader's answer to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedLease {
    /// Length of the lease, from the time at which the request was sent.
    pub length: Duration,
    /// A gate may pass under this grant only if it decides by a state that includes this index (P9, P15).
    pub floor: u64,
}

/// Subject of a barrier (P15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BarrierSubject {
    /// No more emails go to these recipients of a tenant.
    OptedOut {
        /// The tenant from which they opted out.
        tenant: String,
        /// Address keys of the recipients.
        keys: BTreeSet<String>,
    },
    /// No email of this run is handed off any more.
    Run(RunId),
    /// Each node uses its present share of each relay's rate (P25).
    RelayShares,
}

/// The leader asks whether a node's gates decide by a state that includes an entry (P15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierRequest {
    /// Index of the entry.
    pub index: u64,
    /// Emails that the entry forbids.
    pub subject: BarrierSubject,
}

/// The answer to a [`BarrierRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierAnswer {
    /// True if the gates' state includes the entry. False: it did not in time.
    pub confirmed: bool,
    /// The process that answers. It knows only its own handoffs.
    pub incarnation: Incarnation,
    /// Handoffs that were past the gate and may still arrive.
    pub crossed: Vec<CrossedHandoff>,
    /// Index that the node had applied after reading `crossed`. If this state has settled a handoff or has it in
    /// doubt, the handoff is not listed. Every state that includes this index then has it settled or in doubt too.
    pub applied: u64,
}

/// A handoff that was past the gate when a barrier was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossedHandoff {
    /// The run of the email.
    pub run: RunId,
    /// The recipient's number in the run.
    pub recipient: u32,
    /// Fencing token of the claim.
    pub fence: Fence,
}

/// A node asks the leader to hold a barrier (P15). The answer may be an error text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldBarrier(pub BarrierRequest);

/// Result of holding a barrier (P15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierReport {
    /// Handoffs that may still arrive.
    pub crossed: Vec<CrossedHandoff>,
    /// Nodes that did not answer before their leases ended. They hand off nothing more, and their former handoffs are
    /// not known yet.
    pub unconfirmed: Vec<NodeId>,
}

/// Asks the leader to transfer its leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The node that should lead.
    pub to: NodeId,
}

/// Asks the leader to drain or remove a member (P22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMember {
    /// The member.
    pub member: NodeId,
    /// The change.
    pub change: MemberChange,
    /// The operator who wants it.
    pub actor: Actor,
}

/// A change of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// It gets no more claims.
    Drain,
    /// It gets claims again.
    Undrain,
    /// It runs: it is drained, then removed for good.
    Remove,
    /// It does not run and never will: it is removed for good, and what it had in flight stays in doubt.
    RemoveDead,
}

/// Result of a change of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedMember {
    /// Emails that the member's processes left in doubt.
    pub in_doubt: u64,
    /// Number of voters.
    pub voters: u32,
}

/// Reason why a member was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum MemberRefusal {
    /// The asked node does not lead any more.
    #[error("the leader changed meanwhile")]
    NotLeader,
    /// No node leads, as far as the asked node knows.
    #[error("no leader is known")]
    NoLeader,
    /// The leader did not answer.
    #[error("no answer from the leader: {0}")]
    Unknown(String),
    /// It is not a member.
    #[error("it is not a member")]
    NotAMember,
    /// Without it no voter would be left.
    #[error("it is the only voter")]
    LastVoter,
    /// A node that answers is not dead.
    #[error("it runs")]
    StillRuns,
    /// A node that does not answer cannot be drained.
    #[error("it does not answer")]
    DoesNotAnswer,
    /// The other nodes do not run, or drain.
    #[error("no other node runs that would send")]
    NoOtherSends,
    /// Too few voters have a lease, of the present ones or of those that would be left.
    #[error("{running} of {of} voters run, and {needed} are needed")]
    TooFewRun {
        /// Voters that run.
        running: u32,
        /// Voters.
        of: u32,
        /// Majority of them.
        needed: u32,
    },
    /// The ledger refused it.
    #[error(transparent)]
    Ledger(CommandRefusal),
    /// It was not done in time. A repeat goes on.
    #[error("{0}")]
    Waits(MemberWait),
}

/// What a change of a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum MemberWait {
    /// Emails that the node sends, or gives back.
    #[error("{0} emails are claimed for it")]
    Claimed(u32),
    /// The lease of a dead node.
    #[error("its lease may still run")]
    Lease,
    /// Files that a majority of the voters that are left must have.
    #[error("{0} files (audience parts, attachments) are not on a majority of the other voters yet")]
    Files(usize),
    /// The checks must hold for up to three seconds.
    #[error("that enough other voters run, and have the files, is checked for some seconds")]
    Steady,
    /// The node leads, and hands over.
    #[error("it hands over its leadership")]
    Leadership,
    /// Another change of the members.
    #[error("another change of the members is not finished")]
    Another,
    /// The node is removed, and leaves the membership.
    #[error("it is removed, and leaves the membership when enough voters run")]
    Membership,
    /// A majority of the voters that are left must have all blocks of the archive.
    #[error("a majority of the other voters does not have the whole archive yet")]
    Archive,
}

/// Asks a node for its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadClock;

/// Readings of a node's clocks (P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: Time,
    /// Milliseconds since boot, including suspended time.
    pub boot_ms: u64,
}

/// Asks a node to describe itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Describe;

/// State of a node, for `status` and `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Id of the node that answers. An address may have been given to another node.
    pub node: NodeId,
    /// Incarnation of its process.
    pub incarnation: Incarnation,
    /// Index that it has applied.
    pub applied: u64,
    /// Hashes of its state, by index.
    pub checkpoints: BTreeMap<u64, Hash>,
    /// Wall clock of the node.
    pub wall: Time,
    /// Version of its program.
    pub version: String,
    /// Milliseconds since its process started; `None`: an older release does not say.
    #[serde(default)]
    pub up_ms: Option<u64>,
    /// Release of its time zone database.
    pub tzdb: String,
    /// What its volume lacks for new work or for audience parts. `None` if there is space.
    pub no_room: Option<Shortage>,
    /// True if it is finishing its claims and then ends.
    pub stopping: bool,
    /// Which authorities it trusts and uses (P22). `None` in a cluster without certificates.
    #[serde(default)]
    pub trust: Option<TrustReport>,
    /// Checks of its files at rest.
    #[serde(default)]
    pub scrub: ScrubReport,
}

/// Asks a node to check its files at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginScrub;

/// Asks a member for an authority with its key (P22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchAuthority(pub AuthorityId);

/// An authority with its key: a secret of the members.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[debug("AuthorityFile")]
pub struct AuthorityFile(pub String);

/// A file that nodes fetch from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerFile {
    /// A part of a sealed audience, by its hash (P20).
    AudiencePart(Hash),
    /// A block of the archive, by its hash (P24).
    ArchiveBlock(Hash),
}

/// Asks for a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFile {
    /// The file.
    pub file: PeerFile,
    /// Offset of the piece in bytes.
    pub offset: u64,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    /// Bytes of the file from that offset on.
    #[serde(with = "super::base64_bytes")]
    pub bytes: Vec<u8>,
    /// Size of the whole file in bytes.
    pub total: u64,
}

/// Asks which of these audience parts a node lacks (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindMissingParts(pub Vec<Hash>);

/// Asks which blocks of the archive a node cannot read: of these, and of the first others that it lacks (P24).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindUnreadableBlocks {
    /// Index that the node must have applied: before it, the node may lack a block that it makes later.
    pub applied: u64,
    /// The blocks.
    pub blocks: BTreeSet<Hash>,
}

/// Asks a node to fetch an audience part from another node (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullPart {
    /// Hash of the part.
    pub part: Hash,
    /// The node that has it.
    pub source: NodeId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> PeerRequest {
        let flow = RelayFlow { dialogue: Some(Duration::from_millis(2_000)), rate_milli: 500 };
        LeaseRequest {
            owner: ClaimOwner { node: NodeId(3), incarnation: Incarnation(2) },
            applied: 9,
            missing: vec![Hash([7; 32])],
            lacks_archive: true,
            space: DiskSpace::Short,
            measured: NodeMeasurements { relays: [("one".to_owned(), flow)].into(), settle: None },
            stopping: true,
        }
        .into_request()
    }

    #[test]
    fn request_decodes_to_what_was_sent() {
        let barrier = BarrierRequest { index: 4, subject: BarrierSubject::Run(RunId { index: 7, place: 1 }) };
        for request in [lease(), HoldBarrier(barrier).into_request(), ReadClock.into_request()] {
            assert_eq!(decode(&encode(&request).unwrap()), Ok(request));
        }
    }

    #[test]
    fn piece_decodes_to_what_was_sent() {
        let piece = FilePiece { bytes: (0..=255).collect(), total: 300 };
        let sent = reply::<FetchFile>(&Some(piece.clone())).unwrap();
        assert_eq!(serde_json::from_slice::<Option<FilePiece>>(&sent).unwrap(), Some(piece));
    }

    /// During an upgrade the other node may run the next release.
    #[test]
    fn unknown_field_is_ignored() {
        let text = String::from_utf8(encode(&lease()).unwrap()).unwrap();
        let newer = text.replace("\"applied\":9", "\"applied\":9,\"of_next_release\":{\"a\":1}");
        assert_ne!(newer, text);
        assert_eq!(decode(newer.as_bytes()), Ok(lease()));
    }

    #[test]
    fn other_bytes_are_rejected() {
        assert!(matches!(decode(b"{\"NoSuchRequest\":1}"), Err(Rejection::Malformed(_))));
        assert!(matches!(decode(&[0xff, 0]), Err(Rejection::Malformed(_))));
    }
}
