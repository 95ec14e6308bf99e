//! Files of audiences and attachments that every voter lacks, and what needs them (P20).

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::ids::Hash;
use reveille_ledger::{Ledger, RunState};
use reveille_proto::admin::v1::LostFiles;

/// Maximum number of names of each kind.
const NAMES_MAX: usize = 100;

/// Returns what is lost. `None`: nothing.
pub(super) fn message(context: &NodeContext) -> Option<LostFiles> {
    let lost = context.files.lost();
    (!lost.is_empty()).then(|| context.replica.read(|ledger| users(ledger, &lost)))
}

fn users(ledger: &Ledger, lost: &BTreeSet<Hash>) -> LostFiles {
    let mut lists: BTreeMap<Hash, bool> = BTreeMap::new();
    let mut is_list = |list: &Hash| {
        let parts = || ledger.seal(list).map(|seal| seal.parts).unwrap_or_default();
        ledger.is_seal(list) && *lists.entry(*list).or_insert_with(|| parts().iter().any(|part| lost.contains(part)))
    };
    let is_content = |content: &Hash| ledger.attached_files(content).any(|file| lost.contains(&file));
    let named = |tenant: &str, name: &str| format!("{tenant}/{name}");
    let audiences = ledger.audiences().iter().filter(|(_, row)| is_list(&row.seal));
    let audiences = audiences.map(|((tenant, name), _)| named(tenant, name)).take(NAMES_MAX).collect();
    let schedules = ledger.schedules().iter().map(|(_, schedule)| schedule);
    let schedules = schedules.filter(|one| is_list(&one.audience) || is_content(&one.content));
    let schedules = schedules.map(|one| named(&one.settings.tenant, &one.name)).take(NAMES_MAX).collect();
    let mut shown = LostFiles { files: lost.len() as u32, audiences, schedules, ..LostFiles::default() };
    for (id, _, run) in ledger.runs().filter(|(_, _, run)| is_list(&run.audience) || is_content(&run.content)) {
        match run.state {
            RunState::Open | RunState::Paused { .. } if shown.runs.len() < NAMES_MAX => shown.runs.push(id.to_string()),
            RunState::Open | RunState::Paused { .. } => {}
            RunState::Cancelled { .. } | RunState::Expired { .. } | RunState::Finished => shown.ended_runs += 1,
        }
    }
    shown
}
