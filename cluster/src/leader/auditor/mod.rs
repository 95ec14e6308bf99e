//! The auditor: finds everything that is late and not terminal, and drives it on or escalates it. It logs and counts
//! each finding with its cause. It also proposes what leaves the state (`archiver.rs`).
//!
//! Each sweep reads only the state and needs no memory of events, so it also finds what another actor missed. Belongs
//! to a leadership.

mod archiver;
pub(crate) mod blocked_runs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::campaign::Campaign;
use reveille_ledger::claim_history::DoubtReason;
use reveille_ledger::command::{CampaignArm, CampaignName, Command, Decide, Decider, Decision, Quarantined};
use reveille_ledger::content::Content;
use reveille_ledger::crash_backoff::Allowance;
use reveille_ledger::ids::{ClaimOwner, Fence, Hash, RecipientId, RunId, Time};
use reveille_ledger::policy::{DAY_MS, InDoubt};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Claim, GapLookups, Ledger, RecipientState, Run, RunState};

use super::claims::dispatcher;
use super::leadership::{Leadership, missing_files};
use super::panic_guard::PanicGuard;
use crate::compose::Compiled;
use crate::process::context::NodeContext;
use crate::smtp::Timeouts;
use archiver::Archiver;

/// Time between two sweeps. Together with the margin of a lease it limits how long a claim of a lost owner stays
/// claimed (I15: lease + margin + 1 s).
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of items in one entry; the next sweep takes the rest.
const ITEMS_MAX: usize = 1_024;
/// Maximum number of decisions that one sweep proposes, all at once, so that lost owners do not wait for them (I15).
const DECISIONS_MAX: usize = 32;
/// Maximum number of campaigns in one sweep, because their templates may be compiled for each.
const CAMPAIGNS_MAX: usize = 4;
/// Delay after which an active schedule counts as overdue, because the timer has missed it. Milliseconds.
const OVERDUE_MS: i64 = 5_000;

/// Sweeps until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let (mut panic_guard, mut quarantined) = (PanicGuard::new(), BTreeSet::new());
    let mut blocked = blocked_runs::BlockedRunsWatch::default();
    let mut archiver = Archiver::new(context.archive_after);
    let _gauges = Gauges;
    while !leadership.ended() {
        sweep(&context, &leadership, &mut panic_guard).await;
        mark_blocked_runs(&context, &leadership, &mut blocked).await;
        archiver.archive_batches(&context, &leadership).await;
        quarantine(&leadership, &panic_guard, &mut quarantined).await;
        leadership.wait_for_wakeup(&leadership.wake_auditor, SWEEP_EVERY).await;
    }
}

/// Counts and logs something that the auditor drives on, because no other actor did. The message says what happened,
/// and after a semicolon what the operator does next.
fn report(cause: &'static str, count: usize, message: &str) {
    tracing::warn!(cause, count, "{message}");
    metrics::counter!("reveille_auditor_catches_total", "cause" => cause).increment(count as u64);
}

/// Halts each run at which the sweep panicked twice, with an alarm (P13). Later sweeps skip it.
async fn quarantine(leadership: &Leadership, panic_guard: &PanicGuard<RunId>, quarantined: &mut BTreeSet<RunId>) {
    let news: Vec<RunId> = panic_guard.excluded().filter(|run| !quarantined.contains(run)).collect();
    for run in news {
        let message =
            "checking a run panicked twice, so the run is halted; this is a bug: report it with the lines above";
        report("a run at which the auditor fails", 1, message);
        let answer = leadership.quarantine(Quarantined::Run(run), "checking it panicked twice").await;
        if !matches!(answer, None | Some(CommandOutcome::Refused(_))) {
            quarantined.insert(run);
        }
    }
}

/// Marks the runs that wait for a file that no live node has (P20), and unmarks them when a node has it
/// again.
async fn mark_blocked_runs(context: &NodeContext, leadership: &Leadership, watch: &mut blocked_runs::BlockedRunsWatch) {
    let now = context.clock.monotonic();
    let reports = leadership.reports();
    let mut changed = context.replica.read(|ledger| {
        let live = dispatcher::live_owners(ledger, leadership).into_keys();
        let live = live.map(|node| (node, missing_files(&reports, node)));
        watch.marks_to_change(ledger, &live.collect(), now)
    });
    changed.truncate(ITEMS_MAX);
    if changed.is_empty() {
        return;
    }
    let found = changed.iter().filter(|block| block.file.is_some()).count();
    if found > 0 {
        let message = "runs wait for a part of their audience, or an attachment, that no live node has; start the nodes \
                       that are down, or give the same list or file again";
        report("a file that no live node has", found, message);
    }
    leadership.propose(Command::RunBlock(changed)).await;
}

async fn sweep(context: &NodeContext, leadership: &Leadership, panic_guard: &mut PanicGuard<RunId>) {
    let now = leadership.now();
    let lost = context.replica.read(|ledger| claims_of_lost_owners(ledger, leadership));
    if !lost.is_empty() {
        let message = "a node lost its lease, so its claims are taken back and their open emails are in doubt; start \
                       that node again with its data and journal folders (reveille cluster status names it)";
        report("owner lost", lost.len(), message);
    }
    if !lost.is_empty() || leadership.is_revoking() {
        leadership.revoke(lost).await;
    }
    let late = context.replica.read(|ledger| runs_past_deadline(ledger, now, panic_guard));
    if !late.is_empty() {
        let message = "runs reached finish_by before all was sent, so the rest expires; reveille explain says what kept \
                       a recipient";
        report("past its deadline", late.len(), message);
        leadership.propose(Command::Expire(late)).await;
    }
    // All at once: the next check for lost owners waits for one answer, not for one after the other (I15).
    let decisions = context.replica.read(|ledger| doubts_to_decide(ledger, now, panic_guard));
    join_all(decisions.into_iter().map(|decide| {
        let message = "an email in doubt is decided by the in-doubt policy of its run; nothing to do, and reveille \
                       explain shows the decision";
        report("in doubt, decided by policy", 1, message);
        leadership.propose(Command::Decide(decide))
    }))
    .await;
    for WaitingCampaign { campaign, checked, fitting } in
        context.replica.read(|ledger| campaigns_that_wait(ledger, now))
    {
        // Templates are compiled here, outside the ledger's lock.
        let compiled = fitting.map(|(content, columns)| Compiled::new(&content, &columns));
        let wrong = compiled.and_then(Result::err).map(|error| format!("{}: {}", error.field, error.message));
        if leadership.propose(Command::CampaignArm(CampaignArm { campaign, checked, wrong })).await.is_none() {
            break;
        }
    }
    let voters = context.voters().len();
    context.replica.read(|ledger| set_gauges(ledger, leadership, voters, now));
}

/// A campaign that waits for its audience.
struct WaitingCampaign {
    campaign: CampaignName,
    /// Hash of the audience's seal; `None` if the audience is not sealed yet.
    checked: Option<Hash>,
    /// The content and the columns of the audience, which must fit. `None` if one of them is missing.
    fitting: Option<(Content, Vec<String>)>,
}

/// Returns the waiting campaigns that can be decided (P7). Their audience is sealed now, or their due time has come
/// without a sealed audience.
fn campaigns_that_wait(ledger: &Ledger, now: Time) -> Vec<WaitingCampaign> {
    let found = |(campaign, known, sealed): (CampaignName, &Campaign, Option<(Hash, Vec<String>)>)| {
        let content = ledger.blob(&known.content).and_then(Content::from_blob);
        let (checked, columns) = sealed.unzip();
        WaitingCampaign { campaign, checked, fitting: content.zip(columns) }
    };
    let most = if ledger.unaccepted_restore().is_some() { 0 } else { CAMPAIGNS_MAX };
    ledger.campaigns_to_arm(now).take(most).map(found).collect()
}

/// Returns claims with claimed recipients whose owner's lease is over. No other claim may be revoked (P9).
fn claims_of_lost_owners(ledger: &Ledger, leadership: &Leadership) -> BTreeMap<Fence, ClaimOwner> {
    let held = ledger.claims().iter().filter(|(_, claim)| !claim.claimed.is_empty());
    let lost = held.filter(|(_, claim)| leadership.lease_is_over(claim.owner));
    lost.map(|(fence, claim)| (*fence, claim.owner)).take(ITEMS_MAX).collect()
}

/// Returns open and paused runs with pending recipients whose deadline has passed (P16).
fn runs_past_deadline(ledger: &Ledger, now: Time, panic_guard: &mut PanicGuard<RunId>) -> Vec<RunId> {
    let mut late = Vec::new();
    for (id, page) in ledger.started_pages(now) {
        for run in &page.runs {
            let name = id.run_id(run);
            let is_late = || {
                let open = matches!(run.state, RunState::Open | RunState::Paused { .. });
                open && run.finish_by <= now && run.counts.get(RecipientState::Pending) > 0
            };
            if panic_guard.run(name, is_late) == Some(true) {
                late.push(name);
            }
        }
    }
    late.truncate(ITEMS_MAX);
    late
}

/// Returns the decisions that the policies of runs make now about recipients in doubt. The policy `hold` makes none.
fn doubts_to_decide(ledger: &Ledger, now: Time, panic_guard: &mut PanicGuard<RunId>) -> Vec<Decide> {
    let mut found: Vec<Decide> = Vec::new();
    let mut lookups = GapLookups::default();
    let may_decide = |fence: &Fence, claim: &Claim| !claim.in_doubt.is_empty() && !ledger.only_operator_decides(*fence);
    for (fence, claim) in ledger.claims().iter().filter(|(fence, claim)| may_decide(fence, claim)) {
        // The last run seen in this claim, and its recipients that `min_gap` would suppress if they were sent again
        // (P17).
        let mut near: Option<(RunId, Bitmap)> = None;
        for slot in claim.in_doubt.iter() {
            let Some(RecipientId { run, number: recipient }) = ledger.recipient_at(claim.chunk, slot) else { continue };
            let Some(state) = ledger.run(run) else { continue };
            let decision = panic_guard.run(run, || decision(state, claim.claimed_at, now)).flatten();
            let Some(decision) = decision else { continue };
            if decision == Decision::Resend
                && (may_be_answered(claim.doubt(slot), now) || !ledger.may_resend(state, claim.chunk, slot))
            {
                continue;
            }
            if decision == Decision::Resend {
                let known = near.take().filter(|(of, _)| *of == run);
                let known = known.unwrap_or_else(|| (run, ledger.doubts_inside_gap(&mut lookups, run, *fence)));
                if near.insert(known).1.contains(slot) {
                    continue;
                }
            }
            if let Some(last) = found.last_mut()
                && last.run == run
                && last.decision == decision
                && last.recipients.len() < ITEMS_MAX
            {
                last.recipients.push(recipient);
            } else if found.len() < DECISIONS_MAX {
                let by = Decider::Policy;
                found.push(Decide { run, recipients: vec![recipient], decision, by, up_to: None, request: None });
            } else {
                return found;
            }
        }
    }
    found
}

/// Returns true if the first handoff of a recipient in doubt may still get its answer. Its owner lost its lease and
/// has reported nothing since. The process may be alive but cut off, and wait for its relay as long as for any answer
/// to the final dot. Once it, or a later process of the node, has reported, the doubt has another reason.
fn may_be_answered(doubt: Option<(DoubtReason, Time)>, now: Time) -> bool {
    let dot_ms = i64::try_from(Timeouts::default().dot.as_millis()).unwrap_or(i64::MAX);
    doubt.is_some_and(|(doubt, since)| doubt == DoubtReason::OwnerLost && now.since_ms(since) < dot_ms)
}

/// Returns what the policy of a run decides about a recipient in doubt of a claim made at `claimed_at`; `None` if
/// nothing yet.
fn decision(run: &Run, claimed_at: Time, now: Time) -> Option<Decision> {
    match run.policies.in_doubt {
        InDoubt::Hold => None,
        InDoubt::Resend => (!run.state.is_cancelled() && run.finish_by > now).then_some(Decision::Resend),
        InDoubt::AssumeSent => {
            (run.counts.is_finished() || now.since_ms(claimed_at) > DAY_MS).then_some(Decision::Assume)
        }
    }
}

/// Gauges that only a leader sets. They return to 0 when the leadership ends. So the maximum over all nodes is the
/// leader's value, and no alert depends on a former leader.
struct Gauges;

impl Gauges {
    fn set(overdue: usize, behind: usize, blocked: usize, pending: u64, claimed: u64, in_doubt: u64) {
        metrics::gauge!("reveille_schedules_overdue").set(overdue as f64);
        metrics::gauge!("reveille_nodes_behind").set(behind as f64);
        metrics::gauge!("reveille_runs_blocked").set(blocked as f64);
        metrics::gauge!("reveille_recipients_pending").set(pending as f64);
        metrics::gauge!("reveille_recipients_claimed").set(claimed as f64);
        metrics::gauge!("reveille_recipients_in_doubt").set(in_doubt as f64);
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        Gauges::set(0, 0, 0, 0, 0, 0);
        metrics::gauge!("reveille_nodes_in_crash_backoff").set(0.0);
    }
}

/// Sets the leader's gauges. Logs overdue schedules, and runs whose counts do not add up (P1).
fn set_gauges(ledger: &Ledger, leadership: &Leadership, voters: usize, now: Time) {
    let overdue = ledger.due().take_while(|(due, _)| now.since_ms(*due) > OVERDUE_MS).count();
    if overdue > 0 && leadership.clocks_agree() && ledger.unaccepted_restore().is_none() {
        tracing::warn!(overdue, "schedules are behind their instants");
    }
    let (mut counts, mut blocked) = ([0_u64; 9], 0);
    for (id, page) in ledger.started_pages(now) {
        for run in &page.runs {
            blocked += usize::from(run.blocked.is_some());
            if run.counts.total() != u64::from(run.count) {
                tracing::error!(page = %id, run = %run.name, "the counts of a run do not add up to its recipients");
                metrics::counter!("reveille_violations_total").increment(1);
            }
            for state in RecipientState::ALL {
                counts[state as usize] += u64::from(run.counts.get(state));
            }
        }
    }
    let in_doubt: u64 = ledger.claims().iter().map(|(_, claim)| u64::from(claim.in_doubt.len())).sum();
    let (pending, claimed) = (counts[RecipientState::Pending as usize], counts[RecipientState::Claimed as usize]);
    Gauges::set(overdue, leadership.nodes_behind(), blocked, pending, claimed, in_doubt);
    let owners = dispatcher::live_owners(ledger, leadership);
    let allowances = dispatcher::allowances_of(ledger, &owners, voters, now);
    let in_backoff = allowances.values().filter(|allowance| **allowance == Allowance::NONE).count();
    metrics::gauge!("reveille_nodes_in_crash_backoff").set(in_backoff as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_resend_waits_for_the_answer_that_a_lost_owner_may_still_get() {
        let minutes = |count: i64| Time(count * 60_000);
        let doubt = |doubt| Some((doubt, minutes(1)));
        assert!(may_be_answered(doubt(DoubtReason::OwnerLost), minutes(10)));
        assert!(
            !may_be_answered(doubt(DoubtReason::OwnerLost), minutes(11)),
            "no dialogue waits longer for a final dot"
        );
        let known = [DoubtReason::NoAnswer, DoubtReason::Begun, DoubtReason::NoJournal];
        assert!(known.into_iter().all(|known| !may_be_answered(doubt(known), minutes(2))), "the dialogue is over");
        assert!(!may_be_answered(None, minutes(2)));
    }
}
