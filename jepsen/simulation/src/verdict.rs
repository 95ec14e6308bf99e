//! The verdict on a run: the checker's verdict, the ledger's invariants inside every node, processes that ended by
//! themselves, and the violations that `simulation.rs` reports (docs/reference/simulation.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_check::events::{Event, LifetimeEnd, StateHash};
use reveille_check::{History, Judgement};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::ids::NodeId;
use reveille_ledger::invariants::{CheckedState, violations_again};

use crate::recorder::{HistoryRecorder, name};
use crate::trace::Trace;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct SimulationResult {
    /// Violations. Empty: all invariants hold.
    pub violations: Vec<String>,
    /// Figures by name.
    pub figures: BTreeMap<&'static str, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Checks of the ledgers inside the nodes during a run.
pub struct LedgerWatch {
    trace: Trace,
    recorder: HistoryRecorder,
    violations: Vec<String>,
    ended: BTreeSet<NodeId>,
    seen: CheckedState,
}

impl LedgerWatch {
    /// Creates a watch without observations.
    pub fn new(trace: Trace, recorder: HistoryRecorder) -> LedgerWatch {
        LedgerWatch { trace, recorder, violations: Vec::new(), ended: BTreeSet::new(), seen: CheckedState::default() }
    }

    /// Records a violation.
    pub fn record_violation(&mut self, what: String) {
        self.trace.say(format_args!("WRONG: {what}"));
        self.violations.push(what);
    }

    /// Records that a node ended without being killed.
    pub fn ended_by_itself(&mut self, node: NodeId) {
        if self.ended.insert(node) {
            self.record_violation(format!("node {} stopped by itself", node.0));
        }
    }

    /// Checks the ledger's own invariants, and records the state hashes, which the checker compares.
    pub fn check(&mut self, contexts: &[Arc<NodeContext>]) {
        for context in contexts {
            let seen = &mut self.seen;
            let (applied_index, hash, violations) = context.replica.read(|ledger| {
                let hash = ledger.state_hash();
                (ledger.head().applied, hash, violations_again(ledger, seen))
            });
            self.trace.record(b'h', &[context.me.node.0, applied_index, u64::from(crc32c::crc32c(&hash.0))]);
            for violation in violations {
                self.record_violation(format!(
                    "the ledger of node {} at {applied_index}: {violation:?}",
                    context.me.node.0
                ));
            }
            let (node, hash) = (name(context.me.node), format!("{:?}", hash.0));
            self.recorder.record(Event::StateHash(StateHash { node, applied_index, hash }));
        }
    }

    /// Returns all violations, with those of the checker.
    pub fn judge(mut self, history: &History) -> SimulationResult {
        let judgement = history.judge();
        for what in failed_invariants(&judgement) {
            self.record_violation(what);
        }
        let mut figures = BTreeMap::from([
            ("recipients", judgement.recipients),
            ("accepted", judgement.accepted),
            ("duplicates", judgement.duplicates),
            ("in_doubt", judgement.in_doubt),
            ("in_doubt_arrived", judgement.in_doubt_arrived),
            (
                "crashes",
                history.lifetimes.iter().filter(|lifetime| lifetime.end == Some(LifetimeEnd::Killed)).count() as u64,
            ),
        ]);
        // `None`: a needed part was not observed. Then an invariant is unknown too.
        figures.extend(judgement.lost.map(|lost| ("lost", lost)));
        SimulationResult { violations: self.violations, figures, faults: BTreeMap::new() }
    }
}

/// Returns the violated and unknown invariants, as text.
fn failed_invariants(judgement: &Judgement) -> Vec<String> {
    let mut failed = Vec::new();
    if judgement.accepted == 0 {
        failed.push("no email at all was accepted: nothing was shown".to_owned());
    }
    for (number, verdict) in &judgement.invariants {
        failed.extend(verdict.reasons().iter().map(|reason| format!("I{}: {reason}", number.0)));
    }
    failed
}
