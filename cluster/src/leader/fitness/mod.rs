//! Checks whether this leader can still do its work. A leader that lags, whose disk hangs or that grants nothing hands
//! over (P13).
//!
//! [`Fitness`] is the rule, without runtime and clock. [`run`] is an actor of the leadership that checks four times a
//! second. It must not mistake a quiet cluster for a broken leader. So it counts only work that a dispatcher must
//! claim, and a long pause between two checks resets all measurements.
//!
//! It does not measure other nodes or relays. Raft replaces a leader whose machine is starved, or that cannot reach a
//! quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::crash_backoff::{Allowance, allowances};
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{ClaimOwner, Hash, NodeId, Time};
use reveille_raft::{Hint, Hints};

use super::claims::cap::RelayCapacity;
use super::claims::claimable::{MissingFiles, offers};
use super::claims::dispatcher::{measured, relay_capacities};
use super::claims::in_flight::InFlightClaims;
use super::claims::limits::late_rate;
use super::claims::types::Offer;
use super::leadership::{Leadership, NodeReport, missing_files};
use super::transfer::{self, Unfit};
use crate::monitoring::disk_reserve::DiskSpace;
use crate::process::context::NodeContext;

/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Pause after a leader should hand over and cannot, because it votes alone. It logs this each time. After the pause
/// all measurements start again.
const RETRY_TRANSFER_AFTER: Duration = Duration::from_secs(60);
/// Pause between two checks after which all measurements start again.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Maximum time between the commit and the apply of an entry (P13).
const LAG_MAX: Duration = Duration::from_secs(2);
/// Maximum time of a write or sync of the log (P13).
const SYNC_MAX: Duration = Duration::from_secs(5);
/// Rate in emails per second at which work is claimed well within [`IDLE_MAX`]. Work with a lower rate is not expected
/// to be claimed.
const PER_SECOND_MIN: f64 = 1.0;
/// Maximum time without a grant while there is work and credit (P13).
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Observations of one check.
#[derive(Clone, Copy, Debug, Default)]
struct Observations {
    /// Log index up to which a quorum holds the log.
    committed: u64,
    /// Log index up to which this node has applied the log.
    applied: u64,
    /// Duration of the write or sync that runs now; `None` if none runs.
    sync_running_for: Option<Duration>,
    /// True if the volume of this node is full, and another voter has space.
    disk_full: bool,
    /// True if there is work and credit for it, and no node has a claim.
    could_grant: bool,
    /// True if a claim was granted since the last check, or may have been.
    granted: bool,
}

/// Measurements over several checks. Times are of a clock that stops while the machine sleeps.
#[derive(Debug, Default)]
struct Fitness {
    assessed_at: Option<Duration>,
    /// A committed index that was not applied, and since when.
    lag: Option<(u64, Duration)>,
    /// Time since which something could have been granted; `None` if nothing could.
    idle_since: Option<Duration>,
}

impl Fitness {
    /// Records one check at `now`; returns the reason why this node should not lead, if any.
    fn assess(&mut self, seen: &Observations, now: Duration) -> Option<Unfit> {
        let pause = now.saturating_sub(self.assessed_at.replace(now).unwrap_or(now));
        if pause > PAUSE_MAX {
            *self = Fitness { assessed_at: Some(now), ..Fitness::default() };
        }
        self.lag = self.lag.filter(|(index, _)| seen.applied < *index);
        if self.lag.is_none() && seen.applied < seen.committed {
            self.lag = Some((seen.committed, now));
        }
        if seen.granted || !seen.could_grant {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let lasts = |since: Duration, longest: Duration| now.saturating_sub(since) >= longest;
        if self.lag.is_some_and(|(_, since)| lasts(since, LAG_MAX)) {
            return Some(Unfit::LAGS);
        }
        if seen.sync_running_for.is_some_and(|running| running >= SYNC_MAX) {
            return Some(Unfit::DISK_HANGS);
        }
        if seen.disk_full {
            return Some(Unfit::DISK_FULL);
        }
        self.idle_since.is_some_and(|since| lasts(since, IDLE_MAX)).then_some(Unfit::GRANTS_NOTHING)
    }
}

/// Checks until the leadership ends, or until this node has tried to hand over.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut fitness = Fitness::default();
    let mut hints = context.replica.hints();
    while !leadership.ended() {
        let granted = grants_until_next_check(&leadership, &mut hints).await;
        let seen = observe(&context, &leadership, granted);
        if let Some(unfit) = fitness.assess(&seen, context.clock.monotonic()) {
            let may = |successor: NodeId| unfit != Unfit::DISK_FULL || has_space(&leadership.reports(), successor);
            if transfer::step_down(&context, unfit, may).await {
                return;
            }
            // No other node votes, so this node keeps leading.
            leadership.sleep(RETRY_TRANSFER_AFTER).await;
        }
    }
}

/// Sleeps until the next check; returns true if a claim was granted meanwhile.
async fn grants_until_next_check(leadership: &Leadership, hints: &mut Hints) -> bool {
    let mut granted = false;
    let sleep = leadership.sleep(CHECK_EVERY);
    tokio::pin!(sleep);
    loop {
        tokio::select! {
            () = &mut sleep => return granted,
            hint = hints.next() => match hint {
                // A lost hint may have been a grant.
                Some(Hint::Resync | Hint::Effect { effect: Effect::ClaimGranted { .. }, .. }) => granted = true,
                Some(Hint::Effect { .. }) => {}
                None => {
                    sleep.as_mut().await;
                    return granted;
                }
            },
        }
    }
}

fn observe(context: &NodeContext, leadership: &Leadership, granted: bool) -> Observations {
    let status = context.replica.status();
    let (now, voters) = (leadership.now(), context.voters().len());
    let nodes = LedNodes { leadership, reports: leadership.reports() };
    let other_has_space = |node: &NodeId| *node != context.me.node && has_space(&nodes.reports, *node);
    let disk_full = context.disk.space() == DiskSpace::Exhausted && context.voters().iter().any(other_has_space);
    let could_grant = |ledger: &Ledger| could_grant(ledger, &nodes, voters > 1, now);
    Observations {
        committed: status.committed_index,
        applied: status.applied_index,
        sync_running_for: context.replica.log_health().sync_running_for(),
        disk_full,
        could_grant: !granted && context.replica.read(could_grant),
        granted,
    }
}

/// Returns true if the node reported space for new work.
fn has_space(reports: &BTreeMap<NodeId, NodeReport>, node: NodeId) -> bool {
    reports.get(&node).is_some_and(|report| report.space == DiskSpace::Ample)
}

/// What a leadership knows of the nodes, beside the ledger.
trait NodeView {
    /// Returns true if claims may be granted to this process.
    fn may_claim(&self, owner: ClaimOwner) -> bool;
    /// Returns the files that a node lacks (P20).
    fn missing_files(&self, node: NodeId) -> BTreeSet<Hash>;
    /// Returns true if a relay of the pool accepts email from this process.
    fn sends(&self, ledger: &Ledger, owner: ClaimOwner, pool: &str) -> bool;
}

/// The nodes as this leadership knows them.
struct LedNodes<'a> {
    leadership: &'a Leadership,
    reports: BTreeMap<NodeId, NodeReport>,
}

impl NodeView for LedNodes<'_> {
    fn may_claim(&self, owner: ClaimOwner) -> bool {
        self.leadership.may_claim(owner)
    }

    fn missing_files(&self, node: NodeId) -> BTreeSet<Hash> {
        missing_files(&self.reports, node)
    }

    fn sends(&self, ledger: &Ledger, owner: ClaimOwner, pool: &str) -> bool {
        let relays = relay_capacities(ledger, pool, measured(&self.reports, owner), ledger.relay_shares());
        relays.iter().any(RelayCapacity::lets_through)
    }
}

/// Returns true if a dispatcher would claim something, whatever its fairness and caps. There must be credit: no node
/// has a claim. There must be a due recipient whose run sends. A node that may claim and is not in crash back-off (P12)
/// must reach a relay of its pool and have the files of its email (P20).
fn could_grant(ledger: &Ledger, nodes: &impl NodeView, several: bool, now: Time) -> bool {
    if ledger.claims().iter().any(|(_, claim)| !claim.claimed.is_empty()) {
        return false;
    }
    let takes = ledger.nodes().iter().filter(|(_, known)| known.takes_claims());
    let live = takes.filter(|(node, known)| nodes.may_claim(known.owner(**node)));
    let allowances = allowances(live.map(|(node, known)| (*node, known)), ledger.limits(), several, now);
    let pools: BTreeSet<&str> = ledger.relays().iter().map(|(_, relay)| relay.pool.as_str()).collect();
    // Computed once for each pool and node, because a run may have a thousand parts.
    let (mut missing, mut sending) = (MissingFiles::new(), BTreeSet::new());
    for (node, _) in allowances.into_iter().filter(|(_, allowance)| *allowance != Allowance::NONE) {
        let Some(owner) = ledger.nodes().get(&node).map(|known| known.owner(node)) else { continue };
        missing.insert(node, nodes.missing_files(node));
        sending.extend(pools.iter().filter(|pool| nodes.sends(ledger, owner, pool)).map(|pool| (*pool, node)));
    }
    offers(ledger, &missing, &InFlightClaims::default(), now).iter().any(|offer| {
        let pool = offer.source.pool.as_str();
        let may_get = |node: &NodeId| !offer.excluded.contains(node) && sending.contains(&(pool, *node));
        is_soon(ledger, offer, now) && missing.keys().any(may_get)
    })
}

/// Returns true if the rates and the daily cap let an offer be claimed well within [`IDLE_MAX`]. Late email has a rate
/// (P16), and a tenant may have one (P25).
fn is_soon(ledger: &Ledger, offer: &Offer, now: Time) -> bool {
    let is_often = |rate: Option<f64>| rate.is_none_or(|rate| rate >= PER_SECOND_MIN);
    let pool = &offer.source.pool;
    ledger.serves(pool)
        && (!offer.late || is_often(late_rate(ledger, pool)))
        && is_often(ledger.tenant(&offer.tenant).rate())
        && ledger.remaining_today(pool, now) != Some(0)
}

#[cfg(test)]
mod tests;
