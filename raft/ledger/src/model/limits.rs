//! Limits and durations that `apply` uses, one set for each level of the ledger (P23).
//!
//! Replicas of two releases apply the same entry, so a number must not change with the build. A release that changes
//! a number adds a set for its level, such as `LedgerLimits { slice_recipients_max: 512, ..LEVEL_1 }`.
//! `apply` and all proposers use the level of the ledger that they read ([`Ledger::limits`]). A command line has no
//! ledger: the CLI uses the limits of its release's highest level (`LEVEL`), and the node decides.
//!
//! Numbers outside the table belong to a stored form (a chunk's slots), or no release has changed them yet. Before such
//! a number changes, it moves into the table. The tests below record both.

use crate::injected_bugs::{self, Bug};
use crate::model::{DAY_MS, Ledger};
use crate::storage::ROW_BYTES_MAX;

/// Declares the limits, each with its number at level 1.
macro_rules! level_1 {
    ($($(#[$doc:meta])* $name:ident: $number:ty = $value:expr,)*) => {
        /// Limits of one level. Times are in milliseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct LedgerLimits {
            $($(#[$doc])* pub $name: $number,)*
        }

        pub(crate) const LEVEL_1: LedgerLimits = LedgerLimits { $($name: $value,)* };
    };
}
level_1! {
    /// Maximum number of recipients in a slice, the unit that is claimed.
    slice_recipients_max: u32 = 256,
    /// Maximum number of occurrences that one entry opens; the timer splits longer lists.
    entry_openings_max: usize = 4_096,
    /// Maximum number of runs on a page.
    page_runs_max: usize = 512,
    /// Maximum size of a page's row if the text of a pause is added, in bytes; a longer text is left out. Each run has
    /// 384 bytes between this limit and 1 MiB, for counts and refusals.
    page_bytes_max: usize = ROW_BYTES_MAX - 192 * 1_024,
    /// Maximum number of recipients of a run that shares a page.
    small_audience_max: u32 = 16,
    /// Maximum number of occurrences in a backfill.
    backfill_openings_max: usize = 1_000,
    /// Maximum number of stored answers of a tenant; the oldest is removed first.
    tenant_answers_max: usize = 100_000,
    /// How long the stored answer to a request id is kept, in ledger time.
    answer_ms: i64 = DAY_MS,
    /// Maximum advance of ledger time in one entry, except at the start of an epoch (P18).
    leap_ms_max: i64 = 60_000,
    /// Maximum deviation of the only voter's clock from the time that its machine has run. Beyond this limit an
    /// operator must check the clock (P18).
    clock_step_ms_max: u64 = 3_600_000,
    /// How late an instant is still on time. A fail-over does not make an instant a missed one.
    on_time_ms: i64 = 60_000,
    /// How long before the end of a pause an instant is still on time.
    pause_end_ms: i64 = 1_000,
    /// Number of crashes of a node that are kept. If this many are within ten minutes, the node gets no claims for a
    /// while (P12).
    crashes_kept: usize = 3,
    /// Maximum size of a content, all parts together, in bytes.
    content_bytes_max: usize = 512 * 1024,
    /// Maximum number of attachments of a content.
    attachments_max: usize = 10,
    /// Maximum size of a content's attachments together, in bytes. They never pass through the log (P20).
    attachment_bytes_max: usize = 10 * 1024 * 1024,
    /// Maximum size of a list that a schedule holds itself, in bytes.
    inline_bytes_max: usize = 768 * 1024,
    /// Maximum number of recipients of such a list. Larger lists never pass through the log (P20).
    inline_recipients_max: usize = 10_000,
    /// Maximum length of the name of an audience, or of a column of a sealed audience, in bytes.
    audience_name_bytes_max: usize = 256,
    /// For how long a launch with the same content to the same audience needs the user's consent (P20).
    again_ms: i64 = 30 * DAY_MS,
    /// Maximum number of days of a warm-up.
    warm_up_days_max: usize = 400,
    /// Maximum rate of a tenant, in thousandths of a recipient a second.
    tenant_rate_milli_max: u64 = 1_000_000_000,
    /// Maximum share of a tenant. The smallest share beside the largest one gets turns of a sixteenth of a slice:
    /// claims of 16 recipients, each with its own entries, and two bytes a recipient when they are closed. Shorter
    /// turns would cost too much.
    tenant_share_max: u32 = 16,
    /// Maximum number of pools that a tenant is bound to.
    tenant_pools_max: usize = 64,
    /// Maximum number of log entries whose run events are kept for a run; the oldest events are removed.
    run_event_entries_max: usize = 64,
    /// Number of unattributed refusals in a row that pause a run. A run of fewer recipients is paused by as many
    /// refusals for sender or content as the run has recipients.
    unattributed_series: usize = 10,
    /// How long a recipient waits after an unattributed refusal.
    unattributed_wait_ms: i64 = 5 * 60_000,
    /// Limits by which a large share of dead recipients pauses a run.
    bounce_breaker: BounceBreakerLimits =
        BounceBreakerLimits { window: 10_000, one_of: 10, half_from: 500, further: 10 },
    /// Maximum size of a block of packed closed claims, in bytes.
    claim_block_bytes_max: usize = 2_048,
    /// Minimum time from the end of a run to its archiving.
    archive_after_ms_min: i64 = 10_000,
    /// Maximum number of tenants that a part of the archive names.
    part_tenants_max: usize = 64,
    /// How long the name of a trigger is kept after its run was archived.
    trigger_name_ms: i64 = 30 * DAY_MS,
    /// Maximum number of nodes that can ever be removed. Their ids are kept for ever.
    removed_nodes_max: usize = 10_000,
    /// Maximum number of tokens of the admin API. Revoked and expired ones make room.
    tokens_max: usize = 10_000,
    /// How long a revoked or expired token is kept.
    token_kept_ms: i64 = 30 * DAY_MS,
    /// Maximum number of tenants of a token that does not reach all.
    token_tenants_max: usize = 64,
    /// Maximum length of the name of a token or of one of its tenants, in bytes.
    token_name_bytes_max: usize = 64,
    /// Minimum distance of a restore's log index from the former ones, as in etcd (`--bump-revision`).
    restore_ahead: u64 = 10_000_000_000,
    /// Number of audit records after which they become a part of the archive: about half a megabyte.
    audit_part_records: usize = 4_096,
    /// Maximum number of such parts; the oldest one is removed first. That is 67 million records.
    audit_parts_max: usize = 16_384,
    /// How long an audit record is kept at least, if there are not too many parts.
    audit_kept_ms: i64 = 400 * DAY_MS,
    /// Maximum length of each text in an audit record, in bytes. Longer ones are cut.
    audit_text_bytes_max: usize = 256,
    /// Number of rows of events, and their size in bytes, from which they become a part of the archive.
    event_part_rows: usize = 4_096,
    /// See `event_part_rows`.
    event_part_bytes: usize = 256 * 1_024,
    /// Maximum number of such parts; the oldest one is removed first. That is half a gigabyte.
    event_parts_max: usize = 2_048,
    /// How long an event is kept at least, if there are not too many parts.
    event_kept_ms: i64 = 7 * DAY_MS,
    /// For how long the former hash of a list without an erased person is kept at least: workers that read a claim
    /// before use it.
    erased_list_kept_ms: i64 = DAY_MS,
    /// Maximum number of templates of a tenant.
    tenant_templates_max: usize = 1_000,
    /// Maximum number of versions of a template. The oldest one without users is removed first.
    template_versions_max: usize = 100,
    /// Maximum length of a template's name, in bytes.
    template_name_bytes_max: usize = 64,
}

/// Limits of the bounce breaker; see the module `bounce_breaker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BounceBreakerLimits {
    /// Length of the first window, in decided recipients.
    pub window: u32,
    /// Maximum share of dead recipients in a window: one in this many. Amazon SES may pause a sender with 10 % bounces
    /// ("Amazon SES sending review process FAQs", bounces).
    pub one_of: u32,
    /// From one of this many recipients on, the run is paused already when half of the decided ones are dead. Fewer
    /// dead recipients never pause a run: a list of a normal size has some dead addresses.
    pub half_from: u32,
    /// Factor by which the window grows when the operator resumes a run that was paused for its dead letters.
    pub further: u32,
}

/// The limits of a level.
pub const fn limits(level: u32) -> &'static LedgerLimits {
    match level {
        #[cfg(feature = "next-level")]
        crate::storage::level::KNOWN => &crate::storage::next_level::LIMITS,
        _ => &LEVEL_1,
    }
}

impl Ledger {
    /// Returns the limits that apply to the next entry.
    pub fn limits(&self) -> &'static LedgerLimits {
        match injected_bugs::is(Bug::IgnoreLevel) {
            true => limits(crate::storage::level::highest()),
            false => limits(self.head.level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of a level never change. A new number needs a set for a new level.
    #[test]
    fn limits_of_level_1_are_as_recorded() {
        let recorded = "LedgerLimits { slice_recipients_max: 256, entry_openings_max: 4096, page_runs_max: 512, \
            page_bytes_max: 851968, small_audience_max: 16, backfill_openings_max: 1000, tenant_answers_max: 100000, \
            answer_ms: 86400000, leap_ms_max: 60000, clock_step_ms_max: 3600000, on_time_ms: 60000, \
            pause_end_ms: 1000, crashes_kept: 3, content_bytes_max: 524288, attachments_max: 10, \
            attachment_bytes_max: 10485760, inline_bytes_max: 786432, inline_recipients_max: 10000, audience_name_bytes_max: 256, again_ms: 2592000000, warm_up_days_max: 400, \
            tenant_rate_milli_max: 1000000000, tenant_share_max: 16, tenant_pools_max: 64, run_event_entries_max: 64, \
            unattributed_series: 10, unattributed_wait_ms: 300000, bounce_breaker: \
            BounceBreakerLimits { window: 10000, one_of: 10, half_from: 500, further: 10 }, \
            claim_block_bytes_max: 2048, archive_after_ms_min: 10000, part_tenants_max: 64, trigger_name_ms: 2592000000, \
            removed_nodes_max: 10000, tokens_max: 10000, token_kept_ms: 2592000000, token_tenants_max: 64, \
            token_name_bytes_max: 64, restore_ahead: 10000000000, audit_part_records: 4096, audit_parts_max: 16384, \
            audit_kept_ms: 34560000000, audit_text_bytes_max: 256, event_part_rows: 4096, event_part_bytes: 262144, \
            event_parts_max: 2048, event_kept_ms: 604800000, erased_list_kept_ms: 86400000, \
            tenant_templates_max: 1000, template_versions_max: 100, template_name_bytes_max: 64 }";
        assert_eq!(format!("{:?}", limits(1)), recorded);
    }

    /// Each set must fit the types and sizes in which its numbers are stored.
    #[test]
    fn limits_of_each_level_fit_pages_and_chunks() {
        use crate::model::CHUNK;
        for level in 1..=crate::storage::level::KNOWN {
            let limits = limits(level);
            // A shared page is one chunk, so its runs never span two chunks.
            assert!(limits.page_runs_max as u32 * limits.small_audience_max <= CHUNK, "level {level}");
            // Recipient numbers of a list stored by hash fit into one set of slots.
            assert!(limits.inline_recipients_max <= CHUNK as usize, "level {level}");
        }
    }

    /// A change of one of these numbers makes replicas of two releases differ. It needs a new stored form, or a place
    /// in the table.
    #[test]
    fn numbers_outside_the_table_are_as_recorded() {
        use crate::apply::{archive, epoch};
        use crate::forecast;
        use crate::model::{
            self, ScheduleId, Tenant, bitmap, claim_history, content, crash_backoff, deferral, events, labels, policy,
            reply,
        };
        use crate::storage::block;
        let slots = (bitmap::CHUNK, model::WAVE_MS, claim_history::CLAIM_EVENTS_MAX, claim_history::EXACT_HISTORY_MAX);
        assert_eq!(slots, (65_536, 30_000, 32, 16));
        assert_eq!((model::DOUBT_KEPT_MS, model::SUMMARIES_MS), (2_592_000_000, 34_560_000_000));
        assert_eq!((content::PARTS_MAX, content::COLUMNS_MAX, reply::CancelledRuns::NAMED), (1_024, 64, 64));
        assert_eq!((labels::LABELS_MAX, labels::LABEL_CHARS_MAX), (16, 63));
        let finish = (policy::FINISH_MS_MIN, forecast::CAMPAIGN_FINISH_MS_MIN, policy::FINISH_MS_MAX);
        assert_eq!((finish, forecast::CAMPAIGN_FINISH_FACTOR), ((600_000, 14_400_000, 2_592_000_000), 2));
        let blocks = (block::BLOCK_BYTES_MAX, block::LISTS_BYTES_MAX, events::ROW_BYTES);
        assert_eq!(blocks, (1_048_576, 524_288, 131_072));
        assert_eq!((archive::RANGE_STEPS_MAX, ScheduleId::PER_ENTRY, ROW_BYTES_MAX), (1_024, 1_024, 1_048_576));
        // A tenant's first row has these, where the command names no others.
        let Tenant { rate_milli, concurrency, share, pools, index } = Tenant::DEFAULT;
        assert_eq!((rate_milli, concurrency, share, pools.len(), index), (0, 0, 1, 0, 0));
        let crashes = (crash_backoff::CRASHES_WITHIN_MS, crash_backoff::BACKOFF_MS, crash_backoff::DOUBLES_EVERY_MS);
        assert_eq!(crashes, (600_000, 600_000, 10_000));
        assert_eq!((epoch::AGREEMENT_MS, archive::CIVIL_ERROR_MS, deferral::JITTER_PART), (2_000, 86_400_000, 4));
    }
}
