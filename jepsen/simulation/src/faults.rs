//! Which fault comes when: drawn from the seed, one after the other, several at a time.
//!
//! A fault at a random time mostly comes when nothing happens. So half of them are aimed: shortly before something
//! becomes due, or while mail is sent and runs are paused, cancelled or opted out of. A kill at the dot waits for its
//! dot. Faults are aimed only by what is visible from outside: the calendar, the relay, a request.

use tokio::time::Duration;

use crate::random::RandomStream;

/// One of the nodes, by its place.
pub type NodeIndex = usize;

/// A fault, and for how long it stays.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// `kill -9` of a node or, for none, of the leader; it starts again after this.
    Kill(Option<NodeIndex>, Duration),
    /// The power of a node, or of the leader, is cut in the middle of a sync some syncs from now.
    PowerCut(Option<NodeIndex>, u64, Duration),
    /// The sender of the n-th mail that the relay accepts from now is killed between its dot and the answer.
    KillBeforeAnswer(u64, SenderDeath),
    /// All nodes are killed at once, each for a while of its own; with their power, where true.
    All([Duration; 3], bool),
    /// All nodes are killed at once, and are back at once: sooner than any of them may stand for election.
    Bounce(Duration),
    /// The process of a node, or of the leader, is frozen, and goes on.
    Freeze(Option<NodeIndex>, Duration),
    /// A node, or the leader, is cut off from the others.
    Isolate(Option<NodeIndex>, Duration),
    /// Messages from the first node do not reach the second.
    OneWay(NodeIndex, NodeIndex, Duration),
    /// Percent of messages that are lost, and by how many milliseconds they are late at most.
    Disturb(u64, u64, Duration),
    /// The wall clock of a node jumps by so many milliseconds, and is put right later.
    Jump(NodeIndex, i64, Duration),
    /// The clocks of a node go wrong by so many parts of a million, and right again later.
    Drift(NodeIndex, i64, Duration),
    /// CLOCK_BOOTTIME of a node runs at a rate that is wrong by so many parts of a million, and right again later.
    /// Leases hold while it is within one part in ten (P9).
    BootRate(NodeIndex, i64, Duration),
    /// The relay misbehaves.
    Relay(RelayBehavior, Duration),
}

/// How the relay behaves, in percent of occasions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayBehavior {
    /// It takes no connection.
    pub down: bool,
    /// RCPT is answered 451.
    pub greylists: u64,
    /// The dot is answered 451 and nothing accepted.
    pub defers: u64,
    /// A mail is accepted and the connection closed without an answer.
    pub loses_answers: u64,
    /// A mail is accepted, and before the answer is out the sender is to die.
    pub kills: u64,
    /// Milliseconds that an answer takes at most, beyond what is usual; and a final dot, until it has arrived.
    pub slow_ms: u64,
}

/// How a sender ends between its dot and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderDeath {
    /// With its power, and so with its journal; else by `kill -9`.
    pub power: bool,
    /// It starts again after this.
    pub absence: Duration,
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTiming {
    /// Now.
    Now,
    /// This long before something becomes due.
    Due(Duration),
    /// This long after a large run was triggered, while it is paused, cancelled or opted out of.
    Mail(Duration),
}

/// A fault and its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct AimedFault {
    /// The fault.
    pub fault: Fault,
    /// When it comes.
    pub moment: FaultTiming,
}

/// A boot clock with a wrong rate is right again after at most so long. Ledger time follows the boot clock of the
/// leader and corrects itself by 0.1 % at most (P18), so a longer fault would fire schedules early by more than the
/// error of two seconds that the judge allows. Milliseconds.
const BOOT_RATE_STAYS_MS: u64 = 12_000;

/// The pause before the next fault.
pub fn pause(random: &mut RandomStream) -> Duration {
    Duration::from_millis(random.within(1_000..30_000))
}

/// The next fault and its moment.
pub fn draw(random: &mut RandomStream) -> AimedFault {
    let fault = fault(random);
    let moment = match random.within(0..100) {
        0..45 => FaultTiming::Now,
        45..70 => FaultTiming::Due(Duration::from_millis(random.within(10..1_500))),
        _ => FaultTiming::Mail(Duration::from_millis(random.within(10..800))),
    };
    AimedFault { fault, moment }
}

fn fault(random: &mut RandomStream) -> Fault {
    let victim =
        |random: &mut RandomStream| if random.percent(50) { None } else { Some(random.within(0..3) as NodeIndex) };
    let stay = |random: &mut RandomStream| Duration::from_millis(random.within(2_000..40_000));
    match random.within(0..100) {
        0..14 => Fault::Kill(victim(random), absence(random)),
        14..23 => Fault::PowerCut(victim(random), random.within(1..40), absence(random)),
        23..35 => Fault::KillBeforeAnswer(random.within(1..12), end(random)),
        35..38 => Fault::All([absence(random), absence(random), absence(random)], random.percent(50)),
        38..45 => Fault::Bounce(Duration::from_millis(random.within(20..600))),
        45..50 => Fault::Freeze(victim(random), stay(random)),
        50..61 => Fault::Isolate(victim(random), stay(random)),
        61..67 => {
            let from = random.within(0..3) as NodeIndex;
            Fault::OneWay(from, (from + 1 + random.within(0..2) as NodeIndex) % 3, stay(random))
        }
        67..73 => Fault::Disturb(random.within(0..20), random.within(1..400), stay(random)),
        73..79 => {
            let by = *random.one_of(&[1_000, 1_900, 61_000, 3_600_000, 90_000_000]);
            let by = if random.percent(50) { by } else { -by };
            Fault::Jump(random.within(0..3) as NodeIndex, by, stay(random))
        }
        79..82 => {
            let ppm = *random.one_of(&[-900, -200, 200, 900]);
            Fault::Drift(random.within(0..3) as NodeIndex, ppm, stay(random))
        }
        82..86 => {
            let ppm = *random.one_of(&[-90_000, -90_000, -40_000, 40_000, 90_000]);
            let stay = Duration::from_millis(random.within(4_000..BOOT_RATE_STAYS_MS));
            Fault::BootRate(random.within(0..3) as NodeIndex, ppm, stay)
        }
        _ => Fault::Relay(behavior(random), stay(random)),
    }
}

/// Half of the deaths are shorter than a lease.
fn absence(random: &mut RandomStream) -> Duration {
    match random.percent(50) {
        true => Duration::from_millis(random.within(100..4_000)),
        false => Duration::from_millis(random.within(4_000..40_000)),
    }
}

/// How a sender that the relay kills ends: with its journal or without, back within its lease or long after it.
pub fn end(random: &mut RandomStream) -> SenderDeath {
    SenderDeath { power: random.percent(40), absence: absence(random) }
}

fn behavior(random: &mut RandomStream) -> RelayBehavior {
    let slow_ms = random.within(0..1_500);
    match random.within(0..6) {
        0 => RelayBehavior { down: true, ..RelayBehavior::default() },
        1 => RelayBehavior { greylists: random.within(5..60), slow_ms, ..RelayBehavior::default() },
        2 => RelayBehavior { defers: random.within(5..60), slow_ms, ..RelayBehavior::default() },
        3 => RelayBehavior { loses_answers: random.within(1..20), slow_ms, ..RelayBehavior::default() },
        4 => RelayBehavior { kills: random.within(5..40), slow_ms, ..RelayBehavior::default() },
        _ => RelayBehavior { slow_ms: 500 + slow_ms, ..RelayBehavior::default() },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;
    use crate::random::Purpose;

    #[test]
    fn every_kind_of_fault_comes_at_every_kind_of_moment() {
        let mut random = RandomStream::of(1, Purpose::Faults);
        let aimed = (0..4_000).map(|_| draw(&mut random));
        let drawn: HashSet<_> = aimed.map(|aimed| (discriminant(&aimed.fault), discriminant(&aimed.moment))).collect();
        assert_eq!(drawn.len(), 13 * 3);
    }
}
