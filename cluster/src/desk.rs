//! What this node answers to its peers: leases as leader, barriers as holder, its clocks.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use reveille_raft::{BarrierAnswer, BarrierQuestion, ClockReading, LeaseAnswer, LeaseQuestion, PeerService};

use crate::barrier;
use crate::clock::Clock;
use crate::site::Site;

/// The desk is given to the replica before the site exists, which holds the replica; so it is handed the
/// site later, and until then refuses.
pub struct Desk {
    clock: Arc<dyn Clock>,
    site: OnceLock<Weak<Site>>,
}

impl Desk {
    /// A desk that knows only its clock.
    pub fn new(clock: Arc<dyn Clock>) -> Desk {
        Desk { clock, site: OnceLock::new() }
    }

    /// From here on it answers for this site.
    pub fn open(&self, site: &Arc<Site>) {
        // A desk is opened once; a second call would be for the same site.
        let _ = self.site.set(Arc::downgrade(site));
    }

    fn site(&self) -> Option<Arc<Site>> {
        self.site.get()?.upgrade()
    }
}

#[async_trait]
impl PeerService for Desk {
    async fn renew_lease(&self, question: LeaseQuestion) -> LeaseAnswer {
        match self.site() {
            Some(site) => grant(&site, &question),
            None => LeaseAnswer::Refused("this node is starting".to_owned()),
        }
    }

    async fn barrier(&self, question: BarrierQuestion) -> BarrierAnswer {
        match self.site() {
            Some(site) => barrier::answer(&site, question).await,
            None => BarrierAnswer::default(),
        }
    }

    fn clock(&self) -> ClockReading {
        ClockReading { wall: self.clock.wall(), boot_ms: self.clock.boot().as_millis() as u64 }
    }
}

/// P9: the leader's answer, for itself as for everybody.
pub(crate) fn grant(site: &Site, question: &LeaseQuestion) -> LeaseAnswer {
    let Some(term) = site.term() else { return LeaseAnswer::Refused("this node does not lead".to_owned()) };
    match term.grant(question.holder, question.applied) {
        Ok(lease) => {
            let applied = site.replica.read(|ledger| ledger.head().applied);
            LeaseAnswer::Granted { lease, epoch: term.epoch(), applied }
        }
        Err(refusal) => LeaseAnswer::Refused(refusal.to_string()),
    }
}
