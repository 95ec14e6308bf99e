//! Simple changes of relays, opt-outs, blobs and the record of backups; and quarantine.

use super::Context;
use super::bounds::refuse_if;
use crate::command::{OptOut, OptOutTakeBack, Quarantine, Quarantined, RelayPut, Removal};
use crate::effect::Effect;
use crate::model::{
    Activity, BackupHistory, BackupResult, Blob, BlockCause, CommandOutcome, CommandRefusal, EtagKind, EventKind,
    EventSubject, Hash, Impossible, Ledger, OptedOut, PauseReason, StoredBlob, TakenBack, Time, check_etag,
    is_loopback,
};

impl Ledger {
    pub(super) fn relay_put(&mut self, context: &mut Context, RelayPut { relay, .. }: &RelayPut) -> CommandOutcome {
        if self.relays.get(&relay.name) != Some(relay) {
            self.relays.put(relay.name.clone(), relay.clone());
            context.emit(Effect::RelaysChanged);
        }
        CommandOutcome::Done
    }

    /// Checks a relay.
    pub(super) fn check_relay_put(&self, put: &RelayPut) -> Result<(), CommandRefusal> {
        let RelayPut { relay, replace, expected, .. } = put;
        if self.head.test_clock.is_some() && !is_loopback(&relay.host) {
            return Err(Impossible::RelayElsewhere { host: relay.host.clone() }.into());
        }
        match self.relays.get(&relay.name) {
            // A repeat is answered like the first request, which has made the etag another one.
            Some(known) if known == relay => Ok(()),
            Some(_) if !replace => Err(CommandRefusal::RelayNameTaken(relay.name.clone())),
            _ => {
                let etag = self.relay_etag(&relay.name);
                check_etag(expected.as_deref(), (EtagKind::Relay, &relay.name), &etag)
            }
        }
    }

    pub(super) fn check_relay_remove(&self, Removal { name, expected }: &Removal) -> Result<(), CommandRefusal> {
        refuse_if(!self.relays.contains(name), CommandRefusal::NoSuchRelay(name.clone()))?;
        check_etag(expected.as_deref(), (EtagKind::Relay, name), &self.relay_etag(name))
    }

    pub(super) fn relay_remove(&mut self, context: &mut Context, name: &str) -> CommandOutcome {
        self.relays.remove(&name.to_owned());
        context.emit(Effect::RelaysChanged);
        CommandOutcome::Done
    }

    /// Records opt-outs. They are enforced at each gate that uses a state at or above this index (P15).
    pub(super) fn opt_out(&mut self, context: &mut Context, optout: &OptOut) -> CommandOutcome {
        let mut added = 0_u32;
        for key in &optout.keys {
            let key = self.opt_out_key(&(optout.tenant.clone(), key.clone()));
            match self.opted_out.edit(&key) {
                Some(known) => known.last = context.index,
                None => {
                    self.taken_back.remove(&key);
                    self.opted_out.put(key, OptedOut { index: context.index, at: context.now, last: context.index });
                    added += 1;
                }
            }
        }
        self.head.forbidden_index = context.index;
        if added > 0 {
            context.events.add_other(&optout.tenant, EventSubject::OptOuts, EventKind::OptedOut(added));
        }
        CommandOutcome::Changed(added.into())
    }

    /// Takes an opt-out back, because an operator says that the recipient wants email again (P15). It stays if the
    /// recipient opted out again after the operator read it.
    pub(super) fn take_back(
        &mut self,
        context: &mut Context,
        back: &OptOutTakeBack,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let OptOutTakeBack { tenant, key, last, reason } = back;
        let row_key = (tenant.clone(), key.clone());
        refuse_if(reason.trim().is_empty(), Impossible::NoReason)?;
        match self.opt_out_of(&row_key) {
            Some(known) if known.last == *last => {}
            Some(_) => return Err(Impossible::OptedOutAgain(key.clone()).into()),
            None if self.taken_back.contains(&row_key) => return Ok(CommandOutcome::Changed(0)),
            None => return Err(Impossible::NotOptedOut(key.clone()).into()),
        }
        // After a restore both may be there: the address in the backup, and the hash after it.
        self.opted_out.remove(&row_key);
        self.opted_out.remove(&Ledger::erased_opt_out_key(tenant, key));
        let reason = reason.clone();
        self.taken_back.put(row_key, TakenBack { index: context.index, at: context.now, reason });
        Ok(CommandOutcome::Changed(1))
    }

    /// Records how the making of a backup ended. Two nodes may make one at the same time.
    pub(super) fn backup_ended(&mut self, context: &Context, result: &BackupResult) -> CommandOutcome {
        let history = &mut self.head.backups;
        match result {
            BackupResult::Verified(made) if history.last.is_none_or(|last| last.index <= made.index) => {
                *history = BackupHistory { last: Some(*made), failed_at: None };
            }
            BackupResult::Verified(_) => {}
            BackupResult::Failed => history.failed_at = Some(context.now),
        }
        CommandOutcome::Done
    }

    pub(super) fn quarantine(
        &mut self,
        context: &mut Context,
        quarantine: &Quarantine,
    ) -> Result<CommandOutcome, CommandRefusal> {
        match quarantine.item {
            Quarantined::Schedule(id) => {
                let cause = BlockCause::Quarantined(quarantine.cause.as_str().into());
                let event = EventKind::ScheduleBlocked(cause.clone());
                self.change_activity(context, id, |_| Activity::Blocked { cause })?;
                self.add_blocked_event(context, id, event);
                context.alarm(format!("schedule {id} is blocked: {}", quarantine.cause));
                Ok(CommandOutcome::Done)
            }
            Quarantined::Run(run) => {
                let outcome = self.halt_run(context, run, PauseReason::Quarantined(quarantine.cause.clone()))?;
                context.alarm(format!("run {run} is paused: {}", quarantine.cause));
                Ok(outcome)
            }
        }
    }

    /// Stores a blob, or adds a reference to it.
    pub(super) fn store_blob(&mut self, blob: Blob) -> Hash {
        match self.blobs.edit(&blob.hash) {
            Some(stored) => {
                stored.references += 1;
                if stored.bytes[..] != blob.bytes {
                    // A person was erased from it, and the list was given again.
                    stored.bytes = blob.bytes.into();
                    self.derived.mappings.forget(&blob.hash);
                }
            }
            None => {
                let stored = StoredBlob { bytes: blob.bytes.into(), references: 1, kept_until: Time::default() };
                self.blobs.put(blob.hash, stored);
            }
        }
        if let Some(stored) = self.blobs.get(&blob.hash) {
            self.derived.add_files(blob.hash, &stored.bytes);
        }
        blob.hash
    }

    /// Adds a reference to a stored blob.
    pub(super) fn retain_blob(&mut self, hash: &Hash) {
        let Some(stored) = self.blobs.edit(hash) else { return };
        stored.references += 1;
        if stored.references == 1 {
            self.derived.add_files(*hash, &stored.bytes);
        }
    }

    /// Removes a reference. The last one removes the blob, unless archived runs still refer to it. These send nothing,
    /// so a content that only they have needs no files.
    pub(super) fn release_blob(&mut self, hash: &Hash) {
        let now = self.head.now;
        let Some(stored) = self.blobs.edit(hash) else { return };
        stored.references = stored.references.saturating_sub(1);
        if stored.references > 0 {
            return;
        }
        self.derived.attached.remove(hash);
        if stored.is_unused(now) {
            self.remove_blob(hash);
        }
    }

    /// Removes a blob to which nothing refers.
    pub(super) fn remove_unused_blob(&mut self, hash: &Hash) {
        let now = self.head.now;
        if self.blobs.get(hash).is_some_and(|stored| stored.is_unused(now)) {
            self.remove_blob(hash);
        }
    }

    pub(super) fn remove_blob(&mut self, hash: &Hash) -> Option<StoredBlob> {
        self.derived.seals.remove(hash);
        self.derived.attached.remove(hash);
        self.derived.mappings.forget(hash);
        self.blobs.remove(hash)
    }
}
