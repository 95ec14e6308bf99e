//! Opt-outs between backups: files with each opt-out, and each one that was taken back, at the target of the backups.
//!
//! `optouts/<cluster>-<first>-<last>.jsonl` has what changed by the entries `first` to `last`; a range without a change
//! has no file of its own, and belongs to the next one. So a new leader finds the place to go on in the names of the
//! files, and ranges that two leaders wrote overlap without harm. A file ends with the hash of its lines, as a manifest
//! does.

use std::io::ErrorKind;

use reveille_ledger::ids::Time;
use reveille_raft::ClusterId;
use serde::{Deserialize, Serialize};

use super::list::{self, delete};
use super::manifest::{SealedLines, open_lines, read_line, time_text};
use super::target::{BackupTarget, put_new};
use super::verify::target_error;
use super::work::{BackupError, FileFault};

/// Folder of the files.
pub(super) const OPT_OUTS: &str = "optouts";
/// Ending of the files.
const ENDING: &str = ".jsonl";
/// Changes in a file, unless one entry has more.
const CHANGES_MAX: usize = 50_000;

/// An opt-out, or its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OptOutChange {
    /// Log index of the entry.
    pub index: u64,
    /// The tenant.
    pub tenant: String,
    /// Key of the address.
    pub recipient: String,
    /// What changed.
    pub kind: OptOutKind,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptOutKind {
    /// The recipient gets no more email.
    OptedOut,
    /// The recipient gets email again.
    TakenBack,
}

/// First line of a file.
#[derive(Serialize, Deserialize)]
struct HeadLine {
    first: u64,
    last: u64,
    written: String,
}

/// Entries of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    first: u64,
    last: u64,
}

impl Span {
    fn name(self, cluster: ClusterId) -> String {
        format!("{OPT_OUTS}/{cluster}-{:020}-{:020}{ENDING}", self.first, self.last)
    }
}

/// Returns the files of a cluster, in the order of their entries.
fn spans(target: &dyn BackupTarget, cluster: ClusterId) -> Result<Vec<Span>, BackupError> {
    let files = target.list(OPT_OUTS).map_err(|error| target_error(target, "list", OPT_OUTS, error))?;
    let prefix = format!("{OPT_OUTS}/{cluster}-");
    let span = |name: &str| {
        let (first, last) = name.strip_prefix(&prefix)?.strip_suffix(ENDING)?.split_once('-')?;
        Some(Span { first: first.parse().ok()?, last: last.parse().ok()? })
    };
    let mut spans: Vec<Span> = files.iter().filter_map(|file| span(&file.name)).collect();
    spans.sort_unstable();
    Ok(spans)
}

/// Returns the last entry whose changes are at the target: in a file, or else in the oldest backup, so that each backup
/// has all changes after it in files. `None`: there is no backup yet, and nothing to add to.
///
/// # Errors
/// [`BackupError::Target`].
pub fn written_through(target: &dyn BackupTarget, cluster: ClusterId) -> Result<Option<u64>, BackupError> {
    let last = spans(target, cluster)?.into_iter().map(|span| span.last).max();
    match last {
        Some(last) => Ok(Some(last)),
        None => list::oldest_index(target, cluster),
    }
}

/// Writes the changes of the entries after `after`, through `through`. `changes` has all of them, in any order.
///
/// # Errors
/// [`BackupError::Target`]. Some files may be written: the same call may be repeated.
pub fn write(
    target: &dyn BackupTarget,
    cluster: ClusterId,
    (after, through): (u64, u64),
    mut changes: Vec<OptOutChange>,
    now: Time,
) -> Result<(), BackupError> {
    changes.sort_unstable();
    let mut first = after + 1;
    let mut rest = changes.as_slice();
    while !rest.is_empty() {
        let end = rest.get(CHANGES_MAX).map(|change| change.index);
        // A file never ends within the changes of one entry.
        let count = match end {
            Some(end) => match rest.partition_point(|change| change.index < end) {
                0 => rest.partition_point(|change| change.index <= end),
                count => count,
            },
            None => rest.len(),
        };
        let (these, later) = rest.split_at(count);
        let last = if later.is_empty() { through } else { these.last().map_or(through, |change| change.index) };
        let span = Span { first, last };
        let mut lines = SealedLines::default();
        lines.push(&HeadLine { first, last, written: time_text(now) });
        these.iter().for_each(|change| lines.push(change));
        let name = span.name(cluster);
        match put_new(target, &name, &lines.seal()) {
            // A former attempt or a former leader wrote it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            written => written.map_err(|error| target_error(target, "write", &name, error))?,
        }
        (first, rest) = (last + 1, later);
    }
    Ok(())
}

/// Changes after a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamedOptOuts {
    /// The changes, in the order of their entries.
    pub changes: Vec<OptOutChange>,
    /// The last file was written at this time. `None`: there is no file.
    pub written: Option<String>,
}

/// Reads the changes of the entries after `after`.
///
/// # Errors
/// [`BackupError`]; `Damaged` names each file that is damaged, and the entries that no file has.
pub fn read(target: &dyn BackupTarget, cluster: ClusterId, after: u64) -> Result<StreamedOptOuts, BackupError> {
    let mut found = StreamedOptOuts::default();
    let (mut faults, mut through) = (Vec::new(), after);
    for span in spans(target, cluster)?.into_iter().filter(|span| span.last > after) {
        let name = span.name(cluster);
        let mut fault = |what: String| faults.push(FileFault { hash: None, what });
        if span.first > through + 1 {
            let missing = Span { first: through + 1, last: span.first - 1 };
            fault(format!("{} is missing, or files that have its entries", target.place(&missing.name(cluster))));
        }
        through = through.max(span.last);
        let bytes = target.get(&name).map_err(|error| target_error(target, "read", &name, error))?;
        match parse(&bytes, span) {
            Ok((written, changes)) => {
                found.written = Some(written);
                found.changes.extend(changes.into_iter().filter(|change| change.index > after));
            }
            Err(what) => fault(format!("{} is damaged: {what}", target.place(&name))),
        }
    }
    if !faults.is_empty() {
        return Err(BackupError::Damaged(faults));
    }
    found.changes.sort_unstable();
    found.changes.dedup();
    Ok(found)
}

fn parse(bytes: &[u8], span: Span) -> Result<(String, Vec<OptOutChange>), String> {
    let mut lines = open_lines(bytes)?.lines();
    let head: HeadLine = read_line(lines.next().ok_or("it is empty")?)?;
    if (head.first, head.last) != (span.first, span.last) {
        return Err("it is the file of other entries".to_owned());
    }
    Ok((head.written, lines.map(read_line).collect::<Result<_, String>>()?))
}

/// Removes the files whose changes are all in a backup of this index. With `u64::MAX` all files of the cluster go.
pub(super) fn prune(target: &dyn BackupTarget, cluster: ClusterId, index: u64) -> Result<(), BackupError> {
    let mut spans = spans(target, cluster)?;
    if index < u64::MAX {
        // The last one says where the next leader goes on.
        spans.pop();
    }
    for span in spans.into_iter().filter(|span| span.last <= index) {
        delete(target, &span.name(cluster))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::FolderTarget;

    const CLUSTER: ClusterId = ClusterId(7);

    fn change(index: u64, kind: OptOutKind) -> OptOutChange {
        OptOutChange { index, tenant: "default".to_owned(), recipient: format!("r{index}@example.com"), kind }
    }

    #[test]
    fn changes_are_read_from_a_backup_on_without_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(folder.path());
        let (out, back) = (OptOutKind::OptedOut, OptOutKind::TakenBack);
        assert_eq!(written_through(&target, CLUSTER).unwrap(), None);
        write(&target, CLUSTER, (10, 20), vec![change(15, out), change(12, out)], Time(0)).unwrap();
        write(&target, CLUSTER, (20, 30), vec![change(22, back)], Time(0)).unwrap();
        // A former leader, which had written less.
        write(&target, CLUSTER, (10, 25), vec![change(12, out), change(15, out), change(22, back)], Time(0)).unwrap();
        write(&target, CLUSTER, (30, 40), vec![], Time(0)).unwrap();
        assert_eq!(written_through(&target, CLUSTER).unwrap(), Some(30));
        assert_eq!(written_through(&target, ClusterId(8)).unwrap(), None, "another cluster has its own files");
        let read_after = |index| read(&target, CLUSTER, index).map(|found| found.changes);
        assert_eq!(read_after(10).unwrap(), [change(12, out), change(15, out), change(22, back)]);
        assert_eq!(read_after(12).unwrap(), [change(15, out), change(22, back)]);
        assert_eq!(read_after(30).unwrap(), []);
        let gap = read_after(5).unwrap_err().to_string();
        assert!(gap.contains("00006-00000000000000000010.jsonl is missing"), "{gap}");

        let name = Span { first: 21, last: 30 }.name(CLUSTER);
        let whole = target.get(&name).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..40], b""] {
            target.put(&name, damaged).unwrap();
            let error = read_after(12).unwrap_err().to_string();
            assert!(error.contains(&name) && error.contains("is damaged"), "{error}");
        }
        prune(&target, CLUSTER, 29).unwrap();
        assert_eq!(spans(&target, CLUSTER).unwrap(), [Span { first: 21, last: 30 }]);
        prune(&target, CLUSTER, u64::MAX).unwrap();
        assert_eq!(spans(&target, CLUSTER).unwrap(), []);
    }

    #[test]
    fn many_changes_become_several_files_that_end_between_entries() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(folder.path());
        let of_entry = |index: u64, count: usize| (0..count).map(move |at| (index, at));
        let changes = of_entry(2, CHANGES_MAX + 5).chain(of_entry(3, CHANGES_MAX - 1)).chain(of_entry(4, 3));
        let changes: Vec<OptOutChange> = changes
            .map(|(index, at)| OptOutChange { recipient: format!("{at}"), ..change(index, OptOutKind::OptedOut) })
            .collect();
        write(&target, CLUSTER, (1, 9), changes.clone(), Time(0)).unwrap();
        let spans = spans(&target, CLUSTER).unwrap();
        assert_eq!(spans, [Span { first: 2, last: 2 }, Span { first: 3, last: 3 }, Span { first: 4, last: 9 }]);
        assert_eq!(read(&target, CLUSTER, 1).unwrap().changes.len(), changes.len());
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged};

        use super::*;

        fn changes() -> impl Strategy<Value = Vec<OptOutChange>> {
            let change = (11_u64..=20, "[a-z]{1,9}", "\\PC{1,40}", any::<bool>());
            let change = change.prop_map(|(index, tenant, recipient, out)| {
                let kind = if out { OptOutKind::OptedOut } else { OptOutKind::TakenBack };
                OptOutChange { index, tenant, recipient, kind }
            });
            prop::collection::vec(change, 1..6)
        }

        proptest! {
            #![proptest_config(cases(60))]

            #[test]
            fn opt_outs_read_back_and_damaged_file_is_refused(
                changes in changes(),
                damage in prop::collection::vec(damage(), 1..4),
            ) {
                let folder = tempfile::tempdir().unwrap();
                let target = FolderTarget::new(folder.path());
                write(&target, CLUSTER, (10, 20), changes.clone(), Time(0)).unwrap();
                let whole = read(&target, CLUSTER, 10).unwrap().changes;
                let mut expected = changes;
                expected.sort_unstable();
                expected.dedup();
                prop_assert_eq!(&whole, &expected);
                let name = Span { first: 11, last: 20 }.name(CLUSTER);
                target.put(&name, &damaged(&target.get(&name).unwrap(), &damage)).unwrap();
                if let Ok(other) = read(&target, CLUSTER, 10) {
                    prop_assert_eq!(other.changes, expected);
                }
            }
        }
    }
}
