//! The socket of this machine: `admin.sock` in the data folder.
//!
//! It replaces lost admin tokens (`ResetTokens`), and does nothing else. The system says which user is at the other
//! end: only the user of this node and root are heard. Such a user could read the data folder anyway.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use reveille_proto::admin::v1::token_service_server::TokenServiceServer;
use reveille_raft::files::remove_if_exists;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use super::Admin;
use super::access::{Authenticator, ListenerKind, authenticate};

/// Name of the socket in the data folder.
const SOCKET: &str = "admin.sock";
/// Connections that wait to be served.
const WAITING_MAX: usize = 4;
/// Requests on one connection at a time.
const REQUESTS_MAX: usize = 4;
/// Pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Returns the path of the socket.
pub fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join(SOCKET)
}

/// Serves the socket of this data folder until `stop` is cancelled.
///
/// # Errors
/// If the socket cannot be made, for example because its path is too long.
pub async fn serve_local(
    admin: Admin,
    data_dir: &Path,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let path = socket_path(data_dir);
    // The folder belongs to this process alone, so the socket is one that a former process left.
    remove_if_exists(&path)?;
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let by = Authenticator { context: Arc::clone(&admin.context), listener: ListenerKind::Local };
    let service = TokenServiceServer::new(Admin { stop: stop.clone(), ..admin });
    let routes = Routes::new(service).into_axum_router().layer(from_fn_with_state(by, authenticate));
    let (accepted, connections) = mpsc::channel(WAITING_MAX);
    let accepting = async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) if is_permitted(&stream) => {
                    if accepted.send(Ok::<_, std::io::Error>(stream)).await.is_err() {
                        return;
                    }
                }
                Ok(_) => tracing::warn!("a connection of another user to admin.sock was closed"),
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    };
    let serving = Server::builder()
        .concurrency_limit_per_connection(REQUESTS_MAX)
        .add_routes(Routes::from(routes))
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), stop.clone().cancelled_owned());
    tokio::select! {
        served = serving => Ok(served?),
        () = accepting => Ok(()),
        () = stop.cancelled() => Ok(()),
    }
}

/// Returns true for the user of this process and for root.
fn is_permitted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}
