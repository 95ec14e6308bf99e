//! Runs: list, show, watch, pause, resume, cancel; and the history of one recipient.

use std::ops::Bound;

use reveille_cluster::node::peer_messages::BarrierSubject;
use reveille_ledger::Ledger;
use reveille_ledger::address::Address;
use reveille_ledger::command::{Command, RunPause, RunResume};
use reveille_ledger::ids::{RunId, Time};
use reveille_proto::admin::v1::run_service_server::RunService;
use reveille_proto::admin::v1::{
    CancelRunRequest, CancelRunResponse, ExplainRequest, ExplainResponse, GetRunRequest, GetRunResponse,
    ListRunsRequest, ListRunsResponse, PauseRunRequest, PauseRunResponse, ResumeRunRequest, ResumeRunResponse, Run,
    RunState, WatchRunRequest,
};
use tonic::{Request, Response, Status};

use super::watch::{Watched, read_run};
use crate::server::admin::label_selector::Selector;
use crate::server::admin::lookup::{RunArgument, check_schedule};
use crate::server::admin::paging::{EXAMINED_MAX, Paging};
use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiError, deadline, explain, refusal, validate, views};

/// Selects the runs of a list.
struct Filter {
    tenant: String,
    schedule: String,
    states: Vec<RunState>,
    selector: Selector,
    since: Option<Time>,
}

/// Returns runs, latest first. Also returns the last one that was read if there are more.
fn list(ledger: &Ledger, filter: &Filter, paging: &Paging<RunId>) -> (Vec<Run>, Option<RunId>) {
    let (mut runs, mut last) = (Vec::new(), None);
    let upper = paging.after.map_or(Bound::Unbounded, Bound::Included);
    let pages = ledger.pages().range((Bound::Unbounded, upper)).rev();
    // Ledger time never goes back, so all pages before the first one that is too old are too old as well.
    let pages = pages.take_while(|(_, page)| filter.since.is_none_or(|since| page.opened_at >= since));
    let all = pages.flat_map(|(id, page)| {
        let name = move |place: usize| RunId { index: id.index, place: id.place + place as u32 };
        page.runs.iter().enumerate().rev().map(move |(place, run)| (name(place), page, run))
    });
    let rest = all.filter(|(id, ..)| paging.after.is_none_or(|after| *id < after));
    for (examined, (id, page, run)) in rest.enumerate() {
        if runs.len() >= paging.size || examined >= EXAMINED_MAX {
            return (runs, last);
        }
        last = Some(id);
        let wanted = *page.tenant == *filter.tenant
            && (filter.schedule.is_empty() || *run.name == *filter.schedule)
            && (filter.states.is_empty() || filter.states.contains(&views::run_state(&run.state).0))
            && filter.selector.means(ledger.schedules().get(&run.schedule).map(|schedule| &schedule.labels));
        if wanted {
            runs.push(views::run(id, page, run));
        }
    }
    (runs, None)
}

impl Admin {
    fn shown(&self, run: RunId) -> Result<Option<Run>, ApiError> {
        self.context.replica.read(|ledger| read_run(ledger, run)).map(Some)
    }
}

#[tonic::async_trait]
impl RunService for Admin {
    type WatchRunStream = Watched;

    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Result<Response<ListRunsResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let states = request.states.iter().map(|state| RunState::try_from(*state)).collect::<Result<_, _>>();
        let states = states.map_err(|_| ApiError::of_field("states", "holds a state that this node does not know"))?;
        let selector = Selector::parse(&request.selector)?;
        let heeded = selector.to_string();
        let tenant = validate::tenant(&request.tenant)?;
        let mut fields = Fields::default();
        let since = request.since.and_then(|since| fields.instant("since", since));
        fields.done(Some(()))?;
        let filter = Filter { tenant, schedule: request.schedule, states, selector, since };
        let paging: Paging<RunId> = Paging::new("runs", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, deadline, |ledger| {
            check_schedule(ledger, &filter.tenant, &filter.schedule)?;
            Ok::<_, ApiError>(list(ledger, &filter, &paging))
        });
        let (listed, freshness) = query.await?;
        let (runs, last) = listed?;
        let next_page_token = paging.token(last.as_ref());
        Ok(Response::new(ListRunsResponse { runs, next_page_token, freshness, selector: heeded }))
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Result<Response<GetRunResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let (tenant, argument) = (validate::tenant(&request.tenant)?, RunArgument::parse(&request.run)?);
        let (run, freshness) = self
            .read(request.stale, deadline, |ledger| {
                read_run(ledger, argument.find(ledger, &self.context.zones, &tenant)?)
            })
            .await?;
        Ok(Response::new(GetRunResponse { run: Some(run?), freshness }))
    }

    async fn watch_run(&self, request: Request<WatchRunRequest>) -> Result<Response<Watched>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let (tenant, argument) = (validate::tenant(&request.tenant)?, RunArgument::parse(&request.run)?);
        let find = |ledger: &Ledger| argument.find(ledger, &self.context.zones, &tenant);
        let run = self.read(request.stale, deadline, find).await?.0?;
        Ok(Response::new(self.watch(run)?))
    }

    async fn pause_run(&self, request: Request<PauseRunRequest>) -> Result<Response<PauseRunResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let mut fields = Fields::default();
        let reason = fields.reason("reason", &request.reason);
        let reason = fields.done(Some(reason))?;
        let run = self.find_run(&request.tenant, &request.run, deadline).await?;
        let reply = self.write(Command::RunPause(RunPause { run, reason }), "", deadline).await?;
        let barrier = self.barrier(reply.index, BarrierSubject::Run(run), deadline).await?;
        Ok(Response::new(PauseRunResponse { run: self.shown(run)?, barrier: Some(barrier) }))
    }

    async fn resume_run(&self, request: Request<ResumeRunRequest>) -> Result<Response<ResumeRunResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let run = self.find_run(&request.tenant, &request.run, deadline).await?;
        let resume = RunResume { run, without_canary: request.without_canary };
        let reply = self.write(Command::RunResume(resume), "", deadline).await?;
        Ok(Response::new(ResumeRunResponse { run: self.shown(run)?, index: reply.index }))
    }

    async fn cancel_run(&self, request: Request<CancelRunRequest>) -> Result<Response<CancelRunResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let run = self.find_run(&request.tenant, &request.run, deadline).await?;
        let barrier = match self.write_unless(request.validate_only, Command::RunCancel(run), "", deadline).await? {
            Some(reply) => Some(self.barrier(reply.index, BarrierSubject::Run(run), deadline).await?),
            None => None,
        };
        Ok(Response::new(CancelRunResponse { run: self.shown(run)?, barrier }))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let place = (request.tenant.as_str(), request.run.as_str());
        let (run, number, recipient) = self.pick_one(place, &request.recipient, request.stale, deadline).await?;
        let relays = self.context.relays().map(|relays| relays.status()).unwrap_or_default();
        let around = explain::WaitContext {
            node: self.context.introduction.name.clone(),
            relays,
            lacking: self.context.parts.lacking().into_iter().collect(),
        };
        let key = Address::parse(&recipient).ok().map(|address| address.key());
        let subject = (run, number, key.as_deref());
        let explanation =
            self.read(request.stale, deadline, |ledger| explain::collect_events(ledger, subject, &around));
        let (explanation, freshness) = explanation.await?;
        let (state, events) = explanation.ok_or_else(|| refusal::no_recipient(&request.recipient, run))?;
        let state = views::recipient_state(state).into();
        Ok(Response::new(ExplainResponse { run: run.to_string(), recipient, number, state, events, freshness }))
    }
}
