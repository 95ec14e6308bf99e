//! The faults that each family draws: their instants, lengths, targets and actions.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::actions::{DiskFault, Family, FaultAction, FaultTarget, LinkFault, OperatorAction, PartitionShape};

fn any_target(random: &mut StdRng) -> FaultTarget {
    match random.random_range(0..5) {
        0 | 1 => FaultTarget::Leader,
        2 | 3 => FaultTarget::Sender,
        _ => FaultTarget::Node(random.random_range(0..7)),
    }
}

/// Returns one of these values, of which there is at least one.
fn one_of<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    *of.choose(random).unwrap_or(&of[0])
}

/// Instant and length of a fault in milliseconds, and its action.
type Drawn = (u64, u64, FaultAction);

impl Family {
    /// Returns the faults of a family in one period. They begin before its last third, so that most faults end within
    /// the period.
    pub(super) fn draw(self, random: &mut StdRng, length_ms: u64, actions: u32) -> Vec<Drawn> {
        let latest = (length_ms * 7 / 10).max(1);
        let mut drawn = Vec::new();
        for _ in 0..actions {
            let at = random.random_range(0..latest);
            let (lasts, action) = self.draw_one(random);
            drawn.push((at, lasts, action));
        }
        drawn
    }

    fn draw_one(self, random: &mut StdRng) -> (u64, FaultAction) {
        match self {
            Family::Kill => kill(random),
            Family::Pause => {
                let lasts = one_of(random, &[500, 2_000, 4_500, 7_000]);
                (lasts, FaultAction::Pause { target: any_target(random), inside: random.random_bool(0.6) })
            }
            Family::Partition => (random.random_range(1_000..7_000), FaultAction::Cut(shape(random))),
            Family::Link => (random.random_range(2_000..6_000), bad_link(random)),
            Family::Clock => {
                let offset = one_of(random, &OFFSETS);
                (random.random_range(2_000..8_000), FaultAction::Clock { target: any_target(random), offset })
            }
            Family::Disk => disk(random),
            Family::Power => {
                let target = if random.random_bool(0.3) { None } else { Some(any_target(random)) };
                let lasts = one_of(random, &[300, 2_000, 6_000]);
                (lasts, FaultAction::Power { target, torn: random.random_bool(0.5) })
            }
            Family::Relay => {
                let (name, faults) = one_of(random, &RELAY);
                (random.random_range(1_500..5_000), FaultAction::Relay { name, faults })
            }
            Family::Roll => (0, if random.random_bool(0.5) { FaultAction::Roll } else { FaultAction::Transfer }),
            Family::Operator => (random.random_range(500..3_000), FaultAction::Operator(one_of(random, &ORDERS))),
            Family::Membership => (0, FaultAction::Replace { target: any_target(random) }),
            Family::Certificates => (0, FaultAction::Rotate),
            Family::Upgrade => {
                let (number, goes_back) = (random.random_range(0..7), random.random_bool(0.2));
                (one_of(random, &[100, 500, 2_000]), FaultAction::Upgrade { number, goes_back })
            }
        }
    }
}

/// Jumps beyond a lease, a minute, an hour and a day, both ways, and a clock that is a tenth too fast or slow.
const OFFSETS: [&str; 10] = ["+1", "-1", "+61", "-61", "+3600", "-3600", "+90000", "-90000", "+0 x1.1", "+0 x0.9"];

const ORDERS: [OperatorAction; 12] = [
    OperatorAction::OptOut,
    OperatorAction::PauseAndResume,
    OperatorAction::Cancel,
    OperatorAction::Trigger,
    OperatorAction::CreateAgain,
    OperatorAction::Decide,
    OperatorAction::Decide,
    OperatorAction::Requeue,
    OperatorAction::Backfill,
    OperatorAction::Update,
    OperatorAction::Delete,
    OperatorAction::Message,
];

/// Faults of the relay, by the sink's fault plan. No reply says "daily quota", and no reply from RCPT on defers a
/// recipient: the back-off doubles while the fault lasts, and a run would have to wait for it. The simulation has
/// deferrals. Two faults refuse permanently, so that there are dead letters to requeue.
pub(super) const RELAY: [(&str, &str); 12] = [
    ("unknown mailboxes", "rcpt:550=5.1.1 no such user@0.1"),
    (
        "unknown mailboxes, also after the dot",
        "rcpt:550=5.1.1 no such user@0.06,before-commit:554=5.2.1 mailbox disabled@0.06",
    ),
    (
        "quotas: 452 and 454",
        "mail:454=4.7.0 Throttling failure: Maximum sending rate exceeded@0.3,\
         mail:452=4.3.1 insufficient system storage@0.2,rcpt:452=4.5.3 too many recipients@0.1",
    ),
    ("refusals at EHLO", "ehlo:421=4.3.2 not now@0.3,ehlo:554=5.3.2 no service here@0.3"),
    ("an outage: connections are reset", "connect:reset"),
    ("a storm of throttles: 421 and 451", "mail:421=4.7.0 too fast@0.3,mail:451=4.3.2 try later@0.5"),
    ("refusals after the dot", "before-commit:451=4.7.0 too fast@0.3,rcpt:450=4.7.0 too fast@0.2"),
    ("a tarpit", "banner:stall=1500ms,after-commit:stall=800ms@0.5"),
    ("a huge banner", "banner:huge=10000000@0.3"),
    ("connections dropped after the dot", "after-commit:close@0.1"),
    ("connections reset in the body and inside an answer", "body:reset@0.1,answer:close@0.05"),
    ("closes the connection after five emails", "between:close-after=5"),
];

const DOWN_MS: [u64; 16] = [100, 100, 100, 100, 300, 300, 300, 500, 500, 500, 1_000, 1_000, 2_000, 2_000, 4_500, 7_000];

fn kill(random: &mut StdRng) -> (u64, FaultAction) {
    // The node is back within the lease (4 s), near its end, or after it. In most cases soon, so that the next kill
    // finds a leader.
    let down = one_of(random, &DOWN_MS);
    if random.random_bool(0.06) {
        return (down.min(2_000), FaultAction::KillAll);
    }
    (down, FaultAction::Kill { target: any_target(random), inside: random.random_bool(0.6) })
}

fn shape(random: &mut StdRng) -> PartitionShape {
    let number = random.random_range(0..7);
    one_of(
        random,
        &[
            PartitionShape::Alone(FaultTarget::Leader),
            PartitionShape::Alone(FaultTarget::Sender),
            PartitionShape::Halves(number),
            PartitionShape::Ring,
            PartitionShape::Bridge(number),
            PartitionShape::OneWayIn(FaultTarget::Leader),
            PartitionShape::OneWayOut(FaultTarget::Leader),
            PartitionShape::OneWayIn(FaultTarget::Node(number)),
        ],
    )
}

const LINKS: [LinkFault; 5] =
    [LinkFault::Loss(10), LinkFault::Loss(30), LinkFault::Reset(20), LinkFault::Narrow(32), LinkFault::Narrow(16)];

fn bad_link(random: &mut StdRng) -> FaultAction {
    let how = one_of(random, &LINKS);
    FaultAction::Link { target: any_target(random), how }
}

fn disk(random: &mut StdRng) -> (u64, FaultAction) {
    let slow = Duration::from_millis(one_of(random, &[50, 300, 1_500]));
    let how = one_of(
        random,
        &[
            DiskFault::Fails,
            DiskFault::Slow(slow),
            DiskFault::Full,
            DiskFault::SnapshotLost,
            DiskFault::SnapshotDamaged,
            DiskFault::TornTail,
        ],
    );
    (random.random_range(1_000..4_000), FaultAction::Disk { target: any_target(random), how })
}
