//! The workload while nodes crash. Schedules are created all the time, each due a little later, and small lists are
//! imported as a user would import them. A call without an answer is repeated at the end of the run. While a point of a
//! snapshot is wanted, opt-outs of other addresses let the log grow past the snapshots that a node has.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use reveille_harness::AdminClient;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::run::workload::{Workload, WorkloadItem, due_in};

/// Number of clients that create schedules, and the pause of each client after a create.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(900);
/// Number of recipients of a schedule.
const RECIPIENTS: u32 = 4;
/// Time until a schedule is due. It is longer than a client repeats its call.
const AHEAD_MS: u64 = 20_000;
/// Number of rows of an imported list, and the timeout of its import.
const ROWS: u32 = 20;
const IMPORTED_WITHIN: Duration = Duration::from_secs(8);
/// Pause after an opt-out: the log grows by some 60 entries a second.
const FILL_PAUSE: Duration = Duration::from_millis(10);
/// Interval and timeout of reading the applied index.
const POLL_EVERY: Duration = Duration::from_millis(400);
const POLL_WITHIN: Duration = Duration::from_secs(2);

/// The clients. Dropping this value ends them.
pub struct Traffic {
    creates: Arc<AtomicBool>,
    imports: Arc<AtomicBool>,
    fills: Arc<AtomicBool>,
    applied: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Traffic {
    /// Starts the clients. `binary` imports lists from `folder`.
    pub fn start(admin: &AdminClient, workload: &Workload, binary: &Path, folder: &Path) -> Result<Traffic> {
        let [creates, imports, fills] = [(); 3].map(|()| Arc::new(AtomicBool::new(true)));
        let applied = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let (admin, on) = (admin.another(client)?, Arc::clone(&creates));
            tasks.spawn(create(admin, workload.clone(), client, on));
        }
        let list = folder.join("list.csv");
        let endpoints = admin.endpoints().join(",");
        tasks.spawn(import(binary.to_owned(), endpoints, list, Arc::clone(&imports)));
        tasks.spawn(fill(admin.another(0)?, Arc::clone(&fills)));
        tasks.spawn(poll(admin.another(0)?, Arc::clone(&applied)));
        Ok(Traffic { creates, imports, fills, applied, tasks })
    }

    /// Stops the imports.
    pub fn stop_importing(&self) {
        self.imports.store(false, Ordering::Relaxed);
    }

    /// Lets the log grow by nothing but emails and lists.
    pub fn stop_filling(&self) {
        self.fills.store(false, Ordering::Relaxed);
    }

    /// Returns the last known applied index of the cluster.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Ends all clients after their current calls.
    pub async fn stop(mut self) {
        self.creates.store(false, Ordering::Relaxed);
        self.stop_importing();
        self.stop_filling();
        self.applied.store(u64::MAX, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn create(admin: AdminClient, workload: Workload, client: usize, on: Arc<AtomicBool>) {
    let mut number = 0;
    while on.load(Ordering::Relaxed) {
        let name = format!("feed-{client}-{number}");
        let item = WorkloadItem::once(name.clone(), due_in(AHEAD_MS), RECIPIENTS);
        workload.ask_and_keep(&admin, &format!("client-{client}"), &format!("create-{name}"), item).await;
        number += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Imports lists. An import may fail, because its client exits when its node crashes. The nodes check what it left.
async fn import(binary: PathBuf, endpoints: String, list: PathBuf, on: Arc<AtomicBool>) {
    let mut number = 0_u32;
    while on.load(Ordering::Relaxed) {
        // The rows differ each time, because a part that the nodes already have is not sent again.
        let rows: String = (0..ROWS).map(|row| format!("listed-{number}-{row}@example.net\n")).collect();
        if let Err(error) = std::fs::write(&list, format!("email\n{rows}")) {
            eprintln!("  {}: {error}; imports end", list.display());
            return;
        }
        let mut command = Command::new(&binary);
        command.args(["audience", "import", &format!("list-{number}")]).arg(&list).args(["--endpoint", &endpoints]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        if let Ok(mut process) = command.spawn() {
            let ended = tokio::time::timeout(IMPORTED_WITHIN, process.wait()).await;
            if ended.is_err() {
                // The process may have just ended.
                let _ = process.kill().await;
            }
        }
        number += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Records opt-outs of addresses that get no email. A call without an answer is not repeated.
async fn fill(admin: AdminClient, on: Arc<AtomicBool>) {
    let mut number = 0_u32;
    while on.load(Ordering::Relaxed) {
        let request_id = format!("fill-{number}");
        drop(admin.opt_out(&request_id, &format!("{request_id}@example.net")).await);
        number += 1;
        tokio::time::sleep(FILL_PAUSE).await;
    }
}

async fn poll(admin: AdminClient, applied: Arc<AtomicU64>) {
    while applied.load(Ordering::Relaxed) != u64::MAX {
        if let Ok(Ok(status)) = tokio::time::timeout(POLL_WITHIN, admin.status()).await {
            let index = status.members.iter().filter_map(|member| member.applied_index).max().unwrap_or(0);
            applied.fetch_max(index, Ordering::Relaxed);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
