//! Writes the audit record of each entry that an operator caused, whatever came of it.
//!
//! The record is part of the state: it is there if and only if the entry was applied, and writing it cannot fail. When
//! there are enough records, the same entry moves them to a part of the archive. The state keeps a small row for each
//! part. The oldest part is removed when it is too old (P24), or when there are too many parts.

use super::Context;
use crate::command::{Actor, Command, Entry, Requeue};
use crate::model::{
    ArchivePartKey, AuditCaller, AuditObject, AuditOutcome, AuditRecord, CommandOutcome, CommandRefusal, Hash, Ledger,
    PartContent, ScheduleId, Time,
};

/// Position of a part of records in its entry: above those of all parts with runs.
const PLACE: u32 = u32::MAX;

impl Ledger {
    /// Begins the record of an entry; `None`: the cluster itself wants it. Called before the command, which may delete
    /// the object that the record names.
    pub(super) fn begin_audit_record(&self, entry: &Entry) -> Option<AuditRecord> {
        let (caller, tenant) = match &entry.actor {
            Actor::System => return None,
            Actor::Insecure => (AuditCaller::Insecure, None),
            Actor::Local => (AuditCaller::Local, None),
            Actor::Operator { token, tenant, .. } => (AuditCaller::Token(*token), tenant.as_deref()),
        };
        let (request, reason) = words(&entry.command);
        Some(AuditRecord {
            previous: Hash::default(),
            index: 0,
            at: Time(0),
            caller,
            tenant: tenant.map(|tenant| self.cut(tenant)),
            command: entry.command.kind(),
            object: self.audit_object(&entry.command),
            request: request.map(|request| self.cut(request)),
            reason: reason.map(|reason| self.cut(reason)),
            outcome: AuditOutcome::Done,
        })
    }

    /// Completes the record, and adds it to the chain.
    pub(super) fn add_audit_record(&mut self, context: &Context, begun: AuditRecord, outcome: &CommandOutcome) {
        let (previous, index, at) = (self.head.audit, context.index, self.head.now);
        let outcome = context.repeats.map_or_else(|| audit_outcome(outcome), AuditOutcome::Repeats);
        let record = AuditRecord { previous, index, at, outcome, ..begun };
        self.head.audit = record.hash();
        self.audit.put(index, record);
    }

    /// Moves the records to a new part of the archive, if there are enough. An entry that raises the level may change
    /// how many that are.
    pub(super) fn archive_full_audit(&mut self, context: &Context) {
        if self.audit.len() < self.limits().audit_part_records {
            return;
        }
        let (first, last) = (self.audit.iter().next(), self.audit.iter().next_back());
        let (Some((_, first)), Some((_, last))) = (first, last) else { return };
        let content = PartContent::Audit { first: first.index, last: last.index, from: first.at, to: last.at };
        let until = last.at.plus_ms(self.limits().audit_kept_ms);
        let part = Ledger { audit: std::mem::take(&mut self.audit), ..Ledger::new() };
        let key = ArchivePartKey { index: context.index, place: PLACE };
        self.add_part_of_rows(key, content, part, until);
        self.derived.audit_parts.insert(key);
        while self.derived.audit_parts.len() > self.limits().audit_parts_max
            && let Some(oldest) = self.derived.audit_parts.first().copied()
        {
            self.remove_part(oldest);
        }
    }

    /// Returns what the command is about. Recipients are counted: no record has an address.
    fn audit_object(&self, command: &Command) -> AuditObject {
        let name = |name: &str| AuditObject::Name(self.cut(name));
        let schedule = |id: &ScheduleId| {
            AuditObject::Schedule(*id, self.schedules.get(id).map(|schedule| self.cut(&schedule.name)))
        };
        let items = |count: usize| AuditObject::Items(count as u32);
        match command {
            Command::RelayPut(put) => name(&put.relay.name),
            Command::RelayRemove(of) | Command::TenantRemove(of) | Command::PoolReset(of) => name(&of.name),
            Command::ScheduleCreate(create) => name(&create.name),
            Command::SchedulesCreate(creates) => items(creates.len()),
            Command::SendMessages(send) => items(send.messages.len()),
            Command::SchedulePause(pause) => schedule(&pause.schedule),
            Command::ScheduleResume(resume) => schedule(&resume.schedule),
            Command::ScheduleDelete(delete) => schedule(&delete.schedule),
            Command::Trigger(trigger) => schedule(&trigger.schedule),
            Command::ScheduleEdit(edit) => schedule(&edit.schedule),
            Command::Backfill(backfill) => schedule(&backfill.schedule),
            Command::RunPause(pause) => AuditObject::Run(pause.run),
            Command::RunResume(resume) => AuditObject::Run(resume.run),
            Command::RunCancel(run) => AuditObject::Run(*run),
            Command::Decide(decide) => AuditObject::Recipients(decide.run, decide.recipients.len() as u32),
            Command::Requeue(Requeue { letters, .. }) | Command::Discard(letters) => match letters.picked.as_slice() {
                [one] => AuditObject::Recipients(one.run, one.recipients.len() as u32),
                runs => items(runs.iter().map(|of_run| of_run.recipients.len()).sum()),
            },
            Command::OptOut(optout) => items(optout.keys.len()),
            Command::ArchiveLossAccept(lost) => items(lost.len()),
            Command::OptOutTakeBack(_) | Command::RecipientErase(_) => items(1),
            Command::AudienceSeal(seal) => name(&seal.seal.name),
            Command::AudienceDelete(delete) => name(&delete.name),
            Command::CampaignCreate(create) => name(&create.name),
            Command::TemplatePut(put) => name(&put.name),
            Command::TemplateDelete(delete) => name(&delete.name),
            Command::CampaignLaunch(launch) => name(&launch.campaign.name),
            Command::CampaignArm(arm) => name(&arm.campaign.name),
            Command::CampaignCancel(end) | Command::CampaignDelete(end) => name(&end.campaign.name),
            Command::TenantSet(set) => name(&set.name),
            Command::PoolSet(set) => name(&set.pool),
            Command::RaiseLevel(raise) => AuditObject::Level(raise.level),
            Command::NodeUp(up) => AuditObject::Node(up.owner.node),
            Command::NodeShare(share) => AuditObject::Node(share.node),
            Command::NodeDrain(node)
            | Command::NodeUndrain(node)
            | Command::NodeRemove(node)
            | Command::NodeInvite(node)
            | Command::LeaderTransfer(node) => AuditObject::Node(*node),
            Command::TokenCreate(create) => AuditObject::Token(create.id),
            Command::TokenRevoke(id) => AuditObject::Token(*id),
            Command::EpochStart(_)
            | Command::Tick
            | Command::Fire(_)
            | Command::Claim(_)
            | Command::Settle(_)
            | Command::Revoke(_)
            | Command::Expire(_)
            | Command::Quarantine(_)
            | Command::TestClock
            | Command::Advance(_)
            | Command::Archive(_)
            | Command::Replan(_)
            | Command::RunBlock(_)
            | Command::Restore(_)
            | Command::RestoreAccept
            | Command::Authority(_)
            | Command::BackupEnded(_) => AuditObject::Cluster,
            #[cfg(feature = "next-level")]
            Command::OfNextLevel => AuditObject::Cluster,
        }
    }

    /// Cuts a text of the caller, so that records stay small.
    fn cut(&self, text: &str) -> String {
        text[..text.floor_char_boundary(self.limits().audit_text_bytes_max)].to_owned()
    }
}

/// Returns the request id and the reason that the caller gave.
fn words(command: &Command) -> (Option<&str>, Option<&str>) {
    match command {
        Command::RelayPut(put) => (put.request.as_deref(), None),
        Command::PoolSet(set) => (set.request.as_deref(), None),
        Command::TenantSet(set) => (set.request.as_deref(), None),
        Command::AudienceSeal(seal) => (seal.request.as_deref(), None),
        Command::AudienceDelete(delete) => (delete.request.as_deref(), None),
        Command::ScheduleCreate(create) => (create.request.as_deref(), create.paused.as_deref()),
        Command::CampaignCreate(create) => (create.request.as_deref(), None),
        Command::SendMessages(send) => match send.messages.as_slice() {
            [message] => (Some(&message.key), None),
            _ => (None, None),
        },
        Command::Trigger(trigger) => (Some(&trigger.request), None),
        Command::ScheduleEdit(edit) => (edit.request.as_deref(), None),
        Command::Backfill(backfill) => (backfill.request.as_deref(), None),
        Command::Decide(decide) => (decide.request.as_deref(), None),
        Command::Requeue(Requeue { letters, .. }) | Command::Discard(letters) => (letters.request.as_deref(), None),
        Command::SchedulePause(pause) => (None, Some(&pause.reason)),
        Command::RunPause(pause) => (None, Some(&pause.reason)),
        Command::OptOutTakeBack(back) => (None, Some(&back.reason)),
        _ => (None, None),
    }
}

fn audit_outcome(outcome: &CommandOutcome) -> AuditOutcome {
    fn items<T>(results: &[Result<T, CommandRefusal>]) -> AuditOutcome {
        let done = results.iter().filter(|result| result.is_ok()).count() as u32;
        AuditOutcome::Partly { done, refused: results.len() as u32 - done }
    }
    let items = match outcome {
        CommandOutcome::Refused(refusal) => return AuditOutcome::Refused(refusal.into()),
        CommandOutcome::Schedules(results) => items(results),
        CommandOutcome::ChangedByRun(results) => items(results),
        CommandOutcome::DeadLetters { moved, cancelled, .. } => {
            AuditOutcome::Partly { done: moved.recipients as u32, refused: *cancelled as u32 }
        }
        CommandOutcome::Fired(results) => items(results),
        CommandOutcome::Claimed(results) => items(results),
        CommandOutcome::Messages(results) => items(results),
        _ => return AuditOutcome::Done,
    };
    match items {
        AuditOutcome::Partly { refused: 0, .. } => AuditOutcome::Done,
        partly => partly,
    }
}
