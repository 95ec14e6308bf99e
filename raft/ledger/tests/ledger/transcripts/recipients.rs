//! Lists of recipients against the history of each: two ways to read the same state.

use reveille_ledger::claim_history::ClaimEventKind;
use reveille_ledger::explain::RecipientExplanation;
use reveille_ledger::recipients::RecipientRow;
use reveille_ledger::run_events::RunEventKind;
use reveille_ledger::{Ledger, RecipientState, Run};

/// Maximum number of recipients of a run that is compared: the history of each reads all claims.
const COMPARED_MAX: u32 = 24;
/// Maximum number of runs that are compared after each entry, the latest ones.
const RUNS_MAX: usize = 4;
/// Length of a page: runs have several.
const PAGE: usize = 5;

/// Asserts that the lists of the latest small runs agree with the histories of their recipients, in each state.
pub fn assert_as_explained(ledger: &Ledger) {
    let small = ledger.runs().rev().filter(|(_, _, run)| run.count <= COMPARED_MAX);
    for (id, _, run) in small.take(RUNS_MAX) {
        let list = |states: &[RecipientState]| {
            let (mut rows, mut next) = (Vec::new(), Some(0));
            while let Some(from) = next {
                let slice = ledger.recipient_slice(id, from, states, PAGE).expect("the run is known");
                assert_eq!(slice.audience, run.audience);
                assert!(slice.next.is_none_or(|next| next > from), "{id}: a page that ends where it began");
                next = slice.next;
                rows.extend(slice.rows());
            }
            rows
        };
        let all = list(&[]);
        assert_eq!(all.iter().map(|row| row.number).collect::<Vec<_>>(), (0..run.count).collect::<Vec<_>>());
        for row in &all {
            let explanation = ledger.explain_recipient(id, row.number).expect("a recipient");
            assert_row(run, row, &explanation);
        }
        for state in RecipientState::ALL {
            let of_state: Vec<_> = all.iter().filter(|row| row.state == state).cloned().collect();
            assert_eq!(of_state.len() as u32, run.counts.get(state), "{id}: {state:?}");
            assert_eq!(list(&[state]), of_state, "{id}: {state:?}");
        }
        let two = [RecipientState::Pending, RecipientState::Dead];
        let of_two: Vec<_> = all.iter().filter(|row| two.contains(&row.state)).cloned().collect();
        assert_eq!(list(&two), of_two, "{id}");
        assert!(ledger.recipient_slice(id, run.count, &[], PAGE).expect("known").is_empty());
        assert!(ledger.recipient_slice(id, u32::MAX, &[], PAGE).expect("known").rows().is_empty());
    }
}

fn assert_row(run: &Run, row: &RecipientRow, explanation: &RecipientExplanation) {
    let what = format!("{} #{}: {row:?}, {explanation:?}", run.name, row.number);
    assert_eq!((row.state, &row.dead), (explanation.state, &explanation.dead), "{what}");
    let events = || explanation.claims.iter().flat_map(|claim| &claim.history);
    let of_run = explanation.run_events.iter().filter(|(_, event)| event.slots.is_some());
    let times = explanation.claims.iter().map(|claim| (claim.fence.index, claim.claimed_at));
    let times = times.chain(events().map(|event| (event.index, event.at)));
    let last = times.chain(of_run.map(|(index, event)| (*index, event.at))).max();
    assert_eq!(row.at, last.map(|(_, at)| at), "{what}");
    assert_eq!(row.doubt.is_some(), row.state == RecipientState::InDoubt, "{what}");
    let was_accepted = events().any(|event| {
        !matches!(
            event.what,
            ClaimEventKind::Refused { .. }
                | ClaimEventKind::Released(_)
                | ClaimEventKind::Suppressed
                | ClaimEventKind::Unsendable(_)
                | ClaimEventKind::InDoubt(_)
                | ClaimEventKind::Assumed(_)
                | ClaimEventKind::Resent(_)
                | ClaimEventKind::TestRelay(_)
        )
    });
    let was_requeued = explanation.run_events.iter().any(|(_, event)| matches!(event.what, RunEventKind::Requeued(_)));
    if was_accepted || was_requeued {
        return;
    }
    let answer = row.last_answer.as_ref().map(|answer| (answer.code, answer.enhanced));
    assert_eq!(answer, explanation.last_refusal.map(|refusal| (refusal.code, refusal.enhanced)), "{what}");
}
