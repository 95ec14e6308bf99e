//! Checks the promise of followers: for the longest election timeout after a leader's heartbeat, a node votes for no
//! other node, even after a restart. That leader itself may release the node by asking for an election. Histories do
//! not contain votes, so this is checked here, where every message is visible.

use std::collections::{BTreeMap, BTreeSet};

use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_raft::peer::{Request, Response};
use tokio::time::{Duration, Instant};

/// The promises of each node to its last leader.
#[derive(Debug)]
pub struct VotePromises {
    holds: Duration,
    given: BTreeMap<NodeId, (Leader, Instant)>,
    /// Leaders that have asked for an election.
    resigned: BTreeSet<Leader>,
    broken: Vec<String>,
}

/// The requests that matter for vote promises.
#[derive(Clone, Copy, Debug)]
pub enum RequestKind {
    /// A heartbeat.
    Append { leader: Leader },
    /// A request for a vote. `is_asked_for`: the request says that the leader asked for the election.
    Vote { candidate: u64, is_asked_for: bool },
    /// A leader resigns and releases its followers from their promise.
    Resigns { leader: Leader },
}

/// A leader: its term, and its node.
type Leader = (u64, u64);

impl RequestKind {
    /// Returns the kind of a request. `None`: the request does not matter for vote promises.
    pub fn of(request: &Request) -> Option<RequestKind> {
        match request {
            Request::Append(append) => Some(RequestKind::Append { leader: leader(append.vote.as_ref()?) }),
            Request::Vote(vote) => {
                let candidate = vote.vote.as_ref()?.node;
                Some(RequestKind::Vote { candidate, is_asked_for: vote.leadership_transfer })
            }
            Request::TransferLeader(transfer) => {
                Some(RequestKind::Resigns { leader: leader(transfer.from_leader.as_ref()?) })
            }
            _ => None,
        }
    }
}

fn leader(ballot: &v1::Ballot) -> Leader {
    (ballot.term, ballot.node)
}

/// Returns true if the node accepted the sender as leader.
fn is_heard(answer: &v1::AppendResponse) -> bool {
    !matches!(answer.outcome, Some(v1::append_response::Outcome::HigherVote(_)) | None)
}

impl VotePromises {
    /// Creates the watch without promises. Each promise lasts for `holds`.
    pub fn new(holds: Duration) -> VotePromises {
        VotePromises { holds, given: BTreeMap::new(), resigned: BTreeSet::new(), broken: Vec::new() }
    }

    /// Records the answer of a node. If the answer is a vote, checks it.
    pub fn answered(&mut self, by: NodeId, asked: RequestKind, response: &Response) {
        match (asked, response) {
            (RequestKind::Append { leader }, Response::Append(answer)) if is_heard(answer) => {
                self.given.insert(by, (leader, Instant::now()));
            }
            (RequestKind::Vote { candidate, is_asked_for }, Response::Vote(answer)) if answer.granted => {
                let Some((leader, at)) = self.given.get(&by) else { return };
                let is_free = leader.1 == candidate || is_asked_for && self.resigned.contains(leader);
                let passed = at.elapsed();
                if !is_free && passed < self.holds {
                    let (node, leader) = (by.0, leader.1);
                    self.broken.push(format!(
                        "n{node} heard n{leader} lead and gave n{candidate} its vote {:.3} s later; it owes {:.3} s",
                        passed.as_secs_f64(),
                        self.holds.as_secs_f64()
                    ));
                }
            }
            // The request counts, whatever the answer is.
            (RequestKind::Resigns { leader }, _) => drop(self.resigned.insert(leader)),
            _ => {}
        }
    }

    /// Records that another rule of leaderships was broken.
    #[cfg(feature = "injected-bugs")]
    pub fn record(&mut self, what: String) {
        self.broken.push(what);
    }

    /// Returns the promises that were broken since the last call.
    pub fn broken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.broken)
    }
}

#[cfg(test)]
mod tests {
    use reveille_proto::peer::v1::append_response::Outcome;

    use super::*;

    const HOLDS: Duration = Duration::from_secs(3);
    const LEADER: Leader = (7, 3);

    fn hears(vote_promises: &mut VotePromises) {
        let answer = v1::AppendResponse { outcome: Some(Outcome::Accepted(v1::Accepted {})) };
        vote_promises.answered(NodeId(2), RequestKind::Append { leader: LEADER }, &Response::Append(answer));
    }

    /// Lets n2 vote for n1. Returns true if this broke a promise.
    fn breaks(vote_promises: &mut VotePromises, is_asked_for: bool) -> bool {
        let answer = v1::VoteResponse { granted: true, ..v1::VoteResponse::default() };
        vote_promises.answered(NodeId(2), RequestKind::Vote { candidate: 1, is_asked_for }, &Response::Vote(answer));
        !vote_promises.broken().is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn promise_holds_as_long_as_election_takes() {
        let mut vote_promises = VotePromises::new(HOLDS);
        assert!(!breaks(&mut vote_promises, false), "nothing was promised");
        hears(&mut vote_promises);
        assert!(breaks(&mut vote_promises, false));
        tokio::time::sleep(HOLDS).await;
        assert!(!breaks(&mut vote_promises, false));
    }

    #[tokio::test(start_paused = true)]
    async fn only_leader_releases_its_promise() {
        let mut vote_promises = VotePromises::new(HOLDS);
        hears(&mut vote_promises);
        assert!(breaks(&mut vote_promises, true), "the candidate says so, and the leader does not");
        let refused = Response::TransferLeader(v1::TransferLeaderResponse::default());
        vote_promises.answered(NodeId(1), RequestKind::Resigns { leader: LEADER }, &refused);
        hears(&mut vote_promises);
        assert!(!breaks(&mut vote_promises, true), "what it says after that was under way");
        assert!(breaks(&mut vote_promises, false), "another election is not the one that it asked for");
    }
}
