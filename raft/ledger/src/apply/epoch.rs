//! Epochs (P13), incarnations of nodes (P10), their removal (P22), and the ledger time at which an epoch begins (P18).

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::{EpochStart, NodeShare, NodeUp, RaiseLevel};
use crate::effect::Effect;
use crate::model::{
    CommandOutcome, CommandRefusal, CrashHistory, Epoch, EpochState, Impossible, Ledger, LimitedQuantity, Node, NodeId,
    RelayShare, RemovedNode, SoleClock, Time, VoterClock,
};

/// Maximum difference between two clocks that agree, in milliseconds (P18).
pub const AGREEMENT_MS: i64 = 2_000;

/// Returns the lower of the closest two readings, if they agree (P18). A single voter always agrees. Only the first
/// reading of each node counts, so that a node cannot agree with itself.
pub fn agreed_time(voters: u32, readings: &[VoterClock]) -> Option<Time> {
    let mut nodes = BTreeSet::new();
    let firsts = readings.iter().filter(|reading| nodes.insert(reading.node));
    let mut walls: Vec<Time> = firsts.map(|reading| reading.wall).collect();
    walls.sort();
    if voters == 1 {
        return walls.first().copied();
    }
    let closest = walls.windows(2).min_by_key(|pair| pair[1].since_ms(pair[0]))?;
    (closest[1].since_ms(closest[0]) <= AGREEMENT_MS).then_some(closest[0])
}

impl SoleClock {
    /// Returns the clock of a single voter; `None` with more voters, or if its machine's uptime is unknown.
    fn of(start: &EpochStart) -> Option<SoleClock> {
        let reading = start.readings.first().copied().filter(|_| start.voters == 1)?;
        Some(SoleClock { reading, machine: start.machine? })
    }

    /// How far the wall clock was moved since, compared with the machine's uptime. Milliseconds. `None` if it is
    /// another machine, or the machine was restarted.
    fn moved_ms(&self, now: &SoleClock) -> Option<i64> {
        let ran_ms = now.machine.boot_ms.checked_sub(self.machine.boot_ms)?;
        let same = self.reading.node == now.reading.node && self.machine.boot == now.machine.boot;
        let passed_ms = now.reading.wall.since_ms(self.reading.wall);
        same.then(|| passed_ms.saturating_sub(i64::try_from(ran_ms).unwrap_or(i64::MAX)))
    }
}

impl Ledger {
    /// How far the only voter's clock was moved since the last epoch that accepted it, compared with the machine's
    /// uptime (P18). Milliseconds; 0 if several nodes vote, or if it is unknown.
    pub fn moved_ms(&self, start: &EpochStart) -> i64 {
        SoleClock::of(start).and_then(|now| self.head.sole_clock?.moved_ms(&now)).unwrap_or(0)
    }

    /// Returns the time on which the clocks at the start of an epoch agree (P18).
    ///
    /// # Errors
    /// Fails with a text for users if the clocks disagree, or the only voter's clock was moved too far.
    pub fn agreed_by(&self, start: &EpochStart) -> Result<Time, String> {
        let agreed =
            agreed_time(start.voters, &start.readings).ok_or_else(|| CommandRefusal::ClocksDisagree.to_string())?;
        let moved_ms = self.moved_ms(start);
        if start.accept_clock || moved_ms.unsigned_abs() <= self.limits().clock_step_ms_max {
            return Ok(agreed);
        }
        Err(format!(
            "the clock of the only voter was moved by {} min against the time that its machine has run: nothing \
             fires; set it right (chrony, ntpd), or if it is right now, start once with --accept-clock",
            moved_ms / 60_000
        ))
    }

    pub(super) fn epoch_start(
        &mut self,
        context: &mut Context,
        start: &EpochStart,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let epoch = Epoch(context.index);
        let agreed = self.agreed_by(start);
        let wall = agreed.as_ref().ok().map(|wall| wall.plus_ms(self.head.offset_ms()));
        let base = wall.unwrap_or(self.head.now).max(self.head.now);
        let clocks_agree = agreed.is_ok();
        self.mark_missed_by_leap(self.head.now, base);
        self.head.now = base;
        self.head.epoch = Some(EpochState { epoch, leader: start.leader, base, clocks_agree });
        context.now = base;
        match agreed {
            Ok(_) => self.head.sole_clock = SoleClock::of(start),
            Err(cause) => context.alarm(cause),
        }
        Ok(CommandOutcome::EpochStarted { epoch, base, clocks_agree })
    }

    pub(super) fn node_up(&mut self, context: &mut Context, up: &NodeUp) -> Result<CommandOutcome, CommandRefusal> {
        let ledger = self.head.level;
        refuse_if(self.removed_nodes.contains(&up.owner.node), Impossible::NodeRemoved(up.owner.node))?;
        refuse_if(up.level < ledger, Impossible::LevelTooLow { ledger, node: up.level })?;
        let requested = up.owner.incarnation;
        if let Some(node) = self.nodes.get(&up.owner.node) {
            if node.incarnation == requested && node.process_nonce == up.process_nonce {
                context.repeats = Some(node.up_index);
                return Ok(CommandOutcome::Done);
            }
            refuse_if(
                requested <= node.incarnation,
                CommandRefusal::OldIncarnation { requested, known: node.incarnation },
            )?;
        }
        let known = self.nodes.get(&up.owner.node);
        let revoked_index = known.map_or(0, |node| node.revoked_index);
        let (drains, share) = known.map(|node| (node.drains, node.share)).unwrap_or_default();
        let crashes = self.crashes_before(context, up.owner.node);
        let node = Node {
            name: up.name.clone(),
            incarnation: requested,
            up_index: context.index,
            level: up.level,
            process_nonce: up.process_nonce,
            revoked_index,
            crashes,
            has_revoked_claims: false,
            drains,
            share,
            #[cfg(feature = "next-level")]
            up_at: (ledger >= crate::storage::level::KNOWN).then_some(context.now),
        };
        self.nodes.put(up.owner.node, node);
        Ok(CommandOutcome::Done)
    }

    /// Marks a node that gets no more claims, or takes the mark back (P22).
    pub(super) fn node_drain(&mut self, node: NodeId, drains: bool) -> Result<CommandOutcome, CommandRefusal> {
        refuse_if(self.removed_nodes.contains(&node), Impossible::NodeRemoved(node))?;
        self.nodes.edit(&node).ok_or(Impossible::NodeUnknown(node))?.drains = drains;
        Ok(CommandOutcome::Done)
    }

    /// Reserves a share of each relay's rate for a node, or opens the reserved one (P25). A lease that is granted after
    /// the reservation is valid only for states that have it (`forbidden_index`). So the leader knows when all other
    /// nodes use their smaller shares, and then opens this one. A single node needs no reservation.
    pub(super) fn node_share(
        &mut self,
        context: &mut Context,
        share: &NodeShare,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let is_alone = !self.nodes.iter().any(|(id, node)| *id != share.node && node.share != RelayShare::None);
        let node = self.nodes.edit(&share.node).ok_or(Impossible::NodeUnknown(share.node))?;
        node.share = match (node.share, share.opens) {
            (RelayShare::None, false) if !is_alone => {
                self.head.forbidden_index = context.index;
                RelayShare::Reserved(context.index)
            }
            (RelayShare::None, false) | (RelayShare::Reserved(_), true) => RelayShare::Open,
            (known, _) => known,
        };
        context.emit(Effect::RelaysChanged);
        Ok(CommandOutcome::Done)
    }

    /// Removes a node (P22). Nothing may be claimed for it: then it passes no gate, no barrier needs its answer (P15),
    /// and no claim can be granted between the last check and this entry. Its share of the relays' rates goes to the
    /// others (P25).
    pub(super) fn node_remove(
        &mut self,
        context: &mut Context,
        node: NodeId,
    ) -> Result<CommandOutcome, CommandRefusal> {
        if let Some(removed) = self.removed_nodes.get(&node) {
            context.repeats = Some(removed.index);
            return Ok(CommandOutcome::Done);
        }
        let claimed = self.claimed_by(node);
        refuse_if(claimed > 0, Impossible::NodeHasClaims { node, claimed })?;
        bounded(LimitedQuantity::RemovedNodes, self.removed_nodes.len() + 1, self.limits().removed_nodes_max)?;
        let name = self.nodes.remove(&node).map(|node| node.name).unwrap_or_default();
        self.removed_nodes.put(node, RemovedNode { name, index: context.index, at: context.now });
        context.emit(Effect::RelaysChanged);
        Ok(CommandOutcome::Done)
    }

    /// Number of recipients that are claimed for a node, by any of its incarnations. Reads all open claims.
    pub fn claimed_by(&self, node: NodeId) -> u32 {
        let own = self.claims.iter().filter(|(_, claim)| claim.owner.node == node);
        own.map(|(_, claim)| claim.claimed.len()).sum()
    }

    /// Returns the announced level of each known node and each voter; 0 if a node never came up (P23).
    pub fn announced_levels(&self, voters: &[NodeId]) -> BTreeMap<NodeId, u32> {
        let known = self.nodes.iter().map(|(id, node)| (*id, node.level));
        let voters = voters.iter().filter(|id| !self.removed_nodes.contains(id));
        voters.map(|id| (*id, 0)).chain(known).collect()
    }

    /// The level rises only if each voter and each known node has announced that it can apply it (P23).
    pub(super) fn check_raise_level(&self, raise: &RaiseLevel) -> Result<(), CommandRefusal> {
        let (requested, ledger) = (raise.level, self.head.level);
        refuse_if(requested < ledger, Impossible::LevelRaised { requested, ledger })?;
        match self.announced_levels(&raise.voters).into_iter().find(|(_, announced)| *announced < requested) {
            Some((node, announced)) => Err(Impossible::LevelNotAnnounced { requested, node, announced }.into()),
            None => Ok(()),
        }
    }

    pub(super) fn raise_level(&mut self, raise: &RaiseLevel) -> CommandOutcome {
        self.head.level = raise.level;
        self.forget_blocks();
        CommandOutcome::Done
    }

    /// Returns the crash history of a node of which a new incarnation comes up (P12). The former one crashed if it left
    /// recipients claimed, or if its claims were revoked and it never claimed again.
    fn crashes_before(&self, context: &mut Context, id: NodeId) -> CrashHistory {
        let Some(node) = self.nodes.get(&id) else { return CrashHistory::default() };
        let former = node.owner(id);
        let mut crashes = node.crashes.clone();
        if node.has_revoked_claims
            || self.claims.iter().any(|(_, claim)| claim.owner == former && !claim.claimed.is_empty())
        {
            let kept = self.limits().crashes_kept;
            crashes.record(context.now, kept);
            if let Some(until) = crashes.backoff_until(self.limits()) {
                context.alarm(format!(
                    "node {} crashed {kept} times within ten minutes while it held claims: it gets none before {until}",
                    node.name
                ));
            }
        }
        crashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(walls: &[i64]) -> Vec<VoterClock> {
        walls
            .iter()
            .enumerate()
            .map(|(node, wall)| VoterClock { node: NodeId(node as u64), wall: Time(*wall) })
            .collect()
    }

    #[test]
    fn two_clocks_must_agree_and_the_lower_counts() {
        assert_eq!(agreed_time(3, &readings(&[10_000, 11_500])), Some(Time(10_000)));
        assert_eq!(agreed_time(3, &readings(&[10_000, 12_001])), None);
        assert_eq!(agreed_time(3, &readings(&[10_000])), None, "one of three is not enough");
        assert_eq!(agreed_time(1, &readings(&[10_000])), Some(Time(10_000)));
        let twice = [VoterClock { node: NodeId(1), wall: Time(10_000) }; 2];
        assert_eq!(agreed_time(3, &twice), None, "a node does not agree with itself");
        let a_day = 86_400_000;
        assert_eq!(agreed_time(3, &readings(&[a_day, 10_000, 10_500])), Some(Time(10_000)), "the liar is outvoted");
    }
}
