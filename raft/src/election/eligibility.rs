//! Whether this node may take part in elections.
//!
//! A node whose log lost its tail may have forgotten a vote or an entry that others count on. Until it
//! holds again everything that a leader knows to be committed it neither gives nor asks for a vote, unless
//! no leader appears within a minute: then a cluster of such nodes must be able to go on. Giving is
//! stopped in the `dispatch` of peer requests, asking by openraft's switch for elections.
//!
//! The switch serves a second purpose: a leader that handed over because it could not do its work rests: it
//! does not stand again for a while (P13). Better such a leader than none: where no other node is heard to lead
//! within [`PAUSED_WITHOUT_LEADER`], the rest is over. The other voters may be unable to lead: they lack entries
//! that only the node that rests still has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wal::WalHealth;

/// How long a node that lost its log's tail waits for a leader before it votes all the same.
const WITHOUT_LEADER: Duration = Duration::from_secs(60);
/// How long a node that rests waits for a leader before it stands all the same. Other voters need 3 s on a busy
/// machine (the 99th percentile of an hour of kills), and a majority must have a leader within 10 s (I17).
const PAUSED_WITHOUT_LEADER: Duration = Duration::from_secs(5);
/// How often the deadlines are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

struct State {
    /// Since when no leader was heard, while the log's tail is missing.
    missing_since: Option<Instant>,
    paused: Option<CandidacyPause>,
}

struct CandidacyPause {
    /// Does not stand for election before this.
    until: Instant,
    /// When a leader was last heard, or the rest began.
    heard: Instant,
}

impl CandidacyPause {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now || now.duration_since(self.heard) >= PAUSED_WITHOUT_LEADER
    }
}

/// Shared by whoever receives votes, whoever receives entries, and the task that throws the switch.
#[derive(Clone)]
pub(crate) struct Eligibility {
    state: Arc<Mutex<State>>,
    log: WalHealth,
    /// How long it waits for a leader.
    patience: Duration,
}

impl Eligibility {
    /// `cut`: the log lost its tail and has not caught up since.
    pub fn new(cut: bool, log: WalHealth) -> Eligibility {
        Eligibility::of(cut, log, WITHOUT_LEADER)
    }

    fn of(cut: bool, log: WalHealth, patience: Duration) -> Eligibility {
        if cut {
            tracing::warn!("the log lost its tail: no vote is given or asked for until this node has caught up");
        }
        let missing_since = cut.then(Instant::now);
        Eligibility { state: Arc::new(Mutex::new(State { missing_since, paused: None })), log, patience }
    }

    /// May this node give a vote?
    pub fn may_vote(&self) -> bool {
        self.state.lock().missing_since.is_none()
    }

    /// Does not stand for election for this long, as long as somebody leads.
    pub fn pause_candidacy(&self, duration: Duration) {
        let now = Instant::now();
        self.state.lock().paused = now.checked_add(duration).map(|until| CandidacyPause { until, heard: now });
    }

    /// A leader's entries were taken: up to `matched` this node's log is the leader's, who knows `committed`
    /// to be committed.
    pub fn record_append(&self, matched: u64, committed: u64) {
        let mut state = self.state.lock();
        if let Some(rest) = &mut state.paused {
            rest.heard = Instant::now();
        }
        if state.missing_since.is_none() {
            return;
        }
        if matched >= committed && committed > 0 {
            state.missing_since = None;
            drop(state);
            self.whole("this node has caught up");
        } else {
            state.missing_since = Some(Instant::now());
        }
    }

    /// This node alone votes in its cluster: there is nobody to catch up with.
    pub fn set_only_voter(&self) {
        if self.state.lock().missing_since.take().is_some() {
            self.whole("this node is the only voter");
        }
    }

    fn whole(&self, because: &str) {
        tracing::info!("votes are given and asked for again: {because}");
        if let Err(error) = self.log.caught_up() {
            // The mark stays: the next start waits again, which costs time and breaks nothing.
            tracing::warn!(%error, "the mark of the lost tail could not be removed");
        }
    }

    /// May this node ask for votes?
    pub fn may_campaign(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.paused.take_if(|rest| rest.is_over(now));
        let waited = state.missing_since.is_some_and(|since| now.duration_since(since) >= self.patience);
        if waited {
            state.missing_since = None;
        }
        let may_campaign = state.missing_since.is_none() && state.paused.is_none();
        drop(state);
        if waited {
            self.whole("no leader appeared for long enough");
        }
        may_campaign
    }

    /// Throws openraft's switch whenever the answer changes, until `stop`.
    pub async fn keep(self, throw: impl Fn(bool) + Send, stop: CancellationToken) {
        let mut thrown = None;
        while !stop.is_cancelled() {
            let may_campaign = self.may_campaign();
            if thrown.replace(may_campaign) != Some(may_campaign) {
                throw(may_campaign);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openraft_traits::log_storage::LogStore;
    use crate::wal::{Execution, MemoryDisk, WalOptions};

    fn eligibility(cut: bool, patience: Duration) -> Eligibility {
        let options = WalOptions { execution: Execution::Inline, ..WalOptions::new(1) };
        let (log, _) = LogStore::open_on(Arc::new(MemoryDisk::new()), &options).expect("a new log");
        Eligibility::of(cut, log.health(), patience)
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_whole_log_votes_at_once() {
        let eligibility = eligibility(false, LONG);
        assert!(eligibility.may_vote() && eligibility.may_campaign());
    }

    #[test]
    fn a_torn_log_votes_when_it_holds_what_the_leader_knows_to_be_committed() {
        let eligibility = eligibility(true, LONG);
        assert!(!eligibility.may_vote() && !eligibility.may_campaign());
        eligibility.record_append(7, 8);
        assert!(!eligibility.may_vote(), "one entry is missing");
        eligibility.record_append(8, 8);
        assert!(eligibility.may_vote() && eligibility.may_campaign());
    }

    #[test]
    fn a_torn_log_votes_when_no_leader_appears() {
        let eligibility = eligibility(true, Duration::ZERO);
        assert!(!eligibility.may_vote());
        assert!(eligibility.may_campaign() && eligibility.may_vote());
    }

    #[test]
    fn a_node_that_rests_votes_but_does_not_stand() {
        let eligibility = eligibility(false, LONG);
        eligibility.pause_candidacy(LONG);
        assert!(eligibility.may_vote() && !eligibility.may_campaign());
        eligibility.pause_candidacy(Duration::ZERO);
        assert!(eligibility.may_campaign());
    }

    #[test]
    fn rest_without_another_leader_ends_early_enough_for_an_election_within_ten_seconds() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let rest = CandidacyPause { until: now + 60 * second, heard: now + 20 * second };
        assert!(!rest.is_over(now + 24 * second), "a leader was heard four seconds ago");
        assert!(rest.is_over(now + 25 * second), "an election on a busy machine takes up to five seconds more");
        let heard = CandidacyPause { until: now + 60 * second, heard: now + 59 * second };
        assert!(!heard.is_over(now + 59 * second) && heard.is_over(now + 60 * second));
    }
}
