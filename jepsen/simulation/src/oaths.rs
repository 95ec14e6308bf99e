//! What followers promise: whoever has heard a leader gives nobody else its vote for as long as an election takes at
//! most, whether or not its process lives on. Nothing of it is in a history, and only a simulation sees every message,
//! so this is looked at here.

use std::collections::BTreeMap;

use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_raft::peer::{Request, Response};
use tokio::time::{Duration, Instant};

/// What was promised to whom, and when.
#[derive(Debug)]
pub struct Oaths {
    holds: Duration,
    given: BTreeMap<NodeId, (u64, Instant)>,
    broken: Vec<String>,
}

/// What of a request matters here.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// A leader shows itself.
    Append { leader: u64 },
    /// Somebody asks for a vote that counts.
    Vote { candidate: u64 },
    /// A leader resigns: it gives back what it was promised.
    Resigns,
}

impl Asked {
    /// None of requests that promise nothing.
    pub fn of(request: &Request) -> Option<Asked> {
        match request {
            Request::Append(append) => Some(Asked::Append { leader: append.vote.as_ref()?.node }),
            Request::Vote(vote) => Some(Asked::Vote { candidate: vote.vote.as_ref()?.node }),
            Request::TransferLeader(_) => Some(Asked::Resigns),
            _ => None,
        }
    }
}

/// Did it take the one who asked for its leader?
fn is_heard(answer: &v1::AppendResponse) -> bool {
    !matches!(answer.outcome, Some(v1::append_response::Outcome::HigherVote(_)) | None)
}

impl Oaths {
    /// Nothing promised yet; a promise holds so long.
    pub fn new(holds: Duration) -> Oaths {
        Oaths { holds, given: BTreeMap::new(), broken: Vec::new() }
    }

    /// A node has answered.
    pub fn answered(&mut self, by: NodeId, asked: Asked, response: &Response) {
        match (asked, response) {
            (Asked::Append { leader }, Response::Append(answer)) if is_heard(answer) => {
                self.given.insert(by, (leader, Instant::now()));
            }
            (Asked::Vote { candidate }, Response::Vote(answer)) if answer.granted => {
                if let Some((leader, at)) = self.given.get(&by).filter(|(leader, _)| *leader != candidate) {
                    let passed = at.elapsed();
                    if passed < self.holds {
                        let node = by.0;
                        self.broken.push(format!(
                            "n{node} heard n{leader} lead and gave n{candidate} its vote {:.3} s later; it owes {:.3} s",
                            passed.as_secs_f64(),
                            self.holds.as_secs_f64()
                        ));
                    }
                }
            }
            (Asked::Resigns, _) => self.given.clear(),
            _ => {}
        }
    }

    /// Another rule of leaderships was broken.
    #[cfg(feature = "planted-bugs")]
    pub fn note(&mut self, what: String) {
        self.broken.push(what);
    }

    /// Promises that were broken since the last call.
    pub fn broken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.broken)
    }
}
