//! I18: no budget is exceeded, over all nodes and fail-overs (P25). I19: no recipient gets emails of two runs within
//! the `min_gap` of their schedule (P17), and no recipient has more handoffs than `max_attempts` without a definite
//! answer (P4, P14). All but a tenant's rate are judged by the sink's record.
//!
//! An email counts when its DATA is read, but was taken from its budget earlier. So an interval may have additional
//! emails that were under way at its start: one for each session of each process. A relay's rate has a burst of a tenth
//! of a second, or one email for each node. While a clock is wrong the rate may be a ninth higher (CLOCK_BOOTTIME is
//! right within one part in ten).
//!
//! A tenant's rate is judged by the claims. The leader takes each claim from a bucket that holds two seconds of the
//! rate, and its entry gets its ledger time afterwards, when the bucket may be full again. So an interval of ledger time
//! has at most two full buckets beside its rate. The bucket of a new leader is empty, and ledger time never goes back,
//! so a change of the leader adds nothing. One clock fills the bucket and counts ledger time, so a wrong clock adds
//! nothing either.

use std::collections::{BTreeMap, BTreeSet};

use super::barriers::there_by;
use crate::events::{Answered, Bound, Call, Claim, Fence, Handoff, Limit, RecipientState, Run};
use crate::history::{HasItem, History, Item, of_item};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Findings;

/// Lengths of the intervals in which rates are judged.
const LENGTHS_NS: [u64; 3] = [1_000 * MS, 10_000 * MS, 60_000 * MS];
/// Time for which a leader saves a tenant's rate. A bucket holds one recipient at least.
const TENANT_BURST_MS: u64 = 2_000;
/// Tolerance of ledger time, which is recorded in milliseconds, and of the bucket's arithmetic.
const TENANT_SLACK_MS: u64 = 10;
/// Parts of a recipient: what a rate of one email in 1,000 seconds gives in a millisecond.
const PARTS: u64 = 1_000_000;
/// Time after the end of a process within which the sink may read its bytes.
const UNDER_WAY_NS: u64 = 1_000 * MS;
const DAY_MS: i64 = 86_400_000;

/// I18: no budget is exceeded across fail-overs.
pub fn within_budgets(history: &History, findings: &mut Findings) {
    let mut judged = 0_u32;
    for limit in &history.limits {
        match &limit.bound {
            Bound::RelayRate { per_second_milli, sessions } => {
                let (per_second_milli, sessions) = (*per_second_milli, *sessions);
                let burst = (per_second_milli / 10_000).max(history.header.nodes.len() as u64);
                report_relay_rate(history, limit, &Rate { per_second_milli, sessions, burst }, findings);
            }
            Bound::TenantRate { per_second_milli } => {
                report_tenant_rate(history, limit, *per_second_milli, findings);
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

/// Returns the runs that `limit` concerns.
fn runs_under(history: &History, limit: &Limit) -> BTreeSet<Name> {
    history.runs.iter().filter(|(_, run)| concerns(limit, run)).map(|(name, _)| *name).collect()
}

/// Returns the handoffs of the runs that `limit` concerns, with DATA while the limit was in force.
fn handoffs_under<'a>(history: &'a History, limit: &Limit) -> Vec<&'a Handoff> {
    let under = runs_under(history, limit);
    let in_force = limit.from_ns..limit.until_ns.unwrap_or(u64::MAX);
    let handoffs = history
        .handoffs
        .iter()
        .filter(|handoff| in_force.contains(&handoff.data_ns) && handoff.answer != Answered::Malformed);
    handoffs.filter(|handoff| under.contains(&handoff.run)).collect()
}

/// Returns the fence and the ledger time of each claim of a recipient that `limit` concerns, in the order of the log.
/// Without an instant a claim counts only if the limit was always in force.
fn claims_under(history: &History, limit: &Limit) -> Vec<(Fence, Option<i64>)> {
    let under = runs_under(history, limit);
    let in_force = limit.from_ns..limit.until_ns.unwrap_or(u64::MAX);
    let always = in_force == (0..u64::MAX);
    let is_in_force = |claim: &&Claim| there_by(history, claim).map_or(always, |at_ns| in_force.contains(&at_ns));
    let claims = history.claims.iter().filter(|claim| under.contains(&claim.run)).filter(is_in_force);
    let mut claims: Vec<_> = claims.map(|claim| (claim.fence, claim.ledger_unix_ms)).collect();
    claims.sort_unstable();
    claims
}

/// A rate of emails.
struct Rate {
    /// Number of emails in 1,000 seconds.
    per_second_milli: u64,
    /// Number of sessions of a process.
    sessions: u32,
    /// Number of emails that are allowed at once.
    burst: u64,
}

fn report_relay_rate(history: &History, limit: &Limit, rate: &Rate, findings: &mut Findings) {
    let mut began: Vec<u64> = handoffs_under(history, limit).iter().map(|handoff| handoff.data_ns).collect();
    began.sort_unstable();
    for length_ns in LENGTHS_NS {
        let ms = length_ns / MS;
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
                let (at, seconds) = (*from_ns as f64 / 1e9, length_ns / (1_000 * MS));
                findings.violation(|| {
                    format!(
                        "a relay's rate: {count} emails began within {seconds} s from {at:.3} s on; {most} are allowed"
                    )
                });
            }
        }
    }
}

/// Counts the claims into a bucket that leaks at the rate, and a thousandth faster: ledger time runs up to that much
/// slower than the bucket's clock (P18). Its level is the excess over the rate of the interval with the largest one.
fn report_tenant_rate(history: &History, limit: &Limit, per_second_milli: u64, findings: &mut Findings) {
    let leaked = |ms: u64| per_second_milli.saturating_mul(ms).saturating_mul(1_000).div_ceil(999);
    let most = 2 * leaked(TENANT_BURST_MS).max(PARTS) + leaked(TENANT_SLACK_MS);
    let (mut level, mut last_ms) = (0_u64, i64::MIN);
    for (fence, at_ms) in claims_under(history, limit) {
        let Some(at_ms) = at_ms else { return findings.missing("the ledger time of a claim") };
        let passed_ms = at_ms.saturating_sub(last_ms.min(at_ms)).unsigned_abs();
        (level, last_ms) = (level.saturating_sub(leaked(passed_ms)) + PARTS, last_ms.max(at_ms));
        if level > most {
            let [count, most] = [level, most].map(|parts| parts as f64 / PARTS as f64);
            findings.violation(|| {
                format!("a tenant's rate: with {fence} {count:.1} recipients more than the rate were claimed; {most:.1} are allowed")
            });
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
