//! One schedule or campaign of the workload: its instants and its recipients.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reveille_check::events::{Content, ObjectKind};
use reveille_harness::admin::timestamp;
use reveille_harness::load;
use reveille_harness::measure::unix_us;
use reveille_proto::admin::v1::{
    CatchUp, Daily, Every, InDoubt, Overlap, Policies, Schedule, ScheduleBody, When, when,
};

/// The tenant of all schedules.
pub const TENANT: &str = "default";
/// The tenant of the campaign, whose backlog must not delay the other tenant (I12).
pub const BULK_TENANT: &str = "bulk";
/// Both tenants.
pub const TENANTS: [&str; 2] = [TENANT, BULK_TENANT];
/// Name of the campaign, of its audience, and of its relay and pool.
pub const CAMPAIGN: &str = "campaign";
/// Name of the schedule that is only triggered.
pub const TRIGGERED: &str = "triggered";
const TRIGGERED_RECIPIENTS: u32 = 4;
/// Name of the pool that is warmed up, of its relay and of its schedule.
pub const WARMING: &str = "warming";
/// Maximum number of attempts of all schedules.
pub const MAX_ATTEMPTS: u32 = 3;
/// Period of paused schedules in milliseconds.
pub const PAUSED_PERIOD_MS: i64 = 1_000;
/// Period and `min_gap` of the schedule with a gap, in milliseconds.
pub const GAPPED_PERIOD_MS: i64 = 4_000;
pub const GAP_MS: u64 = 10_000;

/// The kind of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A schedule that fires once.
    Once,
    /// A daily schedule.
    Daily(DailyTimes),
    /// A campaign to the audience that is generated from this seed.
    Campaign(u64),
    /// A schedule that is paused at all its instants, which are these.
    Paused(Vec<i64>),
    /// A schedule that fires once, in a pool that is warmed up.
    Warming,
    /// A schedule with a `min_gap` longer than its period.
    Gapped(Vec<i64>),
    /// A message, whose key is the name. It has no instant: clients send it.
    Message,
    /// The recipients of one trigger of the triggered schedule, whose request id is the name.
    List,
    /// A schedule that fires once, to the sealed audience of its name.
    Uploaded,
}

/// A time of day in a zone, over some days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyTimes {
    pub zone: &'static str,
    pub hour: u32,
    pub minute: u32,
    /// Beginning and end in milliseconds since 1970.
    pub between_ms: (i64, i64),
    /// The instants in order, in milliseconds since 1970.
    pub instants_ms: Vec<i64>,
}

/// A schedule or a campaign. Its recipients are the same at each instant, and no other item has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadItem {
    pub name: String,
    /// Instant in milliseconds since 1970. 0: the item has several instants.
    pub due_ms: u64,
    pub recipients: u32,
    pub kind: ItemKind,
}

impl WorkloadItem {
    /// Returns a schedule that fires once.
    pub fn once(name: String, due_ms: u64, recipients: u32) -> WorkloadItem {
        WorkloadItem { name, due_ms, recipients, kind: ItemKind::Once }
    }

    /// Returns an item without an instant.
    pub fn without_instant(name: String, recipients: u32, kind: ItemKind) -> WorkloadItem {
        WorkloadItem { name, due_ms: 0, recipients, kind }
    }

    /// Returns true if a schedule of this name exists.
    pub fn is_schedule(&self) -> bool {
        !matches!(self.kind, ItemKind::Message | ItemKind::List)
    }

    /// Returns the schedule that is only triggered. It is due long after every run.
    pub fn triggered() -> WorkloadItem {
        let year = load::A_YEAR.as_millis() as u64;
        // The instant is the same at every call within a year.
        let now_ms = unix_us(SystemTime::now()) as u64 / 1_000;
        WorkloadItem::once(TRIGGERED.to_owned(), (now_ms / year + 3) * year, TRIGGERED_RECIPIENTS)
    }

    pub fn tenant(&self) -> &'static str {
        match self.kind {
            ItemKind::Campaign(_) => BULK_TENANT,
            _ => TENANT,
        }
    }

    /// Returns the address of one recipient.
    pub fn address(&self, recipient: u32) -> String {
        match self.kind {
            ItemKind::Campaign(seed) => load::generated_address(seed, recipient),
            _ => load::address(&self.name, recipient),
        }
    }

    /// Returns the addresses of all recipients.
    pub fn addresses(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.recipients).map(|number| self.address(number))
    }

    /// Returns the value of this recipient's variable, which the body shows.
    pub fn code(&self, recipient: u32) -> String {
        match self.kind {
            ItemKind::Campaign(seed) => generated_value(seed, Content::VARIABLE, recipient),
            _ => Content::code_of(&self.name, &self.address(recipient)),
        }
    }

    /// Returns all instants in milliseconds since 1970.
    pub fn instants_ms(&self) -> Vec<i64> {
        match &self.kind {
            ItemKind::Daily(times) => times.instants_ms.clone(),
            ItemKind::Paused(instants_ms) | ItemKind::Gapped(instants_ms) => instants_ms.clone(),
            ItemKind::Once | ItemKind::Warming | ItemKind::Campaign(_) | ItemKind::Uploaded => vec![self.due_ms as i64],
            ItemKind::Message | ItemKind::List => Vec::new(),
        }
    }

    /// Returns the zone of the times of day.
    pub fn zone(&self) -> &'static str {
        match &self.kind {
            ItemKind::Daily(times) => times.zone,
            _ => "UTC",
        }
    }

    /// Returns the kind of the item in histories.
    pub fn object_kind(&self) -> ObjectKind {
        match self.kind {
            ItemKind::Campaign(_) => ObjectKind::Campaign,
            _ => ObjectKind::Schedule,
        }
    }

    /// Returns the contents of the item as histories compare them.
    pub fn value(&self) -> String {
        value(self.due_ms as i64, self.recipients)
    }

    /// Returns the item in the form of the API. The content names its schedule, its recipient and the recipient's code
    /// (I16).
    pub fn body(&self, in_doubt: InDoubt) -> ScheduleBody {
        let mut body = self.timed_body(in_doubt);
        if let Some(content) = body.content.as_mut() {
            content.text = Some(Content::template(&self.name));
        }
        if let Some(audience) = body.audience.as_mut().filter(|audience| !audience.recipients.is_empty()) {
            audience.columns = vec![Content::VARIABLE.to_owned()];
            (0..).zip(&mut audience.recipients).for_each(|(number, one)| one.values = vec![self.code(number)]);
        }
        body
    }

    fn timed_body(&self, in_doubt: InDoubt) -> ScheduleBody {
        let at = UNIX_EPOCH + Duration::from_millis(self.due_ms);
        // Several triggers at a time each open a run.
        let overlap = if self.name == TRIGGERED { Overlap::Allow } else { Overlap::Unspecified };
        let (in_doubt, overlap) = (in_doubt.into(), overlap.into());
        let policies = Policies { in_doubt, overlap, max_attempts: MAX_ATTEMPTS, ..Policies::default() };
        let once = load::once_to(self.name.clone(), at, self.recipients);
        match &self.kind {
            ItemKind::Once | ItemKind::Message | ItemKind::List => ScheduleBody { policies: Some(policies), ..once },
            ItemKind::Uploaded => ScheduleBody { policies: Some(policies), ..load::to_sealed(once, &self.name) },
            ItemKind::Warming => ScheduleBody { policies: Some(policies), pool: WARMING.to_owned(), ..once },
            ItemKind::Daily(DailyTimes { zone, hour, minute, between_ms: (from_ms, to_ms), .. }) => {
                let daily = Daily { hour: *hour, minute: *minute, days: String::new() };
                ScheduleBody {
                    policies: Some(policies),
                    timing: Some(When { pattern: Some(when::Pattern::Daily(daily)) }),
                    zone: (*zone).to_owned(),
                    start_time: Some(timestamp(*from_ms)),
                    end_time: Some(timestamp(*to_ms)),
                    ..once
                }
            }
            ItemKind::Paused(instants_ms) => every(once, instants_ms, PAUSED_PERIOD_MS, policies),
            ItemKind::Gapped(instants_ms) => {
                let min_gap = prost_types::Duration { seconds: (GAP_MS / 1_000) as i64, nanos: 0 };
                let (overlap, catch_up) = (Overlap::Allow.into(), CatchUp::All.into());
                let policies = Policies { min_gap: Some(min_gap), overlap, catch_up, ..policies };
                every(once, instants_ms, GAPPED_PERIOD_MS, policies)
            }
            ItemKind::Campaign(_) => ScheduleBody {
                tenant: self.tenant().to_owned(),
                policies: Some(policies),
                pool: CAMPAIGN.to_owned(),
                ..load::to_sealed(load::once_to(self.name.clone(), at, 0), &self.name)
            },
        }
    }
}

fn every(once: ScheduleBody, instants_ms: &[i64], period_ms: i64, policies: Policies) -> ScheduleBody {
    let [start, end] = [instants_ms.first(), instants_ms.last()].map(|ms| ms.copied().map(timestamp));
    let period = prost_types::Duration { seconds: period_ms / 1_000, nanos: 0 };
    let every = Every { period: Some(period), anchor_time: start };
    let timing = Some(When { pattern: Some(when::Pattern::Every(every)) });
    ScheduleBody { policies: Some(policies), timing, start_time: start, end_time: end, ..once }
}

/// Returns the contents of a schedule as histories compare them.
pub fn value(due_ms: i64, recipients: u32) -> String {
    format!("{due_ms} to {recipients}")
}

/// Returns the contents of a schedule that was read, as histories compare them.
pub fn value_of(schedule: &Schedule) -> String {
    let due_ms = match schedule.timing.as_ref().and_then(|when| when.pattern.as_ref()) {
        Some(when::Pattern::At(at)) => at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000,
        _ => 0,
    };
    value(due_ms, schedule.recipients)
}

/// Returns the value of a recipient's only variable in a generated audience, by the product's documented formula.
fn generated_value(seed: u64, column: &str, recipient: u32) -> String {
    let random = mix(seed ^ mix(u64::from(recipient) << 8));
    format!("{column} {:06x}", random & 0xff_ffff)
}

/// Returns a number after the last step of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
