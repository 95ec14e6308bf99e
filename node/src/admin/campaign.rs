//! Campaigns (P7): drafted, launched, shown, paused, cancelled, deleted.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use reveille_cluster::compose::{Compiled, columns_used};
use reveille_ledger::campaign::{Campaign, Stage};
use reveille_ledger::command::{
    CampaignCreate, CampaignLaunch, CampaignName, Command, RunPause, SchedulePause, ScheduleResume,
};
use reveille_ledger::content::{Content, Named};
use reveille_ledger::decide::calendar::When;
use reveille_ledger::ids::{Hash, RunId, ScheduleId, Time};
use reveille_ledger::policy::HOUR_MS;
use reveille_ledger::{CAMPAIGN_FINISH_MS_MIN, Ledger};
use reveille_proto::admin::v1::campaign_service_server::CampaignService;
use reveille_proto::admin::v1::{
    self, CancelCampaignRequest, CancelCampaignResponse, CreateCampaignRequest, CreateCampaignResponse,
    DeleteCampaignRequest, DeleteCampaignResponse, GetCampaignRequest, GetCampaignResponse, LaunchCampaignRequest,
    LaunchCampaignResponse, ListCampaignsRequest, ListCampaignsResponse, PauseCampaignRequest, PauseCampaignResponse,
    ResumeCampaignRequest, ResumeCampaignResponse, ScheduleBody, when,
};
use reveille_raft::peer::About;
use tonic::{Request, Response, Status};

use super::paging::Paging;
use super::validate::{self, Asked, Fields};
use super::views::forecast::{Prospect, forecast};
use super::{Admin, Fault, creation, deadline, refusals, views};

/// A campaign later than this does not open, unless it says otherwise (P16).
const START_WITHIN_MS: i64 = HOUR_MS;

impl Admin {
    /// As it is here now.
    fn campaign(&self, named: &CampaignName) -> Result<v1::Campaign, Fault> {
        let shown = self.site.replica.read(|ledger| {
            let known = ledger.campaigns().get(&named.place())?;
            Some(views::campaign(ledger, named, known))
        });
        shown.ok_or_else(|| refusals::no_campaign(&named.name))
    }

    /// The campaign, and what it has made of itself.
    async fn find_campaign(
        &self,
        (tenant, name): (&str, &str),
        deadline: Instant,
    ) -> Result<(CampaignName, Campaign, Made), Fault> {
        let named = CampaignName { tenant: validate::tenant(tenant)?, name: name.to_owned() };
        let look = self.read(false, deadline, |ledger| {
            let known = ledger.campaigns().get(&named.place())?.clone();
            let schedule = known.stage.schedule();
            Some((known, Made { schedule, run: schedule.and_then(|schedule| ledger.run_of_campaign(schedule)) }))
        });
        let (campaign, made) = look.await?.0.ok_or_else(|| refusals::no_campaign(name))?;
        Ok((named, campaign, made))
    }

    async fn create_one(
        &self,
        request: CreateCampaignRequest,
        deadline: Instant,
    ) -> Result<CreateCampaignResponse, Fault> {
        let CreateCampaignRequest { schedule, request_id, validate_only, canary } = request;
        let mut fields = Fields::default();
        let id = fields.request_id(&request_id);
        let canary = canary.map(|asked| validate::canary(&mut fields, &asked));
        let body = fields.done(Some(schedule.unwrap_or_default()))?;
        let place = (validate::tenant(&body.tenant)?, body.name.clone());
        let look = |ledger: &Ledger| (ledger.campaigns().contains(&place), ledger.head().now);
        let (exists, now) = self.read(false, deadline, look).await?.0;
        let mut create = self.asked(body, exists, self.now(now)).await.map_err(|fault| fault.request(&request_id))?;
        create.policies.canary = canary;
        let named = CampaignName { tenant: create.tenant.clone(), name: create.name.clone() };
        let look = |ledger: &Ledger| {
            let (due, finish_by_ms) = (create.due, create.policies.finish_by_ms);
            let audience = (create.tenant.as_str(), create.audience.as_str());
            let prospect = Prospect { pool: &create.pool, audience, due, finish_by_ms };
            self.in_its_way(ledger, &prospect, &create.zone)
        };
        let warnings = self.site.replica.read(look);
        if validate_only {
            let campaign = match exists {
                true => self.campaign(&named)?,
                false => self.site.replica.read(|ledger| views::campaign(ledger, &named, &draft(create))),
            };
            return Ok(CreateCampaignResponse { campaign: Some(campaign), created: false, warnings });
        }
        create.request = id;
        self.write(Command::CampaignCreate(Box::new(create)), &request_id, deadline).await?;
        Ok(CreateCampaignResponse { campaign: Some(self.campaign(&named)?), created: !exists, warnings })
    }

    /// Validated as a schedule is. An audience that is not sealed yet has the columns that the content asks for.
    async fn asked(&self, mut body: ScheduleBody, exists: bool, now: Time) -> Result<CampaignCreate, Fault> {
        let mut fields = Fields::default();
        if !matches!(body.when.as_ref().and_then(|when| when.pattern.as_ref()), Some(when::Pattern::At(_))) {
            fields.refuse("schedule.when", "is no instant; a campaign is sent once: give one with --at");
        }
        let audience = body.audience.as_ref().map(|audience| audience.sealed.clone()).unwrap_or_default();
        if audience.is_empty() {
            fields.refuse("schedule.audience.sealed", "is missing; a campaign goes to an audience: --audience NAME");
        }
        let rest = [body.start.is_some(), body.end.is_some(), body.max_runs.is_some(), body.paused.is_some()];
        if rest.contains(&true) {
            fields.refuse("schedule", "has a start, an end, a bound of runs or a pause; a campaign has none of them");
        }
        fields.done(Some(()))?;
        // Whoever gets it can leave with one click, where the cluster has a page for that.
        if let Some(content) = body.content.as_mut().filter(|_| self.site.unsubscribe().is_some()) {
            let has_its_own = content.headers.iter().any(|field| field.name.eq_ignore_ascii_case("list-unsubscribe"));
            content.bulk |= !has_its_own;
        }
        let policies = body.policies.get_or_insert_default();
        let finish_by_given = policies.finish_by.is_some();
        policies.start_within.get_or_insert(views::duration(START_WITHIN_MS));
        policies.finish_by.get_or_insert(views::duration(CAMPAIGN_FINISH_MS_MIN));
        let site = Arc::clone(&self.site);
        let asked = self.calendar(move |zones| {
            let content = validate::content(&mut Fields::default(), body.content.clone());
            let columns = content.as_ref().map(columns_used).unwrap_or_default();
            let to_come = |name: &str| {
                let named = Named { name: name.to_owned(), seal: Hash([0; 32]), rows: 1 };
                Some((named, columns.clone()))
            };
            let sealed = |tenant: &str, name: &str| site.sealed(tenant, name).or_else(|| to_come(name));
            validate::schedule(Some(body), now, exists, (zones, &sealed))
        });
        let Asked { create, .. } = asked.await??;
        let When::At { instant_ms } = create.when else {
            return Err(Fault::of_field("schedule.when", "is no instant"));
        };
        Ok(CampaignCreate {
            request: None,
            tenant: create.tenant,
            name: create.name,
            due: Time(instant_ms),
            zone: create.zone,
            audience,
            content: create.content,
            policies: create.policies,
            finish_by_given,
            pool: create.pool,
            priority: create.priority,
            labels: create.labels,
        })
    }

    async fn launch_one(
        &self,
        request: LaunchCampaignRequest,
        deadline: Instant,
    ) -> Result<LaunchCampaignResponse, Fault> {
        let LaunchCampaignRequest { tenant, name, at, again, validate_only } = request;
        let (named, mut campaign, _) = self.find_campaign((&tenant, &name), deadline).await?;
        let mut fields = Fields::default();
        if let Some(due) = at.and_then(|at| fields.instant("at", at)) {
            campaign.due = due;
        }
        fields.done(Some(()))?;
        let checked = self.fits(&named, &campaign).await?;
        let look = |ledger: &Ledger| {
            let audience = (named.tenant.as_str(), campaign.audience.as_str());
            let rows =
                ledger.audiences().get(&(named.tenant.clone(), campaign.audience.clone())).map(|known| known.rows);
            let finish_by_ms =
                rows.map_or(campaign.policies.finish_by_ms, |rows| ledger.finish_by_ms_of(&campaign, rows));
            let prospect = Prospect { pool: &campaign.pool, audience, due: campaign.due, finish_by_ms };
            self.in_its_way(ledger, &prospect, &campaign.zone)
        };
        let warnings = self.site.replica.read(look);
        if validate_only {
            let shown = self.site.replica.read(|ledger| views::campaign(ledger, &named, &campaign));
            return Ok(LaunchCampaignResponse { campaign: Some(shown), warnings });
        }
        let tzdb = self.site.zones.version().to_owned();
        let launch = CampaignLaunch { campaign: named.clone(), due: campaign.due, checked, again, tzdb };
        self.write(Command::CampaignLaunch(launch), "", deadline).await?;
        Ok(LaunchCampaignResponse { campaign: Some(self.campaign(&named)?), warnings })
    }

    /// What stands in its way, as far as that is known before.
    fn in_its_way(&self, ledger: &Ledger, prospect: &Prospect<'_>, zone: &str) -> Vec<String> {
        let mut warnings = creation::warnings(ledger, prospect.pool);
        match forecast(ledger, prospect) {
            None => warnings.push(format!(
                "audience '{}' is not sealed: unless it is at {}, the campaign does not fire",
                prospect.audience.1, prospect.due
            )),
            Some(forecast) => warnings.extend(forecast.warning(zone, &self.site.zones)),
        }
        warnings
    }

    /// Can its content be sent to its audience, where that is sealed? Answers the seal that was tried.
    async fn fits(&self, named: &CampaignName, campaign: &Campaign) -> Result<Option<Hash>, Fault> {
        let content = self.site.replica.read(|ledger| ledger.blob(&campaign.content).and_then(Content::from_blob));
        let Some((sealed, columns)) = self.site.sealed(&named.tenant, &campaign.audience) else { return Ok(None) };
        let content = content.ok_or_else(|| refusals::broken(format!("the content of {} is not there", named.name)))?;
        let compiled = self.calendar(move |_| Compiled::new(&content, &columns).map(drop)).await?;
        compiled.map(|()| Some(sealed.seal)).map_err(|error| {
            let message =
                format!("audience '{}' does not fit the {}: {}", campaign.audience, error.field, error.message);
            refusals::not_possible(message).next(format!("reveille audience show {}", campaign.audience))
        })
    }
}

/// What a campaign has made of itself.
struct Made {
    schedule: Option<ScheduleId>,
    run: Option<RunId>,
}

/// A campaign as it would be created.
fn draft(create: CampaignCreate) -> Campaign {
    Campaign {
        due: create.due,
        zone: create.zone,
        audience: create.audience,
        content: create.content.blob().hash,
        policies: create.policies,
        finish_by_given: create.finish_by_given,
        pool: create.pool,
        priority: create.priority,
        labels: create.labels,
        body: Hash([0; 32]),
        index: 0,
        stage: Stage::Draft,
    }
}

#[tonic::async_trait]
impl CampaignService for Admin {
    async fn create_campaign(
        &self,
        request: Request<CreateCampaignRequest>,
    ) -> Result<Response<CreateCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        Ok(Response::new(self.create_one(request.into_inner(), deadline).await?))
    }

    async fn launch_campaign(
        &self,
        request: Request<LaunchCampaignRequest>,
    ) -> Result<Response<LaunchCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        Ok(Response::new(self.launch_one(request.into_inner(), deadline).await?))
    }

    async fn list_campaigns(
        &self,
        request: Request<ListCampaignsRequest>,
    ) -> Result<Response<ListCampaignsResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let tenant = validate::tenant(&request.tenant)?;
        let paging: Paging<String> = Paging::new("campaigns", request.page_size, &request.page_token)?;
        let first = match &paging.after {
            Some(after) => Bound::Excluded((tenant.clone(), after.clone())),
            None => Bound::Included((tenant.clone(), String::new())),
        };
        let look = self.read(request.stale, deadline, |ledger| {
            let from = ledger.campaigns().range((first, Bound::Unbounded));
            let mine = from.take_while(|((of, _), _)| *of == tenant).take(paging.size + 1);
            let shown = mine.map(|((_, name), known)| {
                let named = CampaignName { tenant: tenant.clone(), name: name.clone() };
                views::campaign(ledger, &named, known)
            });
            shown.collect::<Vec<_>>()
        });
        let (mut campaigns, freshness) = look.await?;
        let more = campaigns.len() > paging.size;
        campaigns.truncate(paging.size);
        let next_page_token = paging.token(campaigns.last().filter(|_| more).map(|one| &one.name));
        Ok(Response::new(ListCampaignsResponse { campaigns, next_page_token, freshness }))
    }

    async fn get_campaign(
        &self,
        request: Request<GetCampaignRequest>,
    ) -> Result<Response<GetCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let named = CampaignName { tenant: validate::tenant(&request.tenant)?, name: request.name };
        let (shown, freshness) = self
            .read(request.stale, deadline, |_| ())
            .await
            .map(|((), freshness)| (self.campaign(&named), freshness))?;
        Ok(Response::new(GetCampaignResponse { campaign: Some(shown?), freshness }))
    }

    async fn pause_campaign(
        &self,
        request: Request<PauseCampaignRequest>,
    ) -> Result<Response<PauseCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let mut fields = Fields::default();
        let reason = fields.reason("reason", &request.reason);
        let reason = fields.done(Some(reason))?;
        let place = (request.tenant.as_str(), request.name.as_str());
        let (named, campaign, made) = self.find_campaign(place, deadline).await?;
        let run = match made {
            Made { run: Some(run), .. } => Some(run),
            Made { schedule: Some(schedule), .. } => {
                let pause = SchedulePause { schedule, reason: reason.clone() };
                self.write(Command::SchedulePause(pause), "", deadline).await?;
                // What opened in the moment before goes on unless it is paused, too.
                self.site.replica.read(|ledger| ledger.run_of_campaign(schedule))
            }
            Made { .. } => return Err(not_launched(&named.name, &campaign).into()),
        };
        let barrier = match run {
            Some(run) => {
                let reply = self.write(Command::RunPause(RunPause { run, reason }), "", deadline).await?;
                Some(self.barrier(reply.index, About::Run(run), deadline).await?)
            }
            None => None,
        };
        Ok(Response::new(PauseCampaignResponse { campaign: Some(self.campaign(&named)?), barrier }))
    }

    async fn resume_campaign(
        &self,
        request: Request<ResumeCampaignRequest>,
    ) -> Result<Response<ResumeCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let place = (request.tenant.as_str(), request.name.as_str());
        let (named, campaign, made) = self.find_campaign(place, deadline).await?;
        let command = match made {
            Made { run: Some(run), .. } => Command::RunResume(run),
            Made { schedule: Some(schedule), .. } => {
                let look = |ledger: &Ledger| ledger.schedules().get(&schedule).map(|one| one.plan.version);
                let plan_version = self.site.replica.read(look).unwrap_or_default();
                Command::ScheduleResume(ScheduleResume { schedule, plan_version })
            }
            Made { .. } => return Err(not_launched(&named.name, &campaign).into()),
        };
        self.write(command, "", deadline).await?;
        Ok(Response::new(ResumeCampaignResponse { campaign: Some(self.campaign(&named)?) }))
    }

    async fn cancel_campaign(
        &self,
        request: Request<CancelCampaignRequest>,
    ) -> Result<Response<CancelCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let (named, ..) = self.find_campaign((&request.tenant, &request.name), deadline).await?;
        let reply = self.write(Command::CampaignCancel(named.clone()), "", deadline).await?;
        // The run that it had opened by then, if it had.
        let made = self.find_campaign((&request.tenant, &request.name), deadline).await?.2;
        let barrier = match made.run {
            Some(run) => Some(self.barrier(reply.index, About::Run(run), deadline).await?),
            None => None,
        };
        Ok(Response::new(CancelCampaignResponse { campaign: Some(self.campaign(&named)?), barrier }))
    }

    async fn delete_campaign(
        &self,
        request: Request<DeleteCampaignRequest>,
    ) -> Result<Response<DeleteCampaignResponse>, Status> {
        let deadline = deadline::of(&request);
        let DeleteCampaignRequest { tenant, name } = request.into_inner();
        let named = CampaignName { tenant: validate::tenant(&tenant)?, name };
        let reply = self.write(Command::CampaignDelete(named), "", deadline).await?;
        Ok(Response::new(DeleteCampaignResponse { index: reply.index }))
    }
}

fn not_launched(name: &str, campaign: &Campaign) -> Fault {
    let message = format!("campaign {name} is {}: there is nothing to pause", campaign.stage.word());
    refusals::not_possible(message).next(format!("reveille campaign status {name}"))
}
