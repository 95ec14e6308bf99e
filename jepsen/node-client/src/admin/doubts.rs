//! Recipients in doubt and dead letters, and an operator's decisions about them. A decision has no request id, so it
//! goes to one node once: a second request would be a second decision.

use std::collections::BTreeSet;

use anyhow::Result;
use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::{self as api, ListDoubtsRequest, ResolveDoubtsRequest};

use super::{ANSWER_WITHIN, AdminClient, CallResult, PAGE_SIZE, rpc};

/// Maximum number of entries that an operator reads before a decision.
const FEW: i32 = 200;

/// A run, and the address of one of its recipients.
pub type RecipientOfRun = (String, String);

/// The answer to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionAnswer {
    /// Number of recipients that the decision changed.
    pub changed: u64,
    /// Index of the log entry. `None`: the decision changed no recipient.
    pub index: Option<u64>,
}

impl DecisionAnswer {
    fn new(changed: u64, index: u64) -> DecisionAnswer {
        DecisionAnswer { changed, index: (index > 0).then_some(index) }
    }
}

impl AdminClient {
    /// Returns the addresses in doubt in a run.
    pub async fn doubts(&self, run: &str) -> Result<BTreeSet<String>> {
        let base = || ListDoubtsRequest { tenant: self.tenant(), run: run.into(), ..Default::default() };
        let request = |page_token| ListDoubtsRequest { page_size: PAGE_SIZE, page_token, ..base() };
        let call = rpc!(DoubtServiceClient, list_doubts);
        let doubts = self.list("in-doubt list", call, request, |answer| (answer.doubts, answer.next_page_token));
        Ok(doubts.await?.into_iter().map(|doubt| doubt.recipient).collect())
    }

    /// Returns some recipients in doubt, as one node reports them. Empty without an answer.
    pub async fn doubts_by(&self, node: usize) -> Vec<RecipientOfRun> {
        let request = ListDoubtsRequest { tenant: self.tenant(), page_size: FEW, ..Default::default() };
        let answer = self.ask_one(node, ANSWER_WITHIN, rpc!(DoubtServiceClient, list_doubts), request).await;
        let doubts = answer.and_then(Result::ok).map(|answer| answer.doubts).unwrap_or_default();
        doubts.into_iter().map(|doubt| (doubt.run, doubt.recipient)).collect()
    }

    /// Returns some dead letters, as one node reports them. Empty without an answer.
    pub async fn dead_letters_by(&self, node: usize) -> Vec<RecipientOfRun> {
        let request = api::ListDeadLettersRequest { tenant: self.tenant(), page_size: FEW, ..Default::default() };
        let answer = self.ask_one(node, ANSWER_WITHIN, rpc!(DeadLetterServiceClient, list_dead_letters), request).await;
        let letters = answer.and_then(Result::ok).map(|answer| answer.dead_letters).unwrap_or_default();
        letters.into_iter().map(|letter| (letter.run, letter.recipient)).collect()
    }

    /// Decides the doubts of these recipients of a run, or of all its recipients if the list is empty.
    pub async fn resolve_by(
        &self,
        node: usize,
        run: &str,
        recipients: Vec<String>,
        resolution: api::Resolution,
    ) -> CallResult<DecisionAnswer> {
        let (tenant, run, all) = (self.tenant(), run.into(), recipients.is_empty());
        let (resolution, validate_only) = (resolution.into(), true);
        let preview =
            ResolveDoubtsRequest { tenant, run, all, recipients, resolution, validate_only, ..Default::default() };
        let call = rpc!(DoubtServiceClient, resolve_doubts);
        let fence = match self.change_by(node, call, preview.clone()).await {
            CallResult::Done(answer) if !answer.fence.is_empty() => answer.fence,
            other => return other.map(|_| DecisionAnswer::new(0, 0)),
        };
        let request_id = uuid::Uuid::new_v4().to_string();
        let request = ResolveDoubtsRequest { validate_only: false, fence, request_id, ..preview };
        let answer = self.change_by(node, call, request).await;
        answer.map(|answer| DecisionAnswer::new(answer.resolved, answer.index))
    }

    /// Sends these dead letters of a run again.
    pub async fn requeue_by(&self, node: usize, run: &str, recipients: Vec<String>) -> CallResult<DecisionAnswer> {
        let (tenant, run) = (self.tenant(), run.to_owned());
        let request = api::RequeueDeadLettersRequest { tenant, run, recipients, ..Default::default() };
        let answer = self.change_by(node, rpc!(DeadLetterServiceClient, requeue_dead_letters), request).await;
        answer.map(|answer| DecisionAnswer::new(answer.requeued, answer.index))
    }
}
