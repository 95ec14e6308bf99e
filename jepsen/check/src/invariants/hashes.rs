//! I11: nodes that have applied the same entries are in the same state, also after a snapshot install.

use std::collections::BTreeMap;

use crate::events::StateHash;
use crate::history::History;
use crate::verdict::Findings;

/// I11: nodes at one log index are in one state.
pub fn equal(history: &History, findings: &mut Findings) {
    let mut by_index: BTreeMap<u64, Vec<&StateHash>> = BTreeMap::new();
    for hash in &history.hashes {
        by_index.entry(hash.applied_index).or_default().push(hash);
    }
    let mut compared = false;
    for (index, hashes) in by_index {
        let Some((first, others)) = hashes.split_first() else { continue };
        compared |= others.iter().any(|other| other.node != first.node);
        for other in others.iter().filter(|other| other.hash != first.hash) {
            findings.violation(|| format!("after entry {index}, {} and {} differ", first.node, other.node));
        }
    }
    if !compared {
        findings.missing("hashes of two nodes at one index");
    }
}
