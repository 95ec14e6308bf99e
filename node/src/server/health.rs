//! Health checks and metrics over HTTP for load balancers and monitoring.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use reveille_cluster::process::context::NodeContext;
use reveille_raft::Role;

use crate::server::admin::authenticate_page;
use crate::server::metrics;

/// Interval at which recorded distribution samples are folded into summaries. Without folding they use more and more
/// memory until the next request for `/metrics`.
const FOLD_EVERY: Duration = Duration::from_secs(5);

/// Serves `/livez`, `/readyz`, `/leaderz` and `/metrics`. On other addresses than loopback the metrics need a token.
pub fn router(context: Arc<NodeContext>, address: SocketAddr) -> Router {
    let metrics = match address.ip().is_loopback() {
        true => get(measures),
        false => get(measures).layer(from_fn_with_state(Arc::clone(&context), authenticate_page)),
    };
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/leaderz", get(leads))
        .route("/metrics", metrics)
        .with_state(context)
}

type Answer = (StatusCode, String);

fn answer(good: bool, text: &str) -> Answer {
    (if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, format!("{text}\n"))
}

/// Returns 200 unless the replica has a fatal error. On 503 the process should be restarted.
async fn live(State(context): State<Arc<NodeContext>>) -> Answer {
    match &*context.replica.fatal_error().borrow() {
        None => answer(true, "alive"),
        Some(fault) => answer(false, &fault.to_string()),
    }
}

/// Returns 200 if the node follows a live leader or leads a quorum. On 503 requests should go to another node.
async fn ready(State(context): State<Arc<NodeContext>>) -> Answer {
    let (good, text) = readiness(&context);
    answer(good, &text)
}

/// Returns whether this node can take requests, and the reason as text.
pub fn readiness(context: &NodeContext) -> (bool, String) {
    if context.is_stopping() {
        return (false, "stopping".to_owned());
    }
    let role = *context.replica.role().borrow();
    if let (Role::Follower { .. } | Role::Candidate, Some(silence)) = (role, context.replica.leaderless_for()) {
        return (false, format!("no leader was heard for {} s", silence.as_secs()));
    }
    match role {
        Role::Leader { .. } if context.leads_a_quorum() => (true, "leads".to_owned()),
        Role::Leader { .. } => (false, "leads, and no quorum answers it".to_owned()),
        Role::Follower { leader: Some(leader) } => (true, format!("follows {leader}")),
        Role::Follower { leader: None } | Role::Candidate => (false, "no leader is known".to_owned()),
        Role::Stopped => (false, "stopped".to_owned()),
    }
}

/// Returns 200 on the leader if its epoch is applied and a quorum answers it; 503 otherwise.
async fn leads(State(context): State<Arc<NodeContext>>) -> Answer {
    match context.leadership() {
        Some(term) if context.leads_a_quorum() => answer(true, &format!("leads epoch {}", term.epoch().0)),
        Some(_) => answer(false, "leads, and no quorum answers it"),
        None => answer(false, "does not lead"),
    }
}

async fn measures() -> String {
    recorder().render()
}

/// Returns the metrics recorder of this process. The first call installs it.
pub fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        // Fails only if another recorder is installed already. Then `/metrics` of this process stays empty.
        let _ = ::metrics::set_global_recorder(recorder);
        metrics::describe();
        let folding = handle.clone();
        let fold = move || loop {
            std::thread::sleep(FOLD_EVERY);
            folding.run_upkeep();
        };
        if let Err(error) = std::thread::Builder::new().name("metrics".to_owned()).spawn(fold) {
            tracing::error!(%error, "distributions grow in memory until /metrics is read");
        }
        handle
    })
}
