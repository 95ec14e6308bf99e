//! Recipients that need somebody to look: in doubt, or dead.

use reveille_ledger::ids::{Fence, Hash, RunId, Time};
use reveille_ledger::{DeadLetter, Ledger, Row, Run};
use reveille_proto::admin::v1;

use super::{node_name, timestamp};

/// A recipient that is held in doubt, as the state has it.
pub struct Held {
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
    fence: Fence,
    node: String,
    incarnation: u64,
    claimed_at: Time,
    lost: Option<String>,
    /// Is the life that had it in hand the node's current one?
    lives: bool,
}

impl Held {
    /// Recipient `number` of a run, held in a row.
    pub fn new(
        ledger: &Ledger,
        (id, run, cluster_incarnation): (RunId, &Run, u64),
        number: u32,
        (fence, row): (Fence, &Row),
    ) -> Held {
        Held {
            run: id,
            number,
            audience: run.audience,
            content: run.content,
            cluster_incarnation,
            fence,
            node: node_name(ledger, row.holder.node),
            incarnation: row.holder.incarnation.0,
            claimed_at: row.claimed_at,
            lost: row.lost.clone(),
            lives: ledger.is_current(row.holder),
        }
    }
}

/// Why a row's recipients are in doubt.
pub fn cause(lost: Option<&str>) -> String {
    lost.unwrap_or("no answer after the final dot").to_owned()
}

/// The message. `message_id`: under which the relay may know it.
pub fn doubt(held: &Held, recipient: String, message_id: Option<&str>) -> v1::Doubt {
    let resolves = match (&held.lost, held.lives) {
        (None, _) => format!("{} heard no answer, so only the relay can tell", held.node),
        (Some(_), true) => format!("{} runs in the same life and settles it when it reaches the leader", held.node),
        (Some(_), false) => {
            format!("{} settles it when it comes back with the journal of its life {}", held.node, held.incarnation)
        }
    };
    let look = match message_id {
        Some(id) => format!("; look for Message-ID <{id}> in the relay's log"),
        None => format!("; look for X-Reveille-Fence {} in the relay's log", held.fence),
    };
    v1::Doubt {
        run: held.run.to_string(),
        recipient,
        number: held.number,
        fence: held.fence.to_string(),
        node: held.node.clone(),
        cause: cause(held.lost.as_deref()),
        since: Some(timestamp(held.claimed_at)),
        evidence: format!("{resolves}{look}"),
    }
}

/// A dead letter.
pub fn dead_letter(run: RunId, number: u32, recipient: String, letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        run: run.to_string(),
        recipient,
        number,
        code: u32::from(letter.code),
        enhanced: letter
            .enhanced
            .map(|(class, subject, detail)| format!("{class}.{subject}.{detail}"))
            .unwrap_or_default(),
        text: letter.text.clone(),
        attempts: u32::from(letter.attempts),
        since: Some(timestamp(letter.since)),
    }
}
