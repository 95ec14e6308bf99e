//! Audience parts that no voter has: they stop the runs that need them, and nothing else (P20).

use std::fs;
use std::path::Path;

use crate::audience::parts;
use crate::process::{Ended, Process, client, ports, until};

const NAMES: [&str; 3] = ["one", "two", "three"];

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

/// Imports a list of one recipient.
fn import(folder: &Path, node: &Process, audience: &str) {
    let list = folder.join(audience).with_extension("csv");
    fs::write(&list, format!("email\nann@{audience}.example\n")).expect("a list");
    output(node, &format!("audience import {audience} {}", list.display()));
}

/// Removes this part from a node's folder.
fn remove(folder: &Path, node: &str, part: &std::ffi::OsStr) {
    fs::remove_file(folder.join(node).join("parts").join(part)).expect("removed");
}

/// Runs a command with this target of backups.
fn with_target(folder: &Path, target: &Path, line: &str) -> Ended {
    let mut command = client(folder, "127.0.0.1:1");
    command.env("REVEILLE__BACKUP__TARGET", target).args(line.split_whitespace()).output().expect("it runs").into()
}

#[test]
fn part_that_no_survivor_has_stops_only_the_runs_that_need_it() {
    let former = tempfile::tempdir().expect("a folder");
    let nodes = Process::cluster(former.path(), NAMES, &[]);
    import(former.path(), &nodes[0], "gone");
    let gone = parts(former.path(), "one").pop_first().expect("a part");
    import(former.path(), &nodes[0], "kept");
    output(&nodes[0], "relay add main --host 127.0.0.1 --port 1 --tls none");
    let what = "--at 2040-01-01T00:00:00Z --zone UTC --sender a@example.net --subject s --inline-text t";
    output(&nodes[0], &format!("schedule create needs-it {what} --audience gone"));
    until("the survivor has both parts", || parts(former.path(), "three").len() == 2);
    nodes.into_iter().for_each(|mut node| node.kill());
    // A majority has each part, so one node may lack it.
    remove(former.path(), "three", &gone);

    let (folder, target) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a target"));
    let (folder, target, addresses) = (folder.path(), target.path(), ports());
    let from = former.path().join("three").display().to_string();
    let into = format!("--name m1 --data-dir {} --peer-listen {}", folder.join("m1").display(), addresses[1]);
    let recovered = with_target(folder, target, &format!("recover run {from} {into} --yes --without-opt-outs"));
    assert!(recovered.code == Some(0) && recovered.stdout.contains("1 audience part"), "{recovered:?}");
    let place = target.display().to_string();
    let environment = [("REVEILLE__BACKUP__TARGET", place.as_str())];
    let one = Process::listening_by(folder, "m1", addresses.each_ref().map(String::as_str), &environment);
    until("it leads", || one.reveille("schedule list").code == Some(0));
    output(&one, "restore accept --former-cluster-is-dead --yes");

    // New nodes vote, and one that runs leaves.
    let join = |name: &str| {
        let token = one.join_token();
        let environment = [("REVEILLE__JOIN", token.as_str()), environment[0]];
        Process::listening_by(folder, name, ["127.0.0.1:0"; 3], &environment)
    };
    let _two = join("m2");
    until("it votes", || one.voters() == 2);
    let _three = join("m3");
    until("all vote", || one.voters() == 3);
    until("it is removed", || one.reveille("cluster member remove m3 --yes").code == Some(0));

    let found = one.reveille("doctor");
    for named in ["gone", "needs-it", "import the same list again"] {
        assert!(found.stdout.contains(named), "{named}: {found:?}");
    }
    // A backup goes on, and says what it lacks; so do its verification and a restore.
    let created = one.reveille("backup create -o json");
    let made: serde_json::Value = serde_json::from_str(&created.stdout).unwrap_or_else(|_| panic!("{created:?}"));
    assert_eq!(made["lostFiles"], 1, "{created:?}");
    let verified = with_target(folder, target, "backup verify");
    assert!(verified.code == Some(0) && verified.stdout.contains("lacks 1 file"), "{verified:?}");
    let restored = format!("restore run --from {place} --name r1 --data-dir {}", folder.join("r1").display());
    let restored = with_target(&former.path().join("elsewhere"), target, &restored);
    assert!(restored.code == Some(0) && restored.stdout.contains("1 audience part"), "{restored:?}");

    // A person is found and erased in what is left.
    let found = one.reveille("recipient find ann@kept.example -o json");
    assert!(found.code == Some(0) && found.stdout.contains("\"kept\""), "{found:?}");
    assert!(found.stderr.contains("1 part of lists is lost"), "{found:?}");
    let erased = one.reveille("recipient erase ann@kept.example --yes");
    assert!(erased.code == Some(0) && erased.stdout.contains("erased from 1 list"), "{erased:?}");
    assert!(erased.stdout.contains("1 part of lists is lost"), "{erased:?}");

    // The same list brings the part back.
    import(folder, &one, "gone");
    until("all have it", || ["m1", "m2"].iter().all(|name| parts(folder, name).contains(&gone)));
    until("nothing is lost", || !one.reveille("doctor").stdout.contains("lost_files"));
    let found = one.reveille("recipient find ann@gone.example -o json");
    assert!(found.stdout.contains("\"gone\"") && !found.stderr.contains("lost"), "{found:?}");
    let created = output(&one, "backup create -o json");
    assert!(created.contains("\"lostFiles\": 0"), "{created}");
    // The target has it now, so a backup brings it back too.
    ["m1", "m2"].iter().for_each(|name| remove(folder, name, &gone));
    until("all have it", || {
        one.reveille("backup create");
        ["m1", "m2"].iter().all(|name| parts(folder, name).contains(&gone))
    });
}

#[test]
fn part_that_a_voter_without_answer_may_have_is_not_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, target) = (folder.path(), folder.path().join("backups"));
    fs::create_dir(&target).expect("a target");
    let place = target.display().to_string();
    let [one, _two, mut three] = Process::cluster(folder, NAMES, &[("REVEILLE__BACKUP__TARGET", place.as_str())]);
    import(folder, &one, "all");
    let part = parts(folder, "one").pop_first().expect("a part");
    until("all have it", || NAMES.iter().all(|name| parts(folder, name).contains(&part)));
    three.kill();
    ["one", "two"].iter().for_each(|name| remove(folder, name, &part));
    until("it is missed", || output(&one, "audience show all -o json").contains("\"missing\": 1"));
    for _ in 0..3 {
        let refused = one.reveille("backup create");
        assert!(refused.code != Some(0) && refused.stderr.contains("is not on this node"), "{refused:?}");
        let refused = one.reveille("recipient find ann@all.example");
        assert!(refused.code != Some(0) && refused.stderr.contains("is not on this node"), "{refused:?}");
        assert!(!one.reveille("doctor").stdout.contains("lost_files"));
        // More than one round of the fetcher.
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let _three = three.again(folder, "three");
    until("it is fetched", || ["one", "two"].iter().all(|name| parts(folder, name).contains(&part)));
    output(&one, "backup create");
}
