//! Text about a barrier, shown with the object that it was set for.

use reveille_proto::admin::v1::{Barrier, Crossing};

use super::format;

/// Limit of emails past the gate that are listed; a node has hundreds at a time.
const CROSSED_SHOWN: usize = 10;

/// Returns a sentence about a barrier: from its index on, no forbidden email passes a gate (P15). A line follows for
/// each email that passed before and may still arrive, at most [`CROSSED_SHOWN`].
pub fn sentence(barrier: Option<&Barrier>) -> String {
    let Barrier { index, crossed, unconfirmed } = barrier.cloned().unwrap_or_default();
    let mut sentence = format!("holds on every node since log index {index}");
    if !unconfirmed.is_empty() {
        sentence.push_str(&format!("; silent, waited out: {}", unconfirmed.join(", ")));
    }
    if crossed.is_empty() {
        return sentence;
    }
    let emails = format::counted(crossed.len() as u64, "email");
    sentence.push_str(&format!("; past the gate before, {emails} may still arrive:"));
    for Crossing { run, number, fence } in crossed.iter().take(CROSSED_SHOWN) {
        sentence.push_str(&format!("\n  {run} #{number} ({fence})"));
    }
    if let Some(more) = crossed.len().checked_sub(CROSSED_SHOWN).filter(|more| *more > 0) {
        sentence.push_str(&format!("\n  and {} more; -o json names them all", format::count(more as u64)));
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emails_that_may_still_arrive_are_counted_and_the_first_named() {
        let crossed = |count| (0..count).map(|number| Crossing { run: "r5.0".into(), number, fence: "1.2.7.0".into() });
        let sentence =
            |count| sentence(Some(&Barrier { index: 11, crossed: crossed(count).collect(), unconfirmed: Vec::new() }));
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
