//! What a whole history comes to: a table for people, one line of JSON for programs.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

use crate::book::Book;
use crate::coverage::{self, Tally};
use crate::failover::{Failovers, Times, failovers};
use crate::history::{Answer, FaultKind, Part, Step};
use crate::invariants::{ALL, ALWAYS, claims, doubt, loss, once};
use crate::time::MS;
use crate::verdict::Verdict;

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
    /// Emails that no claim or no run explains.
    pub unexplained: u64,
    /// Reads of administrators that were answered while all of it went on.
    pub reads: u64,
    /// Who is in doubt at the end, or was closed as assumed.
    pub in_doubt: u64,
    /// Of those, who did get it.
    pub in_doubt_arrived: u64,
    /// So many may be in doubt after these faults.
    pub in_doubt_allowed: u64,
    /// How often a recipient in doubt, or a dead one, was to be sent again: by policy or by an operator.
    pub resent: u64,
    /// How often a recipient in doubt was closed as assumed: by policy or by an operator.
    pub assumed: u64,
    /// For how many seconds nodes were given no claims, since they died too often (P12): two nodes for a minute are
    /// 120.
    pub backoff_node_seconds: u64,
    /// What became of the faults.
    pub faults: BTreeMap<FaultKind, Tally>,
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

impl Book {
    /// Judges.
    #[must_use]
    pub fn judge(&self) -> Judgement {
        let asked = |number: &u8| ALWAYS.contains(number) || self.header.asks.contains(number);
        let asked = ALL.iter().filter(|invariant| asked(&invariant.number));
        let invariants: BTreeMap<Name, Verdict> =
            asked.map(|invariant| (Name(invariant.number), (invariant.judge)(self))).collect();
        let coverage = coverage::exercised(self);
        let doubt = doubt::doubt(self);
        let duplicates = once::duplicates(self);
        let known = [Part::Accepts, Part::Due, Part::Runs, Part::Instants, Part::Standings, Part::Calls];
        let known = known.into_iter().all(|part| self.is_whole(part));
        let steps = |step| self.outcomes.iter().filter(|came| came.step == step).count() as u64;
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
            unexplained: claims::unexplained(self),
            reads: self.calls.iter().filter(|call| matches!(call.answer, Answer::Found { .. })).count() as u64,
            in_doubt: doubt.in_doubt,
            in_doubt_arrived: doubt.arrived,
            in_doubt_allowed: doubt.allowed,
            resent: steps(Step::Resent),
            assumed: steps(Step::Assumed),
            backoff_node_seconds: backoff_node_seconds(self),
            faults: coverage::tallies(self),
            seen: coverage::by_name(self),
            failovers: failovers(self),
            invariants,
            coverage,
        }
    }
}

/// A reading counts until the next one, for a second at most.
fn backoff_node_seconds(book: &Book) -> u64 {
    let next = book.backoffs.iter().skip(1).map(|next| next.at_ns).chain([u64::MAX]);
    let each = book.backoffs.iter().zip(next);
    each.map(|(backoff, next_ns)| backoff.nodes * (next_ns - backoff.at_ns).min(1_000 * MS)).sum::<u64>() / (1_000 * MS)
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
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        for invariant in &ALL {
            let Some(verdict) = self.invariants.get(&Name(invariant.number)) else {
                table.add_row([format!("I{}", invariant.number), invariant.says.to_owned(), "not asked".to_owned()]);
                continue;
            };
            table.add_row([format!("I{}", invariant.number), invariant.says.to_owned(), told(verdict)]);
        }
        table.add_row(["".to_owned(), "the run exercised the system".to_owned(), told(&self.coverage)]);
        for (kind, tally) in &self.faults {
            let Tally { installed, observed, skipped, cannot, indeterminate, inside_data } = tally;
            let told = format!(
                "{installed} installed, {observed} with an effect, {inside_data} inside a DATA, {skipped} skipped \
                 ({cannot} that this machine cannot do), {indeterminate} indeterminate"
            );
            table.add_row(["fault".to_owned(), format!("{kind:?}"), told]);
        }
        let Failovers { leader_ms, email_ms, .. } = &self.failovers;
        for (what, times) in [("leader", leader_ms), ("leader's first email", email_ms)] {
            let Times { count, p50, p99, max } = times;
            if let (Some(p50), Some(p99), Some(max)) = (p50, p99, max) {
                let told = format!("{count} times; p50 {p50} ms, p99 {p99} ms, at most {max} ms");
                table.add_row(["".to_owned(), format!("a majority without a leader until the next {what}"), told]);
            }
        }
        let counts = format!(
            "{} due, {} accepted, {} double ({} more by an operator's decision), {} lost, {} unexplained, {} in doubt \
             ({} had arrived; {} allowed), {} resent, {} assumed, {} reads; \
             {} s without claims after deaths, over all nodes",
            self.recipients,
            self.accepted,
            self.duplicates,
            self.duplicates_decided,
            self.lost.map_or("an unknown number".to_owned(), |lost| lost.to_string()),
            self.unexplained,
            self.in_doubt,
            self.in_doubt_arrived,
            self.in_doubt_allowed,
            self.resent,
            self.assumed,
            self.reads,
            self.backoff_node_seconds
        );
        table.add_row(["".to_owned(), if self.valid { "VALID" } else { "NOT VALID" }.to_owned(), counts]);
        table.to_string()
    }
}

fn told(verdict: &Verdict) -> String {
    let mut lines = vec![verdict.word().to_owned()];
    match verdict {
        Verdict::True => {}
        Verdict::False { count, offences } => {
            lines.extend(offences.iter().cloned());
            if *count > offences.len() as u64 {
                lines.push(format!("and {} more", count - offences.len() as u64));
            }
        }
        Verdict::Unknown { missing } => lines.extend(missing.iter().map(|gap| format!("missing: {gap}"))),
    }
    lines.join("\n")
}
