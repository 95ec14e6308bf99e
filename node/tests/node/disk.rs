//! A full disk and a full journal: the node stops with an error, and no email is lost or sent twice.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reveille_sink::{Sink, SinkOptions};

use crate::http_json::Curl;
use crate::process::{Ended, Process, STEP_TIMEOUT, client, until};
use crate::small_disk::SmallDisk;

/// The file that fills a disk.
const FILLER: &str = "filled";
/// Bytes that stay free when a node is to use its reserve: enough for what it writes until it checks the space.
const LEFT: u64 = 512 * 1024;

/// Makes the file system larger while it is mounted.
fn grow(disk: &SmallDisk, megabytes: u32) {
    let size = format!("remount,size={megabytes}m");
    let grown = Command::new("mount").args(["-o", &size]).arg(disk.path()).status();
    assert!(grown.is_ok_and(|status| status.success()), "it grows");
}

/// Writes a text that no other schedule has, so that each takes its own space.
fn text(folder: &Path, number: usize) -> PathBuf {
    let path = folder.join("text.txt");
    let line = |part: usize| format!("{number} {part} of a text that is as long as an email may be here\n");
    fs::write(&path, (0..6_000).map(line).collect::<String>()).expect("written");
    path
}

fn create(node: &Process, folder: &Path, number: usize) -> bool {
    let text = text(folder, number);
    let what = "--cron @yearly --zone UTC --to ann@example.net --sender b@example.net --subject s -o name";
    node.reveille(&format!("schedule create s{number} {what} --text {}", text.display())).code == Some(0)
}

/// Environment of a node that keeps a reserve: a twentieth of its small volume.
const RESERVE: [(&str, &str); 1] = [("REVEILLE__DISK_RESERVE_MIB", "256")];

#[test]
fn full_disk_stops_node_and_loses_nothing_answered() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let elsewhere = tempfile::tempdir().expect("a folder");
    let ports = ["127.0.0.1:0"; 3];
    let mut node = Process::listening_by(disk.path(), "a", ports, &RESERVE);
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let client = Curl::of(elsewhere.path(), &node);
    let reserve = disk.path().join("a").join("reserve");
    assert!(fs::metadata(&reserve).is_ok_and(|file| file.len() == 24 * 1024 * 1024 / 20), "a twentieth");
    let answered: Vec<usize> = (1..100).take_while(|number| create(&node, elsewhere.path(), *number)).collect();
    assert!((3..99).contains(&answered.len()), "the disk was filled by schedules: {answered:?}");

    // With less than twice the reserve beside it, only new work is refused.
    let trigger = node.reveille("schedule trigger s1");
    assert!(trigger.code == Some(1) && trigger.stderr.contains("a takes no new work: "), "{trigger:?}");
    assert!(trigger.stderr.contains("free space on the volume of the node"), "{trigger:?}");
    assert!(node.reveille("schedule trigger s1 -o json").stderr.contains("NO_ROOM"));
    let by_http = client.call(&node.admin, "POST", "/v1/schedules/s1/trigger", &["-H", "Idempotency-Key: one"]);
    let by_http = by_http.expect("an answer");
    assert_eq!((by_http.status, &by_http.json()["reason"]), (503, &"NO_ROOM".into()), "{by_http:?}");
    assert!(by_http.headers.contains("retry-after: 30"), "{by_http:?}");
    let doctor = node.reveille("doctor");
    assert!(doctor.stdout.contains("a is short of space: "), "{doctor:?}");
    assert!(node.get("/metrics").contains("reveille_disk_short 1"));
    assert_eq!(node.reveille("schedule pause s1").code, Some(0), "what holds something goes on");

    // With less than the reserve beside it, its space is for what goes on.
    fill(disk.path(), LEFT);
    until("the reserve is used", || !reserve.exists());
    until("it is measured", || node.get("/metrics").contains("reveille_disk_short 2"));
    assert_eq!(node.reveille("schedule resume s1").code, Some(0), "{}", node.said());

    fill(disk.path(), 0);
    until("it has no space", || node.reveille("schedule pause s1 --timeout 2s").code != Some(0));
    assert_eq!(node.ended(), Some(1), "{}", node.said());
    let last = node.said().lines().rfind(|line| line.contains("error:")).unwrap_or_default().to_owned();
    assert!(last.contains("the disk is full") && last.contains("free space on the volume"), "{last}");

    grow(&disk, 96);
    let node = Process::listening_by(disk.path(), "a", ports, &RESERVE);
    until("it leads", || node.reveille("schedule list").code == Some(0));
    assert!(reserve.exists() && node.get("/metrics").contains("reveille_disk_short 0"), "{}", node.said());
    let listed = node.reveille("schedule list -o name").stdout;
    let listed: Vec<&str> = listed.lines().collect();
    for number in answered {
        assert!(listed.contains(&format!("s{number}").as_str()), "s{number} was answered: {listed:?}");
    }
    assert!(create(&node, elsewhere.path(), 100), "and it goes on: {}", node.said());
}

// The test thread blocks while it waits for the node, so the sink needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_full_disk_sends_no_more_until_it_has_space() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(disk.path(), folder.path().join("a")).expect("a link");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let node = Process::listening_by(folder.path(), "a", ["127.0.0.1:0"; 3], &RESERVE);
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let port = sink.handle().address().port();
    let relay = node.reveille(&format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    assert_eq!(relay.code, Some(0), "{relay:?}");
    let what = "--every 1s --zone UTC --to ann@example.net --sender b@example.net --subject s --inline-text t";
    let created = node.reveille(&format!("schedule create often {what}"));
    assert_eq!(created.code, Some(0), "{created:?}");
    sink.handle().wait_for(2, STEP_TIMEOUT).await.expect("it sends");

    fill(disk.path(), LEFT);
    until("it is measured", || node.get("/metrics").contains("reveille_disk_short 2"));
    // The leader knows it with the next lease request, and what was claimed before still goes out.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let sent = sink.handle().accepted_count();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(sink.handle().accepted_count(), sent, "{}", node.said());

    fs::remove_file(disk.path().join(FILLER)).expect("removed");
    sink.handle().wait_for(sent + 4, STEP_TIMEOUT).await.expect("it sends what waited");
    until("it is measured", || node.get("/metrics").contains("reveille_disk_short 0"));
    sink.stop().await;
}

/// Returns true if the folder contains a file that is not empty.
fn holds_something(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => holds_something(&path),
        false => fs::metadata(&path).is_ok_and(|file| file.len() > 0),
    })
}

/// Fills the disk until at most `left` bytes are free. With 0, only the rest of the last page of each file stays free.
fn fill(folder: &Path, left: u64) {
    let mut file = fs::File::options().create(true).append(true).open(folder.join(FILLER)).expect("a file");
    let free = || rustix::fs::statvfs(folder).expect("a volume").f_bavail * 4_096;
    while free() > left && file.write(&[0; 4_096]).is_ok_and(|written| written > 0) {}
}

// The test thread blocks while it waits for the node, so the sink needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_journal_stops_node_and_each_email_comes_once() {
    const RECIPIENTS: u64 = 600;
    let Some(disk) = SmallDisk::mount(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(disk.path(), folder.path().join("journal")).expect("a link");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let mut node = Process::listening(folder.path(), "a");
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let port = sink.handle().address().port();
    let relay = node.reveille(&format!("relay add main --host 127.0.0.1 --port {port} --tls none --max-sessions 4"));
    assert_eq!(relay.code, Some(0), "{relay:?}");
    let list = folder.path().join("list.csv");
    let rows = (0..RECIPIENTS).map(|number| format!("r{number}@example.net\n"));
    fs::write(&list, format!("email\n{}", rows.collect::<String>())).expect("written");
    fs::write(folder.path().join("text"), "hello\n").expect("written");

    // The journal must exist before the disk is full. Otherwise the leader stops before it has claimed anything.
    until("it has a journal", || holds_something(disk.path()));
    // The first records of the journal still fit into its last page; later ones do not.
    fill(disk.path(), 0);
    let what = "--at 2099-01-01T00:00:00Z --zone UTC --sender b@example.net --subject s";
    let files = format!("--recipients {} --text {}", list.display(), folder.path().join("text").display());
    let created = node.reveille(&format!("schedule create one {what} {files}"));
    assert_eq!(created.code, Some(0), "{created:?}");
    // The node may stop before it answers.
    let triggered = node.reveille("schedule trigger one");
    assert!(matches!(triggered.code, Some(0 | 8)), "{triggered:?}");
    assert_eq!(node.ended(), Some(1), "{}", node.said());
    let last = node.said().lines().rfind(|line| line.contains("error:")).unwrap_or_default().to_owned();
    assert!(last.contains("the journal is broken") && last.contains("--journal-dir"), "{last}");
    assert!(sink.handle().accepted_count() < RECIPIENTS, "it was full in the middle");

    grow(&disk, 64);
    let _node = Process::listening(folder.path(), "a");
    sink.handle().wait_for(RECIPIENTS, STEP_TIMEOUT).await.expect("all of them come");
    let mut came: Vec<String> = sink.handle().find(|_| true).iter().map(|mail| mail.recipient.clone()).collect();
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len() as u64, RECIPIENTS, "each came once");
    sink.stop().await;
}

/// Writes a list with two parts. On a disk with four megabytes the first fits, but not the second.
fn list(folder: &Path) -> PathBuf {
    let path = folder.join("members.csv");
    let rows = (0..100_000).map(|number| format!("recipient.with.a.long.name.{number}@example.net\n"));
    fs::write(&path, format!("email\n{}", rows.collect::<String>())).expect("written");
    path
}

/// The error text of the disk is passed on by the node to the importing client.
#[test]
fn import_without_disk_space_fails_at_once_and_can_continue() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("a")).expect("a folder");
    std::os::unix::fs::symlink(disk.path(), folder.path().join("a").join("parts")).expect("a link");
    let list = list(folder.path());
    let node = Process::listening(folder.path(), "a");
    until("it leads", || node.reveille("schedule list").code == Some(0));

    let import = |more: &str| node.reveille(&format!("audience import members {} {more}", list.display()));
    // The time until a machine finds that the disk is full is unknown. So the timeout grows until it is enough.
    let why = format!("MiB are free in {}", folder.path().join("a").join("parts").display());
    let waits = "on a majority; waits: a cannot write part";
    let reported = |ended: &Ended| ended.stderr.lines().any(|line| line.contains(waits) && line.contains(&why));
    let mut tries = ["8s", "30s", "120s"].iter().map(|limit| import(&format!("--timeout {limit}")));
    let full = tries.find(|ended| ended.code != Some(8) || reported(ended));
    let full = full.expect("it says what it waits for, while it waits");
    let at_its_end = full.stderr.lines().rfind(|line| line.contains(&why)).unwrap_or_default();
    // On a slow machine the import itself ends first, after a minute without room.
    match full.code {
        Some(8) => assert!(at_its_end.contains("the time is over"), "{full:?}"),
        code => assert_eq!(code, Some(5), "{full:?}"),
    }
    assert!(full.stderr.contains("; free space on its volume; on a majority"), "{full:?}");
    let logged = || node.said().lines().filter(|line| line.contains("no room for parts")).count();
    assert_eq!(logged(), 1, "once for all tries: {}", node.said());
    let doctor = node.reveille("doctor");
    assert!(doctor.code == Some(1) && doctor.stdout.contains("a is short of space"), "{doctor:?}");
    until("it is measured", || node.get("/metrics").contains("reveille_parts_no_room 1"));

    // The import waits for space, and continues without another command.
    let waiting = client(folder.path(), &node.admin)
        .args(["audience", "import", "members"])
        .arg(&list)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // The import has either found the disk full again, or it finds space at once. Both succeed.
    std::thread::sleep(Duration::from_secs(3));
    grow(&disk, 64);
    let ended: Ended = waiting.wait_with_output().expect("it ends").into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("100000") || ended.stdout.contains("100,000"), "{ended:?}");
    until("the node says so", || node.said().contains("there is room for parts of audiences again"));
    until("it is measured", || node.get("/metrics").contains("reveille_parts_no_room 0"));
    assert!(!node.reveille("doctor").stdout.contains("is short of space"));
}
