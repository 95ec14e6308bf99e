//! I18: no budget is exceeded, over all nodes and fail-overs (P25). I19: no recipient gets emails of two runs within the
//! `min_gap` of their schedule (P17), and none is handed over more often than `max_attempts` without a definite answer
//! (P4, P14). Both are judged by the sink's record.
//!
//! An email counts when its DATA is read. It took from its budget earlier, so emails under way at the start of an interval
//! count in it too: one for each session of each process that ran. The claim of a tenant's rate is earlier still
//! ([`CLAIMED_BEFORE_NS`]). A relay's rate has a burst of a tenth of a second, or one email for each node.
//!
//! A process whose clock is wrong may count a ninth too fast (CLOCK_BOOTTIME is right within one part in ten).

use std::collections::{BTreeMap, BTreeSet};

use crate::book::{Book, Dot, Item, rows_of};
use crate::history::{Answered, Bound, Fate, Limit, Part, Run};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Inquiry;

/// Lengths of intervals in which rates are judged: each second, and longer ones that say more of the rate itself.
const LENGTHS_NS: [u64; 3] = [1_000 * MS, 10_000 * MS, 60_000 * MS];
/// An email may be sent this long after its claim took from the tenant's rate: ten seconds to begin it, two of the bucket,
/// and three to commit and apply the claim.
const CLAIMED_BEFORE_NS: u64 = 15_000 * MS;
/// The sink may read the bytes of a process this long after its end.
const UNDER_WAY_NS: u64 = 1_000 * MS;
const DAY_MS: i64 = 86_400_000;

/// I18.
pub fn within_budgets(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts, Part::Dots, Part::Runs, Part::Lives, Part::Faults]);
    let mut judged = 0_u32;
    for limit in &book.limits {
        let what = match &limit.bound {
            Bound::RelayRate { per_second_milli, sessions } => {
                let burst = (per_second_milli / 10_000).max(book.header.nodes.len() as u64);
                Some(("the rate of a relay", *per_second_milli, *sessions, 0, burst))
            }
            Bound::TenantRate { per_second_milli, sessions } => {
                Some(("the rate of a tenant", *per_second_milli, *sessions, CLAIMED_BEFORE_NS, 0))
            }
            Bound::WarmUp { first_day, caps } => {
                judged += 1;
                warms_up(book, limit, (*first_day, caps), inquiry);
                None
            }
            Bound::MinGap { .. } | Bound::MaxAttempts { .. } => None,
        };
        if let Some(rate) = what {
            judged += 1;
            keeps_rate(book, limit, rate, inquiry);
        }
    }
    if judged == 0 {
        inquiry.lacks("a budget");
    }
}

/// I19.
pub fn gaps_and_attempts(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts, Part::Dots, Part::Runs, Part::Calls]);
    let mut judged = 0_u32;
    for limit in &book.limits {
        match limit.bound {
            Bound::MinGap { gap_ms } => keeps_gap(book, limit, gap_ms, inquiry),
            Bound::MaxAttempts { attempts } => gives_up(book, limit, attempts, inquiry),
            Bound::RelayRate { .. } | Bound::TenantRate { .. } | Bound::WarmUp { .. } => continue,
        }
        judged += 1;
    }
    if judged == 0 {
        inquiry.lacks("a schedule with a `min_gap` or `max_attempts`");
    }
}

/// Is this run under the limit?
fn concerns(limit: &Limit, run: &Run) -> bool {
    limit.tenants.contains(&run.tenant) && (limit.schedules.is_empty() || limit.schedules.contains(&run.schedule))
}

/// May a recipient of this run have to wait for another day, or for what becomes of another run?
pub fn holds_back(book: &Book, run: &Run) -> bool {
    let waits = |limit: &&Limit| matches!(limit.bound, Bound::WarmUp { .. } | Bound::MinGap { .. });
    book.limits.iter().filter(waits).any(|limit| concerns(limit, run))
}

/// Does another run of the schedule, within its gap, explain that this recipient got nothing of this run?
pub fn another_is_near(book: &Book, item: Item, run: &Run) -> bool {
    let gap_ms = book.limits.iter().filter(|limit| concerns(limit, run)).filter_map(|limit| match limit.bound {
        Bound::MinGap { gap_ms } => Some(gap_ms),
        _ => None,
    });
    let Some(gap_ms) = gap_ms.max() else { return false };
    let is_beside = |other: &&Run| {
        let own = (&other.tenant, &other.schedule) == (&run.tenant, &run.schedule) && other.run != run.run;
        own && other.due_unix_ms.abs_diff(run.due_unix_ms) < gap_ms
    };
    let may_be_sent = |state| matches!(state, Fate::Sent | Fate::Assumed | Fate::InDoubt);
    let may_have_got_it = |other: &Run| {
        let beside = book.names.find(&other.run).map(|run| Item { run, ..item });
        beside.is_some_and(|beside| book.arrived(beside) || book.standing(beside).is_some_and(may_be_sent))
    };
    book.runs.values().filter(is_beside).any(may_have_got_it)
}

/// Final dots of the runs that `limit` concerns, if their DATA came while it was in force.
fn dots_under<'a>(book: &'a Book, limit: &Limit) -> Vec<&'a Dot> {
    let under = book.runs.iter().filter(|(_, run)| concerns(limit, run)).map(|(name, _)| *name);
    let under: BTreeSet<Name> = under.collect();
    let in_force = limit.from_ns..limit.until_ns.unwrap_or(u64::MAX);
    let dots = book.dots.iter().filter(|dot| in_force.contains(&dot.data_ns) && dot.answer != Answered::Malformed);
    dots.filter(|dot| under.contains(&dot.item.run)).collect()
}

/// Its name, emails in a thousand seconds, sessions of a process, how long emails may be late, burst.
type Rate = (&'static str, u64, u32, u64, u64);

fn keeps_rate(
    book: &Book,
    limit: &Limit,
    (what, per_second_milli, sessions, longer_ns, burst): Rate,
    inquiry: &mut Inquiry,
) {
    let mut began: Vec<u64> = dots_under(book, limit).iter().map(|dot| dot.data_ns).collect();
    began.sort_unstable();
    for length_ns in LENGTHS_NS {
        let ms = (length_ns + longer_ns) / MS;
        let budget = |ms: u64| per_second_milli.saturating_mul(ms).div_ceil(1_000_000) + burst;
        let mut until = 0;
        for (from, from_ns) in began.iter().enumerate() {
            let until_ns = from_ns.saturating_add(length_ns);
            until += began.get(until..).unwrap_or_default().partition_point(|at_ns| *at_ns < until_ns);
            let count = (until - from) as u64;
            if count <= budget(ms) {
                continue;
            }
            let ms = if book.has_wrong_clock(*from_ns, until_ns) { ms.div_ceil(9) * 10 } else { ms };
            let most = budget(ms) + processes(book, *from_ns, until_ns) * u64::from(sessions);
            if count > most {
                let (at, seconds) = (*from_ns as f64 / 1e9, length_ns / (1_000 * MS));
                inquiry.offends(|| {
                    format!("{what}: {count} emails began within {seconds} s from {at:.3} s on; {most} are allowed")
                });
            }
        }
    }
}

/// How many processes of nodes can have sent something in an interval.
fn processes(book: &Book, from_ns: u64, until_ns: u64) -> u64 {
    let ran = book.lives.iter().filter(|life| {
        let over_ns = life.ended_ns.unwrap_or(u64::MAX).saturating_add(UNDER_WAY_NS);
        life.started_ns < until_ns && from_ns <= over_ns
    });
    ran.count() as u64
}

fn warms_up(book: &Book, limit: &Limit, (first_day, caps): (i64, &[u32]), inquiry: &mut Inquiry) {
    let mut arrived: Vec<u64> =
        dots_under(book, limit).into_iter().filter(|dot| dot.answer.is_accepted()).map(|dot| dot.at_ns).collect();
    arrived.sort_unstable();
    for (before, at_ns) in arrived.iter().enumerate() {
        let day = (book.civil_ms(*at_ns).saturating_add_unsigned(book.header.clock_error_ms)).div_euclid(DAY_MS);
        let days = usize::try_from(day - first_day + 1).unwrap_or(0);
        // After the last day there is no bound.
        let Some(caps) = caps.get(..days) else { return };
        let most: u64 = caps.iter().copied().map(u64::from).sum();
        if before as u64 >= most {
            let at = *at_ns as f64 / 1e9;
            inquiry.offends(|| {
                format!("a warm-up cap: email {} arrived at {at:.3} s; {most} are allowed by then", before + 1)
            });
        }
    }
}

fn keeps_gap(book: &Book, limit: &Limit, gap_ms: u64, inquiry: &mut Inquiry) {
    // Instants of runs by schedule and recipient.
    let mut got: BTreeMap<_, Vec<(i64, Name)>> = BTreeMap::new();
    for dot in dots_under(book, limit).into_iter().filter(|dot| dot.answer.is_accepted()) {
        let Some(run) = book.run_of(dot.item) else { continue };
        let whose = (run.tenant.as_str(), run.schedule.as_str(), dot.item.recipient);
        got.entry(whose).or_default().push((run.due_unix_ms, dot.item.run));
    }
    for ((_, schedule, recipient), mut runs) in got {
        runs.sort_unstable();
        for pair in runs.windows(2) {
            let [(first, former), (second, run)] = *pair else { continue };
            if former != run && second.abs_diff(first) < gap_ms {
                let (recipient, apart) = (book.names.text(recipient), second.abs_diff(first));
                inquiry.offends(|| format!("{recipient} got two emails of {schedule} whose instants are {apart} ms apart; {gap_ms} ms are owed"));
            }
        }
    }
}

fn gives_up(book: &Book, limit: &Limit, attempts: u32, inquiry: &mut Inquiry) {
    let items: BTreeSet<Item> = dots_under(book, limit).iter().map(|dot| dot.item).collect();
    for item in items {
        // A definite refusal waits uncounted, kills, or uses up an attempt of the same number; so does a dialogue that was cut
        // off before its dot. Neither allows more hand-offs.
        let passed = |dot: &&Dot| dot.answer.is_accepted() || dot.answer == Answered::Nothing;
        let tried = rows_of(&book.dots, item).iter().filter(passed).count() as u64;
        let most = u64::from(attempts) * (1 + sent_again(book, item));
        if tried > most {
            inquiry.offends(|| format!("{} was handed over {tried} times; {most} are allowed", book.describe(item)));
        }
    }
}

/// How often an operator sent it again, or may have.
fn sent_again(book: &Book, item: Item) -> u64 {
    let (run, recipient) = (book.names.text(item.run), book.names.text(item.recipient));
    book.calls.iter().filter(|call| call.may_be_done() && call.resends(run, recipient)).count() as u64
}
