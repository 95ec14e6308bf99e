//! The plan of faults: everything that chance decides is drawn from the seed before the run begins. Pure.
//!
//! The fault phase is cut into periods. In each one another subset of the chosen families strikes; in the last one
//! all of them. Every family draws from a stream of its own, so that one more family moves no other. Whom a blow
//! meets (the leader, a sender) is known only when it falls; that it falls, when, and for how long is not.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// A period lasts about this long.
const PERIOD_MS: u64 = 10_000;

/// Families of faults, as they are chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Family {
    /// kill -9: leader, sender, random, all; between dot and 250; back within the lease or long after it
    Kill,
    /// SIGSTOP, SIGCONT of leader, sender, random
    Pause,
    /// Links between nodes are cut: one node alone, halves, ring, bridge, one way in or out
    Partition,
    /// Links between nodes lose packets, reset connections, are narrow, are slow
    Link,
    /// The wall clock of one node jumps or drifts
    Clock,
    /// Disks fail, are slow or full; state folders are damaged or lost; the log loses its tail
    Disk,
    /// Power is cut: what was not synced is gone
    Power,
    /// The relay vanishes, throttles, stalls, drops connections, floods
    Relay,
    /// Nodes are restarted in order; leadership is handed over
    Roll,
    /// Operators opt out, pause, cancel and trigger in the middle
    Operator,
    /// An old copy of a node's data folder is put back: it must refuse to take part
    Folder,
    /// A disk says that it synced and did not, and its power fails: the loss must be noticed
    Lie,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 12] = [
        Family::Kill,
        Family::Pause,
        Family::Partition,
        Family::Link,
        Family::Clock,
        Family::Disk,
        Family::Power,
        Family::Relay,
        Family::Roll,
        Family::Operator,
        Family::Folder,
        Family::Lie,
    ];
}

/// Whom a blow is to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Who leads then.
    Leader,
    /// Who is handing a mail off then.
    Sender,
    /// The node of this number, counted round.
    Node(usize),
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whom::Leader => "the leader",
            Whom::Sender => "a sender",
            Whom::Node(_) => "any node",
        })
    }
}

/// One thing to break.
#[derive(Clone, Debug, PartialEq)]
pub enum Blow {
    /// `kill -9`; at the very moment between a final dot of its and the answer, where `inside` says so. What it
    /// lasts is how long the node is down.
    Kill { whom: Whom, inside: bool },
    /// `kill -9` of all nodes.
    KillAll,
    /// SIGSTOP.
    Pause { whom: Whom },
    /// Links between nodes are cut.
    Cut(Shape),
    /// Links of a node are bad.
    Link { whom: Whom, how: Bad },
    /// The wall clock of a node, in the words of libfaketime.
    Clock { whom: Whom, offset: &'static str },
    /// The disk of a node.
    Disk { whom: Whom, how: DiskBlow },
    /// The power of these nodes fails.
    Power { whom: Option<Whom> },
    /// The relay, as a fault plan of the sink.
    Relay { name: &'static str, faults: &'static str },
    /// SIGTERM and start, one node after the other.
    Roll,
    /// Leadership is handed over.
    Transfer,
    /// An operator does something.
    Operator(Order),
    /// A node is killed and its folder copied; it goes on, and when this is over the copy is put back.
    OldFolder { whom: Whom },
    /// The disk of one that does not lead, of this number among those, lies; when this is over its power fails.
    Lie { number: usize },
}

/// Which links are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One node from all others.
    Alone(Whom),
    /// A minority, that begins at this node, from the rest.
    Halves(usize),
    /// Each node hears its neighbours only.
    Ring,
    /// Two halves that only this node hears both of.
    Bridge(usize),
    /// Nothing comes in to this node.
    OneWayIn(Whom),
    /// Nothing of this node comes out.
    OneWayOut(Whom),
}

/// How a link is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// So many of a hundred packets are lost.
    Loss(u8),
    /// So many of a thousand packets are answered by a reset.
    Reset(u16),
    /// So many kilobits a second: what waits is late, and between hosts lost in the end.
    Narrow(u32),
    /// All is late by this, give or take a half of it.
    Delay(Duration),
}

/// What befalls a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskBlow {
    /// Every sync fails.
    Fails,
    /// Every sync takes so long.
    Slow(Duration),
    /// Nothing fits any more.
    Full,
    /// The folder of the state mirror is lost while the node is down.
    StateLost,
    /// It is damaged.
    StateDamaged,
    /// The log ends in the midst of its last batch, after a kill.
    TornTail,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Opts out some whose mail is about to go.
    OptOut,
    /// Pauses a run that is being sent, and lets it go on.
    PauseAndResume,
    /// Cancels a run that is being sent.
    Cancel,
    /// Triggers a schedule by two clients with the same request id, and by a third with another.
    Trigger,
    /// Creates what there is already.
    CreateAgain,
    /// Decides about some who are in doubt: mostly as assumed, few are sent again.
    Decide,
    /// Sends dead letters again.
    Requeue,
    /// Opens instants that fell into a pause; or asks for what ran, which opens nothing.
    Backfill,
    /// Changes a schedule that is due much later, by two clients with one request id and by a third with another.
    Update,
    /// Deletes one.
    Delete,
}

/// When something is to be broken, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// Since the fault phase began.
    pub at: Duration,
    /// Until it is mended; no matter where a blow has no length.
    pub lasts: Duration,
    /// Who drew it.
    pub family: Family,
    /// What.
    pub blow: Blow,
}

/// Draws the plan of a run, in the order of its instants.
pub fn draw(seed: u64, phase: Duration, families: &[Family]) -> Vec<Strike> {
    let phase_ms = phase.as_millis() as u64;
    let periods = (phase_ms / PERIOD_MS).max(1);
    let length_ms = phase_ms / periods;
    let mut strikes = Vec::new();
    for &family in families {
        let mut dice = stream(seed, family);
        for period in 0..periods {
            // The draw is made in any case: what one period does must not move the next.
            let mut own = StdRng::seed_from_u64(dice.random());
            let active = dice.random_bool(share(family)) || period + 1 == periods;
            if !active {
                continue;
            }
            for (at_ms, lasts_ms, blow) in family.draw(&mut own, length_ms) {
                let at = Duration::from_millis(period * length_ms + at_ms);
                strikes.push(Strike { at, lasts: Duration::from_millis(lasts_ms), family, blow });
            }
        }
    }
    strikes.sort_by_key(|strike| strike.at);
    strikes
}

fn stream(seed: u64, family: Family) -> StdRng {
    StdRng::seed_from_u64(seed ^ (family as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// In how many of the periods a family strikes. Kills are what the promise is about; what a relay does meets nobody where
/// nobody can send.
fn share(family: Family) -> f64 {
    match family {
        Family::Kill => 0.9,
        Family::Operator => 0.8,
        Family::Relay => 0.6,
        Family::Power => 0.3,
        _ => 0.4,
    }
}

fn whom(dice: &mut StdRng) -> Whom {
    match dice.random_range(0..5) {
        0 | 1 => Whom::Leader,
        2 | 3 => Whom::Sender,
        _ => Whom::Node(dice.random_range(0..7)),
    }
}

fn one_of<T: Clone>(dice: &mut StdRng, of: &[T]) -> Option<T> {
    of.choose(dice).cloned()
}

/// An instant, a length (milliseconds), and what.
type Drawn = (u64, u64, Blow);

impl Family {
    fn draw(self, dice: &mut StdRng, length_ms: u64) -> Vec<Drawn> {
        let blows = match self {
            Family::Kill => 6,
            Family::Operator => 4,
            _ => 1,
        };
        // What lasts is mostly over before the period is.
        let latest = (length_ms * 7 / 10).max(1);
        let mut drawn: Vec<Drawn> = Vec::new();
        for _ in 0..blows {
            let at = dice.random_range(0..latest);
            if let Some((lasts, blow)) = self.blow(dice) {
                drawn.push((at, lasts, blow));
            }
        }
        drawn
    }

    fn blow(self, dice: &mut StdRng) -> Option<(u64, Blow)> {
        Some(match self {
            Family::Kill => kill(dice)?,
            Family::Pause => (one_of(dice, &[500, 2_000, 4_500, 7_000])?, Blow::Pause { whom: whom(dice) }),
            Family::Partition => (dice.random_range(1_000..7_000), Blow::Cut(shape(dice)?)),
            Family::Link => (dice.random_range(2_000..6_000), bad_link(dice)?),
            Family::Clock => {
                let offset = one_of(dice, &OFFSETS)?;
                (dice.random_range(2_000..8_000), Blow::Clock { whom: whom(dice), offset })
            }
            Family::Disk => disk(dice)?,
            Family::Power => {
                let whom = if dice.random_bool(0.3) { None } else { Some(whom(dice)) };
                (one_of(dice, &[300, 2_000, 6_000])?, Blow::Power { whom })
            }
            Family::Relay => {
                let (name, faults) = one_of(dice, &RELAY)?;
                (dice.random_range(1_500..5_000), Blow::Relay { name, faults })
            }
            Family::Roll => (0, if dice.random_bool(0.5) { Blow::Roll } else { Blow::Transfer }),
            Family::Operator => (dice.random_range(500..3_000), Blow::Operator(one_of(dice, &ORDERS)?)),
            Family::Folder => (dice.random_range(2_500..5_000), Blow::OldFolder { whom: whom(dice) }),
            Family::Lie => (dice.random_range(2_000..4_000), Blow::Lie { number: dice.random_range(0..6) }),
        })
    }
}

/// Jumps that a lease, a minute, an hour and a day notice, both ways, and a clock that is a tenth too fast or slow.
const OFFSETS: [&str; 10] = ["+1", "-1", "+61", "-61", "+3600", "-3600", "+90000", "-90000", "+0 x1.1", "+0 x0.9"];

const ORDERS: [Order; 11] = [
    Order::OptOut,
    Order::PauseAndResume,
    Order::Cancel,
    Order::Trigger,
    Order::CreateAgain,
    Order::Decide,
    Order::Decide,
    Order::Requeue,
    Order::Backfill,
    Order::Update,
    Order::Delete,
];

/// What relays do, and how the sink does it. None says "greylisted" or "daily quota": that is waited out for minutes, longer
/// than a run waits for its end. The simulation has greylisting. Refusals for good come twice: dead letters are requeued.
const RELAY: [(&str, &str); 12] = [
    ("mailboxes that are gone", "rcpt:550=5.1.1 no such user@0.1"),
    (
        "mailboxes that are gone, also after the dot",
        "rcpt:550=5.1.1 no such user@0.06,before-commit:554=5.2.1 mailbox disabled@0.06",
    ),
    (
        "quotas: 452 and 454",
        "mail:454=4.7.0 Throttling failure: Maximum sending rate exceeded@0.3,\
         mail:452=4.3.1 insufficient system storage@0.2,rcpt:452=4.2.2 mailbox full@0.1",
    ),
    ("refusals at EHLO", "ehlo:421=4.3.2 not now@0.3,ehlo:554=5.3.2 no service here@0.3"),
    ("an outage: connections are reset", "connect:reset"),
    ("a storm of throttles: 421 and 451", "mail:421=4.7.0 too fast@0.3,mail:451=4.3.2 try later@0.5"),
    ("refusals after the dot", "before-commit:451=4.3.0 not now@0.3,rcpt:450=4.2.1 mailbox busy@0.2"),
    ("a tarpit", "banner:stall=1500ms,after-commit:stall=800ms@0.5"),
    ("a bomb of a banner", "banner:huge=10000000@0.3"),
    ("connections dropped after the dot", "after-commit:close@0.1"),
    ("connections reset in the body and half an answer", "body:reset@0.1,answer:close@0.05"),
    ("hangs up after five mails", "between:close-after=5"),
];

const DOWN_MS: [u64; 16] = [100, 100, 100, 100, 300, 300, 300, 500, 500, 500, 1_000, 1_000, 2_000, 2_000, 4_500, 7_000];

fn kill(dice: &mut StdRng) -> Option<(u64, Blow)> {
    // Back within the lease (4 s), about its end, and long after it; mostly soon, so that a next one finds a leader.
    let down = one_of(dice, &DOWN_MS)?;
    if dice.random_bool(0.06) {
        return Some((down.min(2_000), Blow::KillAll));
    }
    Some((down, Blow::Kill { whom: whom(dice), inside: dice.random_bool(0.6) }))
}

fn shape(dice: &mut StdRng) -> Option<Shape> {
    let number = dice.random_range(0..7);
    one_of(
        dice,
        &[
            Shape::Alone(Whom::Leader),
            Shape::Alone(Whom::Sender),
            Shape::Halves(number),
            Shape::Ring,
            Shape::Bridge(number),
            Shape::OneWayIn(Whom::Leader),
            Shape::OneWayOut(Whom::Leader),
            Shape::OneWayIn(Whom::Node(number)),
        ],
    )
}

/// Delays within an election time-out, about one (there and back), and past every time-out of a peer.
const LINKS: [Bad; 8] = [
    Bad::Loss(10),
    Bad::Loss(30),
    Bad::Reset(20),
    Bad::Narrow(256),
    Bad::Narrow(64),
    Bad::Delay(Duration::from_millis(50)),
    Bad::Delay(Duration::from_millis(200)),
    Bad::Delay(Duration::from_secs(1)),
];

fn bad_link(dice: &mut StdRng) -> Option<Blow> {
    let how = one_of(dice, &LINKS)?;
    Some(Blow::Link { whom: whom(dice), how })
}

fn disk(dice: &mut StdRng) -> Option<(u64, Blow)> {
    let slow = Duration::from_millis(one_of(dice, &[50, 300, 1_500])?);
    let how = one_of(
        dice,
        &[
            DiskBlow::Fails,
            DiskBlow::Slow(slow),
            DiskBlow::Full,
            DiskBlow::StateLost,
            DiskBlow::StateDamaged,
            DiskBlow::TornTail,
        ],
    )?;
    Some((dice.random_range(1_000..4_000), Blow::Disk { whom: whom(dice), how }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_draws_the_same_plan_again_and_another_seed_another() {
        let plan = draw(7, MINUTE, &Family::ALL);
        assert_eq!(plan, draw(7, MINUTE, &Family::ALL));
        assert_ne!(plan, draw(8, MINUTE, &Family::ALL));
        assert!(plan.is_sorted_by_key(|strike| strike.at));
        assert!(plan.iter().all(|strike| strike.at < MINUTE));
    }

    #[test]
    fn one_more_family_moves_no_other() {
        let alone = draw(7, MINUTE, &[Family::Kill]);
        let among: Vec<Strike> =
            draw(7, MINUTE, &Family::ALL).into_iter().filter(|strike| strike.family == Family::Kill).collect();
        assert_eq!(alone, among);
    }

    #[test]
    fn in_the_last_period_every_family_strikes() {
        for seed in 0..20 {
            let last = draw(seed, MINUTE, &Family::ALL).into_iter().filter(|strike| strike.at >= MINUTE * 5 / 6);
            let families: BTreeSet<Family> = last.map(|strike| strike.family).collect();
            assert_eq!(families.len(), Family::ALL.len(), "seed {seed}");
        }
    }

    #[test]
    fn forty_runs_of_a_minute_are_more_than_a_thousand_kills_half_of_them_inside() {
        let all: Vec<Strike> = (0..40).flat_map(|seed| draw(seed, MINUTE, &Family::ALL)).collect();
        let kills = all.iter().filter(|strike| matches!(strike.blow, Blow::Kill { .. })).count();
        let inside = all.iter().filter(|strike| matches!(strike.blow, Blow::Kill { inside: true, .. })).count();
        assert!(kills > 1_000 && inside * 2 > kills, "{kills}, {inside} of them inside");
    }

    #[test]
    fn every_fault_of_the_relay_can_be_read() {
        for (name, faults) in RELAY {
            assert!(faults.parse::<reveille_sink::FaultPlan>().is_ok(), "{name}");
        }
    }
}
