//! A reader of events: what it knows of each recipient and run from events alone is what the ledger has.

use std::collections::BTreeMap;

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::events::{EventGroup, EventKind, EventSubject, PackedEvents};
use reveille_ledger::ids::RunId;
use reveille_ledger::storage::unpack_block;
use reveille_ledger::{ArchivePartKey, Ledger, PartContent, RecipientState, Run};

/// What events have said so far.
#[derive(Default)]
pub struct EventReader {
    /// Recipients that reached a state and have not left it, by run, chunk of the audience and state.
    recipients: BTreeMap<(RunId, u32, RecipientState), Bitmap>,
    opened: BTreeMap<RunId, u32>,
    /// Log index of the last end of each run.
    finished: BTreeMap<RunId, u64>,
    cancelled: BTreeMap<RunId, u64>,
}

impl EventReader {
    /// Reads the events of the entry that was applied last, and compares.
    pub fn read(&mut self, ledger: &Ledger) {
        let index = ledger.head().applied;
        let mut next = 0;
        for (place, row) in rows(ledger, index) {
            assert_eq!(place, next, "entry {index}");
            next += row.count;
            for EventGroup { subject, events, .. } in row.groups().expect("events") {
                assert!(!events.is_empty());
                let EventSubject::Run { run, .. } = subject else { continue };
                events.into_iter().for_each(|event| self.record(index, run, event));
            }
        }
        self.compare(ledger);
    }

    fn record(&mut self, index: u64, run: RunId, event: EventKind) {
        match event {
            EventKind::RunOpened(count) => assert_eq!(self.opened.insert(run, count), None, "{run} opened twice"),
            EventKind::RunFinished(_) => drop(self.finished.insert(run, index)),
            EventKind::RunCancelled(_) => assert_eq!(self.cancelled.insert(run, index), None, "{run}"),
            EventKind::Recipients { state, chunk, numbers } => {
                assert!(!numbers.is_empty() && state != RecipientState::Claimed, "{run}");
                for other in RecipientState::ALL {
                    if let Some(known) = self.recipients.get_mut(&(run, chunk, other)) {
                        assert!(other != state || known.and(&numbers).is_empty(), "{run}: {numbers:?} {state:?} twice");
                        known.remove(&numbers);
                    }
                }
                if state != RecipientState::Pending {
                    self.recipients.entry((run, chunk, state)).or_default().add(&numbers);
                }
            }
            _ => {}
        }
    }

    fn compare(&self, ledger: &Ledger) {
        for (id, _, run) in ledger.runs() {
            assert_eq!(self.opened.get(&id), Some(&run.count), "{id}");
            assert_eq!(self.cancelled.contains_key(&id), run.state.is_cancelled(), "{id}");
            if let Some(index) = run.finished_index {
                assert_eq!(self.finished.get(&id), Some(&index), "{id}");
            }
            for chunk in 0..run.count.div_ceil(CHUNK) {
                for state in RecipientState::ALL {
                    if matches!(state, RecipientState::Pending | RecipientState::Claimed) {
                        continue;
                    }
                    let known = self.recipients.get(&(id, chunk, state)).cloned().unwrap_or_default();
                    assert_eq!(known, in_state(ledger, id, run, chunk, state), "{id}, chunk {chunk}: {state:?}");
                }
            }
        }
    }
}

/// Returns the recipients in a state, by their numbers in a chunk of the audience.
fn in_state(ledger: &Ledger, id: RunId, run: &Run, chunk: u32, state: RecipientState) -> Bitmap {
    let (page, _, _) = ledger.page_of(id).expect("a page");
    let set = |number: u32| ledger.chunks().get(&page.chunk(number)).map(|chunk| chunk.set(state).clone());
    if run.first == 0 {
        let own = Bitmap::range(0, run.count - chunk * CHUNK);
        return set(chunk).unwrap_or_default().and(&own);
    }
    let slots = set(0).unwrap_or_default();
    let numbers = slots.iter().filter_map(|slot| u32::from(slot).checked_sub(run.first));
    numbers.filter(|number| *number < run.count).map(|number| number as u16).collect()
}

/// Returns the rows of an entry's events, which may have become a part of the archive.
fn rows(ledger: &Ledger, index: u64) -> Vec<(u32, PackedEvents)> {
    let own = |ledger: &Ledger| {
        let rows = ledger.events().range((index, 0)..=(index, u32::MAX));
        rows.map(|((_, place), row)| (*place, row.clone())).collect::<Vec<_>>()
    };
    let in_state = own(ledger);
    let part = ledger.parts().iter().find(|(key, part)| is_of(**key, &part.content, index));
    let Some((_, part)) = part else { return in_state };
    assert!(in_state.is_empty());
    let rows = part.summaries.iter().flat_map(|block| {
        let bytes = ledger.unsaved_block(&block.hash).expect("the bytes of a block");
        unpack_block(&bytes).expect("rows")
    });
    own(&Ledger::from_rows(rows).expect("a part"))
}

fn is_of(key: ArchivePartKey, content: &PartContent, index: u64) -> bool {
    key.index == index && matches!(content, PartContent::Events { .. })
}
