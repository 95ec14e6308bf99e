//! What the cluster is given to do, and so what is due: schedules that fire once, each with recipients of its own, and a
//! campaign to a sealed audience, at instants that were fixed before anything was broken. Whom to expect needs no
//! calendar and no answer of the cluster.
//!
//! The campaign goes through a pool of its own, to the same sink, at a rate by which it takes most of the fault phase: so
//! it is under way while everything breaks, where without a rate it would be over within a second.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use reveille_check::history::{Answer, Audience, Call, Content, Due, Event, Noun, Operation, Overload};
use reveille_proto::admin::v1::{CatchUp, Every, InDoubt, Overlap, Policies, ScheduleBody, When, when};
use reveille_sink::Sink;

use super::daily::Rhythm;
use super::held::PERIOD_MS;
use super::limits::{GAP_MS, GAPPED_PERIOD_MS, MAX_ATTEMPTS, WARMING};
use super::recorder::Recorder;
use crate::admin::Admin;
use crate::campaigns;
use crate::load::{self, A_YEAR};
use crate::measure::unix_us;
use crate::orders::Came;

/// Clients that create at the same time.
const CLIENTS: usize = 16;
/// While nothing is broken yet, only a machine that is very busy lets a client wait.
const ASKED_AT_MOST: u32 = 4;
/// The campaign, its audience, and the relay and pool that it goes through.
pub const CAMPAIGN: &str = "campaign";
/// The schedule that is only ever triggered, and whom it writes to.
pub const BELL: &str = "bell";
const BELL_RECIPIENTS: u32 = 4;
/// Instants are multiples of this.
const GRAIN_MS: u64 = 100;
/// Whose all schedules are.
pub const TENANT: &str = "default";
/// And the campaign, whose backlog is not to move the start of anything else (I12).
pub const CROWD: &str = "crowd";
/// Both.
pub const TENANTS: [&str; 2] = [TENANT, CROWD];

/// What something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A schedule that fires once, with recipients that are named for it.
    Once,
    /// A schedule that fires daily, with the same recipients each time.
    Daily(Rhythm),
    /// A campaign to a sealed audience that is made of this number.
    Campaign(u64),
    /// A schedule that is paused over these instants, the only ones it has; with the same recipients each time.
    Held(Vec<i64>),
    /// A schedule that fires once, by a pool that is warmed up.
    Warming,
    /// A schedule with a `min_gap` longer than its period; with the same recipients each time.
    Gapped(Vec<i64>),
}

/// A schedule or a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Milliseconds since 1970; 0 of what has many instants.
    pub due_ms: u64,
    /// How many it writes to.
    pub recipients: u32,
    /// What it is, and so who they are.
    pub kind: Kind,
}

impl Item {
    /// A schedule.
    pub fn once(name: String, due_ms: u64, recipients: u32) -> Item {
        Item { name, due_ms, recipients, kind: Kind::Once }
    }

    /// Whose it is.
    pub fn tenant(&self) -> &'static str {
        match self.kind {
            Kind::Campaign(_) => CROWD,
            _ => TENANT,
        }
    }

    /// One of those whom it writes to.
    pub fn address(&self, recipient: u32) -> String {
        match self.kind {
            Kind::Campaign(seed) => campaigns::made_address(seed, recipient),
            _ => load::address(&self.name, recipient),
        }
    }

    /// Whom it writes to.
    pub fn addresses(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.recipients).map(|number| self.address(number))
    }

    /// The value of this recipient's variable, which the body shows.
    fn code(&self, recipient: u32) -> String {
        match self.kind {
            Kind::Campaign(seed) => campaigns::made_value(seed, Content::VARIABLE, recipient),
            _ => Content::code_of(&self.name, &self.address(recipient)),
        }
    }

    /// When it is due; milliseconds since 1970.
    pub fn instants_ms(&self) -> Vec<i64> {
        match &self.kind {
            Kind::Daily(rhythm) => rhythm.instants_ms.clone(),
            Kind::Held(instants_ms) | Kind::Gapped(instants_ms) => instants_ms.clone(),
            Kind::Once | Kind::Warming | Kind::Campaign(_) => vec![self.due_ms as i64],
        }
    }

    /// The zone of its times of day.
    pub fn zone(&self) -> &'static str {
        match &self.kind {
            Kind::Daily(rhythm) => rhythm.zone,
            _ => "UTC",
        }
    }

    /// What it is to an operator.
    pub fn noun(&self) -> Noun {
        match self.kind {
            Kind::Campaign(_) => Noun::Campaign,
            _ => Noun::Schedule,
        }
    }

    /// Its contents in a form that can be compared.
    pub fn value(&self) -> String {
        value(self.due_ms, self.recipients)
    }
}

/// An instant and a number of recipients, as one text.
pub fn value(due_ms: u64, recipients: u32) -> String {
    format!("{due_ms} to {recipients}")
}

/// All of it; a handle, cheap to clone.
#[derive(Clone)]
pub struct Workload {
    items: Arc<Mutex<Vec<Item>>>,
    /// What may have been created, with a request id to ask again by.
    unsure: Arc<Mutex<Vec<(String, Item)>>>,
    in_doubt: InDoubt,
}

impl Workload {
    /// So many schedules, spread evenly over `phase`, with so many recipients in all.
    pub fn new(schedules: u32, recipients: u32, first: SystemTime, phase: Duration, in_doubt: InDoubt) -> Workload {
        let first_ms = (unix_us(first) as u64 / 1_000).next_multiple_of(GRAIN_MS);
        let phase_ms = phase.as_millis() as u64;
        let item = |number: u32| {
            let after_ms = phase_ms * u64::from(number) / u64::from(schedules) / GRAIN_MS * GRAIN_MS;
            // The first ones have one more where it does not come out even.
            let more = u32::from(number < recipients % schedules);
            Item::once(format!("once-{number}"), first_ms + after_ms, (recipients / schedules + more).max(1))
        };
        Workload { items: Arc::new(Mutex::new((0..schedules).map(item).collect())), unsure: Arc::default(), in_doubt }
    }

    /// These.
    pub fn of(items: Vec<Item>, in_doubt: InDoubt) -> Workload {
        Workload { items: Arc::new(Mutex::new(items)), unsure: Arc::default(), in_doubt }
    }

    /// The same, and a campaign to so many who are made of this number, after a sixth of `phase`; none to nobody.
    pub fn and_a_campaign(self, recipients: u32, seed: u64, first: SystemTime, phase: Duration) -> Workload {
        if recipients > 0 {
            let due_ms = (unix_us(first + phase / 6) as u64 / 1_000).next_multiple_of(GRAIN_MS);
            self.add(Item { name: CAMPAIGN.to_owned(), due_ms, recipients, kind: Kind::Campaign(seed) });
        }
        self
    }

    /// Creates all of it, and the bell. A campaign is launched too.
    pub async fn create(&self, admin: &Admin, recorder: &Recorder) -> Result<()> {
        let items = self.items().clone();
        for item in &items {
            if let Kind::Campaign(seed) = item.kind {
                admin
                    .of_tenant(item.tenant())
                    .generate_audience(&item.name, item.recipients, seed, &[Content::VARIABLE])
                    .await?;
            }
        }
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let (admin, recorder, workload) = (admin.another(client)?, recorder.clone(), self.clone());
            let own: Vec<Item> = items.iter().skip(client).step_by(CLIENTS).cloned().collect();
            clients.spawn(async move {
                for item in own {
                    workload.insist(&admin, &recorder, client, &item).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        self.insist(admin, recorder, 0, &bell()).await
    }

    /// Asks for one schedule until it is there.
    pub async fn insist(&self, admin: &Admin, recorder: &Recorder, client: usize, item: &Item) -> Result<()> {
        let (client, id) = (format!("client-{client}"), format!("create-{}", item.name));
        let mut came = Came::Unknown;
        for _ in 0..ASKED_AT_MOST {
            came = self.ask(admin, recorder, &client, &id, item).await;
            if came != Came::Unknown {
                break;
            }
        }
        anyhow::ensure!(matches!(came, Came::Done(_)), "{} was not created: {came:?}", item.name);
        Ok(())
    }

    /// Asks for one schedule, and writes down how it went.
    pub async fn ask(&self, admin: &Admin, recorder: &Recorder, client: &str, id: &str, item: &Item) -> Came<bool> {
        let invoked_ns = recorder.now_ns();
        let came = match item.kind {
            Kind::Campaign(_) => match admin.create_campaign(id, &self.body(item)).await {
                Came::Done(created) => {
                    admin.of_tenant(item.tenant()).launch_campaign(&item.name).await.map(|()| created)
                }
                // Nobody launches what may not be there.
                came => came,
            },
            _ => admin.create_as(id, &self.body(item)).await,
        };
        let answer = came.clone().answer(|_| Answer::at(None));
        recorder.event(&Event::Call(Call {
            client: client.to_owned(),
            request_id: Some(id.to_owned()),
            invoked_ns,
            answered_ns: (answer != Answer::Unknown).then(|| recorder.now_ns()),
            operation: Operation::Write {
                noun: item.noun(),
                tenant: item.tenant().to_owned(),
                name: item.name.clone(),
                value: Some(item.value()),
            },
            answer,
        }));
        came
    }

    /// As the API has it. The content names its schedule, its recipient and the recipient's code (I16).
    pub fn body(&self, item: &Item) -> ScheduleBody {
        let mut body = self.plain_body(item);
        if let Some(content) = body.content.as_mut() {
            content.text = Some(Content::template(&item.name));
        }
        if let Some(audience) = body.audience.as_mut().filter(|audience| !audience.recipients.is_empty()) {
            audience.columns = vec![Content::VARIABLE.to_owned()];
            (0..).zip(&mut audience.recipients).for_each(|(number, one)| one.values = vec![item.code(number)]);
        }
        body
    }

    fn plain_body(&self, item: &Item) -> ScheduleBody {
        let at = UNIX_EPOCH + Duration::from_millis(item.due_ms);
        let policies = Policies { in_doubt: self.in_doubt.into(), max_attempts: MAX_ATTEMPTS, ..Policies::default() };
        match &item.kind {
            Kind::Once => {
                ScheduleBody { policies: Some(policies), ..load::once_to(item.name.clone(), at, item.recipients) }
            }
            Kind::Warming => ScheduleBody {
                policies: Some(policies),
                pool: WARMING.to_owned(),
                ..load::once_to(item.name.clone(), at, item.recipients)
            },
            Kind::Daily(rhythm) => {
                let (when, zone, start, end) = rhythm.wire();
                ScheduleBody {
                    policies: Some(policies),
                    when: Some(when),
                    zone,
                    start: Some(start),
                    end: Some(end),
                    ..load::once_to(item.name.clone(), at, item.recipients)
                }
            }
            Kind::Held(instants_ms) => every(item, (instants_ms, PERIOD_MS), policies),
            Kind::Gapped(instants_ms) => {
                let min_gap = prost_types::Duration { seconds: (GAP_MS / 1_000) as i64, nanos: 0 };
                let (overlap, catch_up) = (Overlap::Allow.into(), CatchUp::All.into());
                let policies = Policies { min_gap: Some(min_gap), overlap, catch_up, ..policies };
                every(item, (instants_ms, GAPPED_PERIOD_MS), policies)
            }
            Kind::Campaign(_) => ScheduleBody {
                tenant: item.tenant().to_owned(),
                policies: Some(policies),
                pool: CAMPAIGN.to_owned(),
                ..campaigns::to_sealed(load::once_to(item.name.clone(), at, 0), &item.name)
            },
        }
    }

    /// One more, which was created meanwhile.
    pub fn add(&self, item: Item) {
        self.items().push(item);
    }

    /// One of which nobody knows whether it was.
    pub fn doubt(&self, request_id: &str, item: Item) {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner).push((request_id.to_owned(), item));
    }

    /// Asks again for what may have been created, so that it is known. What is still unknown stays in doubt.
    pub async fn settle(&self, admin: &Admin, recorder: &Recorder) {
        let unsure = std::mem::take(&mut *self.unsure.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, item) in unsure {
            match self.ask(admin, recorder, "operator", &id, &item).await {
                Came::Done(_) => self.add(item),
                Came::Refused(_) => {}
                Came::Unknown => self.doubt(&id, item),
            }
        }
    }

    /// Is it known of all that was asked for whether it was created?
    pub fn is_known(&self) -> bool {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All that is due, the bell left out.
    pub fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A schedule of this name.
    pub fn find(&self, name: &str) -> Option<Item> {
        if name == BELL {
            return Some(bell());
        }
        self.items().iter().find(|item| item.name == name).cloned()
    }

    /// The first that is due at this instant or later.
    pub fn next_after(&self, at_ms: u64) -> Option<Item> {
        self.items().iter().filter(|item| item.due_ms >= at_ms).min_by_key(|item| item.due_ms).cloned()
    }

    /// All instants of everything, one for each run that is due.
    pub fn instants_ms(&self) -> Vec<i64> {
        self.items().iter().flat_map(Item::instants_ms).collect()
    }

    /// Recipients in all, each of one run.
    pub fn recipients(&self) -> u64 {
        self.items().iter().map(|item| u64::from(item.recipients) * item.instants_ms().len() as u64).sum()
    }

    /// Writes down for how long the campaign was more than its rate lets through: from its instant until nine tenths of all
    /// its mails that came had come. What is left then are those who have to wait for something else.
    pub fn record_overload(&self, recorder: &Recorder, sink: &Sink) {
        let Some(campaign) = self.find(CAMPAIGN) else { return };
        let whom: HashSet<String> = campaign.addresses().collect();
        let mails = sink.mails();
        let own = mails.iter().filter(|(_, accept)| whom.contains(&accept.recipient));
        let mut came: Vec<u64> = own.map(|(_, accept)| recorder.ns(accept.accept_monotonic_us as i64)).collect();
        came.sort_unstable();
        let Some(until_ns) = came.get(came.len() * 9 / 10).copied() else { return };
        let ago_ms = (unix_us(SystemTime::now()) as u64 / 1_000).saturating_sub(campaign.due_ms);
        let from_ns = recorder.now_ns().saturating_sub(ago_ms * 1_000_000);
        recorder.event(&Event::Overload(Overload { tenant: campaign.tenant().to_owned(), from_ns, until_ns }));
    }

    /// Writes down what is due, by this page alone.
    pub fn record(&self, recorder: &Recorder) {
        for item in self.items().iter().chain([&bell()]) {
            let recipients = item.addresses().collect();
            let codes = (0..item.recipients).map(|recipient| item.code(recipient)).collect();
            recorder.event(&Event::Audience(Audience { name: item.name.clone(), recipients, codes }));
        }
        for item in self.items().iter() {
            for due_unix_ms in item.instants_ms() {
                let (tenant, schedule, audience) = (item.tenant().to_owned(), item.name.clone(), item.name.clone());
                recorder.event(&Event::Due(Due { tenant, schedule, due_unix_ms, audience }));
            }
        }
    }
}

/// A schedule with these instants, which are so far apart.
fn every(item: &Item, (instants_ms, period_ms): (&[i64], i64), policies: Policies) -> ScheduleBody {
    let at = |ms: Option<&i64>| {
        let since = Duration::from_millis(ms.copied().unwrap_or_default().max(0) as u64);
        Some(prost_types::Timestamp::from(UNIX_EPOCH + since))
    };
    let period = prost_types::Duration { seconds: period_ms / 1_000, nanos: 0 };
    let (start, end) = (at(instants_ms.first()), at(instants_ms.last()));
    let every = Every { period: Some(period), anchor: start };
    ScheduleBody {
        policies: Some(policies),
        when: Some(When { pattern: Some(when::Pattern::Every(every)) }),
        start,
        end,
        ..load::once_to(item.name.clone(), UNIX_EPOCH, item.recipients)
    }
}

/// Due long after every run is over.
pub fn bell() -> Item {
    let year = A_YEAR.as_millis() as u64;
    // The same instant whenever it is asked within a year.
    let now_ms = unix_us(SystemTime::now()) as u64 / 1_000;
    Item::once(BELL.to_owned(), (now_ms / year + 3) * year, BELL_RECIPIENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_spread_over_the_phase_and_nobody_is_left_out() {
        let first = UNIX_EPOCH + Duration::from_millis(1_234);
        let workload = Workload::new(4, 10, first, Duration::from_secs(2), InDoubt::Hold);
        let items = workload.items().clone();
        assert_eq!(items.iter().map(|item| item.due_ms).collect::<Vec<_>>(), [1_300, 1_800, 2_300, 2_800]);
        assert_eq!(items.iter().map(|item| item.recipients).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(workload.recipients(), 10);
        assert_eq!(workload.next_after(1_301).unwrap().name, "once-1");
    }

    #[test]
    fn a_campaign_is_due_early_and_its_recipients_are_known() {
        let first = UNIX_EPOCH + Duration::from_millis(1_234);
        let phase = Duration::from_secs(2);
        let workload = Workload::new(1, 1, first, phase, InDoubt::Hold).and_a_campaign(3, 7, first, phase);
        let campaign = workload.find(CAMPAIGN).unwrap();
        assert_eq!((campaign.due_ms, workload.recipients()), (1_600, 4));
        assert_eq!(campaign.addresses().last().unwrap(), "r00000002.s7@audience.invalid");
    }
}
