//! This node's answers to its peers: leases as leader, barriers as owner of claims, its clocks, files.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use reveille_ledger::ids::{AuthorityId, Hash, NodeId};
use reveille_raft::Application;
use reveille_raft::peer::Rejection;
use reveille_raft::tls::NodeTls;

use super::clock::Clock;
use super::context::{NodeContext, NodeIntroduction};
use super::limits::NAMED_MAX;
use super::peer_messages::{
    self, AuthorityFile, BarrierReport, BarrierRequest, BeginScrub, ChangeMember, ChangedMember, ClockReading,
    Describe, Description, FetchAuthority, FetchFile, FilePiece, FindMissingParts, FindUnreadableBlocks, GrantedLease,
    HandOver, HoldBarrier, LeaseRequest, MemberRefusal, PeerFile, PeerRequest, PullPart, ReadClock, reply,
};
use crate::file_store::fetcher::{PIECE, fetch_from};
use crate::leader::leadership::Leadership;
use crate::leader::{barrier, removal};

/// Handler of peers' requests. It is made before the replica, which needs it. It gets the context later, since the
/// context needs the replica; until then it refuses requests.
pub struct PeerHandler {
    clock: Arc<dyn Clock>,
    introduction: NodeIntroduction,
    /// Time of the clock since the machine started.
    started_at: Duration,
    context: OnceLock<Weak<NodeContext>>,
}

impl PeerHandler {
    /// Returns a handler that knows only its clock and its description.
    pub fn new(clock: Arc<dyn Clock>, introduction: NodeIntroduction) -> PeerHandler {
        PeerHandler { started_at: clock.boot(), clock, introduction, context: OnceLock::new() }
    }

    /// Sets the context from which requests are answered.
    pub fn open(&self, context: &Arc<NodeContext>) {
        // This is called once; a second call would have the same context.
        let _ = self.context.set(Arc::downgrade(context));
    }

    fn started(&self) -> Result<Arc<NodeContext>, Rejection> {
        self.context
            .get()
            .and_then(Weak::upgrade)
            .ok_or_else(|| Rejection::Unavailable("this node is starting".to_owned()))
    }

    fn describe(&self, context: &NodeContext) -> Description {
        Description {
            node: context.me.node,
            incarnation: context.me.incarnation,
            applied: context.replica.read(|ledger| ledger.head().applied),
            checkpoints: context.replica.checkpoints(),
            wall: self.clock.wall(),
            version: self.introduction.version.clone(),
            up_ms: Some(self.clock.boot().saturating_sub(self.started_at).as_millis() as u64),
            tzdb: self.introduction.tzdb.clone(),
            no_room: context.disk.shortage().or_else(|| context.files.shortage()),
            stopping: context.is_stopping(),
            trust: context.replica.tls().map(NodeTls::report),
            scrub: context.scrub.report(),
        }
    }

    fn clock(&self) -> ClockReading {
        ClockReading { wall: self.clock.wall(), boot_ms: self.clock.boot().as_millis() as u64 }
    }
}

#[async_trait]
impl Application for PeerHandler {
    async fn answer(&self, from: NodeId, payload: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Rejection> {
        match peer_messages::decode(&payload)? {
            PeerRequest::RenewLease(request) if request.owner.node != from => {
                Err(Rejection::Malformed(format!("node {from} asks for a lease of node {}", request.owner.node)))
            }
            PeerRequest::RenewLease(request) => reply::<LeaseRequest>(&grant(&*self.started()?, request).await),
            PeerRequest::Barrier(request) => {
                reply::<BarrierRequest>(&barrier::answer(&*self.started()?, request).await)
            }
            PeerRequest::HoldBarrier(HoldBarrier(request)) => {
                reply::<HoldBarrier>(&hold_barrier(&self.started()?, request).await)
            }
            PeerRequest::HandOver(request) => {
                reply::<HandOver>(&transfer_leadership(&*self.started()?, request.to, limit).await)
            }
            PeerRequest::ChangeMember(request) => {
                reply::<ChangeMember>(&change_member(&*self.started()?, request, limit).await)
            }
            PeerRequest::Clock(ReadClock) => reply::<ReadClock>(&self.clock()),
            PeerRequest::Describe(Describe) => reply::<Describe>(&self.describe(&*self.started()?)),
            PeerRequest::FetchFile(request) => reply::<FetchFile>(&read_piece(self.started()?, request).await),
            PeerRequest::FindMissingParts(FindMissingParts(parts)) => {
                reply::<FindMissingParts>(&find_missing_parts(self.started()?, parts).await)
            }
            PeerRequest::FindUnreadableBlocks(request) => {
                reply::<FindUnreadableBlocks>(&find_unreadable_blocks(self.started()?, request, limit).await)
            }
            PeerRequest::FetchAuthority(FetchAuthority(id)) => {
                reply::<FetchAuthority>(&authority_file(&*self.started()?, from, id))
            }
            PeerRequest::BeginScrub(BeginScrub) => reply::<BeginScrub>(&self.started()?.scrub.request()),
            PeerRequest::PullPart(request) => reply::<PullPart>(&pull_part(self.started()?, request).await),
        }
    }
}

fn leadership(context: &NodeContext) -> Result<Arc<Leadership>, String> {
    context.leadership().ok_or_else(|| "this node does not lead".to_owned())
}

/// Returns an authority for a member. A node that knows no members yet gives it to none.
fn authority_file(context: &NodeContext, from: NodeId, id: AuthorityId) -> Option<AuthorityFile> {
    let is_member = context.replica.members().contains_key(&from);
    let tls = context.replica.tls().filter(|_| is_member)?;
    tls.authority_file(id).map(AuthorityFile)
}

async fn hold_barrier(context: &Arc<NodeContext>, request: BarrierRequest) -> Result<BarrierReport, String> {
    let leadership = leadership(context)?;
    barrier::hold(context, &leadership, request.index, request.subject).await.map_err(|error| error.to_string())
}

async fn transfer_leadership(context: &NodeContext, to: NodeId, limit: Duration) -> Result<(), String> {
    leadership(context)?;
    let handed = context.replica.transfer_leader(to, Instant::now() + limit).await;
    handed.map_err(|error| error.to_string())
}

async fn change_member(
    context: &NodeContext,
    request: ChangeMember,
    limit: Duration,
) -> Result<ChangedMember, MemberRefusal> {
    let leadership = leadership(context).map_err(|_| MemberRefusal::NotLeader)?;
    removal::change(context, &leadership, request, limit).await
}

async fn read_piece(context: Arc<NodeContext>, FetchFile { file, offset }: FetchFile) -> Option<FilePiece> {
    let replica = context.replica.clone();
    let read = replica.blocking(move || match file {
        PeerFile::AudiencePart(part) => context.files.raw(part, offset, PIECE),
        PeerFile::ArchiveBlock(hash) => {
            let block = context.replica.block(hash);
            Ok(block
                .map(|bytes| (bytes.iter().skip(offset as usize).take(PIECE).copied().collect(), bytes.len() as u64)))
        }
    });
    match read.await.ok()? {
        Ok(piece) => piece.map(|(bytes, total)| FilePiece { bytes, total }),
        Err(error) => {
            tracing::warn!(?file, %error, "a file cannot be sent to a peer");
            None
        }
    }
}

async fn find_missing_parts(context: Arc<NodeContext>, parts: Vec<Hash>) -> Result<Vec<Hash>, String> {
    let replica = context.replica.clone();
    let held = replica.blocking(move || {
        let held = context.files.renew(&parts, SystemTime::now());
        held.map_err(|error| format!("{} cannot read its parts: {error}", context.introduction.name))
    });
    held.await.unwrap_or_else(|error| Err(format!("reading failed: {error}")))
}

async fn find_unreadable_blocks(
    context: Arc<NodeContext>,
    request: FindUnreadableBlocks,
    limit: Duration,
) -> Result<BTreeSet<Hash>, String> {
    let replica = context.replica.clone();
    if replica.wait_applied(request.applied, Instant::now() + limit / 2).await.is_none() {
        return Err("it has not applied all entries yet".to_owned());
    }
    let read = move || context.replica.unreadable_blocks(request.blocks, NAMED_MAX).map_err(|error| error.to_string());
    replica.blocking(read).await.unwrap_or_else(|error| Err(format!("reading failed: {error}")))
}

async fn pull_part(context: Arc<NodeContext>, request: PullPart) -> Result<(), String> {
    let PullPart { part, source } = request;
    let name = &context.introduction.name;
    if find_missing_parts(Arc::clone(&context), vec![part]).await?.is_empty() {
        return Ok(());
    }
    // The semaphore is never closed. No timeout here: the caller's deadline bounds the wait.
    let _one_of = context.files.fetches.acquire().await.map_err(|closed| closed.to_string())?;
    match fetch_from(&context, source, PeerFile::AudiencePart(part)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{name} was to take it over from a node that has it no more")),
        Err(error) => Err(format!("{name} cannot take it over: {error}")),
    }
}

/// Answers a lease request as leader, its own as well as other nodes' (P9). A stopping node gets the answer after the
/// in-flight claims for it are in the log.
async fn grant(context: &NodeContext, request: LeaseRequest) -> Result<GrantedLease, String> {
    let leadership = leadership(context)?;
    let stopping = request.stopping;
    let granted = leadership.grant(request);
    if stopping {
        leadership.until_claims_are_in_the_log().await;
    }
    granted.map_err(|refusal| refusal.to_string())
}
