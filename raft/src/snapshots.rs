//! placeholder
use std::io;
use std::sync::Arc;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use reveille_proto::peer::v1;
use crate::Raft;
use crate::machine::Machine;
use crate::network::Link;
use crate::peer::{Hiccup, Rejection};
use crate::types::{LogId, StoredMembership, TypeConfig, Vote};

pub struct SnapshotData(pub Arc<Vec<u8>>);
pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotData>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

pub(crate) async fn send(_link: &mut Link, _vote: Vote, _snapshot: Snapshot) -> Result<Vote, Hiccup> {
    Err(Hiccup::Unreachable("none".to_owned()))
}
pub(crate) struct Receiver {}
impl Receiver {
    pub async fn offer(&self, _raft: &Raft, _request: v1::OfferSnapshotRequest) -> Result<v1::OfferSnapshotResponse, Rejection> {
        Err(Rejection::NotNow(String::new()))
    }
    pub async fn chunk(&self, _request: v1::SendChunkRequest) -> Result<v1::SendChunkResponse, Rejection> {
        Err(Rejection::NotNow(String::new()))
    }
    pub async fn install(&self, _raft: &Raft, _request: v1::InstallSnapshotRequest) -> Result<v1::InstallSnapshotResponse, Rejection> {
        Err(Rejection::NotNow(String::new()))
    }
}

pub struct StateMachine { pub(crate) machine: Machine }
pub struct Builder {}
impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;
    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> { Err(io::Error::other("none")) }
}
impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;
    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let place = self.machine.core().place.lock().clone();
        Ok((place.last, place.membership))
    }
    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where S: futures::Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + openraft::OptionalSend {
        self.machine.apply(entries).await
    }
    async fn get_snapshot_builder(&mut self) -> Builder { Builder {} }
    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, _snapshot: SnapshotData) -> Result<(), io::Error> { Err(io::Error::other("none")) }
    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> { Ok(None) }
}
