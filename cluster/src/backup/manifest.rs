//! The manifest of a backup, and the names of all files at a target.
//!
//! ```text
//! blocks/<64 hex digits>                 rows of the state, of the archive, or recipients: named by their content
//! backups/<cluster>-<index>.manifest     written last, never changed: what a backup consists of
//! backups/<cluster>-<index>.verified     the backup was read back whole, and loaded
//! optouts/<cluster>-<first>-<last>.jsonl opt-outs of these log indexes (`opt_outs`)
//! ```
//!
//! A manifest is JSON, one object a line: the head, then a line for each file, then the hash of all lines before. So a
//! person can read it, and a cut is noticed. Clusters share blocks only, since these are named by their content.

use jiff::Timestamp;
use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::storage::{BlockEntry, hash_of_blocks};
use reveille_raft::ClusterId;
use serde::{Deserialize, Serialize};

/// The format that this program writes and reads.
const FORMAT: u32 = 1;
/// Folder of all blocks and audience parts.
pub(super) const BLOCKS: &str = "blocks";
/// Folder of manifests.
pub(super) const BACKUPS: &str = "backups";

/// What a backup consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupManifest {
    /// Which backup it is.
    pub id: BackupId,
    /// The cluster's incarnation (P21).
    pub incarnation: u64,
    /// Name of the node that wrote it.
    pub node: String,
    /// Release of that node.
    pub version: String,
    /// Ledger time of the state.
    pub ledger_time: Time,
    /// Time of the writer's clock.
    pub written: Time,
    /// Level of the ledger (P23).
    pub level: u32,
    /// Hash of the last audit record: who owns the nodes cannot change it here.
    pub audit_head: Hash,
    /// The blocks of the state, in the order of their rows.
    pub state: Vec<BlockEntry>,
    /// The blocks of the archive.
    pub archive: Vec<BlockEntry>,
    /// The parts of sealed audiences, with the sizes of their files.
    pub parts: Vec<(Hash, u64)>,
    /// Parts that the state names and the backup lacks: every voter lacked them (P20).
    pub lost: Vec<Hash>,
}

/// Names a backup: its cluster, and the log index of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackupId {
    /// The cluster.
    pub cluster: ClusterId,
    /// Log index of the last entry in the state.
    pub index: u64,
}

impl BackupId {
    /// Returns the id by the name of one of its files, with this ending.
    pub(super) fn of_file(name: &str, ending: &str) -> Option<BackupId> {
        let (cluster, index) = name.strip_prefix(BACKUPS)?.strip_prefix('/')?.strip_suffix(ending)?.split_once('-')?;
        let cluster = ClusterId(u128::from_str_radix(cluster, 16).ok()?);
        Some(BackupId { cluster, index: index.parse().ok()? })
    }

    /// Name of the manifest.
    pub fn manifest(&self) -> String {
        format!("{BACKUPS}/{}-{:020}{MANIFEST}", self.cluster, self.index)
    }

    /// Name of the file that says that the backup was verified.
    pub(super) fn verified(&self) -> String {
        format!("{BACKUPS}/{}-{:020}{VERIFIED}", self.cluster, self.index)
    }
}

pub(super) const MANIFEST: &str = ".manifest";
pub(super) const VERIFIED: &str = ".verified";

/// Returns the name of a block or an audience part.
pub(super) fn block_name(hash: Hash) -> String {
    format!("{BLOCKS}/{hash}")
}

/// First line.
#[derive(Serialize, Deserialize)]
struct HeadLine {
    format: u32,
    cluster: String,
    incarnation: u64,
    index: u64,
    ledger_time: String,
    level: u32,
    state_hash: String,
    audit_head: String,
    written: String,
    node: String,
    version: String,
}

/// One file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileLine {
    /// Rows of the state.
    State { block: String, bytes: u64, rows: u32 },
    /// Rows of the archive.
    Archive { block: String, bytes: u64, rows: u32 },
    /// A part of a sealed audience.
    Part { block: String, bytes: u64 },
    /// A part of a sealed audience that was lost.
    Lost { block: String },
}

/// Last line.
#[derive(Serialize, Deserialize)]
struct EndLine {
    blake3: String,
}

impl BackupManifest {
    /// Hash of the state: equal on each node at this index (I11).
    pub fn state_hash(&self) -> Hash {
        hash_of_blocks(&self.state)
    }

    /// Size of all its content in bytes, uncompressed.
    pub fn bytes(&self) -> u64 {
        let blocks = self.state.iter().chain(&self.archive).map(|block| block.bytes);
        blocks.chain(self.parts.iter().map(|(_, bytes)| *bytes)).fold(0, u64::saturating_add)
    }

    /// Returns the names of its blocks and parts; some may come twice.
    pub fn hashes(&self) -> impl Iterator<Item = Hash> + '_ {
        let blocks = self.state.iter().chain(&self.archive).map(|block| block.hash);
        blocks.chain(self.parts.iter().map(|(part, _)| *part))
    }

    /// Encodes the manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = HeadLine {
            format: FORMAT,
            cluster: self.id.cluster.to_string(),
            incarnation: self.incarnation,
            index: self.id.index,
            ledger_time: time_text(self.ledger_time),
            level: self.level,
            state_hash: self.state_hash().to_string(),
            audit_head: self.audit_head.to_string(),
            written: time_text(self.written),
            node: self.node.clone(),
            version: self.version.clone(),
        };
        let named = |entry: &BlockEntry| (entry.hash.to_string(), entry.bytes, entry.rows);
        let state = self.state.iter().map(named).map(|(block, bytes, rows)| FileLine::State { block, bytes, rows });
        let archive = self.archive.iter().map(named);
        let archive = archive.map(|(block, bytes, rows)| FileLine::Archive { block, bytes, rows });
        let part = |(part, bytes): &(Hash, u64)| FileLine::Part { block: part.to_string(), bytes: *bytes };
        let lost = self.lost.iter().map(|part| FileLine::Lost { block: part.to_string() });
        let mut lines = SealedLines::default();
        lines.push(&head);
        state.chain(archive).chain(self.parts.iter().map(part)).chain(lost).for_each(|line| lines.push(&line));
        lines.seal()
    }

    /// Decodes a manifest. Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<BackupManifest, String> {
        let mut lines = open_lines(bytes)?.lines();
        let head: HeadLine = read_line(lines.next().ok_or("it is empty")?)?;
        if head.format != FORMAT {
            return Err(format!("it has format {}; this program reads format {FORMAT}", head.format));
        }
        let cluster = u128::from_str_radix(&head.cluster, 16).map_err(|_| "its cluster is not an id".to_owned())?;
        let mut manifest = BackupManifest {
            id: BackupId { cluster: ClusterId(cluster), index: head.index },
            incarnation: head.incarnation,
            node: head.node,
            version: head.version,
            ledger_time: time_of(&head.ledger_time)?,
            written: time_of(&head.written)?,
            level: head.level,
            audit_head: head.audit_head.parse()?,
            state: Vec::new(),
            archive: Vec::new(),
            parts: Vec::new(),
            lost: Vec::new(),
        };
        for line in lines {
            match read_line(line)? {
                FileLine::State { block, bytes, rows } => {
                    manifest.state.push(BlockEntry { hash: block.parse()?, bytes, rows });
                }
                FileLine::Archive { block, bytes, rows } => {
                    manifest.archive.push(BlockEntry { hash: block.parse()?, bytes, rows });
                }
                FileLine::Part { block, bytes } => manifest.parts.push((block.parse()?, bytes)),
                FileLine::Lost { block } => manifest.lost.push(block.parse()?),
            }
        }
        match manifest.state_hash().to_string() == head.state_hash {
            true => Ok(manifest),
            false => Err("its blocks are not those of its state".to_owned()),
        }
    }
}

/// JSON, one object a line, with the hash of all lines as the last one.
#[derive(Default)]
pub(super) struct SealedLines(Vec<u8>);

impl SealedLines {
    pub(super) fn push(&mut self, line: &impl Serialize) {
        serde_json::to_writer(&mut self.0, line).expect("plain data in memory can be encoded");
        self.0.push(b'\n');
    }

    pub(super) fn seal(mut self) -> Vec<u8> {
        let blake3 = Hash::of(&self.0).to_string();
        self.push(&EndLine { blake3 });
        self.0
    }
}

/// Returns the lines before the last one, whose hash it has.
pub(super) fn open_lines(bytes: &[u8]) -> Result<&str, String> {
    let cut = || "it is cut short".to_owned();
    let whole = bytes.strip_suffix(b"\n").ok_or_else(cut)?;
    let before = whole.iter().rposition(|byte| *byte == b'\n').ok_or_else(cut)? + 1;
    let (lines, end) = whole.split_at(before);
    let end: EndLine = serde_json::from_slice(end).map_err(|_| cut())?;
    if end.blake3 != Hash::of(lines).to_string() {
        return Err("it differs from what was written".to_owned());
    }
    std::str::from_utf8(lines).map_err(|error| error.to_string())
}

pub(super) fn read_line<'l, T: Deserialize<'l>>(line: &'l str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("a line cannot be read: {error}"))
}

/// Formats a time as RFC 3339.
pub fn time_text(time: Time) -> String {
    Timestamp::from_millisecond(time.0).map(|time| time.to_string()).unwrap_or_default()
}

fn time_of(text: &str) -> Result<Time, String> {
    let time: Timestamp = text.parse().map_err(|_| format!("'{text}' is no time"))?;
    Ok(Time(time.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BackupManifest {
        let block = |byte: u8| BlockEntry { hash: Hash([byte; 32]), bytes: 100 + u64::from(byte), rows: 3 };
        BackupManifest {
            id: BackupId { cluster: ClusterId(7), index: 42 },
            incarnation: 1,
            node: "n1".to_owned(),
            version: "0.1.0".to_owned(),
            ledger_time: Time(1_800_000_000_123),
            written: Time(1_800_000_001_000),
            level: 1,
            audit_head: Hash([5; 32]),
            state: vec![block(1), block(2)],
            archive: vec![block(3)],
            parts: vec![(Hash([4; 32]), 9)],
            lost: vec![Hash([6; 32])],
        }
    }

    #[test]
    fn manifest_is_read_as_written_and_by_people() {
        let manifest = sample();
        let bytes = manifest.to_bytes();
        assert_eq!(BackupManifest::from_bytes(&bytes).unwrap(), manifest);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(r#""ledger_time":"2027-01-15T08:00:00.123Z""#), "{text}");
        assert!(text.contains(&format!(r#""audit_head":"{}""#, Hash([5; 32]))), "{text}");
        assert_eq!(text.lines().count(), 7);
        assert_eq!(manifest.bytes(), 101 + 102 + 103 + 9);
        assert_eq!(BackupId::of_file(&manifest.id.manifest(), MANIFEST), Some(manifest.id));
        assert_eq!(BackupId::of_file(&manifest.id.verified(), MANIFEST), None);
    }

    #[test]
    fn manifest_with_any_flipped_bit_or_cut_is_refused() {
        let bytes = sample().to_bytes();
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << (place % 8);
            assert!(BackupManifest::from_bytes(&flipped).is_err(), "bit of byte {place}");
            assert!(BackupManifest::from_bytes(&bytes[..place]).is_err(), "cut at {place}");
        }
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged};

        use super::*;

        fn blocks() -> impl Strategy<Value = Vec<BlockEntry>> {
            let block = (any::<[u8; 32]>(), any::<u64>(), any::<u32>());
            prop::collection::vec(
                block.prop_map(|(hash, bytes, rows)| BlockEntry { hash: Hash(hash), bytes, rows }),
                0..5,
            )
        }

        proptest! {
            #![proptest_config(cases(500))]

            #[test]
            fn manifest_reads_back_and_damaged_one_is_refused(
                (state, archive) in (blocks(), blocks()),
                parts in prop::collection::vec((any::<[u8; 32]>().prop_map(Hash), any::<u64>()), 0..4),
                (cluster, index, incarnation) in any::<(u128, u64, u64)>(),
                (ledger_ms, level, node) in (0_i64..4_102_444_800_000, any::<u32>(), "\\PC{0,20}"),
                damage in prop::collection::vec(damage(), 1..4),
            ) {
                let id = BackupId { cluster: ClusterId(cluster), index };
                let times = BackupManifest { ledger_time: Time(ledger_ms), written: Time(ledger_ms), ..sample() };
                let manifest = BackupManifest { id, incarnation, level, node, state, archive, parts, ..times };
                let bytes = manifest.to_bytes();
                prop_assert_eq!(BackupManifest::from_bytes(&bytes), Ok(manifest.clone()));
                // Blanks in the last line do not matter: all other lines have a hash there.
                let other = BackupManifest::from_bytes(&damaged(&bytes, &damage));
                prop_assert!(other.is_err() || other == Ok(manifest), "{other:?}");
            }
        }
    }
}
