//! An import into three nodes, during which the client and a node are killed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::process::{Ended, Process, client, until};

/// Ten parts. The last one is short.
const ROWS: u32 = 9 * 65_536 + 1_000;

fn import(folder: &Path, endpoint: &str, list: &Path) -> Command {
    let mut command = client(folder, endpoint);
    command.args(["audience", "import", "members", "-o", "json"]).arg(list);
    command
}

/// Returns the names of the parts of audiences that a node has.
pub fn parts(folder: &Path, name: &str) -> BTreeSet<OsString> {
    let files = fs::read_dir(folder.join(name).join("parts")).into_iter().flatten().flatten();
    files.filter(|file| file.path().extension().is_none()).map(|file| file.file_name()).collect()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn began(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

#[test]
fn import_goes_on_after_its_client_and_a_node_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let list = folder.join("list.csv");
    let mut text = "email,number\n".to_owned();
    (0..ROWS).for_each(|number| writeln!(text, "r{number}@example.com,{number}").expect("memory"));
    fs::write(&list, &text).expect("a file");

    let mut nodes = Process::cluster(folder, ["one", "two", "three"], &[]);
    let endpoint = nodes.each_ref().map(|node| node.admin.clone()).join(",");

    // The client is killed during the import, and so is the node that it used.
    let mut client = began(import(folder, &endpoint, &list));
    until("some parts are there", || parts(folder, "two").len() >= 2);
    client.kill().expect("killed");
    client.wait().expect("ended");
    let unsealed = nodes[1].reveille("audience show members");
    assert_eq!(unsealed.code, Some(3), "{unsealed:?}");
    nodes[0].kill();
    let elsewhere = [&nodes[1].admin, &nodes[2].admin].map(String::as_str).join(",");
    until("a leader", || Process::reveille_at(folder, &elsewhere, "schedule list").code == Some(0));
    let there = parts(folder, "two").len().min(parts(folder, "three").len());

    // During the second import, the killed node restarts and another one is killed.
    let again =
        import(folder, &endpoint, &list).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let _one = nodes[0].again(folder, "one");
    until("more parts are there", || parts(folder, "three").len() > there);
    nodes[1].kill();
    let ended: Ended = again.wait_with_output().expect("it ends").into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let sealed = json(&ended);
    assert_eq!(
        (sealed["audience"]["recipients"].as_u64(), sealed["audience"]["parts"].as_u64()),
        (Some(ROWS.into()), Some(10))
    );
    let of = |key: &str| sealed[key].as_u64().expect("a number");
    assert_eq!(of("partsSent") + of("partsThere"), 10, "{sealed}");
    assert!(of("partsThere") >= 1, "{sealed}");

    // A repeated import has the same result. Another list with that name is refused before any upload.
    let two = nodes[1].again(folder, "two");
    let ended: Ended = import(folder, &endpoint, &list).output().expect("it runs").into();
    let known = json(&ended);
    assert_eq!((known["partsSent"].as_u64(), &known["audience"]), (Some(0), &sealed["audience"]), "{known}");
    fs::write(&list, text + "new@example.com,0\n").expect("a file");
    let other: Ended = import(folder, &endpoint, &list).output().expect("it runs").into();
    assert!(other.code == Some(4) && other.stderr.contains("NAME_TAKEN"), "{other:?}");

    // In the end every node has all parts, and the audience is the list.
    until("all have all parts", || ["one", "two", "three"].iter().all(|name| parts(folder, name).len() >= 10));
    let shown = two.reveille("audience show members -o json");
    assert_eq!(json(&shown)["recipients"].as_u64(), Some(ROWS.into()), "{shown:?}");
}
