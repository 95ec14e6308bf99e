//! The envelope sender of a node with a configured return path.

use std::fs;

use reveille_cluster::compose::return_path::ReturnPath;
use reveille_cluster::process::secret::Secret;
use reveille_sink::{Sink, SinkOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::process::{Process, until};

#[test]
fn envelope_sender_is_return_path_with_token_of_recipient() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("return.key");
    fs::write(&key, "k".repeat(32)).expect("written");
    let secret = format!("file:{}", key.display());
    let environment =
        [("REVEILLE__RETURN_PATH", "bounce@bounces.example.com"), ("REVEILLE__RETURN_PATH_KEYS", secret.as_str())];
    let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let runtime = Runtime::new().expect("a runtime");
    let sink = runtime.block_on(async { Sink::start(SinkOptions::default()) }).expect("a mailbox");
    let relay = format!("relay add mailbox --host 127.0.0.1 --port {} --tls none", sink.address().port());
    assert_eq!(node.reveille(&relay).code, Some(0));
    let created = node.reveille(
        "schedule create news --cron @yearly --zone UTC --sender news@example.com --subject News --inline-text News \
         --to ann@example.com --to bob@example.com",
    );
    assert_eq!(created.code, Some(0), "{created:?}");
    assert_eq!(node.reveille("schedule trigger news --request-id once").code, Some(0));
    until("both arrive", || sink.accepted_count() == 2);

    let status: Value = serde_json::from_str(&node.reveille("cluster status -o json").stdout).expect("JSON");
    let cluster = status["cluster"].as_str().expect("its id");
    let cluster = u128::from_str_radix(&cluster.replace('-', ""), 16).expect("a number");
    let run: Value = serde_json::from_str(&node.reveille("run list -o json").stdout).expect("JSON");
    let run = run[0]["run"].as_str().expect("a run").to_owned();
    let path = ReturnPath::new("bounce@bounces.example.com", &[Secret::File(key.display().to_string())]).expect("made");
    for (number, recipient) in ["ann@example.com", "bob@example.com"].into_iter().enumerate() {
        let arrived = sink.find(|email| email.recipient == recipient);
        let sender = &arrived.first().expect("it arrived").sender;
        let bounced = path.read(sender, cluster, |_| Some(1)).expect("it was signed");
        assert_eq!((bounced.run.to_string(), bounced.recipient), (run.clone(), number as u32), "{sender}");
    }
    runtime.block_on(sink.stop());
}
