//! What operators decide about those of whom nobody knows whether they got their mail, and about those who were refused.
//!
//! None of it has a request id, so it is asked of one node, and once: whoever asks again decides again. Who was told
//! nothing says so.

use std::time::Duration;

use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::{
    ListDeadLettersRequest, ListDoubtsRequest, RequeueDeadLettersRequest, Resolution, ResolveDoubtsRequest,
};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::admin::Admin;
use crate::orders::{Came, is_refusal};

/// One node is waited for so long.
const WITHIN: Duration = Duration::from_secs(8);
/// Entries that somebody looks at before he decides.
const PAGE: i32 = 200;

/// Somebody of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Somebody {
    /// Of which run.
    pub run: String,
    /// Address.
    pub recipient: String,
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Whom it concerned.
    pub moved: u64,
    /// Log index, where there is an entry.
    pub index: Option<u64>,
}

impl Admin {
    /// Who is in doubt, as this node tells on one page; nobody where it does not answer.
    pub async fn in_doubt_by(&self, node: usize) -> Vec<Somebody> {
        let request = ListDoubtsRequest { tenant: self.tenant(), page_size: PAGE, ..ListDoubtsRequest::default() };
        let asked = self.ask_once(node, WITHIN, |channel| async move {
            DoubtServiceClient::new(channel).list_doubts(request).await
        });
        let doubts = asked.await.and_then(Result::ok).map(|answer| answer.doubts).unwrap_or_default();
        doubts.into_iter().map(|doubt| Somebody { run: doubt.run, recipient: doubt.recipient }).collect()
    }

    /// Who is a dead letter, likewise.
    pub async fn dead_by(&self, node: usize) -> Vec<Somebody> {
        let request =
            ListDeadLettersRequest { tenant: self.tenant(), page_size: PAGE, ..ListDeadLettersRequest::default() };
        let asked = self.ask_once(node, WITHIN, |channel| async move {
            DeadLetterServiceClient::new(channel).list_dead_letters(request).await
        });
        let letters = asked.await.and_then(Result::ok).map(|answer| answer.dead_letters).unwrap_or_default();
        letters.into_iter().map(|letter| Somebody { run: letter.run, recipient: letter.recipient }).collect()
    }

    /// Decides doubts of a run: of these, or of all where nobody is named.
    pub async fn resolve_by(
        &self,
        node: usize,
        run: &str,
        recipients: Vec<String>,
        resolution: Resolution,
    ) -> Came<Decided> {
        let looked = ResolveDoubtsRequest {
            tenant: self.tenant(),
            run: run.to_owned(),
            all: recipients.is_empty(),
            recipients,
            resolution: resolution.into(),
            validate_only: true,
            ..ResolveDoubtsRequest::default()
        };
        let question = looked.clone();
        let counted =
            self.once(node, |channel| async move { DoubtServiceClient::new(channel).resolve_doubts(question).await });
        let fence = match counted.await {
            Came::Done(answer) if answer.fence.is_empty() => return Came::Done(Decided { moved: 0, index: None }),
            Came::Done(answer) => answer.fence,
            Came::Refused(why) => return Came::Refused(why),
            Came::Unknown => return Came::Unknown,
        };
        let request = ResolveDoubtsRequest { validate_only: false, fence, ..looked };
        let came =
            self.once(node, |channel| async move { DoubtServiceClient::new(channel).resolve_doubts(request).await });
        came.await.map(|answer| Decided { moved: answer.resolved, index: entry(answer.index) })
    }

    /// Sends these dead letters of a run again.
    pub async fn requeue_by(&self, node: usize, run: &str, recipients: Vec<String>) -> Came<Decided> {
        let request = RequeueDeadLettersRequest {
            tenant: self.tenant(),
            run: run.to_owned(),
            recipients,
            ..RequeueDeadLettersRequest::default()
        };
        let came = self.once(node, |channel| async move {
            DeadLetterServiceClient::new(channel).requeue_dead_letters(request).await
        });
        came.await.map(|answer| Decided { moved: answer.requeued, index: entry(answer.index) })
    }

    /// Asks one node, once. A connection that broke may have carried the question.
    async fn once<Answer, Asked>(&self, node: usize, call: impl FnOnce(Channel) -> Asked) -> Came<Answer>
    where
        Asked: Future<Output = Result<Response<Answer>, Status>>,
    {
        match self.ask_once(node, WITHIN, call).await {
            Some(Ok(answer)) => Came::Done(answer),
            Some(Err(status)) if is_refusal(status.code()) => {
                Came::Refused(format!("{:?}: {}", status.code(), status.message()))
            }
            Some(Err(_)) | None => Came::Unknown,
        }
    }

    /// What one node says to one question within this; none where it says nothing.
    pub(crate) async fn ask_once<Answer, Asked>(
        &self,
        node: usize,
        within: Duration,
        call: impl FnOnce(Channel) -> Asked,
    ) -> Option<Result<Answer, Status>>
    where
        Asked: Future<Output = Result<Response<Answer>, Status>>,
    {
        let asked = call(self.channel_to(node)?);
        tokio::time::timeout(within, asked).await.ok().map(|came| came.map(Response::into_inner))
    }
}

fn entry(index: u64) -> Option<u64> {
    (index > 0).then_some(index)
}
