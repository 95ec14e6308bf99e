//! Runs that did not exercise the system: nothing is wrong with them, and they do not count.

use reveille_check::Verdict;
use reveille_check::events::*;

use crate::good::{TestHistory, good};
use crate::{accepted, broken, with};

fn fault(history: &mut TestHistory, kind: FaultKind, change: impl Fn(&mut Fault)) {
    for event in &mut history.events {
        match event {
            Event::Fault(fault) if fault.kind == kind => change(fault),
            _ => {}
        }
    }
}

#[track_caller]
fn does_not_count(history: &TestHistory) -> Verdict {
    let judgement = history.judge();
    assert!(broken(&judgement).is_empty() && !judgement.valid, "\n{}", judgement.table());
    judgement.coverage
}

#[test]
fn fault_without_effect_does_not_count() {
    let without = with(|history| fault(history, FaultKind::Pause, |fault| fault.observed = Some(false)));
    assert!(does_not_count(&without).is_false());
    let unseen = with(|history| fault(history, FaultKind::Pause, |fault| fault.observed = None));
    assert!(matches!(does_not_count(&unseen), Verdict::Unknown { .. }));
    let open = with(|history| {
        fault(history, FaultKind::Pause, |fault| {
            (fault.status, fault.observed) = (FaultStatus::Indeterminate, None);
        });
    });
    assert!(matches!(does_not_count(&open), Verdict::Unknown { .. }));
}

#[test]
fn fault_that_was_asked_for_and_is_missing_does_not_count() {
    let mut asked = good();
    asked.header.coverage.faults.insert(FaultKind::Clock, 1);
    assert!(does_not_count(&asked).is_false());
    asked.header.coverage.faults = [(FaultKind::Kill, 2)].into();
    assert!(does_not_count(&asked).is_false());
}

#[test]
fn fault_this_machine_cannot_inject_is_named_and_ignored() {
    let judgement = good().judge();
    assert_eq!(judgement.faults[&FaultKind::PowerCut].skipped, 1);
    assert!(judgement.coverage.is_true());
    let mut nothing = good();
    nothing.header.coverage.faults = [(FaultKind::PowerCut, 1)].into();
    nothing.header.coverage.kills_inside_data = 0;
    for kind in [FaultKind::Kill, FaultKind::Pause, FaultKind::Relay] {
        fault(&mut nothing, kind, |fault| fault.observed = Some(false));
    }
    assert!(does_not_count(&nothing).is_false(), "everything was skipped");
}

#[test]
fn fault_without_target_makes_run_invalid() {
    let no_target = with(|history| {
        fault(history, FaultKind::PowerCut, |fault| (fault.cannot, fault.detail) = (false, "no node runs".to_owned()));
    });
    assert!(does_not_count(&no_target).is_false(), "another run may have it");
    let once = with(|history| {
        let mut cut = history.events.iter().find_map(|event| match event {
            Event::Fault(fault) if fault.kind == FaultKind::PowerCut => Some(fault.clone()),
            _ => None,
        });
        let cut = cut.as_mut().unwrap();
        cut.cannot = false;
        history.events.push(Event::Fault(cut.clone()));
    });
    accepted(&once); // The node was there, but the machine could not do it.
}

#[test]
fn run_without_kill_inside_data_or_with_few_emails_does_not_count() {
    let outside = with(|history| fault(history, FaultKind::Kill, |fault| fault.past_gate.clear()));
    assert!(does_not_count(&outside).is_false());
    let mut slow = good();
    slow.header.coverage.mails_per_second = 4;
    assert!(does_not_count(&slow).is_false());
    slow.events.retain(|event| !matches!(event, Event::Phase(phase) if phase.phase == PhaseName::Faults));
    assert!(matches!(does_not_count(&slow), Verdict::Unknown { .. }));
}

#[test]
fn pause_inside_data_is_no_kill() {
    let paused = with(|history| {
        fault(history, FaultKind::Kill, |fault| fault.past_gate.clear());
        fault(history, FaultKind::Pause, |fault| fault.past_gate = [("n3".to_owned(), 1)].into());
    });
    assert!(does_not_count(&paused).is_false());
}

#[test]
fn faults_without_any_effect_do_not_count_though_none_was_asked_for() {
    let mut nothing = good();
    nothing.header.coverage = Coverage::default();
    assert!(nothing.judge().coverage.is_true());
    for kind in [FaultKind::Kill, FaultKind::Pause, FaultKind::Relay] {
        fault(&mut nothing, kind, |fault| fault.observed = Some(false));
    }
    assert!(does_not_count(&nothing).is_false());
}
