//! The metrics on `/metrics`, as an alert reads them.

use crate::process::{Process, until};

/// Returns the value of a metric with its labels, or `None` if it does not exist.
fn value(node: &Process, name: &str) -> Option<f64> {
    let page = node.get("/metrics");
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Returns the names of all metrics on the page.
fn names(node: &Process) -> Vec<String> {
    let page = node.get("/metrics");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned));
    types.collect()
}

#[test]
fn gauge_ends_with_what_it_measures() {
    const PENDING: &str = "reveille_recipients_pending";
    const ALONE: &str = "reveille_relay_circuit_open{relay=\"unreachable\"}";
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let one = &nodes[0];
    // A counter starts at 0, because an alert on growth misses a counter that appears with its first value.
    assert_eq!(value(one, "reveille_violations_total"), Some(0.0));

    // No process listens on port 1.
    let relay = one.reveille("relay add unreachable --host 127.0.0.1 --port 1 --pool far");
    assert_eq!(relay.code, Some(0), "{relay:?}");
    let create = "schedule create late --at 2090-01-01T00:00:00Z --zone UTC --to a@example.com \
                  --sender b@example.com --subject s --inline-text t --pool far";
    assert_eq!(one.reveille(create).code, Some(0));
    assert_eq!(one.reveille("schedule trigger late").code, Some(0));
    let leads = |node: &Process| value(node, PENDING) == Some(1.0);
    until("the leader has it pending", || nodes.iter().any(leads));
    until("a node leaves the relay alone", || nodes.iter().any(|node| value(node, ALONE) == Some(1.0)));
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/monitoring.md")).expect("it");
    for name in nodes.iter().flat_map(names) {
        assert!(page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}{{")), "{name}");
    }

    let former = nodes.iter().position(|node| node.get("/leaderz").starts_with("HTTP/1.1 200 ")).expect("a leader");
    until("another leads", || one.reveille("cluster transfer-leader").code == Some(0));
    until("it has it pending", || nodes.iter().enumerate().any(|(place, node)| place != former && leads(node)));
    until("the former one has nothing pending", || value(&nodes[former], PENDING) == Some(0.0));
    assert_eq!(one.reveille("relay remove unreachable --yes").code, Some(0));
    until("the relay is gone", || nodes.iter().all(|node| value(node, ALONE).is_none_or(|value| value == 0.0)));
}
