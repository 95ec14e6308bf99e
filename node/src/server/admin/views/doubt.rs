//! Builds messages of recipients of a run, and of those that wait for a decision: in doubt, or dead.

use reveille_ledger::claim_history::DoubtReason;
use reveille_ledger::ids::{Fence, Hash, RecipientId, RunId, Time};
use reveille_ledger::recipients::{LastAnswer, RecipientRow};
use reveille_ledger::{Claim, DeadLetter, Ledger, RecipientState, Run};
use reveille_proto::admin::v1;

use super::{node_name, timestamp};
use crate::server::admin::enums::OnWire;

/// A recipient that is held in doubt.
pub struct DoubtRow {
    /// Its run.
    pub run: RunId,
    /// Its number in the run.
    pub number: u32,
    /// The run's audience.
    pub audience: Hash,
    /// The run's content.
    pub content: Hash,
    /// Cluster incarnation in which the run opened.
    pub cluster_incarnation: u64,
    /// Id of the cluster of that incarnation, if it is a former one.
    pub former_cluster: Option<u128>,
    fence: Fence,
    node: String,
    incarnation: u64,
    claimed_at: Time,
    doubt: DoubtReason,
    since: Time,
    /// When its run leaves the state; `None` while it is not finished.
    leaves_at: Option<Time>,
    /// True if its node has restarted with a later incarnation.
    returned: bool,
}

impl DoubtRow {
    /// Returns recipient `number` of a run, whose state is in `slot` of the claim `row`. Returns `None` if it is not in
    /// doubt.
    pub fn new(
        ledger: &Ledger,
        (id, run, cluster_incarnation): (RunId, &Run, u64),
        number: u32,
        (fence, row, slot): (Fence, &Claim, u16),
    ) -> Option<DoubtRow> {
        let (doubt, since) = row.doubt(slot)?;
        Some(DoubtRow {
            run: id,
            number,
            audience: run.audience,
            content: run.content,
            cluster_incarnation,
            former_cluster: ledger.former_cluster(cluster_incarnation),
            fence,
            node: node_name(ledger, row.owner.node),
            incarnation: row.owner.incarnation.0,
            claimed_at: row.claimed_at,
            doubt,
            since,
            leaves_at: ledger.leaves_undecided_at(run),
            returned: !ledger.is_current(row.owner),
        })
    }
}

/// Returns why the outcome is unknown, in a few words.
pub fn cause(doubt: DoubtReason) -> &'static str {
    match doubt {
        DoubtReason::NoAnswer => "no answer after the final dot",
        DoubtReason::OwnerLost => "owner lost",
        DoubtReason::Begun => "handed off, no answer in the journal",
        DoubtReason::NoJournal => "owner came back without its journal",
        DoubtReason::Restored => "restored from a backup",
    }
}

/// Returns the commands that resolve the doubt, depending on what the relay's log shows.
fn resolve(held: &DoubtRow) -> String {
    let (run, number) = (held.run, held.number);
    format!(
        "if that log shows it accepted: reveille in-doubt resolve {run} '#{number}' --sent; if it does not: --resend"
    )
}

/// Returns what is known about the handoff, and what to do next.
fn evidence(held: &DoubtRow) -> (String, Option<String>) {
    let DoubtRow { node, incarnation, .. } = held;
    match (held.doubt, held.returned) {
        (DoubtReason::NoAnswer, _) => {
            (format!("{node} handed it off and heard no answer, so only the relay can tell"), None)
        }
        (DoubtReason::OwnerLost, false) => (
            format!("the lease of {node} is over and nothing came from it since: it may have been handed off or not"),
            Some(format!(
                "start {node} again, with its data folder and its journal folder; if it runs, let it reach the others: \
                 it settles this by its journal of incarnation {incarnation}. If it is gone for good, the relay's log tells: {}",
                resolve(held)
            )),
        ),
        (DoubtReason::OwnerLost, true) => (
            format!(
                "{node} is back, and what its journal of incarnation {incarnation} tells of this is not settled yet"
            ),
            Some(format!("wait: {node} settles it when it reaches the leader")),
        ),
        (DoubtReason::Begun, _) => (
            format!(
                "{node} came back with the journal of its incarnation {incarnation}: the handoff had begun and no answer is \
                 written, so only the relay can tell"
            ),
            None,
        ),
        (DoubtReason::NoJournal, _) => (
            format!(
                "{node} came back without a journal that proves anything of its incarnation {incarnation}: it may have been handed \
                 off or not, so only the relay can tell"
            ),
            None,
        ),
        (DoubtReason::Restored, _) => {
            ("the former cluster may have sent it after the backup, so only the relay can tell".to_owned(), None)
        }
    }
}

/// Builds the message. `message_id` is the Message-ID to look for in the relay's log. `None` means to look for the
/// fence.
pub fn doubt(held: &DoubtRow, recipient: String, message_id: Option<&str>) -> v1::Doubt {
    let (evidence, next) = evidence(held);
    let search_term = match message_id {
        Some(id) => format!("Message-ID <{id}>"),
        None => format!("X-Reveille-Fence {}", held.fence),
    };
    let (run, number) = (held.run, held.number);
    v1::Doubt {
        run: run.to_string(),
        recipient,
        number,
        fence: held.fence.to_string(),
        node: held.node.clone(),
        cause: cause(held.doubt).to_owned(),
        doubt_time: Some(timestamp(held.since)),
        leave_time: held.leaves_at.map(timestamp),
        evidence: format!("{evidence}; look for {search_term} in the relay's log"),
        next_step: next.unwrap_or_else(|| resolve(held)),
        claim_time: Some(timestamp(held.claimed_at)),
        message_id: message_id.unwrap_or_default().to_owned(),
    }
}

/// Builds the message of a dead letter.
pub fn dead_letter(of: RecipientId, address: String, letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        run: of.run.to_string(),
        recipient: address,
        number: of.number,
        code: u32::from(letter.code),
        enhanced: letter.enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default(),
        text: letter.text().to_owned(),
        attempts: u32::from(letter.attempts),
        settle_time: Some(timestamp(letter.since)),
    }
}

/// Builds the message of a recipient of a run. `address`: `None` for a caller who may not read addresses.
pub fn run_recipient(row: RecipientRow, address: Option<String>) -> v1::RunRecipient {
    let RecipientRow { number, state, attempts, at, last_answer, dead, doubt, inside_gap } = row;
    let attempts = dead.as_ref().map_or(attempts, |letter| letter.attempts);
    let why = match state {
        RecipientState::InDoubt => doubt.map(cause),
        RecipientState::Suppressed if inside_gap => Some("min_gap"),
        RecipientState::Suppressed => Some("opted out"),
        _ => None,
    };
    let answer = match dead {
        Some(letter) => LastAnswer { code: letter.code, enhanced: letter.enhanced, text: letter.text().to_owned() },
        None => {
            let answer = last_answer.unwrap_or(LastAnswer { code: 0, enhanced: None, text: String::new() });
            LastAnswer { text: why.map_or(answer.text, str::to_owned), ..answer }
        }
    };
    // A relay's text often contains the address.
    let text = if address.is_some() { answer.text } else { String::new() };
    v1::RunRecipient {
        number,
        address: address.unwrap_or_default(),
        state: state.wire().into(),
        code: u32::from(answer.code),
        enhanced: answer.enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default(),
        text,
        attempts: u32::from(attempts),
        update_time: at.map(timestamp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handbook_has_a_line_for_each_cause() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/doubt-and-dead-letters.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        let table = page.split("| cause in `in-doubt list` |").nth(1).expect("a table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
        let documented: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()?.strip_prefix("| ")).collect();
        let causes = [
            DoubtReason::NoAnswer,
            DoubtReason::OwnerLost,
            DoubtReason::Begun,
            DoubtReason::NoJournal,
            DoubtReason::Restored,
        ]
        .map(cause);
        assert_eq!(documented, causes);
    }
}
