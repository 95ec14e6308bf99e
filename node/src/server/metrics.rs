//! The metrics on `/metrics`: each name once, with its kind and its help text.
//!
//! Any crate counts values by name; this list gives each name its kind, label and help. Metrics without a label start
//! at 0 at once, because an alert on growth misses a counter that appears with its first value. Metrics with a label
//! appear with their first value. Tests compare this list with the code and with the table in
//! `docs/reference/monitoring.md`.

use MetricKind::{Counter, Distribution, Gauge, LeaderCounter, LeaderGauge};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows until the process ends.
    Counter,
    /// A counter that only the leader increments.
    LeaderCounter,
    /// Can go up and down.
    Gauge,
    /// A gauge that the leader sets; 0 on all other nodes.
    LeaderGauge,
    /// A summary: quantiles, sum and count.
    Distribution,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name on `/metrics`.
    pub name: &'static str,
    /// Its label names, with commas between them. `None` if it has no label.
    pub label: Option<&'static str>,
    /// Its kind.
    pub kind: MetricKind,
    /// Its help text on `/metrics`.
    pub help: &'static str,
}

const fn plain(kind: MetricKind, name: &'static str, help: &'static str) -> Metric {
    Metric { name, label: None, kind, help }
}

const fn by(label: &'static str, kind: MetricKind, name: &'static str, help: &'static str) -> Metric {
    Metric { name, label: Some(label), kind, help }
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    plain(LeaderCounter, "reveille_runs_opened_total", "Runs that this node opened as leader when they fell due"),
    by("outcome,reason", LeaderCounter, "reveille_instants_total", "Instants that were due, by what became of them"),
    by("outcome,reason", Counter, "reveille_emails_total", "Emails that this node handled, by what became of them"),
    plain(Counter, "reveille_gate_passes_total", "Handoffs past the gate"),
    by("why", Counter, "reveille_gate_closed_total", "Handoffs that the gate refused"),
    plain(Counter, "reveille_in_doubt_total", "Emails that came into doubt in a dialogue"),
    plain(LeaderGauge, "reveille_recipients_pending", "Recipients that wait to be sent to, over all open runs"),
    plain(LeaderGauge, "reveille_recipients_claimed", "Recipients that are claimed and not settled"),
    plain(LeaderGauge, "reveille_recipients_in_doubt", "Recipients that are in doubt now"),
    plain(LeaderGauge, "reveille_schedules_overdue", "Active schedules more than 5 s behind their instant"),
    plain(LeaderCounter, "reveille_violations_total", "Accounts of a run that do not close: a bug"),
    plain(LeaderCounter, "reveille_archived_pages_total", "Pages with runs that left the state for the archive"),
    by("cause", LeaderCounter, "reveille_auditor_catches_total", "What the sweep had to repair"),
    by(
        "cause",
        LeaderCounter,
        "reveille_handovers_total",
        "Leaderships given up because the node could not do its work",
    ),
    plain(LeaderGauge, "reveille_runs_blocked", "Runs that wait for a part of an audience that no live node has"),
    plain(LeaderGauge, "reveille_nodes_behind", "Nodes that are given no claims because they do not apply"),
    plain(LeaderGauge, "reveille_nodes_in_crash_backoff", "Nodes that get no claims after three crashes"),
    by("pool", Gauge, "reveille_backlog_recipients", "Recipients that are late: caught up or backfilled, and not sent"),
    by("pool", Gauge, "reveille_backlog_age_seconds", "How long ago the oldest instant of what is late was due"),
    by(
        "outcome",
        Counter,
        "reveille_unsubscribe_requests_total",
        "Requests to the unsubscribe page, by what came of them",
    ),
    by("actor", Counter, "reveille_actor_ends_total", "Actors that ended by themselves"),
    plain(Counter, "reveille_alarms_total", "Alarms, each with a line in the log"),
    plain(Gauge, "reveille_state_differs", "1: another voter has another state hash at the same log index"),
    by("relay", Gauge, "reveille_relay_sessions", "Open connections to a relay"),
    by("relay", Gauge, "reveille_relay_rate_per_second", "Emails a second that a relay is given at most, now"),
    by("relay", Gauge, "reveille_relay_parked", "1: the day's allowance of a relay is used up"),
    by("relay", Gauge, "reveille_relay_circuit_open", "1: the circuit of a relay is open"),
    by("rpc", Counter, "reveille_peer_errors_total", "Calls between nodes that failed"),
    by("listener", Counter, "reveille_handshakes_failed_total", "Connections to a listener without a TLS handshake"),
    by("reason", Counter, "reveille_calls_denied_total", "Calls that were denied for lack of a valid token or right"),
    plain(
        Gauge,
        "reveille_certificate_files_failed",
        "1: the certificate of section tls cannot be read again, and the former one stays",
    ),
    plain(
        Gauge,
        "reveille_certificate_files_expire_timestamp_seconds",
        "When the certificate of section tls expires, in seconds since 1970; 0: there is none",
    ),
    plain(Distribution, "reveille_raft_loop_gap_seconds", "How late the runtime of Raft wakes"),
    plain(Gauge, "reveille_archive_blocks_missing", "Blocks of the archive that are damaged or missing on this node"),
    plain(Gauge, "reveille_files_missing", "Audience parts and attachments that this node lacks"),
    plain(Gauge, "reveille_parts_no_room", "1: the volume of this node has no room for parts of audiences"),
    plain(Gauge, "reveille_disk_short", "1: the data volume has no room for new work; 2: its reserve is in use"),
    plain(Gauge, "reveille_damaged_files", "Files at rest of this node that are damaged and not repaired yet"),
    plain(Counter, "reveille_scrub_bytes_total", "Bytes of files at rest that were checked"),
    plain(Distribution, "reveille_wal_sync_seconds", "How long a sync of the log takes"),
    plain(Counter, "reveille_wal_syncs_total", "Syncs of the log"),
    plain(Counter, "reveille_wal_batches_total", "Batches written to the log"),
    plain(Counter, "reveille_wal_records_total", "Records written to the log"),
    plain(Counter, "reveille_wal_bytes_total", "Bytes written to the log"),
    by("table", Gauge, "reveille_ledger_rows", "Rows of a table of the state"),
    by("table", Gauge, "reveille_ledger_bytes", "Encoded bytes of a table of the state"),
    by("cause", Distribution, "reveille_ledger_lock_seconds", "How long work on many rows held the lock of the ledger"),
    plain(Counter, "reveille_snapshot_failures_total", "Snapshots that failed"),
    plain(LeaderGauge, "reveille_backup_age_seconds", "Age of the last verified backup; 0 before the first"),
    plain(LeaderGauge, "reveille_backup_missing", "1: there is a target for backups, and none was ever made"),
    by("result", Counter, "reveille_backups_total", "Backups that this node made"),
    plain(LeaderCounter, "reveille_opt_out_stream_failures_total", "Failures to add opt-outs to the target of backups"),
    plain(Gauge, "reveille_config_reload_failed", "1: the last reload of the configuration failed"),
];

/// Registers all metrics with the recorder of this process.
pub fn describe() {
    for Metric { name, label, kind, help } in METRICS.iter().copied() {
        match kind {
            Counter | LeaderCounter => metrics::describe_counter!(name, help),
            Gauge | LeaderGauge => metrics::describe_gauge!(name, help),
            Distribution => metrics::describe_histogram!(name, help),
        }
        match (kind, label) {
            (Counter | LeaderCounter, None) => metrics::counter!(name).increment(0),
            (Gauge | LeaderGauge, None) => metrics::gauge!(name).set(0.0),
            (Distribution, _) | (_, Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|kind| kind == "rs") {
                found.push(entry);
            }
        }
    }

    /// Returns the name, the kind, and whether there is a label, of each metric counted in a file.
    fn counted(text: &str) -> Vec<(String, &'static str, bool)> {
        let mut counted = Vec::new();
        for kind in ["counter", "gauge", "histogram"] {
            for call in text.split(&format!("metrics::{kind}!(\"")).skip(1) {
                let (name, rest) = call.split_once('"').expect("a name");
                counted.push((name.to_owned(), kind, rest.starts_with(',')));
            }
        }
        counted
    }

    #[test]
    fn what_is_counted_anywhere_is_in_the_list() {
        let mut files = Vec::new();
        ["node/src", "cluster/src", "raft/src"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
        let mut known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(known.len(), METRICS.len(), "each name once");
        for file in files {
            for (name, kind, has_label) in counted(&std::fs::read_to_string(&file).expect("a source")) {
                let place = file.display();
                let listed = METRICS.iter().find(|metric| metric.name == name);
                let listed = listed.unwrap_or_else(|| panic!("{place} counts {name}, which METRICS lacks"));
                let expected = match listed.kind {
                    Counter | LeaderCounter => "counter",
                    Gauge | LeaderGauge => "gauge",
                    Distribution => "histogram",
                };
                assert_eq!((kind, has_label), (expected, listed.label.is_some()), "{name} in {place}");
                known.remove(name.as_str());
            }
        }
        assert!(known.is_empty(), "in METRICS, and counted nowhere: {known:?}");
    }

    /// Returns the metrics of the handbook's table: from its first column name and labels, from its second column the
    /// kind.
    fn rows_of_the_handbook() -> BTreeMap<String, (Option<String>, String)> {
        let page = std::fs::read_to_string(root().join("docs/reference/monitoring.md")).expect("the handbook");
        let section = page.split("\n## Metrics\n").nth(1).and_then(|rest| rest.split("\n## ").next());
        let mut rows = BTreeMap::new();
        for row in section.expect("a section").lines().filter(|line| line.starts_with("| `reveille_")) {
            let mut cells = row.split(" | ");
            let (names, kind) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            for name in names.split('`').skip(1).step_by(2) {
                let (name, label) = name.split_once('{').map_or((name, None), |(name, label)| (name, Some(label)));
                let label = label.map(|label| label.trim_end_matches('}').to_owned());
                rows.insert(name.to_owned(), (label, kind.trim_end_matches('s').to_owned()));
            }
        }
        rows
    }

    #[test]
    fn handbook_lists_each_metric_and_no_other() {
        let documented = rows_of_the_handbook();
        let expected = METRICS.iter().map(|metric| {
            let kind = match metric.kind {
                Counter => "counter",
                LeaderCounter => "counter, leader",
                Gauge => "gauge",
                LeaderGauge => "gauge, leader",
                Distribution => "distribution",
            };
            (metric.name.to_owned(), (metric.label.map(str::to_owned), kind.to_owned()))
        });
        assert_eq!(documented, expected.collect());
    }

    /// An alert on a metric that does not exist never fires.
    #[test]
    fn every_name_on_any_page_is_counted() {
        let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        for page in [
            "docs/how-to/monitor.md",
            "docs/reference/monitoring.md",
            "docs/performance.md",
            "packaging/prometheus/reveille.rules.yml",
            "packaging/prometheus/reveille.test.yml",
            "packaging/grafana/reveille.json",
        ] {
            let text = std::fs::read_to_string(root().join(page)).expect("a page");
            let words = text.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
            let is_named = |word: &&str| word.starts_with("reveille_");
            for word in words.filter(is_named) {
                assert!(known.contains(word), "{page} names {word}");
            }
        }
    }

    #[test]
    fn what_has_no_labels_is_there_from_the_first_moment() {
        let page = crate::server::health::recorder().render();
        for metric in METRICS.iter().filter(|metric| metric.label.is_none() && metric.kind != Distribution) {
            assert!(page.contains(&format!("\n{} ", metric.name)), "{} in\n{page}", metric.name);
            assert!(page.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{page}");
        }
    }
}
