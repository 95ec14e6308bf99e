//! What one node sends to another, and the law that holds of it at the moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Before TCP sends again what was not acknowledged; doubled each time (RFC 6298; Linux begins with 200 ms).
const RESENT_AFTER: Duration = Duration::from_millis(200);
/// It is not lost more often than this.
const LOST_TIMES: u32 = 5;

/// What holds of bytes on a link. The default: nothing is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Law {
    /// None of them arrives.
    pub cut: bool,
    /// So many of a hundred pieces are as late as TCP makes what was lost.
    pub lost_per_cent: u8,
    /// So many of a thousand pieces reset their connection.
    pub reset_per_mille: u16,
    /// As much goes through a second.
    pub kbit_per_second: Option<u32>,
    /// Each piece is late by this, give or take a half of it.
    pub delay: Duration,
}

/// What can be done to bytes, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// They were held.
    Held,
    /// They were late, as what TCP sends again.
    Resent,
    /// They reset the connection.
    Reset,
    /// They took their time on a narrow cable.
    Waited,
    /// They were late.
    Late,
}

impl Harm {
    /// All of them.
    pub const ALL: [Harm; 5] = [Harm::Held, Harm::Resent, Harm::Reset, Harm::Waited, Harm::Late];
}

/// One direction between two nodes, with all connections that go by it.
pub struct Link {
    law: watch::Sender<Law>,
    cable: Arc<Cable>,
    counted: [AtomicU64; Harm::ALL.len()],
    seed: u64,
    connections: AtomicU64,
}

/// When the cable of a sender is free again.
#[derive(Default)]
pub struct Cable(Mutex<Option<Instant>>);

impl Link {
    /// Nothing is wrong with it.
    pub fn new(cable: Arc<Cable>, seed: u64) -> Link {
        let (law, _) = watch::channel(Law::default());
        Link { law, cable, counted: Default::default(), seed, connections: AtomicU64::new(0) }
    }

    /// From now on this holds.
    pub fn lay(&self, law: Law) {
        self.law.send_replace(law);
    }

    /// What holds now.
    pub fn law(&self) -> Law {
        *self.law.borrow()
    }

    /// How often this was done since it was last forgotten.
    pub fn count(&self, harm: Harm) -> u64 {
        self.counted.get(harm as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Counts from 0 again.
    pub fn forget(&self) {
        self.counted.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// It was done once more.
    pub fn note(&self, harm: Harm) {
        if let Some(count) = self.counted.get(harm as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The chance of one more connection, which no other one moves.
    pub fn dice(&self) -> StdRng {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        StdRng::seed_from_u64(self.seed.wrapping_add(number.wrapping_mul(0xD1B5_4A32_D192_ED03)))
    }

    /// Waits until bytes that are due then may go on: not before, unless nothing makes them late any more, and not while
    /// the link is cut.
    pub async fn opens(&self, due: Instant) {
        let mut laws = self.law.subscribe();
        loop {
            let law = *laws.borrow_and_update();
            let is_late = due > Instant::now() && law.makes_late();
            // It does not fail: the sender of laws is our own.
            match (law.cut, is_late) {
                (true, _) => drop(laws.changed().await),
                (false, true) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        changed = laws.changed() => drop(changed),
                    }
                }
                (false, false) => return,
            }
        }
    }

    /// Waits for the cable of the sender, where it is narrow.
    pub async fn squeezes(&self, bytes: usize) {
        let Some(kbit) = self.law().kbit_per_second else { return };
        let free = self.cable.take(bytes as u64, kbit, Instant::now());
        self.note(Harm::Waited);
        let mut laws = self.law.subscribe();
        tokio::select! {
            () = sleep_until(free) => {}
            widened = laws.wait_for(|law| law.kbit_per_second.is_none()) => drop(widened),
        }
    }
}

impl Law {
    /// Is nothing wrong?
    pub fn is_default(&self) -> bool {
        *self == Law::default()
    }

    fn makes_late(&self) -> bool {
        !self.delay.is_zero() || self.lost_per_cent > 0
    }

    /// How late the next piece is.
    pub fn delay(&self, dice: &mut StdRng) -> Duration {
        self.delay.mul_f64(dice.random_range(0.5..=1.5))
    }

    /// How late it is in addition, by being lost; mostly not at all.
    pub fn resent_after(&self, dice: &mut StdRng) -> Duration {
        let share = f64::from(self.lost_per_cent.min(100)) / 100.0;
        let lost = (0..LOST_TIMES).take_while(|_| dice.random_bool(share)).count() as u32;
        // 200, 600, 1,400 ms …
        RESENT_AFTER * (2_u32.pow(lost) - 1)
    }

    /// Does it reset the connection?
    pub fn resets(&self, dice: &mut StdRng) -> bool {
        dice.random_bool(f64::from(self.reset_per_mille.min(1_000)) / 1_000.0)
    }
}

impl Cable {
    /// Takes the cable for so many bytes; answers when they are through. Nothing goes at once, as a burst does before the
    /// cables of hosts (`crate::hosts`): those carry the mails too, and what peers say to each other would mostly fit in.
    fn take(&self, bytes: u64, kbit_per_second: u32, now: Instant) -> Instant {
        let lasts =
            |bytes: u64| Duration::from_secs_f64(bytes as f64 * 8.0 / (f64::from(kbit_per_second.max(1)) * 1e3));
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let through = free.unwrap_or(now).max(now) + lasts(bytes);
        *free = Some(through);
        through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_cable_carries_one_thing_after_the_other() {
        let (cable, now) = (Cable::default(), Instant::now());
        assert_eq!(cable.take(8_000, 64, now), now + Duration::from_secs(1));
        assert_eq!(cable.take(4_000, 64, now), now + Duration::from_millis(1_500));
        let later = now + Duration::from_secs(60);
        assert_eq!(cable.take(8_000, 64, later), later + Duration::from_secs(1), "it does not save up");
    }

    #[test]
    fn a_delay_is_off_by_a_half_at_most_and_the_same_by_the_same_chance() {
        let law = Law { delay: Duration::from_millis(200), ..Law::default() };
        let draw = || {
            let mut dice = StdRng::seed_from_u64(7);
            (0..1_000).map(|_| law.delay(&mut dice)).collect::<Vec<_>>()
        };
        assert!(draw().iter().all(|delay| (100..=300).contains(&delay.as_millis())));
        assert!(
            draw().iter().any(|delay| delay.as_millis() < 120) && draw().iter().any(|delay| delay.as_millis() > 280)
        );
        assert_eq!(draw(), draw());
    }

    #[test]
    fn what_is_lost_comes_when_tcp_sends_it_again() {
        let law = Law { lost_per_cent: 30, ..Law::default() };
        let mut dice = StdRng::seed_from_u64(7);
        let late: Vec<u128> = (0..1_000).map(|_| law.resent_after(&mut dice).as_millis()).collect();
        let lost = late.iter().filter(|late| **late > 0).count();
        assert!((200..400).contains(&lost), "{lost}");
        assert!(late.iter().all(|late| [0, 200, 600, 1_400, 3_000, 6_200].contains(late)));
        assert_eq!(Law::default().resent_after(&mut dice), Duration::ZERO);
    }
}
