//! Campaigns: create, launch, arm, cancel, delete (P7, P20).

use super::Context;
use super::bounds::{bounded, check_labels, gap_needs_a_list, refuse_if};
use crate::calendar::When;
use crate::command::{CampaignArm, CampaignCreate, CampaignEnd, CampaignLaunch, CampaignName, ScheduleCreate};
use crate::model::{
    Armed, AudienceChoice, Campaign, CampaignStage, CommandOutcome, CommandRefusal, Content, ContentChoice, EtagKind,
    Hash, Impossible, InstantOutcome, Launch, Ledger, LimitedQuantity, MissedCause, NamedAudience, NamedTemplate,
    NextInstant, OccurrenceName, Policies, RunId, Schedule, ScheduleId, ScheduleTiming, SealedAudience, TemplateUse,
    Time, check_etag,
};

impl Ledger {
    /// Creates a draft. Idempotent by its name: the same body again is a repeat, whatever the campaign's stage.
    pub(super) fn campaign_create(
        &mut self,
        context: &mut Context,
        create: &CampaignCreate,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let key = (create.tenant.clone(), create.name.clone());
        match self.campaigns.get(&key) {
            Some(known) if !known.matches_request(create) => {
                return Err(CommandRefusal::CampaignNameTaken(create.name.clone()));
            }
            Some(known) => context.repeats = Some(known.index),
            None => {
                refuse_if(create.name.is_empty(), Impossible::NoName)?;
                if self.schedule_named(&create.tenant, &create.name).is_some() {
                    return Err(CommandRefusal::NameTaken(create.name.clone()));
                }
                self.check_pool(&create.tenant, &create.pool)?;
                self.check_content(&create.tenant, &create.content)?;
                bounded(
                    LimitedQuantity::AudienceNameBytes,
                    create.audience.len(),
                    self.limits().audience_name_bytes_max,
                )?;
                check_labels(&create.labels)?;
                gap_needs_a_list(&create.policies, true)?;
                let content = self.retain_content(&create.tenant, &create.content);
                self.campaigns.put(key, create.to_campaign(content, context.index));
            }
        }
        Ok(CommandOutcome::Done)
    }

    /// Launches a campaign. A second launch for the same instant sends nothing more (P7). A campaign that never opened
    /// may be launched for another instant.
    pub(super) fn campaign_launch(
        &mut self,
        context: &mut Context,
        request: &CampaignLaunch,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let key = request.campaign.key();
        if let Some(launch) = self.may_launch(request, context.now)? {
            context.repeats = Some(launch.index);
            return Ok(CommandOutcome::Done);
        }
        let campaign = self.campaign(&request.campaign)?.clone();
        let former = campaign.stage.schedule();
        let mut launched = Campaign { due: request.due, index: context.index, ..campaign };
        let launch = Launch { index: context.index, at: context.now, again: request.again, tzdb: request.tzdb.clone() };
        let sealed = self.audiences.get(&(key.0.clone(), launched.audience.clone())).copied();
        let sealed = sealed.filter(|sealed| request.checked == Some(sealed.seal));
        // A refusal must change nothing, so all checks come before the former schedule is deleted.
        let create = sealed
            .map(|sealed| self.schedule_of(&request.campaign, (&launched, former), &launch, sealed, context.now))
            .transpose()?;
        // The schedule that missed its instant makes room for the new one.
        if let Some(former) = former {
            self.schedule_delete(context, former)?;
        }
        launched.stage = match create.zip(sealed) {
            Some((create, sealed)) => CampaignStage::Armed(self.arm(context, &create, launch, sealed)?),
            None => CampaignStage::Waiting(launch),
        };
        self.campaigns.put(key, launched);
        Ok(CommandOutcome::Done)
    }

    /// Checks whether a launch would be accepted at `now`. Returns the earlier launch that it repeats, if there is one.
    pub fn may_launch(&self, request: &CampaignLaunch, now: Time) -> Result<Option<&Launch>, CommandRefusal> {
        let campaign = self.campaign(&request.campaign)?;
        match &campaign.stage {
            CampaignStage::Armed(armed) if self.missed_because(campaign, armed).is_some() => {}
            CampaignStage::Waiting(launch) | CampaignStage::Armed(Armed { launch, .. })
                if campaign.due == request.due =>
            {
                return Ok(Some(launch));
            }
            CampaignStage::Draft | CampaignStage::Missed { .. } => {}
            other => return Err(CommandRefusal::CampaignIs(other.kind())),
        }
        self.check_campaign_etag(&request.campaign, campaign, request.expected.as_deref())?;
        let over = request.due.plus_ms(campaign.policies.start_within_ms);
        refuse_if(over <= now, Impossible::InstantOver(over))?;
        let sealed = self.audiences.get(&(request.campaign.tenant.clone(), campaign.audience.clone())).copied();
        if sealed.is_none() && request.due <= now {
            return Err(CommandRefusal::NoSuchAudience(campaign.audience.clone()));
        }
        if let Some(sealed) = sealed.filter(|sealed| request.checked == Some(sealed.seal)) {
            self.check_not_sent_recently(now, &request.campaign, campaign, (request.again, sealed))?;
        }
        Ok(None)
    }

    /// Decides about a campaign that waits for its audience. The leader proposes this once the audience is sealed, and
    /// at the campaign's instant at the latest.
    pub(super) fn campaign_arm(
        &mut self,
        context: &mut Context,
        arm: &CampaignArm,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let name = &arm.campaign;
        let mut campaign = self.campaign(name)?.clone();
        let CampaignStage::Waiting(launch) = campaign.stage.clone() else {
            return Err(CommandRefusal::CampaignIs(campaign.stage.kind()));
        };
        let sealed = self.audiences.get(&(name.tenant.clone(), campaign.audience.clone())).copied();
        let in_time = sealed.filter(|sealed| sealed.at <= campaign.due);
        // The audience was deleted and sealed again since the check, so the result is about another list.
        if in_time.is_some_and(|sealed| arm.checked != Some(sealed.seal)) {
            return Err(CommandRefusal::NoSuchAudience(campaign.audience.clone()));
        }
        let armed = match (&arm.wrong, in_time) {
            (Some(wrong), Some(_)) => Err(MissedCause::Unfit(wrong.clone())),
            (None, Some(_)) if campaign.due.plus_ms(campaign.policies.start_within_ms) <= context.now => {
                Err(MissedCause::TooLate { due: campaign.due, now: context.now })
            }
            (None, Some(sealed)) => {
                let may = self.check_not_sent_recently(context.now, name, &campaign, (launch.again, sealed));
                let create = may.and_then(|()| self.schedule_of(name, (&campaign, None), &launch, sealed, context.now));
                let armed = create.and_then(|create| self.arm(context, &create, launch.clone(), sealed));
                armed.map_err(|refusal| MissedCause::Refused(Box::new(refusal)))
            }
            (_, None) if context.now < campaign.due => return Err(CommandRefusal::NotDue(campaign.due)),
            (_, None) => Err(MissedCause::NotSealed { audience: campaign.audience.clone(), due: campaign.due }),
        };
        campaign.index = context.index;
        campaign.stage = match armed {
            Ok(armed) => CampaignStage::Armed(armed),
            Err(cause) => {
                context.alarm(format!("campaign {} does not fire: {cause}", name.name));
                CampaignStage::Missed { at: context.now, cause, launch }
            }
        };
        self.campaigns.put(name.key(), campaign);
        Ok(CommandOutcome::Done)
    }

    /// Makes the schedule of the campaign's instant. It can be created once `former` is deleted.
    fn schedule_of(
        &self,
        named: &CampaignName,
        (campaign, former): (&Campaign, Option<ScheduleId>),
        launch: &Launch,
        sealed: SealedAudience,
        now: Time,
    ) -> Result<ScheduleCreate, CommandRefusal> {
        let content = match &campaign.template {
            Some(TemplateUse { name, version }) => {
                let (name, version, content) = (name.clone(), *version, campaign.content);
                ContentChoice::Template(NamedTemplate { name, version, content, newest: false })
            }
            None => {
                let content = self.blob(&campaign.content).and_then(Content::from_blob);
                content.ok_or_else(|| CommandRefusal::NoSuchCampaign(named.name.clone()))?.into()
            }
        };
        let audience = NamedAudience { name: campaign.audience.clone(), seal: sealed.seal, rows: sealed.rows };
        let due = campaign.due;
        let create = ScheduleCreate {
            request: None,
            tenant: named.tenant.clone(),
            name: named.name.clone(),
            timing: ScheduleTiming {
                max_runs: Some(1),
                ..ScheduleTiming::new(When::At { instant_ms: due.0 }, &*campaign.zone)
            },
            policies: Policies {
                finish_by_ms: self.finish_by_ms_of(&named.tenant, campaign, sealed.rows, now),
                ..campaign.policies.clone()
            },
            pool: campaign.pool.clone(),
            priority: campaign.priority,
            paused: None,
            content,
            audience: AudienceChoice::Sealed(audience),
            after: due.plus_ms(-1),
            next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
            tzdb: launch.tzdb.clone(),
            labels: campaign.labels.clone(),
        };
        if self.schedule_named(&named.tenant, &named.name).is_some_and(|(known, _)| Some(known) != former) {
            return Err(CommandRefusal::NameTaken(named.name.clone()));
        }
        self.check_create(&create)?;
        Ok(create)
    }

    /// Creates the schedule that [`Ledger::schedule_of`] has made and checked.
    fn arm(
        &mut self,
        context: &mut Context,
        create: &ScheduleCreate,
        launch: Launch,
        sealed: SealedAudience,
    ) -> Result<Armed, CommandRefusal> {
        match self.schedule_create(context, create)? {
            CommandOutcome::Schedule(schedule) => Ok(Armed { launch, schedule, audience: sealed.seal }),
            _ => Err(CommandRefusal::NameTaken(create.name.clone())),
        }
    }

    /// Why a campaign's schedule has opened nothing and never will (P16); `None` if it has opened or may still open.
    pub fn missed_because(&self, campaign: &Campaign, armed: &Armed) -> Option<MissedCause> {
        let plan = &self.schedules.get(&armed.schedule)?.plan;
        (plan.next.is_none() && plan.opened == 0).then(|| self.missed_cause(campaign.due, plan.fired_through))
    }

    fn missed_cause(&self, due: Time, now: Time) -> MissedCause {
        match self.maybe_sent_through() {
            Some(through) if due <= through => MissedCause::Restored(due),
            _ => MissedCause::TooLate { due, now },
        }
    }

    fn check_campaign_etag(
        &self,
        name: &CampaignName,
        campaign: &Campaign,
        expected: Option<&str>,
    ) -> Result<(), CommandRefusal> {
        check_etag(expected, (EtagKind::Campaign, &name.name), &self.campaign_etag(campaign))
    }

    /// A campaign whose run has ended cannot be cancelled.
    pub(super) fn check_campaign_cancel(&self, end: &CampaignEnd) -> Result<(), CommandRefusal> {
        let campaign = self.campaign(&end.campaign)?;
        if !matches!(campaign.stage, CampaignStage::Cancelled { .. }) {
            self.check_campaign_etag(&end.campaign, campaign, end.expected.as_deref())?;
        }
        match &campaign.stage {
            CampaignStage::Armed(armed) => {
                self.run_of_campaign(armed.schedule).map_or(Ok(()), |run| self.check_run_cancel(run))
            }
            _ => Ok(()),
        }
    }

    /// Cancels a campaign: before its instant nothing opens, after it pending recipients are cancelled.
    pub(super) fn campaign_cancel(
        &mut self,
        context: &mut Context,
        name: &CampaignName,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let campaign = self.campaign(name)?.clone();
        let (outcome, opened) = match &campaign.stage {
            CampaignStage::Cancelled { .. } => {
                context.repeats = Some(campaign.index);
                return Ok(CommandOutcome::Done);
            }
            CampaignStage::Draft | CampaignStage::Waiting(_) | CampaignStage::Missed { .. } => {
                (CommandOutcome::Done, None)
            }
            CampaignStage::Armed(armed) => match self.run_of_campaign(armed.schedule) {
                Some(run) => (self.run_cancel(context, run, None)?, Some(armed.clone())),
                None => (self.schedule_delete(context, armed.schedule)?, None),
            },
        };
        let stage = CampaignStage::Cancelled { at: context.now, launch: campaign.stage.launch().cloned(), opened };
        self.campaigns.put(name.key(), Campaign { index: context.index, stage, ..campaign });
        Ok(outcome)
    }

    /// A campaign can be deleted only if none of its emails can be sent any more.
    pub(super) fn check_campaign_delete(&self, end: &CampaignEnd) -> Result<(), CommandRefusal> {
        let campaign = self.campaign(&end.campaign)?;
        self.check_campaign_etag(&end.campaign, campaign, end.expected.as_deref())?;
        let schedule = campaign.stage.schedule();
        let is_over = match (&campaign.stage, schedule.map(|schedule| self.run_of_campaign(schedule))) {
            (CampaignStage::Waiting(_), _) => false,
            (_, Some(Some(run))) => self.run(run).is_none_or(|run| run.counts.is_finished()),
            (CampaignStage::Armed(armed), _) => {
                self.schedules.get(&armed.schedule).is_none_or(|one| one.plan.next.is_none())
            }
            _ => true,
        };
        match (is_over, &campaign.stage) {
            (true, _) => Ok(()),
            (false, CampaignStage::Cancelled { .. }) => Err(Impossible::CampaignStillClaimed.into()),
            (false, _) => Err(Impossible::CampaignNotOver.into()),
        }
    }

    /// Deletes a campaign. Its run is kept for its retention.
    pub(super) fn campaign_delete(
        &mut self,
        context: &mut Context,
        name: &CampaignName,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let campaign = self.campaign(name)?.clone();
        let schedule = campaign.stage.schedule();
        if let Some(schedule) = schedule.filter(|schedule| self.schedules.get(schedule).is_some()) {
            self.schedule_delete(context, schedule)?;
        }
        self.campaigns.remove(&name.key());
        self.release_content(&name.tenant, &campaign.content, campaign.template.as_ref());
        Ok(CommandOutcome::Done)
    }

    /// A campaign and a schedule never have the same name, because each is found by it.
    pub(super) fn check_name_is_free_of_campaigns(&self, create: &ScheduleCreate) -> Result<(), CommandRefusal> {
        match self.campaigns.contains(&(create.tenant.clone(), create.name.clone())) {
            true => Err(CommandRefusal::CampaignNameTaken(create.name.clone())),
            false => Ok(()),
        }
    }

    /// Raises an alarm if the schedule of a campaign fires without opening a run (P16).
    pub(super) fn alarm_missed_campaign(&self, context: &mut Context, id: ScheduleId) {
        if let Some((name, campaign)) = self.campaign_of(id) {
            let cause = self.missed_cause(campaign.due, context.now);
            context.alarm(format!("campaign {name} does not fire: {cause}"));
        }
    }

    /// The schedule of a campaign opens once, and no other command changes it (P7).
    pub fn check_not_of_campaign(&self, id: ScheduleId) -> Result<(), CommandRefusal> {
        match self.campaign_of(id) {
            Some((name, _)) => Err(CommandRefusal::OfCampaign(name.to_owned())),
            // Only messages open runs of their schedule, and nothing changes it.
            None if self.schedules.get(&id).is_some_and(Schedule::is_of_messages) => {
                Err(CommandRefusal::NoSuchSchedule(id))
            }
            None => Ok(()),
        }
    }

    /// Returns the campaign of this schedule, with its name; `None` if it belongs to none.
    fn campaign_of(&self, id: ScheduleId) -> Option<(&str, &Campaign)> {
        let schedule = self.schedules.get(&id)?;
        let campaign = self.campaigns.get(&(schedule.settings.tenant.to_string(), schedule.name.to_string()))?;
        (campaign.stage.schedule() == Some(id)).then_some((&*schedule.name, campaign))
    }

    /// Returns the run that a campaign opened, also if it has left the state.
    pub fn run_of_campaign(&self, schedule: ScheduleId) -> Option<RunId> {
        self.history_of(schedule).find_map(InstantOutcome::run)
    }

    fn campaign(&self, named: &CampaignName) -> Result<&Campaign, CommandRefusal> {
        self.campaigns.get(&named.key()).ok_or_else(|| CommandRefusal::NoSuchCampaign(named.name.clone()))
    }

    /// Iterates over campaigns that wait for their audience and can be decided at `now`. Sealed audiences come with the
    /// hash of their seal and the names of their columns.
    pub fn campaigns_to_arm(
        &self,
        now: Time,
    ) -> impl Iterator<Item = (CampaignName, &Campaign, Option<(Hash, Vec<String>)>)> {
        self.campaigns.iter().filter_map(move |((tenant, name), campaign)| {
            let CampaignStage::Waiting(_) = campaign.stage else { return None };
            let sealed = self.audiences.get(&(tenant.clone(), campaign.audience.clone()));
            let tried = sealed.and_then(|sealed| Some((sealed.seal, self.seal(&sealed.seal)?.columns)));
            let named = || CampaignName { tenant: tenant.clone(), name: name.clone() };
            (tried.is_some() || now >= campaign.due).then(|| (named(), campaign, tried))
        })
    }
}
