//! What this node answers to its peers: leases as leader, barriers as holder, its clocks.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use reveille_ledger::ids::{Hash, NodeId};
use reveille_raft::PeerService;
use reveille_raft::peer::{
    BarrierAnswer, BarrierQuestion, BarrierReport, ClockReading, Description, FetchPart, LeaseAnswer, LeaseQuestion,
    MakePart, TakePart,
};

use super::clock::Clock;
use super::context::Site;
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

    fn site(&self) -> Option<Arc<Site>> {
        self.site.get()?.upgrade()
    }

    fn leadership(&self) -> Result<(Arc<Site>, Arc<Term>), String> {
        let site = self.site().ok_or_else(|| "this node is starting".to_owned())?;
        let term = site.term().ok_or_else(|| "this node does not lead".to_owned())?;
        Ok((site, term))
    }
}

#[async_trait]
impl PeerService for Desk {
    async fn renew_lease(&self, question: LeaseQuestion) -> LeaseAnswer {
        match self.site() {
            Some(site) => grant(&site, question).await,
            None => LeaseAnswer::Refused("this node is starting".to_owned()),
        }
    }

    async fn barrier(&self, question: BarrierQuestion) -> BarrierAnswer {
        match self.site() {
            Some(site) => barrier::answer(&site, question).await,
            None => BarrierAnswer::default(),
        }
    }

    async fn hold_barrier(&self, question: BarrierQuestion) -> Result<BarrierReport, String> {
        let (site, term) = self.leadership()?;
        barrier::hold(&site, &term, question.index, question.about).await.map_err(|error| error.to_string())
    }

    async fn hand_over(&self, to: NodeId, patience: Duration) -> Result<(), String> {
        let (site, _) = self.leadership()?;
        let handed = site.replica.transfer_leader(to, Instant::now() + patience).await;
        handed.map_err(|error| error.to_string())
    }

    async fn make_part(&self, question: MakePart) -> Result<Hash, String> {
        let site = self.site().ok_or_else(|| "this node is starting".to_owned())?;
        let MakePart { seed, rows, columns, number } = question;
        let replica = site.replica.clone();
        let made = replica.blocking(move || {
            let bytes = Recipe { seed, rows, columns }.encoded(number);
            site.parts.put(&bytes).map_err(|error| format!("{} cannot write it: {error}", site.introduction.name))
        });
        made.await.unwrap_or_else(|error| Err(format!("writing it failed: {error}")))
    }

    async fn fetch_part(&self, question: FetchPart) -> Option<(Vec<u8>, u64)> {
        let site = self.site()?;
        let replica = site.replica.clone();
        let read = replica.blocking(move || site.parts.raw(question.part, question.offset, PIECE));
        match read.await.ok()? {
            Ok(piece) => piece,
            Err(error) => {
                tracing::warn!(part = ?question.part, %error, "a part of an audience cannot be handed on");
                None
            }
        }
    }

    async fn hold_parts(&self, parts: Vec<Hash>) -> Result<Vec<Hash>, String> {
        let site = self.site().ok_or_else(|| "this node is starting".to_owned())?;
        let replica = site.replica.clone();
        let held = replica.blocking(move || {
            let held = site.parts.hold(&parts, SystemTime::now());
            held.map_err(|error| format!("{} cannot read its parts: {error}", site.introduction.name))
        });
        held.await.unwrap_or_else(|error| Err(format!("reading failed: {error}")))
    }

    async fn take_part(&self, question: TakePart) -> Result<(), String> {
        let site = self.site().ok_or_else(|| "this node is starting".to_owned())?;
        let TakePart { part, holder } = question;
        let name = &site.introduction.name;
        if self.hold_parts(vec![part]).await?.is_empty() {
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

    async fn describe(&self) -> Option<Description> {
        let site = self.site()?;
        let applied = site.replica.read(|ledger| ledger.head().applied);
        Some(Description {
            node: site.me.node,
            name: self.introduction.name.clone(),
            address: self.introduction.address.clone(),
            cluster: site.replica.cluster(),
            incarnation: site.me.incarnation,
            applied,
            checkpoints: site.replica.checkpoints(),
            wall: self.clock.wall(),
            version: self.introduction.version.clone(),
            tzdb: self.introduction.tzdb.clone(),
            no_room: site.parts.shortage().unwrap_or_default(),
            stopping: site.is_stopping(),
        })
    }

    fn clock(&self) -> ClockReading {
        ClockReading { wall: self.clock.wall(), boot_ms: self.clock.boot().as_millis() as u64 }
    }
}

/// P9: the leader's answer, for itself as for everybody. To a node that stops it comes behind what is on its way
/// to that node.
async fn grant(site: &Site, question: LeaseQuestion) -> LeaseAnswer {
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
