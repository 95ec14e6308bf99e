//! If a part was not observed completely, the invariants that need it are unknown: neither true nor false.

use reveille_check::Verdict;
use reveille_check::events::*;

use crate::good::{PARTS, TestHistory, good};
use crate::{accepted, broken, unknown, verdict};

/// The invariants that need a part.
fn needing(part: Observed) -> &'static [u8] {
    match part {
        Observed::Accepts => &[1, 2, 3, 5, 6, 8, 9, 10, 12, 14, 16, 17, 18, 19],
        Observed::Handoffs => &[3, 5, 18, 19],
        Observed::Contents => &[16],
        Observed::Claims => &[2, 5, 8, 17],
        Observed::Outcomes => &[17],
        Observed::FinalStates => &[4, 5, 9, 17],
        Observed::Runs => &[4, 6, 8, 10, 12, 16, 17, 18, 19],
        Observed::Instants => &[4, 10],
        Observed::Due => &[4, 10],
        Observed::Calls => &[4, 6, 7, 8, 10, 12, 17, 19],
        Observed::Objects => &[7],
        Observed::Lifetimes => &[5, 15, 17, 18],
        Observed::Gates => &[14],
        Observed::Faults => &[5, 14, 17, 18],
        Observed::Outages => &[10, 12, 15, 17],
        Observed::OpenClaims => &[15],
        Observed::StateHashes => &[11],
    }
}

#[test]
fn incomplete_part_leaves_its_invariants_unknown() {
    for part in PARTS {
        let mut history = good();
        history.ended.whole.retain(|whole| *whole != part);
        let judgement = history.judge();
        let unknown: Vec<u8> = unknown(&judgement).into_iter().collect();
        assert_eq!(unknown, needing(part), "{part:?}\n{}", judgement.table());
        assert!(broken(&judgement).is_empty());
        let needed = !unknown.is_empty() || !judgement.coverage.is_true();
        assert_eq!(judgement.valid, !needed, "unknown does not pass");
    }
}

#[test]
fn under_resend_outcomes_are_needed() {
    let mut history = good();
    history.header.in_doubt = InDoubt::Resend;
    accepted(&history);
    history.ended.whole.retain(|part| *part != Observed::Outcomes);
    assert!(matches!(verdict(&history, 1), Verdict::Unknown { .. }));
}

#[test]
fn relay_without_faults_answers_every_dot() {
    let mut history = good();
    history.ended.whole.retain(|part| *part != Observed::Handoffs);
    let doubt = |history: &TestHistory| verdict(history, 5);
    assert!(matches!(doubt(&history), Verdict::Unknown { .. }));
    history.events.retain(|event| !matches!(event, Event::Fault(fault) if fault.kind == FaultKind::Relay));
    assert_eq!(doubt(&history), Verdict::True);
}

#[test]
fn history_that_was_cut_short_proves_nothing() {
    let mut writer = Writer::begin(Vec::new(), &good().header).unwrap();
    good().events.iter().for_each(|event| writer.event(event).unwrap());
    let bytes = writer.end(&good().ended).unwrap();
    let cut = bytes.len() - 2;
    let judgement = reveille_check::History::read(&bytes[..cut]).unwrap().judge();
    assert!(!judgement.valid && broken(&judgement).is_empty());
    assert_eq!(unknown(&judgement).len(), 19);
}

#[test]
fn only_asked_invariants_and_four_others_are_judged() {
    let mut history = good();
    history.header.asks = vec![11];
    let judged: Vec<u8> = history.judge().invariants.keys().map(|name| name.0).collect();
    assert_eq!(judged, [1, 2, 4, 9, 11]);
}
