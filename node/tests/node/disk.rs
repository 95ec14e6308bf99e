//! A disk that is full: the node stops and says so, and nothing that was answered is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, until};
use crate::small_disk::SmallDisk;

/// Gives it more room while it is in use.
fn grow(disk: &SmallDisk, megabytes: u32) {
    let size = format!("remount,size={megabytes}m");
    let grown = Command::new("mount").args(["-o", &size]).arg(disk.path()).status();
    assert!(grown.is_ok_and(|status| status.success()), "it grows");
}

/// A text that no other schedule has: each takes room of its own.
fn text(folder: &Path, number: usize) -> PathBuf {
    let path = folder.join("text.txt");
    let line = |part: usize| format!("{number} {part} of a text that is as long as a mail may be here\n");
    fs::write(&path, (0..6_000).map(line).collect::<String>()).expect("written");
    path
}

fn create(node: &Process, folder: &Path, number: usize) -> bool {
    let text = text(folder, number);
    let what = "--cron @yearly --tz UTC --to ann@example.net --sender b@example.net --subject s -o name";
    node.reveille(&format!("schedule create s{number} {what} --text {}", text.display())).code == Some(0)
}

#[test]
fn a_full_disk_stops_the_node_and_what_was_answered_is_there_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(12) else { return };
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut node = Process::listening(disk.path(), "a");
    assert_eq!(node.reveille("cluster init").code, Some(0));
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let answered: Vec<usize> = (1..100).take_while(|number| create(&node, elsewhere.path(), *number)).collect();
    assert!((3..99).contains(&answered.len()), "the disk was filled by schedules: {answered:?}");
    assert_eq!(node.ended(), Some(1), "{}", node.said());
    let last = node.said().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("the disk is full") && last.contains("free space on the volume"), "{last}");

    grow(&disk, 64);
    let node = Process::listening(disk.path(), "a");
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let listed = node.reveille("schedule list -o name").stdout;
    let listed: Vec<&str> = listed.lines().collect();
    for number in answered {
        assert!(listed.contains(&format!("s{number}").as_str()), "s{number} was answered: {listed:?}");
    }
    assert!(create(&node, elsewhere.path(), 100), "and it goes on: {}", node.said());
}
