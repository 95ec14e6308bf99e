//! The only way to change the state: a committed entry is applied here (P2).
//!
//! `apply` is pure and total. It uses no clock, no random numbers, no time zone database and no network; it never fails
//! but refuses. Each file has one family of commands. This file has the exhaustive match, and what applies to each
//! entry: the epoch (P13), ledger time (P18), the rights of its actor, stored answers and audit records.

pub(crate) mod archive;
mod audience;
mod audit;
mod authority;
mod backfill;
mod backup;
mod blob;
mod bounds;
mod campaign;
mod claim;
mod doubt;
mod edit;
pub(crate) mod epoch;
mod erase;
mod events;
mod fire;
mod gap;
mod injected_bugs;
mod instant_history;
mod message;
mod not_sent;
mod opt_out;
mod overlap;
mod pool;
mod quarantine;
mod relay;
mod relay_refusals;
mod repeated_campaign;
mod replan;
mod requeue;
mod restore;
mod run;
mod schedule;
mod settle;
mod template;
mod tenant;
mod test_clock;
mod token;
mod transition;

pub(crate) use archive::history_kept_until;
pub use claim::unclaimable_slots;
pub use epoch::{AGREEMENT_MS, agreed_time};
pub use gap::{BackfillBatch, GapLookups};

use self::bounds::refuse_if;
use crate::DEFAULT_TENANT;
use crate::command::{Actor, AudienceDelete, AudienceSeal, Command, Decide, Decision, Entry, Requeue};
use crate::effect::Effect;
use crate::fingerprint::fingerprint;
use crate::injected_bugs::Bug;
use crate::model::{
    CommandOutcome, CommandRefusal, CommandReply, EntryEvents, Hash, Ledger, PoolSet, StoredAnswer, TenantSet, Time,
};

/// Result of applying one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyResult {
    /// Reply to the proposer.
    pub reply: CommandReply,
    /// Effects for the other parts of the node.
    pub effects: Vec<Effect>,
}

/// Log index, time and actor of the entry that is applied, and the effects and events that it collects.
pub(crate) struct Context {
    pub index: u64,
    pub now: Time,
    /// Distance of the index from that of the former entry.
    pub ahead: u64,
    /// Who wants the command. Its rights were checked before.
    pub actor: Actor,
    /// If this entry repeats an earlier one: the index of the earlier entry.
    pub repeats: Option<u64>,
    pub effects: Vec<Effect>,
    pub events: EntryEvents,
}

/// Request of a command whose answer is stored.
struct StoredRequest<'c> {
    request: &'c str,
    /// Key of the answer: the tenant, and a hash of method, resource and request id. So the same id for another schedule
    /// is another request.
    key: (String, Hash),
    /// Hash by which a repeat is recognised.
    body_hash: Hash,
}

impl<'c> StoredRequest<'c> {
    /// `resource` is what the path of an HTTP request names: a name and not an id, so that a repeat finds its answer also
    /// if the resource was deleted and created again meanwhile. It is empty for a creation.
    fn new(tenant: &str, (method, resource): (&str, &str), request: &'c str, body_hash: Hash) -> StoredRequest<'c> {
        let key = (tenant.to_owned(), fingerprint(&(method, resource, request)));
        StoredRequest { request, key, body_hash }
    }
}

impl Context {
    /// Adds an effect, unless it equals the last one.
    pub(crate) fn emit(&mut self, effect: Effect) {
        if self.effects.last() != Some(&effect) {
            self.effects.push(effect);
        }
    }

    pub(crate) fn alarm(&mut self, text: String) {
        self.emit(Effect::Alarm(text));
    }
}

impl Ledger {
    /// Applies the entry that was committed at `index`.
    ///
    /// # Panics
    /// Panics if `index` is not above the last one: the replica has lost its position, and its state would differ from
    /// the others.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> ApplyResult {
        let ahead = index.saturating_sub(self.head.applied);
        self.skip(index);
        let (now, actor) = (self.time_of(entry), entry.actor.clone());
        let (effects, events) = (Vec::new(), EntryEvents::default());
        let mut context = Context { index, now, ahead, actor, repeats: None, effects, events };
        let record = self.begin_audit_record(entry);
        let outcome = self
            .check_and_advance_time(entry)
            .and_then(|()| self.authorise(&entry.actor))
            .and_then(|()| self.dispatch(&mut context, &entry.command))
            .unwrap_or_else(CommandOutcome::Refused);
        self.store_events(&mut context);
        if let Some(record) = record {
            self.add_audit_record(&context, record, &outcome);
        }
        self.archive_full_audit(&context);
        ApplyResult {
            reply: CommandReply {
                index: context.repeats.unwrap_or(index),
                is_repeat: context.repeats.is_some(),
                outcome,
            },
            effects: context.effects,
        }
    }

    /// Ledger time of an entry (P18, P19).
    fn time_of(&self, entry: &Entry) -> Time {
        entry.now.plus_ms(self.head.offset_ms())
    }

    /// Records an entry of Raft itself (blank, membership) that was committed at `index`.
    ///
    /// # Panics
    /// As [`Ledger::apply`].
    pub fn skip(&mut self, index: u64) {
        assert!(index > self.head.applied, "P2: entry {index} was applied already");
        self.head.applied = index;
    }

    /// Checks each entry, and advances ledger time (P13, P18). Those that begin an epoch do it themselves.
    fn check_and_advance_time(&mut self, entry: &Entry) -> Result<(), CommandRefusal> {
        if matches!(entry.command, Command::EpochStart(_) | Command::Restore(_)) {
            return Ok(());
        }
        self.head.now = self.check_stamp(entry)?;
        self.forget_old_answers();
        Ok(())
    }

    /// Returns the ledger time of an entry with a valid epoch and time.
    fn check_stamp(&self, entry: &Entry) -> Result<Time, CommandRefusal> {
        let current = self.head.current_epoch().unwrap_or_default();
        let is_current = entry.epoch == current || crate::injected_bugs::is(Bug::NoEpochCheck);
        refuse_if(
            self.head.epoch.is_none() || !is_current,
            CommandRefusal::WrongEpoch { proposed: entry.epoch, current },
        )?;
        let (ledger, now) = (self.head.now, self.time_of(entry));
        refuse_if(now < ledger, CommandRefusal::TimeWentBack { ledger, entry: now })?;
        refuse_if(now.since_ms(ledger) > self.limits().leap_ms_max, CommandRefusal::TimeLeaps { ledger, entry: now })?;
        Ok(now)
    }

    /// Returns the level to which this entry would raise the ledger; `None` if it would not (P23).
    pub fn raises_to(&self, entry: &Entry) -> Option<u32> {
        let Command::RaiseLevel(raise) = &entry.command else { return None };
        let permitted = self.check_stamp(entry).and_then(|now| self.authorise_at(&entry.actor, now));
        let is_taken = permitted.and_then(|()| self.check(&entry.command)).is_ok();
        (is_taken && raise.level > self.head.level).then_some(raise.level)
    }

    /// Checks whether the present state refuses this command. `apply` runs these checks first, and a dry run runs only
    /// them. Commands that are not listed check while they change the state.
    ///
    /// # Errors
    /// Returns the refusal of `apply`.
    pub fn check(&self, command: &Command) -> Result<(), CommandRefusal> {
        match command {
            Command::RelayPut(put) => self.check_relay_put(put),
            Command::RelayRemove(removal) => self.check_relay_remove(removal),
            Command::TenantSet(set) => self.check_tenant_set(set),
            Command::TenantRemove(removal) => self.check_tenant_remove(removal),
            Command::PoolSet(set) => self.check_pool_set(set),
            Command::PoolReset(removal) => self.check_pool_reset(removal),
            Command::ScheduleCreate(create) => self.check_name_is_free_of_campaigns(create),
            Command::ScheduleDelete(delete) => self.check_schedule_delete(delete),
            Command::Trigger(trigger) => self.check_not_of_campaign(trigger.schedule),
            Command::ScheduleEdit(edit) => self.check_not_of_campaign(edit.schedule),
            Command::Backfill(backfill) => {
                self.check_not_held()?;
                self.check_not_of_campaign(backfill.schedule)
            }
            Command::Fire(_)
            | Command::Claim(_)
            | Command::Requeue(_)
            | Command::CampaignArm(_)
            | Command::Decide(Decide { decision: Decision::Resend, .. }) => self.check_not_held(),
            Command::RunResume(resume) => self.check_run_resume(*resume),
            Command::RunCancel(run) => self.check_run_cancel(*run),
            Command::AudienceDelete(delete) => self.check_audience_delete(delete),
            Command::CampaignCancel(end) => self.check_campaign_cancel(end),
            Command::CampaignDelete(end) => self.check_campaign_delete(end),
            Command::RaiseLevel(raise) => self.check_raise_level(raise),
            Command::TemplatePut(put) => self.check_template_put(put),
            Command::TemplateDelete(delete) => self.check_template_delete(delete),
            _ => Ok(()),
        }
    }

    /// Checks and executes a command, unless its request id has a stored answer: the answer counts, whatever the state
    /// is by now.
    fn dispatch(&mut self, context: &mut Context, command: &Command) -> Result<CommandOutcome, CommandRefusal> {
        let Some(request) = self.stored_request(command) else {
            self.check(command)?;
            return self.execute(context, command);
        };
        if let Some(outcome) = self.answered_again(context, &request)? {
            return Ok(outcome);
        }
        self.check(command)?;
        let outcome = self.execute(context, command)?;
        self.remember(context, request, &outcome);
        Ok(outcome)
    }

    /// Returns the request of a command whose answer is stored, also if the command finds its object by name: a late
    /// repeat must not create a deleted schedule again. `None` also if the command names an unknown schedule or run.
    ///
    /// `Trigger` stores its answer itself. A trigger that finds its run by name stores none.
    fn stored_request<'c>(&self, command: &'c Command) -> Option<StoredRequest<'c>> {
        let of_schedule = |id| self.schedules.get(id).map(|schedule| (&*schedule.settings.tenant, &*schedule.name));
        let run: String;
        let (tenant, resource, request, body_hash) = match command {
            // Relays and pools belong to no tenant. So their request ids are stored with the default tenant.
            Command::RelayPut(put) => (DEFAULT_TENANT, ("relay", ""), put.request.as_deref()?, put.body_hash()),
            Command::PoolSet(set) => {
                let PoolSet { request, pool, caps, first, reveille_headers, .. } = set;
                let body_hash = fingerprint(&("pool", pool, caps, first, reveille_headers));
                (DEFAULT_TENANT, ("pool", pool.as_str()), request.as_deref()?, body_hash)
            }
            Command::TenantSet(set) => {
                let TenantSet { request, name, rate_milli, concurrency, share, pools, .. } = set;
                let body_hash = fingerprint(&("tenant", name, rate_milli, concurrency, share, pools));
                (name.as_str(), ("tenant", ""), request.as_deref()?, body_hash)
            }
            Command::AudienceSeal(AudienceSeal { request, tenant, seal }) => {
                let body_hash = fingerprint(&("audience", tenant, seal));
                (tenant.as_str(), ("audience", seal.name.as_str()), request.as_deref()?, body_hash)
            }
            Command::AudienceDelete(AudienceDelete { request, tenant, name, .. }) => {
                let body_hash = fingerprint(&("audience delete", tenant, name));
                (tenant.as_str(), ("audience delete", name.as_str()), request.as_deref()?, body_hash)
            }
            Command::ScheduleCreate(create) => {
                (create.tenant.as_str(), ("schedule", ""), create.request.as_deref()?, create.body_hash())
            }
            Command::CampaignCreate(create) => {
                (create.tenant.as_str(), ("campaign", ""), create.request.as_deref()?, create.body_hash())
            }
            Command::ScheduleEdit(edit) => {
                let (tenant, name) = of_schedule(&edit.schedule)?;
                (tenant, ("edit", name), edit.request.as_deref()?, edit.body_hash)
            }
            Command::Backfill(backfill) => {
                let (tenant, name) = of_schedule(&backfill.schedule)?;
                (tenant, ("backfill", name), backfill.request.as_deref()?, backfill.body_hash)
            }
            Command::Decide(decide) => {
                // The fence says what the caller has read. A repeat may have read more, or nothing.
                let body_hash = fingerprint(&Decide { request: None, up_to: None, ..decide.clone() });
                run = decide.run.to_string();
                (&*self.page_of(decide.run)?.1.tenant, ("decide", run.as_str()), decide.request.as_deref()?, body_hash)
            }
            Command::Requeue(Requeue { letters, .. }) | Command::Discard(letters) => {
                let method = if matches!(command, Command::Requeue(_)) { "requeue" } else { "discard" };
                (letters.tenant.as_str(), (method, letters.of.as_str()), letters.request.as_deref()?, letters.body_hash)
            }
            _ => return None,
        };
        Some(StoredRequest::new(tenant, resource, request, body_hash))
    }

    fn execute(&mut self, context: &mut Context, command: &Command) -> Result<CommandOutcome, CommandRefusal> {
        match command {
            Command::EpochStart(start) => self.epoch_start(context, start),
            Command::Tick => Ok(CommandOutcome::Done),
            Command::NodeUp(up) => self.node_up(context, up),
            Command::RelayPut(put) => Ok(self.relay_put(context, put)),
            Command::RelayRemove(removal) => Ok(self.relay_remove(context, &removal.name)),
            Command::ScheduleCreate(create) => self.schedule_create(context, create),
            Command::SchedulesCreate(creates) => self.schedules_create(context, creates),
            Command::SchedulePause(pause) => self.schedule_pause(context, pause),
            Command::ScheduleResume(resume) => self.schedule_resume(context, resume),
            Command::ScheduleDelete(delete) => self.schedule_delete(context, delete.schedule),
            Command::Trigger(trigger) => self.trigger(context, trigger),
            Command::Fire(fires) => Ok(self.fire(context, fires)),
            Command::Claim(claims) => Ok(self.claim(context, claims)),
            Command::Settle(outcomes) => Ok(self.settle(context, outcomes)),
            Command::Revoke(fences) => Ok(self.revoke(context, fences)),
            Command::Expire(runs) => Ok(self.expire(context, runs)),
            Command::RunPause(pause) => self.run_pause(context, pause),
            Command::RunResume(resume) => self.run_resume(context, *resume),
            Command::RunCancel(run) => self.run_cancel(context, *run, None),
            Command::Decide(decide) => self.decide(context, decide),
            Command::Requeue(requeue) => self.requeue(context, requeue),
            Command::Discard(letters) => self.discard(context, letters),
            Command::OptOut(optout) => Ok(self.opt_out(context, optout)),
            Command::Quarantine(quarantine) => self.quarantine(context, quarantine),
            Command::TestClock => self.choose_test_clock(context),
            Command::Advance(advance) => self.advance(context, advance),
            Command::ScheduleEdit(edit) => self.schedule_edit(context, edit),
            Command::Backfill(backfill) => self.backfill(context, backfill),
            Command::Archive(archive) => Ok(self.archive(context, archive)),
            Command::Replan(replans) => Ok(self.replan(context, replans)),
            Command::SendMessages(send) => self.send_messages(context, send),
            Command::AudienceSeal(seal) => self.audience_seal(context, seal),
            Command::AudienceDelete(delete) => self.audience_delete(delete),
            Command::CampaignCreate(create) => self.campaign_create(context, create),
            Command::CampaignLaunch(launch) => self.campaign_launch(context, launch),
            Command::CampaignArm(campaign) => self.campaign_arm(context, campaign),
            Command::CampaignCancel(end) => self.campaign_cancel(context, &end.campaign),
            Command::CampaignDelete(end) => self.campaign_delete(context, &end.campaign),
            Command::RunBlock(blocks) => Ok(self.run_block(context, blocks)),
            Command::TenantSet(set) => self.tenant_set(context, set),
            Command::TenantRemove(removal) => Ok(self.tenant_remove(&removal.name)),
            Command::OptOutTakeBack(back) => self.take_back(context, back),
            Command::PoolSet(set) => self.pool_set(context, set),
            Command::PoolReset(removal) => Ok(self.pool_reset(context, &removal.name)),
            Command::RaiseLevel(raise) => Ok(self.raise_level(raise)),
            Command::NodeDrain(node) => self.node_drain(*node, true),
            Command::NodeUndrain(node) => self.node_drain(*node, false),
            Command::NodeShare(share) => self.node_share(context, share),
            Command::NodeRemove(node) => self.node_remove(context, *node),
            Command::TokenCreate(create) => self.token_create(context, create),
            Command::TokenRevoke(id) => self.token_revoke(context, *id),
            Command::Restore(restore) => self.restore(context, restore),
            Command::RestoreAccept => self.restore_accept(context),
            Command::Authority(step) => self.authority_step(step),
            Command::BackupEnded(result) => Ok(self.backup_ended(context, result)),
            Command::RecipientErase(erase) => self.recipient_erase(context, erase),
            Command::TemplatePut(put) => self.template_put(context, put),
            Command::TemplateDelete(delete) => Ok(self.template_delete(delete)),
            Command::NodeInvite(_) | Command::LeaderTransfer(_) => Ok(CommandOutcome::Done),
            Command::ArchiveLossAccept(lost) => self.archive_loss_accept(context, lost),
            #[cfg(feature = "next-level")]
            Command::OfNextLevel => Ok(CommandOutcome::Done),
        }
    }

    /// Returns the stored answer to a request id with the same body. The reply then has the index of the entry that was
    /// answered first.
    fn answered_again(
        &self,
        context: &mut Context,
        request: &StoredRequest<'_>,
    ) -> Result<Option<CommandOutcome>, CommandRefusal> {
        let Some(answer) = self.answer_to(request)? else { return Ok(None) };
        context.repeats = Some(answer.index);
        Ok(Some(answer.outcome.clone()))
    }

    fn answer_to(&self, request: &StoredRequest<'_>) -> Result<Option<&StoredAnswer>, CommandRefusal> {
        let answer = self.answers.get(&request.key);
        let is_other = answer.is_some_and(|answer| answer.body_hash != request.body_hash);
        refuse_if(is_other, CommandRefusal::RequestReused(request.request.to_owned()))?;
        Ok(answer)
    }

    /// Returns the stored answer that `apply` would give to this command, and changes nothing. `None`: the command has
    /// no request id, or its request id is new.
    ///
    /// # Errors
    /// [`CommandRefusal::RequestReused`] if the request id is that of another request.
    pub fn check_repeat(&self, command: &Command) -> Result<Option<&StoredAnswer>, CommandRefusal> {
        self.stored_request(command).map_or(Ok(None), |request| self.answer_to(&request))
    }

    /// Stores an answer for repeats of the request id. A tenant with too many answers loses its oldest one.
    fn remember(&mut self, context: &Context, request: StoredRequest<'_>, outcome: &CommandOutcome) {
        let most = self.limits().tenant_answers_max;
        let StoredRequest { key, body_hash, .. } = request;
        let answer = StoredAnswer { body_hash, index: context.index, outcome: outcome.clone(), at: context.now };
        self.derived.answers_by_index.insert(context.index, key.clone());
        let own = self.derived.answers_of_tenant.entry(key.0.clone()).or_default();
        own.insert(context.index);
        let oldest = own.first().copied().filter(|_| own.len() > most);
        self.answers.put(key, answer);
        if let Some(oldest) = oldest {
            self.forget_answer(oldest);
        }
    }

    fn forget_old_answers(&mut self) {
        let answer_ms = self.limits().answer_ms;
        while let Some((index, key)) = self.derived.answers_by_index.first_key_value()
            && self.answers.get(key).is_none_or(|answer| self.head.now.since_ms(answer.at) > answer_ms)
        {
            self.forget_answer(*index);
        }
    }

    fn forget_answer(&mut self, index: u64) {
        let Some(key) = self.derived.answers_by_index.remove(&index) else { return };
        if let Some(own) = self.derived.answers_of_tenant.get_mut(&key.0) {
            own.remove(&index);
            if own.is_empty() {
                self.derived.answers_of_tenant.remove(&key.0);
            }
        }
        self.answers.remove(&key);
    }
}
