//! Helpers for tests of whole nodes: a context over a replica, and something to send.

pub mod one_node;
pub mod postfix;
pub mod s3_server;
pub mod wrong_clock;

use std::sync::Arc;
use std::time::Duration;

use reveille_cluster::backup::BackupPlan;
use reveille_cluster::file_store::FileStore;
use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::context::NodeIntroduction;
use reveille_cluster::process::peer_handler::PeerHandler;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, NextInstant, ScheduleCreate};
use reveille_ledger::content::{Audience, AudienceChoice, Content, Recipient};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, OccurrenceName};
use reveille_ledger::policy::Policies;
use reveille_raft::{Replica, ReplicaOptions};

/// Time limit of a step, far longer than needed, so that a loaded machine fails no test.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the owner: a node with its incarnation.
pub fn owner(node: NodeId, incarnation: u64) -> ClaimOwner {
    ClaimOwner { node, incarnation: Incarnation(incarnation) }
}

/// Starts a node's replica from these options, without actors.
pub async fn context(
    options: ReplicaOptions,
    address: &str,
    clock: Arc<dyn Clock>,
    backups: Option<BackupPlan>,
) -> Arc<NodeContext> {
    let me = ClaimOwner { node: options.node, incarnation: Incarnation(options.process_nonce) };
    let introduction = NodeIntroduction {
        name: format!("n{}", me.node.0),
        address: address.to_owned(),
        version: "test".into(),
        tzdb: "test".into(),
    };
    let peer_handler = Arc::new(PeerHandler::new(clock.clone(), introduction.clone()));
    let parts = FileStore::open(options.data_dir.join("parts")).expect("a folder");
    let replica = Replica::start(options, peer_handler.clone()).await.expect("a replica");
    let mut context = NodeContext::new(replica, me, introduction, clock, Zones::bundled("test"), parts);
    context.backups = backups;
    let context = Arc::new(context);
    peer_handler.open(&context);
    context
}

pub fn address(number: u32) -> String {
    format!("r{number}@example.net")
}

/// Returns a schedule of one run with this number of recipients, due at once.
pub fn schedule(recipients: u32) -> Command {
    let recipient = |number: u32| Recipient {
        address: address(number),
        key: address(number),
        values: vec![format!("reader {number}")],
    };
    let recipients = (0..recipients).map(recipient).collect();
    schedule_to(Audience { columns: vec!["name".into()], recipients }.into())
}

/// Returns a schedule of one run to this audience, due at once. Its recipients have the variable `name`.
pub fn schedule_to(audience: AudienceChoice) -> Command {
    let now = SystemClock.wall();
    let due = now.plus_ms(300);
    Command::ScheduleCreate(Box::new(ScheduleCreate {
        request: None,
        tenant: "default".into(),
        name: "once".into(),
        timing: ScheduleTiming::new(When::At { instant_ms: due.0 }, "UTC"),
        policies: Policies::default(),
        pool: "default".into(),
        priority: 0,
        paused: None,
        content: Content {
            sender: "Reveille <from@example.org>".into(),
            subject: "Hello {{ name }}".into(),
            text: Some("Dear {{ name }}\n".into()),
            ..Content::default()
        }
        .into(),
        audience,
        after: now,
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
        tzdb: "test".into(),
        labels: reveille_ledger::labels::Labels::default(),
    }))
}
