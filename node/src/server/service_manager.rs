//! What a node reports to a service manager (systemd's protocol, sd_notify(3)): listening, stopping, its status, and
//! that the loops still run. Without `NOTIFY_SOCKET` it reports nothing.
//!
//! The node is *ready* for the service manager once it listens: a cluster that is not made yet, or has no
//! quorum, is no reason to start the process again. Whether requests may go to it is `/readyz`'s to say.

use std::sync::Arc;
use std::time::Duration;

use reveille_cluster::node::context::NodeContext;
use reveille_raft::Role;
use sd_notify::NotifyState;
use tokio::runtime::Handle;

use crate::server::health;

/// How often the status line is read.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// It listens. Tells from now on how it is, and that it lives, where the manager asks for that.
pub fn ready(context: &Arc<NodeContext>) {
    tell(&[NotifyState::Ready]);
    tokio::spawn(report(Arc::clone(context)));
    if let Some(within) = sd_notify::watchdog_enabled() {
        // Three signs within the time: one may be lost.
        context.replica.runtime().spawn(watch(Arc::clone(context), within / 3, Handle::current()));
    }
}

/// It was asked to stop, and does so within the time that its configuration allows.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// The line that `systemctl status` shows; what `/readyz` answers.
async fn report(context: Arc<NodeContext>) {
    let mut said = String::new();
    while *context.replica.role().borrow() != Role::Stopped {
        let (_, text) = health::readiness(&context);
        if text != said {
            tell(&[NotifyState::Status(&text)]);
            said = text;
        }
        tokio::time::sleep(STATUS_EVERY).await;
    }
}

/// Signs of life, to the end of a graceful stop. They come from Raft's runtime, and only when the other one
/// answers and nothing is broken: a process of which one half hangs is started again. A slow disk silences
/// nothing here; the leader hands over for that (P13).
async fn watch(context: Arc<NodeContext>, every: Duration, other: Handle) {
    loop {
        let answered = tokio::time::timeout(every, other.spawn(async {})).await;
        if matches!(answered, Ok(Ok(()))) && context.replica.fatal_error().borrow().is_none() {
            tell(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(every).await;
    }
}

/// A manager that cannot be told is no reason to stop: it will do by its own rules what it thinks right.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
