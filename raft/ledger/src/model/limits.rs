//! The numbers by which `apply` decides, one set for each level of the ledger (P23).
//!
//! Replicas of two releases apply the same entry, so a number must not change with the build. A release that changes
//! one adds a set for its level below, such as `const LEVEL_2: Limits = Limits { slice: 512, ..LEVEL_1 };`. `apply`
//! and all that propose go by the level of the ledger that they read ([`Ledger::limits`]). A command line has no ledger:
//! it uses the limits of its release's highest level (`LEVEL`), and the node decides.
//!
//! Numbers outside the table belong to a stored form (a chunk's slots), or no release has changed them yet: before one
//! changes, it moves into the table. The tests below record both.

use crate::model::{DAY_MS, Ledger};
use crate::storage::ROW_BYTES_MAX;

/// What a level allows. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recipients of one slice, the unit that is claimed.
    pub slice: u32,
    /// Occurrences that one entry opens; the timer cuts there.
    pub openings: usize,
    /// Runs of one page.
    pub page_runs: usize,
    /// Bytes of a page's row beyond which the words of a pause are left out of it. Up to 1 MiB each run has 192 bytes
    /// left for counts and refusals.
    pub page_bytes: usize,
    /// Recipients of a run that shares a page.
    pub small_audience: u32,
    /// Occurrences of one backfill.
    pub backfill: usize,
    /// Stored answers of one tenant; its oldest goes first.
    pub answers: usize,
    /// How long the stored answer to a request id lives, in ledger time.
    pub answer_ms: i64,
    /// By how much ledger time grows in one entry, except at the start of an epoch (P18).
    pub leap_ms: i64,
    /// By how much the only voter's clock may be moved against the time that its machine has run; beyond it an operator
    /// must look (P18).
    pub clock_step_ms: u64,
    /// How late an instant still is on time: a fail-over is no missed instant.
    pub on_time_ms: i64,
    /// How shortly before the end of a pause an instant still is on time.
    pub pause_end_ms: i64,
    /// Deaths of a node that are kept. Where so many lie within ten minutes, it rests (P12).
    pub crashes_kept: usize,
    /// Bytes of a content, all parts together.
    pub content_bytes: usize,
    /// Bytes of a list that a schedule holds itself.
    pub inline_bytes: usize,
    /// Recipients of such a list; larger ones never pass through the log (P20).
    pub inline_recipients: usize,
    /// Bytes of the name of an audience, or of a column of a sealed one.
    pub audience_name_bytes: usize,
    /// For how long the same content to the same audience is launched again only on purpose (P20).
    pub again_ms: i64,
    /// Days of a warm-up.
    pub warm_up_days: usize,
    /// A tenant's rate, in thousandths of a recipient a second.
    pub tenant_rate_milli: u64,
    /// A tenant's share. The smallest beside the largest has turns of a sixteenth of a slice: rows of 16 recipients,
    /// each with a claim and a settle of its own, and two bytes a recipient when they are closed. Shorter ones would
    /// cost more than they are worth.
    pub tenant_share: u32,
    /// Entries of a run of which run events are kept; of more the oldest is forgotten.
    pub run_events: usize,
    /// Refusals in a row, none of which names a mailbox, that pause a run.
    pub policy_refusals: usize,
    /// The wait after such a refusal.
    pub policy_wait_ms: i64,
    /// By which the same words pause a run.
    pub same_words: SameWordsLimits,
    /// By which a large share of dead recipients pauses a run.
    pub bounce_breaker: BounceBreakerLimits,
    /// Bytes of packed closed rows that lie together.
    pub claim_block_bytes: usize,
}

/// See `same_words`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameWordsLimits {
    /// Hashes of a run that are counted: the ones seen last. A relay has few texts, and usually one for each cause.
    pub groups: usize,
    /// Fewer recipients never pause a run: a list of a normal size has some dead addresses at one provider.
    pub recipients: u32,
    /// The run is paused where one of so many recipients with a final answer has these words. Lists with 10 % dead
    /// addresses are already called bad by providers; half is no list of addresses that exist.
    pub one_of: u32,
}

/// See `bounce breaker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BounceBreakerLimits {
    /// Recipients of the first window. A run with no more recipients is never paused for its dead letters: a list inside
    /// a schedule may have as many, and their dead letters are a few megabytes.
    pub window: u32,
    /// At most one of this many recipients may be dead: Amazon SES may pause a sender with 10 % bounces ("Amazon SES
    /// sending review process FAQs", bounces).
    pub one_of: u32,
    /// When the operator resumes a run that was paused for its dead letters, the window grows by this factor.
    pub further: u32,
}

pub(crate) const LEVEL_1: Limits = Limits {
    slice: 256,
    openings: 4_096,
    page_runs: 1_024,
    page_bytes: ROW_BYTES_MAX - 192 * 1_024,
    small_audience: 16,
    backfill: 1_000,
    answers: 100_000,
    answer_ms: DAY_MS,
    leap_ms: 60_000,
    clock_step_ms: 3_600_000,
    on_time_ms: 60_000,
    pause_end_ms: 1_000,
    crashes_kept: 3,
    content_bytes: 512 * 1024,
    inline_bytes: 768 * 1024,
    inline_recipients: 10_000,
    audience_name_bytes: 256,
    again_ms: 30 * DAY_MS,
    warm_up_days: 400,
    tenant_rate_milli: 1_000_000_000,
    tenant_share: 16,
    run_events: 64,
    policy_refusals: 10,
    policy_wait_ms: 5 * 60_000,
    same_words: SameWordsLimits { groups: 4, recipients: 20, one_of: 2 },
    bounce_breaker: BounceBreakerLimits { window: 10_000, one_of: 10, further: 10 },
    claim_block_bytes: 2_048,
};

/// The limits of a level.
pub const fn limits(level: u32) -> &'static Limits {
    match level {
        #[cfg(feature = "next-level")]
        crate::storage::level::KNOWN => &crate::storage::next_level::LIMITS,
        _ => &LEVEL_1,
    }
}

impl Ledger {
    /// The limits by which the next entry is applied.
    pub fn limits(&self) -> &'static Limits {
        limits(self.head.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a level allows never changes. A new number is a set for a new level.
    #[test]
    fn limits_of_level_1_are_as_recorded() {
        let recorded = "Limits { slice: 256, openings: 4096, page_runs: 1024, page_bytes: 851968, \
            small_audience: 16, backfill: 1000, answers: 100000, answer_ms: 86400000, leap_ms: 60000, clock_step_ms: 3600000, on_time_ms: 60000, \
            pause_end_ms: 1000, \
            crashes_kept: 3, content_bytes: 524288, inline_bytes: 786432, inline_recipients: 10000, \
            audience_name_bytes: 256, again_ms: 2592000000, warm_up_days: 400, tenant_rate_milli: 1000000000, \
            tenant_share: 16, run_events: 64, policy_refusals: 10, policy_wait_ms: 300000, same_words: SameWordsLimits { \
            groups: 4, recipients: 20, one_of: 2 }, bounce_breaker: BounceBreakerLimits { window: 10000, one_of: 10, further: 10 }, \
            claim_block_bytes: 2048 }";
        assert_eq!(format!("{:?}", limits(1)), recorded);
    }

    /// Each set must fit what its numbers are stored in.
    #[test]
    fn limits_of_each_level_fit_entries_pages_and_chunks() {
        use crate::command::ENTRY_BYTES_MAX;
        use crate::model::CHUNK;
        for level in 1..=crate::storage::level::KNOWN {
            let limits = limits(level);
            // A shared page is one chunk: its runs never straddle two.
            assert!(limits.page_runs as u32 * limits.small_audience <= CHUNK, "level {level}");
            // Numbers of a list that is kept by its hash fit into one set of slots.
            assert!(limits.inline_recipients <= CHUNK as usize, "level {level}");
            // Content and audience travel once, in the entry that creates their schedule.
            assert!(limits.content_bytes + limits.inline_bytes <= ENTRY_BYTES_MAX * 5 / 4, "level {level}");
        }
    }

    /// A change of one of these makes replicas of two releases differ: it needs a new form, or a place in the table.
    #[test]
    fn numbers_outside_the_table_are_as_recorded() {
        use crate::apply::{epoch, prune};
        use crate::forecast;
        use crate::model::{self, bitmap, claim_history, content, crash_backoff, deferral, labels, policy, reply};
        let slots = (bitmap::CHUNK, model::WAVE_MS, claim_history::CLAIM_EVENTS_MAX, claim_history::EXACT_HISTORY_MAX);
        assert_eq!(slots, (65_536, 30_000, 32, 16));
        assert_eq!((model::EVIDENCE_MS, model::SUMMARIES_MS), (2_592_000_000, 34_560_000_000));
        assert_eq!((content::PARTS_MAX, content::COLUMNS_MAX, reply::CancelledRuns::NAMED), (1_024, 64, 64));
        assert_eq!((labels::LABELS_MAX, labels::LABEL_CHARS_MAX), (16, 63));
        let finish = (policy::FINISH_MS_MIN, forecast::CAMPAIGN_FINISH_MS_MIN, policy::FINISH_MS_MAX);
        assert_eq!(finish, (600_000, 14_400_000, 2_592_000_000));
        let crashes = (crash_backoff::CRASHES_WITHIN_MS, crash_backoff::BACKOFF_MS, crash_backoff::DOUBLES_EVERY_MS);
        assert_eq!(crashes, (600_000, 600_000, 10_000));
        assert_eq!((epoch::AGREEMENT_MS, prune::CIVIL_MS, deferral::JITTER_PART), (2_000, 86_400_000, 4));
    }
}
