//! What the families draw, and from what: how often, how long, at whom.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::blow::{Bad, Blow, DiskBlow, Family, Order, Shape, Whom};

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
    /// What a family does in a period in which it strikes: all before its last third, so that what lasts is mostly over
    /// before the period is.
    pub(super) fn draw(self, dice: &mut StdRng, length_ms: u64, blows: u32) -> Vec<Drawn> {
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
            Family::Pause => {
                let lasts = one_of(dice, &[500, 2_000, 4_500, 7_000])?;
                (lasts, Blow::Pause { whom: whom(dice), inside: dice.random_bool(0.6) })
            }
            Family::Partition => (dice.random_range(1_000..7_000), Blow::Cut(shape(dice)?)),
            Family::Link => (dice.random_range(2_000..6_000), bad_link(dice)?),
            Family::Clock => {
                let offset = one_of(dice, &OFFSETS)?;
                (dice.random_range(2_000..8_000), Blow::Clock { whom: whom(dice), offset })
            }
            Family::Disk => disk(dice)?,
            Family::Power => {
                let whom = if dice.random_bool(0.3) { None } else { Some(whom(dice)) };
                let lasts = one_of(dice, &[300, 2_000, 6_000])?;
                (lasts, Blow::Power { whom, torn: dice.random_bool(0.5) })
            }
            Family::Relay => {
                let (name, faults) = one_of(dice, &RELAY)?;
                (dice.random_range(1_500..5_000), Blow::Relay { name, faults })
            }
            Family::Roll => (0, if dice.random_bool(0.5) { Blow::Roll } else { Blow::Transfer }),
            Family::Operator => (dice.random_range(500..3_000), Blow::Operator(one_of(dice, &ORDERS)?)),
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

/// What relays do, and how the sink does it. None says "daily quota", and no 4yz is about a recipient: that is waited out for
/// minutes, longer than a run waits for its end. The simulation has greylisting. Refusals for good come twice: dead letters are requeued.
pub(super) const RELAY: [(&str, &str); 12] = [
    ("mailboxes that are gone", "rcpt:550=5.1.1 no such user@0.1"),
    (
        "mailboxes that are gone, also after the dot",
        "rcpt:550=5.1.1 no such user@0.06,before-commit:554=5.2.1 mailbox disabled@0.06",
    ),
    (
        "quotas: 452 and 454",
        "mail:454=4.7.0 Throttling failure: Maximum sending rate exceeded@0.3,\
         mail:452=4.3.1 insufficient system storage@0.2,rcpt:452=4.3.1 insufficient system storage@0.1",
    ),
    ("refusals at EHLO", "ehlo:421=4.3.2 not now@0.3,ehlo:554=5.3.2 no service here@0.3"),
    ("an outage: connections are reset", "connect:reset"),
    ("a storm of throttles: 421 and 451", "mail:421=4.7.0 too fast@0.3,mail:451=4.3.2 try later@0.5"),
    ("refusals after the dot", "before-commit:451=4.3.2 not now@0.3,rcpt:450=4.3.2 not now@0.2"),
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
