//! Decisions of operators during the faults. They close doubts as assumed or resend them, and requeue dead letters.
//! Most doubts are closed. A resent email may arrive twice, and such duplicates are counted separately
//! (`duplicates_decided`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reveille_check::events::{Answer, Operation};
use reveille_harness::admin::DecisionAnswer;
use reveille_harness::{CallResult, wait};
use reveille_proto::admin::v1::Resolution;

use super::operator::Operator;
use crate::run::observe::answer_of;
use crate::run::workload::TENANTS;

/// Maximum time of the search for recipients to decide about.
const FOUND_WITHIN: Duration = Duration::from_secs(6);
/// Maximum number of recipients that one decision resends, closes or requeues.
const RESENT_MAX: usize = 2;
const CLOSED_MAX: usize = 4;
const REQUEUED_MAX: usize = 6;

/// Recipients of a run, and the node that listed them.
struct DecisionCase {
    node: usize,
    tenant: &'static str,
    run: String,
    recipients: Vec<String>,
}

impl Operator {
    /// Decides doubts of one run.
    pub(super) async fn decide(&self) -> bool {
        let Some(DecisionCase { node, tenant, run, recipients }) = self.case(false).await else { return false };
        let resends = self.number.is_multiple_of(3) && !self.coordination.was_paused(&run);
        let (resolution, most) = match (resends, self.number.is_multiple_of(2)) {
            (true, _) => (Resolution::Resend, RESENT_MAX),
            (false, true) => (Resolution::Sent, CLOSED_MAX),
            // Without names the decision concerns all recipients.
            (false, false) => (Resolution::Sent, 0),
        };
        let named: Vec<String> = recipients.into_iter().take(most).collect();
        let invoked = self.recorder.now_ns();
        let result = self.admin.of_tenant(tenant).resolve_by(node, &run, named.clone(), resolution).await;
        let operation = |recipient: Option<String>| match resolution {
            Resolution::Resend => Operation::Resend { run: run.clone(), recipient },
            _ => Operation::Assume { run: run.clone(), recipient },
        };
        self.record_decision(invoked, &named, &result, operation);
        changed_any(&result)
    }

    /// Requeues dead letters of one run.
    pub(super) async fn requeue(&self) -> bool {
        let Some(DecisionCase { node, tenant, run, recipients }) = self.case(true).await else { return false };
        let named: Vec<String> = recipients.into_iter().take(REQUEUED_MAX).collect();
        let invoked = self.recorder.now_ns();
        let result = self.admin.of_tenant(tenant).requeue_by(node, &run, named.clone()).await;
        self.record_decision(invoked, &named, &result, |recipient| Operation::Resend { run: run.clone(), recipient });
        changed_any(&result)
    }

    /// Waits for recipients of a run that are in doubt, or for dead letters. Returns them.
    async fn case(&self, dead: bool) -> Option<DecisionCase> {
        let tries = AtomicUsize::new(self.number);
        let find = || async {
            let node = tries.fetch_add(1, Ordering::Relaxed);
            let tenant = TENANTS[node % TENANTS.len()];
            let admin = self.admin.of_tenant(tenant);
            let mut found = if dead { admin.dead_letters_by(node).await } else { admin.doubts_by(node).await };
            // Of an erased recipient only its number is known.
            found.retain(|(run, recipient)| {
                !recipient.starts_with('#') && (!dead || !self.coordination.was_paused(run))
            });
            let run = found.get(self.number % found.len().max(1))?.0.clone();
            let own = found.into_iter().filter(|(of, _)| *of == run);
            Some(DecisionCase { node, tenant, recipients: own.map(|(_, recipient)| recipient).collect(), run })
        };
        wait::for_some(FOUND_WITHIN, find).await
    }

    /// Records a decision: once for each named recipient, or once if it concerns all recipients.
    fn record_decision(
        &self,
        invoked_ns: u64,
        named: &[String],
        result: &CallResult<DecisionAnswer>,
        operation: impl Fn(Option<String>) -> Operation,
    ) {
        let answer = answer_of(result.clone(), |decision| Answer::at(decision.index));
        let all = named.is_empty().then_some(None);
        for recipient in all.into_iter().chain(named.iter().cloned().map(Some)) {
            let caller = (format!("operator-{}", self.number), None);
            self.recorder.call(caller, invoked_ns, operation(recipient), answer.clone());
        }
    }
}

fn changed_any(result: &CallResult<DecisionAnswer>) -> bool {
    matches!(result, CallResult::Done(DecisionAnswer { changed: 1.., .. }))
}
