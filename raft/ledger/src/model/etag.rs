//! Etags: what a caller has read of an object. A change that names one is refused if another change came first.
//!
//! `apply` compares them, so all nodes must make them alike (P2): they follow from replicated rows alone. Those of
//! schedules and templates are numbers in their commands.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{Campaign, CommandRefusal, Ledger, PoolRow, Relay, RunEvent, RunEventKind, RunId, run_events};

/// Etag of an object that does not exist, or of which nothing is set.
pub const NO_ETAG: &str = "0";
/// Condition that any object meets that exists.
pub const ANY_ETAG: &str = "*";
/// Length of a relay's etag: 64 bits of its hash.
const RELAY_ETAG_DIGITS: usize = 16;

word_enum! {
    /// Kind of an object that has an etag.
    EtagKind {
        /// A template.
        Template = "template",
        /// A relay.
        Relay = "relay",
        /// Limits of a tenant.
        Tenant = "tenant",
        /// Settings of a pool.
        Pool = "pool",
        /// A campaign.
        Campaign = "campaign",
        /// A sealed audience.
        Audience = "audience",
    }
}

impl Relay {
    /// Its etag. Equal settings have the same one.
    pub fn etag(&self) -> String {
        let mut etag = fingerprint(&("relay", self)).to_string();
        etag.truncate(RELAY_ETAG_DIGITS);
        etag
    }
}

impl Ledger {
    /// Returns the etag of a relay.
    pub(crate) fn relay_etag(&self, name: &str) -> String {
        self.relays.get(&name.to_owned()).map_or_else(|| NO_ETAG.to_owned(), Relay::etag)
    }

    /// Returns the etag of a tenant's limits: the index of the entry that set them.
    pub fn tenant_etag(&self, name: &str) -> String {
        self.tenant(name).index.to_string()
    }

    /// Returns the etag of a pool's settings: the index of the entry that set them. The count of the day is none of
    /// them.
    pub fn pool_etag(&self, name: &str) -> String {
        let row = self.pools.get(&name.to_owned()).filter(|row| !row.is_default());
        row.map_or(0, |row: &PoolRow| row.index).to_string()
    }

    /// Returns the etag of a campaign: the indexes of the last changes of the campaign, of its schedule and of its run.
    /// It stays while the run only sends.
    pub fn campaign_etag(&self, campaign: &Campaign) -> String {
        let schedule = campaign.stage.schedule();
        let changed = schedule.and_then(|id| self.schedules.get(&id)).map_or(0, |schedule| schedule.index);
        let run = schedule.and_then(|id| self.run_of_campaign(id)).map_or(0, |run| match self.page_of(run) {
            Some(_) => self.last_run_change(run),
            // Its events are in the archive. No event has the index of the opening.
            None => run.index,
        });
        format!("{}.{changed}.{run}", campaign.index)
    }

    /// Returns the etag of a run: the index of its last change, or of its opening. It stays while the run only sends.
    pub fn run_etag(&self, run: RunId) -> String {
        self.last_run_change(run).max(run.index).to_string()
    }

    /// Returns the index of the last event that changed a run, such as a pause; 0 if there was none. A passed canary and
    /// a suppression are no changes: the run makes them while it sends.
    pub fn last_run_change(&self, run: RunId) -> u64 {
        let is_progress = |event: &RunEvent| event.what.is_suppression() || event.what == RunEventKind::CanaryPassed;
        let mut changes = self.run_events.range(run_events::keys_of(run)).rev();
        changes.find(|(_, events)| !events.iter().all(is_progress)).map_or(0, |((_, index, _), _)| *index)
    }
}

/// Checks the condition of a change against the present etag.
///
/// # Errors
/// [`CommandRefusal::Changed`] if the condition names another etag, or if nothing is there.
pub fn check_etag(expected: Option<&str>, (kind, name): (EtagKind, &str), etag: &str) -> Result<(), CommandRefusal> {
    let holds = match expected {
        None => true,
        Some(ANY_ETAG) => etag != NO_ETAG,
        Some(expected) => expected == etag,
    };
    if holds { Ok(()) } else { Err(CommandRefusal::Changed { kind, name: name.to_owned() }) }
}
