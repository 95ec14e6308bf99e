//! The judgement of a whole history: a table for people, one line of JSON for programs.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

use crate::coverage::{self, FaultCounts};
use crate::events::FaultKind;
use crate::failover::{Failovers, failovers};
use crate::history::History;
use crate::invariants::{ALL, ALWAYS, Invariant, doubt, loss, once};
use crate::verdict::{Findings, Verdict};

/// The judgement of one run. As JSON it is the last line of `reveille-jepsen run` and `check`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The seed of all random choices.
    pub seed: u64,
    /// The commit that was judged.
    pub commit: String,
    /// True if all requested invariants hold, and the run exercised the system.
    pub valid: bool,
    /// Number of recipients that were due an email, counted once for each run.
    pub recipients: u64,
    /// Number of emails that the sink accepted.
    pub accepted: u64,
    /// Number of accepts after the first accept of an item for which no operator decided. 0 is promised, except under
    /// the policy `resend`.
    pub duplicates: u64,
    /// Number of accepts after the first accept of an item for which an operator decided.
    pub duplicates_decided: u64,
    /// Number of recipients that were due an email, got no email, and are neither in doubt nor in another explained
    /// final state. Null: the history is not complete.
    pub lost: Option<u64>,
    /// Number of recipients in doubt at the end, or closed as assumed.
    pub in_doubt: u64,
    /// Number of recipients in `in_doubt` whose email was accepted.
    pub in_doubt_arrived: u64,
    /// Maximum number of recipients that the faults may leave in doubt (I5).
    pub in_doubt_allowed: u64,
    /// Faults by kind.
    pub faults: BTreeMap<FaultKind, FaultCounts>,
    /// Number of faults with an observed effect, by name.
    pub seen: BTreeMap<String, u32>,
    /// Times without a leader, and without an email, after a leader was lost.
    pub failovers: Failovers,
    /// Verdicts of the requested invariants, by `I1` to `I19`.
    pub invariants: BTreeMap<InvariantNumber, Verdict>,
    /// True if the run exercised the system.
    pub coverage: Verdict,
}

/// `I1` to `I19`, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvariantNumber(pub u8);

impl Serialize for InvariantNumber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("I{}", self.0))
    }
}

impl History {
    /// Judges the history.
    pub fn judge(&self) -> Judgement {
        let mut invariants = BTreeMap::new();
        for Invariant { number, judge, .. } in ALL {
            if ALWAYS.contains(&number) || self.header.asks.contains(&number) {
                invariants.insert(InvariantNumber(number), Findings::verdict(self, judge));
            }
        }
        let coverage = Findings::verdict(self, coverage::exercised);
        let doubt = doubt::doubt(self);
        let duplicates = once::duplicates(self);
        Judgement {
            seed: self.header.seed,
            commit: self.header.commit.clone(),
            // A run with an unknown number of losses is invalid.
            valid: self.is_whole() && coverage.is_true() && invariants.values().all(Verdict::is_true),
            recipients: loss::expected(self),
            accepted: self.accepts().count() as u64,
            duplicates: duplicates.undecided,
            duplicates_decided: duplicates.decided,
            lost: self.is_whole().then(|| loss::lost(self)),
            in_doubt: doubt.in_doubt,
            in_doubt_arrived: doubt.arrived,
            in_doubt_allowed: doubt.allowed,
            faults: coverage::fault_counts(self),
            seen: coverage::by_name(self),
            failovers: failovers(self),
            invariants,
            coverage,
        }
    }
}

impl Judgement {
    /// Returns the judgement as one line for programs.
    ///
    /// # Errors
    /// No error is expected, because every field can be written as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Returns a table of the verdicts, each with its first violations or missing observations.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        for invariant in &ALL {
            let verdict =
                self.invariants.get(&InvariantNumber(invariant.number)).map_or("not asked".to_owned(), verdict_text);
            table.add_row([format!("I{}", invariant.number), invariant.title.to_owned(), verdict]);
        }
        table.add_row(["".to_owned(), "the run exercised the system".to_owned(), verdict_text(&self.coverage)]);
        let counts = format!(
            "{} due, {} accepted, {} duplicates ({} more by an operator's decision), {} lost, {} in doubt ({} had arrived; {} allowed)",
            self.recipients,
            self.accepted,
            self.duplicates,
            self.duplicates_decided,
            self.lost.map_or("an unknown number".to_owned(), |lost| lost.to_string()),
            self.in_doubt,
            self.in_doubt_arrived,
            self.in_doubt_allowed,
        );
        table.add_row(["".to_owned(), if self.valid { "VALID" } else { "NOT VALID" }.to_owned(), counts]);
        table.to_string()
    }
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::True => "true".to_owned(),
        Verdict::False { .. } => format!("FALSE\n{}", verdict.reasons().join("\n")),
        Verdict::Unknown { .. } => verdict.reasons().join("\n"),
    }
}
