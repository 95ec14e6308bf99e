//! Checks a node's folders on this machine: free space, permissions, and whether the journal is in memory.

use std::path::Path;

use reveille_cluster::worker::journal::in_memory;

use crate::cli::view::doctor::Finding;

/// Free space, in percent of the volume, below which a warning is given. A log and a snapshot still fit.
const WARNING_BELOW: u64 = 10;
/// Free space, in percent of the volume, below which a snapshot may no longer fit.
const PROBLEM_BELOW: u64 = 3;

/// Checks the free space on a folder's volume. `key` is the folder's configuration key.
pub fn check_free_space(key: &str, folder: &Path) -> Option<Finding> {
    match rustix::fs::statvfs(folder) {
        Ok(volume) => room(key, folder, volume.f_bavail, volume.f_blocks),
        Err(error) => {
            let what = format!("{key} {} cannot be examined: {error}", folder.display());
            let why = "a node that cannot use its folder does not start";
            Some(Finding::warning("disk", what, why, "name the folder of a node of this machine, or leave it out"))
        }
    }
}

/// Tries to write a file: the volume may be mounted read-only, or the folder may belong to another user.
pub fn check_writable(key: &str, folder: &Path) -> Option<Finding> {
    if !folder.is_dir() {
        // The finding about the folder's volume already names this error.
        return None;
    }
    let file = folder.join(format!(".reveille-doctor-{}", std::process::id()));
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(&file);
    let error = written.and_then(|_| std::fs::remove_file(&file)).err()?;
    let what = format!("nothing can be written in {key} {}: {error}", folder.display());
    let next = "run doctor as the user of the node; if that finds the same, make the folder writable (mount, chown)";
    Some(Finding::problem("disk", what, "a node that cannot write there stops", next))
}

/// Warns of a journal on a disk: each email may wait for it, and it proves no more (P11).
pub fn check_journal(folder: &Path) -> Option<Finding> {
    // The finding about the folder's volume already names an error.
    if in_memory(folder).unwrap_or(true) {
        return None;
    }
    let what = format!("the journal_dir {} lies on a disk, not in memory", folder.display());
    let why = "each email may wait for that disk before it goes out, and a reboot voids the journal all the same";
    Some(Finding::warning("journal", what, why, "name a folder on a tmpfs, such as /dev/shm, and start the node again"))
}

fn room(key: &str, folder: &Path, free: u64, all: u64) -> Option<Finding> {
    let hundredths = free.saturating_mul(100).checked_div(all)?;
    let severity = match hundredths {
        ..PROBLEM_BELOW => Finding::problem,
        PROBLEM_BELOW..WARNING_BELOW => Finding::warning,
        _ => return None,
    };
    let what = format!("the volume of {key} {} has {hundredths}% left", folder.display());
    let why = "a node whose log cannot grow stops, before it would answer for what it cannot keep";
    Some(severity("disk", what, why, format!("free space there: df -h {}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::view::doctor::Severity;

    #[test]
    fn journal_on_a_disk_is_a_warning() {
        // The source folder is usually on a disk, but it may be on a tmpfs.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let on_disk = !in_memory(folder).expect("a folder");
        let found = check_journal(folder).map(|found| (found.severity, found.check));
        assert_eq!(found, on_disk.then_some((Severity::Warning, "journal")));
        assert_eq!(check_journal(Path::new("/dev/shm")), None);
    }

    #[test]
    fn folder_that_cannot_be_written_is_problem() {
        // Not even root can create a file there.
        let found = check_writable("data_dir", Path::new("/proc")).expect("found");
        assert_eq!((found.severity, found.check), (Severity::Problem, "disk"));
        assert!(found.what.contains("nothing can be written in data_dir /proc"), "{}", found.what);
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(check_writable("data_dir", folder.path()), None);
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 0, "nothing is left");
        assert_eq!(check_writable("data_dir", &folder.path().join("none")), None);
    }

    #[test]
    fn little_room_is_a_warning_and_less_a_problem() {
        let severity =
            |free| room("data_dir", Path::new("/data"), free, 1_000).map(|finding| (finding.severity, finding.what));
        assert_eq!(severity(100), None);
        assert_eq!(severity(99).map(|found| found.0), Some(Severity::Warning));
        let problem = severity(29).expect("found");
        assert_eq!(problem, (Severity::Problem, "the volume of data_dir /data has 2% left".to_owned()));
        assert_eq!(room("data_dir", Path::new("/data"), 0, 0), None, "a volume without blocks has no room to lose");
    }
}
