//! The file `peers` in the data folder: the other members, as this node last knew them. A start that finds no readable
//! snapshot asks them for one: the membership is in the snapshots, too.
//!
//! Text, so that an operator can read and correct it: a line for each member, with its id, its address, and in a
//! cluster with certificates the hash of its public key. A line without the hash trusts the member's name.
//!
//! ```text
//! 5f3a09c1 10.0.0.2:7601 91e07b0c6a…
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use reveille_ledger::ids::{Hash, NodeId};
use tokio_util::sync::CancellationToken;

use crate::execution::Execution;
use crate::files;
use crate::peer::Destination;
use crate::tls::KeyPin;
use crate::types::{StoredMembership, TypeConfig};

/// Name of the file.
const PEERS: &str = "peers";

/// Returns the members that the file names; none without the file. A line that cannot be read is skipped.
pub(crate) fn read(data_dir: &Path) -> Vec<Destination> {
    let bytes = std::fs::read(data_dir.join(PEERS)).unwrap_or_else(|error| {
        if error.kind() != ErrorKind::NotFound {
            tracing::warn!(%error, "the file 'peers' cannot be read");
        }
        Vec::new()
    });
    String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Destination> {
    let mut words = line.split_whitespace();
    let node = NodeId(u64::from_str_radix(words.next()?, 16).ok()?);
    let address = words.next()?.to_owned();
    // A damaged hash must not become a line that trusts the name.
    let key = words.next().map(str::parse).transpose().ok()?.map(|Hash(hash)| KeyPin(hash));
    Some(Destination { node, address, key })
}

fn line(peer: &Destination) -> String {
    let key = peer.key.map(|KeyPin(hash)| format!(" {}", Hash(hash))).unwrap_or_default();
    format!("{} {}{key}\n", peer.node, peer.address)
}

/// Writes the file whenever the members change, until `stop`. `own` is this node.
pub(crate) async fn keep(
    mut metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    (data_dir, own): (PathBuf, NodeId),
    execution: Execution,
    stop: CancellationToken,
) {
    let mut written = read(&data_dir);
    loop {
        let peers = peers_of(&metrics.borrow_and_update().membership_config, own);
        if peers != written {
            let text: String = peers.iter().map(line).collect();
            let folder = data_dir.clone();
            let replaced =
                execution.blocking(move || files::replace(&folder, PEERS, text.as_bytes(), files::PUBLIC)).await;
            match replaced.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                Ok(()) => written = peers,
                Err(error) => tracing::warn!(%error, "the file 'peers' was not written; the next change tries again"),
            }
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Returns the members without this node, in the order of their ids.
fn peers_of(membership: &StoredMembership, own: NodeId) -> Vec<Destination> {
    let others = membership.nodes().filter(|(id, _)| **id != own.0);
    others.map(|(id, node)| Destination { node: NodeId(*id), address: node.address.clone(), key: node.key }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::PeerNode;

    #[test]
    fn unreadable_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), []);
        std::fs::write(folder.path().join(PEERS), b"5f3a 10.0.0.2:7601\n\xff\xfe\nzz 10.0.0.3:7601\n7\n8 n3:7601\r\n")
            .unwrap();
        let peer = |node, address: &str| Destination { node: NodeId(node), address: address.to_owned(), key: None };
        assert_eq!(read(folder.path()), [peer(0x5f3a, "10.0.0.2:7601"), peer(8, "n3:7601")]);
    }

    #[test]
    fn key_of_member_reads_back_and_damaged_one_is_no_missing_one() {
        let node = |key| PeerNode { address: "10.0.0.2:7601".to_owned(), name: "n2".to_owned(), key };
        let nodes = BTreeMap::from([(1, node(None)), (2, node(Some(KeyPin([0xab; 32])))), (3, node(None))]);
        let membership = openraft::Membership::new(vec![nodes.keys().copied().collect()], nodes).unwrap();
        let peers = peers_of(&StoredMembership::new(None, membership), NodeId(1));
        assert_eq!(peers.iter().map(|peer| peer.key).collect::<Vec<_>>(), [Some(KeyPin([0xab; 32])), None]);
        assert!(peers.iter().map(line).map(|line| parse(&line)).eq(peers.iter().cloned().map(Some)));

        let whole = line(&peers[0]);
        for end in whole.find("ab").unwrap() + 1..whole.trim_end().len() {
            assert_eq!(parse(&whole[..end]), None, "cut in the hash");
        }
        assert_eq!(parse(&whole.replace("ab", "xy")), None);
    }
}
