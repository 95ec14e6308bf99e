//! Starts lives, armed; notices where they end; and leads them to places that mail alone does not lead to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::SeedableRng;
use rand::rngs::StdRng;
use reveille_check::history::{Event, Fault, FaultKind, FaultStatus};

use super::SHORT_LOGS;
use super::arms::{Arms, is_on_a_mails_way};
use super::feed::Feed;
use crate::orders::Came;
use crate::run::nemesis::Nemesis;
use crate::run::stage::{Doing, End};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A life that comes by none of its points is asked to stop after this, and killed when it does not.
const LIVES_FOR: Duration = Duration::from_secs(9);
/// One that is armed with places on the way of a mail waits for its turn: nodes that died three times with claims rest,
/// and where all would rest, one at a time is given any: the one that died least recently (P12).
const WAITS_FOR: Duration = Duration::from_secs(24);
/// One that is armed with nothing keeps others from their turn.
const UNARMED_FOR: Duration = Duration::from_secs(5);
const STOPS_WITHIN: Duration = Duration::from_secs(8);
/// One life in so many is armed with nothing.
const SPARED_ONE_IN: u32 = 6;
/// A node that is to need a snapshot is away for at most so long.
const AWAY_AT_MOST: Duration = Duration::from_secs(25);
/// Leadership is handed over so often while somebody wants it.
const HANDED_OVER_EVERY: Duration = Duration::from_secs(6);
/// And a leader cut off from its followers, as soon as all are up.
const ALONE_EVERY: Duration = Duration::from_secs(5);
/// It writes for itself alone for so long: far less than a lease.
const ALONE_FOR: Duration = Duration::from_millis(800);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(15);
/// Entries that the log has to grow by before a node cannot be caught up without a snapshot.
const FAR: u64 = SHORT_LOGS.0 + SHORT_LOGS.1 + 20;
/// Points that lead to each other by the same way.
const BY_SNAPSHOT: [&str; 6] = [
    "snapshot.offer",
    "snapshot.send-chunk",
    "snapshot.take-chunk",
    "snapshot.install",
    "machine.replace",
    "wal.purge",
];
/// Of those, on the receiving side: a life that ended there is still without the snapshot.
const BEFORE_THE_SNAPSHOT: [&str; 3] = ["snapshot.offer", "snapshot.take-chunk", "snapshot.install-before-rename"];

/// What a node is about.
#[derive(Clone, Copy, Debug)]
enum Seat {
    /// It runs until then, unless it dies before.
    Runs(Instant),
    /// It was asked to stop, then.
    Leaves(Instant),
    /// It is to be started then, and if it has to be away for longer, when the log has come to this index.
    Away(Instant, Option<u64>),
}

/// The one who drives.
pub struct Drive<'a> {
    nemesis: &'a mut Nemesis,
    arms: &'a mut Arms,
    feed: &'a Feed,
    dice: StdRng,
    seats: BTreeMap<String, Seat>,
    /// With which point the next life of a node is armed for certain.
    surely: BTreeMap<String, &'static str>,
    handed_over: Instant,
    alone: Instant,
    told: Instant,
}

impl<'a> Drive<'a> {
    /// All nodes run, unarmed.
    pub fn new(nemesis: &'a mut Nemesis, arms: &'a mut Arms, feed: &'a Feed, seed: u64) -> Drive<'a> {
        let now = Instant::now();
        // The unarmed lives are over soon, one after the other.
        let until = |place: usize| now + Duration::from_secs(place as u64);
        let names = nemesis.stage.names().into_iter().enumerate();
        let seats = names.map(|(place, name)| (name, Seat::Runs(until(place)))).collect();
        let (dice, surely) = (StdRng::seed_from_u64(seed), BTreeMap::new());
        Drive { nemesis, arms, feed, dice, seats, surely, handed_over: now, alone: now, told: now }
    }

    /// Goes on until every point was died at often enough, or until this instant; then all are started unarmed.
    pub async fn until(mut self, until: Instant) -> Result<()> {
        while Instant::now() < until && self.arms.left().next().is_some() {
            self.notice()?;
            self.move_on()?;
            if self.handed_over.elapsed() > HANDED_OVER_EVERY {
                self.handed_over = Instant::now();
                self.hand_over()?;
            }
            if self.arms.wants("wal.truncate") && self.alone.elapsed() > ALONE_EVERY {
                self.write_alone().await?;
            }
            if !self.arms.wants("admin.upload") && !self.arms.wants("admin.seal") {
                self.feed.stop_importing();
            }
            self.tell();
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.disarm().await
    }

    /// Writes down who died, and where.
    fn notice(&mut self) -> Result<()> {
        for End { node, point, led_epoch } in self.nemesis.stage.look_for_ends()? {
            let away = Duration::from_millis(Arms::away_ms(&mut self.dice));
            // Whoever died on the way to a snapshot needs it still; others are led to it, as long as a quorum is left.
            let goes_on = point.as_deref().filter(|point| BEFORE_THE_SNAPSHOT.contains(point));
            if let Some(next) = goes_on.and_then(|point| self.by_snapshot(point)) {
                self.surely.insert(node.clone(), next);
            }
            // One without a point was asked to stop, or is a surprise, which the stage has kept.
            if let Some(point) = point {
                self.arms.hit(&point);
                self.nemesis.stage.recorder.event(&Event::Fault(died(&node, &point, self.now_ns(), led_epoch)));
            }
            let far_ones = self.seats.values().filter(|seat| matches!(seat, Seat::Away(_, Some(_)))).count();
            let may_be_far = !self.surely.contains_key(&node) && far_ones < (self.seats.len() - 1) / 2;
            let is_far = may_be_far && BY_SNAPSHOT.iter().any(|name| self.arms.wants(name));
            let far = is_far && Arms::one_in(&mut self.dice, 2);
            self.seats.insert(node, Seat::Away(Instant::now() + away, far.then(|| self.feed.applied() + FAR)));
        }
        Ok(())
    }

    /// Starts who was away long enough, and asks those to stop that come by nothing.
    fn move_on(&mut self) -> Result<()> {
        let now = Instant::now();
        for (node, seat) in self.seats.clone() {
            match seat {
                Seat::Away(until, index) if now >= until => {
                    let is_far = index.is_none_or(|index| self.feed.applied() >= index);
                    if is_far || now > until + AWAY_AT_MOST {
                        // Whoever needs a snapshot now is armed with what that leads to.
                        let surely = self.surely.remove(&node).or_else(|| index.and_then(|_| self.by_snapshot("")));
                        // Where all die all the time nothing is sent, and most points are never come by.
                        let spared = surely.is_none() && Arms::one_in(&mut self.dice, SPARED_ONE_IN);
                        let armed = (!spared).then(|| self.arms.draw(&mut self.dice, surely));
                        self.nemesis.stage.start_armed(&node, armed.as_deref())?;
                        self.seats.insert(node, Seat::Runs(now + life(armed.as_deref())));
                    }
                }
                // On a machine that is busy with other things a life may not be ready yet: nobody is hurried unless
                // somebody leads.
                Seat::Runs(until) if now > until && self.nemesis.stage.is_led() => {
                    self.nemesis.stage.ask_to_stop(&node)?;
                    self.seats.insert(node, Seat::Leaves(now));
                    // One at a time.
                    return Ok(());
                }
                Seat::Leaves(since) if now > since + STOPS_WITHIN => {
                    self.kill(&node, "it did not stop")?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The next of the points on the receiving side that is still wanted, after the one that it died at.
    fn by_snapshot(&self, died_at: &str) -> Option<&'static str> {
        let passed = BEFORE_THE_SNAPSHOT.iter().position(|point| *point == died_at).map_or(0, |place| place + 1);
        let next = BEFORE_THE_SNAPSHOT.into_iter().skip(passed).find(|point| self.arms.wants(point));
        // Behind either of these it is caught up.
        let mut at_the_end = ["snapshot.install-after-rename", "machine.replace"];
        at_the_end.sort_by_key(|point| self.arms.hits().get(*point).copied());
        next.or_else(|| at_the_end.into_iter().find(|point| self.arms.wants(point)))
    }

    /// Somebody else is to lead.
    fn hand_over(&mut self) -> Result<()> {
        if self.arms.wants("lifecycle.leadership-lost") || self.arms.wants("wal.vote") {
            let admin = self.nemesis.operator.admin.clone();
            let mut fault = blank(FaultKind::Transfer, "leadership handed over", self.now_ns());
            self.nemesis.orders.spawn(async move {
                let came = admin.transfer_leader().await;
                fault.status = match came {
                    Came::Done(_) => FaultStatus::Installed,
                    Came::Refused(_) => FaultStatus::Skipped,
                    Came::Unknown => FaultStatus::Indeterminate,
                };
                (fault.observed, fault.word) = (None, format!("{came:?}"));
                fault
            });
        }
        while let Some(ended) = self.nemesis.orders.try_join_next() {
            self.nemesis.stage.recorder.event(&Event::Fault(ended?));
        }
        Ok(())
    }

    /// The leader appends what nobody else gets, and is killed: when it comes back, another one has led, and its log has to
    /// be cut.
    async fn write_alone(&mut self) -> Result<()> {
        let stage = &mut self.nemesis.stage;
        let Some((leader, led_epoch)) = stage.leader() else { return Ok(()) };
        let others: Vec<String> = stage.names().into_iter().filter(|name| *name != leader).collect();
        let runs = |name: &String| stage.doing(name) == Doing::Runs;
        let all_settled = self.seats.values().all(|seat| matches!(seat, Seat::Runs(_)));
        if !all_settled || !runs(&leader) || !others.iter().all(runs) {
            return Ok(());
        }
        self.alone = Instant::now();
        let mut pauses = Vec::new();
        for name in &others {
            let from_ns = stage.recorder.now_ns();
            let past_gate = stage.past_gate(name);
            if stage.pause(name).is_ok() {
                let mut fault = blank(FaultKind::Pause, "SIGSTOP of a follower", from_ns);
                (fault.nodes, fault.past_gate) = (vec![name.clone()], Some(past_gate));
                pauses.push(fault);
            }
        }
        tokio::time::sleep(ALONE_FOR).await;
        self.surely.insert(leader.clone(), "wal.truncate");
        let killed = self.kill_led(&leader, "a leader that writes alone", Some(led_epoch));
        let stage = &mut self.nemesis.stage;
        for mut fault in pauses {
            for name in &fault.nodes {
                stage.resume(name)?;
            }
            fault.until_ns = Some(stage.recorder.now_ns());
            stage.recorder.event(&Event::Fault(fault));
        }
        killed
    }

    fn kill(&mut self, node: &str, why: &str) -> Result<()> {
        self.kill_led(node, why, None)
    }

    fn kill_led(&mut self, node: &str, why: &str, led_epoch: Option<u64>) -> Result<()> {
        // It may have come by its point meanwhile.
        self.notice()?;
        let stage = &self.nemesis.stage;
        let mut fault = blank(FaultKind::Kill, &format!("kill -9: {why}"), stage.recorder.now_ns());
        let past_gate = stage.past_gate(node);
        if stage.doing(node) == Doing::Runs {
            let victim = self.nemesis.victim(node, past_gate > 0);
            self.nemesis.stage.kill(node)?;
            self.nemesis.count_kill(victim, past_gate > 0, past_gate);
            (fault.nodes, fault.past_gate, fault.led_epoch) = (vec![node.to_owned()], Some(past_gate), led_epoch);
            fault.inside_data = Some(past_gate > 0);
            self.nemesis.stage.recorder.event(&Event::Fault(fault));
        }
        let away = Duration::from_millis(Arms::away_ms(&mut self.dice));
        // The others need a moment to elect one of them.
        let longer = if led_epoch.is_some() { Duration::from_secs(2) } else { Duration::ZERO };
        self.seats.insert(node.to_owned(), Seat::Away(Instant::now() + away + longer, None));
        Ok(())
    }

    fn tell(&mut self) {
        if self.told.elapsed() > TELL_EVERY {
            self.told = Instant::now();
            let left: Vec<&str> = self.arms.left().collect();
            let deaths: u32 = self.arms.hits().values().sum();
            eprintln!("  {deaths} deaths; {} points left: {}", left.len(), left.join(" "));
        }
    }

    /// Everybody is stopped and started without any point.
    async fn disarm(&mut self) -> Result<()> {
        for name in self.nemesis.stage.names() {
            self.notice()?;
            if self.nemesis.stage.doing(&name) != Doing::Down {
                self.nemesis.stage.resume(&name)?;
                self.nemesis.stage.ask_to_stop(&name)?;
                let asked = Instant::now();
                while self.nemesis.stage.doing(&name) != Doing::Down {
                    if asked.elapsed() > STOPS_WITHIN {
                        self.kill(&name, "it did not stop")?;
                    }
                    self.notice()?;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            self.nemesis.stage.start_armed(&name, None)?;
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.nemesis.stage.recorder.now_ns()
    }
}

/// How long a life goes on that comes by none of what it is armed with.
fn life(armed: Option<&str>) -> Duration {
    match armed {
        None => UNARMED_FOR,
        Some(armed) if armed.split(';').any(is_on_a_mails_way) => WAITS_FOR,
        Some(_) => LIVES_FOR,
    }
}

fn died(node: &str, point: &str, at_ns: u64, led_epoch: Option<u64>) -> Fault {
    let mut fault = blank(FaultKind::CrashPoint, point, at_ns);
    (fault.nodes, fault.led_epoch) = (vec![node.to_owned()], led_epoch);
    fault
}

/// One whose effect is seen by whoever does it.
fn blank(kind: FaultKind, name: &str, from_ns: u64) -> Fault {
    Fault { observed: Some(true), ..Fault::installed(kind, name.to_owned(), Vec::new(), from_ns) }
}
