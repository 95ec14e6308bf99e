//! The workload: schedules that fire once, each with its own recipients, and a campaign to a sealed audience. All
//! instants are fixed before the first fault.
//!
//! The campaign has its own pool, with the same sink, and a rate by which it takes most of the fault phase. Without a
//! rate it would be over within a second.

pub mod daily;
mod item;
mod limits;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use reveille_check::events::{Answer, Audience, Content, Due, Event, InDoubt, Operation, Overload};
use reveille_check::names::Name;
use reveille_harness::measure::{now_ms, unix_us};
use reveille_harness::{AdminClient, CallResult};
use reveille_proto::admin::v1::{self as api, ScheduleBody};
use reveille_sink::Sink;
use tokio::task::JoinSet;

pub use item::{CAMPAIGN, ItemKind, PAUSED_PERIOD_MS, TENANT, TENANTS, TRIGGERED, WorkloadItem, value, value_of};
pub use limits::{WorkloadLimits, sessions};

use super::observe::{Recorder, answer_of};

/// Number of clients that create at the same time.
const CLIENTS: usize = 16;
/// Maximum number of tries of a call. There are no faults yet, so only a busy machine makes a client repeat its call.
const TRIES_MAX: u32 = 4;
/// Milliseconds of which instants are multiples.
const GRAIN_MS: u64 = 100;

/// A handle to all items. A clone is cheap.
#[derive(Clone)]
pub struct Workload {
    recorder: Recorder,
    items: Arc<Mutex<Vec<WorkloadItem>>>,
    /// Items that may have been created, with the request id of a repeated call.
    unknown: Arc<Mutex<Vec<(String, WorkloadItem)>>>,
    /// Recipients of [`TENANT`] that may be erased.
    erased: Arc<Mutex<BTreeSet<String>>>,
    in_doubt: api::InDoubt,
}

/// Returns the instant of an item that is created during the run: this long from now, or up to [`GRAIN_MS`] sooner.
pub fn due_in(ahead_ms: u64) -> u64 {
    (now_ms() + ahead_ms) / GRAIN_MS * GRAIN_MS
}

/// Returns `schedules` with `recipients` in total, evenly spread over `phase`.
pub fn spread(schedules: u32, recipients: u32, first: SystemTime, phase: Duration) -> Vec<WorkloadItem> {
    let first_ms = (unix_us(first) as u64 / 1_000).next_multiple_of(GRAIN_MS);
    let phase_ms = phase.as_millis() as u64;
    let item = |number: u32| {
        let after_ms = phase_ms * u64::from(number) / u64::from(schedules) / GRAIN_MS * GRAIN_MS;
        // The first schedules take the remainder.
        let more = u32::from(number < recipients % schedules);
        WorkloadItem::once(format!("once-{number}"), first_ms + after_ms, (recipients / schedules + more).max(1))
    };
    (0..schedules).map(item).collect()
}

/// Returns a campaign to `recipients` that is due after a sixth of `phase`. `None`: there are no recipients.
pub fn campaign(recipients: u32, seed: u64, first: SystemTime, phase: Duration) -> Option<WorkloadItem> {
    let due_ms = (unix_us(first + phase / 6) as u64 / 1_000).next_multiple_of(GRAIN_MS);
    let (name, kind) = (CAMPAIGN.to_owned(), ItemKind::Campaign(seed));
    (recipients > 0).then_some(WorkloadItem { name, due_ms, recipients, kind })
}

impl Workload {
    /// Creates a workload of these items. Its calls and instants are recorded.
    pub fn new(items: Vec<WorkloadItem>, in_doubt: InDoubt, recorder: &Recorder) -> Workload {
        let in_doubt = match in_doubt {
            InDoubt::Hold => api::InDoubt::Hold,
            InDoubt::Resend => api::InDoubt::Resend,
            InDoubt::AssumeSent => api::InDoubt::AssumeSent,
        };
        let (recorder, items) = (recorder.clone(), Arc::new(Mutex::new(items)));
        Workload { recorder, items, unknown: Arc::default(), erased: Arc::default(), in_doubt }
    }

    /// Creates all items, launches the campaign, and creates the triggered schedule.
    pub async fn create(&self, admin: &AdminClient) -> Result<()> {
        let items = self.items().clone();
        for item in &items {
            if let ItemKind::Campaign(seed) = item.kind {
                let admin = admin.of_tenant(item.tenant());
                admin.generate_audience(&item.name, item.recipients, seed, &[Content::VARIABLE]).await?;
            }
        }
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (admin, workload) = (admin.another(client)?, self.clone());
            let own: Vec<WorkloadItem> = items.iter().skip(client).step_by(CLIENTS).cloned().collect();
            clients.spawn(async move {
                for item in own {
                    workload.insist(&admin, client, &item).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        self.insist(admin, 0, &WorkloadItem::triggered()).await
    }

    /// Creates an item, and repeats the call until it is known that the item exists.
    pub async fn insist(&self, admin: &AdminClient, client: usize, item: &WorkloadItem) -> Result<()> {
        let (client, id) = (format!("client-{client}"), format!("create-{}", item.name));
        let mut result = CallResult::Unknown;
        for _ in 0..TRIES_MAX {
            result = self.ask(admin, &client, &id, item).await;
            if result != CallResult::Unknown {
                break;
            }
        }
        anyhow::ensure!(result.is_done(), "{} was not created: {result:?}", item.name);
        Ok(())
    }

    /// Calls once to create an item, and records the call.
    pub async fn ask(&self, admin: &AdminClient, client: &str, id: &str, item: &WorkloadItem) -> CallResult {
        let invoked_ns = self.recorder.now_ns();
        let result = match item.kind {
            ItemKind::Campaign(_) => match admin.create_campaign(id, &self.body(item)).await {
                CallResult::Done(()) => admin.of_tenant(item.tenant()).launch_campaign(&item.name).await,
                result => result,
            },
            _ => admin.create_as(id, &self.body(item)).await,
        };
        let (kind, tenant, name) = (item.object_kind(), item.tenant().to_owned(), item.name.clone());
        let operation = Operation::Write { kind, tenant, name, value: Some(item.value()) };
        let caller = (client.to_owned(), Some(id.to_owned()));
        self.recorder.call(caller, invoked_ns, operation, answer_of(result.clone(), |()| Answer::at(None)));
        result
    }

    /// Calls to create an item, and keeps it: as due if it was created, or as unknown.
    pub async fn ask_and_keep(&self, admin: &AdminClient, client: &str, id: &str, item: WorkloadItem) {
        match self.ask(admin, client, id, &item).await {
            CallResult::Done(()) => self.add(item),
            CallResult::Refused(_) => {}
            CallResult::Unknown => self.keep_unknown(id, item),
        }
    }

    /// Returns an item in the form of the API.
    pub fn body(&self, item: &WorkloadItem) -> ScheduleBody {
        item.body(self.in_doubt)
    }

    /// Adds an item that was created meanwhile.
    pub fn add(&self, item: WorkloadItem) {
        self.items().push(item);
    }

    /// Keeps an item that may have been created.
    pub fn keep_unknown(&self, request_id: &str, item: WorkloadItem) {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).push((request_id.to_owned(), item));
    }

    /// Repeats the calls for the items that may have been created.
    pub async fn settle(&self, admin: &AdminClient) {
        let unknown = std::mem::take(&mut *self.unknown.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, item) in unknown {
            self.ask_and_keep(admin, "operator", &id, item).await;
        }
    }

    /// Returns true if it is known for every item if it exists.
    pub fn is_known(&self) -> bool {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Records that a recipient of [`TENANT`] is about to be erased.
    pub fn erases(&self, recipient: &str) {
        self.erased.lock().unwrap_or_else(PoisonError::into_inner).insert(recipient.to_owned());
    }

    /// Returns the recipients that may be erased.
    pub fn erased(&self) -> BTreeSet<String> {
        self.erased.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all items except the triggered schedule.
    pub fn items(&self) -> MutexGuard<'_, Vec<WorkloadItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the item of this name.
    pub fn find(&self, name: &str) -> Option<WorkloadItem> {
        if name == TRIGGERED {
            return Some(WorkloadItem::triggered());
        }
        self.items().iter().find(|item| item.name == name).cloned()
    }

    /// Returns the first item that is due at this instant or later.
    pub fn next_after(&self, at_ms: u64) -> Option<WorkloadItem> {
        self.items().iter().filter(|item| item.due_ms >= at_ms).min_by_key(|item| item.due_ms).cloned()
    }

    /// Returns all instants, one for each run that is due.
    pub fn instants_ms(&self) -> Vec<i64> {
        self.items().iter().flat_map(WorkloadItem::instants_ms).collect()
    }

    /// Returns the number of recipients of all runs.
    pub fn recipients(&self) -> u64 {
        self.items().iter().map(|item| u64::from(item.recipients) * item.instants_ms().len() as u64).sum()
    }

    /// Records the time for which the campaign exceeded its rate: until nine tenths of its emails had arrived. The rest
    /// waits for other reasons.
    pub fn record_overload(&self, sink: &Sink) {
        let Some(campaign) = self.find(CAMPAIGN) else { return };
        let addresses: HashSet<String> = campaign.addresses().collect();
        let emails = sink.emails();
        let own = emails.iter().filter(|(_, accept)| addresses.contains(&accept.recipient));
        let mut came: Vec<u64> = own.map(|(_, accept)| self.recorder.ns(accept.accept_monotonic_us as i64)).collect();
        came.sort_unstable();
        let Some(until_ns) = came.get(came.len() * 9 / 10).copied() else { return };
        let ago_ms = now_ms().saturating_sub(campaign.due_ms);
        let from_ns = self.recorder.now_ns().saturating_sub(ago_ms * 1_000_000);
        self.recorder.event(&Event::Overload(Overload { tenant: campaign.tenant().to_owned(), from_ns, until_ns }));
    }

    /// Records the due instants. None of them comes from the cluster.
    pub fn record(&self) {
        let items = self.items();
        for item in items.iter().chain([&WorkloadItem::triggered()]) {
            let recipients = item.addresses().map(Name::from).collect();
            let codes = (0..item.recipients).map(|recipient| item.code(recipient).into()).collect();
            self.recorder.event(&Event::Audience(Audience { name: Name::from(&item.name), recipients, codes }));
        }
        for item in items.iter() {
            for due_unix_ms in item.instants_ms() {
                let (tenant, name) = (item.tenant().into(), Name::from(&item.name));
                self.recorder.event(&Event::Due(Due { tenant, schedule: name, due_unix_ms, audience: name }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn schedules_are_spread_over_phase_with_all_recipients() {
        let first = UNIX_EPOCH + Duration::from_millis(1_234);
        let items = spread(4, 10, first, Duration::from_secs(2));
        assert_eq!(items.iter().map(|item| item.due_ms).collect::<Vec<_>>(), [1_300, 1_800, 2_300, 2_800]);
        assert_eq!(items.iter().map(|item| item.recipients).collect::<Vec<_>>(), [3, 3, 2, 2]);
    }

    #[test]
    fn campaign_is_due_early_with_generated_recipients() {
        let first = UNIX_EPOCH + Duration::from_millis(1_234);
        let campaign = campaign(3, 7, first, Duration::from_secs(2)).unwrap();
        assert_eq!(campaign.due_ms, 1_600);
        assert_eq!(campaign.addresses().last().unwrap(), "r00000002.s7@audience.invalid");
    }
}
