//! Draws faults and their times from the seed. Several faults may be in force at once.
//!
//! At a random time usually nothing is sent. So half of the faults are aimed: shortly before an instant, or while
//! emails are sent and runs are paused or cancelled, or recipients opt out. A kill at the final dot waits for the dot.
//! Faults are aimed only by what is visible from outside: the calendar, the relay, a request.

use tokio::time::Duration;

use crate::random::RandomStream;

/// The index of a node.
pub type NodeIndex = usize;

/// A fault and its length.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// `kill -9` of a node, or of the leader (`None`), and its restart after this time.
    Kill(Option<NodeIndex>, Duration),
    /// A power cut of a node, or of the leader, in the middle of the n-th sync from now.
    PowerCut(Option<NodeIndex>, u64, Duration),
    /// The sender of the n-th email that the relay accepts from now is killed between its final dot and the answer.
    KillBeforeAnswer(u64, SenderCrash),
    /// All nodes are killed at once, each with its own restart time. True: by a power cut.
    All([Duration; 3], bool),
    /// All nodes are killed at once and restart together, before any of them may become a candidate.
    Bounce(Duration),
    /// The process of a node, or of the leader, is frozen for this time.
    Freeze(Option<NodeIndex>, Duration),
    /// A node, or the leader, is isolated from the others.
    Isolate(Option<NodeIndex>, Duration),
    /// Messages from the first node do not reach the second node.
    OneWay(NodeIndex, NodeIndex, Duration),
    /// This percentage of messages is lost, and the others are delayed by up to this many milliseconds.
    Disturb(u64, u64, Duration),
    /// The wall clock of a node jumps by this many milliseconds, and is set right later.
    Jump(NodeIndex, i64, Duration),
    /// The clocks of a node run fast or slow by this many parts per million, and are set right later.
    Drift(NodeIndex, i64, Duration),
    /// CLOCK_BOOTTIME of a node runs fast or slow by this many parts per million, and is set right later. Leases hold
    /// while the error is below one part in ten (P9).
    BootRate(NodeIndex, i64, Duration),
    /// The relay misbehaves.
    Relay(RelayBehavior, Duration),
}

/// How the relay behaves. Numbers are probabilities in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayBehavior {
    /// Refuses connections.
    pub down: bool,
    /// Answers RCPT with 451.
    pub greylists: u64,
    /// Answers the final dot with 451 and accepts nothing.
    pub defers: u64,
    /// Accepts an email and closes the connection without an answer.
    pub loses_answers: u64,
    /// Accepts an email and kills its sender before the answer.
    pub kills: u64,
    /// Maximum additional delay of answers and final dots, in milliseconds.
    pub slow_ms: u64,
}

/// How a sender ends between its final dot and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderCrash {
    /// True: by a power cut, which loses the journal. False: by `kill -9`.
    pub power: bool,
    /// Time until the restart.
    pub absence: Duration,
}

/// When a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTiming {
    /// At once.
    Now,
    /// This long before the next instant.
    Due(Duration),
    /// This long after a large run was triggered and then paused, cancelled or opted out of.
    Mail(Duration),
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct AimedFault {
    /// The fault.
    pub fault: Fault,
    /// When it occurs.
    pub timing: FaultTiming,
}

/// Maximum length of a wrong boot clock rate, in milliseconds. Ledger time follows the leader's boot clock and is
/// corrected by at most 0.1 % (P18): with a longer fault schedules would fire earlier than the checker allows.
const BOOT_RATE_STAYS_MS: u64 = 12_000;

/// Returns the pause before the next fault.
pub fn pause(random: &mut RandomStream) -> Duration {
    Duration::from_millis(random.within(1_000..30_000))
}

/// Draws the next fault and its time.
pub fn draw(random: &mut RandomStream) -> AimedFault {
    let fault = fault(random);
    let timing = match random.within(0..100) {
        0..45 => FaultTiming::Now,
        45..70 => FaultTiming::Due(Duration::from_millis(random.within(10..1_500))),
        _ => FaultTiming::Mail(Duration::from_millis(random.within(10..800))),
    };
    AimedFault { fault, timing }
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

/// Returns the time until a restart. In half of the cases it is shorter than a lease.
fn absence(random: &mut RandomStream) -> Duration {
    match random.percent(50) {
        true => Duration::from_millis(random.within(100..4_000)),
        false => Duration::from_millis(random.within(4_000..40_000)),
    }
}

/// Returns how a sender that the relay kills ends: with or without its journal, and back within its lease or long after
/// it.
pub fn end(random: &mut RandomStream) -> SenderCrash {
    SenderCrash { power: random.percent(40), absence: absence(random) }
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
    fn every_kind_of_fault_is_drawn_with_every_timing() {
        let mut random = RandomStream::of(1, Purpose::Faults);
        let aimed = (0..4_000).map(|_| draw(&mut random));
        let drawn: HashSet<_> = aimed.map(|aimed| (discriminant(&aimed.fault), discriminant(&aimed.timing))).collect();
        assert_eq!(drawn.len(), 13 * 3);
    }
}
