//! Recipients in doubt and dead letters, and an operator's decisions about them. A decision has no request id, so it
//! goes to one node once: a second request would be a second decision.

use std::collections::BTreeSet;

use anyhow::Result;
use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::{
    ListDeadLettersRequest, ListDoubtsRequest, RequeueDeadLettersRequest, Resolution, ResolveDoubtsRequest,
};

use super::{ANSWER_WITHIN, AdminClient, CallResult, PAGE_SIZE, rpc};

/// Maximum number of entries that an operator reads before a decision.
const FEW: i32 = 200;

/// A recipient of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientOfRun {
    /// The run.
    pub run: String,
    /// The address.
    pub recipient: String,
}

/// The answer to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionAnswer {
    /// Number of recipients that the decision changed.
    pub changed: u64,
    /// Index of the log entry. `None`: the decision changed no recipient.
    pub index: Option<u64>,
}

impl AdminClient {
    /// Returns the addresses in doubt in a run.
    pub async fn doubts(&self, run: &str) -> Result<BTreeSet<String>> {
        let request = |page_token| ListDoubtsRequest {
            tenant: self.tenant(),
            run: run.to_owned(),
            page_size: PAGE_SIZE,
            page_token,
            ..ListDoubtsRequest::default()
        };
        let call = rpc!(DoubtServiceClient, list_doubts);
        let doubts = self.list("in-doubt list", call, request, |answer| (answer.doubts, answer.next_page_token));
        Ok(doubts.await?.into_iter().map(|doubt| doubt.recipient).collect())
    }

    /// Returns some recipients in doubt, as one node reports them. Empty without an answer.
    pub async fn doubts_by(&self, node: usize) -> Vec<RecipientOfRun> {
        let request = ListDoubtsRequest { tenant: self.tenant(), page_size: FEW, ..ListDoubtsRequest::default() };
        let answer = self.ask_one(node, ANSWER_WITHIN, rpc!(DoubtServiceClient, list_doubts), request).await;
        let doubts = answer.and_then(Result::ok).map(|answer| answer.doubts).unwrap_or_default();
        doubts.into_iter().map(|doubt| RecipientOfRun { run: doubt.run, recipient: doubt.recipient }).collect()
    }

    /// Returns some dead letters, as one node reports them. Empty without an answer.
    pub async fn dead_letters_by(&self, node: usize) -> Vec<RecipientOfRun> {
        let request =
            ListDeadLettersRequest { tenant: self.tenant(), page_size: FEW, ..ListDeadLettersRequest::default() };
        let answer = self.ask_one(node, ANSWER_WITHIN, rpc!(DeadLetterServiceClient, list_dead_letters), request).await;
        let letters = answer.and_then(Result::ok).map(|answer| answer.dead_letters).unwrap_or_default();
        letters.into_iter().map(|letter| RecipientOfRun { run: letter.run, recipient: letter.recipient }).collect()
    }

    /// Decides the doubts of these recipients of a run, or of all its recipients if the list is empty.
    pub async fn resolve_by(
        &self,
        node: usize,
        run: &str,
        recipients: Vec<String>,
        resolution: Resolution,
    ) -> CallResult<DecisionAnswer> {
        let preview = ResolveDoubtsRequest {
            tenant: self.tenant(),
            run: run.to_owned(),
            all: recipients.is_empty(),
            recipients,
            resolution: resolution.into(),
            validate_only: true,
            ..ResolveDoubtsRequest::default()
        };
        let call = rpc!(DoubtServiceClient, resolve_doubts);
        let fence = match self.change_by(node, call, preview.clone()).await {
            CallResult::Done(answer) if answer.fence.is_empty() => {
                return CallResult::Done(DecisionAnswer { changed: 0, index: None });
            }
            CallResult::Done(answer) => answer.fence,
            other => return other.map(|_| DecisionAnswer { changed: 0, index: None }),
        };
        let request = ResolveDoubtsRequest { validate_only: false, fence, ..preview };
        let answer = self.change_by(node, call, request).await;
        answer.map(|answer| DecisionAnswer { changed: answer.resolved, index: entry(answer.index) })
    }

    /// Sends these dead letters of a run again.
    pub async fn requeue_by(&self, node: usize, run: &str, recipients: Vec<String>) -> CallResult<DecisionAnswer> {
        let (tenant, run) = (self.tenant(), run.to_owned());
        let request = RequeueDeadLettersRequest { tenant, run, recipients, ..RequeueDeadLettersRequest::default() };
        let answer = self.change_by(node, rpc!(DeadLetterServiceClient, requeue_dead_letters), request).await;
        answer.map(|answer| DecisionAnswer { changed: answer.requeued, index: entry(answer.index) })
    }
}

fn entry(index: u64) -> Option<u64> {
    (index > 0).then_some(index)
}
