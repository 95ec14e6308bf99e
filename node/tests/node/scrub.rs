//! Files at rest of a node of a running cluster are damaged: the scrub finds and repairs them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use reveille_sink::{Sink, SinkOptions};

use crate::process::{Process, until};

fn done(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_file()).collect()
}

/// Flips one bit of a file of a running node.
fn flip(path: &Path, at: usize) {
    let byte = fs::read(path).expect("a file")[at];
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.write_all_at(&[byte ^ 4], at as u64).expect("written");
}

/// Checks all files until none is damaged. Repairs by snapshots need entries.
fn until_repaired(node: &Process) {
    until("it is repaired", || {
        for change in ["pause", "resume"] {
            done(node, &format!("schedule {change} daily"));
        }
        node.reveille("cluster scrub").code == Some(0)
    });
}

// The test thread blocks while it waits for the nodes, so the sink needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_are_found_and_repaired_while_cluster_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, two) = (folder.path(), folder.path().join("two"));
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    assert_eq!(Process::init(folder, "one", "--test-clock").code, Some(0));
    let mut nodes = Process::cluster(folder, ["one", "two", "three"], &[]);
    let one = &nodes[0];
    let port = sink.handle().address().port();
    done(one, &format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    let what = "--daily 09:00 --zone UTC --to ann@example.net --sender b@example.net --subject s --inline-text t";
    done(one, &format!("schedule create daily {what}"));
    done(one, "clock advance 48h");
    let run = done(one, "run list -o name").lines().next().expect("a run").to_owned();
    done(one, "clock advance 96h");
    until("it is archived", || one.reveille(&format!("run pause {run}")).stderr.contains("in the archive"));
    let list = folder.join("list.csv");
    fs::write(&list, "email\na@example.com\nb@example.com\n").expect("written");
    done(one, &format!("audience import members {}", list.display()));
    until("all have it", || files(&two.join("parts")).len() == 1);
    assert_eq!(one.reveille("cluster scrub").code, Some(0));

    // A damaged segment goes with the log before new snapshots. They have the archive too.
    let log = files(&two.join("wal")).into_iter().min().expect("a segment");
    flip(&log, 700);
    let found = one.reveille("cluster scrub");
    assert!(found.code == Some(1) && found.stdout.contains("1 damaged"), "{found:?}");
    let name = log.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(found.stderr.contains(&format!("two: wal/{name} is damaged: it is not what was written")), "{found:?}");
    let doctor = one.reveille("doctor");
    assert!(doctor.code == Some(1) && doctor.stdout.contains("two may not be able to start"), "{doctor:?}");
    until("it is measured", || nodes[1].get("/metrics").contains("reveille_damaged_files 1"));
    until_repaired(one);
    assert!(!log.exists(), "it was purged");

    // Everything of a node at once.
    let damaged: Vec<PathBuf> =
        ["snapshots", "snapshots/blocks", "parts"].iter().flat_map(|place| files(&two.join(place))).collect();
    assert!(damaged.len() >= 4, "{damaged:?}");
    damaged.iter().for_each(|path| flip(path, fs::metadata(path).expect("a file").len() as usize / 2));
    let found = one.reveille("cluster scrub");
    assert!(found.code == Some(1) && found.stderr.contains("two: snapshots/"), "{found:?}");
    let said = nodes[1].said();
    assert!(["snapshots/blocks/", "parts/"].iter().all(|place| said.contains(&format!("file={place}"))), "{said}");
    until_repaired(one);
    assert!(nodes[1].get("/metrics").contains("reveille_damaged_files 0"));

    nodes[1].kill();
    let two = nodes[1].again(folder, "two");
    until("it is well", || two.reveille("doctor").code == Some(0));
    done(&two, &format!("run show {run}"));
    assert!(!two.said().contains("a snapshot was skipped"), "{}", two.said());
    sink.stop().await;
}
