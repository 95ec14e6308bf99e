//! I10: each instant opens once, by the zone's rules, and never early. An instant is late or skipped only if no quorum
//! could act or the clock was moved over it. A run without a due instant is a violation, and so is an email to an
//! address outside the run's audience.

use std::collections::BTreeMap;

use super::loss::{self, TriggerName};
use crate::events::{Answer, Call, Operation, PassedOver, Run, RunCause, Target};
use crate::history::{HasItem, History, of_run};
use crate::names::Name;
use crate::time::seconds;
use crate::verdict::Findings;

/// Milliseconds within which a local time can occur again: longer than any change of the clocks.
const NAMED_AGAIN_WITHIN_MS: i64 = 26 * 3_600_000;

/// I10: each occurrence opens once, never early.
pub fn kept(history: &History, findings: &mut Findings) {
    if !history.is_whole() {
        return;
    }
    for run in &history.contradicting_runs {
        findings.violation(|| format!("{run} was read twice, as two different runs"));
    }
    report_extra_runs(history, findings);
    report_extra_triggered_runs(history, findings);
    report_unrequested_backfills(history, findings);
    for run in history.runs.values() {
        report_early_and_late_runs(history, run, findings);
    }
    report_wrong_explanations(history, findings);
    report_misplaced_emails(history, findings);
}

fn report_extra_runs(history: &History, findings: &mut Findings) {
    for run in history.runs.values() {
        let by_schedule = !run.cause.is_asked_for();
        let is_due = history.due.contains_key(&run.instant());
        if by_schedule && !is_due {
            let Run { run, schedule, due_unix_ms, .. } = run;
            findings.violation(|| format!("{run} is an extra run: {schedule} has no instant at {due_unix_ms} ms"));
        }
    }
    for (instant, runs) in loss::runs_by_instant(history).into_iter().filter(|(_, runs)| runs.len() > 1) {
        let names: Vec<&str> = runs.iter().map(|run| &*run.run).collect();
        findings.violation(|| format!("{instant} opened more than once: {}", names.join(", ")));
    }
}

/// Reports runs that no trigger asked for, and further runs of a trigger's request id: it opens one run.
fn report_extra_triggered_runs(history: &History, findings: &mut Findings) {
    let audiences = loss::asked_audiences(history);
    let mut opened: BTreeMap<TriggerName, Vec<&str>> = BTreeMap::new();
    for run in history.runs.values().filter(|run| run.cause.is_asked_for()) {
        opened.entry(TriggerName::of(run)).or_default().push(&run.run);
    }
    for (name, runs) in opened {
        if !audiences.contains_key(&name) {
            findings.violation(|| format!("{name} opened {} without a request", runs.join(", ")));
        } else if runs.len() > 1 {
            findings.violation(|| format!("{name} opened more than once: {}", runs.join(", ")));
        }
    }
}

/// Reports backfilled runs outside of every range that an operator requested before the first email of the run.
/// (`report_extra_runs` checks that a run is not a second run of its instant. The opening of a run is recorded in
/// ledger time, which may be behind.)
fn report_unrequested_backfills(history: &History, findings: &mut Findings) {
    for (name, own) in history.runs.iter().filter(|(_, run)| run.cause == RunCause::Backfill) {
        let first_ns = of_run(&history.handoffs, *name).iter().map(|handoff| handoff.data_ns).min().unwrap_or(u64::MAX);
        let is_requested = history.possible_calls().any(|call| {
            call.invoked_ns < first_ns
                && matches!(&call.operation, Operation::Backfill { tenant, schedule, from_unix_ms, until_unix_ms }
                    if own.tenant == *tenant && own.schedule == *schedule
                        && (*from_unix_ms..=*until_unix_ms).contains(&own.due_unix_ms))
        });
        if !is_requested {
            findings.violation(|| format!("{} was backfilled without a request", own.run));
        }
    }
}

fn report_early_and_late_runs(history: &History, run: &Run, findings: &mut Findings) {
    let Run { due_unix_ms: due, opened_unix_ms: opened, .. } = *run;
    let late = opened.saturating_sub(due);
    match run.cause {
        cause if cause.is_asked_for() => {}
        _ if late < 0 => findings.violation(|| format!("{} opened {} before its instant", run.run, seconds(-late))),
        RunCause::Backfill => {}
        _ => {
            let bound = i64::try_from(history.header.late_ms).unwrap_or(i64::MAX);
            let hindered = late > bound && history.unhindered_ms(due, opened) <= bound;
            if late > bound && !hindered && !is_excused(history, run, due, opened) {
                findings.violation(|| format!("{} opened {} late, and a quorum was there", run.run, seconds(late)));
            }
        }
    }
}

/// Returns true if the schedule was paused, or another of its runs had to finish first.
fn is_excused(history: &History, run: &Run, from_ms: i64, to_ms: i64) -> bool {
    was_stopped(history, &run.tenant, &run.schedule, from_ms, to_ms) || had_to_wait(history, run)
}

/// Returns true if the ledger names an earlier run of the same schedule for which this run waited, and the earlier run
/// was not finished when this run was due.
fn had_to_wait(history: &History, run: &Run) -> bool {
    let Some(other) = run.waited_for.and_then(|name| history.runs.get(&name)) else { return false };
    (&other.tenant, &other.schedule) == (&run.tenant, &run.schedule)
        && other.opened_index < run.opened_index
        && was_at_work(history, other.run, run.due_unix_ms)
}

/// Returns true if an email of the run arrived after this instant, or if one of its steps may be later: after the last
/// entry that is known to be earlier.
fn was_at_work(history: &History, run: Name, at_ms: i64) -> bool {
    let before = history.runs.values().filter(|run| run.opened_unix_ms <= at_ms).map(|run| run.opened_index).max();
    let steps = of_run(&history.outcomes, run).iter();
    of_run(&history.handoffs, run).iter().map(|handoff| handoff.at_ns).any(|at_ns| history.civil_ms(at_ns) >= at_ms)
        || steps.map(|outcome| outcome.index).max() > before
}

/// Returns true if operators may have kept a schedule from opening between `from_ms` and `to_ms`: the schedule was
/// paused before and not resumed, or was resumed or changed since.
pub(super) fn was_stopped(history: &History, tenant: &str, schedule: &str, from_ms: i64, to_ms: i64) -> bool {
    let own = Target::Schedule { tenant: tenant.to_owned(), schedule: schedule.to_owned() };
    let was_resumed = |pause: &Call| {
        let after_ns = pause.answered_ns.unwrap_or(pause.invoked_ns);
        history.calls.iter().any(|call| {
            matches!(&call.operation, Operation::Resume { target } if *target == own)
                && matches!(call.answer, Answer::Ok { .. })
                && call.invoked_ns >= after_ns
                && call.answered_ns.is_some_and(|at_ns| history.civil_ms(at_ns) < from_ms)
        })
    };
    let may_act_after_start = |call: &Call| history.civil_ms(call.answered_ns.unwrap_or(u64::MAX)) >= from_ms;
    let mut calls = history.possible_calls().filter(|call| history.civil_ms(call.invoked_ns) <= to_ms);
    calls.any(|call| match &call.operation {
        Operation::Pause { target } => *target == own && !was_resumed(call),
        Operation::Resume { target } => *target == own && may_act_after_start(call),
        Operation::Write { tenant: of, name, .. } => {
            (of.as_str(), name.as_str()) == (tenant, schedule) && may_act_after_start(call)
        }
        _ => false,
    })
}

/// Reports instants that did not open and whose recorded reason the history does not confirm.
fn report_wrong_explanations(history: &History, findings: &mut Findings) {
    let by_instant = loss::runs_by_instant(history);
    for instant in history.due.keys().filter(|instant| !by_instant.contains_key(instant)) {
        let Some(explained) = loss::explanation(history, instant) else { continue };
        let (from, to) = (instant.due_unix_ms, instant.due_unix_ms.saturating_add_unsigned(history.header.late_ms));
        let (tenant, schedule) = (explained.tenant, explained.schedule);
        // Runs that opened while the instant could still open, outages not counted.
        let opened_in_time = |run: &Run, within_ms| {
            (run.tenant, run.schedule) == (tenant, schedule)
                && run.opened_unix_ms >= from - within_ms
                && history.unhindered_ms(from, run.opened_unix_ms) <= to - from
        };
        let has_run = |within_ms| history.runs.values().any(|run| opened_in_time(run, within_ms));
        let (is_so, but) = match explained.outcome {
            // I4 judges instants that wait.
            PassedOver::Waiting => continue,
            PassedOver::Coalesced | PassedOver::Expired => {
                let hindered = history.was_hindered(from, to) || was_stopped(history, &tenant, &schedule, from, to);
                (hindered, "a quorum was there")
            }
            PassedOver::Skipped => {
                let may_be = history.header.policies.may_skip && has_run(i64::MAX / 2);
                (may_be, "there was no earlier run that its policy gives way to")
            }
            PassedOver::Refused => (has_run(NAMED_AGAIN_WITHIN_MS), "no earlier run has its civil time"),
        };
        if !is_so {
            findings.violation(|| format!("{instant} is {:?}, and {but}", explained.outcome));
        }
    }
}

/// Reports emails before their instant, of an unknown run, or to an address outside the run's audience.
fn report_misplaced_emails(history: &History, findings: &mut Findings) {
    let triggered: BTreeMap<Name, Name> = loss::triggered(history).collect();
    for handoff in history.accepts() {
        let what = || format!("{} at {:.3} s", handoff.item(), handoff.at_ns as f64 / 1e9);
        let Some(run) = history.run_of(handoff.item()) else {
            findings.violation(|| format!("{}: there is no such run", what()));
            continue;
        };
        let early = run.due_unix_ms.saturating_sub(history.civil_ms(handoff.at_ns));
        // A trigger is due when it is asked for, by a clock that may be wrong. A message may have a send time.
        let has_instant = !matches!(run.cause, RunCause::Trigger | RunCause::Test);
        if has_instant && early > i64::try_from(history.header.clock_error_ms).unwrap_or(i64::MAX) {
            findings.violation(|| format!("{}: {} before its instant", what(), seconds(early)));
        }
        let audience = match run.cause {
            cause if cause.is_asked_for() => triggered.get(&handoff.run),
            _ => history.due.get(&run.instant()),
        };
        let recipients = audience.and_then(|audience| history.audiences.get(audience));
        if recipients.is_some_and(|recipients| recipients.binary_search(&handoff.recipient).is_err()) {
            findings.violation(|| format!("{}: the recipient is not in the audience", what()));
        }
    }
}
