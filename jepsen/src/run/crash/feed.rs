//! What goes on while nodes die: schedules are created all the time, each due a little later, and small lists are
//! imported as an administrator would do it. Whoever feeds waits for nobody: what nobody answered is asked again at the
//! end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::admin::Admin;
use crate::measure::unix_us;
use crate::orders::Came;
use crate::run::recorder::Recorder;
use crate::run::workload::{Item, Workload};

/// Clients that create, and how long each rests after a create.
const CLIENTS: usize = 3;
const REST: Duration = Duration::from_millis(900);
/// Recipients of a schedule.
const RECIPIENTS: u32 = 4;
/// Due so much later than it was asked for: longer than a client insists.
const AHEAD_MS: u64 = 20_000;
/// A list of so many is imported within so long, or given up.
const ROWS: u32 = 20;
const IMPORTED_WITHIN: Duration = Duration::from_secs(8);
/// The state of the cluster is asked for so often, and waited for so long.
const LOOK_EVERY: Duration = Duration::from_millis(400);
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// Everybody who feeds; they end when this is dropped.
pub struct Feed {
    created: Arc<AtomicBool>,
    imports: Arc<AtomicBool>,
    applied: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Feed {
    /// Begins. `binary` imports lists kept in `folder`.
    pub fn start(
        admin: &Admin,
        recorder: &Recorder,
        workload: &Workload,
        binary: &Path,
        folder: &Path,
    ) -> Result<Feed> {
        let (created, imports) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let applied = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let (admin, on) = (admin.another(client)?, Arc::clone(&created));
            tasks.spawn(create(admin, recorder.clone(), workload.clone(), client, on));
        }
        let list = folder.join("list.csv");
        let endpoints = admin.endpoints().join(",");
        tasks.spawn(import(binary.to_owned(), endpoints, list, Arc::clone(&imports)));
        tasks.spawn(look(admin.another(0)?, Arc::clone(&applied)));
        Ok(Feed { created, imports, applied, tasks })
    }

    /// Lists are imported no more.
    pub fn stop_importing(&self) {
        self.imports.store(false, Ordering::Relaxed);
    }

    /// The index that the cluster had applied when it was last asked.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Nothing new is begun; returns when what was begun is over.
    pub async fn stop(mut self) {
        self.created.store(false, Ordering::Relaxed);
        self.stop_importing();
        self.applied.store(u64::MAX, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn create(admin: Admin, recorder: Recorder, workload: Workload, client: usize, on: Arc<AtomicBool>) {
    let mut number = 0;
    while on.load(Ordering::Relaxed) {
        let now_ms = unix_us(SystemTime::now()) as u64 / 1_000;
        let name = format!("feed-{client}-{number}");
        let item = Item::once(name.clone(), (now_ms + AHEAD_MS) / 100 * 100, RECIPIENTS);
        let id = format!("create-{name}");
        match workload.ask(&admin, &recorder, &format!("client-{client}"), &id, &item).await {
            Came::Done(_) => workload.add(item),
            Came::Refused(_) => {}
            Came::Unknown => workload.doubt(&id, item),
        }
        number += 1;
        tokio::time::sleep(REST).await;
    }
}

/// Nobody judges whether it succeeds: a client whose node dies says so and ends. What it left is checked by the nodes.
async fn import(binary: PathBuf, endpoints: String, list: PathBuf, on: Arc<AtomicBool>) {
    let mut number = 0_u32;
    while on.load(Ordering::Relaxed) {
        // Others each time: a part that the nodes have already is not sent.
        let rows: String = (0..ROWS).map(|row| format!("listed-{number}-{row}@example.net\n")).collect();
        if let Err(error) = std::fs::write(&list, format!("email\n{rows}")) {
            eprintln!("  {}: {error}; no list is imported", list.display());
            return;
        }
        let mut command = Command::new(&binary);
        command.args(["audience", "import", &format!("list-{number}")]).arg(&list).args(["--endpoint", &endpoints]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        if let Ok(mut process) = command.spawn() {
            let ended = tokio::time::timeout(IMPORTED_WITHIN, process.wait()).await;
            if ended.is_err() {
                // It may have ended in this very moment.
                let _ = process.kill().await;
            }
        }
        number += 1;
        tokio::time::sleep(REST).await;
    }
}

async fn look(admin: Admin, applied: Arc<AtomicU64>) {
    while applied.load(Ordering::Relaxed) != u64::MAX {
        if let Ok(Ok(status)) = tokio::time::timeout(LOOK_WITHIN, admin.status()).await {
            let index = status.members.iter().filter_map(|member| member.applied_index).max().unwrap_or(0);
            applied.fetch_max(index, Ordering::Relaxed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
