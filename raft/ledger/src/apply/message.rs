//! Messages: each opens a run that is named by the caller's key, so the same key never sends twice (P17).
//!
//! The runs belong to one schedule a tenant, which never fires, and which the first message makes. It exists for the
//! names: they stay as long as those of triggers, also when the run is in the archive. Content, recipients and policies
//! are the run's own. A message for later opens at once, and its page is claimed when it is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use super::bounds::{bounded, content_bounded, refuse_if};
use super::fire::{OpeningOccurrence, RunSource};
use crate::calendar::{DstGap, DstOverlap, DstPolicies, When};
use crate::command::{KeyRule, Opening, SendMessage, SendMessages};
use crate::model::{
    Audience, Blob, CatchUp, CommandOutcome, CommandRefusal, Content, DAY_MS, HOUR_MS, Hash, Impossible, InDoubt,
    InstantOutcome, Labels, Ledger, LimitedQuantity, MESSAGES_NAME, MINUTE_MS, MessageReceipt, OccurrenceName,
    OpeningCause, Overlap, Plan, Policies, RunId, Schedule, ScheduleId, ScheduleSettings, ScheduleState,
    ScheduleTiming, Time,
};

/// What the caller of a key or of a trigger gave.
#[derive(Clone, Copy)]
pub(super) struct FirstCall {
    /// See [`Run::body_hash`](crate::model::Run::body_hash).
    pub body_hash: Option<Hash>,
    /// In a repeat: the given send time. `None`: none is given.
    pub send_at: Option<Time>,
}

impl FirstCall {
    /// Checks a repeat by its rule.
    pub(super) fn check_repeat(&self, repeat: &FirstCall, rule: KeyRule, key: &str) -> Result<(), CommandRefusal> {
        let is_same =
            self.body_hash == repeat.body_hash && (repeat.send_at.is_none() || repeat.send_at == self.send_at);
        refuse_if(rule == KeyRule::Strict && !is_same, CommandRefusal::RequestReused(key.to_owned()))
    }
}

/// What a message stores, and the hash by which a repeat is compared.
struct MessageParts {
    content: Blob,
    audience: Blob,
    body_hash: Hash,
}

impl MessageParts {
    fn of(message: &SendMessage) -> MessageParts {
        let (content, audience) = (message.content.blob(), message.audience.blob());
        MessageParts { body_hash: message.body_hash(&content, &audience), content, audience }
    }

    fn check_repeat(&self, first: &FirstCall, message: &SendMessage) -> Result<(), CommandRefusal> {
        let repeat = FirstCall { body_hash: Some(self.body_hash), send_at: message.send_at };
        first.check_repeat(&repeat, message.rule, &message.key)
    }
}

impl Ledger {
    /// Opens a run for each message whose key is new. Each message is answered by itself.
    pub(super) fn send_messages(
        &mut self,
        context: &mut Context,
        send: &SendMessages,
    ) -> Result<CommandOutcome, CommandRefusal> {
        bounded(LimitedQuantity::Openings, send.messages.len(), self.limits().entry_openings_max)?;
        let known = self.messages_of(&send.tenant);
        let id = known.unwrap_or(ScheduleId::new(context.index, 0));
        let (mut fresh, mut occurrences) = (BTreeMap::new(), Vec::new());
        let mut answers: Vec<Result<bool, CommandRefusal>> = Vec::with_capacity(send.messages.len());
        for message in &send.messages {
            let named = (send.tenant.as_str(), id, message);
            answers.push(self.open_message(context, named, &mut fresh, &mut occurrences));
        }
        if known.is_none() && !occurrences.is_empty() {
            self.create_schedule_of_messages(context, id, &send.tenant);
        }
        self.open_runs(context, occurrences);
        let receipt = |(answer, message): (Result<bool, CommandRefusal>, &SendMessage)| {
            let (is_repeat, name) = (answer?, (id, OccurrenceName::Trigger(message.key.clone())));
            let run = self.history.get(&name).and_then(InstantOutcome::run);
            Ok(MessageReceipt { run: run.ok_or(CommandRefusal::NoSuchSchedule(id))?, is_repeat })
        };
        let receipts: Vec<_> = answers.into_iter().zip(&send.messages).map(receipt).collect();
        if let [Ok(MessageReceipt { run, is_repeat: true })] = receipts.as_slice() {
            context.repeats = Some(run.index);
        }
        Ok(CommandOutcome::Messages(receipts))
    }

    /// Adds the occurrence of a message whose key is new. Returns true for a repeat. `fresh` are the new keys of the
    /// entry.
    fn open_message<'m>(
        &mut self,
        context: &Context,
        (tenant, id, message): (&str, ScheduleId, &'m SendMessage),
        fresh: &mut BTreeMap<&'m str, FirstCall>,
        occurrences: &mut Vec<OpeningOccurrence>,
    ) -> Result<bool, CommandRefusal> {
        let parts = MessageParts::of(message);
        let occurrence = OccurrenceName::Trigger(message.key.clone());
        let first = fresh.get(message.key.as_str()).copied();
        let first = first.or_else(|| self.first_call(&(id, occurrence.clone())).map(|(_, first)| first));
        if let Some(first) = first {
            return parts.check_repeat(&first, message).map(|()| true);
        }
        self.check_new_message(tenant, message, context.now)?;
        let due = message.send_at.unwrap_or(context.now);
        let opening = Opening {
            occurrence,
            due,
            cause: if message.is_test { OpeningCause::Test } else { OpeningCause::Message },
            finish_by: due.plus_ms(message.policies.finish_by_ms),
        };
        fresh.insert(&message.key, FirstCall { body_hash: Some(parts.body_hash), send_at: Some(due) });
        let source = Some(self.source_of_message(message, parts));
        occurrences.push(OpeningOccurrence { source, ..OpeningOccurrence::of_schedule(id, opening) });
        Ok(false)
    }

    /// Checks a message as [`Command::SendMessages`](crate::command::Command::SendMessages) would, and changes nothing.
    /// Returns the run of an earlier call with its key; `None`: the key is new.
    ///
    /// # Errors
    /// Returns the refusal of `apply`.
    pub fn check_message(&self, tenant: &str, message: &SendMessage) -> Result<Option<RunId>, CommandRefusal> {
        let parts = MessageParts::of(message);
        let name = |id| (id, OccurrenceName::Trigger(message.key.clone()));
        match self.messages_of(tenant).and_then(|id| self.first_call(&name(id))) {
            Some((run, first)) => parts.check_repeat(&first, message).map(|()| Some(run)),
            None => self.check_new_message(tenant, message, self.head.now).map(|()| None),
        }
    }

    fn check_new_message(&self, tenant: &str, message: &SendMessage, now: Time) -> Result<(), CommandRefusal> {
        let finish_by = message.send_at.unwrap_or(now).plus_ms(message.policies.finish_by_ms);
        self.check_not_held()?;
        self.check_pool(tenant, &message.pool)?;
        content_bounded(&message.content, self.limits())?;
        self.check_list(&message.audience)?;
        refuse_if(finish_by <= now, Impossible::MessageTooLate(finish_by))
    }

    /// Stores content and recipients of a message, and returns what its run sends.
    fn source_of_message(&mut self, message: &SendMessage, parts: MessageParts) -> RunSource {
        let mut policies = Arc::new(Policies {
            // The first answer about the mailbox is the result of a test.
            max_attempts: if message.is_test { 1 } else { message.policies.max_attempts },
            ..policies_of_messages(&message.policies)
        });
        let mut pool: Arc<str> = message.pool.as_str().into();
        let mut name: Arc<str> = MESSAGES_NAME.into();
        let shared = &mut self.derived.shared;
        shared.policies.intern(&mut policies);
        shared.texts.intern(&mut pool);
        shared.texts.intern(&mut name);
        RunSource {
            name,
            content: self.store_blob(parts.content),
            audience: self.store_blob(parts.audience),
            recipients: message.audience.recipients.len() as u32,
            policies,
            pool,
            priority: message.priority,
            body_hash: Some(parts.body_hash),
        }
    }

    /// Makes the schedule of a tenant's messages. It has no content, no recipients and no instant.
    fn create_schedule_of_messages(&mut self, context: &mut Context, id: ScheduleId, tenant: &str) {
        let mut schedule = Schedule {
            name: MESSAGES_NAME.into(),
            timing: Arc::new(ScheduleTiming::new(When::At { instant_ms: 0 }, "UTC")),
            settings: Arc::new(ScheduleSettings {
                tenant: tenant.into(),
                policies: Arc::new(POLICIES_OF_SCHEDULE),
                pool: "".into(),
                priority: 0,
                template: None,
            }),
            content: self.store_blob(Content::default().blob()),
            audience: self.store_blob(Audience::default().blob()),
            recipients: 0,
            state: ScheduleState::Done,
            plan: Plan::new(None, context.now, "".into()),
            index: context.index,
            labels: Labels::default(),
        };
        schedule.intern(&mut self.derived.shared);
        self.derived.name_schedule(id, &schedule);
        self.schedules.put(id, schedule);
    }

    /// Returns the run of a name that a caller gave, and what the first caller gave; `None` if the name is new.
    pub(super) fn first_call(&self, name: &(ScheduleId, OccurrenceName)) -> Option<(RunId, FirstCall)> {
        let row = self.history.get(name)?;
        let run = row.run()?;
        let first = match row {
            InstantOutcome::ArchivedTrigger { body_hash, due, .. } => {
                FirstCall { body_hash: *body_hash, send_at: Some(*due) }
            }
            // A run with its own recipients has a list, so it is in the state until its name says that it is archived.
            _ => {
                let known = self.run(run);
                FirstCall { body_hash: known.and_then(|run| run.body_hash), send_at: known.map(|run| run.due) }
            }
        };
        Some((run, first))
    }
}

/// Policies of the schedule of a tenant's messages. It opens no instant, and each message has its own. They do not
/// follow the defaults, which a release may change: replicas of two releases store equal rows (P23).
const POLICIES_OF_SCHEDULE: Policies = Policies {
    dst: DstPolicies { gap: DstGap::After, overlap: DstOverlap::First },
    catch_up: CatchUp::One,
    start_within_ms: 12 * HOUR_MS,
    finish_by_ms: DAY_MS,
    in_doubt: InDoubt::Hold,
    max_attempts: 5,
    backoff_from_ms: MINUTE_MS,
    backoff_to_ms: HOUR_MS,
    retention_ms: 90 * DAY_MS,
    overlap: Overlap::Allow,
    min_gap_ms: 0,
    jitter_ms: 0,
    canary: None,
};

/// Returns the policies of a message's run: those that concern schedules, or several runs of one, are off.
fn policies_of_messages(given: &Policies) -> Policies {
    Policies { overlap: Overlap::Allow, min_gap_ms: 0, jitter_ms: 0, canary: None, ..given.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::form;

    #[test]
    fn policies_of_schedule_of_messages_are_as_recorded() {
        let recorded = [
            1, 0, 0, 0, 128, 184, 153, 41, 128, 240, 178, 82, 0, 5, 192, 169, 7, 128, 186, 183, 3, 128, 224, 226, 247,
            57, 2, 0, 0, 0,
        ];
        assert_eq!(form::encode(&POLICIES_OF_SCHEDULE), recorded);
    }
}
