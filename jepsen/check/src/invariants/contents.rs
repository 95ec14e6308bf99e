//! I16: each recipient gets its own content. Each body of the workload names its schedule, its run, its recipient and
//! the value of the recipient's variable, which must match the run, the envelope and the audience.

use std::collections::BTreeMap;

use crate::events::{Content, Handoff};
use crate::history::{HasItem, History};
use crate::names::Name;
use crate::verdict::Findings;

use super::identity::{is_whole, origin};
use super::loss::triggered;

/// I16: each recipient gets its own content.
pub fn own(history: &History, findings: &mut Findings) {
    let audiences = audiences(history);
    // Refused emails are judged too.
    for handoff in history.handoffs.iter().filter(|handoff| is_whole(handoff)) {
        match handoff.content {
            Some(content) => report_wrong_content(history, &audiences, (handoff, content), findings),
            None if history.is_whole() => {
                findings.violation(|| {
                    format!("{} came with a body that names no content: {}", handoff.item(), origin(handoff))
                });
            }
            None => {}
        }
    }
}

/// Returns the audience of each run: by its instant, or by the call that triggered it.
fn audiences(history: &History) -> BTreeMap<Name, Name> {
    let by_instant = history.runs.iter().filter_map(|(name, run)| {
        let audience = history.due.get(&run.instant())?;
        Some((*name, *audience))
    });
    by_instant.chain(triggered(history)).collect()
}

fn report_wrong_content(
    history: &History,
    audiences: &BTreeMap<Name, Name>,
    (handoff, content): (&Handoff, Content),
    findings: &mut Findings,
) {
    let item = handoff.item();
    if content.recipient != handoff.recipient {
        findings.violation(|| format!("{} got what is for {}: {}", item, content.recipient, origin(handoff)));
        return;
    }
    if content.run != handoff.run {
        findings.violation(|| format!("{} got the content of {}: {}", item, content.run, origin(handoff)));
        return;
    }
    // I2 and I10 judge emails without a run.
    let Some(run) = history.run_of(handoff.item()) else { return };
    if run.schedule != content.schedule {
        findings.violation(|| format!("{} got the content of {}, not of {}", item, content.schedule, run.schedule));
        return;
    }
    let audience = audiences.get(&handoff.run);
    let code = audience.and_then(|audience| history.codes.get(&(*audience, content.recipient)));
    if let Some(code) = code.filter(|code| **code != content.code) {
        findings.violation(|| format!("{} got the code {}, not {}", item, content.code, code));
    }
}
