//! A cluster that was off until each certificate of it had expired.

use std::process::Command;

use reveille_harness::clocks::Clocks;
use reveille_sink::{Sink, SinkOptions};

use crate::process::{Ended, Process, client, until};

const NAMES: [&str; 3] = ["one", "two", "three"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_was_off_for_thirteen_months_starts_renews_and_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let names = NAMES.map(str::to_owned);
    let Ok(clocks) = Clocks::new(folder, &names) else {
        reveille_strict::skip("there is no libfaketime on this machine");
        return;
    };
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let mut nodes = Process::cluster(folder, NAMES, &[]);
    let port = sink.handle().address().port();
    let added = nodes[0].reveille(&format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    assert_eq!(added.code, Some(0), "{added:?}");
    nodes.iter_mut().for_each(Process::kill);

    let environment = |name: &str| clocks.environment(name);
    let later: Vec<Process> = NAMES
        .iter()
        .zip(&nodes)
        .map(|(name, node)| {
            clocks.set(name, "+400d x1").expect("a clock");
            let variables = environment(name);
            let variables: Vec<_> =
                variables.iter().filter_map(|(name, value)| Some((*name, value.to_str()?))).collect();
            node.again_by(folder, name, &variables)
        })
        .collect();
    // The user's machine has the same date.
    let reveille = |node: &Process, line: &str| -> Ended {
        let mut command: Command = client(folder, &node.admin);
        command.args(line.split_whitespace()).envs(environment(NAMES[0])).output().expect("it runs").into()
    };
    until("all answer", || later.iter().all(|node| reveille(node, "schedule list").code == Some(0)));
    let what = "--at 2040-01-01T00:00:00Z --zone UTC --sender a@example.net --subject s --inline-text t";
    let created = reveille(&later[0], &format!("schedule create late {what} --to ann@example.net"));
    assert_eq!(created.code, Some(0), "{created:?}");
    assert_eq!(reveille(&later[0], "schedule trigger late").code, Some(0));
    until("the email arrives", || sink.handle().accepted_count() == 1);
    // At today's date the certificate is not valid yet: it was renewed, and clients check it.
    let early = later[0].reveille("schedule list");
    assert!(early.code != Some(0) && early.stderr.contains("not valid by this machine's clock"), "{early:?}");
    sink.stop().await;
}
