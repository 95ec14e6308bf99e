//! Operators decide in the midst of it: whoever is in doubt is closed as assumed, or sent again; dead letters are
//! requeued. Mostly they close. What they send again may come twice, by choice, and is counted apart (`duplicates_decided`).

use std::time::{Duration, Instant};

use reveille_check::history::{Answer, Operation};
use reveille_proto::admin::v1::Resolution;

use super::operator::{Operator, nobody, word};
use super::workload::TENANTS;
use crate::decisions::{Decided, Somebody};
use crate::orders::Came;

/// Somebody to decide about is looked for this long.
const FOUND_WITHIN: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many are sent again by one decision, closed by name, and requeued.
const RESENT_MAX: usize = 2;
const CLOSED_MAX: usize = 4;
const REQUEUED_MAX: usize = 6;

/// Some of a run, and the node that told of them.
struct Case {
    node: usize,
    tenant: &'static str,
    run: String,
    recipients: Vec<String>,
}

impl Operator {
    /// Decides doubts of one run.
    pub(super) async fn decide(&self) -> (bool, String) {
        let Some(Case { node, tenant, run, recipients }) = self.case(false).await else { return nobody() };
        let resends = self.number.is_multiple_of(3) && !self.desk.was_paused(&run);
        let (resolution, what, most) = match (resends, self.number.is_multiple_of(2)) {
            (true, _) => (Resolution::Resend, "resend", RESENT_MAX),
            (false, true) => (Resolution::Sent, "assume", CLOSED_MAX),
            // Nobody is named: all of them.
            (false, false) => (Resolution::Sent, "assume all", 0),
        };
        let named: Vec<String> = recipients.into_iter().take(most).collect();
        let invoked = self.recorder.now_ns();
        let came = self.admin.of_tenant(tenant).resolve_by(node, &run, named.clone(), resolution).await;
        let operation = |recipient: Option<String>| match resolution {
            Resolution::Resend => Operation::Resend { run: run.clone(), recipient },
            Resolution::Sent | Resolution::Unspecified => Operation::Assume { run: run.clone(), recipient },
        };
        self.rule(invoked, &named, &came, operation);
        told(&format!("{what} {} of {run}", named.join(" ")), &came)
    }

    /// Sends dead letters of one run again.
    pub(super) async fn requeue(&self) -> (bool, String) {
        let Some(Case { node, tenant, run, recipients }) = self.case(true).await else { return nobody() };
        let named: Vec<String> = recipients.into_iter().take(REQUEUED_MAX).collect();
        let invoked = self.recorder.now_ns();
        let came = self.admin.of_tenant(tenant).requeue_by(node, &run, named.clone()).await;
        self.rule(invoked, &named, &came, |recipient| Operation::Resend { run: run.clone(), recipient });
        told(&format!("requeue {} of {run}", named.join(" ")), &came)
    }

    /// Who is in doubt, or dead, in some run; waits for somebody.
    async fn case(&self, dead: bool) -> Option<Case> {
        let until = Instant::now() + FOUND_WITHIN;
        let mut node = self.number;
        loop {
            let tenant = TENANTS[node % TENANTS.len()];
            let admin = self.admin.of_tenant(tenant);
            let mut found = if dead { admin.dead_by(node).await } else { admin.in_doubt_by(node).await };
            if dead {
                found.retain(|somebody| !self.desk.was_paused(&somebody.run));
            }
            if let Some(Somebody { run, .. }) = found.get(self.number % found.len().max(1)).cloned() {
                let own = found.into_iter().filter(|somebody| somebody.run == run);
                return Some(Case { node, tenant, recipients: own.map(|somebody| somebody.recipient).collect(), run });
            }
            if Instant::now() > until {
                return None;
            }
            node += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Writes a decision down, once for each who is named; nobody: all.
    fn rule(
        &self,
        invoked_ns: u64,
        named: &[String],
        came: &Came<Decided>,
        operation: impl Fn(Option<String>) -> Operation,
    ) {
        let answer = came.clone().answer(|decided| Answer::at(decided.index));
        let all = named.is_empty().then_some(None);
        for recipient in all.into_iter().chain(named.iter().cloned().map(Some)) {
            self.record(None, invoked_ns, operation(recipient), answer.clone());
        }
    }
}

/// In words, and whether it moved anybody.
fn told(what: &str, came: &Came<Decided>) -> (bool, String) {
    match came {
        Came::Done(Decided { moved, .. }) => (*moved > 0, format!("{what}: {moved} moved")),
        other => (false, format!("{what}: {}", word(other))),
    }
}
