//! Output of `backup …`.

use reveille_cluster::backup::{ListedBackup, time_text};
use reveille_proto::admin::v1::Backup;

use super::{Cell, Serialize, Tone, View, format, text};

impl View for Backup {
    fn name(&self) -> String {
        format!("{}-{}", self.cluster, self.index)
    }

    fn text(&self, _: bool) -> String {
        let at = text(self.ledger_time.as_ref()).unwrap_or_else(|| "-".to_owned());
        format!(
            "backup {} of {at} made and verified: {} of {} copied, {} of content{}",
            self.index,
            format::count(self.copied_files),
            format::counted(self.files, "file"),
            bytes(self.bytes),
            lacks(self.lost_files.into())
        )
    }
}

/// A backup at a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupView {
    name: String,
    cluster: String,
    index: u64,
    /// Null if its manifest is damaged.
    ledger_time: Option<String>,
    written: Option<String>,
    node: Option<String>,
    level: Option<u32>,
    bytes: Option<u64>,
    /// Files that it lacks, because every voter lacked them.
    lost_files: u64,
    /// It was read back whole after it was made.
    verified: bool,
    /// What is wrong with its manifest.
    damaged: Option<String>,
}

impl From<&ListedBackup> for BackupView {
    fn from(ListedBackup { id, verified, manifest }: &ListedBackup) -> BackupView {
        let known = manifest.as_ref().ok();
        BackupView {
            name: format!("{}-{}", id.cluster, id.index),
            cluster: id.cluster.to_string(),
            index: id.index,
            ledger_time: known.map(|known| time_text(known.ledger_time)),
            written: known.map(|known| time_text(known.written)),
            node: known.map(|known| known.node.clone()),
            level: known.map(|known| known.level),
            bytes: known.map(|known| known.bytes()),
            lost_files: known.map_or(0, |known| known.lost.len() as u64),
            verified: *verified,
            damaged: manifest.as_ref().err().map(ToString::to_string),
        }
    }
}

impl View for BackupView {
    const NOUN: &'static str = "backups";
    const COLUMNS: &'static [&'static str] = &["CLUSTER", "INDEX", "LEDGER TIME", "SIZE", "NODE", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let state = match (&self.damaged, self.verified) {
            (Some(_), _) => Cell::toned("manifest damaged", Tone::Bad),
            (None, true) if self.lost_files > 0 => {
                Cell::toned(format!("verified{}", lacks(self.lost_files)), Tone::Notable)
            }
            (None, true) => Cell::toned("verified", Tone::Good),
            (None, false) => Cell::toned("not verified", Tone::Notable),
        };
        vec![
            self.cluster.get(..8).unwrap_or(&self.cluster).into(),
            self.index.to_string().into(),
            Cell::or_dash(self.ledger_time.as_deref()),
            Cell::or_dash(self.bytes.map(bytes).as_deref()),
            Cell::or_dash(self.node.as_deref()),
            state,
        ]
    }
}

/// Says how many files a backup lacks, because they were lost.
fn lacks(files: u64) -> String {
    if files == 0 { String::new() } else { format!("; lacks {} that no voter had", format::counted(files, "file")) }
}

/// Formats a size.
pub fn bytes(number: u64) -> String {
    indicatif::HumanBytes(number).to_string()
}
