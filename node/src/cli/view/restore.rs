//! Output of `restore …`.

use reveille_proto::admin::v1::{GetRestoreResponse, Restore};
use serde::Serialize;

use super::View;
use super::layout::{Cell, Tone, card, table};
use crate::cli::instant::{duration_ms, text};
use crate::format;

fn pairs(restore: &Restore) -> Vec<(&'static str, Cell)> {
    let accepted = match &restore.accept_time {
        Some(at) => Cell::at(Some(at)),
        None => Cell::toned("no: nothing is sent", Tone::Bad),
    };
    vec![
        ("backup of", Cell::at(restore.backup_time.as_ref())),
        ("restored", Cell::at(restore.restore_time.as_ref())),
        ("accepted", accepted),
    ]
}

impl View for Restore {
    fn name(&self) -> String {
        text(self.restore_time.as_ref()).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }
}

/// `restore` is missing if the cluster was never restored.
impl View for GetRestoreResponse {
    fn name(&self) -> String {
        self.restore.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let Some(restore) = &self.restore else { return "this cluster was never restored from a backup".to_owned() };
        let mut pairs = pairs(restore);
        pairs.push(("in doubt", format::counted(self.in_doubt, "email").into()));
        pairs.push(("schedules", format!("{} active", format::count(self.active_schedules)).into()));
        let rows = self
            .upcoming
            .iter()
            .map(|one| vec![Cell::at(one.due_time.as_ref()), one.tenant.as_str().into(), one.schedule.as_str().into()]);
        let rows: Vec<Vec<Cell>> = rows.collect();
        if rows.is_empty() {
            return card(pairs, paint);
        }
        format!("{}\n\n{}", card(pairs, paint), table(&["NEXT", "TENANT", "SCHEDULE"], rows, paint))
    }
}

/// A data folder that was written from the state of another cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstFolderView {
    /// Id of the new cluster.
    pub cluster: String,
    /// Name of its first node.
    pub node: String,
    /// Peer address of the node.
    pub address: String,
    /// Data folder of the node.
    pub folder: String,
    /// Context of this user by which the cluster is reached; null if clients need none.
    pub context: Option<String>,
    /// Id of the cluster that had the state.
    pub former_cluster: String,
    /// Log index of the state.
    pub index: u64,
    /// Ledger time of the state.
    pub ledger_time: String,
    /// Its age.
    #[serde(serialize_with = "crate::api_json::serialize")]
    pub age: prost_types::Duration,
    /// Recipients whose opt-out changed after it, and is in force again.
    pub opt_outs: u64,
    /// Emails in doubt: the former cluster may have sent them.
    pub in_doubt: u64,
    /// Blocks of the archive that are nowhere.
    pub lost_archive_blocks: u64,
    /// Audience parts that are nowhere.
    pub lost_audience_parts: u64,
}

impl View for FirstFolderView {
    fn name(&self) -> String {
        self.cluster.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let context = self.context.as_ref().map(|name| format!("; context {name} reaches it")).unwrap_or_default();
        let mut lines = vec![
            format!("cluster {} of node {} at {} in {}{context}", self.cluster, self.node, self.address, self.folder),
            format!(
                "from entry {} of {}, {} ago; {} of opt-outs after it are in force",
                self.index,
                self.ledger_time,
                format::duration(duration_ms(&self.age)),
                format::counted(self.opt_outs, "change"),
            ),
            format!("{} in doubt, and held until you decide", format::counted(self.in_doubt, "email")),
        ];
        if self.lost_archive_blocks + self.lost_audience_parts > 0 {
            lines.push(format!(
                "lost: {} of the archive, {}; runs that need these parts cannot send",
                format::counted(self.lost_archive_blocks, "block"),
                format::counted(self.lost_audience_parts, "audience part"),
            ));
        }
        lines.join("\n")
    }
}
