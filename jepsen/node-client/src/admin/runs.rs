//! Runs and the histories of their recipients.

use anyhow::{Context, Result};
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::{self as api, Barrier, Run};

use super::{AdminClient, CallResult, PAGE_SIZE, rpc};

impl AdminClient {
    /// Returns the last run of a schedule. `None`: none has opened yet.
    pub async fn run_of(&self, schedule: &str) -> Result<Option<Run>> {
        // The default size, because a page ends early after it has read many runs of other schedules.
        Ok(self.list_runs(schedule, 0).await?.into_iter().next())
    }

    /// Returns all runs.
    pub async fn runs(&self) -> Result<Vec<Run>> {
        self.list_runs("", PAGE_SIZE).await
    }

    async fn list_runs(&self, schedule: &str, page_size: i32) -> Result<Vec<Run>> {
        let base = || api::ListRunsRequest { tenant: self.tenant(), schedule: schedule.into(), ..Default::default() };
        let request = |page_token| api::ListRunsRequest { page_size, page_token, ..base() };
        let call = rpc!(RunServiceClient, list_runs);
        self.list("run list", call, request, |answer| (answer.runs, answer.next_page_token)).await
    }

    /// Returns the number of recipients of a run in each state.
    pub async fn counts(&self, run: &str) -> Result<api::RunCounts> {
        let request = api::GetRunRequest { tenant: self.tenant(), run: run.into(), ..Default::default() };
        let answer = self.read("run show", rpc!(RunServiceClient, get_run), request).await?;
        answer.run.and_then(|run| run.counts).context("an answer without a run")
    }

    /// Returns the history of a recipient.
    pub async fn explain(&self, run: &str, recipient: &str) -> Result<api::ExplainResponse> {
        let (tenant, run, recipient) = (self.tenant(), run.into(), recipient.into());
        let request = api::ExplainRequest { tenant, run, recipient, ..Default::default() };
        self.read("explain", rpc!(RunServiceClient, explain), request).await
    }

    /// Pauses a run.
    pub async fn pause_run(&self, run: &str) -> CallResult<Barrier> {
        let request = api::PauseRunRequest { tenant: self.tenant(), run: run.into(), ..Default::default() };
        let answer = self.change(rpc!(RunServiceClient, pause_run), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Resumes a run. Returns the log index.
    pub async fn resume_run(&self, run: &str) -> CallResult<u64> {
        let request = api::ResumeRunRequest { tenant: self.tenant(), run: run.into(), ..Default::default() };
        self.change(rpc!(RunServiceClient, resume_run), request).await.map(|answer| answer.index)
    }

    /// Cancels a run: its recipients that are not sent get no email.
    pub async fn cancel_run(&self, run: &str) -> CallResult<Barrier> {
        let request = api::CancelRunRequest { tenant: self.tenant(), run: run.into(), validate_only: false };
        let answer = self.change(rpc!(RunServiceClient, cancel_run), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }
}
