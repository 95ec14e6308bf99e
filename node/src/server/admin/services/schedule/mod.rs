//! Schedules: create, show, change, pause, resume, trigger, delete; and the history of their instants.

mod backfill;
mod batch_create;
pub(crate) mod create;
pub(crate) mod dry_run;
pub(crate) mod history;
mod notes;
mod put;
mod send_test;
mod trigger;
mod update;

use reveille_cluster::process::zones::Zones;
use reveille_ledger::calendar::Pattern;
use reveille_ledger::command::{Command, ScheduleDelete, SchedulePause, ScheduleResume};
use reveille_ledger::content::{Content, Recipients};
use reveille_ledger::ids::{ScheduleId, Time};
use reveille_ledger::planning::timing::Zone;
use reveille_ledger::{Ledger, Schedule, ScheduleState, ScheduleTiming};
use reveille_proto::admin::v1::{
    self, BackfillScheduleRequest, BackfillScheduleResponse, BatchCreateSchedulesRequest, BatchCreateSchedulesResponse,
    CreateScheduleRequest, CreateScheduleResponse, DeleteScheduleRequest, DeleteScheduleResponse, ErrorReason,
    Freshness, GetScheduleRequest, GetScheduleResponse, ListScheduleHistoryRequest, ListScheduleHistoryResponse,
    ListSchedulesRequest, ListSchedulesResponse, PauseScheduleRequest, PauseScheduleResponse, PutScheduleRequest,
    PutScheduleResponse, ResumeScheduleRequest, ResumeScheduleResponse, SendTestRequest, SendTestResponse,
    TriggerScheduleRequest, TriggerScheduleResponse, UpdateScheduleRequest, UpdateScheduleResponse,
};

use crate::server::admin::label_selector::Selector;
use crate::server::admin::lookup::schedule_named;
use crate::server::admin::paging::{EXAMINED_MAX, Paging};
use crate::server::admin::validate::tenant;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate, views};
use dry_run::{DryRun, simulate};
use history::HistoryPage;
pub use notes::ScheduleNotes;

/// Maximum number of instants in a response about one schedule.
pub const INSTANTS_SHOWN: usize = 10;
/// Maximum number of open runs in the response to a delete.
const OPEN_RUNS_SHOWN: usize = 1_000;

/// A copy of a schedule, with the current ledger time.
pub struct Found {
    pub id: ScheduleId,
    pub notes: ScheduleNotes,
    pub schedule: Schedule,
    pub now: Time,
    pub freshness: Option<Freshness>,
}

impl Admin {
    /// Returns the schedule of that name.
    pub(crate) async fn find_schedule(
        &self,
        (tenant_name, name): (&str, &str),
        stale: bool,
        call: &Call,
    ) -> ApiResult<Found> {
        let tenant = tenant(tenant_name)?;
        let query = self.try_read(stale, call, |ledger| {
            let (id, schedule) = schedule_named(ledger, &tenant, name)?;
            Ok((id, schedule.clone(), ScheduleNotes::of(ledger, id), ledger.head().now))
        });
        let ((id, schedule, notes, now), freshness) = query.await?;
        Ok(Found { id, notes, schedule, now: self.now(now), freshness })
    }

    /// Returns the message of the schedule in its current state on this node, with its next instants.
    pub(crate) async fn show_schedule(&self, id: ScheduleId, name: &str) -> ApiResult<v1::Schedule> {
        let query = |ledger: &Ledger| {
            Some((ledger.schedules().get(&id)?.clone(), ScheduleNotes::of(ledger, id), ledger.head().now))
        };
        let (schedule, notes, now) = self.context.replica.read(query).ok_or_else(|| error_texts::no_schedule(name))?;
        let at = notes.read_time(self.now(now));
        let shown = self.blocking(move |node| views::schedule(id, &schedule, &node.zones, at, INSTANTS_SHOWN)).await?;
        Ok(notes.apply_to(shown))
    }

    /// Returns the request that would create the schedule. Blobs never change, so they may be read at a later index; at
    /// worst they are gone.
    fn body_of(&self, schedule: &Schedule) -> ApiResult<v1::ScheduleBody> {
        let created = self.context.replica.read(|ledger| {
            let content = Content::from_blob(ledger.blob(&schedule.content)?)?;
            let audience = Recipients::from_blob(ledger.blob(&schedule.audience)?)?.into_choice(schedule.audience);
            Some(views::body(schedule, &content, &audience))
        });
        created.ok_or_else(|| {
            error_texts::broken(format!("the content or the audience of {} is not there", schedule.name))
        })
    }
}

/// A schedule in a list.
type Listed = (ScheduleId, Schedule, ScheduleNotes);

/// Selects the schedules of a list.
struct Filter {
    tenant: String,
    states: Vec<v1::ScheduleState>,
    selector: Selector,
    with_campaigns: bool,
}

/// Returns schedules in the order of their creation. Also returns the last one that was read if there are more.
fn list(ledger: &Ledger, filter: &Filter, paging: &Paging<ScheduleId>) -> (Vec<Listed>, Option<ScheduleId>) {
    let (mut listed, mut last) = (Vec::new(), None);
    for (examined, (id, schedule)) in ledger.schedules().range(paging.rest()).enumerate() {
        if listed.len() >= paging.size || examined >= EXAMINED_MAX {
            return (listed, last);
        }
        last = Some(*id);
        let state = || views::schedule_state(&schedule.state);
        let wanted = *schedule.settings.tenant == *filter.tenant
            && (filter.states.is_empty() || filter.states.contains(&state()))
            && filter.selector.means(Some(&schedule.labels))
            && !schedule.is_of_messages()
            && (filter.with_campaigns || ledger.check_not_of_campaign(*id).is_ok());
        if wanted {
            listed.push((*id, schedule.clone(), ScheduleNotes::of(ledger, *id)));
        }
    }
    (listed, None)
}

serve! {
    schedule_service_server::ScheduleService {
        schedule create_schedule(CreateScheduleRequest, request_id) -> CreateScheduleResponse = create::create;
        own batch_create_schedules(BatchCreateSchedulesRequest) -> BatchCreateSchedulesResponse = batch_create::batch_create;
        tenant list_schedules(ListSchedulesRequest) -> ListSchedulesResponse;
        own get_schedule(GetScheduleRequest) -> GetScheduleResponse;
        schedule put_schedule(PutScheduleRequest) -> PutScheduleResponse = put::put;
        own update_schedule(UpdateScheduleRequest, request_id) -> UpdateScheduleResponse = update::update;
        tenant pause_schedule(PauseScheduleRequest) -> PauseScheduleResponse;
        tenant resume_schedule(ResumeScheduleRequest) -> ResumeScheduleResponse;
        tenant trigger_schedule(TriggerScheduleRequest, request_id) -> TriggerScheduleResponse = trigger::trigger;
        tenant backfill_schedule(BackfillScheduleRequest, request_id) -> BackfillScheduleResponse = backfill::backfill;
        schedule send_test(SendTestRequest, request_id) -> SendTestResponse = send_test::send_test;
        tenant delete_schedule(DeleteScheduleRequest) -> DeleteScheduleResponse;
        tenant list_schedule_history(ListScheduleHistoryRequest) -> ListScheduleHistoryResponse;
    }
}

impl Admin {
    async fn list_schedules(&self, request: ListSchedulesRequest, call: &Call) -> ApiResult<ListSchedulesResponse> {
        let states = validate::states(&request.states)?;
        let selector = Selector::parse(&request.selector)?;
        let filter =
            Filter { tenant: tenant(&request.tenant)?, states, selector, with_campaigns: request.with_campaigns };
        let paging: Paging<ScheduleId> = Paging::new("schedules", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| (list(ledger, &filter, &paging), ledger.head().now));
        let (((listed, last), now), freshness) = query.await?;
        let now = self.now(now);
        let shown = self.blocking(move |node| {
            let show = |(id, schedule, notes): &Listed| {
                notes.apply_to(views::schedule(*id, schedule, &node.zones, notes.read_time(now), 1))
            };
            listed.iter().map(show).collect()
        });
        let next_page_token = paging.token(last.as_ref());
        let schedules = shown.await?;
        Ok(ListSchedulesResponse { schedules, next_page_token, freshness })
    }

    async fn get_schedule(&self, request: GetScheduleRequest, call: &Call) -> ApiResult<GetScheduleResponse> {
        let found = self.find_schedule((&request.tenant, &request.name), request.stale, call).await?;
        let Found { id, notes, schedule, now, freshness } = found;
        let body = if request.with_body { Some(self.body_of(&schedule)?) } else { None };
        // Gone if the schedule was changed meanwhile.
        let content = |ledger: &Ledger| ledger.blob(&schedule.content).and_then(Content::from_blob);
        let (sender, subject) =
            self.context.replica.read(content).map(|one| (one.sender, one.subject)).unwrap_or_default();
        let at = notes.read_time(now);
        let shown = self.blocking(move |node| views::schedule(id, &schedule, &node.zones, at, INSTANTS_SHOWN)).await?;
        let shown = v1::Schedule { sender, subject, ..notes.apply_to(shown) };
        Ok(GetScheduleResponse { schedule: Some(shown), freshness, body })
    }

    async fn pause_schedule(&self, request: PauseScheduleRequest, call: &Call) -> ApiResult<PauseScheduleResponse> {
        let reason = validate::reason(&request.reason)?;
        let found = self.find_schedule((&request.tenant, &request.name), false, call).await?;
        self.not_of_a_campaign(found.id)?;
        if found.schedule.state == ScheduleState::Done {
            let message = "the schedule is done: no instant is left";
            return Err(error_texts::precondition(ErrorReason::ScheduleNotActive, message));
        }
        if !request.validate_only {
            let pause = SchedulePause { schedule: found.id, reason };
            self.write(Command::SchedulePause(pause), call).await?;
        }
        let schedule = self.show_schedule(found.id, &request.name).await?;
        Ok(PauseScheduleResponse { schedule: Some(schedule) })
    }

    async fn resume_schedule(&self, request: ResumeScheduleRequest, call: &Call) -> ApiResult<ResumeScheduleResponse> {
        let found = self.find_schedule((&request.tenant, &request.name), false, call).await?;
        let (id, plan_version) = (found.id, found.schedule.plan.version);
        self.not_of_a_campaign(id)?;
        expected_plan(&request.etag, &found)?;
        if !matches!(found.schedule.state, ScheduleState::Paused { .. } | ScheduleState::Blocked { .. }) {
            let state = found.schedule.state.word();
            let message = format!("the schedule is {state}, not paused");
            return Err(error_texts::precondition(ErrorReason::NothingToDo, message));
        }
        let (opens, simulated) = self.blocking(move |node| resumed(&found, &node.zones)).await??;
        if !request.validate_only {
            let resume = Command::ScheduleResume(ScheduleResume { schedule: id, plan_version });
            let resumed = self.try_write(resume, call).await;
            resumed.map_err(|error| error.worded(|refusal| error_texts::refused_of(&request.name, refusal)))?;
        }
        Ok(ResumeScheduleResponse {
            schedule: Some(self.show_schedule(id, &request.name).await?),
            opens,
            opens_count: u32::try_from(simulated.opens.len()).unwrap_or(u32::MAX),
            explained_count: simulated.explained,
        })
    }

    async fn delete_schedule(&self, request: DeleteScheduleRequest, call: &Call) -> ApiResult<DeleteScheduleResponse> {
        let found = self.find_schedule((&request.tenant, &request.name), false, call).await?;
        let expected = expected_plan(&request.etag, &found)?;
        let delete = Command::ScheduleDelete(ScheduleDelete { schedule: found.id, expected });
        let reply = self.try_write_unless(request.validate_only, delete, call).await;
        let reply = reply.map_err(|error| error.worded(|refusal| error_texts::refused_of(&request.name, refusal)))?;
        let index = reply.map_or(0, |reply| reply.index);
        let open_runs = self.context.replica.read(|ledger| open_runs(ledger, found.id));
        Ok(DeleteScheduleResponse { index, open_runs })
    }

    async fn list_schedule_history(
        &self,
        request: ListScheduleHistoryRequest,
        call: &Call,
    ) -> ApiResult<ListScheduleHistoryResponse> {
        let tenant = tenant(&request.tenant)?;
        let paging: Paging<history::HistoryCursor> =
            Paging::within("history", &(&tenant, &request.name), request.page_size, &request.page_token)?;
        let query = self.try_read(request.stale, call, |ledger| {
            let (id, schedule) = schedule_named(ledger, &tenant, &request.name)?;
            let waiting = views::waiting(ledger, id, schedule).filter(|_| paging.after.is_none());
            Ok((waiting, HistoryPage::read(ledger, id, schedule, &paging)))
        });
        let ((waiting, page), freshness) = query.await?;
        let (entries, last) = page.complete(self, waiting).await?;
        let next_page_token = paging.token(last.as_ref());
        Ok(ListScheduleHistoryResponse { entries, next_page_token, freshness })
    }
}

/// Checks the condition of a request against the etag that the schedule has on this node. Returns the version of the
/// plan that it names, for `apply` to check; `None` for any.
fn expected_plan(given: &str, Found { id, schedule, .. }: &Found) -> ApiResult<Option<u64>> {
    let etag = views::etag(*id, schedule);
    if !views::is_other_etag(given, &etag) {
        return Ok((given == etag).then_some(schedule.plan.version));
    }
    let message = format!("the schedule has changed: its etag is {etag}, not {given}");
    Err(error_texts::stale_etag(&schedule.name, message))
}

/// Returns which of the instants within a pause open, and the whole dry run of the resume.
fn resumed(found: &Found, zones: &Zones) -> ApiResult<(Vec<v1::Instant>, DryRun)> {
    let (pattern, zone) = calendar_of(&found.schedule.timing, zones)?;
    let simulated = simulate(&found.schedule, &pattern, &zone, found.now);
    let named = simulated.opens.iter().take(INSTANTS_SHOWN);
    let opens =
        named.map(|due| views::instant_of(&pattern, &zone.rules, &found.schedule.settings.policies, *due)).collect();
    Ok((opens, simulated))
}

/// Returns the compiled pattern and the zone of a timing.
fn calendar_of(timing: &ScheduleTiming, zones: &Zones) -> ApiResult<(Pattern, Zone)> {
    let unfit = |reason, error: String| error_texts::precondition(reason, error);
    let zone = zones.get(&timing.zone).map_err(|error| unfit(ErrorReason::UnknownZone, error.to_string()))?;
    let pattern = Pattern::compile(&timing.when).map_err(|error| unfit(ErrorReason::NeverFires, error.to_string()))?;
    Ok((pattern, zone))
}

fn open_runs(ledger: &Ledger, schedule: ScheduleId) -> Vec<String> {
    let of_pages = ledger.open_pages().flat_map(|(id, page)| {
        let open = page.runs.iter().filter(move |run| run.schedule == schedule && !run.counts.is_finished());
        open.map(move |run| id.run_id(run).to_string())
    });
    of_pages.take(OPEN_RUNS_SHOWN).collect()
}
