//! What this node answers to its peers: leases as leader, barriers as holder, its clocks.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use reveille_ledger::ids::{Hash, NodeId};
use reveille_raft::Application;
use reveille_raft::peer::Rejection;

use super::clock::Clock;
use super::context::Site;
use super::peer_messages::{
    self, BarrierReport, BarrierRequest, ClockReading, Describe, Description, FetchPart, HandOver, HoldBarrier,
    HoldParts, LeaseAnswer, LeaseRequest, MakePart, PartPiece, PeerRequest, ReadClock, TakePart, reply,
};
use crate::audience::Recipe;
use crate::audience::steward::{PIECE, fetch_from};
use crate::leader::barrier;
use crate::leader::leadership::Term;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its name, for people.
    pub name: String,
    /// `host:port` at which peers reach it.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Release of its time zone database.
    pub tzdb: String,
}

/// The desk is given to the replica before the site exists, which holds the replica; so it is handed the
/// site later, and until then refuses.
pub struct Desk {
    clock: Arc<dyn Clock>,
    introduction: Introduction,
    site: OnceLock<Weak<Site>>,
}

impl Desk {
    /// A desk that knows only its clock and its name.
    pub fn new(clock: Arc<dyn Clock>, introduction: Introduction) -> Desk {
        Desk { clock, introduction, site: OnceLock::new() }
    }

    /// From here on it answers for this site.
    pub fn open(&self, site: &Arc<Site>) {
        // A desk is opened once; a second call would be for the same site.
        let _ = self.site.set(Arc::downgrade(site));
    }

    fn started(&self) -> Result<Arc<Site>, Rejection> {
        self.site
            .get()
            .and_then(Weak::upgrade)
            .ok_or_else(|| Rejection::Unavailable("this node is starting".to_owned()))
    }

    fn describe(&self, site: &Site) -> Description {
        Description {
            node: site.me.node,
            incarnation: site.me.incarnation,
            applied: site.replica.read(|ledger| ledger.head().applied),
            checkpoints: site.replica.checkpoints(),
            wall: self.clock.wall(),
            version: self.introduction.version.clone(),
            tzdb: self.introduction.tzdb.clone(),
            no_room: site.parts.shortage().unwrap_or_default(),
            stopping: site.is_stopping(),
        }
    }

    fn clock(&self) -> ClockReading {
        ClockReading { wall: self.clock.wall(), boot_ms: self.clock.boot().as_millis() as u64 }
    }
}

#[async_trait]
impl Application for Desk {
    fn name(&self) -> String {
        self.introduction.name.clone()
    }

    async fn answer(&self, from: NodeId, payload: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Rejection> {
        match peer_messages::decode(&payload)? {
            PeerRequest::RenewLease(request) if request.holder.node != from => {
                Err(Rejection::Malformed(format!("node {from} asks for a lease of node {}", request.holder.node)))
            }
            PeerRequest::RenewLease(request) => reply::<LeaseRequest>(&grant(&*self.started()?, request).await),
            PeerRequest::Barrier(request) => {
                reply::<BarrierRequest>(&barrier::answer(&*self.started()?, request).await)
            }
            PeerRequest::HoldBarrier(HoldBarrier(request)) => {
                reply::<HoldBarrier>(&hold_barrier(&self.started()?, request).await)
            }
            PeerRequest::HandOver(request) => reply::<HandOver>(&hand_over(&*self.started()?, request.to, limit).await),
            PeerRequest::Clock(ReadClock) => reply::<ReadClock>(&self.clock()),
            PeerRequest::Describe(Describe) => reply::<Describe>(&self.describe(&*self.started()?)),
            PeerRequest::MakePart(request) => reply::<MakePart>(&make_part(self.started()?, request).await),
            PeerRequest::FetchPart(request) => reply::<FetchPart>(&fetch_part(self.started()?, request).await),
            PeerRequest::HoldParts(HoldParts(parts)) => reply::<HoldParts>(&hold_parts(self.started()?, parts).await),
            PeerRequest::TakePart(request) => reply::<TakePart>(&take_part(self.started()?, request).await),
        }
    }
}

fn leadership(site: &Site) -> Result<Arc<Term>, String> {
    site.term().ok_or_else(|| "this node does not lead".to_owned())
}

async fn hold_barrier(site: &Arc<Site>, request: BarrierRequest) -> Result<BarrierReport, String> {
    let term = leadership(site)?;
    barrier::hold(site, &term, request.index, request.subject).await.map_err(|error| error.to_string())
}

async fn hand_over(site: &Site, to: NodeId, limit: Duration) -> Result<(), String> {
    leadership(site)?;
    let handed = site.replica.transfer_leader(to, Instant::now() + limit).await;
    handed.map_err(|error| error.to_string())
}

async fn make_part(site: Arc<Site>, question: MakePart) -> Result<Hash, String> {
    let MakePart { seed, rows, columns, number } = question;
    let replica = site.replica.clone();
    let made = replica.blocking(move || {
        let bytes = Recipe { seed, rows, columns }.encoded(number);
        site.parts.put(&bytes).map_err(|error| format!("{} cannot write it: {error}", site.introduction.name))
    });
    made.await.unwrap_or_else(|error| Err(format!("writing it failed: {error}")))
}

async fn fetch_part(site: Arc<Site>, question: FetchPart) -> Option<PartPiece> {
    let replica = site.replica.clone();
    let read = replica.blocking(move || site.parts.raw(question.part, question.offset, PIECE));
    match read.await.ok()? {
        Ok(piece) => piece.map(|(bytes, total)| PartPiece { bytes, total }),
        Err(error) => {
            tracing::warn!(part = ?question.part, %error, "a part of an audience cannot be handed on");
            None
        }
    }
}

async fn hold_parts(site: Arc<Site>, parts: Vec<Hash>) -> Result<Vec<Hash>, String> {
    let replica = site.replica.clone();
    let held = replica.blocking(move || {
        let held = site.parts.hold(&parts, SystemTime::now());
        held.map_err(|error| format!("{} cannot read its parts: {error}", site.introduction.name))
    });
    held.await.unwrap_or_else(|error| Err(format!("reading failed: {error}")))
}

async fn take_part(site: Arc<Site>, question: TakePart) -> Result<(), String> {
    let TakePart { part, holder } = question;
    let name = &site.introduction.name;
    if hold_parts(Arc::clone(&site), vec![part]).await?.is_empty() {
        return Ok(());
    }
    // Closed never. Whoever asked gives up before it waits for long.
    let _one_of = site.parts.taken.acquire().await.map_err(|closed| closed.to_string())?;
    match fetch_from(&site, holder, part).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{name} was to take it over from a node that has it no more")),
        Err(error) => Err(format!("{name} cannot take it over: {error}")),
    }
}

/// P9: the leader's answer, for itself as for everybody. To a node that stops it comes behind what is on its way
/// to that node.
async fn grant(site: &Site, question: LeaseRequest) -> LeaseAnswer {
    let Some(term) = site.term() else { return LeaseAnswer::Refused("this node does not lead".to_owned()) };
    let stopping = question.stopping;
    let granted = term.grant(question);
    if stopping {
        term.until_claims_are_in_the_log().await;
    }
    match granted {
        Ok((lease, floor)) => LeaseAnswer::Granted { lease, epoch: term.epoch(), floor },
        Err(refusal) => LeaseAnswer::Refused(refusal.to_string()),
    }
}
