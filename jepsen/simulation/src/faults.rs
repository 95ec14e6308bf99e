//! Which fault comes when: drawn from the seed, one after the other, several at a time.

use tokio::time::Duration;

use crate::chance::Chance;
use crate::relay::Mood;

/// One of the nodes, by its place.
pub type Place = usize;

/// A fault, and for how long it stays.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// `kill -9` of a node or, for none, of whoever leads; it starts again after this.
    Kill(Option<Place>, Duration),
    /// The power of a node, or of whoever leads, is cut in the middle of a sync some syncs from now.
    PowerCut(Option<Place>, u64, Duration),
    /// All nodes are killed at once, each for a while of its own; with their power, where true.
    All([Duration; 3], bool),
    /// Nothing goes between a node, or whoever leads, and the others.
    Isolate(Option<Place>, Duration),
    /// What the first says does not reach the second.
    OneWay(Place, Place, Duration),
    /// Percent of messages that are lost, and by how many milliseconds they are late at most.
    Disturb(u64, u64, Duration),
    /// The wall clock of a node jumps by so many milliseconds, and is put right later.
    Jump(Place, i64, Duration),
    /// The clocks of a node go wrong by so many parts of a million, and right again later.
    Drift(Place, i64, Duration),
    /// The relay is in another mood.
    Relay(Mood, Duration),
}

/// The pause before the next fault.
pub fn pause(chance: &mut Chance) -> Duration {
    Duration::from_millis(chance.within(1_000..30_000))
}

/// The next fault.
pub fn draw(chance: &mut Chance) -> Fault {
    let victim = |chance: &mut Chance| if chance.percent(50) { None } else { Some(chance.within(0..3) as Place) };
    // Half of the deaths are shorter than a lease.
    let absence = |chance: &mut Chance| match chance.percent(50) {
        true => Duration::from_millis(chance.within(100..4_000)),
        false => Duration::from_millis(chance.within(4_000..40_000)),
    };
    let stay = |chance: &mut Chance| Duration::from_millis(chance.within(2_000..40_000));
    match chance.within(0..100) {
        0..22 => Fault::Kill(victim(chance), absence(chance)),
        22..36 => Fault::PowerCut(victim(chance), chance.within(1..40), absence(chance)),
        36..40 => Fault::All([absence(chance), absence(chance), absence(chance)], chance.percent(50)),
        40..52 => Fault::Isolate(victim(chance), stay(chance)),
        52..58 => {
            let from = chance.within(0..3) as Place;
            Fault::OneWay(from, (from + 1 + chance.within(0..2) as Place) % 3, stay(chance))
        }
        58..66 => Fault::Disturb(chance.within(0..20), chance.within(1..400), stay(chance)),
        66..74 => {
            let by = *chance.one_of(&[1_000, 1_900, 61_000, 3_600_000, 90_000_000]);
            let by = if chance.percent(50) { by } else { -by };
            Fault::Jump(chance.within(0..3) as Place, by, stay(chance))
        }
        74..78 => {
            let ppm = *chance.one_of(&[-900, -200, 200, 900]);
            Fault::Drift(chance.within(0..3) as Place, ppm, stay(chance))
        }
        _ => Fault::Relay(mood(chance), stay(chance)),
    }
}

fn mood(chance: &mut Chance) -> Mood {
    let slow_ms = chance.within(0..1_500);
    match chance.within(0..5) {
        0 => Mood { down: true, ..Mood::default() },
        1 => Mood { greylists: chance.within(5..60), slow_ms, ..Mood::default() },
        2 => Mood { defers: chance.within(5..60), slow_ms, ..Mood::default() },
        3 => Mood { loses_answers: chance.within(1..20), slow_ms, ..Mood::default() },
        _ => Mood { strikes: chance.within(5..40), slow_ms, ..Mood::default() },
    }
}
