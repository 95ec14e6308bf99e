//! Epochs (P13), lives of nodes (P10), and where an epoch's time begins (P18).

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use crate::command::{EpochStart, NodeUp, RaiseLevel, Reading};
use crate::deaths::Deaths;
use crate::effect::Effect;
use crate::ids::{Epoch, Holder, NodeId, Time};
use crate::impossible::Impossible;
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{EpochState, Ledger, Node, SoleClock};

/// Two clocks agree when they differ by at most this. Milliseconds (P18).
pub const AGREEMENT_MS: i64 = 2_000;

/// The lower of the closest pair of readings, if that pair agrees (P18). A single voter agrees with
/// itself; of a node that reads twice only the first reading counts, so that none agrees with itself
/// otherwise.
pub fn agreed_time(voters: u32, readings: &[Reading]) -> Option<Time> {
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
    /// The clock of a single voter that says how long its machine has run.
    fn of(start: &EpochStart) -> Option<SoleClock> {
        let reading = start.readings.first().copied().filter(|_| start.voters == 1)?;
        Some(SoleClock { reading, machine: start.machine? })
    }

    /// By how much the wall clock was moved since, against the time that the machine has run. Milliseconds.
    /// `None`: it is another machine, or another life of it.
    fn moved_ms(&self, now: &SoleClock) -> Option<i64> {
        let ran_ms = now.machine.boot_ms.checked_sub(self.machine.boot_ms)?;
        let same = self.reading.node == now.reading.node && self.machine.boot == now.machine.boot;
        let passed_ms = now.reading.wall.since_ms(self.reading.wall);
        same.then(|| passed_ms.saturating_sub(i64::try_from(ran_ms).unwrap_or(i64::MAX)))
    }
}

impl Ledger {
    /// P18: by how much the only voter's clock was moved since the last epoch that it agreed with, against the
    /// time that its machine has run. Milliseconds; zero where several vote, or where nobody can say.
    pub fn moved_ms(&self, start: &EpochStart) -> i64 {
        SoleClock::of(start).and_then(|now| self.head.sole_clock?.moved_ms(&now)).unwrap_or(0)
    }

    /// P18: what the clocks at the start of an epoch agree on; or what is wrong with them, for people.
    pub fn agreed_by(&self, start: &EpochStart) -> Result<Time, String> {
        let agreed = agreed_time(start.voters, &start.readings).ok_or_else(|| Refusal::ClocksDisagree.to_string())?;
        let moved_ms = self.moved_ms(start);
        if start.accept_clock || moved_ms.unsigned_abs() <= self.limits().clock_step_ms {
            return Ok(agreed);
        }
        Err(format!(
            "the clock of the only voter was moved by {} min against the time that its machine has run: nothing \
             fires; set it right (chrony, ntpd), or if it is right now, start once with --accept-clock",
            moved_ms / 60_000
        ))
    }

    pub(super) fn epoch_start(&mut self, context: &mut Context, start: &EpochStart) -> Result<Outcome, Refusal> {
        let epoch = Epoch(context.index);
        let agreed = self.agreed_by(start);
        let wall = agreed.as_ref().ok().map(|wall| wall.plus_ms(self.head.offset_ms()));
        let base = wall.unwrap_or(self.head.now).max(self.head.now);
        let clocks_agree = agreed.is_ok();
        self.note_leap(self.head.now, base);
        self.head.now = base;
        self.head.epoch = Some(EpochState { epoch, leader: start.leader, base, clocks_agree });
        context.now = base;
        context.emit(Effect::EpochBegan { epoch, leader: start.leader });
        match agreed {
            Ok(_) => self.head.sole_clock = SoleClock::of(start),
            Err(cause) => context.alarm(cause),
        }
        Ok(Outcome::EpochStarted { epoch, base, clocks_agree })
    }

    pub(super) fn node_up(&mut self, context: &mut Context, up: &NodeUp) -> Result<Outcome, Refusal> {
        let ledger = self.head.level;
        if up.level < ledger {
            return Err(Impossible::LevelTooLow { ledger, node: up.level }.into());
        }
        let asked = up.holder.incarnation;
        if let Some(node) = self.nodes.get(&up.holder.node) {
            if node.incarnation == asked && node.life == up.life {
                context.repeats = Some(node.up_index);
                return Ok(Outcome::Done);
            }
            if asked <= node.incarnation {
                return Err(Refusal::OldIncarnation { asked, known: node.incarnation });
            }
        }
        let revoked_index = self.nodes.get(&up.holder.node).map_or(0, |node| node.revoked_index);
        let deaths = self.deaths_before(context, up.holder.node);
        let node = Node {
            name: up.name.clone(),
            incarnation: asked,
            up_index: context.index,
            level: up.level,
            life: up.life,
            revoked_index,
            deaths,
            lost: false,
            #[cfg(feature = "next-level")]
            up_at: (ledger >= crate::level::KNOWN).then_some(context.now),
        };
        self.nodes.put(up.holder.node, node);
        context.emit(Effect::NodeUp(up.holder));
        Ok(Outcome::Done)
    }

    /// Each known node and each voter, with the level that it has announced; 0 where it never came up (P23).
    pub fn announced_levels(&self, voters: &[NodeId]) -> BTreeMap<NodeId, u32> {
        let known = self.nodes.iter().map(|(id, node)| (*id, node.level));
        voters.iter().map(|id| (*id, 0)).chain(known).collect()
    }

    /// P23: the level rises only when each voter and each known node has announced that it can apply it.
    pub(super) fn check_raise_level(&self, raise: &RaiseLevel) -> Result<(), Refusal> {
        let (asked, ledger) = (raise.level, self.head.level);
        if asked < ledger {
            return Err(Impossible::LevelRaised { asked, ledger }.into());
        }
        match self.announced_levels(&raise.voters).into_iter().find(|(_, announced)| *announced < asked) {
            Some((node, announced)) => Err(Impossible::LevelNotAnnounced { asked, node, announced }.into()),
            None => Ok(()),
        }
    }

    pub(super) fn raise_level(&mut self, raise: &RaiseLevel) -> Outcome {
        self.head.level = raise.level;
        Outcome::Done
    }

    /// P12: the deaths of a node of which another life comes up. The life before it died when it left
    /// something claimed, or when its rows were revoked and it never came back for others.
    fn deaths_before(&self, context: &mut Context, id: NodeId) -> Deaths {
        let Some(node) = self.nodes.get(&id) else { return Deaths::default() };
        let life = Holder { node: id, incarnation: node.incarnation };
        let mut deaths = node.deaths.clone();
        if node.lost || self.rows.iter().any(|(_, row)| row.holder == life && !row.claimed.is_empty()) {
            let kept = self.limits().deaths_kept;
            deaths.record(context.now, kept);
            if let Some(until) = deaths.rests_until(self.limits()) {
                context.alarm(format!(
                    "node {} died {kept} times within ten minutes while it held claims: it gets none before {until}",
                    node.name
                ));
            }
        }
        deaths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(walls: &[i64]) -> Vec<Reading> {
        walls.iter().enumerate().map(|(node, wall)| Reading { node: NodeId(node as u64), wall: Time(*wall) }).collect()
    }

    #[test]
    fn two_clocks_must_agree_and_the_lower_counts() {
        assert_eq!(agreed_time(3, &readings(&[10_000, 11_500])), Some(Time(10_000)));
        assert_eq!(agreed_time(3, &readings(&[10_000, 12_001])), None);
        assert_eq!(agreed_time(3, &readings(&[10_000])), None, "one of three is not enough");
        assert_eq!(agreed_time(1, &readings(&[10_000])), Some(Time(10_000)));
        let twice = [Reading { node: NodeId(1), wall: Time(10_000) }; 2];
        assert_eq!(agreed_time(3, &twice), None, "a node does not agree with itself");
        let a_day = 86_400_000;
        assert_eq!(agreed_time(3, &readings(&[a_day, 10_000, 10_500])), Some(Time(10_000)), "the liar is outvoted");
    }
}
