//! By which figures a run is judged, what is asked of it, and what it must have exercised: the first line of its history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use reveille_check::history::{Clock, Coverage, FORMAT, FaultKind, Header, Policies};

use super::limits::{self, Limits};
use super::options::{Args, Due, Policy};
use super::plan::{Blow, Family, Strike};
use super::{SESSIONS, nemesis, verdict};
use crate::cluster::Cluster;
use crate::measure::unix_us;
use crate::wires::Wires;

/// Families that all have their turn in a fault phase of so many seconds.
const FEW_FAMILIES: usize = 5;
const TURNS_SECONDS: u64 = 60;
/// And in one of so many, all of them.
const ALL_HAVE_TURNS_SECONDS: u64 = 600;
/// P9: a lease, and what a leader waits on top of it.
const LEASE_MS: u64 = 4_000;
const MARGIN_MS: u64 = 1_000;
/// P12.
const CLAIM_CAP: u32 = 4_096;
/// P18: so far apart two clocks may be that agree. On a machine whose clocks are left alone there is one clock, which is
/// read in milliseconds and slewed.
const CLOCK_ERROR_MS: u64 = 2_000;
const ONE_CLOCK_ERROR_MS: u64 = 100;
/// `finish_by` of a schedule that says nothing of it (proto, `Policies`).
const FINISH_WITHIN_MS: u64 = 24 * 3_600_000;
/// And not before it was open for so long, whatever comes next.
const FINISH_AT_LEAST_MS: u64 = 600_000;
/// With a quorum, an instant opens at most so late: longer than the longest fault lasts, and an election.
const LATE_MS: u64 = 20_000;
/// And its first mail goes at most so late, beside a campaign that is more than its rate lets through (I12): it opens, and
/// who was granted it first may be dead.
const START_BOUND_MS: u64 = LATE_MS + LEASE_MS + MARGIN_MS;
/// It is asked where so many start that some do beside the campaign, and where that lasts a while.
const STARTS_MIN: u32 = 10;
const CROWD_MIN: u32 = 40;
/// One between a dot and its 250 is asked for where so many are aimed there: each meets one in most cases.
const INSIDE_MIN: usize = 4;

/// Of `run`.
pub(super) fn header(args: &Args, families: &[Family], plan: &[Strike], limits: &Limits, cluster: &Cluster) -> Header {
    let ((schedules, recipients), campaign) = (args.sizes(), args.campaign_size());
    let kills = families.contains(&Family::Kill) && args.seconds >= 20;
    // A relay that is broken on purpose keeps anybody from starting.
    let starts_are_timed = campaign >= CROWD_MIN
        && schedules >= STARTS_MIN
        && args.ledger_time_is_ours(families)
        && !families.contains(&Family::Relay);
    let inside = plan.iter().filter(|strike| matches!(strike.blow, Blow::Kill { inside: true, .. })).count();
    let links = cluster.footing().wires.as_ref().ok().map(Wires::name);
    Header {
        asks: asks(args.ledger_time_is_ours(families), starts_are_timed)
            .into_iter()
            .chain(limits.has_budgets().then_some(18))
            .chain([19])
            .collect(),
        start_bound_ms: starts_are_timed.then_some(START_BOUND_MS),
        coverage: Coverage {
            // A quarter of what is due, the campaign left out: faults may keep the rest for later. Days stand still while
            // nobody leads, so less of them is due meanwhile.
            mails_per_second: recipients / (if args.workload == Due::Daily { 10 } else { 4 } * args.seconds as u32),
            kills_inside_data: u32::from(kills && inside >= INSIDE_MIN),
            faults: must_be_seen(families, plan, kills, args.seconds),
        },
        drain_within_ms: (args.seconds + 60) * 1_000,
        sessions: limits::sessions(limits),
        clock_error_ms: match (families.contains(&Family::Clock), args.workload) {
            (false, Due::Once) => ONE_CLOCK_ERROR_MS,
            _ => CLOCK_ERROR_MS,
        },
        ..plain_header(args.seed.0, args.command(links), args.policy(), cluster)
    }
}

/// Kinds of faults of which an effect must have been seen: of each family whose effect nobody can miss, where there are
/// few enough for all of them to have their turn. Nothing is asked for that the seed did not draw.
fn must_be_seen(families: &[Family], plan: &[Strike], kills: bool, seconds: u64) -> BTreeMap<FaultKind, u32> {
    let kills = kills.then_some((FaultKind::Kill, 1));
    let have_turns = (families.len() <= FEW_FAMILIES && seconds >= TURNS_SECONDS) || seconds >= ALL_HAVE_TURNS_SECONDS;
    let plain = families.iter().filter(|_| have_turns).filter_map(|family| match family {
        Family::Pause => Some((FaultKind::Pause, 1)),
        Family::Partition => Some((FaultKind::Partition, 1)),
        Family::Link => Some((FaultKind::Link, 1)),
        Family::Power => Some((FaultKind::PowerCut, 1)),
        Family::Relay => Some((FaultKind::Relay, 1)),
        Family::Roll => Some((FaultKind::Restart, 1)),
        Family::Operator => Some((FaultKind::Operator, 1)),
        _ => None,
    });
    let drawn: BTreeSet<FaultKind> = plan.iter().map(|strike| nemesis::kind(&strike.blow)).collect();
    let plain = plain.filter(|(kind, _)| drawn.contains(kind));
    kills.into_iter().chain(plain).collect()
}

/// What holds of every run of ours; whoever uses it says what it asks and what it must have exercised.
pub(super) fn plain_header(seed: u64, command: String, in_doubt: Policy, cluster: &Cluster) -> Header {
    Header {
        format: FORMAT,
        seed,
        command,
        commit: verdict::commit(),
        clock: Clock::Wall,
        began_unix_ms: unix_us(SystemTime::now()) / 1_000,
        nodes: cluster.nodes().iter().map(|node| node.name.clone()).collect(),
        in_doubt: in_doubt.judged(),
        lease_ms: LEASE_MS,
        margin_ms: MARGIN_MS,
        sessions: SESSIONS,
        claim_cap: CLAIM_CAP,
        clock_error_ms: ONE_CLOCK_ERROR_MS,
        late_ms: LATE_MS,
        drain_within_ms: 0,
        led_within_ms: None,
        start_bound_ms: None,
        policies: Policies {
            finish_within_ms: Some(FINISH_WITHIN_MS),
            finish_at_least_ms: FINISH_AT_LEAST_MS,
            may_skip: false,
        },
        asks: Vec::new(),
        coverage: Coverage::default(),
    }
}

/// Rows are timed by the ledger, which says nothing where clocks are wrong.
pub(super) fn asks(clocks_are_right: bool, starts_are_timed: bool) -> Vec<u8> {
    let timed = clocks_are_right.then_some(15);
    let apart = starts_are_timed.then_some(12);
    [3, 5, 6, 7, 8, 10, 11, 13, 14, 16, 17].into_iter().chain(timed).chain(apart).collect()
}
