//! Identifiers and times, as newtypes with their text forms.
//!
//! They are plain data, totally ordered and serialisable, and contain no decisions.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::Run;

/// Number of the only Raft group today. Keys, fences and tokens contain it, so that tenants can be spread over several
/// groups later without a change of format.
pub const GROUP: u32 = 1;

/// An instant: milliseconds since the Unix epoch, UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[display("{}", self.timestamp())]
pub struct Time(pub i64);

impl Time {
    /// The instant `milliseconds` later (earlier when negative), without overflow.
    pub const fn plus_ms(self, milliseconds: i64) -> Time {
        Time(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    pub const fn since_ms(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since 1970; 0 before.
    pub fn unix_s(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default() / 1_000
    }

    /// Converts to jiff's timestamp. Instants outside its range (years -9999 to 9999) become its first or last.
    pub fn timestamp(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        })
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Time {
        Time(timestamp.as_millisecond())
    }
}

/// A node's id: drawn at random with its data folder and never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[display("{_0:x}")]
pub struct NodeId(pub u64);

/// Lifetime of a node process: a number in the data folder that grows at each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// The owner of a claim: one node in one incarnation (P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[display("{}/{}", self.node, self.incarnation.0)]
pub struct ClaimOwner {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

impl ClaimOwner {
    /// Owner of the claims that a restore makes (P21): no node ever had them. Ids of nodes are drawn at random, and are
    /// never 0.
    pub const NONE: ClaimOwner = ClaimOwner { node: NodeId(0), incarnation: Incarnation(0) };
}

/// The time of one leader, as the ledger sees it: the log index of its `EpochStart` (P13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// Fencing token of one claim: unique, totally ordered and growing, across fail-overs and restarts.
///
/// Its text form is `group.epoch.index.place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[display("{}.{}.{}.{}", self.group, self.epoch.0, self.index, self.place)]
pub struct Fence {
    /// Raft group.
    pub group: u32,
    /// Epoch of the leader that proposed the claim.
    pub epoch: Epoch,
    /// Log index of the entry with the claim.
    pub index: u64,
    /// Position of the claim in the entry.
    pub place: u32,
}

/// A text that is not a valid identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {kind} (expected {form})")]
pub struct NotAName {
    pub(super) kind: &'static str,
    pub(super) form: &'static str,
    pub(super) text: String,
}

pub(super) fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut parts = text.split('.');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

impl FromStr for Fence {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Fence, NotAName> {
        let wrong = || NotAName { kind: "fence", form: "GROUP.EPOCH.INDEX.PLACE", text: text.to_owned() };
        let [group, epoch, index, place] = numbers(text).ok_or_else(wrong)?;
        let group = u32::try_from(group).map_err(|_| wrong())?;
        let place = u32::try_from(place).map_err(|_| wrong())?;
        Ok(Fence { group, epoch: Epoch(epoch), index, place })
    }
}

/// Id of a token: drawn at random. It is a part of the token's text, and no secret.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[display("{_0:016x}")]
pub struct TokenId(pub u64);

impl FromStr for TokenId {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<TokenId, NotAName> {
        let id = u64::from_str_radix(text, 16).ok().map(TokenId).filter(|id| id.to_string() == text);
        id.ok_or_else(|| NotAName { kind: "token id", form: "16 hexadecimal digits", text: text.to_owned() })
    }
}

/// Id of a run: the log index of the entry that opened it, and its position in that entry. Its text form is `r1042.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[display("r{index}.{place}")]
pub struct RunId {
    /// Log index of the entry that opened it.
    pub index: u64,
    /// Position in that entry.
    pub place: u32,
}

impl RunId {
    /// Returns the id of a recipient of the run.
    pub fn recipient(self, number: u32) -> RecipientId {
        RecipientId { run: self, number }
    }

    /// Returns the range of the ids of all its recipients.
    pub fn recipients(self) -> RangeInclusive<RecipientId> {
        self.recipient(0)..=self.recipient(u32::MAX)
    }
}

impl FromStr for RunId {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<RunId, NotAName> {
        let wrong = || NotAName { kind: "run", form: "rINDEX.PLACE", text: text.to_owned() };
        let [index, place] = text.strip_prefix('r').and_then(numbers).ok_or_else(wrong)?;
        Ok(RunId { index, place: u32::try_from(place).map_err(|_| wrong())? })
    }
}

/// Id of a page: the id of its first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
pub struct PageId(pub RunId);

impl PageId {
    /// Returns the id of a run of the page.
    pub fn run_id(self, run: &Run) -> RunId {
        RunId { index: self.0.index, place: run.place }
    }

    /// Returns the key of a chunk of the page.
    pub fn chunk(self, number: u32) -> ChunkKey {
        ChunkKey { page: self, number }
    }

    /// Returns the range of the keys of all its chunks.
    pub fn chunks(self) -> RangeInclusive<ChunkKey> {
        self.chunk(0)..=self.chunk(u32::MAX)
    }
}

/// Id of a recipient: its run, and its number in the run's audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecipientId {
    /// The run.
    pub run: RunId,
    /// Number in the audience, from 0.
    pub number: u32,
}

/// Key of a chunk: its page, and its number in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkKey {
    /// The page.
    pub page: PageId,
    /// Number in the page, from 0.
    pub number: u32,
}

/// Id of a schedule: the log index of the entry that created it, and its place in that entry. A schedule that is
/// created again under the name of a deleted one has another id. The number is `index * 1,024 + place`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScheduleId(pub u64);

impl ScheduleId {
    /// Maximum number of schedules that one entry can create.
    pub const PER_ENTRY: usize = 1_024;

    /// The schedule at `place` of the entry at `index`. `place` is below [`ScheduleId::PER_ENTRY`].
    pub const fn new(index: u64, place: usize) -> ScheduleId {
        ScheduleId(index * ScheduleId::PER_ENTRY as u64 + place as u64)
    }

    /// Log index of the entry that created it.
    pub const fn index(self) -> u64 {
        self.0 / ScheduleId::PER_ENTRY as u64
    }

    /// Place in that entry.
    pub const fn place(self) -> u64 {
        self.0 % ScheduleId::PER_ENTRY as u64
    }

    /// The next id in order.
    pub const fn next(self) -> ScheduleId {
        ScheduleId(self.0.saturating_add(1))
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            0 => write!(f, "{}", self.index()),
            place => write!(f, "{}.{place}", self.index()),
        }
    }
}

/// A blake3 hash of content, an audience, a request body or a state.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }
}

/// The finalizer of SplitMix64: each input bit changes about half of the output bits.
pub(crate) fn mix(of: u64) -> u64 {
    let mut of = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    of = (of ^ (of >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    of = (of ^ (of >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    of ^ (of >> 31)
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash, String> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| format!("'{text}' is not a hash"))?;
        Ok(Hash(*hash.as_bytes()))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// SHA-256 of the certificate of a cluster's certificate authority, as `openssl x509 -fingerprint` computes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AuthorityId(pub [u8; 32]);

impl fmt::Display for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self::Hash(self.0), f)
    }
}

impl fmt::Debug for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self::Hash(self.0), f)
    }
}

/// Name of an occurrence; it never depends on the current time (P7). Within one schedule the names of one pattern are
/// in the order of their instants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OccurrenceName {
    /// Pattern with fixed times: the civil date-time, written as if it were UTC, and which of two equal ones it is.
    Civil {
        /// Civil date-time as milliseconds since 1970-01-01T00:00 of the same calendar.
        civil_ms: i64,
        /// 0: the only or the first one; 1: the second one.
        fold: u8,
    },
    /// Pattern with intervals, or a single instant.
    Instant(Time),
    /// Trigger by an operator or a program: its request id.
    Trigger(String),
}

impl OccurrenceName {
    /// Lower bound of all names.
    pub(crate) const LOWEST: OccurrenceName = OccurrenceName::Civil { civil_ms: i64::MIN, fold: 0 };
}

impl fmt::Display for OccurrenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OccurrenceName::Civil { civil_ms, fold } => {
                let text = Time(*civil_ms).timestamp().to_string();
                write!(f, "{}{}", text.trim_end_matches('Z'), if *fold == 1 { " (second)" } else { "" })
            }
            OccurrenceName::Instant(time) => time.fmt(f),
            OccurrenceName::Trigger(request) => write!(f, "trigger {request}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_and_runs_read_back_what_they_print() {
        let fence = Fence { group: 1, epoch: Epoch(7), index: 1042, place: 3 };
        assert_eq!(fence.to_string().parse(), Ok(fence));
        let run = RunId { index: 1042, place: 3 };
        assert_eq!(run.to_string(), "r1042.3");
        assert_eq!("r1042.3".parse(), Ok(run));
        for text in ["", "r", "r1", "r1.2.3", "1.2", "rx.1", "r1.99999999999"] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
