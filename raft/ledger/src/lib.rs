//! The pure core of Reveille: its commands, their results, and the invariants of the state.
#![doc = include_str!("overview.md")]

mod apply;
pub mod calendar;
pub mod command;
pub mod effect;
pub mod explain;
pub mod fingerprint;
pub mod forecast;
mod index;
pub mod injected_bugs;
pub mod invariants;
pub mod model;
pub mod planning;
pub mod recipients;
pub mod storage;

pub use apply::{AGREEMENT_MS, ApplyResult, BackfillBatch, GapLookups, agreed_time, unclaimable_slots};
pub use model::archive::{ArchivePart, ArchivePartKey, ArchiveParts, PartContent, blocks_of_parts};
pub use model::backup::{BackupHistory, BackupResult, LastBackup};
pub use model::claim::{Claim, DeadLetter};
pub use model::ledger::{DEFAULT_POOL, DEFAULT_TENANT, Ledger};
pub use model::node::{
    AuthorityRotation, AuthorityState, EpochState, Head, Node, RelayShare, RemovedNode, RotationPhase, SoleClock,
    TestClock,
};
pub use model::page::*;
pub use model::recipient::{RecipientCounts, RecipientState};
pub use model::run::*;
pub use model::schedule::{
    BlockingRun, InstantOutcome, MESSAGES_NAME, Plan, Schedule, ScheduleSettings, ScheduleState, ScheduleStateKind,
    ScheduleTiming,
};
pub use model::stored::*;
pub use model::{
    access, address, audit, bitmap, bounce_breaker, campaign, canary, causes, claim_history, closed_claims, content,
    crash_backoff, deferral, erased, etag, events, ids, impossible, instant_range, labels, limits, policy, pool,
    refusal, reply, restore, run_events, template, tenant, token,
};
pub use storage::level::{GENESIS_LEVEL, LEVEL};
pub use storage::{SharedRows, Table, form, level};
