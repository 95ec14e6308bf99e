//! Barriers (P15): after an opt-out, a pause or a cancel is applied, the leader makes sure that no gate on
//! any node decides without it, and names the hand-offs that were past their gate by then.
//!
//! Nobody waits for a relay. A silent node is waited out by its lease, and a node that stays behind an open
//! barrier gets no new lease, so every barrier ends. The leader's half is [`hold`], the holder's [`answer`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::{Holder, Incarnation, NodeId};
use reveille_raft::{About, BarrierAnswer, BarrierQuestion, Crossed};
use tokio::task::JoinSet;

use crate::marks::HandOff;
use crate::site::Site;
use crate::term::Term;

/// How long one question waits for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before a node is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What a barrier found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hand-offs that were past the gate: they may still arrive.
    pub crossed: Vec<Crossed>,
    /// Nodes that were waited out: what they hand off is over, what they had handed off is not known yet.
    pub unconfirmed: Vec<NodeId>,
}

/// The term ended before every node had answered or was waited out: ask the new leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the leader changed while the barrier was open: ask again")]
pub struct Broken;

/// As leader: returns when no gate on any node decides by a state without the entry at `index`.
pub async fn hold(site: &Arc<Site>, term: &Arc<Term>, index: u64, about: About) -> Result<Report, Broken> {
    term.open_barrier(index);
    let nodes: BTreeSet<NodeId> = site.replica.read(|ledger| ledger.nodes().iter().map(|(node, _)| *node).collect());
    let mut asked = JoinSet::new();
    for node in nodes {
        let (site, term, about) = (Arc::clone(site), Arc::clone(term), about.clone());
        asked.spawn(async move { (node, ask(&site, &term, node, index, about).await) });
    }
    let answers = asked.join_all().await;
    term.close_barrier(index);
    if term.ended() {
        return Err(Broken);
    }
    let mut report = Report::default();
    for (node, answer) in answers {
        match answer {
            Some(crossed) => report.crossed.extend(crossed),
            None => report.unconfirmed.push(node),
        }
    }
    Ok(report)
}

/// Asks one node until it answers; none when its lease was over first.
async fn ask(site: &Arc<Site>, term: &Term, node: NodeId, index: u64, about: About) -> Option<Vec<Crossed>> {
    loop {
        let question = BarrierQuestion { index, about: about.clone(), patience: PATIENCE };
        let answer = if node == site.me.node {
            answer(site, question).await
        } else {
            let answered = tokio::time::timeout(2 * PATIENCE, site.replica.ask_barrier(node, question)).await;
            answered.ok().and_then(Result::ok).unwrap_or_default()
        };
        if answer.confirmed {
            return Some(answer.crossed);
        }
        // Two lives of a node never run together (one lock on the data folder): the current one's lease is
        // the last.
        let incarnation = site.replica.read(|ledger| ledger.nodes().get(&node).map(|node| node.incarnation));
        let holder = Holder { node, incarnation: incarnation.unwrap_or(Incarnation(0)) };
        if term.lease_is_over(holder) || term.ended() {
            return None;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// As holder: once the readable state includes the entry, the marks are read (in this order).
pub async fn answer(site: &Site, question: BarrierQuestion) -> BarrierAnswer {
    let deadline = Instant::now() + question.patience;
    if site.replica.wait_applied(question.index, deadline).await.is_err() {
        return BarrierAnswer { confirmed: false, crossed: Vec::new() };
    }
    let concerns = |hand_off: &HandOff| match &question.about {
        About::OptedOut { tenant, key } => hand_off.tenant == *tenant && hand_off.key == *key,
        About::Run(run) => hand_off.run == *run,
    };
    let crossed = site.marks.about(concerns).into_iter();
    let crossed =
        crossed.map(|hand_off| Crossed { run: hand_off.run, recipient: hand_off.recipient, fence: hand_off.fence });
    BarrierAnswer { confirmed: true, crossed: crossed.collect() }
}
