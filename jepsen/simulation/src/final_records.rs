//! The end of a run: writes the due instants and the final state into the history, from the ledger and its archive.

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_check::calendar::Named;
use reveille_check::events::{
    self, Audience, Claim, Content, Due, Event, Explained, Found, OPTED_OUT, ObjectKind, Outcome, OutcomeKind,
    PassedOver, Run, RunCause,
};
use reveille_check::names::Name;
use reveille_ledger::calendar::When;
use reveille_ledger::claim_history::{ClaimEvent, ClaimEventKind};
use reveille_ledger::command::{Decider, OpeningCause, RefusalEffect, UnopenedReason};
use reveille_ledger::content::Recipients;
use reveille_ledger::ids::{Fence, Hash, OccurrenceName, RecipientId, RunId, ScheduleId, Time};
use reveille_ledger::{InstantOutcome, Ledger, RecipientState, Run as LedgerRun, Schedule};
use reveille_raft::Replica;

use crate::clients::Created;
use crate::observer::fence_of;
use crate::plan::SeedPlan;
use crate::recorder::{HistoryRecorder, name};
use crate::schedule::{AddressLists, value};

/// A ledger and the parts of its archive.
pub struct WholeLedger {
    pub hot: Ledger,
    pub archive: Vec<Arc<Ledger>>,
}

impl WholeLedger {
    /// Reads the archive of a ledger, which `replica` has applied.
    pub async fn open(hot: Ledger, replica: &Replica) -> anyhow::Result<WholeLedger> {
        let mut archive = Vec::new();
        for (key, _) in hot.parts().iter() {
            archive.extend(replica.open_part(*key).await?);
        }
        Ok(WholeLedger { hot, archive })
    }

    fn all(&self) -> impl Iterator<Item = &Ledger> {
        std::iter::once(&self.hot).chain(self.archive.iter().map(|part| &**part))
    }
}

/// Records what is due by the checker's calendar until the schedules end.
///
/// If a creation was tried more than once, the try that counted is unknown. An instant between the first and the last
/// try is due only if the ledger has it.
pub fn due(recorder: &HistoryRecorder, plan: &SeedPlan, created: &[Created], ledger: &WholeLedger) {
    plan.schedules.iter().for_each(|planned| audience(recorder, &planned.name, &planned.recipients));
    for Created { planned, id, after_first, after_last } in created {
        let names = planned.names(after_first.0, planned.end.0);
        let opened = opened(ledger, *id);
        for at in planned.due(after_first.0, planned.end.0) {
            let explanation = explanation(&ledger.hot, *id, at, &names);
            let has_opened = opened.contains_key(&at);
            if at <= after_last.0 && !has_opened && explanation.is_none() {
                continue;
            }
            recorder.record(Event::Due(Due {
                tenant: planned.tenant.into(),
                schedule: Name::from(&planned.name),
                due_unix_ms: at,
                audience: Name::from(&planned.name),
            }));
            if let (false, Some(outcome)) = (has_opened, explanation) {
                recorder.record(Event::Explained(Explained {
                    tenant: planned.tenant.into(),
                    schedule: Name::from(&planned.name),
                    first_unix_ms: at,
                    last_unix_ms: at,
                    count: 1,
                    outcome,
                }));
            }
        }
    }
}

/// Records a list of recipients.
pub fn audience(recorder: &HistoryRecorder, name: &str, addresses: &[String]) {
    let codes = addresses.iter().map(|address| Content::code_of(name, address).into()).collect();
    let recipients = addresses.iter().map(Name::from).collect();
    recorder.record(Event::Audience(Audience { name: Name::from(name), recipients, codes }));
}

/// Returns the instants for which the schedule opened a run without a trigger.
fn opened(ledger: &WholeLedger, id: ScheduleId) -> BTreeMap<i64, RunId> {
    let own = ledger
        .all()
        .flat_map(Ledger::runs)
        .filter(|(_, _, run)| run.schedule == id && run.cause != OpeningCause::Trigger);
    own.map(|(run_id, _, run)| (run.due.0, run_id)).collect()
}

/// Returns why an instant did not open, by the ledger's history under any of its civil times.
fn explanation(ledger: &Ledger, id: ScheduleId, at: i64, names: &[Named]) -> Option<PassedOver> {
    let own = names.iter().filter(|named| named.at_unix_ms == at);
    let civil = own.map(|named| OccurrenceName::Civil { civil_ms: named.civil_ms, fold: u8::from(named.is_second) });
    let mut wanted: Vec<OccurrenceName> = civil.collect();
    wanted.push(OccurrenceName::Instant(Time(at)));
    let history = ledger.history().iter().filter(|((schedule, _), _)| *schedule == id);
    let reasons = history.filter_map(|((_, first), outcome)| match outcome {
        InstantOutcome::Explained { instants, reason, .. } => {
            let covers =
                |name: &OccurrenceName| instants.position(first, name).is_some_and(|position| position.is_member);
            wanted.iter().any(covers).then_some(*reason)
        }
        InstantOutcome::Opened(_) | InstantOutcome::Archived { .. } | InstantOutcome::ArchivedTrigger { .. } => None,
    });
    reasons.filter_map(passed_over).next()
}

/// Returns the reason in the checker's terms. `None` for reasons that the checker does not accept for an instant of its
/// calendar.
fn passed_over(reason: UnopenedReason) -> Option<PassedOver> {
    Some(match reason {
        UnopenedReason::Coalesced => PassedOver::Coalesced,
        UnopenedReason::NoCatchUp | UnopenedReason::TooLate => PassedOver::Expired,
        UnopenedReason::Overlap | UnopenedReason::Superseded => PassedOver::Skipped,
        UnopenedReason::OpenedBefore => PassedOver::Refused,
        UnopenedReason::DoesNotExist | UnopenedReason::Edited | UnopenedReason::Restored => return None,
    })
}

/// Records every run and its recipients.
pub fn runs(recorder: &HistoryRecorder, plan: &SeedPlan, ledger: &WholeLedger) {
    ledger.all().for_each(|part| runs_of(recorder, plan, part, &ledger.hot));
}

/// Records the runs of the ledger, or of a part of its archive.
fn runs_of(recorder: &HistoryRecorder, plan: &SeedPlan, ledger: &Ledger, hot: &Ledger) {
    let (mut addresses, lists) = (BTreeMap::new(), plan.lists());
    for (id, page, run) in ledger.runs() {
        recorder.record(Event::Run(Run {
            run: id.to_string().into(),
            tenant: page.tenant.to_string().into(),
            schedule: item_of(run).into(),
            due_unix_ms: run.due.0,
            cause: cause(run.cause),
            request_id: request_id(&run.occurrence),
            opened_index: id.index,
            opened_unix_ms: page.opened_at.0,
            waited_for: run.waited_for.map(|of| of.to_string().into()),
        }));
        let with_audience = if ledger.blob(&run.audience).is_some() { ledger } else { hot };
        let own = recipients(with_audience, &lists, &run.audience);
        for (number, recipient) in (0..).zip(&own) {
            let Some(state) = ledger.state(id, number) else { continue };
            let (run, recipient, state) = (id.to_string().into(), Name::from(recipient), recorded_state(state));
            let number = Some(number);
            recorder.record(Event::FinalState(events::FinalState { run, recipient, number, state }));
        }
        addresses.insert(id, own);
    }
    let open = ledger.claims().iter().map(|(fence, claim)| (*fence, claim.clone()));
    let record = |claim| record_claim(recorder, ledger, (&addresses, plan.begins), claim);
    open.chain(ledger.closed_claims()).for_each(record);
}

/// Records a claim and the outcomes of its recipients.
fn record_claim(
    recorder: &HistoryRecorder,
    ledger: &Ledger,
    (addresses, begins): (&BTreeMap<RunId, Vec<String>>, Time),
    (fence, claim): (Fence, reveille_ledger::Claim),
) {
    let ns = |at: Time| u64::try_from(at.since_ms(begins)).ok().map(|ms| ms * 1_000_000);
    let recipient_of = |slot: u16| {
        let RecipientId { run, number } = ledger.recipient_at(claim.chunk, slot)?;
        Some((run, addresses.get(&run)?.get(number as usize)?.clone()))
    };
    let fence = fence_of(&fence);
    for (run, recipient) in claim.granted.iter().filter_map(recipient_of) {
        recorder.record(Event::Claim(Claim {
            fence,
            node: name(claim.owner.node).into(),
            incarnation: claim.owner.incarnation.0,
            run: run.to_string().into(),
            recipient: recipient.into(),
            committed_ns: recorder.committed_ns(&fence),
            proposed_ns: ns(claim.claimed_at),
            ledger_unix_ms: Some(claim.claimed_at.0),
        }));
    }
    for event in claim.history.iter() {
        let Some(kind) = outcome_kind(event) else { continue };
        let code = match event.what {
            ClaimEventKind::Refused { code, .. } if code > 0 => Some(code),
            _ => None,
        };
        for (run, recipient) in event.slots(&claim.granted).iter().filter_map(recipient_of) {
            let (index, proposed_ns, detail) = (event.index, ns(event.at), String::new());
            let (run, recipient) = (run.to_string().into(), recipient.into());
            recorder.record(Event::Outcome(Outcome {
                index,
                fence: Some(fence),
                run,
                recipient,
                kind,
                code,
                proposed_ns,
                detail,
            }));
        }
    }
}

/// Returns the name of the run's schedule, or the key of its message.
fn item_of(run: &LedgerRun) -> String {
    match &run.occurrence {
        OccurrenceName::Trigger(key) if run.cause == OpeningCause::Message => key.clone(),
        _ => run.name.to_string(),
    }
}

/// Returns the request id of the trigger, or the key of the message, that this name is made of.
fn request_id(name: &OccurrenceName) -> Option<Name> {
    match name {
        OccurrenceName::Trigger(id) => Some(id.into()),
        OccurrenceName::Civil { .. } | OccurrenceName::Instant(_) => None,
    }
}

fn cause(cause: OpeningCause) -> RunCause {
    match cause {
        OpeningCause::Due => RunCause::Due,
        OpeningCause::CatchUp => RunCause::CatchUp,
        OpeningCause::Trigger => RunCause::Trigger,
        OpeningCause::Backfill => RunCause::Backfill,
        OpeningCause::Test => RunCause::Test,
        OpeningCause::Message => RunCause::Message,
    }
}

/// Returns the addresses of an audience, by number. Empty if it cannot be read: then the checker finds no state of its
/// recipients.
pub fn recipients(ledger: &Ledger, lists: &AddressLists, audience: &Hash) -> Vec<String> {
    match ledger.blob(audience).and_then(Recipients::from_blob) {
        Some(Recipients::Inline(audience)) => audience.recipients.into_iter().map(|one| one.address).collect(),
        Some(Recipients::Sealed(seal)) => lists.get(&seal.name).cloned().unwrap_or_default(),
        None => Vec::new(),
    }
}

fn outcome_kind(event: &ClaimEvent) -> Option<OutcomeKind> {
    // As `explain` shows it: no relay could be asked, or different refusals are one.
    let has_answer = |code, effect| code > 0 || effect == RefusalEffect::CountAttempt;
    let is_joined_refusal = event.entries > 1 && event.to == RecipientState::Dead;
    Some(match &event.what {
        ClaimEventKind::Accepted
        | ClaimEventKind::AcceptedByLog
        | ClaimEventKind::KnownDuplicate
        | ClaimEventKind::Contradiction => OutcomeKind::Sent,
        ClaimEventKind::Refused { code, effect, .. } if has_answer(*code, *effect) || is_joined_refusal => {
            OutcomeKind::Refused
        }
        ClaimEventKind::Refused { .. }
        | ClaimEventKind::Released(_)
        | ClaimEventKind::Unsendable(_)
        | ClaimEventKind::Suppressed => OutcomeKind::Released,
        ClaimEventKind::InDoubt(_) => OutcomeKind::InDoubt,
        ClaimEventKind::Resent(Decider::Operator) => OutcomeKind::Resent(events::Decider::Operator),
        ClaimEventKind::Resent(Decider::Policy) => OutcomeKind::Resent(events::Decider::Policy),
        ClaimEventKind::Assumed(_) => OutcomeKind::Assumed,
        ClaimEventKind::AcceptedElsewhere | ClaimEventKind::TestAccepted(_) | ClaimEventKind::TestRelay(_) => {
            return None;
        }
    })
}

fn recorded_state(state: RecipientState) -> events::RecipientState {
    match state {
        RecipientState::Pending => events::RecipientState::Pending,
        RecipientState::Claimed => events::RecipientState::Claimed,
        RecipientState::Sent => events::RecipientState::Sent,
        RecipientState::Dead => events::RecipientState::Dead,
        RecipientState::Suppressed => events::RecipientState::Suppressed,
        RecipientState::Expired => events::RecipientState::Expired,
        RecipientState::Cancelled => events::RecipientState::Cancelled,
        RecipientState::Assumed => events::RecipientState::Assumed,
        RecipientState::InDoubt => events::RecipientState::InDoubt,
    }
}

/// Records the schedules, campaigns and opt-outs that exist.
pub fn objects(recorder: &HistoryRecorder, ledger: &Ledger) {
    let found = |kind, tenant: &str, name: &str, value: String| {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        recorder.record(Event::Found(Found { kind, tenant, name, value }));
    };
    for ((tenant, name), campaign) in ledger.campaigns().iter() {
        let when = When::At { instant_ms: campaign.due.0 };
        let sealed = ledger.audiences().get(&(tenant.clone(), campaign.audience.clone()));
        found(ObjectKind::Campaign, tenant, name, value(&when, &campaign.zone, sealed.map_or(0, |sealed| sealed.rows)));
    }
    let is_own = |(id, schedule): &(&ScheduleId, &Schedule)| {
        ledger.check_not_of_campaign(**id).is_ok() && !schedule.is_of_messages()
    };
    for (_, schedule) in ledger.schedules().iter().filter(is_own) {
        found(
            ObjectKind::Schedule,
            &schedule.settings.tenant,
            &schedule.name,
            value(&schedule.timing.when, &schedule.timing.zone, schedule.recipients),
        );
    }
    for ((tenant, address), _) in ledger.opted_out().iter() {
        found(ObjectKind::OptOut, tenant, address, OPTED_OUT.to_owned());
    }
}
