//! Decides if this node may vote and if it may campaign.
//!
//! A node whose log lost its tail may have forgotten a vote or an entry. It neither votes nor campaigns until it holds
//! every entry that a leader knows to be committed. Exception: if no leader appears within a minute, the node votes
//! again, since a cluster of such nodes must recover. The minute counts the waits of all processes since the tail was
//! lost: the log's mark keeps it. Only an append from a leader restarts it. `peer/dispatch.rs` checks this before each
//! vote; a task here sets openraft's switch for elections, and writes the mark.
//!
//! A leader that hands over because it could not do its work pauses its candidacy (P13). The pause ends early when no
//! leader is heard for [`PAUSED_WITHOUT_LEADER`]: the other voters may lack entries that only this node has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::peer::log_interval::LogInterval;
use crate::wal::{Execution, WalHandle};

/// Time that a node that lost its log's tail waits for a leader before it votes anyway.
const WITHOUT_LEADER: Duration = Duration::from_secs(60);
/// Time that a paused node waits for a leader before it campaigns anyway. An election of the other voters takes up to
/// 3 s on a busy machine (99th percentile of an hour of kills), and a majority must have a leader within 10 s (I17).
const PAUSED_WITHOUT_LEADER: Duration = Duration::from_secs(5);
/// Interval in which the deadlines are checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

struct State {
    /// Time of the last append from a leader, or of the start, less the time that former processes waited. `None`: the
    /// log has its tail or has caught up.
    waits_since: Option<Instant>,
    /// Whole seconds of waiting in the log's mark. `None`: there is no mark.
    marked: Option<u64>,
    paused: Option<CandidacyPause>,
}

impl State {
    /// Returns the whole seconds of waiting. `None`: the node does not wait.
    fn waited_s(&self) -> Option<u64> {
        self.waits_since.map(|since| since.elapsed().as_secs())
    }
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
    log: WalHandle,
    /// Time that a node that lost its log's tail waits for a leader before it votes anyway.
    patience: Duration,
    failures_logged: Arc<LogInterval>,
}

impl Eligibility {
    /// `waited` has a value if the log lost its tail and has not caught up since: the time for which former processes
    /// have waited for a leader.
    pub fn new(waited: Option<Duration>, log: WalHandle) -> Eligibility {
        let now = Instant::now();
        let waits_since = waited.map(|waited| {
            tracing::warn!(
                ?waited,
                "the log lost its tail: this node neither votes nor campaigns until it has caught up, or has waited a \
                 minute without a leader"
            );
            now.checked_sub(waited).unwrap_or(now)
        });
        let marked = waited.map(|waited| waited.as_secs());
        let state = Arc::new(Mutex::new(State { waits_since, marked, paused: None }));
        Eligibility { state, log, patience: WITHOUT_LEADER, failures_logged: Arc::default() }
    }

    /// True if this node may vote.
    pub fn may_vote(&self) -> bool {
        self.state.lock().waits_since.is_none()
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
        let Some(waits_since) = &mut state.waits_since else { return };
        *waits_since = Instant::now();
        if matched >= committed && committed > 0 {
            restore_votes(&mut state, "this node has caught up");
        }
    }

    /// Records that this node is the only voter: no other node has entries that it must catch up with.
    pub fn set_only_voter(&self) {
        let mut state = self.state.lock();
        if state.waits_since.is_some() {
            restore_votes(&mut state, "this node is the only voter");
        }
    }

    /// True if this node may campaign.
    pub fn may_campaign(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.paused.take_if(|pause| pause.is_over(now));
        if state.waits_since.is_some_and(|since| now.duration_since(since) >= self.patience) {
            restore_votes(&mut state, "no leader appeared for long enough");
        }
        state.waits_since.is_none() && state.paused.is_none()
    }

    /// Returns true if the log's mark does not say what it is to say.
    fn mark_is_old(&self) -> bool {
        let state = self.state.lock();
        state.marked != state.waited_s()
    }

    /// True if a process that starts now would wait less than this one must, because a leader was heard.
    fn mark_overstates(&self) -> bool {
        let state = self.state.lock();
        state.waits_since.is_some() && state.marked > state.waited_s()
    }

    /// Waits until the next process would wait as long as this one must. The leader is answered afterwards: a process
    /// that is killed must not make its successor vote as if no leader had been heard.
    pub async fn wait_for_mark(&self) {
        while self.mark_overstates() {
            tokio::time::sleep(CHECK_EVERY / 10).await;
        }
    }

    /// Writes the seconds of waiting into the log's mark, or removes it from a node that votes again. Blocks.
    fn update_mark(&self) {
        let (waited_s, marked) = {
            let state = self.state.lock();
            (state.waited_s(), state.marked)
        };
        let written = match waited_s {
            Some(seconds) => self.log.record_wait(Duration::from_secs(seconds), Some(seconds) < marked),
            None => self.log.remove_mark(),
        };
        match written {
            Ok(()) => self.state.lock().marked = waited_s,
            // The next start takes the wait from the mark as it is.
            Err(error) if self.failures_logged.is_due() => {
                tracing::warn!(%error, "the mark of the lost tail could not be written: it is tried again");
            }
            Err(_) => {}
        }
    }

    /// Sets openraft's switch for elections whenever [`Eligibility::may_campaign`] changes, until `stop`. Only this task
    /// writes the log's mark, one write at a time: the append handler and Raft's runtime must not wait for the disk.
    pub async fn run(self, execution: Execution, set_switch: impl Fn(bool) + Send, stop: CancellationToken) {
        let mut set = None;
        while !stop.is_cancelled() {
            let may_campaign = self.may_campaign();
            if set.replace(may_campaign) != Some(may_campaign) {
                set_switch(may_campaign);
            }
            if self.mark_is_old() {
                let eligibility = self.clone();
                // An error means that the runtime ends.
                let _ = execution.blocking(move || eligibility.update_mark()).await;
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}

fn restore_votes(state: &mut State, because: &str) {
    tracing::info!("this node votes and campaigns again: {because}");
    state.waits_since = None;
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

    fn open(disk: &MemoryDisk) -> (LogStore, OpeningReport, WalHandle) {
        let options = WalOptions { execution: Execution::Inline, ..WalOptions::new(1) };
        let (log, report) = LogStore::open_on(Arc::new(disk.clone()), &options).expect("a log");
        let health = log.health();
        (log, report, health)
    }

    /// Returns a log whose last batch is half written.
    fn torn_disk() -> MemoryDisk {
        let segment = MemoryDisk::new();
        drop(open(&segment));
        let mut files = segment.files();
        files.values_mut().for_each(|bytes| bytes.extend([7; 3]));
        MemoryDisk::with(files)
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
        let disk = torn_disk();
        let start = |disk: &MemoryDisk, former_waited: u64| {
            let (log, report, health) = open(disk);
            assert_eq!((report.tail_truncated, report.waited), (true, Duration::from_secs(former_waited)));
            (log, Eligibility::new(Some(report.waited), health))
        };
        let waits = |eligibility: &Eligibility, seconds: u64| {
            let mut state = eligibility.state.lock();
            let since = state.waits_since.as_mut().expect("a missing tail");
            *since = since.checked_sub(Duration::from_secs(seconds)).expect("a time");
        };
        let (_log, first) = start(&disk, 0);
        waits(&first, 40);
        assert!(!first.may_campaign() && first.mark_is_old());
        first.update_mark();
        let disk = MemoryDisk::with(disk.files());
        let (_log, second) = start(&disk, 40);
        assert!(!second.mark_overstates());
        second.record_append(1, 2);
        assert!(second.mark_overstates(), "the leader is not answered yet");
        second.update_mark();
        assert!(!second.mark_overstates());
        (0..20).for_each(|seed| drop(start(&disk.crash(seed), 0)));
        let (_log, third) = start(&disk, 0);
        waits(&third, 59);
        assert!(!third.may_campaign() && !third.may_vote());
        third.update_mark();
        let (_log, fourth) = start(&disk, 59);
        waits(&fourth, 1);
        assert!(fourth.may_campaign() && fourth.may_vote());
        fourth.update_mark();
        assert!(!open(&disk).1.tail_truncated, "the mark is gone");
    }

    #[test]
    fn failed_write_of_mark_is_repeated() {
        let disk = torn_disk();
        let (_log, report, health) = open(&disk);
        let eligibility = Eligibility::new(Some(report.waited), health);
        eligibility.record_append(8, 8);
        assert!(eligibility.may_vote() && eligibility.mark_is_old());
        disk.fail_syncs(std::io::ErrorKind::Other);
        eligibility.update_mark();
        assert!(eligibility.mark_is_old());
        disk.heal();
        eligibility.update_mark();
        assert!(!eligibility.mark_is_old());
        (0..20)
            .for_each(|seed| assert!(!open(&disk.crash(seed)).1.tail_truncated, "a power cut does not bring it back"));
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
