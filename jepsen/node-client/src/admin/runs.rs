//! Runs and the histories of their recipients.

use anyhow::{Context, Result};
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::{
    Barrier, CancelRunRequest, ExplainRequest, ExplainResponse, GetRunRequest, ListRunsRequest, PauseRunRequest,
    ResumeRunRequest, Run, RunCounts,
};

use super::{AdminClient, CallResult, PAGE_SIZE, rpc};

impl AdminClient {
    /// Returns the last run of a schedule. `None`: none has opened yet.
    pub async fn run_of(&self, schedule: &str) -> Result<Option<Run>> {
        // A page ends early after it has read many runs of other schedules.
        let request = |page_token| ListRunsRequest {
            tenant: self.tenant(),
            schedule: schedule.to_owned(),
            page_token,
            ..ListRunsRequest::default()
        };
        let call = rpc!(RunServiceClient, list_runs);
        let runs = self.list("run list", call, request, |answer| (answer.runs, answer.next_page_token)).await?;
        Ok(runs.into_iter().next())
    }

    /// Returns all runs.
    pub async fn runs(&self) -> Result<Vec<Run>> {
        let request = |page_token| ListRunsRequest {
            tenant: self.tenant(),
            page_size: PAGE_SIZE,
            page_token,
            ..ListRunsRequest::default()
        };
        let call = rpc!(RunServiceClient, list_runs);
        self.list("run list", call, request, |answer| (answer.runs, answer.next_page_token)).await
    }

    /// Returns the number of recipients of a run in each state.
    pub async fn counts(&self, run: &str) -> Result<RunCounts> {
        let request = GetRunRequest { tenant: self.tenant(), run: run.to_owned(), ..GetRunRequest::default() };
        let answer = self.read("run show", rpc!(RunServiceClient, get_run), request).await?;
        answer.run.and_then(|run| run.counts).context("an answer without a run")
    }

    /// Returns the history of a recipient.
    pub async fn explain(&self, run: &str, recipient: &str) -> Result<ExplainResponse> {
        let (run, recipient) = (run.to_owned(), recipient.to_owned());
        let request = ExplainRequest { tenant: self.tenant(), run, recipient, ..ExplainRequest::default() };
        self.read("explain", rpc!(RunServiceClient, explain), request).await
    }

    /// Pauses a run.
    pub async fn pause_run(&self, run: &str) -> CallResult<Barrier> {
        let request = PauseRunRequest { tenant: self.tenant(), run: run.to_owned(), ..PauseRunRequest::default() };
        let answer = self.change(rpc!(RunServiceClient, pause_run), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Resumes a run. Returns the log index.
    pub async fn resume_run(&self, run: &str) -> CallResult<u64> {
        let request = ResumeRunRequest { tenant: self.tenant(), run: run.to_owned(), ..ResumeRunRequest::default() };
        self.change(rpc!(RunServiceClient, resume_run), request).await.map(|answer| answer.index)
    }

    /// Cancels a run: its recipients that are not sent get no email.
    pub async fn cancel_run(&self, run: &str) -> CallResult<Barrier> {
        let request = CancelRunRequest { tenant: self.tenant(), run: run.to_owned(), validate_only: false };
        let answer = self.change(rpc!(RunServiceClient, cancel_run), request).await;
        answer.map(|answer| answer.barrier.unwrap_or_default())
    }
}
