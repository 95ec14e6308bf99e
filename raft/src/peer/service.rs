//! The part of the peer service that the application answers: leases, barriers, clocks.
//!
//! Implemented by the cluster crate and given to [`crate::Replica::start`]. Plain types: whoever
//! implements it knows neither the wire nor the transport.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::{ClaimOwner, Epoch, Fence, Hash, Incarnation, NodeId, RunId, Time};

use crate::identity::ClusterId;

/// A node asks the leader to prolong its right to pass gates (P9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseQuestion {
    /// Who asks: one life of one node.
    pub holder: ClaimOwner,
    /// The index that it has applied.
    pub applied: u64,
    /// Parts of audiences that it needs and cannot read (P20).
    pub lacking: Vec<Hash>,
    /// What it has measured (P12).
    pub measured: Measured,
    /// It stops: it passes no gate any more, and wants no claims.
    pub stopping: bool,
}

/// What a node has measured lately: by that the leader decides how far ahead it may claim (P12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Its relays, by name.
    pub relays: BTreeMap<String, RelayFlow>,
    /// How long an outcome takes from its verdict into the ledger, in whole milliseconds; none: not known.
    pub settle: Option<Duration>,
}

/// One relay as one node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayFlow {
    /// How long a dialogue takes, in whole milliseconds; none: not known.
    pub dialogue: Option<Duration>,
    /// Mails a second that the node may send through it now, in thousandths.
    pub rate_milli: u64,
}

/// The leader's answer to a [`LeaseQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease ends this long after the question was *sent*.
    Granted {
        /// How long, in whole milliseconds.
        lease: Duration,
        /// The leader's epoch.
        epoch: Epoch,
        /// A gate passes under this grant only when it decides by a state that includes this entry.
        floor: u64,
    },
    /// No lease, and why, for the log of the node that asked.
    Refused(String),
}

/// What a barrier is about (P15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// Nothing more goes to these recipients of a tenant.
    OptedOut {
        /// Tenant.
        tenant: String,
        /// Address keys.
        keys: BTreeSet<String>,
    },
    /// Nothing more of this run is handed off.
    Run(RunId),
}

/// The leader asks whether this node's gates decide by a state that includes an entry (P15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierQuestion {
    /// The entry's index.
    pub index: u64,
    /// What it forbids.
    pub about: About,
    /// How long the leader waits for the answer.
    pub patience: Duration,
}

/// The answer to a [`BarrierQuestion`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BarrierAnswer {
    /// The gates know the entry. False: not within the leader's patience.
    pub confirmed: bool,
    /// The life that answers: only its own hand-offs are known to it.
    pub incarnation: Incarnation,
    /// What was past the gate then, and may still arrive.
    pub crossed: Vec<Crossed>,
    /// What its state included when that was read. What is not listed because that state has settled it, or holds
    /// it in doubt, is so in every state that includes this entry.
    pub applied: u64,
}

/// A hand-off that was past the gate when a barrier was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// Its run.
    pub run: RunId,
    /// The recipient's number in the run.
    pub recipient: u32,
    /// Its row.
    pub fence: Fence,
}

/// What a node's clocks say (P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: Time,
    /// Milliseconds since boot, suspended time included.
    pub boot_ms: u64,
}

/// What the leader found out by holding a barrier (P15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BarrierReport {
    /// Hand-offs that may still arrive.
    pub crossed: Vec<Crossed>,
    /// Nodes that were waited out: nothing more is handed off there, what had been is not known yet.
    pub unconfirmed: Vec<NodeId>,
}

/// A part of an audience that is made of a number (P20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MakePart {
    /// Tells one made audience from another.
    pub seed: u64,
    /// Recipients of the audience.
    pub rows: u32,
    /// Names of their variables.
    pub columns: Vec<String>,
    /// Which part.
    pub number: u32,
}

/// A piece of a part of an audience (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPart {
    /// Which part.
    pub part: Hash,
    /// From which byte on.
    pub offset: u64,
}

/// A part of an audience that a node is to take over from another one (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakePart {
    /// Which part.
    pub part: Hash,
    /// Who has it.
    pub holder: NodeId,
}

/// Who a node is, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its id.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// `host:port` at which its peers reach it.
    pub address: String,
    /// The cluster that it belongs to, if any.
    pub cluster: Option<ClusterId>,
    /// Its life.
    pub incarnation: Incarnation,
    /// The index that it has applied.
    pub applied: u64,
    /// Hashes of its state, by the index at which each was taken.
    pub checkpoints: BTreeMap<u64, Hash>,
    /// Its wall clock.
    pub wall: Time,
    /// Version of the program.
    pub version: String,
    /// Release of its time zone database.
    pub tzdb: String,
    /// Why it takes no parts of audiences now; empty when there is room.
    pub no_room: String,
    /// It gives back what it has, and ends.
    pub stopping: bool,
}

/// What the application answers to its peers. Each call is given up by its caller after a time-out, so an
/// implementation may wait, and must keep its promises when the future is dropped.
#[async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// As leader: grants or refuses a node lease (P9). Only asked of the node that is believed to lead.
    async fn renew_lease(&self, question: LeaseQuestion) -> LeaseAnswer;
    /// As holder: waits until the gates know the entry, then names what has crossed (P15).
    async fn barrier(&self, question: BarrierQuestion) -> BarrierAnswer;
    /// As leader: holds a barrier until no gate on any node decides without the entry (P15). An error is why
    /// it could not: ask whoever leads now.
    async fn hold_barrier(&self, question: BarrierQuestion) -> Result<BarrierReport, String>;
    /// As leader: hands its leadership over to that node.
    async fn hand_over(&self, to: NodeId, patience: Duration) -> Result<(), String>;
    /// Writes a part of an audience, and answers its hash when it is synced (P20); or why it could not.
    async fn make_part(&self, question: MakePart) -> Result<Hash, String>;
    /// Some bytes of a part of an audience and how many it has in all (P20); none where it is not here.
    async fn fetch_part(&self, question: FetchPart) -> Option<(Vec<u8>, u64)>;
    /// Which of these parts are not here; those that are stay for an hour at least (P20). Or why it cannot tell.
    async fn hold_parts(&self, parts: Vec<Hash>) -> Result<Vec<Hash>, String>;
    /// Takes a part over from another node, and answers when it is synced (P20); or why it could not.
    async fn take_part(&self, question: TakePart) -> Result<(), String>;
    /// Says who this node is and how it stands; also to strangers.
    async fn describe(&self) -> Option<Description>;
    /// Reads the clocks (P18).
    fn clock(&self) -> ClockReading;
}
