//! Which crash points are still wanted, and with which of them the next life of a node is armed. Pure; chance comes from
//! the caller.
//!
//! A life is armed with a few points at once and dies at whichever it comes to first. A point that was died at often
//! enough is armed no more, so that those that every entry comes by do not hide the rare ones for long.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};

/// A life is armed with so many.
const AT_ONCE: usize = 8;
/// Of these, so many lie on a mail's way: every mail comes by all of them in turn, so the first would hide the others.
const ON_A_MAILS_WAY: usize = 2;
/// A point that is come by all the time is come by so often in vain before a life dies at it.
const SPARED: [u32; 8] = [0, 0, 1, 2, 3, 5, 8, 13];
/// Points that a life comes by seldom, by how their names begin: it dies at the first time.
const RARE: [&str; 8] =
    ["snapshot.", "lifecycle.", "admin.", "wal.truncate", "wal.purge", "wal.vote", "machine.replace", "wheel."];

/// What is wanted, and what was had.
#[derive(Clone, Debug)]
pub struct Arms {
    hits: BTreeMap<String, u32>,
    wanted: u32,
}

impl Arms {
    /// Each of these so often.
    pub fn new(points: impl IntoIterator<Item = String>, wanted: u32) -> Arms {
        Arms { hits: points.into_iter().map(|point| (point, 0)).collect(), wanted }
    }

    /// A life died there.
    pub fn hit(&mut self, point: &str) {
        *self.hits.entry(point.to_owned()).or_default() += 1;
    }

    /// How often each was died at.
    pub fn hits(&self) -> &BTreeMap<String, u32> {
        &self.hits
    }

    /// Those that were not died at often enough.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.hits.iter().filter(|(_, hits)| **hits < self.wanted).map(|(point, _)| point.as_str())
    }

    /// Is any of them wanted whose name begins so?
    pub fn wants(&self, beginning: &str) -> bool {
        self.left().any(|point| point.starts_with(beginning))
    }

    /// What a life is armed with, in the words of FAILPOINTS. One that was led to a point that is wanted is armed with that
    /// alone: it would die at another on its way.
    pub fn draw(&self, dice: &mut StdRng, surely: Option<&str>) -> String {
        if let Some(point) = self.left().find(|point| Some(*point) == surely) {
            return format!("{point}=return");
        }
        let (on_the_way, others): (Vec<&str>, Vec<&str>) = self.left().partition(|point| is_on_a_mails_way(point));
        let mut drawn = on_the_way.into_iter().choose_multiple(dice, ON_A_MAILS_WAY);
        drawn.extend(others.into_iter().choose_multiple(dice, AT_ONCE - drawn.len()));
        let armed = drawn.into_iter().map(|point| {
            let is_rare = RARE.iter().any(|rare| point.starts_with(rare));
            match SPARED.choose(dice).copied().filter(|_| !is_rare).unwrap_or(0) {
                0 => format!("{point}=return"),
                spared => format!("{point}={spared}*off->return"),
            }
        });
        armed.collect::<Vec<_>>().join(";")
    }

    /// How long a node stays away, in milliseconds.
    pub fn away_ms(dice: &mut StdRng) -> u64 {
        *[100, 100, 200, 300, 600, 1_200].choose(dice).unwrap_or(&100)
    }

    /// One time in so many.
    pub fn one_in(dice: &mut StdRng, many: u32) -> bool {
        dice.random_ratio(1, many)
    }
}

/// Does only a node come by it that was given claims?
pub fn is_on_a_mails_way(point: &str) -> bool {
    ["smtp.", "claim.after", "journal.", "settle."].iter().any(|beginning| point.starts_with(beginning))
}

/// The point that a process died at, by its last words. Where two threads reach it at once, the second line may end before
/// the name.
pub fn died_at(words: &str) -> Option<&str> {
    let names = words.lines().rev().filter_map(|line| line.split_once("died at the crash point "));
    names.filter_map(|(_, name)| name.split_whitespace().next()).next()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn arms() -> Arms {
        let points = ["wal.truncate", "wal.before-append", "smtp.after-mail", "claim.before-propose", "admin.seal"];
        Arms::new(points.map(str::to_owned), 2)
    }

    #[test]
    fn what_was_died_at_often_enough_is_armed_no_more() {
        let (mut arms, mut dice) = (arms(), StdRng::seed_from_u64(7));
        for _ in 0..2 {
            assert!(arms.wants("wal."));
            arms.hit("wal.before-append");
            arms.hit("wal.truncate");
        }
        assert!(!arms.wants("wal.") && arms.wants("smtp."));
        for surely in [None, Some("wal.truncate")] {
            let drawn = arms.draw(&mut dice, surely);
            assert_eq!((drawn.split(';').count(), drawn.contains("wal.")), (3, false), "{drawn}");
        }
        assert_eq!(arms.left().count(), 3);
    }

    #[test]
    fn what_is_rare_is_died_at_the_first_time_and_who_was_led_there_is_armed_with_nothing_else() {
        let (arms, mut dice) = (arms(), StdRng::seed_from_u64(7));
        assert_eq!(arms.draw(&mut dice, Some("wal.truncate")), "wal.truncate=return");
        let drawn: Vec<String> = (0..50).map(|_| arms.draw(&mut dice, None)).collect();
        assert!(drawn.iter().all(|drawn| drawn.split(';').any(|armed| armed == "wal.truncate=return")), "{drawn:?}");
        assert!(drawn.iter().all(|drawn| drawn.split(';').count() == 5), "all that are left");
        assert!(drawn.iter().any(|drawn| drawn.contains("*off->return")));
        let (mut one, mut other) = (StdRng::seed_from_u64(8), StdRng::seed_from_u64(8));
        assert_eq!(arms.draw(&mut one, None), arms.draw(&mut other, None), "the same chance draws the same");
    }

    #[test]
    fn the_places_on_a_mails_way_do_not_hide_each_other() {
        let points = ["smtp.after-mail", "smtp.after-rcpt", "smtp.before-dot", "settle.after-commit", "wal.purge"];
        let (arms, mut dice) = (Arms::new(points.map(str::to_owned), 2), StdRng::seed_from_u64(7));
        let drawn: Vec<String> = (0..50).map(|_| arms.draw(&mut dice, None)).collect();
        assert!(drawn.iter().all(|drawn| drawn.split(';').count() == 3 && drawn.contains("wal.purge")), "{drawn:?}");
        assert!(points.iter().all(|point| drawn.iter().any(|drawn| drawn.contains(point))));
    }

    #[test]
    fn the_last_words_of_a_process_name_the_point() {
        assert_eq!(died_at("INFO one\ndied at the crash point wal.purge\n"), Some("wal.purge"));
        assert_eq!(died_at("died at the crash point wal.purge\ndied at the crash point "), Some("wal.purge"));
        assert_eq!(died_at("INFO died of old age\n"), None);
    }
}
