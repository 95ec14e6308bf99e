//! Clock steering: ledger time follows the time on which the voters' clocks agree, slowly (P18).
//!
//! An actor of the leadership. If the clocks agreed when the epoch began, it reads them once a minute, also when they
//! disagree later. It steers the ledger clock toward the lower of the closest two, never by a jump. If no two agree, it
//! steers toward no clock. A leader whose own clock is off hands over. If the clocks did *not* agree when the epoch
//! began, it asks every five seconds, and an agreement begins another epoch.
//!
//! Readings are compared at one instant: the time since its answer came is added to each. So a reading is late by at
//! most the transit time of its answer, and never ahead.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::agreed_time;
use reveille_ledger::command::{EpochStart, MachineClock, VoterClock};
use reveille_ledger::ids::{Hash, NodeId};
use tokio::task::JoinSet;

use super::leadership::Leadership;
use super::transfer::{self, Unfit};
use crate::process::clock::Clock;
use crate::process::context::NodeContext;
use crate::process::peer_messages::{self, ReadClock};
use crate::worker::journal::boot_id;

/// Maximum time to wait for a voter's clock.
const CLOCK_READ_TIMEOUT: Duration = Duration::from_millis(400);
/// Time between two checks if the clocks agreed when the epoch began.
const STEER_EVERY: Duration = Duration::from_secs(60);
/// Time between two checks if the clocks disagreed when the epoch began.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A leader whose clock is further than this from the median hands over. Milliseconds (P18).
const OFF_MS_MAX: u64 = 2_000;

/// Returns the content of an epoch's first entry, and the instant of CLOCK_BOOTTIME at which its clock readings are
/// true. It stops asking when two clocks agree, so a voter that is down delays nothing.
pub(crate) async fn epoch_start(context: &Arc<NodeContext>) -> (EpochStart, Duration) {
    let voters = context.voters();
    let count = voters.len() as u32;
    let (readings, at) = ask(context, voters, |readings| agreed_time(count, readings).is_some()).await;
    (start_with(context, count, readings), at)
}

fn start_with(context: &NodeContext, voters: u32, readings: Vec<VoterClock>) -> EpochStart {
    let machine = machine_clock(context.clock.as_ref());
    EpochStart { leader: context.me, voters, readings, machine, accept_clock: context.accept_clock }
}

/// Returns the time since this machine was started, with its boot id; `None` if the boot id is unknown.
fn machine_clock(clock: &dyn Clock) -> Option<MachineClock> {
    let hash = Hash::of(boot_id().ok()?.as_bytes());
    let boot = u64::from_le_bytes(*hash.0.first_chunk()?);
    Some(MachineClock { boot, boot_ms: u64::try_from(clock.boot().as_millis()).unwrap_or(u64::MAX) })
}

/// Asks all voters for their clocks at the same time, until the readings are `enough`. Returns the readings, brought to
/// one instant, and that instant of CLOCK_BOOTTIME.
async fn ask(
    context: &Arc<NodeContext>,
    voters: Vec<NodeId>,
    enough: impl Fn(&[VoterClock]) -> bool,
) -> (Vec<VoterClock>, Duration) {
    let mut asked = JoinSet::new();
    for node in voters {
        let context = Arc::clone(context);
        asked.spawn(async move {
            let clock = peer_messages::ask(&context.replica.peer(node)?, ReadClock, CLOCK_READ_TIMEOUT).await.ok()?;
            Some((VoterClock { node, wall: clock.wall }, context.clock.boot()))
        });
    }
    let mut answers: Vec<(VoterClock, Duration)> = Vec::new();
    loop {
        let at = context.clock.boot();
        let mut readings: Vec<VoterClock> = answers.iter().map(|(reading, came)| later(*reading, at - *came)).collect();
        readings.sort_by_key(|reading| reading.node);
        let last = if enough(&readings) { None } else { asked.join_next().await };
        match last {
            Some(answer) => answers.extend(answer.ok().flatten()),
            None => return (readings, at),
        }
    }
}

/// Returns how far a node's clock is from this machine's, in milliseconds; `None` if it does not answer.
pub(crate) async fn clock_difference_ms(context: &NodeContext, node: NodeId) -> Option<i64> {
    let before = context.clock.wall();
    let read = peer_messages::ask(&context.replica.peer(node)?, ReadClock, CLOCK_READ_TIMEOUT).await.ok()?.wall;
    let after = context.clock.wall();
    // It was read at some time between the two.
    Some(read.since_ms(read.clamp(before, after.max(before))))
}

/// Returns a reading, moved forward by `passed`.
fn later(reading: VoterClock, passed: Duration) -> VoterClock {
    VoterClock { wall: reading.wall.plus_ms(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)), ..reading }
}

/// Steers until the leadership ends, or until it should end.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    if !leadership.clocks_agree() {
        return ask_until_they_agree(&context, &leadership).await;
    }
    let mut steering = Steering { agreed_before: true };
    while !leadership.ended() {
        if steering.check_clocks(&context, &leadership).await {
            return;
        }
        leadership.sleep(STEER_EVERY).await;
    }
}

/// Waits until another epoch would begin with clocks that agree.
async fn ask_until_they_agree(context: &Arc<NodeContext>, leadership: &Leadership) {
    let mut has_reported = false;
    while !leadership.ended() {
        let (start, _) = epoch_start(context).await;
        match context.replica.read(|ledger| ledger.agreed_by(&start)) {
            Ok(_) => {
                tracing::info!("the clocks agree: another epoch begins");
                return;
            }
            // A leader without answers from voters has lost its quorum, so their clocks are unknown.
            Err(cause) if !has_reported && can_compare(start.voters, &start.readings) => {
                tracing::error!("{cause}");
                has_reported = true;
            }
            Err(_) => {}
        }
        leadership.sleep(ASK_EVERY).await;
    }
}

struct Steering {
    /// True if the clocks agreed at the last check, or there was none yet.
    agreed_before: bool,
}

impl Steering {
    /// Reads the clocks and steers by them. Returns true if this node handed over because of its own clock.
    async fn check_clocks(&mut self, context: &Arc<NodeContext>, leadership: &Leadership) -> bool {
        let voters = context.voters();
        let count = voters.len() as u32;
        let (readings, at) = ask(context, voters, |_| false).await;
        if let Some(successors) = successors_if_off(&readings, context.me.node)
            && transfer::step_down(context, Unfit::CLOCK_IS_OFF, |successor| successors.contains(&successor)).await
        {
            return true;
        }
        if !can_compare(count, &readings) {
            leadership.stop_steering();
            return false;
        }
        let wall = agreed_time(count, &readings);
        let start = start_with(context, count, readings);
        let leapt =
            context.replica.read(|ledger| ledger.moved_ms(&start).unsigned_abs() > ledger.limits().clock_step_ms_max);
        let agreed = match wall {
            None => Err("no two voters' clocks agree within 2 s"),
            Some(_) if leapt => Err("the clock of this machine leapt"),
            Some(wall) => Ok(wall),
        };
        match agreed {
            Ok(wall) => leadership.steer(wall, at),
            Err(cause) => {
                leadership.stop_steering();
                if self.agreed_before {
                    tracing::error!(
                        "{cause}: ledger time goes on by this machine's count and follows no clock; put them right"
                    );
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
            }
        }
        self.agreed_before = agreed.is_ok();
        false
    }
}

/// Returns true if the readings can show if the clocks agree. One reading of several voters cannot: the other voters
/// are unreachable, and without them there is no quorum either.
fn can_compare(voters: u32, readings: &[VoterClock]) -> bool {
    readings.len() >= 2.min(voters as usize)
}

/// Returns the voters near the median if the clock of `own` is off the median of at least three readings (P18). `None`
/// if it is not off, or if no voter is near the median.
fn successors_if_off(readings: &[VoterClock], own: NodeId) -> Option<Vec<NodeId>> {
    let median = median(readings).filter(|_| readings.len() >= 3)?;
    let (near, far): (Vec<&VoterClock>, Vec<&VoterClock>) =
        readings.iter().partition(|reading| reading.wall.0.abs_diff(median) <= OFF_MS_MAX);
    let off = far.iter().any(|reading| reading.node == own) && !near.is_empty();
    off.then(|| near.iter().map(|reading| reading.node).collect())
}

/// Returns the middle reading, or the midpoint of the two middle ones. Milliseconds.
fn median(readings: &[VoterClock]) -> Option<i64> {
    let mut walls: Vec<i64> = readings.iter().map(|reading| reading.wall.0).collect();
    walls.sort_unstable();
    let (lower, upper) = (walls.get(walls.len().checked_sub(1)? / 2)?, walls.get(walls.len() / 2)?);
    Some(lower.midpoint(*upper))
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::Time;

    use super::*;

    fn readings(walls: &[i64]) -> Vec<VoterClock> {
        walls.iter().zip(1..).map(|(wall, node)| VoterClock { node: NodeId(node), wall: Time(*wall) }).collect()
    }

    #[test]
    fn leader_off_the_median_clock_hands_over_to_node_near_it() {
        let three = readings(&[12_001, 10_000, 9_500]);
        assert_eq!(successors_if_off(&three, NodeId(1)), Some(vec![NodeId(2), NodeId(3)]));
        assert_eq!(successors_if_off(&three, NodeId(2)), None, "it is the others that are off");
        assert_eq!(successors_if_off(&readings(&[12_000, 10_000, 9_500]), NodeId(1)), None, "two seconds are not more");
        let slow = readings(&[1_000, 10_000, 10_100, 99_000]);
        assert_eq!(successors_if_off(&slow, NodeId(1)), Some(vec![NodeId(2), NodeId(3)]));
    }

    #[test]
    fn two_readings_have_no_median_to_be_off() {
        assert_eq!(successors_if_off(&readings(&[99_000, 10_000]), NodeId(1)), None);
        assert_eq!(successors_if_off(&[], NodeId(1)), None);
    }

    #[test]
    fn leader_without_better_clock_elsewhere_goes_on() {
        assert_eq!(successors_if_off(&readings(&[0, 0, 10_000, 10_000]), NodeId(1)), None, "halfway is no voter");
        let own_did_not_come = readings(&[0, 1, 2]);
        assert_eq!(successors_if_off(&own_did_not_come, NodeId(9)), None);
    }

    #[test]
    fn clocks_of_voters_that_do_not_answer_are_not_said_to_disagree() {
        assert!(!can_compare(3, &readings(&[10_000])), "two of three are down");
        assert!(!can_compare(3, &[]));
        assert!(can_compare(3, &readings(&[10_000, 99_000])), "two answer, and disagree");
        assert!(can_compare(1, &readings(&[10_000])), "the only voter");
    }

    #[test]
    fn clock_reading_ages_with_elapsed_time() {
        let reading = VoterClock { node: NodeId(1), wall: Time(1_000) };
        assert_eq!(later(reading, Duration::from_millis(250)).wall, Time(1_250));
    }
}
