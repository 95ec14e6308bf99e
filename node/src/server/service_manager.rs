//! Notifies a service manager (systemd's protocol, sd_notify(3)): ready, stopping, status, and the watchdog. Without
//! `NOTIFY_SOCKET` it does nothing.
//!
//! The node is *ready* for the service manager as soon as it listens. A node without a cluster or a quorum is ready
//! too, because a restart would not help. `/readyz` says whether requests can go to the node.

use std::sync::Arc;
use std::time::Duration;

use reveille_cluster::process::context::NodeContext;
use reveille_raft::Role;
use sd_notify::NotifyState;
use tokio::runtime::Handle;

use crate::server::health;

/// Interval at which the status line is updated.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Notifies the service manager that the node listens. Starts the status updates, and the watchdog if the manager asks
/// for it.
pub fn ready(context: &Arc<NodeContext>) {
    notify(&[NotifyState::Ready]);
    tokio::spawn(report(Arc::clone(context)));
    if let Some(within) = sd_notify::watchdog_enabled() {
        // Three notifications within the watchdog time: one may be lost.
        context.replica.runtime().spawn(watch(Arc::clone(context), within / 3, Handle::current()));
    }
}

/// Notifies the service manager that the node is stopping.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Updates the status line of `systemctl status`. Its text is that of `/readyz`.
async fn report(context: Arc<NodeContext>) {
    let mut said = String::new();
    while *context.replica.role().borrow() != Role::Stopped {
        let (_, text) = health::readiness(&context);
        if text != said {
            notify(&[NotifyState::Status(&text)]);
            said = text;
        }
        tokio::time::sleep(STATUS_EVERY).await;
    }
}

/// Sends watchdog notifications until the end of a graceful stop. It runs on Raft's runtime, and notifies only while
/// the main runtime answers and the replica has no fatal error. So the service manager restarts a process if one
/// runtime hangs. A slow disk does not stop the notifications; for that the leader hands over (P13).
async fn watch(context: Arc<NodeContext>, every: Duration, other: Handle) {
    loop {
        let answered = tokio::time::timeout(every, other.spawn(async {})).await;
        if matches!(answered, Ok(Ok(()))) && context.replica.fatal_error().borrow().is_none() {
            notify(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(every).await;
    }
}

/// Sends a notification. A failed notification does not stop the node.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}
