//! The first line of a history: the figures by which a run is judged, the requested invariants, and the coverage that
//! the run must have.

use std::collections::BTreeMap;
use std::time::SystemTime;

use reveille_check::events::{Coverage, FORMAT, FaultKind, Header, Policies};
use reveille_check::time::LEASE_MS;

use reveille_harness::Cluster;
use reveille_harness::measure::unix_us;

use super::faults::{Family, FaultAction, PlannedFault};
use super::options::{Alone, Args, Due, command};
use super::scenario::commit;
use super::workload::{WorkloadLimits, sessions};

/// Number of families that all act within a fault phase of [`TURNS_SECONDS`].
const FEW_FAMILIES: usize = 5;
const TURNS_SECONDS: u64 = 60;
/// Seconds of a fault phase within which all families act.
const ALL_HAVE_TURNS_SECONDS: u64 = 600;
/// Two clocks that differ by less agree (P18). Without clock faults all nodes share one clock, which is read in
/// milliseconds and slewed.
const CLOCK_ERROR_MS: u64 = 2_000;
const ONE_CLOCK_ERROR_MS: u64 = 100;
/// The default `finish_by` of a schedule (proto, `Policies`).
const FINISH_WITHIN_MS: u64 = 24 * 3_600_000;
/// Minimum time for which a run is open before it expires.
const FINISH_AT_LEAST_MS: u64 = 600_000;
/// Maximum lateness of an opening with a quorum: longer than the longest fault and an election.
const LATE_MS: u64 = 20_000;
/// Maximum delay of a run's first email beside a campaign that exceeds its rate (I12): the run opens late, and the node
/// with the first claim may be dead.
const START_BOUND_MS: u64 = LATE_MS + LEASE_MS;
/// Minimum number of schedules that start beside a campaign of [`BULK_MIN`] recipients for I12 to be judged.
const STARTS_MIN: u32 = 10;
const BULK_MIN: u32 = 40;
/// Number of planned kills between dot and 250 from which one is required. Most of them succeed.
const INSIDE_MIN: usize = 4;

/// Returns the header.
pub(super) fn header(
    args: &Args,
    families: &[Family],
    plan: &[PlannedFault],
    limits: &WorkloadLimits,
    cluster: &Cluster,
) -> Header {
    let ((schedules, recipients), campaign) = (args.sizes(), args.campaign_size());
    let (alone, seconds) = (args.nemesis.alone, args.seconds as u32);
    let kills = families.contains(&Family::Kill) && args.seconds >= 20;
    // A broken relay delays every start.
    let starts_are_timed = campaign >= BULK_MIN
        && schedules >= STARTS_MIN
        && args.ledger_time_is_ours(families)
        && !families.contains(&Family::Relay);
    let inside = plan.iter().filter(|planned| matches!(planned.action, FaultAction::Kill { inside: true, .. })).count();
    Header {
        // I15 has a bound in seconds, which a build without optimization does not keep.
        asks: asks(args.ledger_time_is_ours(families) && alone != Some(Alone::CrashPoints), starts_are_timed)
            .into_iter()
            .chain(limits.has_budgets().then_some(18))
            .chain([19])
            .collect(),
        start_bound_ms: starts_are_timed.then_some(START_BOUND_MS),
        coverage: Coverage {
            mails_per_second: match (alone, args.workload) {
                // The points prove that emails are sent, because half of them are on the path of an email.
                (Some(Alone::CrashPoints), _) => 0,
                (Some(_), _) => recipients / (2 * seconds),
                // A quarter of the emails that are due, without the campaign, because faults may delay the rest. On the
                // test clock fewer emails are due, because it stands still without a leader.
                (None, Due::Once) => recipients / (4 * seconds),
                (None, Due::Daily) => recipients / (10 * seconds),
            },
            kills_inside_data: u32::from(kills && inside >= INSIDE_MIN),
            faults: match alone {
                None => must_be_seen(families.len(), plan, kills, args.seconds),
                Some(Alone::Failover) => BTreeMap::from([(FaultKind::Kill, plan.len() as u32)]),
                Some(Alone::CrashPoints) => BTreeMap::from([(FaultKind::CrashPoint, 1)]),
                Some(Alone::Busy | Alone::Loss) => BTreeMap::new(),
            },
        },
        // A recipient whose dialogue broke twice waits two minutes, and then for the next retry wave.
        drain_within_ms: (args.seconds + 180) * 1_000,
        sessions: sessions(limits),
        clock_error_ms: match (families.contains(&Family::Clock), args.workload) {
            (false, Due::Once) => ONE_CLOCK_ERROR_MS,
            _ => CLOCK_ERROR_MS,
        },
        format: FORMAT,
        seed: args.seed,
        command: command(args.seed),
        commit: commit(),
        began_unix_ms: unix_us(SystemTime::now()) / 1_000,
        nodes: cluster.nodes().iter().map(|node| node.name.clone()).collect(),
        voters: Some(cluster.founders().len() as u32),
        in_doubt: args.policy(),
        late_ms: LATE_MS,
        policies: Policies {
            finish_within_ms: Some(FINISH_WITHIN_MS),
            finish_at_least_ms: FINISH_AT_LEAST_MS,
            may_skip: false,
        },
        ..Header::default()
    }
}

/// Returns the kinds of faults whose effect must be observed: the drawn kinds with a certain effect, if all families
/// act.
fn must_be_seen(families: usize, plan: &[PlannedFault], kills: bool, seconds: u64) -> BTreeMap<FaultKind, u32> {
    use FaultKind::{
        Backup, Join, Kill, Link, NodeLost, Operator, Partition, Pause, PowerCut, Relay, Restart, Rotation, Upgrade,
    };
    let have_turns = (families <= FEW_FAMILIES && seconds >= TURNS_SECONDS) || seconds >= ALL_HAVE_TURNS_SECONDS;
    let is_certain = |kind: &FaultKind| {
        have_turns
            && matches!(
                kind,
                Pause
                    | Partition
                    | Link
                    | PowerCut
                    | Relay
                    | Restart
                    | Operator
                    | Rotation
                    | Backup
                    | Upgrade
                    | NodeLost
            )
    };
    let drawn = plan.iter().map(|planned| planned.action.kind()).filter(is_certain);
    // A node that joins is planned as the loss of another one.
    let joins = drawn.clone().any(|kind| kind == NodeLost).then_some(Join);
    kills.then_some(Kill).into_iter().chain(joins).chain(drawn).map(|kind| (kind, 1)).collect()
}

/// Returns the invariants to judge. I15 needs ledger time, which is wrong if clocks are wrong.
fn asks(clocks_are_right: bool, starts_are_timed: bool) -> Vec<u8> {
    let timed = clocks_are_right.then_some(15);
    let apart = starts_are_timed.then_some(12);
    [3, 5, 6, 7, 8, 10, 11, 13, 14, 16, 17].into_iter().chain(timed).chain(apart).collect()
}
