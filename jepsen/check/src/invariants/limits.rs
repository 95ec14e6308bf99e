//! I18: no budget is exceeded, over all nodes and fail-overs (P25). I19: no recipient gets emails of two runs within
//! the `min_gap` of their schedule (P17), and no recipient has more handoffs than `max_attempts` without a definite
//! answer (P4, P14). Both are judged by the sink's record.
//!
//! An email counts when its DATA is read, but was taken from its budget earlier. So an interval may have additional
//! emails that were under way at its start: one for each session of each process. A claim is taken from a tenant's rate
//! even earlier ([`CLAIMED_BEFORE_NS`]). A relay's rate has a burst of a tenth of a second, or one email for each node.
//! While a clock is wrong the rate may be a ninth higher (CLOCK_BOOTTIME is right within one part in ten).

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Answered, Bound, Call, Handoff, Limit, RecipientState, Run};
use crate::history::{HasItem, History, Item, of_item};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Findings;

/// Lengths of the intervals in which rates are judged.
const LENGTHS_NS: [u64; 3] = [1_000 * MS, 10_000 * MS, 60_000 * MS];
/// Maximum time from taking a claim from a tenant's rate to its email: ten seconds to begin the email, two for the
/// burst, and three to commit and apply the claim.
const CLAIMED_BEFORE_NS: u64 = 15_000 * MS;
/// Time after the end of a process within which the sink may read its bytes.
const UNDER_WAY_NS: u64 = 1_000 * MS;
const DAY_MS: i64 = 86_400_000;

/// I18: no budget is exceeded across fail-overs.
pub fn within_budgets(history: &History, findings: &mut Findings) {
    let mut judged = 0_u32;
    for limit in &history.limits {
        match &limit.bound {
            Bound::RelayRate { per_second_milli, sessions } => {
                let (name, per_second_milli, sessions) = ("the rate of a relay", *per_second_milli, *sessions);
                let burst = (per_second_milli / 10_000).max(history.header.nodes.len() as u64);
                let rate = Rate { name, per_second_milli, sessions, delay_ns: 0, burst };
                report_rate(history, limit, &rate, findings);
            }
            Bound::TenantRate { per_second_milli, sessions } => {
                let (name, per_second_milli, sessions) = ("the rate of a tenant", *per_second_milli, *sessions);
                let rate = Rate { name, per_second_milli, sessions, delay_ns: CLAIMED_BEFORE_NS, burst: 0 };
                report_rate(history, limit, &rate, findings);
            }
            Bound::WarmUp { first_day, caps } => report_warm_up(history, limit, (*first_day, caps), findings),
            Bound::MinGap { .. } | Bound::MaxAttempts { .. } => continue,
        }
        judged += 1;
    }
    if judged == 0 {
        findings.missing("a budget");
    }
}

/// I19: `min_gap` and `max_attempts` are kept.
pub fn gaps_and_attempts(history: &History, findings: &mut Findings) {
    let mut judged = 0_u32;
    for limit in &history.limits {
        match limit.bound {
            Bound::MinGap { gap_ms } => report_gaps(history, limit, gap_ms, findings),
            Bound::MaxAttempts { attempts } => report_attempts(history, limit, attempts, findings),
            Bound::RelayRate { .. } | Bound::TenantRate { .. } | Bound::WarmUp { .. } => continue,
        }
        judged += 1;
    }
    if judged == 0 {
        findings.missing("a schedule with a `min_gap` or `max_attempts`");
    }
}

/// Returns true if the limit concerns this run.
fn concerns(limit: &Limit, run: &Run) -> bool {
    limit.tenants.iter().any(|tenant| run.tenant == *tenant)
        && (limit.schedules.is_empty() || limit.schedules.iter().any(|schedule| run.schedule == *schedule))
}

/// Returns true if a recipient of this run may have to wait for another day or another run.
pub fn holds_back(history: &History, run: &Run) -> bool {
    let waits = |limit: &&Limit| matches!(limit.bound, Bound::WarmUp { .. } | Bound::MinGap { .. });
    history.limits.iter().filter(waits).any(|limit| concerns(limit, run))
}

/// Returns true if another run within the `min_gap` explains that this recipient got no email of this run.
pub fn another_is_near(history: &History, item: Item, run: &Run) -> bool {
    let gap_ms = history.limits.iter().filter(|limit| concerns(limit, run)).filter_map(|limit| match limit.bound {
        Bound::MinGap { gap_ms } => Some(gap_ms),
        _ => None,
    });
    let Some(gap_ms) = gap_ms.max() else { return false };
    let may_be_sent = |state| matches!(state, RecipientState::Sent | RecipientState::Assumed | RecipientState::InDoubt);
    history.runs.iter().any(|(name, other)| {
        let beside = Item { run: *name, ..item };
        other.run != run.run
            && (&other.tenant, &other.schedule) == (&run.tenant, &run.schedule)
            && other.due_unix_ms.abs_diff(run.due_unix_ms) < gap_ms
            && (history.arrived(beside) || history.final_state(beside).is_some_and(may_be_sent))
    })
}

/// Returns the handoffs of the runs that `limit` concerns, with DATA while the limit was in force.
fn handoffs_under<'a>(history: &'a History, limit: &Limit) -> Vec<&'a Handoff> {
    let under = history.runs.iter().filter(|(_, run)| concerns(limit, run)).map(|(name, _)| *name);
    let under: BTreeSet<Name> = under.collect();
    let in_force = limit.from_ns..limit.until_ns.unwrap_or(u64::MAX);
    let handoffs = history
        .handoffs
        .iter()
        .filter(|handoff| in_force.contains(&handoff.data_ns) && handoff.answer != Answered::Malformed);
    handoffs.filter(|handoff| under.contains(&handoff.run)).collect()
}

/// A rate of emails.
struct Rate {
    /// Text for people.
    name: &'static str,
    /// Number of emails in 1,000 seconds.
    per_second_milli: u64,
    /// Number of sessions of a process.
    sessions: u32,
    /// Maximum time from taking an email from the rate to its DATA.
    delay_ns: u64,
    /// Number of emails that are allowed at once.
    burst: u64,
}

fn report_rate(history: &History, limit: &Limit, rate: &Rate, findings: &mut Findings) {
    let mut began: Vec<u64> = handoffs_under(history, limit).iter().map(|handoff| handoff.data_ns).collect();
    began.sort_unstable();
    for length_ns in LENGTHS_NS {
        let ms = (length_ns + rate.delay_ns) / MS;
        let budget = |ms: u64| rate.per_second_milli.saturating_mul(ms).div_ceil(1_000_000) + rate.burst;
        let mut until = 0;
        for (from, from_ns) in began.iter().enumerate() {
            let until_ns = from_ns.saturating_add(length_ns);
            until += began.get(until..).unwrap_or_default().partition_point(|at_ns| *at_ns < until_ns);
            let count = (until - from) as u64;
            if count <= budget(ms) {
                continue;
            }
            let ms = if history.has_wrong_clock(*from_ns, until_ns) { ms.div_ceil(9) * 10 } else { ms };
            let most = budget(ms) + processes(history, *from_ns, until_ns) * u64::from(rate.sessions);
            if count > most {
                let (name, at, seconds) = (rate.name, *from_ns as f64 / 1e9, length_ns / (1_000 * MS));
                findings.violation(|| {
                    format!("{name}: {count} emails began within {seconds} s from {at:.3} s on; {most} are allowed")
                });
            }
        }
    }
}

/// Returns the number of processes that can have sent emails in an interval.
fn processes(history: &History, from_ns: u64, until_ns: u64) -> u64 {
    let ran = history.lifetimes.iter().filter(|lifetime| {
        let over_ns = lifetime.ended_ns.unwrap_or(u64::MAX).saturating_add(UNDER_WAY_NS);
        lifetime.started_ns < until_ns && from_ns <= over_ns
    });
    ran.count() as u64
}

fn report_warm_up(history: &History, limit: &Limit, (first_day, caps): (i64, &[u32]), findings: &mut Findings) {
    let mut arrived: Vec<u64> = handoffs_under(history, limit)
        .into_iter()
        .filter(|handoff| handoff.answer.is_accepted())
        .map(|handoff| handoff.at_ns)
        .collect();
    arrived.sort_unstable();
    for (before, at_ns) in arrived.iter().enumerate() {
        let day = (history.civil_ms(*at_ns).saturating_add_unsigned(history.header.clock_error_ms)).div_euclid(DAY_MS);
        let days = usize::try_from(day - first_day + 1).unwrap_or(0);
        // After the last day of the warm-up there is no bound.
        let Some(caps) = caps.get(..days) else { return };
        let most: u64 = caps.iter().copied().map(u64::from).sum();
        if before as u64 >= most {
            let at = *at_ns as f64 / 1e9;
            findings.violation(|| {
                format!("a warm-up cap: email {} arrived at {at:.3} s; {most} are allowed by then", before + 1)
            });
        }
    }
}

fn report_gaps(history: &History, limit: &Limit, gap_ms: u64, findings: &mut Findings) {
    // Instants of runs by schedule and recipient.
    let mut got: BTreeMap<_, Vec<(i64, Name)>> = BTreeMap::new();
    for handoff in handoffs_under(history, limit).into_iter().filter(|handoff| handoff.answer.is_accepted()) {
        let Some(run) = history.run_of(handoff.item()) else { continue };
        let key = (run.tenant, run.schedule, handoff.recipient);
        got.entry(key).or_default().push((run.due_unix_ms, handoff.run));
    }
    for ((_, schedule, recipient), mut runs) in got {
        runs.sort_unstable();
        for pair in runs.windows(2) {
            let [(first, former), (second, run)] = *pair else { continue };
            if former != run && second.abs_diff(first) < gap_ms {
                let apart = second.abs_diff(first);
                findings.violation(|| format!("{recipient} got two emails of {schedule} whose instants are {apart} ms apart; the min_gap is {gap_ms} ms"));
            }
        }
    }
}

fn report_attempts(history: &History, limit: &Limit, attempts: u32, findings: &mut Findings) {
    let items: BTreeSet<Item> = handoffs_under(history, limit).iter().map(|handoff| handoff.item()).collect();
    for item in items {
        // Definite refusals and dialogues that were cut off before the final dot allow no further handoffs, so they
        // are not counted.
        let passed = |handoff: &&Handoff| handoff.answer.is_accepted() || handoff.answer == Answered::Nothing;
        let tried = of_item(&history.handoffs, item).iter().filter(passed).count() as u64;
        let most = u64::from(attempts) * (1 + history.requests_about(item, Call::resends) as u64);
        if tried > most {
            findings.violation(|| format!("{item} was handed over {tried} times; {most} are allowed"));
        }
    }
}
