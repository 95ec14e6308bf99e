//! Campaigns (P7): create, launch, show, pause, cancel, delete.

mod draft;
mod launch;

use reveille_ledger::campaign::{Campaign, CampaignStage};
use reveille_ledger::command::{
    CampaignEnd, CampaignName, Command, RunPause, RunResume, SchedulePause, ScheduleResume,
};
use reveille_ledger::content::Content;
use reveille_ledger::etag::{EtagKind, check_etag};
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_ledger::reply::CommandReply;
use reveille_ledger::{Ledger, RunState, ScheduleState};
use reveille_proto::admin::v1::{
    self, CampaignState, CancelCampaignRequest, CancelCampaignResponse, CreateCampaignRequest, CreateCampaignResponse,
    DeleteCampaignRequest, DeleteCampaignResponse, ErrorReason, GetCampaignRequest, GetCampaignResponse,
    LaunchCampaignRequest, LaunchCampaignResponse, ListCampaignsRequest, ListCampaignsResponse, PauseCampaignRequest,
    PauseCampaignResponse, ResumeCampaignRequest, ResumeCampaignResponse,
};

use crate::server::admin::label_selector::Selector;
use crate::server::admin::lookup::campaign_named;
use crate::server::admin::paging::{EXAMINED_MAX, Paging};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

impl Admin {
    /// Returns the campaign from the state of this node.
    fn campaign(&self, named: &CampaignName) -> ApiResult<v1::Campaign> {
        self.context
            .replica
            .read(|ledger| Ok(views::campaign(ledger, named, campaign_named(ledger, &named.tenant, &named.name)?)))
    }

    /// Returns the request that would create the campaign.
    fn body_of_campaign(&self, named: &CampaignName) -> ApiResult<v1::ScheduleBody> {
        self.context.replica.read(|ledger| {
            let known = campaign_named(ledger, &named.tenant, &named.name)?;
            Ok(views::campaign_body(named, known, &content_of(ledger, named, known)?))
        })
    }

    /// Returns the campaign, and the schedule and run that it has created.
    async fn find_campaign(
        &self,
        (tenant, name): (&str, &str),
        call: &Call,
    ) -> ApiResult<(CampaignName, Campaign, LaunchedCampaign)> {
        let named = CampaignName { tenant: validate::tenant(tenant)?, name: name.to_owned() };
        let query = self.read_latest(call, |ledger| {
            let known = campaign_named(ledger, &named.tenant, name)?.clone();
            let schedule = known.stage.schedule();
            let run = schedule.and_then(|schedule| ledger.run_of_campaign(schedule));
            Ok::<_, ApiError>((known, LaunchedCampaign { schedule, run }))
        });
        let (campaign, created) = query.await??;
        Ok((named, campaign, created))
    }

    /// Refuses schedules of campaigns: they cannot be backfilled, changed or triggered by their own name (P7).
    pub(crate) fn not_of_a_campaign(&self, id: ScheduleId) -> ApiResult<()> {
        let may = self.context.replica.read(|ledger| ledger.check_not_of_campaign(id));
        may.map_err(|refusal| error_texts::refused(&refusal))
    }

    /// Proposes a change of a campaign. Errors of the ledger are worded for the campaign, not for its schedule.
    async fn change(&self, named: &CampaignName, command: Command, call: &Call) -> ApiResult<CommandReply> {
        let written = self.try_write(command, call).await;
        written.map_err(|error| error.worded(|refusal| error_texts::refused_of_campaign(&named.name, refusal)))
    }

    /// Like [`Admin::change`]. With `dry_run` it only checks the command, and returns `None`.
    async fn change_unless(
        &self,
        dry_run: bool,
        named: &CampaignName,
        command: Command,
        call: &Call,
    ) -> ApiResult<Option<CommandReply>> {
        let written = self.try_write_unless(dry_run, command, call).await;
        written.map_err(|error| error.worded(|refusal| error_texts::refused_of_campaign(&named.name, refusal)))
    }
}

/// Returns the content of a campaign.
fn content_of(ledger: &Ledger, named: &CampaignName, known: &Campaign) -> ApiResult<Content> {
    let content = ledger.blob(&known.content).and_then(Content::from_blob);
    content.ok_or_else(|| error_texts::broken(format!("the content of {} is not there", named.name)))
}

/// Selects the campaigns of a list.
struct CampaignFilter {
    states: Vec<CampaignState>,
    selector: Selector,
    since: Option<Time>,
    until: Option<Time>,
}

impl CampaignFilter {
    fn selects(&self, ledger: &Ledger, known: &Campaign) -> bool {
        self.since.is_none_or(|since| known.due >= since)
            && self.until.is_none_or(|until| known.due < until)
            && self.selector.means(Some(&known.labels))
            && (self.states.is_empty() || self.states.contains(&views::campaign_state(ledger, known)))
    }
}

/// The schedule and the run of a campaign, as far as they exist.
struct LaunchedCampaign {
    schedule: Option<ScheduleId>,
    run: Option<RunId>,
}

serve! {
    campaign_service_server::CampaignService {
        schedule create_campaign(CreateCampaignRequest, request_id) -> CreateCampaignResponse;
        tenant launch_campaign(LaunchCampaignRequest) -> LaunchCampaignResponse;
        tenant list_campaigns(ListCampaignsRequest) -> ListCampaignsResponse;
        tenant get_campaign(GetCampaignRequest) -> GetCampaignResponse;
        tenant pause_campaign(PauseCampaignRequest) -> PauseCampaignResponse;
        tenant resume_campaign(ResumeCampaignRequest) -> ResumeCampaignResponse;
        tenant cancel_campaign(CancelCampaignRequest) -> CancelCampaignResponse;
        tenant delete_campaign(DeleteCampaignRequest) -> DeleteCampaignResponse;
    }
}

impl Admin {
    async fn list_campaigns(&self, request: ListCampaignsRequest, call: &Call) -> ApiResult<ListCampaignsResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        let states = validate::states(&request.states)?;
        let (since, until) = validate::time_range(request.since_time, request.until_time)?;
        let filter = CampaignFilter { states, selector: Selector::parse(&request.selector)?, since, until };
        let paging = Paging::new("campaigns", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            let (mut shown, mut last) = (Vec::new(), None);
            for (examined, (name, known)) in paging.of_tenant(ledger.campaigns(), &tenant).enumerate() {
                if shown.len() >= paging.size || examined >= EXAMINED_MAX {
                    return (shown, last);
                }
                last = Some(name.clone());
                if filter.selects(ledger, known) {
                    let named = CampaignName { tenant: tenant.clone(), name: name.clone() };
                    shown.push(views::campaign(ledger, &named, known));
                }
            }
            (shown, None)
        });
        let ((campaigns, last), freshness) = query.await?;
        let next_page_token = paging.token(last.as_ref());
        Ok(ListCampaignsResponse { campaigns, next_page_token, freshness })
    }

    async fn get_campaign(&self, request: GetCampaignRequest, call: &Call) -> ApiResult<GetCampaignResponse> {
        let named = CampaignName { tenant: validate::tenant(&request.tenant)?, name: request.name };
        let ((), freshness) = self.read(request.stale, call, |_| ()).await?;
        let campaign = Some(self.campaign(&named)?);
        let body = if request.with_body { Some(self.body_of_campaign(&named)?) } else { None };
        Ok(GetCampaignResponse { campaign, freshness, body })
    }

    async fn pause_campaign(&self, request: PauseCampaignRequest, call: &Call) -> ApiResult<PauseCampaignResponse> {
        let reason = validate::reason(&request.reason)?;
        let (named, campaign, created) = self.find_campaign((&request.tenant, &request.name), call).await?;
        let run = match created {
            LaunchedCampaign { run: Some(run), .. } => Some(run),
            LaunchedCampaign { schedule: Some(schedule), .. } => {
                let pause = SchedulePause { schedule, reason: reason.clone() };
                self.change(&named, Command::SchedulePause(pause), call).await?;
                // The run may have opened just before the pause, so it is paused too.
                self.context.replica.read(|ledger| ledger.run_of_campaign(schedule))
            }
            LaunchedCampaign { .. } => return Err(not_launched(&named.name, &campaign, "pause")),
        };
        let paused = match run {
            Some(run) => {
                let reply = self.change(&named, Command::RunPause(RunPause { run, reason }), call).await?;
                Some((reply.index, run))
            }
            None => None,
        };
        let barrier = self.barrier_of_run(paused, call).await?;
        Ok(PauseCampaignResponse { campaign: Some(self.campaign(&named)?), barrier })
    }

    async fn resume_campaign(&self, request: ResumeCampaignRequest, call: &Call) -> ApiResult<ResumeCampaignResponse> {
        let (named, campaign, created) = self.find_campaign((&request.tenant, &request.name), call).await?;
        if created.run.is_none() && created.schedule.is_some() && request.without_canary {
            return Err(error_texts::of_campaign(
                ErrorReason::NoCanaryHeld,
                &named.name,
                "it has not opened: no canary has held it, so there is none to overrule",
            ));
        }
        let (name, expected) = (&named.name, validate::etag(&request.etag)?);
        // The state that is checked here is that in which the command names what it expects.
        let query = |ledger: &Ledger| {
            let etag = ledger.campaign_etag(campaign_named(ledger, &named.tenant, name)?);
            check_etag(expected.as_deref(), (EtagKind::Campaign, name), &etag)
                .map_err(|refusal| error_texts::refused_of_campaign(name, &refusal))?;
            Ok::<_, ApiError>(may_resume(ledger, &created, request.without_canary, expected.is_some()))
        };
        let command = match (created.schedule, self.context.replica.read(query)?) {
            (None, _) => return Err(not_launched(&named.name, &campaign, "resume")),
            (Some(_), Some(command)) => command,
            (Some(_), None) => {
                let state = word(self.campaign(&named)?.state());
                let message = format!("campaign {} is {state}, not paused: there is nothing to resume", named.name);
                return Err(error_texts::of_campaign(ErrorReason::NothingToDo, &named.name, message));
            }
        };
        self.change(&named, command, call).await?;
        Ok(ResumeCampaignResponse { campaign: Some(self.campaign(&named)?) })
    }

    async fn cancel_campaign(&self, request: CancelCampaignRequest, call: &Call) -> ApiResult<CancelCampaignResponse> {
        let expected = validate::etag(&request.etag)?;
        let (named, ..) = self.find_campaign((&request.tenant, &request.name), call).await?;
        let cancel = Command::CampaignCancel(CampaignEnd { campaign: named.clone(), expected });
        let Some(reply) = self.change_unless(request.validate_only, &named, cancel, call).await? else {
            return Ok(CancelCampaignResponse { campaign: Some(self.campaign(&named)?), barrier: None });
        };
        // The run may have opened before the cancellation.
        let created = self.find_campaign((&request.tenant, &request.name), call).await?.2;
        let barrier = self.barrier_of_run(created.run.map(|run| (reply.index, run)), call).await?;
        Ok(CancelCampaignResponse { campaign: Some(self.campaign(&named)?), barrier })
    }

    async fn delete_campaign(&self, request: DeleteCampaignRequest, call: &Call) -> ApiResult<DeleteCampaignResponse> {
        let DeleteCampaignRequest { tenant, name, validate_only, etag } = request;
        let expected = validate::etag(&etag)?;
        let (named, ..) = self.find_campaign((&tenant, &name), call).await?;
        let delete = Command::CampaignDelete(CampaignEnd { campaign: named.clone(), expected });
        let reply = self.change_unless(validate_only, &named, delete, call).await?;
        Ok(DeleteCampaignResponse { index: reply.map_or(0, |reply| reply.index) })
    }
}

/// Returns the command that resumes the campaign, only as it is now if `is_conditional`. A schedule is always resumed
/// by its plan. Returns `None` if nothing holds it.
fn may_resume(
    ledger: &Ledger,
    created: &LaunchedCampaign,
    without_canary: bool,
    is_conditional: bool,
) -> Option<Command> {
    if let Some(run) = created.run {
        let is_paused = matches!(ledger.run(run)?.state, RunState::Paused { .. });
        let expected = is_conditional.then(|| ledger.last_run_change(run));
        return is_paused.then_some(Command::RunResume(RunResume { run, without_canary, expected }));
    }
    let schedule = created.schedule?;
    let known = ledger.schedules().get(&schedule)?;
    let is_held = matches!(known.state, ScheduleState::Paused { .. } | ScheduleState::Blocked { .. });
    let resume = ScheduleResume { schedule, plan_version: known.plan.version };
    is_held.then_some(Command::ScheduleResume(resume))
}

/// Returns `open` for `CAMPAIGN_STATE_OPEN`.
fn word(state: CampaignState) -> String {
    let name = state.as_str_name();
    name.strip_prefix("CAMPAIGN_STATE_").unwrap_or(name).to_lowercase()
}

/// A campaign that has not been launched cannot be paused or resumed.
fn not_launched(name: &str, campaign: &Campaign, verb: &str) -> ApiError {
    let (reason, stage) = match &campaign.stage {
        CampaignStage::Draft => (ErrorReason::NotLaunched, "a draft"),
        stage => (ErrorReason::CampaignState, stage.word()),
    };
    error_texts::of_campaign(reason, name, format!("campaign {name} is {stage}: there is nothing to {verb}"))
}
