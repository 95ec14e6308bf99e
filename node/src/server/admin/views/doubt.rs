//! Builds messages of recipients of a run, and of those that wait for a decision: in doubt, or dead.

use reveille_ledger::claim_history::DoubtReason;
use reveille_ledger::ids::{Fence, Hash, RecipientId, RunId, Time};
use reveille_ledger::recipients::{LastAnswer, RecipientRow};
use reveille_ledger::{Claim, DeadLetter, Ledger, RecipientState, Run};
use reveille_proto::admin::v1;

use super::{node_name, timestamp};
use crate::server::admin::enums::OnWire;
use crate::server::admin::explain::death;

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
    node_returned: bool,
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
            node_returned: !ledger.is_current(row.owner),
        })
    }
}

/// Builds the message. `message_id` is the Message-ID to look for in the relay's log. `None` means to look for the
/// fence.
pub fn doubt(held: &DoubtRow, recipient: String, message_id: Option<&str>) -> v1::Doubt {
    v1::Doubt {
        run: held.run.to_string(),
        recipient,
        number: held.number,
        fence: held.fence.to_string(),
        node: held.node.clone(),
        cause: held.doubt.wire().into(),
        doubt_time: Some(timestamp(held.since)),
        leave_time: held.leaves_at.map(timestamp),
        incarnation: held.incarnation,
        node_returned: held.node_returned,
        claim_time: Some(timestamp(held.claimed_at)),
        message_id: message_id.unwrap_or_default().to_owned(),
    }
}

/// Builds the message of a dead letter.
pub fn dead_letter(of: RecipientId, address: String, letter: &DeadLetter) -> v1::DeadLetter {
    let (reason, text) = death(letter);
    v1::DeadLetter {
        run: of.run.to_string(),
        recipient: address,
        number: of.number,
        code: u32::from(letter.code),
        enhanced: letter.enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default(),
        text: text.to_owned(),
        attempts: u32::from(letter.attempts),
        settle_time: Some(timestamp(letter.since)),
        death_reason: reason.into(),
    }
}

/// Builds the message of a recipient of a run. `address`: `None` for a caller who may not read addresses.
pub fn run_recipient(row: RecipientRow, address: Option<String>) -> v1::RunRecipient {
    let RecipientRow { number, state, attempts, at, last_answer, dead, doubt, inside_gap } = row;
    let attempts = dead.as_ref().map_or(attempts, |letter| letter.attempts);
    let doubt_cause = doubt.filter(|_| state == RecipientState::InDoubt).map(OnWire::wire).unwrap_or_default();
    let suppression = match state {
        RecipientState::Suppressed if inside_gap => v1::Suppression::MinGap,
        RecipientState::Suppressed => v1::Suppression::OptedOut,
        _ => v1::Suppression::Unspecified,
    };
    let (reason, answer) = match &dead {
        Some(letter) => {
            let (reason, text) = death(letter);
            (reason, LastAnswer { code: letter.code, enhanced: letter.enhanced, text: text.to_owned() })
        }
        None => {
            let none = LastAnswer { code: 0, enhanced: None, text: String::new() };
            (v1::DeathReason::Unspecified, last_answer.unwrap_or(none))
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
        doubt_cause: doubt_cause.into(),
        suppression: suppression.into(),
        death_reason: reason.into(),
    }
}
