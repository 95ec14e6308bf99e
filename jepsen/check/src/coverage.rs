//! Judges if the run exercised the system: each requested fault was installed and had an observed effect, emails were
//! sent meanwhile, and kills fell between final dots and their answers. Any other run proves nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::events::{FaultKind, FaultStatus};
use crate::history::History;
use crate::verdict::Findings;

/// Counts of the faults of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// Faults that were installed.
    pub installed: u32,
    /// Installed faults with an observed effect.
    pub observed: u32,
    /// Faults that were skipped, for a recorded reason.
    pub skipped: u32,
    /// Skipped faults that this machine cannot inject.
    pub cannot: u32,
    /// Faults of which it is unknown if they were installed.
    pub indeterminate: u32,
    /// Faults that ended a process between a final dot and its answer.
    pub inside_data: u32,
}

/// Counts the faults by kind.
pub fn fault_counts(history: &History) -> BTreeMap<FaultKind, FaultCounts> {
    let mut fault_counts: BTreeMap<FaultKind, FaultCounts> = BTreeMap::new();
    for fault in &history.faults {
        let counts = fault_counts.entry(fault.kind).or_default();
        match fault.status {
            FaultStatus::Installed => counts.installed += 1,
            FaultStatus::Skipped => counts.skipped += 1,
            FaultStatus::Indeterminate => counts.indeterminate += 1,
        }
        let installed = fault.status == FaultStatus::Installed;
        counts.cannot += u32::from(!fault.may_be_installed() && fault.cannot);
        counts.observed += u32::from(installed && fault.observed == Some(true));
        counts.inside_data += u32::from(installed && fault.is_inside_data());
    }
    fault_counts
}

/// Returns the number of faults with an observed effect, by name of the fault.
pub fn by_name(history: &History) -> BTreeMap<String, u32> {
    let mut seen = BTreeMap::new();
    let installed = history.faults.iter().filter(|fault| fault.status == FaultStatus::Installed);
    for fault in installed.filter(|fault| fault.observed == Some(true)) {
        *seen.entry(fault.name.clone()).or_default() += 1;
    }
    seen
}

/// Judges if the run exercised the system as much as its header asks. Unknown if that was not observed.
///
/// A kind of fault that this machine cannot inject is reported and ignored, as long as another requested kind was
/// installed. A requested kind that found no target makes the run invalid.
pub fn exercised(history: &History, findings: &mut Findings) {
    let fault_counts = fault_counts(history);
    let asked = &history.header.coverage;
    for (kind, wanted) in &asked.faults {
        let counts = fault_counts.get(kind).copied().unwrap_or_default();
        if counts.observed >= *wanted || (counts.cannot > 0 && counts.installed + counts.indeterminate == 0) {
            continue;
        }
        let unseen = history.possible_faults_of(*kind).any(|fault| fault.observed.is_none());
        let FaultCounts { installed, observed, skipped, cannot, indeterminate, .. } = counts;
        let text = format!(
            "{kind:?}: {wanted} asked for, {installed} installed, {observed} with an effect, {skipped} skipped \
             ({cannot} that this machine cannot do), {indeterminate} indeterminate"
        );
        if unseen { findings.missing(text) } else { findings.violation(|| text) }
    }
    let any_installed = fault_counts.values().any(|counts| counts.installed + counts.indeterminate > 0);
    if (any_installed || !asked.faults.is_empty()) && fault_counts.values().all(|counts| counts.observed == 0) {
        let unseen = history.possible_faults().any(|fault| fault.observed.is_none());
        let text = "no fault at all was seen to have an effect".to_owned();
        if unseen { findings.missing(text) } else { findings.violation(|| text) }
    }
    require_kills(history, &fault_counts, findings);
    require_emails(history, findings);
}

fn require_kills(history: &History, fault_counts: &BTreeMap<FaultKind, FaultCounts>, findings: &mut Findings) {
    let wanted = history.header.coverage.kills_inside_data;
    // A process that is paused or asked to stop loses no handoff.
    let ends = [FaultKind::Kill, FaultKind::Upgrade, FaultKind::CrashPoint, FaultKind::PowerCut];
    let inside: u32 = ends.iter().filter_map(|kind| fault_counts.get(kind)).map(|counts| counts.inside_data).sum();
    if inside < wanted {
        findings
            .violation(|| format!("{inside} processes ended between a final dot and its 250; {wanted} were asked for"));
    }
}

fn require_emails(history: &History, findings: &mut Findings) {
    let wanted = f64::from(history.header.coverage.mails_per_second);
    if wanted == 0.0 {
        return;
    }
    let Some(from_ns) = history.faults_from_ns else { return findings.missing("when the faults began") };
    let until_ns = history.healed_ns.unwrap_or(history.ended_ns());
    let accepts = history.accepts().filter(|handoff| (from_ns..until_ns).contains(&handoff.at_ns)).count();
    let rate = accepts as f64 / (until_ns.saturating_sub(from_ns).max(1) as f64 / 1e9);
    if rate < wanted {
        findings.violation(|| format!("{rate:.1} emails a second while faults were in force; {wanted} were asked for"));
    }
}
