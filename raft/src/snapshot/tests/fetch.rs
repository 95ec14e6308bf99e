//! Tests of the fetch from a peer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use tokio_util::sync::CancellationToken;

use super::manager::manager;
use super::*;
use crate::execution::Execution;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::identity::Identity;
use crate::known_peers;
use crate::peer::client::PeerClient;
use crate::peer::{Handler, Rejection, Request, Response, Transport};
use crate::snapshot::fetch::{SnapshotFetch, send_blocks, send_manifest};
use crate::snapshot::manager::SnapshotManager;
use crate::tls::KeyPin;
use crate::tls::tests::{CLUSTER, founder, member, transport};

/// Serves the snapshots of a node to every caller.
struct Source(Arc<SnapshotManager>);

#[async_trait]
impl Handler for Source {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        match request {
            Request::FetchSnapshot(request) => send_manifest(&self.0, request).await.map(Response::FetchSnapshot),
            Request::FetchBlocks(request) => send_blocks(&self.0, request).await.map(Response::FetchBlocks),
            _ => Err(Rejection::Unavailable("not served".to_owned())),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_fetched_only_from_node_with_recorded_key() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (two, three) = (NodeId(2), NodeId(3));
    let founder = founder(folder.path());
    let caller = member(&founder, folder.path(), two);
    let (recorded, other) = (member(&founder, folder.path(), three), member(&founder, elsewhere.path(), three));
    // A certificate of the same authority and with the same name, but of another key.
    let server = transport(&other);
    let address = server.address();
    let source = Source(Arc::new(manager(&folder.path().join("source"), 7).0));
    server.serve(Arc::new(source), CancellationToken::new()).await.unwrap();

    let data_dir = folder.path().join("data");
    let identity = Identity::open(&data_dir, two).unwrap();
    identity.join(CLUSTER, true).unwrap();
    let client = PeerClient {
        transport: Arc::new(transport(&caller)),
        identity: Arc::new(identity),
        fatal_errors: FatalErrorCell::new(),
    };
    let fetched = async |KeyPin(key): KeyPin| {
        fs::write(data_dir.join("peers"), format!("{three} {address} {}\n", Hash(key))).unwrap();
        let peers = known_peers::read(&data_dir);
        let folder = Arc::new(Snapshots::open(&data_dir.join("snapshots")).unwrap());
        let (client, peers) = (&client, peers.as_slice());
        let fetch =
            SnapshotFetch { client, peers, folder: Arc::clone(&folder), execution: Execution::Inline, at_least: 5 };
        fetch.run(Duration::ZERO).await.map(|()| newest(&folder).map(|manifest| manifest.index))
    };
    let refused = fetched(recorded.pin()).await;
    assert!(matches!(&refused, Err(FatalError::State(why)) if why.contains("has another key")), "{refused:?}");
    assert!(matches!(fetched(other.pin()).await, Ok(Some(7))), "of the key that is recorded");
}
