//! What this node remembers of its peers, and tells an old data folder by that was put back (P21).
//!
//! A node that comes back with less than it had would vote again where it has voted, and lack entries that it
//! was counted for. It cannot know that; its peers can. There are two memories, and no third:
//!
//! - the ledger's, which is durable: the last life of each node that was made known (P10);
//! - this one, as long as the process lives: the last life of each peer that spoke, the last vote that it gave
//!   or followed when it answered this node, and the last entry that it acknowledged to this node as leader.
//!
//! **A smaller index proves nothing**: a new leader takes entries away that were acknowledged and not committed.
//! But a vote is never taken back, and as long as a vote stands nothing goes that was acknowledged under it. So
//! a life is refused when its folder held a smaller vote when it began, or the same one and not the entry.
//! False refusals would cost more than they save. So whoever does not say how it began is not judged; and of a life
//! whose log was cut only its number is: it knows that it may have less, and votes when it has caught up.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use super::Rejection;
use crate::applied::Core;
use crate::fault::{Fault, FaultCell};
use crate::identity::Identity;

/// Term and node of a vote. Whether a quorum granted it is left out: that is learned, not promised.
type Ballot = (u64, u64);
/// Term, leader and index of an entry, in Raft's order.
type Point = (u64, u64, u64);

fn ballot(vote: Option<&v1::Ballot>) -> Ballot {
    vote.map_or((0, 0), |vote| (vote.term, vote.node))
}

fn point(id: &v1::LogId) -> Point {
    (id.term, id.leader, id.index)
}

/// The last life of a peer that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    incarnation: u64,
    draw: u64,
    vote: Ballot,
    /// Under that vote.
    acknowledged: Option<Point>,
}

impl Known {
    fn is(&self, life: &v1::Life) -> bool {
        (self.incarnation, self.draw) == (life.incarnation, life.draw)
    }

    /// The next life of it, with what is still asked of the one after that.
    fn followed_by(former: Option<&Known>, life: &v1::Life) -> Known {
        let vote = ballot(life.vote.as_ref());
        let (vote, acknowledged) = match former {
            Some(former) if former.vote >= vote => (former.vote, former.acknowledged),
            _ => (vote, None),
        };
        Known { incarnation: life.incarnation, draw: life.draw, vote, acknowledged }
    }

    /// What a life lacks of what the one before it had.
    fn lacks(&self, life: &v1::Life) -> Option<String> {
        if life.incarnation <= self.incarnation {
            return Some(later_life(self.incarnation, life));
        }
        if life.cut {
            return None;
        }
        let vote = ballot(life.vote.as_ref());
        match (vote.cmp(&self.vote), self.acknowledged) {
            (Ordering::Less, _) => {
                Some(format!("that it took part in term {}; its folder knows of term {}", self.vote.0, vote.0))
            }
            (Ordering::Equal, Some(entry)) => {
                let last = life.last.as_ref().map(point);
                let has = last.is_some_and(|last| last >= entry && last.2 >= entry.2);
                let end = last.map_or("is empty".to_owned(), |last| format!("ends at {}", last.2));
                (!has).then(|| format!("that it acknowledged entry {}; the log in its folder {end}", entry.2))
            }
            (Ordering::Equal, None) | (Ordering::Greater, _) => None,
        }
    }
}

fn later_life(known: u64, life: &v1::Life) -> String {
    format!("its life {known}; by its folder this is life {}", life.incarnation)
}

#[derive(Default)]
struct State {
    known: BTreeMap<NodeId, Known>,
    /// What was drawn by the last life that was refused: each is told of once.
    refused: BTreeMap<NodeId, u64>,
}

/// The memory, and what this node says of itself.
pub(crate) struct Recall {
    identity: Arc<Identity>,
    core: Arc<Core>,
    faults: FaultCell,
    own: v1::Life,
    state: Mutex<State>,
}

impl Recall {
    /// `own`: this life, and what its folder held when it began.
    pub fn new(identity: Arc<Identity>, core: Arc<Core>, faults: FaultCell, own: v1::Life) -> Recall {
        Recall { identity, core, faults, own, state: Mutex::default() }
    }

    /// This life, as each request and each acknowledgement of it says.
    pub fn own(&self) -> v1::Life {
        self.own
    }

    /// Has a peer said that this folder is too old? Then this node neither asks nor answers any more.
    pub fn is_outdated(&self) -> bool {
        matches!(self.faults.get(), Some(Fault::Outdated(_)))
    }

    /// A peer says so. Noted in the folder: the next start may reach nobody who remembers.
    pub fn set_aside(&self, why: &str) {
        if let Err(fault) = self.identity.set_aside(why) {
            tracing::error!(%fault, "the data folder could not take note that it is too old: do not start it again");
        }
        self.faults.raise(Fault::Outdated(why.to_owned()));
    }

    /// Somebody takes part, by a request or an answer: refused, if it is a life of a folder that is older than what
    /// is remembered, and remembered from now on otherwise.
    pub fn meet(&self, peer: NodeId, life: Option<&v1::Life>) -> Result<(), Rejection> {
        self.look_at(peer, life, true)
    }

    /// Somebody says whose life it is, and takes no part yet: refused in the same way, and not remembered. Who was
    /// refused elsewhere stops, and the folder that is put in its place counts to the same life.
    pub fn judge(&self, peer: NodeId, life: Option<&v1::Life>) -> Result<(), Rejection> {
        self.look_at(peer, life, false)
    }

    fn look_at(&self, peer: NodeId, life: Option<&v1::Life>, is_to_be_known: bool) -> Result<(), Rejection> {
        let Some(life) = life else { return Ok(()) };
        let is_known = self.state.lock().known.get(&peer).is_some_and(|known| known.is(life));
        let last = |ledger: &Ledger| ledger.nodes().get(&peer).map(|node| (node.incarnation.0, node.life));
        // The ledger may hear of a later life after this one was taken. No request waits for an entry that is being
        // applied because of that: the next one will look.
        let recorded = if is_known { self.core.try_read(last).flatten() } else { self.core.read(last) };
        let mut state = self.state.lock();
        // Looked up again: requests of a new life come side by side, and the one must not be refused for the other.
        let former = state.known.get(&peer).filter(|known| !known.is(life));
        let lacks = recorded
            .filter(|(incarnation, draw)| {
                *incarnation > life.incarnation || (*incarnation == life.incarnation && *draw != life.draw)
            })
            .map(|(incarnation, _)| later_life(incarnation, life))
            .or_else(|| former.and_then(|former| former.lacks(life)));
        let Some(lacks) = lacks else {
            if is_to_be_known && (former.is_some() || !state.known.contains_key(&peer)) {
                let known = Known::followed_by(former, life);
                state.known.insert(peer, known);
            }
            return Ok(());
        };
        let why = format!("node {} remembers {lacks}", self.identity.node());
        if state.refused.insert(peer, life.draw) != Some(life.draw) {
            tracing::warn!(%peer, why, "a peer came up with an older data folder than it had: it is refused");
        }
        Err(Rejection::Outdated(why))
    }

    /// This life of a peer gave its vote.
    pub fn voted(&self, peer: NodeId, life: Option<&v1::Life>, vote: Option<&v1::Ballot>) {
        self.learn(peer, life, ballot(vote), None);
    }

    /// This life of a peer has an entry of a leader, and all before it, on its disk.
    pub fn acknowledged(&self, peer: NodeId, life: Option<&v1::Life>, leader: &v1::Ballot, last: &v1::LogId) {
        self.learn(peer, life, ballot(Some(leader)), Some(point(last)));
    }

    fn learn(&self, peer: NodeId, life: Option<&v1::Life>, vote: Ballot, entry: Option<Point>) {
        let mut state = self.state.lock();
        let Some(known) = state.known.get_mut(&peer) else { return };
        // An answer that was long on its way speaks of a life that is over.
        if !life.is_some_and(|life| known.is(life)) {
            return;
        }
        match vote.cmp(&known.vote) {
            Ordering::Less => {}
            Ordering::Equal => known.acknowledged = known.acknowledged.max(entry),
            Ordering::Greater => (known.vote, known.acknowledged) = (vote, entry),
        }
    }

    /// This node, its leader, sends it again what a peer of a cut log has lost.
    pub fn starts_over(&self, peer: NodeId) {
        if let Some(known) = self.state.lock().known.get_mut(&peer) {
            known.acknowledged = None;
        }
    }

    /// Does a peer deny an entry that it has acknowledged to the same leader?
    pub fn contradicts(&self, peer: NodeId, leader: &v1::Ballot, denied: Option<&v1::LogId>) -> bool {
        let state = self.state.lock();
        let Some(known) = state.known.get(&peer).filter(|known| known.vote == ballot(Some(leader))) else {
            return false;
        };
        known.acknowledged.is_some_and(|entry| denied.map(|id| id.index) <= Some(entry.2))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::applied::Place;

    const PEER: NodeId = NodeId(2);

    /// A memory without any, of a node whose folder lies there.
    fn memory(folder: &tempfile::TempDir) -> Recall {
        let identity = Arc::new(Identity::open(folder.path(), NodeId(1)).expect("a new folder"));
        let faults = FaultCell::new();
        let core = Arc::new(Core::new(Ledger::new(), Place::default(), false, faults.clone()));
        Recall::new(identity, core, faults, v1::Life::default())
    }

    fn vote(term: u64) -> v1::Ballot {
        v1::Ballot { term, node: 1, committed: true }
    }

    fn entry(term: u64, index: u64) -> v1::LogId {
        v1::LogId { term, leader: 1, index }
    }

    /// A life whose folder knows of a vote in `term` and ends with this entry.
    fn life(incarnation: u64, term: u64, last: v1::LogId) -> v1::Life {
        v1::Life { incarnation, draw: incarnation * 10, vote: Some(vote(term)), last: Some(last), cut: false }
    }

    /// It led in term 5, and the first life of its peer acknowledged entry 40 of it.
    fn acknowledged(recall: &Recall) {
        let first = life(1, 4, entry(4, 30));
        recall.meet(PEER, Some(&first)).expect("nothing is remembered yet");
        recall.acknowledged(PEER, Some(&first), &vote(5), &entry(5, 40));
    }

    fn is_refused(recall: &Recall, life: &v1::Life) -> bool {
        matches!(recall.meet(PEER, Some(life)), Err(Rejection::Outdated(_)))
    }

    #[test]
    fn who_has_what_it_acknowledged_is_taken_and_who_has_less_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        for (next, refused) in [
            (life(2, 5, entry(5, 40)), false),
            (life(2, 5, entry(5, 41)), false),
            (life(2, 5, entry(5, 39)), true),
            // Longer, but by entries that the leader of term 5 took away.
            (life(2, 5, entry(4, 41)), true),
            // It ends with a later leader's entry, below what it had.
            (life(2, 5, entry(5, 12)), true),
            (life(2, 4, entry(4, 50)), true),
            // A later leader may have taken entries away.
            (life(2, 6, entry(4, 20)), false),
            (life(1, 5, entry(5, 40)), false),
            (v1::Life { draw: 11, ..life(1, 5, entry(5, 40)) }, true),
        ] {
            let recall = memory(&folder);
            acknowledged(&recall);
            assert_eq!(is_refused(&recall, &next), refused, "{next:?}");
        }
    }

    #[test]
    fn under_the_same_vote_an_acknowledgement_binds_every_later_life() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        recall.meet(PEER, Some(&life(2, 5, entry(5, 45)))).expect("it has more");
        assert!(is_refused(&recall, &life(3, 5, entry(5, 39))));
        recall.meet(PEER, Some(&life(3, 5, entry(5, 42)))).expect("what is behind the acknowledged is its own affair");
    }

    #[test]
    fn a_vote_that_was_given_binds_though_nothing_was_acknowledged_under_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        recall.voted(PEER, Some(&life(1, 4, entry(4, 30))), Some(&vote(7)));
        assert!(is_refused(&recall, &life(2, 6, entry(6, 99))));
        recall.meet(PEER, Some(&life(2, 7, entry(4, 20)))).expect("it knows of its vote");
    }

    #[test]
    fn who_only_greeted_is_judged_and_not_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        recall.judge(PEER, Some(&life(2, 6, entry(6, 50)))).expect("it has more");
        let other = v1::Life { draw: 21, ..life(2, 5, entry(5, 40)) };
        recall.meet(PEER, Some(&other)).expect("nobody took part as life 2 yet");
        assert!(recall.judge(PEER, Some(&life(2, 5, entry(5, 40)))).is_err(), "now somebody does");
        assert!(
            recall.judge(PEER, Some(&life(3, 4, entry(4, 30)))).is_err(),
            "a greeting is refused like anything else"
        );
    }

    /// Found by nodes that died at crash points (seed 3): a healthy node was refused for good.
    #[test]
    fn requests_of_a_new_life_that_come_side_by_side_are_all_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        let (gate, refused) = (Barrier::new(4), AtomicU32::new(0));
        let ask = || {
            for number in 1..2_000 {
                gate.wait();
                let met = recall.meet(PEER, Some(&life(number, 5, entry(5, 40))));
                refused.fetch_add(u32::from(met.is_err()), Relaxed);
            }
        };
        std::thread::scope(|threads| (0..4).for_each(|_| drop(threads.spawn(ask))));
        assert_eq!(refused.into_inner(), 0);
    }

    #[test]
    fn a_late_answer_of_a_former_life_says_nothing_of_the_present_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        recall.meet(PEER, Some(&life(2, 5, entry(5, 40)))).expect("it has all");
        recall.acknowledged(PEER, Some(&life(1, 4, entry(4, 30))), &vote(5), &entry(5, 60));
        recall.meet(PEER, Some(&life(3, 5, entry(5, 40)))).expect("it acknowledged no more than that");
        assert!(is_refused(&recall, &life(2, 5, entry(5, 40))), "its life is over");
    }

    #[test]
    fn a_denial_counts_against_what_was_acknowledged_to_the_same_leader() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        assert!(recall.contradicts(PEER, &vote(5), Some(&entry(5, 40))));
        assert!(!recall.contradicts(PEER, &vote(5), Some(&entry(5, 41))), "it never had that one");
        assert!(!recall.contradicts(PEER, &vote(6), Some(&entry(5, 40))), "another leader begins to look");
    }

    #[test]
    fn a_log_that_was_cut_may_lack_what_it_acknowledged_until_it_has_caught_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        let cut = v1::Life { cut: true, ..life(2, 4, entry(4, 35)) };
        recall.meet(PEER, Some(&cut)).expect("it does not vote");
        assert!(recall.contradicts(PEER, &vote(5), Some(&entry(5, 38))), "its leader does not know yet");
        recall.starts_over(PEER);
        assert!(!recall.contradicts(PEER, &vote(5), Some(&entry(5, 38))));
        recall.acknowledged(PEER, Some(&cut), &vote(5), &entry(5, 41));
        assert!(is_refused(&recall, &life(3, 5, entry(5, 40))), "what it has caught up with binds it");
    }

    #[test]
    fn who_says_nothing_of_itself_is_not_judged() {
        let folder = tempfile::tempdir().expect("a folder");
        let recall = memory(&folder);
        acknowledged(&recall);
        assert_eq!(recall.meet(PEER, None), Ok(()));
    }
}
