//! Tests of the checker. One good history is accepted. Each change that makes it bad is rejected by the invariant that
//! forbids the change, and by no other invariant.

mod bad;
mod coverage;
mod excuses;
mod good;
mod limits;
mod mutations;
mod relay;
mod unknown;

use std::collections::BTreeSet;

use good::{TestHistory, good, ns};
use reveille_check::events::FaultKind;
use reveille_check::judgement::InvariantNumber;
use reveille_check::{Judgement, Verdict};

/// Returns the numbers of the invariants that are false.
fn broken(judgement: &Judgement) -> BTreeSet<u8> {
    let broken = judgement.invariants.iter().filter(|(_, verdict)| verdict.is_false());
    broken.map(|(name, _)| name.0).collect()
}

/// Returns the numbers of the invariants whose verdict is unknown.
fn unknown(judgement: &Judgement) -> BTreeSet<u8> {
    let unknown = judgement.invariants.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Unknown { .. }));
    unknown.map(|(name, _)| name.0).collect()
}

/// Returns the verdict on one invariant.
fn verdict(history: &TestHistory, number: u8) -> Verdict {
    history.judge().invariants[&InvariantNumber(number)].clone()
}

/// Asserts that a history is valid, and returns its judgement.
#[track_caller]
fn accepted(history: &TestHistory) -> Judgement {
    let judgement = history.judge();
    assert!(judgement.valid, "\n{}", judgement.table());
    judgement
}

/// Asserts that exactly these invariants reject a history.
#[track_caller]
fn rejected(history: &TestHistory, by: &[u8]) {
    let judgement = history.judge();
    assert_eq!(broken(&judgement), by.iter().copied().collect(), "\n{}", judgement.table());
    assert!(!judgement.valid);
    assert!(judgement.coverage.is_true(), "\n{}", judgement.table());
}

/// Returns the good history with this change.
#[track_caller]
fn with(change: impl FnOnce(&mut TestHistory)) -> TestHistory {
    let mut history = good();
    change(&mut history);
    assert!(history.events != good().events || history.ended != good().ended, "nothing was changed");
    history
}

#[test]
fn good_history_is_accepted_and_counted() {
    let judgement = accepted(&good());
    assert_eq!(judgement.invariants.len(), 19);
    assert_eq!((judgement.recipients, judgement.accepted), (106, 103));
    assert_eq!((judgement.duplicates, judgement.lost), (0, Some(0)));
    assert_eq!(judgement.duplicates_decided, 0);
    assert_eq!((judgement.in_doubt, judgement.in_doubt_arrived, judgement.in_doubt_allowed), (2, 2, 2));
    let failovers = &judgement.failovers;
    assert_eq!((failovers.leader_ms.max, failovers.email_ms.max), (Some(2_000.0), Some(3_000.0)));
    let line = judgement.json().unwrap();
    assert!(
        line.starts_with(r#"{"seed":7,"commit":"0000000","valid":true,"recipients":106,"accepted":103,"#),
        "{line}"
    );
    assert!(line.contains(r#""I1":{"verdict":"true"}"#) && line.contains(r#""kill":{"installed":1,"#), "{line}");
    assert!(judgement.table().contains("VALID"));
}

#[test]
fn failover_counts_from_when_majority_is_up() {
    let paused = |until_s| {
        with(|history| {
            let fault = history.fault(FaultKind::Pause, &["n3"], 21.2);
            fault.until_ns = Some(ns(until_s));
        })
    };
    let judgement = paused(22.5).judge();
    let found = &judgement.failovers;
    assert_eq!((found.leader_ms.max, found.email_ms.max), (Some(500.0), Some(1_500.0)), "two of three from 22.5 s on");
    let later = paused(23.5).judge();
    assert_eq!(later.failovers.leader_ms.count, 0, "no majority");
    let twice = with(|history| history.fault(FaultKind::Clock, &["n2"], 20.0).led_epoch = Some(10));
    assert_eq!(twice.judge().failovers.leader_ms.max, Some(2_000.0), "the leader went on after the first fault");
}

#[test]
fn order_of_events_means_nothing() {
    let backwards = with(|history| history.events.reverse());
    assert_eq!(backwards.judge(), good().judge());
    assert_eq!(backwards.judge_in_memory(), good().judge());
}
