//! What an operator asks of the cluster in the midst of its troubles, and what is read of it afterwards.
//!
//! A call that changes something says which of three it came to: done, refused, or unknown. A refusal that comes
//! after a question in vain is unknown too: the first one may have been heard.

use std::time::Duration;

use anyhow::{Context, Result};
use reveille_check::history::Answer;
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient;
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{
    AddOptOutRequest, Barrier, CancelRunRequest, CreateScheduleRequest, ExplainRequest, ExplainResponse,
    GetClusterStatusRequest, GetClusterStatusResponse, HistoryEntry, ListOptOutsRequest, ListRunsRequest,
    ListScheduleHistoryRequest, ListSchedulesRequest, OptOut, PauseRunRequest, ResumeRunRequest, Run, Schedule,
    ScheduleBody, TransferLeaderRequest, TriggerScheduleRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::admin::{Admin, Unanswered, passes};

/// An operator waits for one node so long.
const EACH: Duration = Duration::from_secs(8);
/// And asks one after the other for so long.
const PATIENCE: Duration = Duration::from_secs(16);
/// Reads at the end, when all is healed.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Entries of one page.
const PAGE: i32 = 1_000;

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Came<T> {
    /// It was done, with this answer.
    Done(T),
    /// It was refused, with this reason.
    Refused(String),
    /// It may have been done.
    Unknown,
}

impl<T> Came<T> {
    /// The same with another answer.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Came<U> {
        match self {
            Came::Done(answer) => Came::Done(with(answer)),
            Came::Refused(reason) => Came::Refused(reason),
            Came::Unknown => Came::Unknown,
        }
    }

    /// As histories have it; `yes` words what was done.
    pub fn answer(self, yes: impl FnOnce(T) -> Answer) -> Answer {
        match self {
            Came::Done(answer) => yes(answer),
            Came::Refused(reason) => Answer::Failed { reason },
            Came::Unknown => Answer::Unknown,
        }
    }
}

/// Is nothing changed by what was asked? A node that fails inwardly may have failed to word what it has done.
pub(crate) fn is_refusal(code: Code) -> bool {
    !passes(code) && code != Code::Internal
}

impl Admin {
    /// Creates a schedule under this request id; answers whether it was not there before.
    pub async fn create_as(&self, request_id: &str, schedule: &ScheduleBody) -> Came<bool> {
        let request = CreateScheduleRequest {
            schedule: Some(schedule.clone()),
            request_id: request_id.to_owned(),
            validate_only: false,
        };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).create_schedule(request).await }
        });
        came.await.map(|answer| answer.created)
    }

    /// Triggers a schedule; answers the run.
    pub async fn trigger(&self, request_id: &str, schedule: &str) -> Came<String> {
        let (name, request_id) = (schedule.to_owned(), request_id.to_owned());
        let request =
            TriggerScheduleRequest { tenant: self.tenant(), name, request_id, ..TriggerScheduleRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { ScheduleServiceClient::new(channel).trigger_schedule(request).await }
        });
        came.await.map(|answer| answer.run.unwrap_or_default().run)
    }

    /// Opts a recipient out.
    pub async fn opt_out(&self, request_id: &str, recipient: &str) -> Came<Barrier> {
        let (recipient, request_id) = (recipient.to_owned(), request_id.to_owned());
        let request = AddOptOutRequest { tenant: self.tenant(), recipient, request_id };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { OptOutServiceClient::new(channel).add_opt_out(request).await }
        });
        came.await.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Pauses a run.
    pub async fn pause_run(&self, run: &str) -> Came<Barrier> {
        let request = PauseRunRequest { tenant: self.tenant(), run: run.to_owned(), ..PauseRunRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { RunServiceClient::new(channel).pause_run(request).await }
        });
        came.await.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Lets a run go on; answers the log index of the entry.
    pub async fn resume_run(&self, run: &str) -> Came<u64> {
        let request = ResumeRunRequest { tenant: self.tenant(), run: run.to_owned(), ..ResumeRunRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { RunServiceClient::new(channel).resume_run(request).await }
        });
        came.await.map(|answer| answer.index)
    }

    /// Cancels what a run has not sent.
    pub async fn cancel_run(&self, run: &str) -> Came<Barrier> {
        let request = CancelRunRequest { tenant: self.tenant(), run: run.to_owned(), validate_only: false };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { RunServiceClient::new(channel).cancel_run(request).await }
        });
        came.await.map(|answer| answer.barrier.unwrap_or_default())
    }

    /// Hands leadership over to whoever is closest; answers who leads.
    pub async fn transfer_leader(&self) -> Came<String> {
        let came = self.order(|channel| async move {
            ClusterServiceClient::new(channel).transfer_leader(TransferLeaderRequest::default()).await
        });
        came.await.map(|answer| answer.leader)
    }

    /// How the cluster stands, by whichever node answers first.
    pub async fn status(&self) -> Result<GetClusterStatusResponse> {
        self.read("cluster status", |channel| async move {
            ClusterServiceClient::new(channel).get_cluster_status(GetClusterStatusRequest {}).await
        })
        .await
    }

    /// Every run.
    pub async fn runs(&self) -> Result<Vec<Run>> {
        let (mut runs, mut page_token) = (Vec::new(), String::new());
        loop {
            let request =
                ListRunsRequest { tenant: self.tenant(), page_size: PAGE, page_token, ..ListRunsRequest::default() };
            let answer = self
                .read("run list", |channel| {
                    let request = request.clone();
                    async move { RunServiceClient::new(channel).list_runs(request).await }
                })
                .await?;
            runs.extend(answer.runs);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(runs);
            }
        }
    }

    /// Every schedule.
    pub async fn schedules(&self) -> Result<Vec<Schedule>> {
        let (mut schedules, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListSchedulesRequest {
                tenant: self.tenant(),
                page_size: PAGE,
                page_token,
                with_campaigns: true,
                ..ListSchedulesRequest::default()
            };
            let answer = self
                .read("schedule list", |channel| {
                    let request = request.clone();
                    async move { ScheduleServiceClient::new(channel).list_schedules(request).await }
                })
                .await?;
            schedules.extend(answer.schedules);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(schedules);
            }
        }
    }

    /// Everybody who opted out.
    pub async fn opt_outs(&self) -> Result<Vec<OptOut>> {
        let (mut opt_outs, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListOptOutsRequest {
                tenant: self.tenant(),
                page_size: PAGE,
                page_token,
                ..ListOptOutsRequest::default()
            };
            let answer = self
                .read("optout list", |channel| {
                    let request = request.clone();
                    async move { OptOutServiceClient::new(channel).list_opt_outs(request).await }
                })
                .await?;
            opt_outs.extend(answer.opt_outs);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(opt_outs);
            }
        }
    }

    /// What became of the instants of a schedule, as far as one page tells.
    pub async fn history(&self, schedule: &str) -> Result<Vec<HistoryEntry>> {
        let request = ListScheduleHistoryRequest {
            tenant: self.tenant(),
            name: schedule.to_owned(),
            page_size: PAGE,
            ..ListScheduleHistoryRequest::default()
        };
        let answer = self
            .read("schedule history", |channel| {
                let request = request.clone();
                async move { ScheduleServiceClient::new(channel).list_schedule_history(request).await }
            })
            .await?;
        Ok(answer.entries)
    }

    /// The whole story of a recipient.
    pub async fn explain(&self, run: &str, recipient: &str) -> Result<ExplainResponse> {
        let (run, recipient) = (run.to_owned(), recipient.to_owned());
        let request = ExplainRequest { tenant: self.tenant(), run, recipient, ..ExplainRequest::default() };
        self.read("explain", |channel| {
            let request = request.clone();
            async move { RunServiceClient::new(channel).explain(request).await }
        })
        .await
    }

    pub(crate) async fn order<Answer, Asked>(&self, call: impl Fn(Channel) -> Asked) -> Came<Answer>
    where
        Asked: Future<Output = Result<Response<Answer>, Status>>,
    {
        match self.ask_for(PATIENCE, EACH, call).await {
            Ok((answer, _)) => Came::Done(answer),
            Err(Unanswered { last: Some(status), retries: 0, is_final: true }) if is_refusal(status.code()) => {
                Came::Refused(format!("{:?}: {}", status.code(), status.message()))
            }
            Err(_) => Came::Unknown,
        }
    }

    pub(crate) async fn read<Answer, Asked>(&self, what: &str, call: impl Fn(Channel) -> Asked) -> Result<Answer>
    where
        Asked: Future<Output = Result<Response<Answer>, Status>>,
    {
        match self.ask_for(READ_WITHIN, EACH, call).await {
            Ok((answer, _)) => Ok(answer),
            Err(unanswered) => Err(unanswered.last.map_or_else(|| anyhow::anyhow!("no answer"), anyhow::Error::new))
                .with_context(|| what.to_owned()),
        }
    }
}
