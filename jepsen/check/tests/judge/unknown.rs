//! If the history is not complete, invariants without a violation are unknown: neither true nor false.

use reveille_check::events::*;

use crate::good::{fence, good};
use crate::{broken, unknown};

#[test]
fn incomplete_history_leaves_invariants_unknown() {
    let mut history = good();
    history.ended.missing = vec!["gate counters".to_owned()];
    let judgement = history.judge();
    assert_eq!(unknown(&judgement).len(), 19, "{}", judgement.table());
    assert!(!judgement.valid && broken(&judgement).is_empty() && judgement.lost.is_none(), "unknown does not pass");
}

#[test]
fn duplicate_is_violation_in_incomplete_history_and_missing_claim_is_none() {
    let mut history = good();
    history.ended.missing = vec!["gate counters".to_owned()];
    history.drop_first(|event| matches!(event, Event::Claim(claim) if claim.run == "r100.0"));
    assert!(broken(&history.judge()).is_empty());
    history.handoff("r120.0", "m7", fence(10, 999), "n1", 20.0, Answered::Accepted);
    assert!(broken(&history.judge()).contains(&1));
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
