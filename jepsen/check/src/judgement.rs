//! What a whole history comes to: a table for people, one line of JSON for programs.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

use crate::coverage::{self, FaultCounts};
use crate::failover::{Failovers, failovers};
use crate::history::{FaultKind, Part};
use crate::history_index::HistoryIndex;
use crate::invariants::{ALL, ALWAYS, doubt, loss, once};
use crate::verdict::{Findings, Verdict};

/// The judgement of one run. As JSON it is the last line of `reveille-jepsen run` and `check`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// What is random came from this.
    pub seed: u64,
    /// The commit that was judged.
    pub commit: String,
    /// Everything that was asked holds, and the run counts.
    pub valid: bool,
    /// Those who were due a mail: each once for each run.
    pub recipients: u64,
    /// Emails that the sink accepted.
    pub accepted: u64,
    /// Of those, beyond the first of a recipient of a run, and no operator decided to send it again: 0 is promised,
    /// except under `resend`, where all are counted here.
    pub duplicates: u64,
    /// And those that an operator decided for: by choice.
    pub duplicates_decided: u64,
    /// Who was due, did not get it, and is neither in doubt nor ended in another way. Null: not everything that could
    /// say so was observed.
    pub lost: Option<u64>,
    /// Who is in doubt at the end, or was closed as assumed.
    pub in_doubt: u64,
    /// Of those, who did get it.
    pub in_doubt_arrived: u64,
    /// So many may be in doubt after these faults.
    pub in_doubt_allowed: u64,
    /// What became of the faults.
    pub faults: BTreeMap<FaultKind, FaultCounts>,
    /// How often each had an effect that was seen, by name.
    pub seen: BTreeMap<String, u32>,
    /// How long there was no leader, and no email, after one was unseated.
    pub failovers: Failovers,
    /// The invariants that were asked for: `I1` …
    pub invariants: BTreeMap<Name, Verdict>,
    /// Whether the run exercised the system.
    pub coverage: Verdict,
}

/// `I1` to `I19`, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub u8);

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("I{}", self.0))
    }
}

impl HistoryIndex {
    /// Judges.
    pub fn judge(&self) -> Judgement {
        let asked = |number: &u8| ALWAYS.contains(number) || self.header.asks.contains(number);
        let asked = ALL.iter().filter(|invariant| asked(&invariant.number));
        let invariants: BTreeMap<Name, Verdict> =
            asked.map(|invariant| (Name(invariant.number), Findings::verdict(self, invariant.judge))).collect();
        let coverage = Findings::verdict(self, coverage::exercised);
        let doubt = doubt::doubt(self);
        let duplicates = once::duplicates(self);
        let known = [Part::Accepts, Part::Due, Part::Runs, Part::Instants, Part::FinalStates, Part::Calls];
        let known = known.into_iter().all(|part| self.is_whole(part));
        Judgement {
            seed: self.header.seed,
            commit: self.header.commit.clone(),
            // A run whose losses are unknown proves nothing.
            valid: known && coverage.is_true() && invariants.values().all(Verdict::is_true),
            recipients: loss::expected(self),
            accepted: self.accepts().count() as u64,
            duplicates: duplicates.undecided,
            duplicates_decided: duplicates.decided,
            lost: known.then(|| loss::lost(self)),
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
    /// For programs: one line.
    ///
    /// # Errors
    /// None that is known: there is nothing in it that JSON lacks.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Verdicts for people, with the first offences or gaps of each.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let told = |verdict: &Verdict| match verdict {
            Verdict::True => "true".to_owned(),
            Verdict::False { .. } => format!("FALSE\n{}", verdict.reasons().join("\n")),
            Verdict::Unknown { .. } => verdict.reasons().join("\n"),
        };
        for invariant in &ALL {
            let verdict = self.invariants.get(&Name(invariant.number)).map_or("not asked".to_owned(), told);
            table.add_row([format!("I{}", invariant.number), invariant.title.to_owned(), verdict]);
        }
        table.add_row(["".to_owned(), "the run exercised the system".to_owned(), told(&self.coverage)]);
        let counts = format!(
            "{} due, {} accepted, {} double ({} more by an operator's decision), {} lost, {} in doubt ({} had arrived; {} allowed)",
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
