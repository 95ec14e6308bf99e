//! Result of a barrier, shown with the object that it was set for.

use reveille_proto::admin::v1;
use serde::Serialize;

use crate::format;

/// Limit of emails past the gate that are listed; a node has hundreds at a time.
const CROSSED_SHOWN: usize = 10;

/// From this index on, no forbidden email passes a gate. Emails that passed before and may still arrive are listed
/// (P15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BarrierView {
    /// Log index of the entry that forbids the emails.
    pub index: u64,
    /// Handoffs that had passed the gate.
    pub crossed: Vec<CrossingView>,
    /// Nodes that did not answer, and whose lease was waited out.
    pub unconfirmed: Vec<String>,
}

/// A handoff that had passed the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrossingView {
    /// Run of the email.
    pub run: String,
    /// Number of the recipient in the run.
    pub number: u32,
    /// Fencing token of the recipient's claim.
    pub fence: String,
}

impl From<Option<v1::Barrier>> for BarrierView {
    fn from(barrier: Option<v1::Barrier>) -> BarrierView {
        let barrier = barrier.unwrap_or_default();
        let crossed = barrier.crossed.into_iter();
        let crossed = crossed.map(|one| CrossingView { run: one.run, number: one.number, fence: one.fence });
        BarrierView { index: barrier.index, crossed: crossed.collect(), unconfirmed: barrier.unconfirmed }
    }
}

impl BarrierView {
    /// Returns a sentence, followed by a line for each email that may still arrive, at most [`CROSSED_SHOWN`].
    pub fn sentence(&self) -> String {
        let mut sentence = format!("holds on every node since log index {}", self.index);
        if !self.unconfirmed.is_empty() {
            sentence.push_str(&format!("; silent, waited out: {}", self.unconfirmed.join(", ")));
        }
        if self.crossed.is_empty() {
            return sentence;
        }
        let emails = format::counted(self.crossed.len() as u64, "email");
        sentence.push_str(&format!("; past the gate before, {emails} may still arrive:"));
        for CrossingView { run, number, fence } in self.crossed.iter().take(CROSSED_SHOWN) {
            sentence.push_str(&format!("\n  {run} #{number} ({fence})"));
        }
        if let Some(more) = self.crossed.len().checked_sub(CROSSED_SHOWN).filter(|more| *more > 0) {
            sentence.push_str(&format!("\n  and {} more; -o json names them all", format::count(more as u64)));
        }
        sentence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emails_that_may_still_arrive_are_counted_and_the_first_named() {
        let crossed =
            |count| (0..count).map(|number| CrossingView { run: "r5.0".into(), number, fence: "1.2.7.0".into() });
        let sentence = |count| {
            let barrier = BarrierView { index: 11, crossed: crossed(count).collect(), unconfirmed: Vec::new() };
            barrier.sentence()
        };
        let holds = "holds on every node since log index 11";
        assert_eq!(sentence(0), holds);
        let one = "\n  r5.0 #0 (1.2.7.0)";
        assert_eq!(sentence(1), format!("{holds}; past the gate before, 1 email may still arrive:{one}"));
        let many = sentence(1_010);
        assert_eq!(many.lines().count(), 1 + CROSSED_SHOWN + 1, "{many}");
        assert!(many.starts_with(&format!("{holds}; past the gate before, 1,010 emails may still arrive:{one}\n")));
        assert!(many.ends_with("\n  and 1,000 more; -o json names them all"), "{many}");
    }
}
