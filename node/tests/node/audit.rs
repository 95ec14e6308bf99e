//! Audit records of a real cluster: they outlive processes, reach new nodes, and an exported file shows every change.

use std::fs;

use serde_json::Value;

use crate::process::{Process, until};

/// At level 2 a part of the archive has eight records, and there are at most four parts.
const SMALL_PARTS: [(&str, &str); 2] = [("REVEILLE_LEVEL", "2"), ("REVEILLE__RAFT__SNAPSHOT_EVERY", "100")];

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

fn json(node: &Process, line: &str) -> Value {
    let text = output(node, &format!("{line} -o json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error} in {text}"))
}

#[test]
fn records_survive_kills_reach_a_new_node_and_show_a_changed_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, three] = Process::cluster(folder.path(), ["one", "two", "three"], &SMALL_PARTS);
    until("the level is raised", || one.reveille("cluster upgrade finish --yes").code == Some(0));
    for number in 0..130 {
        output(&one, &format!("optout add canary-{number}@example.net"));
    }
    let data = folder.path().join("one");
    output(&one, &format!("token reset --keep --data-dir {}", data.display()));
    output(&two, "tenant set acme --share 3");
    let latest = json(&three, "audit list --limit 2");
    assert_eq!((&latest[0]["command"], &latest[0]["subject"]), (&"tenant_set".into(), &"acme".into()));
    assert_eq!((&latest[1]["command"], &latest[1]["caller"]), (&"token_create".into(), &"local".into()));
    let own = json(&one, "token show")["token"]["id"].clone();
    assert_eq!(latest[0]["caller"], own);
    let of_command = json(&one, "audit list --command opt_out");
    assert!(of_command.as_array().is_some_and(|all| all.len() > 8), "from parts too");
    let refused = one.reveille("audit list --caller nothing -o json");
    assert_eq!(refused.stdout.trim(), "[]");

    let token = three.join_token();
    let before = output(&three, "audit export");
    let records = before.lines().count();
    assert!((32..40).contains(&records), "four parts, and what is in none yet: {records}");
    assert!(!before.contains("canary"), "no record has an address");
    one.kill();
    two.kill();
    let one = one.again_by(folder.path(), "one", &SMALL_PARTS);
    let two = two.again_by(folder.path(), "two", &SMALL_PARTS);
    let mut joining = SMALL_PARTS.to_vec();
    joining.push(("REVEILLE__JOIN", &token));
    let four = Process::listening_by(folder.path(), "four", ["127.0.0.1:0"; 3], &joining);
    until("it votes", || three.voters() == 4);
    for node in [&one, &two, &three, &four] {
        until("it has the records", || node.reveille("audit export --stale").stdout == before);
    }

    let head = json(&four, "cluster status")["auditHead"].as_str().expect("a hash").to_owned();
    let file = folder.path().join("audit.jsonl");
    output(&one, &format!("audit export {}", file.display()));
    assert_eq!(fs::read_to_string(&file).expect("a file"), before);
    let verify = format!("audit verify {} --head {head}", file.display());
    let verified = json(&one, &verify);
    assert_eq!((&verified["records"], &verified["hash"]), (&records.into(), &head.clone().into()));
    let third: Value = serde_json::from_str(before.lines().nth(2).expect("a line")).expect("JSON");
    let changed = before.replacen(third["time"].as_str().expect("a time"), "2020-01-01T00:00:00Z", 1);
    fs::write(&file, changed).expect("written");
    let found = one.reveille(&verify);
    let named = format!("line 3: record {} was changed", third["index"].as_str().expect("an index"));
    assert!(found.code == Some(1) && found.stderr.contains(&named), "{found:?}");
    let cut: String = before.lines().take(records - 1).map(|line| format!("{line}\n")).collect();
    fs::write(&file, cut).expect("written");
    let found = one.reveille(&verify);
    assert!(found.code == Some(1) && found.stderr.contains("no record has that hash"), "{found:?}");
}
