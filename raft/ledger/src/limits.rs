//! The numbers by which `apply` decides, one set for each level of the ledger (P23).
//!
//! Replicas of two releases apply the same entry, so a number must not change with the build. A release that changes
//! one adds a set for its level below, such as `const LEVEL_2: Limits = Limits { slice: 512, ..LEVEL_1 };`. `apply`
//! goes by the level of the ledger ([`Ledger::limits`]). Proposers still go by the constants of level 1: such a release
//! makes those that propose up to the number ask for it first.
//!
//! Numbers outside the table belong to a stored form (a chunk's slots), or no release has changed them yet: before one
//! changes, it moves into the table. The tests below record both.

use crate::apply;
use crate::campaign::AGAIN_MS;
use crate::command::SLICE_MAX;
use crate::content::{CONTENT_BYTES_MAX, INLINE_BYTES_MAX, INLINE_RECIPIENTS_MAX, NAME_BYTES_MAX};
use crate::deaths::DEATHS_KEPT;
use crate::decide::catch_up::ON_TIME_MS;
use crate::pool::WARM_UP_DAYS_MAX;
use crate::rows::ROW_BYTES_MAX;
use crate::rulings::RULINGS_MAX;
use crate::state::Ledger;
use crate::tenant::{SHARE_MAX, TENANT_RATE_MILLI_MAX};

/// What a level allows. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recipients of one claim.
    pub slice: u32,
    /// Occurrences that one entry opens.
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
    /// Stored answers of one tenant.
    pub answers: usize,
    /// How long a stored answer lives.
    pub answer_ms: i64,
    /// By how much ledger time grows in one entry.
    pub leap_ms: i64,
    /// By how much the only voter's clock may be moved.
    pub clock_step_ms: u64,
    /// How late an instant still is on time.
    pub on_time_ms: i64,
    /// How shortly before the end of a pause an instant still is on time.
    pub pause_end_ms: i64,
    /// Deaths of a node that are kept.
    pub deaths_kept: usize,
    /// Bytes of a content.
    pub content_bytes: usize,
    /// Bytes of a list that a schedule holds itself.
    pub inline_bytes: usize,
    /// Recipients of such a list.
    pub inline_recipients: usize,
    /// Bytes of the name of an audience.
    pub audience_name_bytes: usize,
    /// For how long the same content to the same audience is a repetition.
    pub again_ms: i64,
    /// Days of a warm-up.
    pub warm_up_days: usize,
    /// A tenant's rate, in thousandths of a recipient a second.
    pub tenant_rate_milli: u64,
    /// A tenant's share.
    pub tenant_share: u32,
    /// Entries of a run of which rulings are kept.
    pub rulings: usize,
    /// Refusals in a row, none of which names a mailbox, that pause a run.
    pub policy_refusals: usize,
    /// The wait after such a refusal.
    pub policy_wait_ms: i64,
    /// By which the same words pause a run.
    pub same_words: SameWordsLimits,
    /// By which a large share of dead recipients pauses a run.
    pub toll: TollLimits,
    /// Bytes of packed closed rows that lie together.
    pub sheet_bytes: usize,
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

/// See `toll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TollLimits {
    /// Recipients of the first window. A run with no more recipients is never paused for its dead letters: a list inside
    /// a schedule may have as many, and their dead letters are a few megabytes.
    pub stretch: u32,
    /// At most one of this many recipients may be dead: Amazon SES may pause a sender with 10 % bounces ("Amazon SES
    /// sending review process FAQs", bounces).
    pub one_of: u32,
    /// When the operator resumes a run that was paused for its dead letters, the window grows by this factor.
    pub further: u32,
}

pub(crate) const LEVEL_1: Limits = Limits {
    slice: SLICE_MAX,
    openings: apply::OPENINGS_MAX,
    page_runs: apply::PAGE_RUNS_MAX,
    page_bytes: ROW_BYTES_MAX - 192 * apply::PAGE_RUNS_MAX,
    small_audience: apply::SMALL_AUDIENCE,
    backfill: apply::BACKFILL_MAX,
    answers: apply::ANSWERS_MAX,
    answer_ms: apply::ANSWER_MS,
    leap_ms: apply::LEAP_MS_MAX,
    clock_step_ms: apply::STEP_MS_MAX,
    on_time_ms: ON_TIME_MS,
    pause_end_ms: 1_000,
    deaths_kept: DEATHS_KEPT,
    content_bytes: CONTENT_BYTES_MAX,
    inline_bytes: INLINE_BYTES_MAX,
    inline_recipients: INLINE_RECIPIENTS_MAX,
    audience_name_bytes: NAME_BYTES_MAX,
    again_ms: AGAIN_MS,
    warm_up_days: WARM_UP_DAYS_MAX,
    tenant_rate_milli: TENANT_RATE_MILLI_MAX,
    tenant_share: SHARE_MAX,
    rulings: RULINGS_MAX,
    policy_refusals: 10,
    policy_wait_ms: 5 * 60_000,
    same_words: SameWordsLimits { groups: 4, recipients: 20, one_of: 2 },
    toll: TollLimits { stretch: 10_000, one_of: 10, further: 10 },
    sheet_bytes: 2_048,
};

/// The limits of a level.
pub const fn limits(_level: u32) -> &'static Limits {
    &LEVEL_1
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
            deaths_kept: 3, content_bytes: 524288, inline_bytes: 786432, inline_recipients: 10000, \
            audience_name_bytes: 256, again_ms: 2592000000, warm_up_days: 400, tenant_rate_milli: 1000000000, \
            tenant_share: 16, rulings: 64, policy_refusals: 10, policy_wait_ms: 300000, same_words: SameWordsLimits { \
            groups: 4, recipients: 20, one_of: 2 }, toll: TollLimits { stretch: 10000, one_of: 10, further: 10 }, \
            sheet_bytes: 2048 }";
        assert_eq!(format!("{:?}", limits(1)), recorded);
    }

    /// A change of one of these makes replicas of two releases differ: it needs a new form, or a place in the table.
    #[test]
    fn numbers_outside_the_table_are_as_recorded() {
        use crate::{bitmap, content, deaths, labels, moments, policy, reply, state};
        let slots = (bitmap::CHUNK, state::WAVE_MS, moments::MOMENTS_MAX, moments::TOLD_EXACTLY_MAX);
        assert_eq!(slots, (65_536, 30_000, 32, 16));
        assert_eq!((state::EVIDENCE_MS, state::SUMMARIES_MS), (2_592_000_000, 34_560_000_000));
        assert_eq!((content::PARTS_MAX, content::COLUMNS_MAX, reply::CancelledRuns::NAMED), (1_024, 64, 64));
        assert_eq!((labels::LABELS_MAX, labels::LABEL_CHARS_MAX), (16, 63));
        assert_eq!((policy::FINISH_MS_MIN, deaths::DEATHS_WITHIN_MS, deaths::REST_MS), (600_000, 600_000, 600_000));
    }
}
