//! A node's actors from start to stop, in the order that the protocol asks for.
//!
//! Start (P10): the replica runs, then this life is made known to the ledger, then rows of earlier lives are
//! settled from their journals, then lanes are ready, and only then the node asks for a lease and so for
//! claims. Stop: the leader hears of it and claims nothing more for this life, what has not begun goes back, what is
//! past its gate gets its answer, leadership is handed over. The journal stays: the next life settles what may still
//! be open, and deletes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::{Command, NodeUp};
use reveille_ledger::effect::Effect;
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{Hint, Role};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::context::Site;
use super::proposal::until_taken;
use super::supervisor::{Done, Kind, Supervisor};
use crate::audience;
use crate::leader::{leadership, transfer};
use crate::ops::backlog;
use crate::smtp::registry::Relays;
use crate::smtp::{CredentialStore, Dial, RelayRules};
use crate::worker::context::{JournalWriter, Room};
use crate::worker::journal::{Journal, Owner, boot_id};
use crate::worker::lease_client::Stopping;
use crate::worker::settler::Settler;
use crate::worker::{claim, lease_client, recovery};

/// How long one wait for this life's own entry takes at most, before it looks for a stop.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest that relay pools differ from the ledger.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// What a stop keeps of its time for handing over leadership.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(3);
/// How long a stop waits for its own state to show what was settled.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(2);

/// What a station needs beside its site.
pub struct Options {
    /// This node's name, for people.
    pub name: String,
    /// What it calls itself in EHLO; none: the address literal of each connection.
    pub hello_name: Option<String>,
    /// What it may log in with at relays.
    pub credentials: CredentialStore,
    /// What the answers of relays mean, where the operator knows better.
    pub reply_rules: RelayRules,
    /// Where journals are: a memory-backed file system (P11).
    pub journal_dir: PathBuf,
    /// How relays are reached.
    pub dialer: Arc<dyn Dial>,
}

/// Why a node cannot work.
#[derive(Debug, thiserror::Error)]
pub enum StationError {
    /// The ledger does not take this life.
    #[error("the cluster does not take this node: {0}")]
    NotTaken(Refusal),
    /// The journal cannot be written.
    #[error("the journal cannot be written: {0}; give another folder with --journal-dir")]
    Journal(String),
    /// It was told to stop before it had begun.
    #[error("stopped")]
    Stopped,
}

/// The actors of a node.
pub struct Station {
    /// What they share.
    pub site: Arc<Site>,
    /// The relay pools.
    pub relays: Arc<Relays>,
    supervisor: Supervisor,
    leading: Leading,
    stopping: Stopping,
}

impl Station {
    /// Starts to stand for leadership: a cluster needs a leader before anybody can be made known to it.
    /// To be called once the replica runs. It goes on that replica's runtime: what a leader does must not
    /// wait for what its lanes do.
    pub fn lead(site: &Arc<Site>) -> Leading {
        let supervisor = Supervisor::new(site.replica.runtime().clone());
        let stop = CancellationToken::new();
        let (actor_site, actor_stop) = (Arc::clone(site), stop.clone());
        supervisor.run(Kind::Leadership, stop.clone(), move || {
            let (site, stop) = (Arc::clone(&actor_site), actor_stop.clone());
            async move {
                leadership::run(site, stop).await;
                Done::Unasked
            }
        });
        Leading { supervisor, stop }
    }

    /// Makes this life known, recovers, and begins to work. Waits as long as there is no leader; `cancel`
    /// ends the waiting.
    pub async fn start(
        site: Arc<Site>,
        leading: Leading,
        options: Options,
        cancel: &CancellationToken,
    ) -> Result<Station, StationError> {
        enlist(&site, &options, cancel).await?;
        let boot = boot_id().map_err(|error| StationError::Journal(error.to_string()))?;
        recovery::settle_former_lives(&site, &options.journal_dir, &boot, cancel).await;
        let owner = Owner { cluster: site.cluster(), holder: site.me };
        let journal = Journal::create(&options.journal_dir, &owner, &boot)
            .map_err(|error| StationError::Journal(error.to_string()))?;
        let Options { name, hello_name, credentials, reply_rules, dialer, .. } = options;
        let relays = Arc::new(Relays::new(dialer, name, hello_name, credentials, reply_rules));
        site.show_relays(Arc::clone(&relays));
        let (settler, settling) = Settler::new(Arc::clone(&site));
        let stopping = Stopping::default();
        let supervisor = Supervisor::new(site.replica.runtime().clone());
        let journal = JournalWriter::new(journal, supervisor.failing());
        let room = Room::new(Arc::clone(&site), Arc::clone(&relays), journal, settler, stopping.asked.clone());
        let station = Station { site, relays, supervisor, leading, stopping };
        station.run_actors(Arc::new(room), settling);
        Ok(station)
    }

    fn run_actors(&self, room: Arc<Room>, settling: crate::worker::settler::Actor) {
        let (site, relays) = (Arc::clone(&self.site), Arc::clone(&self.relays));
        follow(&site, &relays);
        let stop = self.stopping.asked.clone();
        self.supervisor.run(Kind::RelayFollower, stop.clone(), move || {
            follow_relays(Arc::clone(&site), Arc::clone(&relays), stop.clone())
        });
        let (site, stop) = (Arc::clone(&self.site), self.stopping.asked.clone());
        self.supervisor.run(Kind::BacklogWatch, stop.clone(), move || {
            let (site, stop) = (Arc::clone(&site), stop.clone());
            async move {
                backlog::run(site, stop).await;
                Done::Unasked
            }
        });
        let (settled, mut settling) = (self.stopping.settled.clone(), Some(settling));
        self.supervisor.run(Kind::Settler, CancellationToken::new(), move || {
            let (settled, settling) = (settled.clone(), settling.take());
            async move {
                // However it ends: from here on this life has nothing that a lease would keep for it.
                let _settled = settled.drop_guard();
                match settling {
                    Some(actor) => {
                        actor.run().await;
                        Done::AsAsked
                    }
                    None => Done::Unasked,
                }
            }
        });
        let (stopping, mut room) = (self.stopping.clone(), Some(room));
        self.supervisor.run(Kind::Lanes, stopping.asked.clone(), move || {
            // The room goes with the lanes: its settler ends when the last outcome has been left there.
            let (room, stopping) = (room.take(), stopping.clone());
            async move {
                if let Some(room) = room {
                    claim::run(room, stopping).await;
                }
                Done::Unasked
            }
        });
        let (site, stop) = (Arc::clone(&self.site), self.stopping.asked.clone());
        self.supervisor.run(Kind::PartSteward, self.stopping.asked.clone(), move || {
            let (site, stop) = (Arc::clone(&site), stop.clone());
            async move {
                audience::steward::run(site, stop).await;
                Done::Unasked
            }
        });
        let (site, stopping) = (Arc::clone(&self.site), self.stopping.clone());
        self.supervisor.run(Kind::LeaseKeeper, stopping.settled.clone(), move || {
            let (site, stopping) = (Arc::clone(&site), stopping.clone());
            async move {
                lease_client::run(site, stopping).await;
                Done::Unasked
            }
        });
    }

    /// Says why the node must stop, once an actor failed that nothing can replace, or the journal.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.supervisor.failed()
    }

    /// Stops within `patience`: what has not begun goes back, what is past its gate gets its answer if it
    /// comes in time. True when nothing of this life is left open.
    ///
    /// Leadership goes last: what was learned must still get into the log. The journal stays, for the next
    /// start to settle whatever a claim under way may still leave open.
    pub async fn stop(self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let left = || deadline.saturating_duration_since(Instant::now());
        self.site.begin_stop();
        self.stopping.asked.cancel();
        let answered = self.relays.close(left().saturating_sub(HAND_OVER_WITHIN)).await;
        let settled = tokio::time::timeout(left().saturating_sub(HAND_OVER_WITHIN), self.supervisor.ended()).await;
        self.stopping.settled.cancel();
        // Outcomes are answered by the leader: what it has applied must be seen here before it is judged.
        let _ = self.site.replica.linearizable(Instant::now() + left().min(CATCH_UP_WITHIN)).await;
        hand_over(&self.site, Instant::now() + left().min(HAND_OVER_WITHIN)).await;
        self.leading.stop.cancel();
        let led = tokio::time::timeout(left().max(HAND_OVER_WITHIN), self.leading.supervisor.ended()).await;
        let me = self.site.me;
        let open = self.site.replica.read(|ledger| ledger.claims().iter().any(|(_, row)| row.owner == me));
        let clean = answered && settled.is_ok() && led.is_ok() && !open;
        if !clean {
            tracing::warn!(
                answered,
                settled = settled.is_ok(),
                open,
                "stopped with something open: the next start settles it"
            );
        }
        clean
    }
}

/// A node that stands for leadership and does nothing else yet.
pub struct Leading {
    supervisor: Supervisor,
    stop: CancellationToken,
}

/// P10: this life becomes known before it may hold a claim.
async fn enlist(site: &Site, options: &Options, cancel: &CancellationToken) -> Result<(), StationError> {
    let (level, life) = (site.replica.highest_level(), site.replica.process_nonce());
    let up = NodeUp { owner: site.me, name: options.name.clone(), level, process_nonce: life };
    let is_final = |refusal: &Refusal| matches!(refusal, Refusal::OldIncarnation { .. } | Refusal::NotPossible(_));
    let reply = until_taken(site, &Command::NodeUp(up), is_final, cancel).await;
    let reply = reply.map_err(|_| StationError::Stopped)?;
    if let CommandOutcome::Refused(refusal) = reply.outcome {
        if let Refusal::OldIncarnation { .. } = refusal {
            site.replica.mark_outdated(&refusal.to_string());
        }
        return Err(StationError::NotTaken(refusal));
    }
    wait_until_applied(site, reply.index, cancel).await
}

async fn wait_until_applied(site: &Site, index: u64, cancel: &CancellationToken) -> Result<(), StationError> {
    loop {
        let applied = site.replica.wait_applied(index, Instant::now() + PATIENCE);
        match cancel.run_until_cancelled(applied).await {
            None => return Err(StationError::Stopped),
            Some(Some(_)) => return Ok(()),
            Some(None) => {}
        }
    }
}

/// Leadership goes to another voter, so that nobody waits for an election.
async fn hand_over(site: &Site, deadline: Instant) {
    if matches!(*site.replica.role().borrow(), Role::Leader { .. }) {
        transfer::away(site, |_| true, deadline).await;
    }
}

fn follow(site: &Site, relays: &Relays) {
    let voters = site.voters().len();
    site.replica.read(|ledger| relays.follow(ledger, voters));
    relays.measure();
}

async fn follow_relays(site: Arc<Site>, relays: Arc<Relays>, stop: CancellationToken) -> Done {
    let mut hints = site.replica.effects();
    let mut seen = 0;
    while !stop.is_cancelled() {
        follow(&site, &relays);
        seen = site.replica.take_checkpoint_when_quiet(seen);
        let changed = async {
            loop {
                match hints.next().await {
                    Some(Hint::Resync | Hint::Effect { effect: Effect::RelaysChanged, .. }) | None => return,
                    Some(Hint::Effect { index, effect: Effect::Alarm(text) }) => {
                        tracing::warn!(index, "{text}");
                        metrics::counter!("reveille_alarms_total").increment(1);
                    }
                    Some(Hint::Effect { .. }) => {}
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
    Done::AsAsked
}
