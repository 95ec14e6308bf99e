//! Attachments that name a stored file, through a node that has not applied the last entry yet.

use reveille_cluster::file_store::encode_attachment;
use serde_json::{Value, json};

use crate::http_json::Curl;
use crate::process::Process;

#[test]
fn file_that_another_node_stored_just_now_is_named_by_its_hash() {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = Process::cluster(folder.path(), NAMES, &[]);
    let client = Curl::of(folder.path(), &nodes[0]);
    let leader = Process::leader(&nodes, NAMES);
    let put = |node: &Process, name: &str, (key, value): (&str, &Value)| {
        let attachment = json!({ "name": "a.txt", "contentType": "text/plain", key: value });
        let content = json!({
            "sender": "a@example.com", "subject": "Terms", "text": "As attached.", "attachments": [attachment],
        });
        let path = format!("/v1/templates/{name}");
        let answer = client.call(&node.admin, "PUT", &path, &["-d", &content.to_string()]).expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    };
    let (data, hash) = (json!("b25l"), json!(encode_attachment(b"one").0.to_string()));
    for (place, follower) in nodes.iter().enumerate().filter(|(place, _)| *place != leader) {
        for number in 0..10 {
            let name = format!("terms-{place}-{number}");
            put(&nodes[leader], &name, ("data", &data));
            put(follower, &name, ("fileHash", &hash));
        }
    }
}
