//! Decides if this node may vote and if it may campaign.
//!
//! A node whose log lost its tail may have forgotten a vote or an entry. It neither votes nor campaigns until it holds
//! every entry that a leader knows to be committed. Exception: if no leader appears within a minute, the node votes
//! again, since a cluster of such nodes must recover. The minute goes on after a restart. `peer/dispatch.rs` checks this
//! before each vote; a task here sets openraft's switch for elections.
//!
//! A leader that hands over because it could not do its work pauses its candidacy (P13). The pause ends early when no
//! leader is heard for [`PAUSED_WITHOUT_LEADER`]: the other voters may lack entries that only this node has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wal::WalHealth;

/// Time that a node that lost its log's tail waits for a leader before it votes anyway.
const WITHOUT_LEADER: Duration = Duration::from_secs(60);
/// Time that a paused node waits for a leader before it campaigns anyway. An election of the other voters takes up to
/// 3 s on a busy machine (99th percentile of an hour of kills), and a majority must have a leader within 10 s (I17).
const PAUSED_WITHOUT_LEADER: Duration = Duration::from_secs(5);
/// Interval in which the log records how long the node has waited.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// Interval in which the deadlines are checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

struct State {
    /// `None`: the log has its tail or has caught up.
    missing_tail: Option<MissingTail>,
    paused: Option<CandidacyPause>,
}

struct MissingTail {
    /// Time of the last append from a leader, or of the start, less the time that former processes waited.
    since: Instant,
    /// Time of waiting that the log has recorded.
    recorded: Duration,
}

struct CandidacyPause {
    /// The node does not campaign before this time.
    until: Instant,
    /// Time when a leader was last heard, or when the pause began.
    heard: Instant,
}

impl CandidacyPause {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now || now.duration_since(self.heard) >= PAUSED_WITHOUT_LEADER
    }
}

/// Shared by the handler of peer requests and the task that sets openraft's switch. Clones share one state.
#[derive(Clone)]
pub(crate) struct Eligibility {
    state: Arc<Mutex<State>>,
    log: WalHealth,
    /// Time that a node that lost its log's tail waits for a leader before it votes anyway.
    patience: Duration,
}

impl Eligibility {
    /// `waited` has a value if the log lost its tail and has not caught up since: the time for which former processes
    /// have waited for a leader.
    pub fn new(waited: Option<Duration>, log: WalHealth) -> Eligibility {
        let now = Instant::now();
        let missing_tail = waited.map(|recorded| {
            tracing::warn!(
                ?recorded,
                "the log lost its tail: this node neither votes nor campaigns until it has caught up"
            );
            MissingTail { since: now.checked_sub(recorded).unwrap_or(now), recorded }
        });
        let state = Arc::new(Mutex::new(State { missing_tail, paused: None }));
        Eligibility { state, log, patience: WITHOUT_LEADER }
    }

    /// True if this node may vote.
    pub fn may_vote(&self) -> bool {
        self.state.lock().missing_tail.is_none()
    }

    /// Stops campaigning for `duration`, or until no leader was heard for [`PAUSED_WITHOUT_LEADER`].
    pub fn pause_candidacy(&self, duration: Duration) {
        let now = Instant::now();
        self.state.lock().paused = now.checked_add(duration).map(|until| CandidacyPause { until, heard: now });
    }

    /// Records an append from a leader. This node's log equals the leader's up to `matched`, and the leader knows the
    /// entries up to `committed` to be committed.
    pub fn record_append(&self, matched: u64, committed: u64) {
        let mut state = self.state.lock();
        if let Some(pause) = &mut state.paused {
            pause.heard = Instant::now();
        }
        let Some(missing_tail) = &mut state.missing_tail else { return };
        if matched >= committed && committed > 0 {
            state.missing_tail = None;
            drop(state);
            self.restore_votes("this node has caught up");
            return;
        }
        missing_tail.since = Instant::now();
        if !std::mem::take(&mut missing_tail.recorded).is_zero() {
            drop(state);
            self.record_wait(Duration::ZERO);
        }
    }

    /// Records that this node is the only voter: no other node has entries that it must catch up with.
    pub fn set_only_voter(&self) {
        if self.state.lock().missing_tail.take().is_some() {
            self.restore_votes("this node is the only voter");
        }
    }

    fn restore_votes(&self, because: &str) {
        tracing::info!("this node votes and campaigns again: {because}");
        if let Err(error) = self.log.caught_up() {
            // The mark of the lost tail stays on disk. The next start waits for a leader again, which only costs time.
            tracing::warn!(%error, "the mark of the lost tail could not be removed");
        }
    }

    fn record_wait(&self, waited: Duration) {
        if let Err(error) = self.log.record_wait(waited) {
            tracing::warn!(%error, "the time without a leader could not be recorded: after a restart it begins anew");
        }
    }

    /// True if this node may campaign.
    pub fn may_campaign(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.paused.take_if(|pause| pause.is_over(now));
        let is_over = |missing_tail: &mut MissingTail| now.duration_since(missing_tail.since) >= self.patience;
        let waited_enough = state.missing_tail.take_if(is_over).is_some();
        let to_record = state.missing_tail.as_mut().and_then(|missing_tail| {
            let waited = now.duration_since(missing_tail.since);
            let is_due = waited.saturating_sub(missing_tail.recorded) >= RECORD_EVERY;
            is_due.then(|| missing_tail.recorded = waited)?;
            Some(waited)
        });
        let may_campaign = state.missing_tail.is_none() && state.paused.is_none();
        drop(state);
        if waited_enough {
            self.restore_votes("no leader appeared for long enough");
        }
        if let Some(waited) = to_record {
            self.record_wait(waited);
        }
        may_campaign
    }

    /// Sets openraft's switch for elections whenever [`Eligibility::may_campaign`] changes, until `stop`.
    pub async fn run(self, set_switch: impl Fn(bool) + Send, stop: CancellationToken) {
        let mut set = None;
        while !stop.is_cancelled() {
            let may_campaign = self.may_campaign();
            if set.replace(may_campaign) != Some(may_campaign) {
                set_switch(may_campaign);
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openraft_traits::log_storage::LogStore;
    use crate::wal::{Execution, MemoryDisk, OpeningReport, WalOptions};

    fn eligibility(cut: bool, patience: Duration) -> Eligibility {
        let (_, report, log) = open(&MemoryDisk::new());
        Eligibility { patience, ..Eligibility::new(cut.then_some(report.waited), log) }
    }

    fn open(disk: &MemoryDisk) -> (LogStore, OpeningReport, WalHealth) {
        let options = WalOptions { execution: Execution::Inline, ..WalOptions::new(1) };
        let (log, report) = LogStore::open_on(Arc::new(disk.clone()), &options).expect("a log");
        let health = log.health();
        (log, report, health)
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn whole_log_votes_at_once() {
        let eligibility = eligibility(false, LONG);
        assert!(eligibility.may_vote() && eligibility.may_campaign());
    }

    #[test]
    fn torn_log_votes_when_it_has_caught_up() {
        let eligibility = eligibility(true, LONG);
        assert!(!eligibility.may_vote() && !eligibility.may_campaign());
        eligibility.record_append(7, 8);
        assert!(!eligibility.may_vote(), "one entry is missing");
        eligibility.record_append(8, 8);
        assert!(eligibility.may_vote() && eligibility.may_campaign());
    }

    #[test]
    fn torn_log_votes_when_no_leader_appears() {
        let eligibility = eligibility(true, Duration::ZERO);
        assert!(!eligibility.may_vote());
        assert!(eligibility.may_campaign() && eligibility.may_vote());
    }

    #[test]
    fn wait_for_leader_goes_on_after_restart_until_a_leader_is_heard() {
        let segment = MemoryDisk::new();
        drop(open(&segment));
        let mut files = segment.files();
        files.values_mut().for_each(|bytes| bytes.extend([7; 3]));
        let disk = MemoryDisk::with(files);
        let start = |former_waited: u64| {
            let (log, report, health) = open(&disk);
            assert_eq!((report.tail_truncated, report.waited), (true, Duration::from_secs(former_waited)));
            (log, Eligibility::new(Some(report.waited), health))
        };
        let waits = |eligibility: &Eligibility, seconds: u64| {
            let mut state = eligibility.state.lock();
            let missing_tail = state.missing_tail.as_mut().expect("a missing tail");
            missing_tail.since = missing_tail.since.checked_sub(Duration::from_secs(seconds)).expect("a time");
        };
        let (log, first) = start(0);
        waits(&first, 40);
        assert!(!first.may_campaign());
        drop((log, first));
        let (log, second) = start(40);
        second.record_append(1, 2);
        drop((log, second));
        let (log, third) = start(0);
        waits(&third, 59);
        assert!(!third.may_campaign() && !third.may_vote());
        drop((log, third));
        let (_log, fourth) = start(59);
        waits(&fourth, 1);
        assert!(fourth.may_campaign() && fourth.may_vote());
        assert!(!open(&disk).1.tail_truncated, "the mark is gone");
    }

    #[test]
    fn paused_node_votes_and_does_not_campaign() {
        let eligibility = eligibility(false, LONG);
        eligibility.pause_candidacy(LONG);
        assert!(eligibility.may_vote() && !eligibility.may_campaign());
        eligibility.pause_candidacy(Duration::ZERO);
        assert!(eligibility.may_campaign());
    }

    #[test]
    fn pause_without_leader_ends_in_time_for_an_election_within_ten_seconds() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let pause = CandidacyPause { until: now + 60 * second, heard: now + 20 * second };
        assert!(!pause.is_over(now + 24 * second), "a leader was heard four seconds ago");
        assert!(pause.is_over(now + 25 * second), "an election on a busy machine takes up to five seconds more");
        let heard = CandidacyPause { until: now + 60 * second, heard: now + 59 * second };
        assert!(!heard.is_over(now + 59 * second) && heard.is_over(now + 60 * second));
    }
}
