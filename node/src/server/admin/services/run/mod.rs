//! Runs: list, show, watch, pause, resume, cancel; and the history of one recipient.

mod list;

use list::{RunFilter, RunPage};
use reveille_ledger::address::Address;
use reveille_ledger::command::{Command, RunPause, RunResume};
use reveille_ledger::etag::ANY_ETAG;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::{
    CancelRunRequest, CancelRunResponse, ExplainRequest, ExplainResponse, GetRunRequest, GetRunResponse,
    ListRunsRequest, ListRunsResponse, PauseRunRequest, PauseRunResponse, ResumeRunRequest, ResumeRunResponse,
    WatchRunRequest, WatchRunResponse,
};

use super::watch::{Watched, follow_run};
use crate::server::admin::enums::OnWire;
use crate::server::admin::label_selector::Selector;
use crate::server::admin::lookup::RunRecipient;
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, explain, validate};

serve! {
    run_service_server::RunService {
        [type WatchRunStream = Watched<WatchRunResponse>]
        tenant list_runs(ListRunsRequest) -> ListRunsResponse;
        tenant get_run(GetRunRequest) -> GetRunResponse;
        tenant watch_run(WatchRunRequest) -> Watched<WatchRunResponse>;
        tenant pause_run(PauseRunRequest) -> PauseRunResponse;
        tenant resume_run(ResumeRunRequest) -> ResumeRunResponse;
        tenant cancel_run(CancelRunRequest) -> CancelRunResponse;
        tenant explain(ExplainRequest) -> ExplainResponse;
    }
}

impl Admin {
    async fn list_runs(&self, request: ListRunsRequest, call: &Call) -> ApiResult<ListRunsResponse> {
        let states = validate::states(&request.states)?;
        let selector = Selector::parse(&request.selector)?;
        let tenant = validate::tenant(&request.tenant)?;
        let (since, until) = validate::time_range(request.since_time, request.until_time)?;
        let filter = RunFilter { tenant, schedule: request.schedule, states, selector, since, until };
        let paging: Paging<RunId> = Paging::new("runs", request.page_size, &request.page_token)?;
        let RunPage { runs, last, freshness, incomplete } =
            self.list_page(&filter, &paging, request.stale, call).await?;
        let next_page_token = paging.token(last.as_ref());
        Ok(ListRunsResponse { runs, next_page_token, freshness, incomplete })
    }

    async fn get_run(&self, request: GetRunRequest, call: &Call) -> ApiResult<GetRunResponse> {
        let (run, freshness) = self.find_run((&request.tenant, &request.run), request.stale, call).await?;
        Ok(GetRunResponse { run: Some(self.show_run(run).await?), freshness })
    }

    async fn watch_run(&self, request: WatchRunRequest, call: &Call) -> ApiResult<Watched<WatchRunResponse>> {
        let (run, _) = self.find_run((&request.tenant, &request.run), request.stale, call).await?;
        let following = call.clone();
        self.stream(call, async move |admin, watcher| follow_run(&admin, run, &following, &watcher).await)
    }

    async fn pause_run(&self, request: PauseRunRequest, call: &Call) -> ApiResult<PauseRunResponse> {
        let reason = validate::reason(&request.reason)?;
        let run = self.find_run_to_change(&request.tenant, &request.run, call).await?;
        let reply = self.write(Command::RunPause(RunPause { run, reason }), call).await?;
        let barrier = self.barrier_of_run(Some((reply.index, run)), call).await?;
        Ok(PauseRunResponse { run: Some(self.show_run(run).await?), barrier })
    }

    async fn resume_run(&self, request: ResumeRunRequest, call: &Call) -> ApiResult<ResumeRunResponse> {
        let etag = validate::etag(&request.etag)?.filter(|etag| etag != ANY_ETAG);
        let run = self.find_run_to_change(&request.tenant, &request.run, call).await?;
        // The state that is checked here is that in which the command names what it expects.
        let (current, last) = self.context.replica.read(|ledger| (ledger.run_etag(run), ledger.last_run_change(run)));
        if etag.as_ref().is_some_and(|etag| *etag != current) {
            return Err(error_texts::stale_run(run));
        }
        let resume = RunResume { run, without_canary: request.without_canary, expected: etag.map(|_| last) };
        let reply = self.try_write(Command::RunResume(resume), call).await;
        let reply = reply.map_err(|error| error.worded(|refusal| error_texts::refused_of_run(run, refusal)))?;
        Ok(ResumeRunResponse { run: Some(self.show_run(run).await?), index: reply.index })
    }

    pub(crate) async fn cancel_run(&self, request: CancelRunRequest, call: &Call) -> ApiResult<CancelRunResponse> {
        let run = self.find_run_to_change(&request.tenant, &request.run, call).await?;
        let reply = self.write_unless(request.validate_only, Command::RunCancel(run), call).await?;
        let barrier = self.barrier_of_run(reply.map(|reply| (reply.index, run)), call).await?;
        Ok(CancelRunResponse { run: Some(self.show_run(run).await?), barrier })
    }

    async fn explain(&self, request: ExplainRequest, call: &Call) -> ApiResult<ExplainResponse> {
        let picked = self.pick_one((&request.tenant, &request.run), &request.recipient, request.stale, call).await?;
        let RunRecipient { run, number, address: recipient, freshness } = picked;
        let relays = self.context.relays().map(|relays| relays.status()).unwrap_or_default();
        let (node, missing) = (self.context.introduction.name.clone(), self.missing());
        let around = explain::WaitContext { node, relays, missing };
        let key = Address::parse(&recipient).ok().map(|address| address.key());
        let subject = (run, number, key.as_deref());
        let explanation = self.read_run(run, |at| explain::collect_events(at, subject, &around)).await?;
        let (state, events) = explanation.ok_or_else(|| error_texts::no_recipient(&request.recipient, run))?;
        let state = state.wire().into();
        Ok(ExplainResponse { run: run.to_string(), recipient, number, state, events, freshness })
    }
}
